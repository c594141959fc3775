"""Fewer costs for each event on Dagster's default storage, which is made for few events from many processes.

It opens and closes two SQLite connections an event. Two things spare most of that, and neither changes what is stored:

- Whenever the last connection of a file closes, SQLite copies the log of its changes into the file and deletes it. One
  idle connection that stays open prevents that. It holds no transaction, so it is in nobody's way.
- A new SQLAlchemy engine is made for each connection, and with it goes every statement it has compiled. Here an engine
  is used again for the same file; its connections are still opened and closed one by one.

Measured together on 900 attempts: 7.5 s of processor time instead of 16, and a third of the waiting. Where Dagster
changes what the second relies on, it is left out.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from dagster import DagsterInstance
from dagster._core.storage.event_log import SqliteEventLogStorage
from dagster._core.storage.event_log.sqlite import sqlite_event_log

MAKER = "create_engine"


@contextmanager
def kept_open(instance: DagsterInstance, dagster_run_id: str) -> Iterator[None]:
    """For the duration of the block; does nothing on other storages."""
    storage = instance.event_log_storage
    with ExitStack() as stack:
        if isinstance(storage, SqliteEventLogStorage):
            stack.enter_context(_engines_used_again())
            for shard in ("index", dagster_run_id):
                path = Path(storage.path_for_shard(shard))
                if path.exists():
                    connection = stack.enter_context(closing(sqlite3.connect(path)))
                    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        yield


@contextmanager
def _engines_used_again() -> Iterator[None]:
    make: Callable[..., Any] | None = getattr(sqlite_event_log, MAKER, None)
    if make is None or hasattr(make, "engines"):
        yield
        return
    engines: dict[str, Any] = {}

    def find_or_make(url: str, **options: Any) -> Any:
        if url not in engines:
            engines[url] = make(url, **options)
        return engines[url]

    find_or_make.engines = engines  # type: ignore[attr-defined]
    setattr(sqlite_event_log, MAKER, find_or_make)
    try:
        yield
    finally:
        setattr(sqlite_event_log, MAKER, make)
