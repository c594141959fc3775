"""Puts rows into an open history, in one transaction that its caller holds; opens nothing itself.

Rows go in column by column, as lists: exact for any text, and twenty times faster than row by row.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from caliper_pipeline.domain.errors import HistoryTooNew, HistoryUnusable
from caliper_pipeline.storage.files import utf8
from caliper_pipeline.storage.history_rows import Row, RunRows
from caliper_pipeline.storage.history_views import view_statements
from caliper_pipeline.storage.migrations import CURRENT_VERSION, LEDGER, changes_since

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_AT_ONCE = 5_000
"""Attempts held in memory before they are written."""
_ROWS_AT_ONCE = 500
_WIDEST = 2**63 - 1
_BY_RUN = ("runs", "tasks", "attempts", "verdicts", "scores", "skills", "skill_scores", "hook_failures", "resumes")


def schema_version(con: "DuckDBPyConnection") -> int | None:
    """The version of an open database. `None`: it is empty. Raises `HistoryUnusable` when it holds other things."""
    names = {name for (name,) in con.execute("SELECT table_name FROM duckdb_tables() WHERE NOT internal").fetchall()}
    if "schema_changes" in names:
        (version,) = con.execute("SELECT coalesce(max(version), 0) FROM schema_changes").fetchall()[0]
        return int(version)
    foreign = sorted(names)
    if foreign:
        raise HistoryUnusable(f"it is a database of something else (it holds {', '.join(foreign[:3])})")
    return None


def check_version(version: int) -> None:
    if version > CURRENT_VERSION:
        raise HistoryTooNew(
            f"it was written by a newer version of this product (schema {version}; this one knows {CURRENT_VERSION})"
        )


def migrate(con: "DuckDBPyConnection") -> bool:
    """Brings the schema up to date. Gives whether there was anything to do."""
    version = schema_version(con)
    check_version(version or 0)
    if version == CURRENT_VERSION:
        return False
    statements = list(LEDGER) if version is None else []
    for change in changes_since(version or 0):
        name = change.name.replace("'", "''")
        statements += [
            *change.statements,
            f"INSERT INTO schema_changes VALUES ({change.version}, '{name}', now() AT TIME ZONE 'UTC')",
        ]
    con.execute(";\n".join(["BEGIN", *statements, *view_statements(), "COMMIT"]))
    return True


class HistoryWriter:
    """Takes runs and replaces what is there of them when it is older or shorter."""

    def __init__(self, con: "DuckDBPyConnection", run_ids: Sequence[str] | None = None) -> None:
        """`run_ids`: those that may come. `None`: any."""
        self._con = con
        self._types: dict[str, dict[str, str]] = {}
        for table, column, kind in con.execute(
            "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE NOT internal ORDER BY column_index"
        ).fetchall():
            self._types.setdefault(table, {})[column] = kind
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

    def flush(self) -> None:
        pending = list(self._pending.values())
        self._pending, self._size = {}, 0
        replaced = [rows.run_id for rows in pending if rows.run_id in self._stored]
        self._stored.update(rows.run_id for rows in pending)
        if replaced:
            for table in _BY_RUN:
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
        for table in _BY_RUN:
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
        """`new_by`: leave out rows whose value in that column the table already has."""
        if not rows:
            return
        types = self._types[table]
        columns = [[_clean(row.get(name)) for row in rows] for name in types]
        values = ", ".join(f"unnest(${n}::{kind}[]) AS {name}" for n, (name, kind) in enumerate(types.items(), 1))
        source = f"SELECT {values}" if new_by is None else f"FROM (SELECT {values}) ANTI JOIN {table} USING ({new_by})"
        self._con.execute(f"INSERT INTO {table} {source}", columns)


def _better(rows: RunRows, known: tuple[str, int]) -> bool:
    """Whether the rows say more than what is there: the run itself over a file of it, and the longer of two."""
    source, size = known
    return rows.source == "run_store" if rows.source != source else rows.source_bytes > size


def _clean(value: Any) -> Any:
    """The value as the database can hold it: naive UTC, whole UTF-8, integers of 64 bits."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, str):
        return value if value.isascii() else utf8(value).decode()
    if isinstance(value, int):
        return max(-_WIDEST, min(_WIDEST, value))
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None)
    return [_clean(item) for item in value]
