"""Which files of a skill's folder are installed, with their digests: the same list that is hashed and staged.

Left out are version control, environments, stores and specs, whatever `forbidden_files` matches, and what is no plain
file. A link counts by its own path and by where it leads, and so does a second name of the same file, so that an answer
key does not come in under an innocent name. Folders behind links are not entered. Not covered: copies of a forbidden
file's bytes under another name.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from caliper_pipeline.domain.automaton import Matcher
from caliper_pipeline.domain.skills import LeftOut, SkillFile

LARGEST_FILE = 5 * 1024**2
EXCLUDED_FOLDERS = frozenset((".caliper", ".git", ".hg", ".svn", "__pycache__", "node_modules", ".venv"))
"""Also as the name of a file or a link: `.git` of a work tree, `.venv` that leads elsewhere."""
_ENVIRONMENT = "pyvenv.cfg"
"""The file that makes any folder a virtual environment."""
EXCLUDED_ENDINGS = (".eval.yaml", ".eval.yml", ".script.yaml", ".script.yml")


@dataclass(frozen=True, slots=True)
class Exclusions:
    """What a spec keeps out of every install."""

    patterns: tuple[str, ...] = ()
    """`forbidden_files`."""
    spec_folder: Path | None = None
    """Links to outside the skill are also matched by their way from here."""
    spec_identity: tuple[int, int] | None = None
    """Device and inode of the spec, which is never installed whatever it is called."""

    def matchers(self) -> tuple[Matcher, ...]:
        return tuple(Matcher(pattern) for pattern in self.patterns)


@dataclass(slots=True)
class Listing:
    files: tuple[SkillFile, ...]
    left_out: tuple[LeftOut, ...]
    excluded: dict[str, str]
    """Relative path → why, for what rules keep out."""


class Unreadable(Exception):
    """A file or folder of the skill that cannot be read."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


def list_files(folder: Path, exclusions: Exclusions) -> Listing:
    """The files of a folder as they would be installed, sorted by path. Raises `Unreadable`."""
    return _Walk(folder, exclusions).run()


@dataclass(slots=True)
class _Walk:
    folder: Path
    exclusions: Exclusions
    matchers: Sequence[Matcher] = ()
    real_folder: str = ""
    spec_folder: str = ""
    files: list[SkillFile] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    excluded: dict[str, str] = field(default_factory=dict)
    identities: dict[str, tuple[int, int]] = field(default_factory=dict)
    forbidden_identities: set[tuple[int, int]] = field(default_factory=set)

    def run(self) -> Listing:
        self.matchers = self.exclusions.matchers()
        self.real_folder = os.path.realpath(self.folder)
        if self.exclusions.spec_folder is not None:
            self.spec_folder = os.path.realpath(self.exclusions.spec_folder)
        todo = [""]
        while todo:
            todo.extend(self.enter(todo.pop()))
        kept = []
        for file in self.files:
            if self.identities.get(file.path) in self.forbidden_identities:
                self.exclude(file.path, "it is another name of an excluded file")
            else:
                kept.append(file)
        return Listing(
            tuple(sorted(kept, key=lambda file: file.path)),
            tuple(sorted(self.left_out, key=lambda item: item.path)),
            self.excluded,
        )

    def enter(self, below: str) -> list[str]:
        """Look at one folder; gives the folders in it that are to be entered."""
        folders = []
        try:
            with os.scandir(self.folder / below) as found:
                entries = list(found)
            if not below or all(entry.name != _ENVIRONMENT for entry in entries):
                for entry in entries:
                    path = f"{below}/{entry.name}" if below else entry.name
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name.lower() not in EXCLUDED_FOLDERS:
                            folders.append(path)
                    else:
                        self.look_at(entry, path)
        except OSError as error:
            raise Unreadable(below or ".", error.strerror or str(error)) from error
        return folders

    def look_at(self, entry: "os.DirEntry[str]", path: str) -> None:
        is_link = entry.is_symlink()
        try:
            status = entry.stat()
        except OSError as error:
            if is_link and error.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR):
                if self.rule_against(path) is None:
                    self.left_out.append(LeftOut(path, "it is a link that leads nowhere"))
                return
            raise Unreadable(path, error.strerror or str(error)) from error
        identity = (status.st_dev, status.st_ino)
        why = self.rule_against(path) or (self.rule_against_target(path) if is_link else None)
        if identity == self.exclusions.spec_identity:
            why = "it is the spec itself"
        if why is not None:
            self.exclude(path, why)
            if not is_link:
                self.forbidden_identities.add(identity)
        elif not path.isprintable() and not _is_utf8(path):
            self.left_out.append(LeftOut(ascii(path), "its name is not UTF-8, or not to this locale"))
        elif stat.S_ISDIR(status.st_mode):
            self.left_out.append(LeftOut(path, "it is a link to a folder, and those are not followed"))
        elif not stat.S_ISREG(status.st_mode):
            self.left_out.append(LeftOut(path, "it is no plain file"))
        elif status.st_size > LARGEST_FILE:
            self.left_out.append(
                LeftOut(path, f"it has {status.st_size:,} bytes; at most {LARGEST_FILE:,} are installed")
            )
        else:
            source = os.path.realpath(entry.path) if is_link else f"{self.real_folder}/{path}"
            self.take(path, source, identity)

    def take(self, path: str, source: str, identity: tuple[int, int]) -> None:
        try:
            # O_NONBLOCK: should a pipe have taken the file's place by now, opening it must not wait.
            number = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                status = os.fstat(number)
                if not stat.S_ISREG(status.st_mode):
                    raise Unreadable(path, "it changed while it was read")
                with os.fdopen(number, "rb", closefd=False) as file:
                    data = file.read(LARGEST_FILE + 1)
            finally:
                os.close(number)
        except OSError as error:
            raise Unreadable(path, error.strerror or str(error)) from error
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        self.identities[path] = identity
        self.files.append(SkillFile(path, source, digest, len(data), bool(status.st_mode & 0o111)))

    def exclude(self, path: str, why: str) -> None:
        self.excluded[path] = why

    def rule_against(self, path: str) -> str | None:
        """Which rule keeps a path out; relative to the skill's folder, or absolute."""
        parts = path.lower().split("/")
        if not EXCLUDED_FOLDERS.isdisjoint(parts):
            return "it lies in a folder that is never installed"
        if parts[-1].endswith(EXCLUDED_ENDINGS):
            return "specs and scripts of agents are never installed"
        forms = (path,) if path.startswith("/") else (path, f"./{path}")
        for matcher in self.matchers:
            if any(matcher.found_in(form) for form in forms):
                return f"the pattern {matcher.text!r} of forbidden_files matches it"
        return None

    def rule_against_target(self, path: str) -> str | None:
        """The same for where a link leads: inside the skill by its path there, outside by every way to name it."""
        target = os.path.realpath(self.folder / path)
        if target.startswith(self.real_folder + os.sep):
            forms = [target[len(self.real_folder) + 1 :]]
        else:
            forms = [target, os.path.relpath(target, self.real_folder)]
            if self.spec_folder:
                forms.append(os.path.relpath(target, self.spec_folder))
        for form in forms:
            why = self.rule_against(form)
            if why is not None:
                return f"it is a link to {target}: {why}"
        return None


def _is_utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
