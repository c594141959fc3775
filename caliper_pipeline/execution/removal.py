"""Remove a tree that somebody else made: read-only folders, links, any names, any depth.

Links are removed, never followed. It works from folder to folder by descriptor, so no path is too long; folders below
a certain depth are first moved up, so descriptors and stack do not run out.

Not covered: immutable files and mounts. They stay, and the caller is told.
"""

import contextlib
import os
import stat
from pathlib import Path

_DEEPEST = 40
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: Path) -> str | None:
    """`None` when it is gone (or was not there), else why something is left."""
    problem: OSError | None = None
    for _ in range(3):  # something may still be writing into it
        try:
            parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            _Removal().remove(parent, path.name, 0)
        except FileNotFoundError:
            return None
        except OSError as error:
            problem = error
        else:
            return None
        finally:
            os.close(parent)
    return f"{path}: {problem}"


class _Removal:
    def __init__(self) -> None:
        self._top = -1
        self._moved = False
        """Folders from further down lie in the top folder now."""

    def remove(self, parent: int, name: str, depth: int) -> None:
        if not _is_folder(parent, name):
            os.unlink(name, dir_fd=parent)
            return
        try:
            folder = os.open(name, _FOLDER, dir_fd=parent)
        except PermissionError:
            os.chmod(name, 0o700, dir_fd=parent)
            folder = os.open(name, _FOLDER, dir_fd=parent)
        try:
            if os.fstat(folder).st_mode & 0o700 != 0o700:
                os.fchmod(folder, 0o700)
            if depth > 0:
                self._empty(folder, depth)
            else:
                self._top = folder
                self._moved = True
                while self._moved:
                    self._moved = False
                    self._empty(folder, depth)
        finally:
            os.close(folder)
        os.rmdir(name, dir_fd=parent)

    def _empty(self, folder: int, depth: int) -> None:
        problem: OSError | None = None
        for name in os.listdir(folder):
            try:
                if depth >= _DEEPEST and _is_folder(folder, name):
                    with contextlib.suppress(OSError):
                        os.chmod(name, 0o700, dir_fd=folder)
                    os.rename(name, f".{os.urandom(8).hex()}", src_dir_fd=folder, dst_dir_fd=self._top)
                    self._moved = True
                else:
                    self.remove(folder, name, depth + 1)
            except FileNotFoundError:
                continue
            except OSError as error:
                problem = error
        if problem is not None:
            raise problem


def _is_folder(parent: int, name: str) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
