"""Values to store, and places to store them in."""

import hashlib
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

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
from caliper_pipeline.domain.transcript import Usage
from caliper_pipeline.storage.runs import RunFolder, RunStore, new_run_id

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def task_header(number: int, **changes: Any) -> TaskHeader:
    name = changes.pop("name", f"Task {number}")
    task = TaskHeader(
        task_id=f"task-{number:03d}",
        name=name,
        key=f"demo/scripted/Task-{number}",
        prompt=f"Do thing {number}.",
        assert_script="assert True",
        digests={"prompt": sha256(f"Do thing {number}."), "assert": sha256("assert True")},
    )
    return replace(task, **changes)


def run_header(*, tasks: int | tuple[TaskHeader, ...] = 2, **changes: Any) -> RunHeader:
    started = changes.pop("started_at", NOON)
    header = RunHeader(
        run_id=new_run_id(started),
        spec="demo",
        spec_path="/specs/demo.eval.yaml",
        spec_text="tasks: []\n",
        spec_digest=sha256("tasks: []\n"),
        backend="scripted",
        model=None,
        ablated=(),
        isolated=True,
        series_key="demo/scripted+isolated",
        k=2,
        workers=4,
        timeout_seconds=120.0,
        fail_fast=None,
        started_at=started,
        tasks=tuple(task_header(n) for n in range(1, tasks + 1)) if isinstance(tasks, int) else tasks,
        skills=(
            SkillHeader("tides", "/skills/tides/SKILL.md", "path", sha256("x"), True, files={"SKILL.md": "sha256:00"}),
        ),
        simulated=True,
    )
    return replace(header, **changes)


def attempt(task: int = 1, number: int = 1, **changes: Any) -> AttemptRecord:
    started = NOON + timedelta(seconds=10 * number)
    record = AttemptRecord(
        task_id=f"task-{task:03d}",
        task_name=f"Task {task}",
        attempt=number,
        started_at=started,
        ended_at=started + timedelta(seconds=2),
        agent_seconds=1.5,
        exit_code=0,
        output="done",
        usage=Usage(100, 20, 50, None),
        model="demo-model",
        turns=3,
    )
    return replace(record, **changes)


def verdict(task: int = 1, number: int = 1, outcome: Outcome = Outcome.PASS, **changes: Any) -> VerdictRecord:
    record = VerdictRecord(
        task_id=f"task-{task:03d}",
        task_name=f"Task {task}",
        attempt=number,
        outcome=outcome,
        graded_at=NOON + timedelta(seconds=10 * number + 3),
        activated=("tides",),
        assert_passed=outcome is Outcome.PASS,
    )
    return replace(record, **changes)


def whole_run(
    store: RunStore, outcomes: Sequence[Sequence[Outcome]] = ((Outcome.PASS,) * 2,) * 2, **changes: Any
) -> RunFolder:
    """A finished run; `outcomes` by task, then by attempt."""
    header = run_header(**{"tasks": len(outcomes), **changes})
    run = store.create(header)
    lines: list[Line] = []
    for task, row in enumerate(outcomes, 1):
        for number, outcome in enumerate(row, 1):
            lines += [attempt(task, number), verdict(task, number, outcome)]
    lines.append(EndRecord(header.started_at + timedelta(minutes=5), "completed"))
    for line in lines:
        run.append(line)
    return run


class Given:
    """The makers above, for tests to call."""

    NOON = NOON
    sha256 = staticmethod(sha256)
    task_header = staticmethod(task_header)
    run_header = staticmethod(run_header)
    attempt = staticmethod(attempt)
    verdict = staticmethod(verdict)
    whole_run = staticmethod(whole_run)


@pytest.fixture(scope="session")
def given() -> Given:
    return Given()


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path)


@pytest.fixture
def run(store: RunStore) -> RunFolder:
    return store.create(run_header())


@pytest.fixture
def python() -> Callable[..., "subprocess.Popen[bytes]"]:
    """Starts another process that runs the code with the arguments; what it prints can be read."""

    def start(code: str, *arguments: object, **options: Any) -> "subprocess.Popen[bytes]":
        argv = [sys.executable, "-c", code, *map(str, arguments)]
        settings: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, **options}
        return subprocess.Popen(argv, **settings)

    return start
