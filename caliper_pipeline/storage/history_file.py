"""The history as a file: what is there, copies of it, and putting a new one in its place. DuckDB is not needed here.

Beside `history.duckdb` lie

    history.duckdb.lock            held by whoever publishes; says what it put in place last
    .history.duckdb.spare          the file before the present one, to be brought up to date by the next who publishes
    .history.duckdb.….new          a copy that is being worked on; a leftover when its maker was killed
    history.duckdb.damaged         set aside because it could not be read; kept for whoever wants to look

A spare saves copying: only what it lacks goes in. It is used only when nobody but us ever wrote into it or into the
present file (their inodes, sizes and times are those written down), and when nobody has it open any more, which a lease
of the kernel tells. Anything else is copied whole; where the file system shares blocks between files that is free.
"""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import stat
from dataclasses import dataclass
from pathlib import Path

from caliper_pipeline.domain.errors import HistoryUnusable
from caliper_pipeline.storage.files import sync_path

WORTH_A_SPARE = 16 * 1024 * 1024
"""Bytes from which on a spare is kept: below, a copy is made sooner than a spare is brought up to date."""
_SHARE_BLOCKS = 0x40049409
"""Linux: FICLONE. btrfs and XFS know it."""
_AT_ONCE = 1 << 30

Identity = tuple[int, int, int]
"""Inode, size and time of a file: the same file, unchanged."""


class HistoryDamaged(HistoryUnusable):
    """It is a DuckDB file that cannot be read; it can be made anew from the run store."""


@dataclass(frozen=True, slots=True)
class InPlace:
    """The files as whoever published last left them."""

    live: Identity
    spare: Identity | None


def kind_of(db: Path) -> str:
    """`missing`, `empty` or `database`. Raises `HistoryUnusable` for anything else, which is left as it is.

    Looked at before DuckDB does, which would take a file of some other formats for a database of that format.
    """
    try:
        if db.exists() and not (db.is_file() or db.is_dir()):
            raise HistoryUnusable(f"{db} cannot be used as a history: it is no plain file.", hint=LEFT_HINT)
        with db.open("rb") as stream:
            head = stream.read(16)
    except FileNotFoundError:
        return "missing"
    except OSError as error:
        raise HistoryUnusable(f"{db} cannot be used as a history: {error.strerror}.", hint=LEFT_HINT) from error
    if not head:
        return "empty"
    if not any(head):  # what a crash of the machine makes of a file
        raise HistoryDamaged(f"{db} cannot be read: it begins with zeros.", hint=SET_ASIDE_HINT)
    if head[8:12] != b"DUCK":
        raise HistoryUnusable(f"{db} is not a history: it is not a DuckDB file.", hint=LEFT_HINT)
    return "database"


LEFT_HINT = "It is left as it is. Move it away: the history is made anew from the runs."
SET_ASIDE_HINT = "Move it away: it is made anew from the run store."


def identity(path: Path) -> Identity | None:
    """`None`: there is no such file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_ino, found.st_size, found.st_mtime_ns)


# -- copies


def copy(db: Path, target: Path, *, with_wal: bool) -> None:
    """Copies the database, and the log of what another program committed to it and has not yet merged."""
    copy_bytes(db, target)
    if with_wal:
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(wal_of(db), wal_of(target))


def copy_bytes(source: Path, target: Path) -> None:
    with source.open("rb") as reading, target.open("xb") as writing:
        try:
            fcntl.ioctl(writing.fileno(), _SHARE_BLOCKS, reading.fileno())
            return
        except OSError:  # a file system without it
            pass
        with contextlib.suppress(OSError, AttributeError):
            while os.copy_file_range(reading.fileno(), writing.fileno(), _AT_ONCE):
                pass
            return
        reading.seek(0)
        writing.seek(0)
        writing.truncate()
        shutil.copyfileobj(reading, writing, 1 << 20)


def take_spare(db: Path, aside: Path) -> bool:
    """Makes the spare the copy to work on, when it can be trusted and nobody reads it. Gives whether."""
    left, spare = read_note(db), spare_of(db)
    if left is None or left.spare is None or left.spare != identity(spare):
        return False
    if not is_untouched(db) or not _unread(spare):
        return False
    spare.rename(aside)  # a kill from here on leaves a leftover, never a spare that is half changed
    return True


def is_untouched(db: Path) -> bool:
    """Whether nobody wrote into the database since it was put in place: only then can it become the next spare."""
    left = read_note(db)
    return left is not None and left.live == identity(db) and not wal_of(db).exists()


def worth_a_spare(db: Path) -> bool:
    found = identity(db)
    return found is not None and found[1] >= WORTH_A_SPARE


def _unread(path: Path) -> bool:
    """Whether nobody has the file open, this process included. Where that cannot be told: no."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.fcntl(handle, fcntl.F_SETSIG, signal.SIGURG)  # else whoever opens it this very moment kills us
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except (OSError, AttributeError):
        return False
    finally:
        os.close(handle)
    return True


