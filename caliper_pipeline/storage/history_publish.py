"""Publishing: a change of the history becomes a new file that takes the old one's place.

Under a lock file the database is copied aside (or the spare is brought up to date, see `history_file`), the change is
made there in one transaction, the copy is checkpointed, forced to the disk and renamed over. Readers so never meet a
lock or half a run, and an open shell keeps its snapshot. (Writers taking turns in the live file were tried: they lose
rows, and an open shell stops them.) Rows that somebody else wrote into the live file by hand, and committed before the
copy was made, are kept.

A database that is made anew is made without the lock, because that takes long, and put in place under it.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from caliper_pipeline.domain.errors import HistoryTooNew, HistoryUnusable, StorageError
from caliper_pipeline.storage import history_file as file
from caliper_pipeline.storage.files import aside_name, exclusive_lock, make_folders, storage_errors
from caliper_pipeline.storage.history_delta import bring_up_to_date, copy_all
from caliper_pipeline.storage.history_open import CONFIG, explained, unreadable
from caliper_pipeline.storage.history_writer import migrate

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Change = Callable[["DuckDBPyConnection"], int]
"""Puts rows in; gives how many runs or records it added or replaced."""

_WRITER_CONFIG = {**CONFIG, "threads": "1", "memory_limit": "256MB", "default_block_size": "131072"}
"""Blocks of half the usual size: each column of each part of a table ends in a block that is not full, and a run adds
a part. A million attempts take 7 % less room, a hundred half as much; still smaller ones compress worse."""
LOCK_SECONDS = 60.0


def published(db: Path, change: Change) -> int:
    """Applies a change to a copy and puts the copy in place, when there was anything to change.

    Raises `StorageError`; the database is then as it was.
    """
    db = file.real_place(db)
    with storage_errors("write", db):
        make_folders(db.parent)
        file.kind_of(db)
        with locked(db):
            try:
                return _published(db, change)
            except (StorageError, OSError) as error:
                if isinstance(error, HistoryUnusable | HistoryTooNew) or not file.spare_of(db).exists():
                    raise
            # Perhaps the disk is full: the room that the spare takes may be what is missing.
            file.discard(file.spare_of(db))
            return _published(db, change)


def made_anew(db: Path, fill: Change, last: Change) -> int:
    """Makes the database from nothing and puts it in place of whatever is there.

    `fill` may commit as it goes and holds up nobody; `last` adds, under the lock, what came meanwhile.
    """
    db = file.real_place(db)
    with storage_errors("write", db):
        make_folders(db.parent)
        aside = file.rebuilding_name(db)
        try:
            with contextlib.closing(_fresh(db, aside)) as con, explained(db, "written"):
                migrate(con)
                changed = _in_one_go(con, fill)
                with locked(db):
                    changed += _in_one_go(con, last)
                    con.execute("CHECKPOINT")
                    con.close()
                    file.put_in_place(aside, db, keep_spare=False)
        finally:
            file.discard(aside)
    return changed


@contextlib.contextmanager
def locked(db: Path) -> Iterator[None]:
    """Keeps others from publishing, and clears away what killed ones left."""
    with exclusive_lock(file.lock_of(db), limit_seconds=LOCK_SECONDS):
        file.sweep(db)
        yield


def _published(db: Path, change: Change) -> int:
    aside, untouched = aside_name(db), file.is_untouched(db)
    try:
        with _copied(db, aside) as con, explained(db, "written"):
            moved = migrate(con)
            changed = _in_one_go(con, change)
            if changed or moved:
                con.execute("CHECKPOINT")
        spare_wanted = untouched and file.worth_a_spare(db)
        if changed or moved:
            file.put_in_place(aside, db, keep_spare=spare_wanted)
        elif spare_wanted:
            file.keep_as_spare(aside, db)
    finally:
        file.discard(aside)
    return changed


def _in_one_go(con: "DuckDBPyConnection", change: Change) -> int:
    con.begin()
    changed = change(con)
    con.commit()
    return changed


@contextlib.contextmanager
def _copied(db: Path, aside: Path) -> Iterator["DuckDBPyConnection"]:
    """An open copy of the database that holds all it holds; a new one where there is none."""
    there = file.kind_of(db) == "database"
    con = _from_spare(db, aside) if there else None
    if con is None:
        con = _from_copy(db, aside) if there else _fresh(db, aside)
    with contextlib.closing(con):
        yield con


def _from_spare(db: Path, aside: Path) -> "DuckDBPyConnection | None":
    import duckdb

    if not file.take_spare(db, aside):
        return None
    with contextlib.suppress(duckdb.Error):
        con = _open(aside)
        try:
            if bring_up_to_date(con, db):
                return con
        except BaseException:
            con.close()
            raise
        con.close()
    file.discard(aside)
    return None


def _from_copy(db: Path, aside: Path) -> "DuckDBPyConnection":
    import duckdb

    for with_wal in (True, True, False):
        file.copy(db, aside, with_wal=with_wal)
        try:
            return _open(aside)
        except duckdb.Error as error:  # perhaps copied while another program was writing
            failed = error
            file.discard(aside)
            time.sleep(0.05)
    raise unreadable(db, failed) from failed


def _fresh(db: Path, aside: Path) -> "DuckDBPyConnection":
    with explained(db, "written"):
        return _open(aside)


def _open(aside: Path) -> "DuckDBPyConnection":
    import duckdb

    con = duckdb.connect(str(aside), config=_WRITER_CONFIG)
    con.execute("SET enable_progress_bar = false")
    return con


def compact(db: Path) -> tuple[int, int]:
    """Writes the database anew without gaps, runs in their order. Gives its bytes before and after.

    Raises `StorageError`.
    """
    db = file.real_place(db)
    with storage_errors("write", db), locked(db):
        if file.kind_of(db) != "database":
            return (0, 0)
        before, aside = db.stat().st_size, aside_name(db)
        try:
            with contextlib.closing(_fresh(db, aside)) as con, explained(db, "compacted"):
                migrate(con)
                con.execute(f"ATTACH '{str(db).replace(chr(39), chr(39) * 2)}' AS older (READ_ONLY)")
                con.begin()
                copy_all(con, "older")
                con.commit()
                con.execute("DETACH older")
                con.execute("CHECKPOINT")
            file.put_in_place(aside, db, keep_spare=False)
        finally:
            file.discard(aside)
        return (before, db.stat().st_size)
