"""The history in DuckDB, and the only module that opens it. Derived: the run store and `records/` are the truth.

It is *published*: under a lock file the database is copied aside, rows go into the copy in one transaction, and the
copy is checkpointed, forced to the disk and renamed over. Readers so never meet a lock or half a run, and an open
shell keeps its snapshot. (Writers taking turns in the live file were tried: they lose rows, and an open shell stops
them.) Rows that somebody else writes into the live file by hand are kept when they are committed before the copy.

Readers attach the file to a database of their own in memory: `duckdb.connect` shares one instance a path within a
process, so that a process with an old connection would never see news.
"""

import contextlib
import hashlib
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from caliper_pipeline.domain.errors import HistoryTooNew, HistoryUnusable, StorageError
from caliper_pipeline.storage.files import aside_name, exclusive_lock, make_folders, storage_errors, write_whole
from caliper_pipeline.storage.history_file import copy, discard, kind_of, put_in_place, sweep
from caliper_pipeline.storage.history_queries import history_dict, read_header, read_lines
from caliper_pipeline.storage.history_rows import rows_of_run
from caliper_pipeline.storage.history_writer import HistoryWriter, check_version, migrate, schema_version
from caliper_pipeline.storage.imported_rows import rows_of_file
from caliper_pipeline.storage.migrations import CURRENT_VERSION
from caliper_pipeline.storage.root import STORE_FOLDER
from caliper_pipeline.storage.runs import RunFolder, RunStore

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = [
    "HistoryDamaged",
    "catch_up",
    "connect",
    "history_json",
    "import_results",
    "publish",
    "read_header",
    "read_lines",
    "rebuild",
    "warm_up",
]

_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}
"""A file that only looks like another format must not make DuckDB fetch an extension for it."""
_WRITER_CONFIG = {**_CONFIG, "threads": "1"}
_LOCK_SECONDS = 60.0
_PATIENCE_SECONDS = 2.0
"""How long a reader waits for a program that writes into the live file, before it reads a copy."""


class HistoryDamaged(HistoryUnusable):
    """It is a DuckDB file that cannot be read; it can be made anew from the run store."""


def warm_up() -> None:
    """Imports DuckDB, 0.1 s that can pass while something else goes on."""
    import duckdb  # noqa: F401


# -- writing


def publish(db: Path, runs: Iterable[RunFolder]) -> int:
    """Puts the runs into the history, whole and all at once; what is there of them and is not longer stays.

    Gives how many were added or replaced. Raises `StorageError`.
    """
    return _publish(db, list(runs), damaged_ones=False)


def import_results(db: Path, files: Sequence[Path], *, records: Path | None = None) -> list[tuple[Path, str | None]]:
    """Puts results files into the history; gives each with what is wrong with it, or `None`.

    The good ones are also kept under `records` (default: beside the history when it is in `.caliper`), so that a
    rebuild has them. A file read twice is one run. Raises `StorageError` when the history cannot be used.
    """
    if records is None and db.parent.name == STORE_FOLDER:
        records = db.parent / "records"
    outcome: list[tuple[Path, str | None]] = []

    def change(con: "DuckDBPyConnection") -> int:
        writer = HistoryWriter(con)
        outcome.clear()
        for path in files:
            try:
                data = path.read_bytes()
                rows = rows_of_file(data)
            except OSError as error:
                outcome.append((path, f"cannot be read: {error.strerror}"))
                continue
            except ValueError as error:
                outcome.append((path, f"not a results file: {error}"))
                continue
            if records is not None and writer.lacks(rows):
                _keep_import(records, data)
            writer.add(rows)
            outcome.append((path, None))
        writer.flush()
        return writer.changed

    _published(db, change)
    return outcome


def rebuild(db: Path, store: RunStore) -> int:
    """Makes the history anew from all runs and imported files. Gives how many runs it holds."""

    def change(con: "DuckDBPyConnection") -> int:
        writer = HistoryWriter(con)
        for rows in _everything(store):
            writer.add(rows)
        writer.flush()
        return writer.changed

    return _published(db, change, fresh=True)


def catch_up(db: Path, store: RunStore) -> int:
    """Publishes what the history lacks or has in an older form, runs that are at work apart. Gives how many.

    A damaged history is set aside and made anew; a run whose `run.json` is damaged is passed over.
    """
    try:
        known, files = _known(db)
    except HistoryDamaged:
        db.replace(db.with_name(f"{db.name}.damaged"))
        return rebuild(db, store)
    behind = []
    for run_id in store.run_ids():
        run = RunFolder(store.path / run_id)
        size = run.log.size()
        if size > known.get(run_id, 0) and not run.busy():
            behind.append(run)
    lost = [path for path in _imports(store) if path.stem not in files]
    changed = _publish(db, behind, damaged_ones=True) if behind else 0
    if lost:
        import_results(db, lost, records=store.root / STORE_FOLDER / "records")
    return changed + len(lost)


def _publish(db: Path, runs: Sequence[RunFolder], *, damaged_ones: bool) -> int:
    def change(con: "DuckDBPyConnection") -> int:
        writer = HistoryWriter(con, [run.run_id for run in runs])
        for run in runs:
            try:
                rows = rows_of_run(run)
            except StorageError:
                if not damaged_ones:
                    raise
                continue
            if rows is not None:
                writer.add(rows)
        writer.flush()
        return writer.changed

    return _published(db, change)


def _known(db: Path) -> tuple[dict[str, int], set[str]]:
    """Run id → length of the log it was made from; and the digests of imported files."""
    if kind_of(db) != "database":
        return {}, set()
    with contextlib.closing(connect(db)) as con:
        found = con.execute("SELECT run_id, source, source_bytes, source_digest FROM runs").fetchall()
    return {row[0]: row[2] for row in found if row[1] == "run_store"}, {row[3] for row in found if row[3]}