# -- in place


def put_in_place(aside: Path, db: Path, *, keep_spare: bool) -> None:
    """Makes the finished copy the database, in one step and for good."""
    sync_path(aside)
    with contextlib.suppress(OSError):  # who may read it is for its owner to say
        aside.chmod(stat.S_IMODE(db.stat().st_mode))
    leaving, spare = aside.with_name(f"{aside.name}.old"), spare_of(db)
    if keep_spare:
        try:
            os.link(db, leaving)
        except OSError:  # a file system without links, or there was nothing there
            keep_spare = False
    # A log of the old file beside the new one would make the new one unreadable; what it held is in the copy.
    wal_of(db).unlink(missing_ok=True)
    aside.replace(db)
    if keep_spare:
        leaving.replace(spare)
    else:
        discard(spare)
    sync_path(db.parent)
    write_note(db)


def keep_as_spare(aside: Path, db: Path) -> None:
    """Keeps a copy that turned out to be what the database is already, for the next who publishes."""
    sync_path(aside)
    aside.replace(spare_of(db))
    write_note(db)


def set_aside(db: Path) -> Path:
    """Gives a damaged database another name, which nothing had before; nothing is deleted."""
    number = 1
    while True:
        target = db.with_name(f"{db.name}.damaged" + (f"-{number}" if number > 1 else ""))
        if not os.path.lexists(target):
            break
        number += 1
    db.rename(target)
    with contextlib.suppress(FileNotFoundError):
        wal_of(db).rename(wal_of(target))
    sync_path(db.parent)
    return target


def read_note(db: Path) -> InPlace | None:
    """What the lock file says of the files. `None`: nothing, or nothing that can be read."""
    try:
        data = json.loads(lock_of(db).read_bytes())
        spare = data["spare"]
        return InPlace(_identity_of(data["live"]), None if spare is None else _identity_of(spare))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def write_note(db: Path) -> None:
    """Notes the files as they are. Only a help: when it is lost, the next who publishes makes a copy."""
    data = json.dumps({"live": identity(db), "spare": identity(spare_of(db))})
    with contextlib.suppress(OSError), lock_of(db).open("r+", encoding="ascii") as stream:
        stream.truncate(stream.write(data))


def _identity_of(data: list[int]) -> Identity:
    inode, size, time = data
    return (inode, size, time)


# -- leftovers and names


def sweep(db: Path) -> None:
    """Removes what killed writers left. Only under the lock: then nobody works on a copy, rebuilders apart."""
    for leftover in db.parent.glob(f".{_literal(db.name)}.*.new*"):
        if not _at_work(leftover):
            _remove(leftover)


def rebuilding_name(db: Path) -> Path:
    """A name for a database that this process makes without holding the lock; `sweep` leaves it while we live."""
    return db.with_name(f".{db.name}.{os.urandom(6).hex()}.{os.getpid()}.made.new")


def _at_work(leftover: Path) -> bool:
    name, marked, _ = leftover.name.partition(".made.new")
    pid = name.rpartition(".")[2]
    if not marked or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass
    return True


def discard(aside: Path) -> None:
    """Removes a copy that is not needed, with what DuckDB may have laid beside it."""
    for leftover in aside.parent.glob(f"{_literal(aside.name)}*"):
        _remove(leftover)


def _literal(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def real_place(db: Path) -> Path:
    """Where the file itself is, when its name is a link: the link stays, and what it leads to is replaced."""
    return Path(os.path.realpath(db)) if db.is_symlink() else db


def wal_of(db: Path) -> Path:
    return db.with_name(f"{db.name}.wal")


def lock_of(db: Path) -> Path:
    return db.with_name(f"{db.name}.lock")


def spare_of(db: Path) -> Path:
    return db.with_name(f".{db.name}.spare")
