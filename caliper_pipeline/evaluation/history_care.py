"""Looking after the history: what it holds, whether it is whole, and removing evidence that is no longer wanted."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from caliper_pipeline.domain.errors import CaliperError, StorageError
from caliper_pipeline.storage import history, pruning
from caliper_pipeline.storage.history_file import spare_of
from caliper_pipeline.storage.pruning import StoredSize
from caliper_pipeline.storage.records import RECORD_TYPES, Label, Records
from caliper_pipeline.storage.runs import RunFolder, RunStore

COUNTING_SECONDS = 2.0
"""How long evidence is counted when only a summary is asked for."""
_NAMED = 20
"""Things of one kind that are named one by one."""


@dataclass(frozen=True, slots=True)
class EvidenceTotal:
    bytes: int
    files: int
    runs: int
    pruned: int
    """Runs whose evidence was removed."""
    complete: bool
    """False: it would have taken too long to count all of it, and there is more."""


@dataclass(frozen=True, slots=True)
class HistoryStatus:
    """What the history holds."""

    file: Path
    bytes: int
    schema_version: int
    runs: int
    attempts: int
    verdicts: int
    specs: int
    series: int
    simulated: int
    """Runs in which a script played the agent."""
    imported: int
    """Runs that came from results files."""
    first: datetime | None
    last: datetime | None
    labels: int
    alerts: int
    open_alerts: int
    acknowledgements: int
    missing: tuple[str, ...]
    """Runs on disk that are not in it: somebody is at work on them, nothing has ended yet, or they are damaged."""
    spare_bytes: int
    """Of the file beside it that makes the next publication quick."""
    set_aside: tuple[Path, ...]
    """Damaged files that were kept."""


def status(root: Path, told: Callable[[str], None] | None = None) -> HistoryStatus:
    """Brings the history up to date and says what it holds. Raises as `history.open_current`."""
    db, store = history.history_path(root), RunStore(root)
    with closing(history.open_current(root, told)) as con:
        (row,) = con.execute(
            """SELECT count(*), coalesce(sum(attempt_count), 0)::BIGINT, count(DISTINCT spec),
                count(DISTINCT series_key), count(*) FILTER (simulated), count(*) FILTER (source = 'file'),
                min(coalesce(started_utc, ended_utc)), max(coalesce(started_utc, ended_utc)) FROM runs"""
        ).fetchall()
        (counts,) = con.execute(
            """SELECT (SELECT max(version) FROM schema_changes), (SELECT count(*) FROM verdicts),
                (SELECT count(*) FROM labels), (SELECT count(*) FROM alert_log),
                (SELECT count(*) FROM alert_log WHERE state = 'open'), (SELECT count(*) FROM acknowledgements)"""
        ).fetchall()
        held = {run_id for (run_id,) in con.execute("SELECT run_id FROM runs").fetchall()}
    return HistoryStatus(
        file=db,
        bytes=db.stat().st_size,
        schema_version=counts[0],
        runs=row[0],
        attempts=row[1],
        verdicts=counts[1],
        specs=row[2],
        series=row[3],
        simulated=row[4],
        imported=row[5],
        first=row[6],
        last=row[7],
        labels=counts[2],
        alerts=counts[3],
        open_alerts=counts[4],
        acknowledgements=counts[5],
        missing=tuple(run_id for run_id in store.run_ids() if run_id not in held),
        spare_bytes=spare.stat().st_size if (spare := spare_of(db)).exists() else 0,
        set_aside=tuple(sorted(db.parent.glob(f"{db.name}.damaged*"))),
    )


def count_evidence(root: Path, *, seconds: float | None = COUNTING_SECONDS) -> EvidenceTotal:
    """What all evidence takes. `seconds`: give up after so long. `None`: count everything."""
    store, deadline = RunStore(root), None if seconds is None else time.monotonic() + seconds
    total, files, runs, pruned = 0, 0, 0, 0
    for run_id in store.names():
        if deadline is not None and time.monotonic() > deadline:
            return EvidenceTotal(total, files, runs, pruned, False)
        found = pruning.size_of(store.path / run_id)
        total, files, runs = total + found.bytes, files + found.files, runs + bool(found.files)
        pruned += not found.files and pruning.pruned_at(store.path / run_id) is not None
    return EvidenceTotal(total, files, runs, pruned, True)


# -- is it whole


def problems(root: Path, *, deep: bool = False) -> Iterator[str]:
    """What is wrong with the history and the runs behind it, in sentences.

    The file is looked at as it is. If it is whole, it is brought up to what lies on disk as always when it is opened,
    and then compared with it. `deep`: also reads every line of every run.
    """
    db, store = history.history_path(root), RunStore(root)
    found = history.check(db)
    yield from found
    if found:
        return
    told: list[str] = []
    with closing(history.open_current(root, told.append)) as con:
        yield from told
        yield from _behind(con, store)
        yield from _records_differ(con, root)
        yield from _named(
            "folder of evidence is missing, and was not pruned",
            "folders of evidence are missing, and were not pruned",
            pruning.missing_evidence(store, _referenced(con)),
        )
        if deep:
            yield from _lines_differ(con, store)


def _behind(con: Any, store: RunStore) -> Iterator[str]:
    held = dict(con.execute("SELECT run_id, source_bytes FROM runs WHERE source = 'run_store'").fetchall())
    behind = []
    for run in store.runs():
        size = run.log.size()
        if size and held.get(run.run_id, 0) != size and not run.at_work():
            behind.append(run.run_id)
    yield from _named("run is not in it as it is on disk", "runs are not in it as they are on disk", iter(behind))
    yield from _named("run is no longer on disk", "runs are no longer on disk", iter(_gone(con, store)))


def _gone(con: Any, store: RunStore) -> list[str]:
    there = set(store.names())
    held = con.execute("SELECT run_id FROM runs WHERE source = 'run_store' ORDER BY run_id").fetchall()
    return [run_id for (run_id,) in held if run_id not in there]


def _damaged(con: Any, store: RunStore) -> Iterator[str]:
    there = set(store.names())
    for (run_id,) in con.execute("SELECT run_id FROM runs WHERE source = 'run_store'").fetchall():
        if run_id in there:
            try:
                RunFolder(store.path / run_id).header()
            except StorageError:
                yield run_id


def _not_kept(con: Any, records: Records) -> list[str]:
    kept = {path.stem for path in records.imported_files()}
    query = "SELECT run_id, source_digest FROM runs WHERE source = 'file' ORDER BY run_id"
    return [run_id for run_id, digest in con.execute(query).fetchall() if digest not in kept]


def _lines_differ(con: Any, store: RunStore) -> Iterator[str]:
    held = dict(con.execute("SELECT run_id, attempt_count FROM runs WHERE source = 'run_store'").fetchall())
    for run in store.runs():
        try:
            run.header()
            state = run.state()
        except StorageError as error:
            yield error.message
            continue
        if state.unreadable_lines:
            yield f"{state.unreadable_lines} lines of {run.log.path} cannot be read."
        if run.run_id in held and held[run.run_id] != len(state.attempts) and not run.at_work():
            yield f"{run.run_id}: {len(state.attempts)} attempts on disk, {held[run.run_id]} in the history."


def _records_differ(con: Any, root: Path) -> Iterator[str]:
    records = Records(root)
    for kind in RECORD_TYPES:
        there = len(records.read(kind))
        (held,) = con.execute(f"SELECT count(*) FROM {kind.stem}").fetchone()
        if held != there:
            yield f"{kind.stem}: {there} in {records.file_of(kind)}, {held} in the history."
    yield from _named(
        "run came from a file that was not kept: a rebuild would lose it",
        "runs came from files that were not kept: a rebuild would lose them",
        iter(_not_kept(con, records)),
    )


def _referenced(con: Any) -> Iterator[tuple[str, str]]:
    cursor = con.execute(
        "SELECT run_id, evidence FROM attempts SEMI JOIN (SELECT run_id FROM runs WHERE source = 'run_store') "
        "USING (run_id) WHERE coalesce(evidence, '') <> ''"
    )
    while rows := cursor.fetchmany(10_000):
        yield from rows


def _named(one: str, many: str, found: Iterator[str]) -> Iterator[str]:
    names = list(found)
    if names:
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        listed = ", ".join(names[:_NAMED])
        yield f"{len(names):,} {one if len(names) == 1 else many}: {listed}{more}."


# -- making it anew


class _Counted(RunStore):
    """A store that tells how many of its runs have been looked at."""

    def __init__(self, root: Path, seen: Callable[[int, int], None]) -> None:
        super().__init__(root)
        self._seen = seen

    def runs(self) -> Iterator[RunFolder]:
        ids = self.run_ids()
        for number, run_id in enumerate(ids, 1):
            yield RunFolder(self.path / run_id)
            self._seen(number, len(ids))


def lost_by_rebuilding(root: Path) -> list[str]:
    """Runs that only the history still knows. None when it cannot be read: then there is nothing to keep."""
    store = RunStore(root)
    try:
        con = history.connect(history.history_path(root))
    except StorageError:
        return []
    with closing(con):
        return sorted({*_gone(con, store), *_damaged(con, store), *_not_kept(con, Records(root))})


def rebuild(root: Path, seen: Callable[[int, int], None]) -> int:
    """Makes the history anew from runs, imported files and records, beside the old one, and puts it in its place.

    `seen` hears how many runs of how many are done. Gives how many runs it holds. Raises `StorageError`.
    """
    return history.rebuild(history.history_path(root), _Counted(root, seen))


# -- pruning


@dataclass(frozen=True, slots=True)
class KeptRun:
    """A run whose evidence could go by its age or size, and stays."""

    run_id: str
    why: str


@dataclass(frozen=True, slots=True)
class PrunePlan:
    going: tuple[StoredSize, ...]
    kept: tuple[KeptRun, ...]
    total_bytes: int
    """Of all evidence, before."""

    @property
    def freed_bytes(self) -> int:
        return sum(size.bytes for size in self.going)


def plan_pruning(
    root: Path,
    now: datetime,
    *,
    older_than: timedelta | None = None,
    keep_bytes: int | None = None,
    labelled: bool = False,
) -> PrunePlan:
    """Which runs lose their evidence: those last added to longer ago, or the oldest until no more than so much is left.

    Changes nothing. `labelled`: also runs that people have labelled, whose evidence the labels speak of.
    """
    store = RunStore(root)
    found = list(pruning.sizes(store))
    total = left = sum(size.bytes for size in found)
    people = {label.run_id for label in Records(root).read(Label)}
    going: list[StoredSize] = []
    kept: list[KeptRun] = []
    for size in found:
        if keep_bytes is not None and left <= keep_bytes:
            break
        why = _why_kept(store, size.run_id, now, older_than, set() if labelled else people)
        if why is None:
            going.append(size)
            left -= size.bytes
        elif why:
            kept.append(KeptRun(size.run_id, why))
    return PrunePlan(tuple(going), tuple(kept), total)


def _why_kept(
    store: RunStore, run_id: str, now: datetime, older_than: timedelta | None, people: set[str]
) -> str | None:
    """`None`: it goes. Empty: it is not old enough."""
    try:
        run = store.open(run_id)
        use = pruning.use_of(run)
    except CaliperError as error:  # one run that cannot be read keeps no other
        return f"it cannot be read ({error.message})"
    if older_than is not None and (use.last is None or use.last > now - older_than):
        return ""
    if run.at_work():
        return "somebody is at work on it"
    if use.ungraded:
        return f"{use.ungraded} of its attempts are not judged yet"
    if run_id in people:
        return "people have labelled it (--labelled takes it too)"
    return None


def prune(
    root: Path, runs: Sequence[StoredSize], now: datetime, seen: Callable[[StoredSize], None] | None = None
) -> tuple[int, list[KeptRun]]:
    """Removes the evidence of these runs. Gives the bytes freed, and the runs that stayed after all."""
    store, freed, kept = RunStore(root), 0, []
    for size in runs:
        gone = pruning.prune(store.open(size.run_id), now)
        if gone is None:
            kept.append(KeptRun(size.run_id, "somebody is at work on it"))
            continue
        freed += gone.bytes
        if seen is not None:
            seen(gone)
    return freed, kept