def _everything(store: RunStore) -> Iterator[Any]:
    for run in store.runs():
        with contextlib.suppress(StorageError):  # a damaged run.json costs that run alone
            rows = rows_of_run(run)
            if rows is not None:
                yield rows
    for path in _imports(store):
        with contextlib.suppress(OSError, ValueError):
            yield rows_of_file(path.read_bytes())


def _imports(store: RunStore) -> list[Path]:
    return sorted((store.root / STORE_FOLDER / "records" / "imported").glob("*.json"))


def _keep_import(records: Path, data: bytes) -> None:
    path = records / "imported" / f"{hashlib.sha256(data).hexdigest()}.json"
    with storage_errors("write", path):
        if not path.exists():
            make_folders(path.parent)
            write_whole(path, data)


def _published(db: Path, change: Callable[["DuckDBPyConnection"], int], *, fresh: bool = False) -> int:
    """Applies a change to a copy and puts the copy in place, when there was anything to change."""
    with storage_errors("write", db):
        make_folders(db.parent)
        kind_of(db)
        with exclusive_lock(db.with_name(f"{db.name}.lock"), limit_seconds=_LOCK_SECONDS):
            sweep(db)
            aside = aside_name(db)
            try:
                with _copy_for_writing(db, aside, fresh=fresh) as con, _explained(db, "written"):
                    moved = migrate(con)
                    con.begin()
                    changed = change(con)
                    con.commit()
                    if changed or moved or fresh:
                        con.execute("CHECKPOINT")
                if changed or moved or fresh:
                    put_in_place(aside, db)
            finally:
                discard(aside)
    return changed


@contextlib.contextmanager
def _copy_for_writing(db: Path, aside: Path, *, fresh: bool) -> Iterator["DuckDBPyConnection"]:
    import duckdb

    con = None
    for turn in range(3):
        if not fresh and kind_of(db) == "database":
            copy(db, aside, with_wal=turn < 2)
        try:
            con = duckdb.connect(str(aside), config=_WRITER_CONFIG)
            break
        except duckdb.Error as error:  # perhaps copied while another program was writing
            discard(aside)
            if turn == 2:
                raise _damaged(db, error) from error
            time.sleep(0.05)
    assert con is not None
    try:
        yield con
    finally:
        con.close()


# -- reading


def connect(db: Path) -> "DuckDBPyConnection":
    """A connection that reads the history as it is now, and never changes it. Reopen for news.

    Raises `HistoryUnusable` (also when there is none yet) or `HistoryTooNew`.
    """
    if kind_of(db) != "database":
        raise HistoryUnusable(f"There is no history at {db} yet.", hint="It is made by the first run.")
    con = _attached(db)
    try:
        with _explained(db, "read"):
            version = schema_version(con)
            if version is not None:
                check_version(version)
    except BaseException:
        con.close()
        raise
    if version != CURRENT_VERSION:
        con.close()
        _published(db, lambda _: 0)
        con = _attached(db)
    return con


def history_json(db: Path) -> dict[str, Any]:
    """Everything in brief, runs sorted by instant; empty when there is no history yet."""
    if kind_of(db) != "database":
        return {"run_count": 0, "attempt_count": 0, "runs": []}
    with contextlib.closing(connect(db)) as con:
        return history_dict(con)


def _attached(db: Path) -> "DuckDBPyConnection":
    """Waits a moment for a foreign writer, then reads a copy of what it has committed."""
    import duckdb

    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return _attach(db)
        except duckdb.IOException as error:
            if "lock" not in str(error):
                last: Exception = error
                break
            last = error
        except duckdb.Error as error:
            last = error
            break
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    for with_wal in (True, False, True, False):
        with tempfile.TemporaryDirectory(prefix="history-") as folder, contextlib.suppress(duckdb.Error):
            snapshot = Path(folder) / "history.duckdb"
            copy(db, snapshot, with_wal=with_wal)
            return _attach(snapshot)
    if "Could not set lock" in str(last):
        raise HistoryUnusable(f"{db} is being written to by another program: {_first_line(last)}") from last
    raise _damaged(db, last) from last


def _attach(db: Path) -> "DuckDBPyConnection":
    import duckdb

    con = duckdb.connect(config=_CONFIG)
    try:
        con.execute(f"ATTACH '{str(db).replace(chr(39), chr(39) * 2)}' AS history (READ_ONLY)")
        con.execute("USE history")
    except BaseException:
        con.close()
        raise
    return con


# -- what went wrong


@contextlib.contextmanager
def _explained(db: Path, doing: str) -> Iterator[None]:
    """Puts the file's name before what is wrong with it, and turns DuckDB's own errors into ours."""
    import duckdb

    try:
        yield
    except HistoryTooNew as error:
        raise HistoryTooNew(f"{db} cannot be used: {error.message}.") from error
    except HistoryUnusable as error:
        raise HistoryUnusable(f"{db} cannot be used: {error.message}.") from error
    except duckdb.Error as error:
        if doing == "read":
            raise _damaged(db, error) from error
        raise StorageError(f"{db} cannot be {doing}: {_first_line(error)}") from error


def _damaged(db: Path, error: Exception) -> StorageError:
    if "Could not write" in str(error):  # a full disk says nothing against the file
        return StorageError(f"{db} cannot be written: {_first_line(error)}")
    return HistoryDamaged(
        f"{db} cannot be read: {_first_line(error)}", hint="Move it away: it is made anew from the run store."
    )


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:300]
