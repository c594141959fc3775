"""The lines of a run on disk: one JSON object a line in `attempts.jsonl`, appended and forced to the disk one by one.

How a line survives crashes and other writers stands in `appended`. Whoever reads the log may do so at any time.
"""

import itertools
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from caliper_pipeline.domain.plain import from_plain, to_plain
from caliper_pipeline.domain.records import LINE_TYPES, EndRecord, Line
from caliper_pipeline.storage.appended import locked, open_appending, raw_lines, write_line
from caliper_pipeline.storage.files import json_bytes, storage_errors

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
                with locked(handle):
                    write_line(handle, self.path, data)
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
        except (FileNotFoundError, NotADirectoryError):  # a file of somebody's lies where runs do
            return 0

    def read(self, offset: int = 0) -> Iterator[tuple[Line | None, int]]:
        """Each line with the offset behind it; `None` for one that cannot be read. A torn end is left out."""
        for raw, behind in raw_lines(self.path, offset):
            line = decode_line(raw)
            if raw != b"\n" and (line is not None or raw.endswith(b"\n")):
                yield line, behind

    def follow(
        self, stop: Callable[[], bool], alive: Callable[[], bool], *, interval: float = 0.1, offset: int = 0
    ) -> "Follower":
        return Follower(self, stop, alive, interval, offset)

    def _open(self) -> int:
        if self._handle is None:
            self._handle = open_appending(self.path)
        return self._handle


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
