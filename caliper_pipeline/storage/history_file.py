"""The history as a file: what is there, copies of it, and putting a new one in its place. DuckDB is not needed here."""

import contextlib
import os
import shutil
from pathlib import Path

from caliper_pipeline.domain.errors import HistoryUnusable
from caliper_pipeline.storage.files import sync_path


def kind_of(db: Path) -> str:
    """`missing`, `empty` or `database`. Raises `HistoryUnusable` for anything else, which is left as it is.

    Looked at before DuckDB does, which would take a file of some other formats for a database of that format.
    """
    try:
        if db.exists() and not (db.is_file() or db.is_dir()):
            raise HistoryUnusable(
                f"{db} cannot be used as a history: it is no plain file.", hint="It is left as it is."
            )
        with db.open("rb") as stream:
            head = stream.read(16)
    except FileNotFoundError:
        return "missing"
    except OSError as error:
        raise HistoryUnusable(f"{db} cannot be used as a history: {error.strerror}.") from error
    if not head:
        return "empty"
    if head[8:12] != b"DUCK":
        raise HistoryUnusable(f"{db} is not a history: it is not a DuckDB file.", hint="It is left as it is.")
    return "database"


def copy(db: Path, target: Path, *, with_wal: bool) -> None:
    """Copies the database, and the log of what another program committed to it and has not yet merged."""
    shutil.copyfile(db, target)
    if with_wal:
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(wal_of(db), wal_of(target))


def put_in_place(aside: Path, db: Path) -> None:
    """Makes the finished copy the database, in one step and for good."""
    handle = os.open(aside, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    # A log of the old file beside the new one would make the new one unreadable; what it held is in the copy.
    wal_of(db).unlink(missing_ok=True)
    aside.replace(db)
    sync_path(db.parent)


def sweep(db: Path) -> None:
    """Removes copies that a killed writer left. Only under the lock: then nobody works on one."""
    for leftover in db.parent.glob(f".{db.name}.*.new*"):
        _remove(leftover)


def discard(aside: Path) -> None:
    """Removes a copy that is not needed, with what DuckDB may have laid beside it."""
    for leftover in aside.parent.glob(f"{aside.name}*"):
        _remove(leftover)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def wal_of(db: Path) -> Path:
    return db.with_name(f"{db.name}.wal")
