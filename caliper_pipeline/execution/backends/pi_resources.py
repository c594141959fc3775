"""Where pi finds skills, prompts, extensions and packages of a person's, by the rules of pi's own discovery.

- `skills/` and `prompts/` beside `settings.json`, `~/.agents/skills`, and the paths that the settings name. A folder
  with a `SKILL.md` is a skill and nothing below it is; hidden folders and `node_modules` are passed over.
- Entries of the settings that begin with `!` (a pattern), `-` or `+` (a path) switch what was found off or on.
- A package is an npm package below `npm/`, a clone below `git/`, or a folder; its manifest may say what is in it.

Not covered: `.gitignore` files among the resources.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caliper_pipeline.execution.backends.pi_values import read_file

_HEADER_LINES = 60
_NAME = re.compile(r"name:[ \t]*[\"']?([^\"'#]+?)[\"']?[ \t]*\Z")
_NPM = re.compile(r"npm:\s*((?:@[^@/]+/)?[^@/]+)")
_GIT = re.compile(
    r"(?:git:)?(?:\w+(?:\+\w+)?://)?(?:[^@/]+@)?([\w.-]+\.[\w-]+)(?::\d+)?[:/](.+?)(?:\.git)?(?:[@#][^/]*)?/?\Z"
)


@dataclass(frozen=True, slots=True)
class FoundSkill:
    name: str
    file: Path
    """`SKILL.md` in the skill's folder, or a file that is a skill by itself."""


@dataclass(frozen=True, slots=True)
class Package:
    source: str
    root: Path
    filters: Mapping[str, Any]
    """The rest of its entry in the settings."""


class Settings:
    """The entries of `settings.json` that name resources; paths are relative to `folder`."""

    def __init__(self, settings: Mapping[str, Any], folder: Path, home: Path) -> None:
        self.folder = folder
        self.home = home
        self._settings = settings

    def entries(self, kind: str) -> list[str]:
        given = self._settings.get(kind)
        return [entry for entry in given if isinstance(entry, str)] if isinstance(given, list) else []

    def paths(self, kind: str) -> list[Path]:
        """Those that add something, made absolute."""
        return [self.absolute(entry) for entry in self.entries(kind) if not _is_pattern(entry)]

    def absolute(self, entry: str) -> Path:
        entry = entry.strip().removeprefix("file://")
        if entry == "~" or entry.startswith("~/"):
            return self.home / entry[2:]
        return Path(os.path.normpath(self.folder / entry))

    def enabled(self, kind: str, file: Path, base: Path) -> bool:
        on = True
        patterns = self.entries(kind)
        if any(entry[0] == "!" and _matches(entry[1:], file, base) for entry in patterns if entry):
            on = False
        if any(entry[0] == "+" and _is(entry[1:], file, base) for entry in patterns if entry):
            on = True
        if any(entry[0] == "-" and _is(entry[1:], file, base) for entry in patterns if entry):
            on = False
        return on

    def packages(self, installed: Sequence[Path]) -> list[Package]:
        """Those whose files are there. `installed`: further folders that npm packages may lie in."""
        given = self._settings.get("packages")
        found = []
        for entry in given if isinstance(given, list) else ():
            filters = dict(entry) if isinstance(entry, dict) else {}
            source = filters.pop("source", None) if isinstance(entry, dict) else entry
            root = self._package_root(source, installed) if isinstance(source, str) else None
            if isinstance(source, str) and root is not None:
                found.append(Package(source, root, filters))
        return found

    def _package_root(self, source: str, installed: Sequence[Path]) -> Path | None:
        if npm := _NPM.match(source):
            places = [root / npm[1] for root in (self.folder / "npm" / "node_modules", *installed)]
        elif source.startswith((".", "/", "~")):
            places = [self.absolute(source)]
        elif git := _GIT.match(source):
            places = [self.folder / "git" / git[1] / git[2].strip("/")]
        else:
            places = [self.absolute(source)]
        return next((place for place in places if place.exists()), None)


def skills_in(root: Path, *, files_at_top: bool = True) -> Iterator[FoundSkill]:
    """The skills that lie in a folder. `files_at_top`: Markdown files in it are skills too; else those below it."""
    yield from _skills(root, root, files_at_top, set())


