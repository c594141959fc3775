"""What the tests of the history look at."""

import contextlib
from pathlib import Path
from typing import Any

from caliper_pipeline.storage import history
from caliper_pipeline.storage.migrations import table_names


def ask(db: Path, query: str, *parameters: object) -> list[Any]:
    with contextlib.closing(history.connect(db)) as con:
        return con.execute(query, list(parameters)).fetchall()


def everything(db: Path) -> dict[str, list[Any]]:
    """All rows of all tables, without when they were written."""
    with contextlib.closing(history.connect(db)) as con:
        found = {}
        for table in table_names():
            what = "* EXCLUDE (published_utc)" if table == "runs" else "*"
            found[table] = sorted(con.execute(f"SELECT {what} FROM {table}").fetchall(), key=repr)
        return found
