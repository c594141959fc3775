"""Small whole values for the domain's tests: only what a test cares about has to be said."""

from datetime import UTC, datetime, timedelta
from typing import Any

from caliper_pipeline.domain.records import (
    AttemptRecord,
    Outcome,
    RunHeader,
    SkillHeader,
    TaskHeader,
    VerdictRecord,
)

START = datetime(2026, 11, 20, 10, tzinfo=UTC)


def task_header(number: int = 1, **given: Any) -> TaskHeader:
    plain = {"task_id": f"task-{number:03d}", "name": f"Task {number}", "key": f"demo/claude-code/task-{number}"}
    return TaskHeader(**{**plain, "prompt": "Go.", "assert_script": "assert True", **given})


def skill_header(name: str = "tide-table", **given: Any) -> SkillHeader:
    plain = {
        "name": name,
        "path": f"/home/me/{name}/SKILL.md",
        "source_kind": "path",
        "digest": "0",
        "installed": True,
    }
    return SkillHeader(**{**plain, "files": {"SKILL.md": "sha256:" + "0" * 64}, **given})


def run_header(*tasks: TaskHeader, **given: Any) -> RunHeader:
    plain: dict[str, Any] = {
        "run_id": "20261120T100000000Z-ab12cd",
        "spec": "demo",
        "spec_path": "/home/me/demo.eval.yaml",
        "spec_text": "",
        "spec_digest": "0",
        "backend": "claude-code",
        "model": None,
        "ablated": (),
        "isolated": True,
        "series_key": "demo/claude-code+isolated",
        "k": 3,
        "workers": 4,
        "timeout_seconds": 120.0,
        "fail_fast": None,
        "started_at": START,
        "tasks": tasks or (task_header(),),
        "skills": (skill_header(),),
    }
    return RunHeader(**{**plain, **given})


def attempt_record(attempt: int = 1, task: int = 1, **given: Any) -> AttemptRecord:
    plain: dict[str, Any] = {
        "task_id": f"task-{task:03d}",
        "task_name": f"Task {task}",
        "attempt": attempt,
        "started_at": START,
        "ended_at": START + timedelta(seconds=2),
        "agent_seconds": 1.5,
        "exit_code": 0,
    }
    return AttemptRecord(**{**plain, **given})


def verdict_record(outcome: Outcome = Outcome.PASS, attempt: int = 1, task: int = 1, **given: Any) -> VerdictRecord:
    plain: dict[str, Any] = {"task_id": f"task-{task:03d}", "task_name": f"Task {task}", "attempt": attempt}
    return VerdictRecord(**{**plain, "outcome": outcome, **given})
