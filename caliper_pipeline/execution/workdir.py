"""The folders of one attempt: made fresh, owned by a live process, and removed whatever happened in them.

    <temp>/w-…/home     the agent's home: login, settings, skills
    <temp>/w-…/work     the workdir that all steps share, empty at first
    <temp>/w-…/         (another one) `private`: what the agent is not to see, such as a staged assert

`home` and `work` are siblings: agent CLIs read instructions and skills from every folder above the workdir, so neither
the home nor anything of the operator's may lie there. A temporary folder below a git repository or below such files is
passed over where another one is clean. No name says what it is for.

Homes hold copied logins, so they must not stay after a SIGKILL. The private folder holds a file that its owner keeps
locked as long as it lives; `sweep_stale` removes the folders of every owner that no longer does. A lock cannot be
mistaken, as a pid can: not by a pid given out anew, nor across containers that share a temporary folder.
"""

import contextlib
import fcntl
import os
import re
import stat
import time
from dataclasses import dataclass
from pathlib import Path

from caliper_pipeline.domain.errors import BadInput, CannotRun
from caliper_pipeline.execution.environment import temp_folder
from caliper_pipeline.execution.removal import remove_tree
from caliper_pipeline.execution.snapshot import RestoreResult as RestoreResult
from caliper_pipeline.execution.snapshot import SnapshotResult as SnapshotResult
from caliper_pipeline.execution.snapshot import restore_workdir as restore_workdir
from caliper_pipeline.execution.snapshot import snapshot_workdir as snapshot_workdir

_NAME = re.compile(r"w-[a-z0-9]{12}\Z")
_MARK = "mark"
_READ_ABOVE_A_WORKDIR = (".git", ".claude", "CLAUDE.md", "CLAUDE.local.md", ".mcp.json", "AGENTS.md")
_UNMARKED_SECONDS = 60.0
"""A folder without a mark is being made by a live process, or was left by one that died just then."""


@dataclass(slots=True)
class AttemptFolder:
    """Removed by `remove`, or at the end of a `with` block."""

    top: Path
    private: Path
    """Where no path that the agent sees leads."""
    lock: int
    """Descriptor that keeps the mark locked; -1 once removed."""

    @property
    def home(self) -> Path:
        return self.top / "home"

    @property
    def workdir(self) -> Path:
        return self.top / "work"

    @property
    def group(self) -> str:
        """A name for the attempt's processes that no other attempt has."""
        return self.top.name

    def __enter__(self) -> "AttemptFolder":
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()

    def mend_workdir(self) -> None:
        """What an agent removed, locked or put something else in place of is a folder again that steps can enter.

        No link is followed: a hook that runs there must not run elsewhere. Raises `OSError`.
        """
        try:
            mode = self.workdir.lstat().st_mode
        except FileNotFoundError:
            mode = 0
        if stat.S_ISDIR(mode):
            if mode & 0o700 != 0o700:
                self.workdir.chmod(stat.S_IMODE(mode) | 0o700)
            return
        if mode:
            self.workdir.unlink()
        self.top.mkdir(mode=0o700, exist_ok=True)
        self.workdir.mkdir(mode=0o700)

    def remove(self) -> str | None:
        """`None` when all is gone, else why something is left. May be called again."""
        if self.lock < 0:
            return None
        problem = _remove_owned(self.top, self.private)
        os.close(self.lock)
        self.lock = -1
        return problem


def make_attempt_folder(temp_root: Path | None = None) -> AttemptFolder:
    """A new home and workdir, both empty but for the home's folder for temporary files. Raises `CannotRun`."""
    root = temp_root or find_temp_root()
    try:
        private = _new_folder(root)
        top = root / _new_name()
        lock = _mark(private, top.name)
        try:
            for folder in (top, top / "home", top / "work"):
                folder.mkdir(mode=0o700)
            temp_folder(top / "home").mkdir(mode=0o700, parents=True)
        except BaseException:
            _remove_owned(top, private)
            os.close(lock)
            raise
    except OSError as error:
        raise CannotRun(f"No folder for an attempt can be made in {root}: {error}") from error
    return AttemptFolder(top, private, lock)


def find_temp_root() -> Path:
    """The folder for temporary files that attempts are made in, links resolved. Raises `CannotRun`: there is none."""
    roots = _temp_roots()
    if not roots:
        raise CannotRun("There is no folder for temporary files.", hint="Set TMPDIR to one that can be written to.")
    return next((folder for folder in roots if _is_clean(folder)), roots[0])


def _temp_roots() -> list[Path]:
    named = [os.environ[name] for name in ("TMPDIR", "TEMP", "TMP") if os.environ.get(name)]
    roots = dict.fromkeys(os.path.realpath(folder) for folder in (*named, "/tmp", "/var/tmp"))
    return [Path(root) for root in roots if Path(root).is_dir() and os.access(root, os.W_OK | os.X_OK)]


