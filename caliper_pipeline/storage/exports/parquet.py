"""Tables and views of the history as Parquet, written by DuckDB itself. Opens nothing: it is given a connection."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from caliper_pipeline.domain.errors import StorageError
from caliper_pipeline.storage.history_open import first_line

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_HOUSEKEEPING = frozenset({"about", "record_files", "schema_changes"})
"""Tables that only the history itself has a use for."""


def table_names(con: "DuckDBPyConnection") -> list[str]:
    """The tables that hold something of runs."""
    query = "SELECT table_name FROM duckdb_tables() WHERE database_name = current_database() AND NOT internal"
    return sorted({name for (name,) in con.execute(query).fetchall()} - _HOUSEKEEPING)


def view_names(con: "DuckDBPyConnection") -> list[str]:
    query = "SELECT view_name FROM duckdb_views() WHERE database_name = current_database() AND NOT internal"
    return sorted(name for (name,) in con.execute(query).fetchall())


def write_parquet(con: "DuckDBPyConnection", table: str, run_ids: Sequence[str] | None, path: Path) -> None:
    """Writes one of these tables or views into a new file. `run_ids`: only what belongs to these runs.

    The path is one that we made up; of a table that tells of no run, all of it is written. Raises `StorageError`.
    """
    import duckdb

    kinds = _columns(con, table)
    # JSON as text: other readers know no such type.
    columns = ", ".join(f'"{name}"::VARCHAR AS "{name}"' if kind == "JSON" else f'"{name}"' for name, kind in kinds)
    query = f'SELECT {columns} FROM "{table}"{_condition(table, dict(kinds), run_ids)}'
    target = str(path).replace("'", "''")
    parameters = [] if run_ids is None or "$1" not in query else [list(run_ids)]
    try:
        con.execute(f"COPY ({query}) TO '{target}' (FORMAT parquet, COMPRESSION zstd)", parameters)
    except duckdb.IOException as error:
        full = os.strerror(errno.ENOSPC)  # DuckDB says it amid the insides of its writer
        raise StorageError(
            f"Cannot write {table} as Parquet: {full if full in str(error) else first_line(error)}"
        ) from error


def _columns(con: "DuckDBPyConnection", table: str) -> list[tuple[str, str]]:
    query = (
        "SELECT column_name, data_type FROM duckdb_columns() "
        "WHERE database_name = current_database() AND table_name = $1 ORDER BY column_index"
    )
    return con.execute(query, [table]).fetchall()


def _condition(table: str, columns: dict[str, str], run_ids: Sequence[str] | None) -> str:
    these = "run_id IN (SELECT unnest($1::VARCHAR[]))"
    if run_ids is None:
        return ""
    if "run_id" in columns:
        return f" WHERE {these}"
    if table == "texts":
        digests = ["prompt", "expect", "assert", "setup", "cleanup", "history"]
        of_tasks = " UNION ".join(f"SELECT {name}_digest FROM tasks WHERE {these}" for name in digests)
        return f" WHERE digest IN (SELECT spec_digest FROM runs WHERE {these} UNION {of_tasks})"
    if table == "skill_files":
        return f" WHERE digest IN (SELECT digest FROM skills WHERE {these})"
    return ""
