"""Puts rows into an open history, in one transaction that its caller holds; opens nothing itself.

Rows go in column by column, as lists: exact for any text, and twenty times faster than row by row.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from caliper_pipeline.domain.errors import HistoryTooNew, HistoryUnusable
from caliper_pipeline.storage.files import utf8
from caliper_pipeline.storage.history_file import LEFT_HINT
from caliper_pipeline.storage.history_rows import Row, RunRows
from caliper_pipeline.storage.history_views import VIEWS, view_statements
from caliper_pipeline.storage.migrations import CURRENT_VERSION, LEDGER, changes_since

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_AT_ONCE = 5_000
"""Attempts held in memory before they are written."""
_ROWS_AT_ONCE = 500
_WIDEST = 2**63 - 1
BY_RUN = ("runs", "tasks", "attempts", "verdicts", "scores", "skills", "skill_scores", "hook_failures", "resumes")


def schema_version(con: "DuckDBPyConnection") -> int | None:
    """The version of an open database. `None`: it is empty. Raises `HistoryUnusable` when it holds other things."""
    names = {name for (name,) in con.execute("SELECT table_name FROM duckdb_tables() WHERE NOT internal").fetchall()}
    if "schema_changes" in names:
        (version,) = con.execute("SELECT coalesce(max(version), 0) FROM schema_changes").fetchall()[0]
        return int(version)
    foreign = sorted(names)
    if foreign:
        held = ", ".join(foreign[:3])
        raise HistoryUnusable(f"it is a database of something else (it holds {held})", hint=LEFT_HINT)
    return None


def check_version(version: int) -> None:
    if version > CURRENT_VERSION:
        raise HistoryTooNew(
            f"it was written by a newer version of this product (schema {version}; this one knows {CURRENT_VERSION})",
            hint="Install that version, or move the file away: this one then makes its own from the runs.",
        )


def migrate(con: "DuckDBPyConnection") -> bool:
    """Brings schema and views up to date. Gives whether there was anything to do."""
    if is_current(con):
        return False
    version = schema_version(con)
    check_version(version or 0)
    statements = list(LEDGER) if version is None else []
    for change in changes_since(version or 0):
        name = change.name.replace("'", "''")
        statements += [
            *change.statements,
            f"INSERT INTO schema_changes VALUES ({change.version}, '{name}', now() AT TIME ZONE 'UTC')",
        ]
    con.execute(";\n".join(["BEGIN", *statements, *_views_anew(con, version), "COMMIT"]))
    return True


def is_current(con: "DuckDBPyConnection", database: str = "") -> bool:
    """Whether schema and views are those of this program. `database`: of an attached one, its name and a dot."""
    import duckdb

    version = f"(SELECT max(version) FROM {database}schema_changes)"
    views = f"(SELECT value FROM {database}about WHERE name = 'views')"
    try:
        return con.execute(f"SELECT {version}, {views}").fetchall() == [(CURRENT_VERSION, _views_digest())]
    except duckdb.CatalogException:  # another version, or a database of something else
        return False


def _views_anew(con: "DuckDBPyConnection", version: int | None) -> Iterator[str]:
    """A view of ours that is no more goes; one that somebody made by hand stays."""
    older = _about(con).get("view_names", "") if version == CURRENT_VERSION else ""
    names = [view.name for view in VIEWS]
    yield from (f"DROP VIEW IF EXISTS {name}" for name in older.split(",") if name and name not in names)
    yield from view_statements()
    yield "DELETE FROM about WHERE name IN ('views', 'view_names')"
    yield f"INSERT INTO about VALUES ('views', '{_views_digest()}'), ('view_names', '{','.join(names)}')"


@cache
def _views_digest() -> str:
    return hashlib.sha256("\n".join(view_statements()).encode()).hexdigest()


def _about(con: "DuckDBPyConnection") -> dict[str, str]:
    return dict(con.execute("SELECT name, value FROM about").fetchall())


class HistoryWriter:
    """Takes runs and replaces what is there of them when it is older or shorter."""

    def __init__(self, con: "DuckDBPyConnection", run_ids: Sequence[str] | None = None) -> None:
        """`run_ids`: those that may come. `None`: any."""
        self._con = con
        self._types = column_types(con)
        query = "SELECT run_id, source, source_bytes FROM runs"
        if run_ids is not None:
            query += " WHERE run_id IN (SELECT unnest($1::VARCHAR[]))"
        found = con.execute(query, [] if run_ids is None else [list(run_ids)]).fetchall()
        self._known: dict[str, tuple[str, int]] = {row[0]: (row[1], row[2]) for row in found}
        self._stored = set(self._known)
        self._pending: dict[str, RunRows] = {}
        self._size = 0
        self.changed = 0
        """Runs that were added or replaced."""
        self.noted = False
        """Some imported file was noted."""

    def lacks(self, rows: RunRows) -> bool:
        """Whether the rows say more of their run than what is there."""
        known = self._known.get(rows.run_id)
        return known is None or _better(rows, known)

    def add(self, rows: RunRows) -> None:
        if not self.lacks(rows):
            return
        self._known[rows.run_id] = (rows.source, rows.source_bytes)
        self._pending[rows.run_id] = rows
        self._size += len(rows.tables.get("attempts", ())) + 10
        self.changed += 1
        if self._size > _AT_ONCE:
            self.flush()

    def note_import(self, rows: RunRows) -> None:
        """Remembers that the imported file was looked at, also when it says nothing new."""
        name = f"imported/{rows.source_digest}"
        self._con.execute("DELETE FROM record_files WHERE kind = $1", [name])
        self._con.execute("INSERT INTO record_files VALUES ($1, $2)", [name, rows.source_bytes])
        self.noted = True

    def flush(self) -> None:
        pending = list(self._pending.values())
        self._pending, self._size = {}, 0
        replaced = [rows.run_id for rows in pending if rows.run_id in self._stored]
        self._stored.update(rows.run_id for rows in pending)
        if replaced:
            for table in BY_RUN:
                self._con.execute(
                    f"DELETE FROM {table} WHERE run_id IN (SELECT unnest($1::VARCHAR[]))",
                    [[_clean(i) for i in replaced]],
                )
        now = datetime.now(UTC)
        for rows in pending:
            run_row = rows.tables["runs"][0]
            assert isinstance(run_row, dict)
            run_row.update(
                source=rows.source, source_bytes=rows.source_bytes, source_digest=rows.source_digest, published_utc=now
            )
        for table in BY_RUN:
            made = (row for rows in pending for row in rows.tables.get(table, ()))
            while part := [row() if callable(row) else row for row in islice(made, _ROWS_AT_ONCE)]:
                self._insert(table, part)
        texts = {digest: text for rows in pending for digest, text in rows.texts.items()}
        self._insert("texts", [{"digest": digest, "text": text} for digest, text in texts.items()], new_by="digest")
        files = {digest: paths for rows in pending for digest, paths in rows.skill_files.items()}
        self._insert(
            "skill_files",
            [{"digest": d, "path": path, "hash": h} for d, paths in files.items() for path, h in paths.items()],
            new_by="digest",
        )

    def _insert(self, table: str, rows: Sequence[Row], *, new_by: str | None = None) -> None:
        insert(self._con, table, rows, self._types[table], new_by=new_by)


def column_types(con: "DuckDBPyConnection") -> dict[str, dict[str, str]]:
    """Table → column → type, columns in their order."""
    types: dict[str, dict[str, str]] = {}
    for table, column, kind in con.execute(
        "SELECT table_name, column_name, data_type FROM duckdb_columns() "
        "WHERE database_name = current_database() AND NOT internal ORDER BY column_index"
    ).fetchall():
        types.setdefault(table, {})[column] = kind
    return types


def insert(
    con: "DuckDBPyConnection", table: str, rows: Sequence[Row], types: Mapping[str, str], *, new_by: str | None = None
) -> None:
    """Adds the rows. `new_by`: leave out those whose value in that column the table already has."""
    if not rows:
        return
    columns = [_column([row.get(name) for row in rows], kind) for name, kind in types.items()]
    values = ", ".join(f"unnest(${n}::{kind}[]) AS {name}" for n, (name, kind) in enumerate(types.items(), 1))
    source = f"SELECT {values}" if new_by is None else f"FROM (SELECT {values}) ANTI JOIN {table} USING ({new_by})"
    con.execute(f"INSERT INTO {table} {source}", columns)


def _better(rows: RunRows, known: tuple[str, int]) -> bool:
    """Whether the rows say more than what is there: the run itself over a file of it, and the longer of two."""
    source, size = known
    return rows.source == "run_store" if rows.source != source else rows.source_bytes > size


def _column(values: list[Any], kind: str) -> list[Any]:
    if kind in ("BOOLEAN", "DOUBLE"):
        return values
    return [None if value is None else _clean(value) for value in values]


def _clean(value: Any) -> Any:
    """The value as the database can hold it: naive UTC, whole UTF-8, integers of 64 bits."""
    if isinstance(value, str):
        return value if value.isascii() else utf8(value).decode()
    if isinstance(value, int):
        return max(-_WIDEST, min(_WIDEST, value))
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None)
    return [_clean(item) for item in value]
