"""A login that expires while a run is under way: what is paid for is kept, and the run can be taken up again."""

import threading
from dataclasses import replace
from pathlib import Path

from caliper_pipeline.domain.errors import LoginRequired
from caliper_pipeline.evaluation.resume import resume
from caliper_pipeline.execution.backends.base import Invocation, JudgeInvocation
from caliper_pipeline.execution.backends.scripted import Scripted
from caliper_pipeline.execution.command import Command

from .conftest import Bench

TASK = "  - name: T\n    prompt: Say hi.\n    expect: It says hi.\n"
SLOW = 'tasks:\n  "*": [{steps: [{wait: 0.5}, {say: Hi.}]}]\n'


class Expiring(Scripted):
    """The login is good for one call of an agent, and for so many of the judge."""

    def __init__(self, *, judgements: int = 9) -> None:
        super().__init__()
        self._agents = threading.Semaphore(1)
        self._judgements = threading.Semaphore(judgements)

    def command(self, invocation: Invocation) -> Command:
        if not self._agents.acquire(blocking=False):
            raise LoginRequired("The login has expired.")
        return super().command(invocation)

    def judge_command(self, invocation: JudgeInvocation) -> Command:
        if not self._judgements.acquire(blocking=False):
            raise LoginRequired("The judge's login has expired.")
        return super().judge_command(invocation)


def test_an_agent_under_way_is_finished_and_judged_when_the_next_cannot_log_in(bench: Bench) -> None:
    evaluation = replace(bench.prepare(bench.write(TASK, SLOW), k=3), backend=Expiring())
    summary = evaluation.execute()
    assert isinstance(summary.fatal, LoginRequired)
    assert (summary.recorded, summary.ungraded, summary.interrupted) == (1, 0, False)
    again = resume(bench.project, run_id=summary.header.run_id).execute()
    assert (again.fatal, again.recorded, again.ungraded) == (None, 3, 0)


def test_an_attempt_whose_judge_cannot_log_in_waits_for_its_verdict(bench: Bench) -> None:
    judge = Expiring(judgements=0)
    summary = replace(bench.prepare(bench.write(TASK, SLOW), k=1), judge_backend=judge).execute()
    assert isinstance(summary.fatal, LoginRequired)
    assert (summary.recorded, summary.ungraded) == (1, 1)
    again = resume(bench.project, run_id=summary.header.run_id).execute()
    assert (again.fatal, again.recorded, again.ungraded) == (None, 1, 0)


def test_the_command_that_logs_in_comes_with_the_error(tmp_path: Path) -> None:
    from caliper_pipeline.evaluation.logins import as_error
    from caliper_pipeline.execution.backends.base import Operator
    from caliper_pipeline.execution.backends.claude_code import ClaudeCode

    elsewhere = tmp_path / "bin"
    elsewhere.mkdir()
    (elsewhere / "claude").write_text("#!/bin/sh\n", encoding="utf-8")
    (elsewhere / "claude").chmod(0o755)
    person = Operator(environment={"PATH": str(tmp_path)}, allowed={}, agent_allowed={}, home=tmp_path)
    error = as_error(LoginRequired("Not logged in."), ClaudeCode(), person, (str(elsewhere),))
    assert isinstance(error, LoginRequired)
    assert error.login_command == (str(elsewhere / "claude"), "auth", "login")
