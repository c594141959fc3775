"""The operator's own skills for hermes, found where hermes finds them and copied into an attempt's home.

Hermes looks for `SKILL.md` at any depth below its folder of skills, with the folders above as categories, and goes by
the name in the frontmatter, else the folder's. Skills that came with hermes lie among the operator's; a manifest
names them. They load with the others, but are not the operator's.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from caliper_pipeline.execution.backends.home_files import copy_folder

MARKER = "SKILL.md"
MANIFEST = ".bundled_manifest"
_PASSED_OVER = frozenset({"node_modules", "site-packages", "venv", "__pycache__"})
_SUPPORT = frozenset({"references", "templates", "assets", "scripts"})
"""Inside a skill these hold its own files, whatever lies in them."""
_DEEPEST = 8
_HEAD_BYTES = 8192
_NAME = re.compile(r"^name:[ \t]*[\"']?([^\"'#\n]+?)[\"']?[ \t]*(?:#.*)?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class UserSkill:
    name: str
    folder: Path
    place: Path
    """Where it lies below the folder of skills."""
    bundled: bool
    """It came with hermes."""


def user_skills(roots: Iterable[Path], declared: Collection[str]) -> list[UserSkill]:
    """The skills below the roots, each name once; a declared name is never one of them. Letter case may not count."""
    taken = {name.casefold() for name in declared}
    found: list[UserSkill] = []
    for root in roots:
        bundled = {name.casefold() for name in bundled_names(root)}
        for folder in _skill_folders(root):
            name = _name_of(folder)
            names = {name.casefold(), folder.name.casefold()}
            if names & taken:
                continue
            taken |= names
            found.append(UserSkill(name, folder, folder.relative_to(root), bool(names & bundled)))
    return found


def copy_skills(skills: Iterable[UserSkill], target: Path, declared: Collection[str]) -> None:
    """Copy them to where they lay; beside a declared skill, not into it."""
    reserved = {name.casefold() for name in declared}
    for skill in skills:
        clashes = skill.place.parts[0].casefold() in reserved
        place = target / (Path(skill.folder.name) if clashes else skill.place)
        copy_folder(skill.folder, place)


def bundled_names(root: Path) -> tuple[str, ...]:
    """The skills that came with hermes, as the manifest in a folder of skills names them, sorted."""
    try:
        text = (root / MANIFEST).read_text("utf-8", "replace")
    except OSError:
        return ()
    return tuple(sorted({line.partition(":")[0].strip() for line in text.splitlines()} - {""}))


def _skill_folders(root: Path) -> Iterator[Path]:
    """Every folder with a `SKILL.md`, sorted; links are followed, loops are not."""
    seen: set[str] = set()
    for place, folders, files in os.walk(root, followlinks=True):
        real = os.path.realpath(place)
        if real in seen or len(Path(place).relative_to(root).parts) > _DEEPEST:
            folders.clear()
            continue
        seen.add(real)
        inside = MARKER in files and place != str(root)
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".") and name not in _PASSED_OVER and not (inside and name in _SUPPORT)
        )
        if inside:
            yield Path(place)


def _name_of(folder: Path) -> str:
    try:
        with (folder / MARKER).open("rb") as file:
            text = file.read(_HEAD_BYTES).decode("utf-8-sig", "replace").replace("\r\n", "\n")
    except OSError:
        return folder.name
    if not text.startswith("---\n"):
        return folder.name
    found = _NAME.search(text[4:].partition("\n---")[0])
    return found[1].strip() if found else folder.name
