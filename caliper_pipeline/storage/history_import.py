"""Results files into the history: read one at a time, put together aside, and published all at once.

Reading 1,000 files takes a minute; nobody else is to wait for it. So their rows go into a small database of their own
first, without the lock, and from there into the history in one transaction. The bytes of each file that says something
new are kept in `records/` before its rows are published, so that a rebuild has it.
"""

import contextlib
import hashlib
import tempfile
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from caliper_pipeline.storage import history_file
from caliper_pipeline.storage.files import storage_errors
from caliper_pipeline.storage.history_open import CONFIG, attached, attached_copy, explained
from caliper_pipeline.storage.history_publish import published
from caliper_pipeline.storage.history_writer import BY_RUN, HistoryWriter, migrate
from caliper_pipeline.storage.imported_rows import rows_of_file
from caliper_pipeline.storage.records import Records
from caliper_pipeline.storage.results_bytes import read_bytes
from caliper_pipeline.storage.run_rows import RunRows

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_ASIDE_CONFIG = {**CONFIG, "threads": "1", "memory_limit": "128MB"}
_PENDING_FILES, _PENDING_BYTES = 100, 16 * 1024 * 1024
"""What is held in memory at a time, at most: so many files, or of so many bytes together."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of one file."""

    path: Path
    run_id: str | None = None
    new: bool = False
    """It says something that the history did not have."""
    refused: str | None = None
    """What is wrong with it."""


def import_files(
    db: Path,
    paths: Iterable[Path],
    *,
    records: Records | None,
    own: Collection[str] = (),
    dry_run: bool = False,
) -> Iterator[Imported]:
    """Reads the files as they are asked for; what is new is in the history when the last was given.

    `records`: where their bytes are kept; `None`: nowhere. `own`: ids of runs that are in the run store, of which a
    file says nothing new. `dry_run`: nothing is written. Raises `StorageError` when the history cannot be used.
    """
    db = history_file.real_place(db)
    known = _Known.read(db, dry_run=dry_run)
    if dry_run:
        for path in paths:
            yield _look(path, known, own)[0]
        return
    with contextlib.closing(_Pending(records)) as pending:
        for path in paths:
            found, rows, data = _look(path, known, own)
            if rows is not None and (found.new or (records is not None and path.parent == records.imported)):
                pending.add(rows, data, new=found.new)
            del rows, data
            yield found
        pending.publish(db)


@dataclass(slots=True)
class _Known:
    """What the history has, and what has been seen of the files so far."""

    runs: dict[str, tuple[str, int]]
    """Run id → `run_store` or `file`, and the length of what it was made from."""
    digests: set[str]
    """Of files that were looked at."""

    @classmethod
    def read(cls, db: Path, *, dry_run: bool) -> "_Known":
        if history_file.kind_of(db) != "database":
            return cls({}, set())
        con = attached(db)
        if con is None and not dry_run:  # of an older version
            published(db, lambda _: 0)
            con = attached(db)
        with contextlib.closing(con if con is not None else attached_copy(db)) as con:
            runs = con.execute("SELECT run_id, source, source_bytes FROM runs").fetchall()
            read = con.execute("SELECT kind FROM record_files WHERE kind LIKE 'imported/%'").fetchall()
        digests = {kind.removeprefix("imported/") for (kind,) in read}
        return cls({run_id: (source, size) for run_id, source, size in runs}, digests)

    def lacks(self, rows: RunRows) -> bool:
        """A longer file of a run that bears an id is a later state of it; without one, a longer file only has more
        blanks."""
        source, size = self.runs.get(rows.run_id, (None, 0))
        if source == "file" and size == 0:  # a change of the schema asks for all rows to be made again
            return True
        return source is None or (source == "file" and not rows.id_from_content and rows.source_bytes > size)


