"""Whether the history is whole: every block readable, and every row with what belongs to it."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from caliper_pipeline.storage.history_file import HistoryDamaged, kind_of
from caliper_pipeline.storage.history_open import attached, first_line

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_RULES = (
    (
        "runs whose number of attempts is not what their row says",
        """FROM runs r LEFT JOIN (SELECT run_id, count(*) AS n FROM attempts GROUP BY ALL) a USING (run_id)
        WHERE r.source = 'run_store' AND r.attempt_count <> coalesce(a.n, 0)""",
    ),
    ("runs that are there twice", "FROM (SELECT run_id FROM runs GROUP BY ALL HAVING count(*) > 1)"),
    (
        "attempts that are there twice",
        """FROM (SELECT run_id, task_id, attempt FROM attempts GROUP BY ALL HAVING count(*) > 1)
        JOIN runs USING (run_id) WHERE source = 'run_store'""",
    ),
    ("attempts without a run", "FROM attempts ANTI JOIN runs USING (run_id)"),
    ("verdicts without a run", "FROM verdicts ANTI JOIN runs USING (run_id)"),
    ("scores without a run", "FROM scores ANTI JOIN runs USING (run_id)"),
    (
        "verdicts without their attempt",
        """FROM verdicts v ANTI JOIN attempts a
        ON a.run_id = v.run_id AND a.task_id = v.task_id AND a.attempt = v.attempt""",
    ),
    (
        "specs whose text is missing",
        "FROM runs ANTI JOIN texts ON digest = spec_digest WHERE source = 'run_store' AND spec_digest IS NOT NULL",
    ),
)


def check(db: Path) -> list[str]:
    """What is wrong with the history, in sentences; empty when nothing is, or when there is none.

    Raises `StorageError` for a file that is none of ours to judge or to make anew: something else, or newer.
    """
    import duckdb

    try:
        if kind_of(db) != "database":
            return []
        con = attached(db)
    except HistoryDamaged as error:
        return [str(error)]
    if con is None:
        return []
    with closing(con):
        try:
            return [*_unreadable(con), *_inconsistent(con)]
        except duckdb.Error as error:
            return [f"{db} cannot be read: {first_line(error)}"]


def _unreadable(con: "DuckDBPyConnection") -> list[str]:
    import duckdb

    problems = []
    query = "SELECT table_name FROM duckdb_tables() WHERE database_name = 'history' AND NOT internal"
    for (table,) in con.execute(query).fetchall():
        name = '"' + table.replace('"', '""') + '"'
        try:  # every column of every row is read, so every block's checksum is
            con.execute(f"SELECT sum(hash(t)) FROM {name} t").fetchall()
        except duckdb.Error as error:
            problems.append(f"{table}: {first_line(error)}")
    return problems


def _inconsistent(con: "DuckDBPyConnection") -> list[str]:
    found = [(about, con.execute(f"SELECT count(*) {rows}").fetchall()[0][0]) for about, rows in _RULES]
    return [f"{count} {about}" for about, count in found if count]
