"""Executing the `evaluate` job for runs that happened, or happen, elsewhere; and clearing up after dead processes."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from dagster import DagsterInstance, DagsterRunStatus, Definitions, RunsFilter, in_process_executor
from dagster._core.storage.runs import SqlRunStorage

from caliper_pipeline.defs.eval_runs import eval_runs, recording_config
from caliper_pipeline.defs.home import dagster_home, open_instance
from caliper_pipeline.defs.jobs import EVALUATE, evaluate_job
from caliper_pipeline.defs.owner import owner_is_gone
from caliper_pipeline.defs.recording import Part, Recording, dagster_runs_of, parts_of, tags_of
from caliper_pipeline.defs.resources import default_resources
from caliper_pipeline.defs.telling import telling
from caliper_pipeline.evaluation.project import Project, find_project
from caliper_pipeline.evaluation.recorder import start_recorder
from caliper_pipeline.storage.files import json_bytes, storage_errors, write_whole
from caliper_pipeline.storage.runs import RunFolder

QUIET = {"console": {"config": {"log_level": "ERROR"}}}
"""Printing every event would cost as much again as storing it."""
UNFINISHED = [DagsterRunStatus.STARTING, DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING]


def record_run(root: Path, run_id: str, *, part: int | None = None, beside: bool = False) -> int:
    """Follow one run to its end. 0: Dagster has all of it.

    `part`: only that part, for a recorder that has the others. `beside`: all but the first, which a step tells.
    """
    project = find_project(root)
    folder = project.store.open(run_id)
    with open_instance(dagster_home(root)) as instance:
        if part is not None:
            return 0 if _record(instance, project, folder, parts_of(folder.header())[part - 1 : part]) else 1
        if beside:
            return 0 if _record(instance, project, folder, parts_of(folder.header())[1:]) else 1
        with telling(folder, alone=True):
            parts = parts_of(folder.header())
            done = _record(
                instance, project, folder, parts if folder.busy() else _lacking(instance, project, folder, parts)
            )
            if done:
                _remember(instance, folder)
        return 0 if done else 1


def record_all(root: Path, *, say: Callable[[str], None]) -> int:
    """Record whatever Dagster lacks of the runs on disk. 0: everything that could be recorded is."""
    project = find_project(root)
    recorded, going, failed, known = 0, 0, 0, 0
    with open_instance(dagster_home(root)) as instance:
        reaped = reap(instance)
        for folder in project.store.runs():
            if _remembered(instance, folder):
                known += 1
                continue
            if folder.busy():
                going += 1
                continue
            with telling(folder, alone=True, wait=False) as mine:
                lacking = _lacking(instance, project, folder, parts_of(folder.header())) if mine else []
                if not mine:
                    going += 1
                elif not _record(instance, project, folder, lacking):
                    failed += 1
                else:
                    recorded += bool(lacking)
                    known += not lacking
                    _remember(instance, folder)
    say(f"Recorded {_runs(recorded)}." if recorded else "Nothing to record.")
    if known:
        say(f"Dagster had {_runs(known)} already.")
    if going:
        say(f"Left out {_runs(going)} still going on.")
    if reaped:
        say(f"Marked {_runs(reaped)} whose process had died.")
    if failed:
        say(f"Could not record {_runs(failed)}.")
    return 1 if failed else 0


def reap(instance: DagsterInstance) -> int:
    """End the Dagster runs that are shown as going on although their process is dead. Gives how many."""
    dead = [run for run in instance.get_runs(RunsFilter(statuses=UNFINISHED)) if owner_is_gone(run.tags)]
    for run in dead:
        if run.status is DagsterRunStatus.CANCELING:
            instance.report_run_canceled(run, message="Its process ended.")
        else:
            instance.report_run_failed(run, message="Its process died. `caliper sync` recorded what it left behind.")
    return len(dead)


def _lacking(instance: DagsterInstance, project: Project, folder: RunFolder, parts: list[Part]) -> list[Part]:
    """Those of which Dagster lacks something."""

    def lacks(part: Part) -> bool:
        if not dagster_runs_of(instance, folder.run_id, part):
            return True
        recording = Recording(instance, project, folder, part)
        return any(True for step in (recording.rest, recording.closing) for _ in step())

    return [part for part in parts if lacks(part)]


def _record(instance: DagsterInstance, project: Project, folder: RunFolder, parts: list[Part]) -> bool:
    """Execute the job once a part. Whether Dagster has all of them then, however its runs ended.

    The parts of a run that still goes on are followed all at once, the first here and each other in a process of its
    own: two Dagster runs in one process can lock each other out in Python's logging.
    """
    apart = parts[1:] if folder.busy() else []
    here = [part for part in parts if part not in apart]
    others = [start_recorder(project, folder.run_id, "--part", str(part.number)) for part in apart]
    for part in here:
        # On a thread, because on the main thread an interrupted run would be shown as failed and not as canceled.
        thread = threading.Thread(target=_execute, args=(instance, project, folder, part), name="recording")
        thread.start()
        thread.join()
    told = [other.wait() == 0 for other in others]
    return all(told) and not _lacking(instance, project, folder, here)


def _execute(instance: DagsterInstance, project: Project, folder: RunFolder, part: Part) -> None:
    header = folder.header()
    config = recording_config(header, project.root, part.number if part.count > 1 else None)
    defs = Definitions(
        assets=[eval_runs], jobs=[evaluate_job], resources=default_resources(), executor=in_process_executor
    )
    defs.resolve_job_def(EVALUATE).execute_in_process(
        instance=instance,
        run_config={"ops": {"eval_runs": {"config": config}}, "loggers": QUIET},
        tags=tags_of(header, part),
        raise_on_error=False,
    )


def _remember(instance: DagsterInstance, folder: RunFolder) -> None:
    """Note that this instance has the run up to here, so that it need not be asked again."""
    path = folder.path / "recorded.json"
    with storage_errors("write", path):
        write_whole(path, json_bytes(_mark(instance, folder)))


def _remembered(instance: DagsterInstance, folder: RunFolder) -> bool:
    try:
        noted = json.loads((folder.path / "recorded.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(noted == _mark(instance, folder))


def _mark(instance: DagsterInstance, folder: RunFolder) -> dict[str, object]:
    storage = instance.run_storage
    known = storage.get_run_storage_id() if isinstance(storage, SqlRunStorage) else str(uuid4())
    return {"storage": known, "bytes": folder.log.size()}


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"