def _look(path: Path, known: _Known, own: Collection[str]) -> tuple[Imported, RunRows | None, bytes]:
    try:
        data = read_bytes(path)
    except OSError as error:
        return Imported(path, refused=f"cannot be read: {error.strerror}"), None, b""
    except ValueError as error:
        return Imported(path, refused=f"cannot be read: {error}"), None, b""
    digest = hashlib.sha256(data).hexdigest()
    if digest in known.digests:
        return Imported(path), None, b""
    try:
        rows = rows_of_file(data)
    except ValueError as error:
        return Imported(path, refused=f"not a results file: {error}"), None, b""
    known.digests.add(digest)
    new = rows.run_id not in own and known.lacks(rows)
    if new:
        known.runs[rows.run_id] = (rows.source, rows.source_bytes)
    return Imported(path, rows.run_id, new), rows, data


class _Pending:
    """The rows on their way: a few in memory, more of them in a database of their own."""

    def __init__(self, records: Records | None) -> None:
        self._records = records
        self._files: list[bytes] = []
        self._rows: list[RunRows] = []
        self._noted: dict[str, int] = {}
        """How the history remembers the files that it has looked at → their lengths."""
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._aside: Path | None = None

    def add(self, rows: RunRows, data: bytes, *, new: bool) -> None:
        """`new`: it says more than what is known of its run."""
        if self._records is not None:
            self._noted[f"imported/{rows.source_digest}"] = rows.source_bytes
        if new:
            self._rows.append(rows)
        self._files.append(data)
        if len(self._files) >= _PENDING_FILES or sum(map(len, self._files)) > _PENDING_BYTES:
            self._put_aside()

    def publish(self, db: Path) -> None:
        if self._aside is None:
            if self._files:
                self._keep()
                published(db, self._put)
            return
        if self._files:
            self._put_aside()
        aside = self._aside
        published(db, lambda con: _take_over(con, aside))

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def _keep(self) -> None:
        if self._records is not None:
            self._records.keep_all_imported(self._files)

    def _put_aside(self) -> None:
        import duckdb

        self._keep()
        if self._folder is None or self._aside is None:
            self._folder = tempfile.TemporaryDirectory(prefix="history-")
            self._aside = Path(self._folder.name) / "import.duckdb"
        with (
            storage_errors("write", self._aside),
            explained(self._aside, "written"),
            contextlib.closing(duckdb.connect(str(self._aside), config=_ASIDE_CONFIG)) as con,
        ):
            migrate(con)
            con.begin()
            self._put(con)
            con.commit()
        self._files, self._rows, self._noted = [], [], {}

    def _put(self, con: "DuckDBPyConnection") -> int:
        writer = HistoryWriter(con, [rows.run_id for rows in self._rows])
        for rows in self._rows:
            writer.add(rows)
        writer.flush()
        noted = [list(self._noted), list(self._noted.values())]
        con.execute("DELETE FROM record_files WHERE kind IN (SELECT unnest($1::VARCHAR[]))", noted[:1])
        con.execute("INSERT INTO record_files SELECT unnest($1::VARCHAR[]), unnest($2::BIGINT[])", noted)
        return writer.changed + len(self._noted)


def _take_over(con: "DuckDBPyConnection", aside: Path) -> int:
    """Adds what was put together, unless the history has come to know more meanwhile. Gives how many runs."""
    con.execute(f"ATTACH '{str(aside).replace(chr(39), chr(39) * 2)}' AS incoming (READ_ONLY)")
    better = (
        "SELECT i.run_id FROM incoming.runs i LEFT JOIN runs r USING (run_id) "
        "WHERE r.run_id IS NULL OR (r.source = 'file' AND i.source_bytes > r.source_bytes)"
    )
    run_ids = [run_id for (run_id,) in con.execute(better).fetchall()]
    these = "WHERE run_id IN (SELECT unnest($1::VARCHAR[]))"
    for table in BY_RUN:
        con.execute(f"DELETE FROM {table} {these}", [run_ids])
        con.execute(f"INSERT INTO {table} BY NAME SELECT * FROM incoming.{table} {these} ORDER BY rowid", [run_ids])
    for table in ("texts", "skill_files"):
        con.execute(f"INSERT INTO {table} BY NAME SELECT * FROM incoming.{table} ANTI JOIN {table} USING (digest)")
    con.execute("DELETE FROM record_files WHERE kind IN (SELECT kind FROM incoming.record_files)")
    noted = con.execute("INSERT INTO record_files BY NAME SELECT * FROM incoming.record_files").fetchall()[0][0]
    return len(run_ids) + int(noted)
