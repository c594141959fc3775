"""Skills as a spec names them, to skills as they are installed: found, read, named, listed, hashed.

The skill is the folder that holds the `SKILL.md` that the spec names, even when that file is a link to somewhere else.
Everything wrong with any of the skills is told together. Git sources are checked here and fetched elsewhere.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from caliper_pipeline.domain.authored import Finding
from caliper_pipeline.domain.errors import CannotRun, Problem, SpecError
from caliper_pipeline.domain.skills import Skill
from caliper_pipeline.sources.frontmatter import FrontmatterFault, read_frontmatter
from caliper_pipeline.sources.git_state import GitState, find_git_state
from caliper_pipeline.sources.placing import Placer
from caliper_pipeline.sources.skill_files import LARGEST_FILE, Exclusions, Listing, Unreadable, list_files
from caliper_pipeline.sources.text_file import absolute_path, decode, named_path, printable, read_bytes

if TYPE_CHECKING:
    from caliper_pipeline.sources.spec_file import LoadedSpec

__all__ = ["GitState", "find_git_state", "load_skills", "read_skills"]

SKILL_FILE = "SKILL.md"


def load_skills(loaded: "LoadedSpec", home: Path) -> tuple[Skill, ...]:
    """The skills of a spec, ready to be installed. Raises `CannotRun` when one has to be fetched with git."""
    if loaded.git_sources:
        listed = ", ".join(str(source) for source in loaded.git_sources)
        raise CannotRun(
            f"{loaded.path}: skills: git sources are not runnable yet in this version ({listed}).",
            hint="Clone the repository and name the path of its SKILL.md.",
        )
    return loaded.skills


@dataclass(slots=True)
class SkillReading:
    """What came of reading the path sources of a spec."""

    skills: list[Skill] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def read_skills(
    entries: Sequence[Any], *, folder: Path, home: Path, exclusions: Exclusions, placer: Placer
) -> SkillReading:
    """The skills that the strings among the entries name; relative paths start at `folder`, `~` is `home`."""
    reading = SkillReading()
    seen: dict[str, tuple[str, str]] = {}
    for place, entry in enumerate(entries):
        if not isinstance(entry, str) or not entry.strip():
            continue
        path = _locate(entry, folder, home)
        try:
            skill = _read_skill(path, exclusions)
        except _Refused as refusal:
            finding = Finding(("skills", place), refusal.message)
            reading.problems.append(placer.problem(finding))
            continue
        except SpecError as error:
            reading.problems += error.problems
            continue
        name, other = seen.setdefault(skill.name.casefold(), (skill.name, skill.path))
        if other == skill.path and any(known.path == skill.path for known in reading.skills):
            message = f"is listed twice (the skill {skill.name!r})"
            reading.problems.append(placer.problem(Finding(("skills", place), message)))
            continue
        if other != skill.path:
            detail = (
                f"is called {skill.name!r} like {printable(other)}"
                if name == skill.name
                else f"is called {skill.name!r} and {printable(other)} is called {name!r}: where file names ignore "
                "letter case, they share one folder"
            )
            message = f"{printable(skill.path)} {detail}; a skill's name is its identity, so each needs its own"
            reading.problems.append(placer.problem(Finding(("skills", place), message)))
            continue
        reading.skills.append(skill)
    return reading


class _Refused(Exception):
    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def _locate(entry: str, folder: Path, home: Path) -> Path:
    """The absolute path that an entry names; the last component, when it is a link, is not followed."""
    text = named_path(entry.strip())
    if text == "~" or text.startswith("~/"):
        text = f"{home}/{text[2:]}"
    return absolute_path(folder / text)


def _read_skill(path: Path, exclusions: Exclusions) -> Skill:
    shown = printable(str(path))
    if path.name != SKILL_FILE:
        raise _Refused(_wrong_name(path, shown))
    data = _skill_bytes(path, shown)
    try:
        frontmatter = read_frontmatter(decode(data, shown), shown)
    except FrontmatterFault as fault:
        raise SpecError([Problem(shown, fault.message, key="name", line=fault.line)]) from fault
    try:
        listing = list_files(path.parent, exclusions)
    except Unreadable as error:
        raise _Refused(
            f"{printable(str(path.parent))}/{printable(error.path)} cannot be read: {error.reason}"
        ) from error
    if not any(file.path == SKILL_FILE for file in listing.files):
        why = listing.excluded.get(SKILL_FILE) or "it cannot be installed"
        raise _Refused(f"{shown} would not be installed: {why}. No agent could discover the skill")
    return Skill(
        name=frontmatter.name,
        description=frontmatter.description,
        path=str(path),
        files=listing.files,
        left_out=listing.left_out,
        warnings=(*frontmatter.warnings, *_left_out(listing)),
    )


def _wrong_name(path: Path, shown: str) -> str:
    if path.is_dir():
        inside = path / SKILL_FILE
        if inside.is_file():
            return f"{shown} is a folder: name the file in it, …/{printable(path.name)}/{SKILL_FILE}"
        return f"{shown} is a folder without a {SKILL_FILE}"
    if not path.exists():
        return f"{shown} does not exist, and is not called {SKILL_FILE}"
    return (
        f"{shown} is not called {SKILL_FILE}: a skill is a folder with a {SKILL_FILE} in it, "
        "and agents discover it by that name"
    )


def _skill_bytes(path: Path, shown: str) -> bytes:
    try:
        return read_bytes(path, shown, limit=LARGEST_FILE)
    except SpecError as error:
        message = error.problems[0].message
        if message == "does not exist" and path.is_symlink():
            message = "is a link that leads nowhere"
        raise _Refused(f"{shown} {message}") from error


def _left_out(listing: Listing) -> Iterable[str]:
    for item in listing.left_out:
        yield f"{printable(item.path)} is left out of the install: {item.reason}"
    for path, why in listing.excluded.items():
        if why.startswith("it is a"):
            yield f"{printable(path)} is left out of the install: {why}"
