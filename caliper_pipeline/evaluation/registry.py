"""From a partition key back to what it stands for: a slug cannot be undone, so each series is looked up by its key.

A series is registered before it first runs (`.caliper/series/`, one file each, written whole); one that ran without
being registered is found in its runs. Runs that several processes share for one purpose are agreed on here too.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.errors import BadInput
from caliper_pipeline.domain.plain import from_plain, to_plain
from caliper_pipeline.domain.records import RunHeader
from caliper_pipeline.domain.series import Series, folder_name
from caliper_pipeline.evaluation.project import Project
from caliper_pipeline.evaluation.standing import Chosen, runs_of
from caliper_pipeline.storage.files import exclusive_lock, json_bytes, make_folders, storage_errors, write_whole
from caliper_pipeline.storage.runs import new_run_id

SERIES_FOLDER = "series"
SHARED_FOLDER = "shared-runs"


@dataclass(frozen=True, slots=True)
class RegisteredSeries:
    """All that is needed to run more attempts of a series."""

    key: str
    spec: str
    spec_path: str
    """Absolute."""
    backend: str
    model: str | None
    ablated: tuple[str, ...]
    isolated: bool
    tasks: dict[str, str]
    """Partition key → the task's name."""
    judge_backend: str | None = None
    """`None`: as caliper.yaml says, else the engine itself."""
    judge_model: str | None = None

    @property
    def engine(self) -> Engine:
        return Engine(self.backend, self.model)

    @property
    def judge(self) -> Engine | None:
        return None if self.judge_backend is None else Engine(self.judge_backend, self.judge_model)

    @property
    def ablate(self) -> tuple[str, ...]:
        """The ablated names as a request names them."""
        return tuple(name if name.startswith("mcp:") else f"skill:{name}" for name in self.ablated)


def series_of(header: RunHeader) -> RegisteredSeries:
    return RegisteredSeries(
        key=header.series_key,
        spec=header.spec,
        spec_path=header.spec_path,
        backend=header.backend,
        model=header.model,
        ablated=header.ablated,
        isolated=header.isolated,
        tasks={task.key: task.name for task in header.tasks},
        judge_backend=header.judge_backend,
        judge_model=header.judge_model,
    )


def new_series(series: Series, spec_path: Path, task_names: Iterable[str]) -> RegisteredSeries:
    return RegisteredSeries(
        key=series.key,
        spec=series.spec,
        spec_path=str(spec_path),
        backend=series.engine.backend,
        model=series.engine.model,
        ablated=series.ablated,
        isolated=series.isolated,
        tasks={series.task_key(name): name for name in task_names},
    )


def register(project: Project, entry: RegisteredSeries) -> None:
    """Make the series known; a later registration of the same key replaces the earlier."""
    path = _path(project, entry.key)
    data = json_bytes(to_plain(entry), indent=2)
    with storage_errors("write", path):
        make_folders(path.parent)
        if not path.exists() or path.read_bytes() != data:
            write_whole(path, data)


def look_up(project: Project, key: str) -> RegisteredSeries:
    """The series of that key. Raises `BadInput` when nobody registered or ran it."""
    path = _path(project, key)
    try:
        found = from_plain(RegisteredSeries, json.loads(path.read_text(encoding="utf-8")))
        if found.key == key:
            return found
    except (OSError, ValueError, TypeError):
        pass
    for folder in runs_of(project.store, key):
        return series_of(folder.header())
    raise BadInput(
        f"Nothing is known of the series {key} under {project.root}.",
        hint="Run its spec once (`caliper run`), or materialize `specs` to register it.",
    )


def by_series(project: Project, wanted: Iterable[tuple[str, int]]) -> list[tuple[RegisteredSeries, Chosen]]:
    """(task key, attempt) pairs, grouped into each series with its (task name, attempt) pairs.

    Raises `BadInput` for a key that stands for nothing.
    """
    entries: dict[str, RegisteredSeries] = {}
    chosen: dict[str, set[tuple[str, int]]] = {}
    for task_key, attempt in wanted:
        series_key = task_key.rpartition("/")[0]
        if series_key not in entries:
            entries[series_key] = look_up(project, series_key)
        name = entries[series_key].tasks.get(task_key)
        if name is None:
            raise BadInput(
                f"The task {task_key} is not in {entries[series_key].spec_path} any more.",
                hint="Choose partitions of its present tasks; materialize `specs` to register them.",
            )
        chosen.setdefault(series_key, set()).add((name, attempt))
    return [(entries[key], frozenset(pairs)) for key, pairs in chosen.items()]


@contextmanager
def shared_run(project: Project, purpose: str, series_key: str) -> Iterator[str]:
    """The run id that all processes with one purpose (the pieces of a backfill) share for a series.

    One at a time: prepare inside, so that the first makes the run and the others join it.
    """
    path = project.folder / SHARED_FOLDER / folder_name(purpose) / folder_name(series_key)
    with storage_errors("write", path):
        make_folders(path.parent)
    with exclusive_lock(path.with_suffix(".lock")):
        with storage_errors("write", path):
            if not path.exists():
                write_whole(path, new_run_id(datetime.now(UTC)).encode())
            run_id = path.read_text(encoding="utf-8")
        yield run_id


def _path(project: Project, key: str) -> Path:
    return project.folder / SERIES_FOLDER / f"{folder_name(key)}.json"
