"""The lines of a run on disk: one JSON object a line in `attempts.jsonl`, appended and forced to the disk one by one.

A line is written in one call, so a crash can only tear the last one. Readers leave a torn end out; the next writer
starts on a fresh line, and what was torn stays behind as an unreadable line that everybody skips. Several processes
may append at once.
"""

import contextlib
import fcntl
import itertools
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from caliper_pipeline.domain.errors import StorageError
from caliper_pipeline.domain.plain import from_plain, to_plain
from caliper_pipeline.domain.records import LINE_TYPES, EndRecord, Line
from caliper_pipeline.storage.files import json_bytes, storage_errors, sync_path

_DEAD_AFTER_SECONDS = 1.0
"""So long without a line before asking whether anybody still writes."""
_AT_ONCE = 100
"""Lines held in memory by a follower that starts late."""


def encode_line(line: Line) -> bytes:
    plain: dict[str, Any] = {"type": line.type}
    plain.update(to_plain(line))
    return json_bytes(plain) + b"\n"


def decode_line(raw: bytes) -> Line | None:
    """The line, or `None` when it cannot be read: torn, damaged, or of a kind that only a newer version knows."""
    try:
        data = json.loads(raw)
        return from_plain(LINE_TYPES[data["type"]], data)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None


class RunLog:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None
        self._writing = threading.Lock()

    def append(self, line: Line) -> None:
        """Adds the line; it is on the disk when this returns. Raises `StorageError`, with nothing half written."""
        data = encode_line(line)
        with storage_errors("write", self.path):
            with self._writing:
                handle = self._open()
                fcntl.flock(handle, fcntl.LOCK_EX)
                try:
                    self._write(handle, data)
                finally:
                    fcntl.flock(handle, fcntl.LOCK_UN)
            os.fsync(handle)

    def close(self) -> None:
        with self._writing:
            if self._handle is not None:
                os.close(self._handle)
                self._handle = None

    def size(self) -> int:
        """Bytes so far; 0 before the first line."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def read(self, offset: int = 0) -> Iterator[tuple[Line | None, int]]:
        """Each line with the offset behind it; `None` for one that cannot be read. A torn end is left out."""
        with storage_errors("read", self.path):
            try:
                stream = self.path.open("rb")
            except FileNotFoundError:
                return
        with stream:
            stream.seek(offset)
            for raw in stream:
                offset += len(raw)
                line = decode_line(raw)
                if raw != b"\n" and (line is not None or raw.endswith(b"\n")):
                    yield line, offset

    def follow(
        self, stop: Callable[[], bool], alive: Callable[[], bool], *, interval: float = 0.1, offset: int = 0
    ) -> "Follower":
        return Follower(self, stop, alive, interval, offset)

    def _open(self) -> int:
        if self._handle is None:
            fresh = not self.path.exists()
            self._handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            if fresh:
                sync_path(self.path.parent)
        return self._handle

    def _write(self, handle: int, data: bytes) -> None:
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
            raise StorageError(f"Cannot write {self.path}: no room for the whole line")


class Follower(Iterator[Line]):
    """The lines as they come, like `tail -f`. Ends after an end line that is the last one, when nobody writes
    any more, or when told to stop. `offset` is where to go on later.
    """

    def __init__(
        self, log: RunLog, stop: Callable[[], bool], alive: Callable[[], bool], interval: float, offset: int
    ) -> None:
        self.offset = offset
        self.unreadable_lines = 0
        self._log, self._stop, self._alive, self._interval = log, stop, alive, interval
        self._pending: deque[tuple[Line | None, int]] = deque()
        self._ended = False

    def __next__(self) -> Line:
        idle_since = time.monotonic()
        while True:
            while self._pending:
                line, self.offset = self._pending.popleft()
                if line is not None:
                    self._ended = isinstance(line, EndRecord)
                    return line
                self.unreadable_lines += 1
            if self._fetch():
                continue
            if self._ended or self._stop():
                raise StopIteration
            if time.monotonic() - idle_since >= _DEAD_AFTER_SECONDS:
                if not self._alive() and not self._fetch():
                    raise StopIteration
                idle_since = time.monotonic()
            time.sleep(self._interval)

    def _fetch(self) -> bool:
        if self._log.size() > self.offset:
            self._pending.extend(itertools.islice(self._log.read(self.offset), _AT_ONCE))
        return bool(self._pending)
