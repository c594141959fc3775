"""The history in DuckDB. Derived: the run store and `records/` are the truth, and from them it can be made anew.

It is *published* (`history_publish`): readers never meet a lock or half a run, and an open shell keeps its snapshot.
Whoever opens it with `open_current` first brings it up to what lies on disk, which costs next to nothing when there is
no news (`history_seen`), and makes it anew when it is missing, cut or damaged.

A run that somebody is at work on is not in it until it ends; a run that is taken up again stays as it was until then.
A killed run is taken as far as it came, its status NULL.
"""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from caliper_pipeline.domain.errors import HistoryTooNew, HistoryUnusable, StorageError
from caliper_pipeline.storage.history_check import check
from caliper_pipeline.storage.history_file import HistoryDamaged, kind_of, real_place
from caliper_pipeline.storage.history_filling import catch_up, import_results, publish, publish_records, rebuild
from caliper_pipeline.storage.history_open import attached, attached_copy, is_damage
from caliper_pipeline.storage.history_publish import compact, published
from caliper_pipeline.storage.history_queries import history_dict, read_header, read_lines
from caliper_pipeline.storage.history_seen import nothing_new
from caliper_pipeline.storage.records import Records
from caliper_pipeline.storage.root import STORE_FOLDER
from caliper_pipeline.storage.runs import RunFolder, RunStore

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = [
    "HistoryDamaged",
    "catch_up",
    "check",
    "compact",
    "connect",
    "history_json",
    "history_path",
    "import_results",
    "is_damage",
    "open_current",
    "publish",
    "publish_records",
    "publish_run",
    "read_header",
    "read_lines",
    "rebuild",
    "warm_up",
]


def warm_up() -> None:
    """Imports DuckDB, 0.1 s that can pass while something else goes on."""
    import duckdb  # noqa: F401


def history_path(root: Path) -> Path:
    return root / STORE_FOLDER / "history.duckdb"


def open_current(root: Path, told: Callable[[str], None] | None = None) -> "DuckDBPyConnection":
    """A connection that reads the history of a project with all that lies on disk. Reopen for news.

    `told` is given what a person should know: a damaged file that was set aside, or that the history could not be
    brought up to date and is shown as it was. Raises `HistoryUnusable`, `HistoryTooNew`, or `StorageError` when there
    is none and none can be made.
    """
    tell = told if told is not None else _silently
    db, store = real_place(history_path(root)), RunStore(root)
    if not db.parent.is_dir():
        raise HistoryUnusable(f"There are no runs under {root} yet.", hint="The history is made by the first run.")
    try:
        if not (_there(db) and nothing_new(db, store, Records(root))):
            catch_up(db, store, tell)
    except (HistoryUnusable, HistoryTooNew):
        raise
    except StorageError as error:
        if not _there(db):
            raise
        tell(f"The history is shown as it was, without what is new: {error}")
    try:
        return connect(db)
    except HistoryDamaged:
        catch_up(db, store, tell)
        return connect(db)


def connect(db: Path) -> "DuckDBPyConnection":
    """A connection that reads the file as it is now, and never changes it. Reopen for news.

    An older database is brought up to this version first. Raises `HistoryUnusable` (also when there is none yet) or
    `HistoryTooNew`.
    """
    con = attached(db)
    if con is None:
        try:
            published(db, lambda _: 0)
            con = attached(db)
        except (HistoryUnusable, HistoryTooNew):
            raise
        except StorageError:  # nothing can be written there
            pass
    return con if con is not None else attached_copy(db)


def publish_run(root: Path, run: RunFolder) -> int:
    """Publishes a run that has ended, into a history that has all the others. Raises `StorageError`."""
    db, store = history_path(root), RunStore(root)
    alone = not _there(db) and store.names() == [run.run_id]
    changed = catch_up(db, store) if not _there(db) and not alone else 0
    try:
        return changed + publish(db, [run])
    except HistoryDamaged:
        catch_up(db, store)
        return publish(db, [run])


def history_json(db: Path) -> dict[str, Any]:
    """Everything in brief, runs sorted by instant; empty when there is no history yet."""
    if kind_of(db) != "database":
        return {"run_count": 0, "attempt_count": 0, "runs": []}
    with closing(connect(db)) as con:
        return history_dict(con)


def _there(db: Path) -> bool:
    try:
        return kind_of(db) == "database"
    except HistoryDamaged:
        return False


def _silently(_: str) -> None:
    pass
