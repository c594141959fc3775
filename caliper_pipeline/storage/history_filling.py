"""What goes into the history: runs, imported files and records, one by one, what is missing, or all anew."""

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from caliper_pipeline.domain.errors import StorageError
from caliper_pipeline.storage.files import exclusive_lock, make_folders, storage_errors
from caliper_pipeline.storage.history_file import HistoryDamaged, identity, kind_of, real_place, set_aside
from caliper_pipeline.storage.history_import import import_files
from caliper_pipeline.storage.history_open import attached
from caliper_pipeline.storage.history_publish import locked, made_anew, published
from caliper_pipeline.storage.history_records import record_sizes, records_read, take_records
from caliper_pipeline.storage.history_rows import rows_of_run
from caliper_pipeline.storage.history_seen import AT_WORK, Sight, look, note
from caliper_pipeline.storage.history_writer import HistoryWriter
from caliper_pipeline.storage.imported_rows import rows_of_file
from caliper_pipeline.storage.records import Records
from caliper_pipeline.storage.root import STORE_FOLDER
from caliper_pipeline.storage.run_rows import RunRows
from caliper_pipeline.storage.runs import RunFolder, RunStore

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_AT_ONCE = 200
"""Runs that are published together when many are missing, so that nobody else waits long."""
_MANY = 1_000
"""Runs from which on somebody who waits for all of them is told."""
_PREPARED_BYTES = 32 * 1024 * 1024
"""Length of logs from which on rows are made one run after the other, and under the lock."""
_COMMIT_EVERY = 200
"""Runs between two commits of a database that is made anew, so that it takes little memory."""


def publish(db: Path, runs: Iterable[RunFolder]) -> int:
    """Puts the runs into the history, whole and all at once; what is there of them and is not longer stays.

    Gives how many were added or replaced. Raises `StorageError`.
    """
    return _publish(db, list(runs), damaged_ones=False)


def publish_records(db: Path, records: Records) -> int:
    """Puts new labels, alerts and acknowledgements into the history. Gives how many. Raises `StorageError`."""
    return published(db, lambda con: take_records(con, records))


def import_results(db: Path, files: Sequence[Path], *, records: Records | None = None) -> list[tuple[Path, str | None]]:
    """Puts results files into the history; gives each with what is wrong with it, or `None`.

    The good ones are also kept under `records` (default: beside the history when it is in `.caliper`), so that a
    rebuild has them. A file read twice is one run. Raises `StorageError` when the history cannot be used.
    """
    kept = records if records is not None else _records_of(db)
    return [(found.path, found.refused) for found in import_files(db, files, records=kept)]


def rebuild(db: Path, store: RunStore) -> int:
    """Makes the history anew from all runs that nobody is at work on, imported files and records.

    Gives how many runs it holds. Whoever publishes meanwhile is not held up.
    """
    db, records = real_place(db), Records(store.root)
    sight = look(store, records)
    _is_damaged(db)  # raises when it is something else, or newer

    def fill(con: "DuckDBPyConnection") -> int:
        writer = HistoryWriter(con)
        for number, run in enumerate(store.runs(), 1):
            if not run.at_work():
                _add_rows(writer, _rows_of(run, damaged_ones=True))
            if number % _COMMIT_EVERY == 0:
                writer.flush()
                con.commit()
                con.begin()
        for path in records.imported_files():
            _add_import(writer, path)
        writer.flush()
        take_records(con, records)
        return writer.changed

    def last(con: "DuckDBPyConnection") -> int:
        held = _Held.of(con)
        writer = HistoryWriter(con)
        for run in held.behind(_logs(store), store):
            _add_rows(writer, _rows_of(run, damaged_ones=True))
        for path in held.lost(records):
            _add_import(writer, path)
        writer.flush()
        take_records(con, records)
        return writer.changed

    logs = _logs(store)
    made = made_anew(db, fill, last)
    _note(db, sight, logs, frozenset())
    return made


def catch_up(db: Path, store: RunStore, told: Callable[[str], None] | None = None) -> int:
    """Publishes what the history lacks or has in an older form, runs that are at work apart. Gives how many.

    A missing history is made; a damaged one is set aside, which is `told`, and made anew; a run whose `run.json` is
    damaged is passed over. Raises `StorageError`.
    """
    db, records = real_place(db), Records(store.root)
    sight, before = look(store, records), identity(db)
    held = _held(db, told)
    if held is None:
        return _made(db, store, told)
    logs = _logs(store)
    behind, lost = held.behind(logs, store), held.lost(records)
    changed = 0
    for start in range(0, len(behind), _AT_ONCE):
        changed += _publish(db, behind[start : start + _AT_ONCE], damaged_ones=True)
    if lost:
        changed += sum(error is None for _, error in import_results(db, lost, records=records))
    if held.records != {kind: size for kind, size in record_sizes(records).items() if size}:
        publish_records(db, records)
    tried = frozenset(run.run_id for run in behind)
    if identity(db) != before:
        _note(db, sight, logs, tried)
    else:
        note(db, sight, before, held.unsettled(logs, tried))
    return changed


def _made(db: Path, store: RunStore, told: Callable[[str], None] | None) -> int:
    """Makes a missing history, of several who want to at once only one."""
    many = len(store.names())
    if told is not None and many > _MANY:
        told(f"The history is made from {many:,} runs; a hundred take about a second.")
    with storage_errors("write", db):
        make_folders(db.parent)
        with exclusive_lock(db.with_name(f".{db.name}.making")):
            if kind_of(db) == "database":
                return 0
            return rebuild(db, store)


