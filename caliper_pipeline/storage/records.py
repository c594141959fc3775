"""What people and sensors say about runs, and files that came from elsewhere: all that has no other home.

    records/labels.jsonl             a person's verdict on an attempt
    records/acknowledgements.jsonl   somebody took note of an alert, or meant a change
    records/alerts.jsonl             a regression or a drift was found
    records/imported/<sha256>.json   the bytes of each results file that was imported

Nothing here is ever changed, only added to: a later label of the same person takes the place of an earlier one because
readers take the last. The history holds the same as tables and can be made anew from here.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from caliper_pipeline.domain.plain import from_plain, to_plain
from caliper_pipeline.storage.appended import append_line, locked, open_appending, raw_lines, write_line
from caliper_pipeline.storage.files import (
    aside_name,
    json_bytes,
    make_folders,
    storage_errors,
    sync_all,
    sync_path,
    write_all,
)
from caliper_pipeline.storage.root import STORE_FOLDER

RECORDS_FOLDER = "records"


@dataclass(frozen=True, slots=True)
class Label:
    """A person's verdict on one attempt. Of one person's labels on it the last one counts."""

    stem: ClassVar[str] = "labels"
    run_id: str
    task_id: str
    task_name: str
    attempt: int
    """Counted from 1."""
    passed: bool
    labelled_by: str
    labelled_at: datetime
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Alert:
    """Something was found that a person should look at. There is one alert a key."""

    stem: ClassVar[str] = "alerts"
    key: str
    """What it is about; who finds it again makes the same key."""
    kind: str
    """`regression`, `watch` or `drift`."""
    raised_at: datetime
    message: str
    """What happened, for a person."""
    series_key: str | None = None
    spec: str | None = None
    task_name: str | None = None
    """`None`: the series as a whole."""
    run_id: str | None = None
    """The run that raised it."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """The figures behind it, as plain data."""


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """Somebody took note: of an alert, or of a change of a series that was meant."""

    stem: ClassVar[str] = "acknowledgements"
    acknowledged_by: str
    acknowledged_at: datetime
    alert_key: str | None = None
    series_key: str | None = None
    task_name: str | None = None
    """`None`: the series as a whole."""
    run_id: str | None = None
    """First run after the change. `None`: from this moment on."""
    reason: str | None = None
    new_baseline: bool = False
    """What was measured before the change is no longer what later runs are held against."""


Record = Label | Alert | Acknowledgement
R = TypeVar("R", bound=Record)
RECORD_TYPES: tuple[type[Record], ...] = (Label, Alert, Acknowledgement)


class Records:
    """The records under one root. May be used by several processes at once."""

    def __init__(self, root: Path) -> None:
        self.path = root / STORE_FOLDER / RECORDS_FOLDER

    def append(self, record: Record) -> None:
        """Adds a record; it is on the disk when this returns. Raises `StorageError`."""
        path = self.file_of(type(record))
        with storage_errors("write", path):
            make_folders(self.path)
        append_line(path, _encode(record))

    def raise_once(self, alert: Alert) -> bool:
        """Adds the alert unless its key is there already, whoever else tries to at the same moment. Gives whether."""
        path = self.file_of(Alert)
        with storage_errors("write", path):
            make_folders(self.path)
            handle = open_appending(path)
            try:
                with locked(handle):
                    if any(known.key == alert.key for known in self.read(Alert)):
                        return False
                    write_line(handle, path, _encode(alert))
                sync_path(path)
            finally:
                os.close(handle)
        return True

    def read(self, kind: type[R]) -> tuple[R, ...]:
        """All that can be read, in the order of writing. Of several alerts with one key the first."""
        first: dict[object, R] = {}
        for place, (record, _) in enumerate(self.read_from(kind, 0)):
            first.setdefault(record.key if isinstance(record, Alert) else place, record)
        return tuple(first.values())

    def read_from(self, kind: type[R], offset: int) -> Iterator[tuple[R, int]]:
        """Each record with the offset behind it, from an offset on. What is torn or damaged is left out."""
        for raw, behind in raw_lines(self.file_of(kind), offset):
            with suppress(ValueError, TypeError, KeyError, RecursionError):
                yield from_plain(kind, json.loads(raw)), behind

    def file_of(self, kind: type[R]) -> Path:
        return self.path / f"{kind.stem}.jsonl"

    # -- imported files

    @property
    def imported(self) -> Path:
        return self.path / "imported"

    def keep_imported(self, data: bytes) -> Path:
        """Keeps an imported file's bytes, once; they are on the disk when this returns. Raises `StorageError`."""
        self.keep_all_imported([data])
        return self._imported(data)

    def keep_all_imported(self, files: Sequence[bytes]) -> None:
        """Keeps the bytes of many, each once; forced to the disk together, that takes a tenth of the time."""
        fresh = {path: data for data in files if not (path := self._imported(data)).exists()}
        if not fresh:
            return
        asides = {path: aside_name(path) for path in fresh}
        handles: list[int] = []
        with storage_errors("write", self.imported):
            make_folders(self.imported)
            try:
                for path, aside in asides.items():
                    handles.append(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
                    write_all(handles[-1], fresh[path])
                sync_all(handles)
                for path, aside in asides.items():
                    aside.replace(path)
                sync_path(self.imported)
            finally:
                for handle in handles:
                    os.close(handle)
                for aside in asides.values():
                    aside.unlink(missing_ok=True)

    def _imported(self, data: bytes) -> Path:
        return self.imported / f"{hashlib.sha256(data).hexdigest()}.json"

    def imported_files(self) -> list[Path]:
        """All that were kept, by digest."""
        return sorted(self.imported.glob("*.json"))


def _encode(record: Record) -> bytes:
    return json_bytes(to_plain(record)) + b"\n"
