"""Files that only grow, one JSON object a line: appended and forced to the disk, by several processes at once.

A line is written in one call, so a crash can only tear the last one. Readers leave a torn end out; the next writer
starts on a fresh line, and what was torn stays behind as a line that nobody can read and everybody skips.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from caliper_pipeline.domain.errors import StorageError
from caliper_pipeline.storage.files import storage_errors, sync_path


def open_appending(path: Path) -> int:
    """A handle to append with; a new file's name is durable. Raises `OSError`."""
    fresh = not path.exists()
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    if fresh:
        sync_path(path.parent)
    return handle


@contextlib.contextmanager
def locked(handle: int) -> Iterator[None]:
    """Keeps other writers of the file away while the block runs."""
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)


def write_line(handle: int, path: Path, data: bytes) -> None:
    """Adds one line, its newline included, whole or not at all. Only under `locked`. Raises `StorageError`."""
    size = os.fstat(handle).st_size
    if size and os.pread(handle, 1, size - 1) != b"\n":
        data = b"\n" + data
    written = -1
    try:
        written = os.write(handle, data)
    finally:
        if written != len(data):  # the disk filled up in the middle
            with contextlib.suppress(OSError):
                os.ftruncate(handle, size)
    if written != len(data):
        raise StorageError(f"Cannot write {path}: no room for the whole line")


def append_line(path: Path, data: bytes) -> None:
    """Adds one line to a file; it is on the disk when this returns. Raises `StorageError`."""
    with storage_errors("write", path):
        handle = open_appending(path)
        try:
            with locked(handle):
                write_line(handle, path, data)
            os.fsync(handle)
        finally:
            os.close(handle)


def raw_lines(path: Path, offset: int = 0) -> Iterator[tuple[bytes, int]]:
    """Each line with the offset behind it; nothing when there is no file. The last one may be torn: it then has no
    newline. Raises `StorageError`.
    """
    with storage_errors("read", path):
        try:
            stream = path.open("rb")
        except FileNotFoundError:
            return
    with stream:
        stream.seek(offset)
        for raw in stream:
            offset += len(raw)
            yield raw, offset