def _held(db: Path, told: Callable[[str], None] | None) -> "_Held | None":
    """What the history holds; `None`: there is none, or there is none any more because it was damaged."""
    try:
        return _Held.read(db) if kind_of(db) == "database" else None
    except HistoryDamaged as error:
        with storage_errors("set aside", db), locked(db):
            if not _is_damaged(db):  # somebody else has made it anew by now
                return None
            aside = set_aside(db)
        if told is not None:
            told(f"{error.message} It was set aside as {aside.name} and is made anew from the run store.")
        return None


def _is_damaged(db: Path) -> bool:
    try:
        con = attached(db) if kind_of(db) == "database" else None
    except HistoryDamaged:
        return True
    if con is not None:
        con.close()
    return False


@dataclass(frozen=True, slots=True)
class _Held:
    """What a history holds, in brief."""

    runs: dict[str, int]
    """Id of a run from the store → length of the log it was made from."""
    unfinished: frozenset[str]
    imported: frozenset[str]
    """Digests of imported files that were looked at."""
    records: dict[str, int]

    @classmethod
    def read(cls, db: Path) -> "_Held":
        con = attached(db)
        if con is None:  # of an older version
            published(db, lambda _: 0)
            con = attached(db)
        if con is None:
            raise StorageError(f"{db} is being changed by another version of this product.")
        with closing(con):
            return cls.of(con)

    @classmethod
    def of(cls, con: "DuckDBPyConnection") -> "_Held":
        query = "SELECT run_id, source_bytes, status IS NULL FROM runs WHERE source = 'run_store'"
        found = con.execute(query).fetchall()
        read = records_read(con)
        return cls(
            {run_id: size for run_id, size, _ in found},
            frozenset(run_id for run_id, _, unfinished in found if unfinished),
            frozenset(kind.removeprefix("imported/") for kind in read if kind.startswith("imported/")),
            {kind: size for kind, size in read.items() if not kind.startswith("imported/")},
        )

    def behind(self, logs: dict[str, int], store: RunStore) -> list[RunFolder]:
        """Runs of which the store has more, those apart that somebody is at work on."""
        grown = [RunFolder(store.path / run_id) for run_id, size in logs.items() if size > self.runs.get(run_id, 0)]
        return [run for run in grown if (run.path / "run.json").exists() and not run.at_work()]

    def unsettled(self, logs: dict[str, int], tried: frozenset[str]) -> dict[str, int]:
        """Runs that may still grow, or are not as the store has them, with the lengths of their logs that are no
        news. `tried`: runs that were to be published; what is not there of them cannot be read."""
        found = {}
        for run_id, size in logs.items():
            taken = self.runs.get(run_id, 0)
            if run_id in self.unfinished or size == taken == 0:
                found[run_id] = taken
            elif size != taken:
                found[run_id] = size if run_id in tried else AT_WORK
        return found

    def lost(self, records: Records) -> list[Path]:
        return [path for path in records.imported_files() if path.stem not in self.imported]


def _note(db: Path, sight: Sight, logs: dict[str, int], tried: frozenset[str]) -> None:
    """Notes what was seen, and which runs may still grow. `logs`: as they were before they were read."""
    if sight.settled:
        with suppress(StorageError):
            found = identity(db)
            note(db, sight, found, _Held.read(db).unsettled(logs, tried))


def _publish(db: Path, runs: Sequence[RunFolder], *, damaged_ones: bool) -> int:
    records, changed = _records_of(db), 0
    # Made before the lock is taken: a longer log that somebody else publishes meanwhile wins all the same.
    small = sum(run.log.size() for run in runs) <= _PREPARED_BYTES
    prepared = [_rows_of(run, damaged_ones=damaged_ones) for run in runs] if small else None

    def change(con: "DuckDBPyConnection") -> int:
        nonlocal changed
        writer = HistoryWriter(con, [run.run_id for run in runs])
        for rows in prepared or (_rows_of(run, damaged_ones=damaged_ones) for run in runs):
            _add_rows(writer, rows)
        writer.flush()
        changed = writer.changed
        return changed + (take_records(con, records) if records is not None else 0)

    published(db, change)
    return changed


def _records_of(db: Path) -> Records | None:
    """The records beside the history of a project; another database has none."""
    return Records(db.parent.parent) if db.parent.name == STORE_FOLDER else None


def _rows_of(run: RunFolder, *, damaged_ones: bool) -> RunRows | None:
    try:
        return rows_of_run(run)
    except StorageError:
        if not damaged_ones:
            raise
        return None


def _add_rows(writer: HistoryWriter, rows: RunRows | None) -> None:
    if rows is not None:
        writer.add(rows)


def _add_import(writer: HistoryWriter, path: Path) -> None:
    with suppress(OSError, ValueError):
        rows = rows_of_file(path.read_bytes())
        writer.note_import(rows)
        writer.add(rows)


def _logs(store: RunStore) -> dict[str, int]:
    """Run id → length of its log, oldest first; 0 before its first line."""
    sizes = {}
    for run_id in store.names():
        try:
            sizes[run_id] = os.stat(f"{store.path}/{run_id}/attempts.jsonl").st_size  # noqa: PTH116  many runs
        except OSError:
            sizes[run_id] = 0
    return sizes
