"""Opening the history to read it, and saying what is wrong with a file that cannot be read.

Readers attach the file to a database of their own in memory: `duckdb.connect` shares one instance a path within a
process, so that a process with an old connection would never see news. A program that writes into the live file is
waited for a moment; then a copy of what it has committed is read instead.
"""

import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from caliper_pipeline.domain.errors import HistoryTooNew, HistoryUnusable, StorageError
from caliper_pipeline.storage.history_file import SET_ASIDE_HINT, HistoryDamaged, Identity, copy, identity, kind_of
from caliper_pipeline.storage.history_writer import check_version, is_current, migrate, schema_version

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}
"""A file that only looks like another format must not make DuckDB fetch an extension for it."""
PATIENCE_SECONDS = 2.0
"""How long a reader waits for a program that writes into the live file, before it reads a copy."""
_BEFORE_BLOCKS = 3 * 4096
"""Bytes of headers in a DuckDB file."""


def attached(db: Path) -> "DuckDBPyConnection | None":
    """A connection that reads the file as it is. `None`: its schema or views are older than this program's.

    Raises `HistoryUnusable` (also when there is none yet), `HistoryDamaged` or `HistoryTooNew`.
    """
    if kind_of(db) != "database":
        raise HistoryUnusable(f"There is no history at {db} yet.", hint="It is made by the first run.")
    before = identity(db)
    con = _patiently(db)
    try:
        with explained(db, "read"):
            _check_length(con, db, before)
            if is_current(con):
                return con
            check_version(schema_version(con) or 0)
    except BaseException:
        con.close()
        raise
    con.close()
    return None


def attached_copy(db: Path) -> "DuckDBPyConnection":
    """Reads an older database where nothing can be written: a copy of it, brought up to date in a folder that goes."""
    import duckdb

    with tempfile.TemporaryDirectory(prefix="history-") as folder, explained(db, "read"):
        snapshot = Path(folder) / "history.duckdb"
        copy(db, snapshot, with_wal=True)
        with contextlib.closing(duckdb.connect(str(snapshot), config=CONFIG)) as con:
            migrate(con)
        return _attach(snapshot)


@contextlib.contextmanager
def explained(db: Path, doing: str) -> Iterator[None]:
    """Puts the file's name before what is wrong with it, and turns DuckDB's own errors into ours."""
    import duckdb

    try:
        yield
    except HistoryTooNew as error:
        raise HistoryTooNew(f"{db} cannot be used: {error.message}.", hint=error.hint) from error
    except HistoryDamaged:
        raise
    except HistoryUnusable as error:
        raise HistoryUnusable(f"{db} cannot be used: {error.message}.", hint=error.hint) from error
    except duckdb.Error as error:
        if doing == "read" or is_damage(error):
            raise unreadable(db, error) from error
        raise StorageError(f"{db} cannot be {doing}: {first_line(error)}") from error


_DAMAGE = (
    "Corrupt database file",
    "Could not read enough bytes",
    "not a valid DuckDB database file",
    "Failure while replaying WAL",
    "Serialization Error",
    "INTERNAL Error",
)


def is_damage(error: Exception) -> bool:
    """Whether an error of DuckDB says that the file itself is broken, which a query may be the first to notice."""
    return any(words in str(error) for words in _DAMAGE)


def unreadable(db: Path, error: Exception) -> StorageError:
    """What to say of a file that DuckDB cannot open. It is called damaged only when DuckDB says so: a damaged history
    is set aside."""
    text = str(error)
    if "newer version" in text or "newer DuckDB" in text:
        return HistoryTooNew(
            f"{db} was written by a newer version of DuckDB: {first_line(error)}",
            hint="Install the version of this product that wrote it, or a newer one.",
        )
    if is_damage(error):
        return HistoryDamaged(f"{db} cannot be read: {first_line(error)}", hint=SET_ASIDE_HINT)
    return HistoryUnusable(f"{db} cannot be used: {first_line(error)}")


def first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:300]


def _check_length(con: "DuckDBPyConnection", db: Path, before: Identity | None) -> None:
    """A file that lost its end may open, and fail at some query or other."""
    query = "SELECT block_size, used_blocks FROM pragma_database_size() WHERE database_name = 'history'"
    block, used = con.execute(query).fetchall()[0]
    after = identity(db)
    if after == before and after is not None and after[1] < _BEFORE_BLOCKS + block * used:
        raise HistoryDamaged(f"{db} cannot be read: some of its end is missing.", hint=SET_ASIDE_HINT)


def _patiently(db: Path) -> "DuckDBPyConnection":
    import duckdb

    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return _attach(db)
        except duckdb.IOException as error:
            last: Exception = error
            if "lock" not in str(error):
                break
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
        raise HistoryUnusable(f"{db} is being written to by another program: {first_line(last)}") from last
    raise unreadable(db, last) from last


def _attach(db: Path) -> "DuckDBPyConnection":
    import duckdb

    con = duckdb.connect(config=CONFIG)
    try:
        con.execute("SET enable_progress_bar = false")  # nothing but answers is printed
        con.execute(f"ATTACH '{str(db).replace(chr(39), chr(39) * 2)}' AS history (READ_ONLY)")
        con.execute("USE history")
    except BaseException:
        con.close()
        raise
    return con
