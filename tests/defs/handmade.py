"""Runs as a command leaves them, without having run anything."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.records import (
    AttemptRecord,
    EndRecord,
    Line,
    Outcome,
    RunHeader,
    SkillHeader,
    TaskHeader,
    VerdictRecord,
)
from caliper_pipeline.domain.series import Series
from caliper_pipeline.domain.transcript import Usage
from caliper_pipeline.storage.runs import RunFolder, RunStore, new_run_id

START = datetime(2026, 11, 20, 10, tzinfo=UTC)
PASSED = Outcome.PASS


def make_run(
    root: Path,
    *,
    spec: str = "inbox-triage",
    tasks: Sequence[str] = ("One", "Two"),
    k: int = 2,
    started: datetime = START,
    ablated: tuple[str, ...] = (),
    spec_text: str = "tasks: []\n",
) -> RunFolder:
    """An open run without any lines."""
    series = Series(spec, Engine("scripted"), ablated, isolated=True)
    header = RunHeader(
        run_id=new_run_id(started),
        spec=spec,
        spec_path=str(root / f"{spec}.eval.yaml"),
        spec_text=spec_text,
        spec_digest=f"digest of {spec_text}",
        backend="scripted",
        model=None,
        ablated=ablated,
        isolated=True,
        series_key=series.key,
        k=k,
        workers=4,
        timeout_seconds=120.0,
        fail_fast=None,
        started_at=started,
        tasks=tuple(
            TaskHeader(f"task-{n:03d}", name, series.task_key(name), "Go.", assert_script="assert True")
            for n, name in enumerate(tasks, 1)
        ),
        skills=(SkillHeader("triage", "SKILL.md", "path", "0" * 64, True, files={"SKILL.md": "sha256:" + "0" * 64}),),
        simulated=True,
    )
    return RunStore(root).create(header)


def attempt(folder: RunFolder, task: int, number: int, *, output: str = "Done.") -> AttemptRecord:
    header = folder.header()
    begun = header.started_at + timedelta(seconds=number)
    return AttemptRecord(
        task_id=header.tasks[task].task_id,
        task_name=header.tasks[task].name,
        attempt=number,
        started_at=begun,
        ended_at=begun + timedelta(seconds=2),
        agent_seconds=1.5,
        output=output,
        usage=Usage(10, 5),
        evidence=f"evidence/t{task}/{number:03d}",
    )


def verdict(
    folder: RunFolder, task: int, number: int, outcome: Outcome = PASSED, *, generation: int = 1
) -> VerdictRecord:
    header = folder.header()
    return VerdictRecord(
        task_id=header.tasks[task].task_id,
        task_name=header.tasks[task].name,
        attempt=number,
        outcome=outcome,
        generation=generation,
        assert_passed=outcome is PASSED,
    )


def end(folder: RunFolder, status: str = "completed", reason: str | None = None) -> EndRecord:
    return EndRecord(folder.header().started_at + timedelta(minutes=1), status, reason)


def all_lines(folder: RunFolder, *, status: str = "completed") -> Iterator[Line]:
    """Every attempt, each with its verdict, round robin, and the end."""
    header = folder.header()
    for number in range(1, header.k + 1):
        for task in range(len(header.tasks)):
            yield attempt(folder, task, number)
            yield verdict(folder, task, number)
    yield end(folder, status, "the cap is reached" if status == "stopped" else None)


def write(folder: RunFolder, *lines: Line) -> None:
    for line in lines:
        folder.append(line)
    folder.close()


def finished_run(root: Path, **options: object) -> RunFolder:
    folder = make_run(root, **options)  # type: ignore[arg-type]
    write(folder, *all_lines(folder))
    return folder