def _is_clean(folder: Path) -> bool:
    """Nothing that agents would read lies in it or above it."""
    return not any((above / name).exists() for above in (folder, *folder.parents) for name in _READ_ABOVE_A_WORKDIR)


def sweep_stale(temp_root: Path | None = None) -> int:
    """Remove the folders of attempts whose owner is dead; how many attempts. Safe beside others that do the same."""
    swept = 0
    for root in [temp_root] if temp_root is not None else _temp_roots():
        with os.scandir(root) as entries:
            names = [entry.name for entry in entries if _NAME.match(entry.name)]
        for name in names:
            with contextlib.suppress(OSError):  # somebody else's, or gone meanwhile
                swept += _sweep(root, name)
    return swept


def _sweep(root: Path, name: str) -> bool:
    private = root / name
    if not _is_ours(private):
        return False
    try:
        lock = os.open(private / _MARK, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        _sweep_unmarked(private)
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: its owner lives
        if os.fstat(lock).st_nlink == 0:  # who held it before us has swept it
            return False
        top = os.read(lock, 100).decode("ascii", "replace").strip()
        # Only ever a neighbour of that very form: a forged mark cannot point at anything else.
        if not _NAME.match(top):
            return False
        return _remove_owned(root / top, private) is None
    finally:
        os.close(lock)


def _sweep_unmarked(private: Path) -> None:
    """What is left when an owner died between making the folder and marking it: nothing, or an unfinished mark."""
    with os.scandir(private) as entries:
        names = [entry.name for entry in entries]
    if set(names) <= {f"{_MARK}.new"} and time.time() - private.stat().st_mtime > _UNMARKED_SECONDS:
        remove_tree(private)


def _is_ours(folder: Path) -> bool:
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def _remove_owned(top: Path, private: Path) -> str | None:
    """The agent's folder first, since logins are in it; the mark last, so that a sweep can finish what was begun."""
    problem = None
    try:
        if _is_ours(top):
            problem = remove_tree(top)
    except FileNotFoundError:
        pass
    with contextlib.suppress(FileNotFoundError):
        for entry in list(private.iterdir()):
            if entry.name != _MARK:
                problem = remove_tree(entry) or problem
    return problem or remove_tree(private)


def _new_name() -> str:
    return "w-" + "".join("abcdefghijklmnopqrstuvwxyz0123456789"[byte % 36] for byte in os.urandom(12))


def _new_folder(root: Path) -> Path:
    folder = root / _new_name()
    folder.mkdir(mode=0o700)
    return folder


def _mark(private: Path, top: str) -> int:
    """Write the mark and keep it locked. It appears under its name only when it is."""
    aside = private / f"{_MARK}.new"
    lock = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.write(lock, f"{top}\n".encode("ascii"))
        aside.rename(private / _MARK)
    except BaseException:
        os.close(lock)
        raise
    return lock


def install_skill(source_folder: Path, skills_root: Path, name: str) -> None:
    """Copy a staged skill to where the agent looks for it, under exactly that name. Copies, since agents may write.

    What lies there under that name (a user's own skill) makes way. Raises `CannotRun`.
    """
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise BadInput(f"{name!r} cannot be the name of an installed skill: it is no plain folder name.")
    target = skills_root / name
    try:
        skills_root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.path.lexists(target):
            remove_tree(target)
        _copy_tree(source_folder, target)
    except OSError as error:
        raise CannotRun(f"The skill {name} cannot be installed: {error}") from error


def _copy_tree(source: Path, target: Path) -> None:
    target.mkdir(mode=0o755)
    with os.scandir(source) as entries:
        for entry in entries:
            here, there = source / entry.name, target / entry.name
            if entry.is_dir(follow_symlinks=False):
                _copy_tree(here, there)
            elif entry.is_file(follow_symlinks=False):
                _copy_file(here, there, 0o755 if entry.stat().st_mode & 0o100 else 0o644)
            else:
                raise CannotRun(f"{here}: a staged skill holds only files and folders.")


def _copy_file(source: Path, target: Path, mode: int) -> None:
    reader = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        writer = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            _copy_bytes(reader, writer)
        finally:
            os.close(writer)
    finally:
        os.close(reader)


def _copy_bytes(reader: int, writer: int) -> None:
    if hasattr(os, "copy_file_range"):  # shares the blocks where the file system can
        with contextlib.suppress(OSError):
            while os.copy_file_range(reader, writer, 1 << 30):
                pass
    while data := os.read(reader, 1 << 20):
        view = memoryview(data)
        while view:
            view = view[os.write(writer, view) :]
