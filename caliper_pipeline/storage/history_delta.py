"""Brings the spare, an older state of the history, up to the present one: only what differs is carried over."""

from pathlib import Path
from typing import TYPE_CHECKING

from caliper_pipeline.storage.history_writer import BY_RUN, is_current

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_MOST_RUNS = 1_000
"""With more to carry over a copy of the file is made sooner."""
_BY_DIGEST = ("texts", "skill_files")
_WHOLE = ("labels", "acknowledgements", "alerts", "record_files")


def bring_up_to_date(con: "DuckDBPyConnection", db: Path) -> bool:
    """Makes an open older state equal to the database. Gives `False` when it should be copied instead.

    The two differ only by what was published since: nobody else ever wrote into either (`history_file.take_spare`).
    """
    con.execute(f"ATTACH '{str(db).replace(chr(39), chr(39) * 2)}' AS present (READ_ONLY)")
    try:
        if not (is_current(con) and is_current(con, "present.")):
            return False
        gone = _runs(con, "runs", "present.runs")
        new = _runs(con, "present.runs", "runs")
        if len(gone) + len(new) > _MOST_RUNS:
            return False
        con.begin()
        _carry_over(con, gone, new)
        con.commit()
    finally:
        con.execute("DETACH present")
    return True


def _runs(con: "DuckDBPyConnection", of: str, but_not: str) -> list[str]:
    """Runs of one state that the other does not have as they are. Each writing of a run has a time of its own."""
    found = con.execute(f"SELECT run_id FROM {of} ANTI JOIN {but_not} USING (run_id, published_utc)").fetchall()
    return [run_id for (run_id,) in found]


def _carry_over(con: "DuckDBPyConnection", gone: list[str], new: list[str]) -> None:
    these = "WHERE run_id IN (SELECT unnest($1::VARCHAR[]))"
    for table in BY_RUN:
        if gone:
            con.execute(f"DELETE FROM {table} {these}", [gone])
        if new:
            con.execute(f"INSERT INTO {table} SELECT * FROM present.{table} {these}", [new])
    if new:
        for table in _BY_DIGEST:
            con.execute(f"INSERT INTO {table} SELECT * FROM present.{table} ANTI JOIN {table} USING (digest)")
    files = [con.execute(f"FROM {name} ORDER BY ALL").fetchall() for name in ("record_files", "present.record_files")]
    if files[0] != files[1]:
        for table in _WHOLE:
            con.execute(f"DELETE FROM {table}")
            con.execute(f"INSERT INTO {table} SELECT * FROM present.{table}")


def copy_all(con: "DuckDBPyConnection", source: str) -> None:
    """Fills a new history with all rows of another, and with what others put there: their tables and views."""
    query = "SELECT {0}_name, sql FROM duckdb_{0}s() WHERE database_name = $1 AND NOT internal"
    ours = {name for (name,) in con.execute("SHOW TABLES").fetchall()}
    for table, _ in con.execute(query.format("table"), [source]).fetchall():
        name = '"' + table.replace('"', '""') + '"'
        if table not in ours:
            con.execute(f"CREATE TABLE {name} AS FROM {source}.{name}")
            continue
        con.execute(f"DELETE FROM {name}")
        order = "ORDER BY run_id, rowid" if table in BY_RUN else "ORDER BY rowid"
        con.execute(f"INSERT INTO {name} BY NAME SELECT * FROM {source}.{name} {order}")
    for view, statement in con.execute(query.format("view"), [source]).fetchall():
        if view not in ours:
            con.execute(statement)
