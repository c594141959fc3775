"""Whole attempts with a stand-in for the hermes command, through the real order of steps."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.records import Line, TaskHeader
from caliper_pipeline.execution.attempt import Attempts, AttemptSettings, LiveAttempt
from caliper_pipeline.execution.backends.hermes import Hermes
from caliper_pipeline.execution.command import Command, ProcessResult, StopToken
from caliper_pipeline.execution.grading import Grader, GradingSettings
from caliper_pipeline.execution.process import ProcessLauncher
from caliper_pipeline.execution.throttle import Backoff, Gate

from .stand_in import operator

_COMMAND = """\
#!/bin/sh
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
case "$1" in
sessions) [ -e "$HERMES_HOME/state.db" ] && cat "$here/session"; exit 0 ;;
esac
n=$(( $(cat "$here/count" 2>/dev/null || echo 0) + 1 )); echo "$n" > "$here/count"
[ -e "$HERMES_HOME/state.db" ] && echo "the last call's session is still there"
touch "$HERMES_HOME/state.db"
cp "$here/report-$n" "$3"
cat "$here/said-$n"
"""


class Kept:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.evidence: dict[str, Any] = {}

    def save_evidence(self, task: TaskHeader, attempt: int, **evidence: Any) -> str:
        self.evidence = evidence
        return "evidence"

    def save_judgement(self, evidence: str, generation: int, asked: str, answered: tuple[str, ...]) -> None:
        raise AssertionError("nothing is judged here")

    def append(self, line: Line) -> None:
        self.lines.append(line)


class StopsAfterTheCall:
    """A launcher in whose first command the run is stopped, just when the command ends."""

    def __init__(self, inner: ProcessLauncher, stop: StopToken) -> None:
        self.inner = inner
        self.stop = stop

    def run(self, command: Command, stop: StopToken) -> ProcessResult:
        result = self.inner.run(command, stop)
        self.stop.set()
        return result

    def end_group(self, group: str) -> None:
        self.inner.end_group(group)

    def close(self) -> None:
        """The inner one is closed by who made it."""


@pytest.fixture
def stop() -> Iterator[StopToken]:
    token = StopToken()
    yield token
    token.close()


@pytest.fixture
def launcher() -> Iterator[ProcessLauncher]:
    with ProcessLauncher() as made:
        yield made


def answers(folder: Path, *said: tuple[str, Mapping[str, Any]]) -> Path:
    """A folder with a `hermes` that says this, call after call."""
    folder.mkdir()
    (folder / "hermes").write_text(_COMMAND, encoding="utf-8")
    (folder / "hermes").chmod(0o755)
    message = {"role": "assistant", "content": "High water.", "tool_calls": None}
    session = {"id": "s", "model": "m", "input_tokens": 3, "output_tokens": 2, "messages": [message]}
    (folder / "session").write_text(json.dumps(session) + "\n", encoding="utf-8")
    for number, (text, report) in enumerate(said, 1):
        (folder / f"said-{number}").write_text(text, encoding="utf-8")
        (folder / f"report-{number}").write_text(json.dumps(report), encoding="utf-8")
    return folder


def run(tmp_path: Path, folder: Path, launcher: Any, stop: StopToken) -> tuple[LiveAttempt, Kept]:
    sink = Kept()
    (tmp_path / "operator").mkdir()
    settings = AttemptSettings(
        engine=Engine("hermes"),
        backend=Hermes(),
        operator=operator(tmp_path / "operator", first_on_path=folder),
        timeout_seconds=30.0,
        setup_seconds=5.0,
        cleanup_seconds=5.0,
        stream_bytes=1_000_000,
        snapshot_bytes=1_000_000,
        retries=1,
        skills={},
        isolated=True,
        extra_path=(),
        ablated=(),
        spec_path=tmp_path / "x.eval.yaml",
    )
    grading = GradingSettings(
        backend="hermes",
        operator=settings.operator,
        spec_path=settings.spec_path,
        installed_skills=(),
        ablated=(),
        skills_ablated=False,
        forbidden_files=(),
        judge_backend=None,
        judge_engine=None,
        assert_seconds=5.0,
        judge_seconds=5.0,
        retries=0,
    )
    gate = Gate(1, Backoff(first_seconds=0.001))
    attempts = Attempts(settings, Grader(grading), launcher, sink, stop, gate)
    try:
        live = attempts.run_agent(TaskHeader("t", "t", "t", "When is high water?"), 1)
        live.folder.remove()
        return live, sink
    finally:
        attempts.close()


DONE = {"failed": False, "completed": True, "session_id": "s", "model": "m"}


def test_the_session_is_exported_behind_the_answer(tmp_path: Path, launcher: ProcessLauncher, stop: StopToken) -> None:
    live, kept = run(tmp_path, answers(tmp_path / "bin", ("High water.\n", DONE)), launcher, stop)
    assert (live.record.error, live.record.output, live.record.model, live.record.turns) == (
        None,
        "High water.",
        "m",
        1,
    )
    assert kept.evidence["stdout"].startswith(b'High water.\n{"id": "s"')


def test_an_attempt_that_ended_as_the_run_was_stopped_is_kept(
    tmp_path: Path, launcher: ProcessLauncher, stop: StopToken
) -> None:
    folder = answers(tmp_path / "bin", ("High water.\n", DONE))
    live, _ = run(tmp_path, folder, StopsAfterTheCall(launcher, stop), stop)
    assert (live.record.error, live.record.output) == (None, "High water.")


def test_a_throttled_call_is_made_again_and_told_apart_from_the_first(
    tmp_path: Path, launcher: ProcessLauncher, stop: StopToken
) -> None:
    throttled = ("API call failed after 3 retries: HTTP 429: Slow down.\n", {"failed": True, "completed": False})
    live, kept = run(tmp_path, answers(tmp_path / "bin", throttled, ("High water.\n", DONE)), launcher, stop)
    assert (live.record.error, live.record.retries, live.record.output) == (None, 1, "High water.")
    assert b"still there" not in kept.evidence["stdout"]
