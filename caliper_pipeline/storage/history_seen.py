"""Whether the history has all that lies on disk, told without opening it or looking at every run.

After catching up, what was seen is noted beside the history: the time of the folder of runs (whoever begins to add to
a run touches it), the lengths of the records' files, and the runs that were not over, with the lengths of their logs.
While all of that is as noted, there is nothing new. The note is a help and no more: where it is missing, unreadable,
or about another file of the history, every run is looked at.
"""

import contextlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caliper_pipeline.storage.files import aside_name
from caliper_pipeline.storage.history_file import Identity, identity
from caliper_pipeline.storage.history_records import record_sizes
from caliper_pipeline.storage.records import Records
from caliper_pipeline.storage.runs import RunFolder, RunStore

AT_WORK = -1
"""In place of a log's length: somebody was at work on the run, so it is news as soon as nobody is."""
_FINE_NS, _COARSE_NS = 20_000_000, 2_500_000_000
"""How long two changes may bear one time: the kernel's clock ticks every 4 ms; some file systems keep whole seconds."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What can be seen from outside."""

    runs: int
    """Time of the folder of runs, in nanoseconds; 0: there is none."""
    imported: int
    records: Mapping[str, int]
    settled: bool
    """Nothing can have changed since without giving another time."""


def look(store: RunStore, records: Records) -> Sight:
    """Before the runs are listed: what comes while they are, is news then."""
    times = [_time(store.path), _time(records.imported)]
    now = time.time_ns()
    settled = all(not 0 <= now - t < (_COARSE_NS if t % 1_000_000 == 0 else _FINE_NS) for t in times if t)
    return Sight(times[0], times[1], record_sizes(records), settled)


def nothing_new(db: Path, store: RunStore, records: Records) -> bool:
    noted = _read(db)
    if noted is None or noted["db"] != list(identity(db) or ()):
        return False
    sight = look(store, records)
    if [noted["runs"], noted["imported"], noted["records"]] != [sight.runs, sight.imported, sight.records]:
        return False
    for run_id, size in noted["pending"].items():
        run = RunFolder(store.path / run_id)
        if run.log.size() != size and not run.busy():
            return False
    return True


def note(db: Path, sight: Sight, found: Identity | None, pending: Mapping[str, int]) -> None:
    """`found`: the history as it was when it was read. `pending`: runs that may still grow without the folder's
    time changing → length of their logs."""
    if not sight.settled:
        return
    data: dict[str, Any] = {
        "db": found,
        "runs": sight.runs,
        "imported": sight.imported,
        "records": sight.records,
        "pending": pending,
    }
    with contextlib.suppress(OSError):
        aside = aside_name(db)
        aside.write_bytes(json.dumps(data).encode())
        aside.replace(seen_of(db))


def seen_of(db: Path) -> Path:
    return db.with_name(f".{db.name}.seen")


def _read(db: Path) -> dict[str, Any] | None:
    try:
        noted = json.loads(seen_of(db).read_bytes())
        return noted if {"db", "runs", "imported", "records", "pending"} <= noted.keys() else None
    except (OSError, ValueError, AttributeError):
        return None


def _time(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0
