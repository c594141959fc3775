"""Who is at work on a run: a shared lock on a file in its folder, held by every process that adds to it.

The lock goes with the process, so nothing has to be cleaned up after a kill. Asking needs no lock of its own to be
kept: a moment of exclusive locking tells.
"""

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from caliper_pipeline.storage.files import storage_errors

_guard = threading.Lock()
_held: dict[str, tuple[int, int]] = {}
"""This process's own holds: path → (handle, how often)."""


@contextlib.contextmanager
def hold(path: Path, when_alone: Callable[[], None] | None = None) -> Iterator[None]:
    """Marks this process as one that works on the run, until the block ends.

    `when_alone` is called first if nobody else holds it, and whoever comes meanwhile waits until it is done.
    """
    key = str(path.resolve())
    with _guard:
        handle, count = _held.get(key, (-1, 0))
        if not count:
            with storage_errors("lock", path):
                handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
                if when_alone is not None:
                    with contextlib.suppress(BlockingIOError):
                        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        when_alone()
                fcntl.flock(handle, fcntl.LOCK_SH)
        _held[key] = (handle, count + 1)
    try:
        yield
    finally:
        with _guard:
            handle, count = _held[key]
            if count > 1:
                _held[key] = (handle, count - 1)
            else:
                del _held[key]
                os.close(handle)


def held_here(path: Path) -> bool:
    """Whether this process holds it."""
    with _guard:
        return str(path.resolve()) in _held


def held_elsewhere(path: Path) -> bool:
    """Whether another process holds it."""
    # Another asker's moment of exclusive locking looks like a holder, so a "yes" must last.
    for _ in range(3):
        if not _seems_held(path):
            return False
        time.sleep(0.004)
    return True


def _seems_held(path: Path) -> bool:
    with _guard:
        own = _held.get(str(path.resolve()))
        if own is not None:
            try:
                fcntl.flock(own[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return True
            finally:
                fcntl.flock(own[0], fcntl.LOCK_SH)
            return False
        try:
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(handle)
        return False