def _skills(folder: Path, root: Path, files_at_top: bool, seen: set[str]) -> Iterator[FoundSkill]:
    real = os.path.realpath(folder)
    if real in seen or not folder.is_dir():
        return
    seen.add(real)
    if (folder / "SKILL.md").is_file():
        yield from _skill(folder / "SKILL.md")
        return
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith(".") or entry.name == "node_modules":
            continue
        if entry.is_dir():
            yield from _skills(entry, root, files_at_top, seen)
        elif entry.suffix == ".md" and entry.is_file() and (folder == root) == files_at_top:
            yield from _skill(entry)


def skill_at(path: Path) -> Iterator[FoundSkill]:
    """What a path names: a skill, a file that is one, or a folder of them."""
    yield from _skill(path) if path.is_file() else skills_in(path)


def _skill(file: Path) -> Iterator[FoundSkill]:
    """Nothing for a file that the CLI would leave out: without a header, or without a description in it."""
    try:
        lines = file.read_text(encoding="utf-8-sig", errors="replace").splitlines()[:_HEADER_LINES]
    except OSError:
        return
    if not lines or lines[0].rstrip() != "---":
        return
    end = next((i for i, line in enumerate(lines[1:], 1) if line.startswith("---")), len(lines))
    header = lines[1:end]
    if any(line.startswith("description:") for line in header):
        named = next((found[1] for line in header if (found := _NAME.match(line))), None)
        yield FoundSkill(named or file.parent.name, file)


def extension_entries(folder: Path) -> list[Path]:
    """The files that are loaded from a folder of extensions."""
    own = _entry_points(folder)
    if own is not None or not folder.is_dir():
        return own or []
    found: list[Path] = []
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith(".") or entry.name == "node_modules":
            continue
        if entry.is_dir():
            found += _entry_points(entry) or []
        elif entry.suffix in (".ts", ".js") and entry.is_file():
            found.append(entry)
    return found


def _entry_points(folder: Path) -> list[Path] | None:
    listed = manifest(folder).get("extensions")
    named = [folder / entry for entry in listed if isinstance(entry, str)] if isinstance(listed, list) else []
    present = [path for path in named if path.exists()]
    if present:
        return present
    return next(([folder / name] for name in ("index.ts", "index.js") if (folder / name).is_file()), None)


def package_skills(package: Package) -> list[FoundSkill]:
    if package.filters.get("skills") == []:
        return []
    listed = manifest(package.root).get("skills")
    found: list[FoundSkill] = []
    for entry in listed if isinstance(listed, list) else ["skills"]:
        if not isinstance(entry, str) or entry.startswith(("!", "-", "/")):
            continue
        places = package.root.glob(entry) if set(entry) & set("*?[") else [package.root / entry]
        for place in places:
            found += skill_at(place)
    return found


def manifest(folder: Path) -> Mapping[str, Any]:
    """The `pi` part of the folder's package.json. Empty: there is none."""
    value = read_file(folder / "package.json")
    pi = value.get("pi") if isinstance(value, dict) else None
    return pi if isinstance(pi, dict) else {}


def package_entry(package: Package, without: Sequence[Path]) -> str | dict[str, Any]:
    """Its entry in the settings of an attempt: the same files where they lie, less some of its skills."""
    if not package.filters and not without:
        return str(package.root)
    entry = {**package.filters, "source": str(package.root)}
    if without:
        kept = entry.get("skills")
        entry["skills"] = [
            *(kept if isinstance(kept, list) else ()),
            *(f"-{path.relative_to(package.root)}" for path in without if path.is_relative_to(package.root)),
        ]
    return entry


def _is_pattern(entry: str) -> bool:
    return entry.startswith(("!", "+", "-", "builtin:")) or "*" in entry or "?" in entry


def _forms(file: Path, base: Path) -> list[str]:
    """What a pattern may be held against."""
    files = [file, file.parent] if file.name == "SKILL.md" else [file]
    return [form for one in files for form in (os.path.relpath(one, base), one.name, str(one))]


def _is(path: str, file: Path, base: Path) -> bool:
    wanted = path.removeprefix("./").rstrip("/")
    files = [file, file.parent] if file.name == "SKILL.md" else [file]
    return any(wanted in (os.path.relpath(one, base), str(one)) for one in files)


def _matches(pattern: str, file: Path, base: Path) -> bool:
    expression = re.compile(_as_expression(pattern.removeprefix("./")))
    return any(expression.fullmatch(form) for form in _forms(file, base))


def _as_expression(pattern: str) -> str:
    parts = {"**/": r"(?:.*/)?", "**": r".*", "*": r"[^/]*", "?": r"[^/]"}
    pieces = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    return "".join(parts.get(piece, re.escape(piece)) for piece in pieces)
