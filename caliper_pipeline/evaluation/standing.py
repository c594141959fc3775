"""The runs of a series, and which of them a reader means by "the latest".

Latest is by start, which run ids sort by. A run that covers only some tasks (pieces of a backfill, a run cut short)
moves those tasks' scores and leaves the headline of the series to the latest run that covers every task.
"""

from collections.abc import Iterator
from datetime import UTC, datetime

from caliper_pipeline.domain.records import Line, RunHeader
from caliper_pipeline.domain.results import Results, assemble
from caliper_pipeline.storage.runs import RunFolder, RunState, RunStore

Chosen = frozenset[tuple[str, int]]
"""(task name, attempt) pairs."""


def covers_all(header: RunHeader, state: RunState) -> bool:
    """Whether the run has a verdict on every task."""
    return {task_id for task_id, _ in state.verdicts} >= {task.task_id for task in header.tasks}


def runs_of(store: RunStore, series_key: str) -> Iterator[RunFolder]:
    """The runs of a series, the latest first."""
    for folder in reversed(list(store.runs())):
        if folder.header().series_key == series_key:
            yield folder


def latest_run(store: RunStore, series_key: str, *, task_name: str | None = None) -> RunFolder | None:
    """The latest run with a verdict on that task; when no task is named, the latest that covers every task."""
    for folder in runs_of(store, series_key):
        state = folder.state()
        if task_name is None:
            if covers_all(folder.header(), state):
                return folder
        elif any(verdict.task_name == task_name for verdict in state.verdicts.values()):
            return folder
    return None


def runs_holding(store: RunStore, series_key: str, wanted: Chosen) -> dict[str, Chosen]:
    """For each wanted attempt the latest run that has it: run id → its share. What no run has is left out."""
    found: dict[str, Chosen] = {}
    missing = set(wanted)
    for folder in runs_of(store, series_key):
        if not missing:
            break
        here = {(record.task_name, record.attempt) for record in folder.state().attempts.values()} & missing
        if here:
            found[folder.run_id] = frozenset(here)
            missing -= here
    return found


def summarize(header: RunHeader, state: RunState) -> Results:
    """The run's results as they are now, without transcripts and with answers cut short."""
    lines: list[Line] = [
        *state.resumes,
        *state.attempts.values(),
        *state.verdicts.values(),
        *state.hook_failures,
        *state.aborted.values(),
    ]
    if state.end is not None:
        lines.append(state.end)
    return assemble(header, lines, ended_at=state.end.ended_at if state.end is not None else datetime.now(UTC))


def enough_usable(results: Results) -> tuple[bool, str]:
    """Whether at least half of each task's attempts could be used, and in words what is so."""
    short = [
        f"{task.task_name}: {task.scored.usable} of {len(task.attempts)}"
        for task in results.task_results
        if not task.scored.trigger_only and 2 * task.scored.usable < len(task.attempts)
    ]
    if not short:
        return True, "At least half of each task's attempts could be used."
    return False, f"Too few usable attempts: {'; '.join(short[:20])}"
