"""The scripted agent and judge, played by their real process."""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.errors import (
    BadInput,
    CannotRun,
    LoginRequired,
    SpecError,
    SpendingCap,
    UnavailableModel,
)
from caliper_pipeline.domain.observations import observe_activation
from caliper_pipeline.domain.transcript import AgentReply, Turn, Usage
from caliper_pipeline.execution.backends.base import Backend, Invocation, JudgeAnswer, JudgeInvocation, Refusal
from caliper_pipeline.execution.backends.scripted import Scripted, find_script
from caliper_pipeline.execution.backends.scripted_stream import read_stream
from caliper_pipeline.execution.command import ProcessResult, StopToken
from caliper_pipeline.execution.environment import operator_from, temp_folder
from caliper_pipeline.execution.process import ProcessLauncher

OPERATOR = operator_from({"PATH": os.defpath, "HOME": "/nonexistent", "LANG": "C.UTF-8"}, [], [])
ENGINE = Engine("scripted")


@pytest.fixture(scope="module")
def launcher() -> Iterator[ProcessLauncher]:
    with ProcessLauncher(stop_grace_seconds=0.2, timeout_grace_seconds=0.2) as launcher:
        yield launcher


@pytest.fixture
def stop() -> Iterator[StopToken]:
    token = StopToken()
    yield token
    token.close()


class Stage:
    """A spec's folder with a script, and an attempt's home and workdir."""

    def __init__(self, tmp_path: Path, launcher: ProcessLauncher, stop: StopToken) -> None:
        self.backend: Backend = Scripted()
        self.spec = tmp_path / "specs" / "weather.eval.yaml"
        self.home, self.workdir = tmp_path / "home", tmp_path / "work"
        for folder in (self.spec.parent, self.workdir, temp_folder(self.home)):
            folder.mkdir(parents=True)
        self.launcher, self.stop = launcher, stop

    def write(self, text: str) -> "Stage":
        (self.spec.parent / "weather.script.yaml").write_text(text)
        return self

    def steps(self, *steps: object) -> "Stage":
        return self.write(json.dumps({"tasks": {"*": {"steps": steps}}}))

    @property
    def invocation(self) -> Invocation:
        return Invocation(
            engine=ENGINE,
            prompt="Go.",
            home=self.home,
            workdir=self.workdir,
            operator=OPERATOR,
            timeout_seconds=30,
            skills=("tide-table",),
            task_name="T",
            spec_path=self.spec,
        )

    def play(self, **changes: object) -> "Played":
        invocation = replace(self.invocation, **changes)  # type: ignore[arg-type]
        self.backend.prepare(invocation)
        result = self.launcher.run(self.backend.command(invocation), self.stop)
        reply = self.backend.read(result)
        return Played(result, reply, self.backend.refusal(result, reply))

    def judge(self, **changes: object) -> "tuple[ProcessResult, JudgeAnswer, Refusal | None]":
        invocation = JudgeInvocation(
            ENGINE, "Did it?", self.home, self.workdir, OPERATOR, 30, task_name="T", spec_path=self.spec
        )
        invocation = replace(invocation, **changes)  # type: ignore[arg-type]
        self.backend.prepare_judge(invocation)
        result = self.launcher.run(self.backend.judge_command(invocation), self.stop)
        answer = self.backend.read_judge(result)
        return result, answer, self.backend.judge_refusal(result, answer)


class Played:
    def __init__(self, result: ProcessResult, reply: AgentReply, refusal: Refusal | None) -> None:
        self.result, self.reply, self.refusal = result, reply, refusal


@pytest.fixture
def stage(tmp_path: Path, launcher: ProcessLauncher, stop: StopToken) -> Stage:
    return Stage(tmp_path, launcher, stop)


def test_an_attempt_is_played_step_by_step(stage: Stage) -> None:
    played = stage.write(
        """
        model: rehearsal
        tokens: {input: 100, output: 7, cache_read: 3}
        tasks:
          T:
            steps:
              - skill: tide-table
              - run: printf 'h\\303\\266he' > out.txt; cat out.txt; echo " err" >&2
              - tool: {name: Read, input: {file_path: a.md}, result: text}
              - say: Almost.
              - say: Done.
        """
    ).play()
    assert played.result.ok
    assert (stage.workdir / "out.txt").read_text(encoding="utf-8") == "höhe"
    assert played.reply.turns == (
        Turn("tool_use", "", "Skill", {"skill": "tide-table"}, "c1"),
        Turn("tool_result", "Launching skill: tide-table", call_id="c1", is_error=False),
        Turn(
            "tool_use",
            "",
            "Bash",
            {"command": "printf 'h\\303\\266he' > out.txt; cat out.txt; echo \" err\" >&2"},
            "c2",
        ),
        Turn("tool_result", "höhe err\n", call_id="c2", is_error=False),
        Turn("tool_use", "", "Read", {"file_path": "a.md"}, "c3"),
        Turn("tool_result", "text", call_id="c3", is_error=False),
        Turn("assistant", "Almost."),
        Turn("assistant", "Done."),
    )
    assert (played.reply.final_answer, played.reply.model, played.reply.finished) == ("Done.", "rehearsal", True)
    assert played.reply.usage == Usage(100, 7, 3, None)
    assert played.refusal is None


def test_only_an_installed_skill_can_be_activated(stage: Stage) -> None:
    stage.steps({"skill": "tide-table"}, {"skill": "elsewhere"}, {"say": "x"})
    names = ("elsewhere", "tide-table")
    assert observe_activation(stage.play().reply.turns, names, backend="scripted") == ("tide-table",)
    assert observe_activation(stage.play(skills=()).reply.turns, names, backend="scripted") == ()


def test_a_failing_command_is_told_and_the_agent_goes_on(stage: Stage) -> None:
    reply = stage.steps({"run": "echo no; exit 3"}, {"say": "Well."}).play().reply
    assert (reply.turns[1].content, reply.turns[1].is_error) == ("Exit code 3\nno\n", True)
    assert reply.final_answer == "Well."


def test_a_commands_background_process_does_not_hold_the_agent_up(stage: Stage) -> None:
    played = stage.steps({"run": "sleep 300 & echo on"}, {"say": "Done."}).play()
    assert (played.reply.final_answer, played.reply.turns[1].content) == ("Done.", "on\n")
    assert played.result.wall_seconds < 10


def test_a_command_sees_the_attempts_home_and_nothing_of_the_evaluation(stage: Stage) -> None:
    reply = stage.steps({"run": "env; pwd"}).play().reply
    lines = set(reply.turns[1].content.splitlines())
    assert {f"HOME={stage.home}", f"TMPDIR={temp_folder(stage.home)}", str(stage.workdir)} <= lines
    assert "caliper" not in reply.turns[1].content.lower()


def test_tokens_of_an_outcome_replace_the_scripts_and_add_up(stage: Stage) -> None:
    script = (
        "tokens: {input: 9}\ntasks: {T: {steps: [{tokens: {input: 1}}, {say: x}, {tokens: {input: 2, output: 5}}]}}"
    )
    assert stage.write(script).play().reply.usage == Usage(3, 5, None, None)


def test_a_line_that_is_no_event_is_counted(stage: Stage) -> None:
    reply = stage.steps({"raw": "not json"}, {"raw": "[1]"}, {"raw": '{"event": "new"}'}, {"say": "ok"}).play().reply
    assert (reply.unreadable_lines, reply.final_answer, reply.finished) == (3, "ok", True)


def test_a_hanging_agent_ends_at_its_limit_and_keeps_what_it_said(stage: Stage) -> None:
    stage.steps({"skill": "tide-table"}, {"say": "Wait."}, {"fail": "timeout"})
    played = stage.play(timeout_seconds=0.3)
    assert played.result.timed_out
    assert (played.reply.final_answer, played.reply.finished, len(played.reply.turns)) == ("Wait.", False, 3)
    assert played.refusal is None


def test_a_crash_has_its_code_and_words(stage: Stage) -> None:
    played = stage.steps({"say": "x"}, {"fail": {"kind": "crash", "exit": 9, "message": "boom"}}).play()
    assert (played.result.exit_code, played.result.stderr) == (9, b"boom\n")
    assert (played.refusal, played.reply.finished) == (None, False)


def test_a_silent_agent_called_no_model(stage: Stage) -> None:
    played = stage.write("tokens: {input: 5}\ntasks: {T: {fail: silent}}").play()
    assert played.result.ok
    assert not played.reply.spoke


def test_a_cut_stream_keeps_what_came_before(stage: Stage) -> None:
    reply = stage.steps({"say": "x"}, {"fail": "cut"}).play().reply
    assert (reply.final_answer, reply.unreadable_lines, reply.finished) == ("x", 1, False)


@pytest.mark.parametrize("kind", ["rate_limit", "overloaded"])
def test_a_throttle_may_pass(stage: Stage, kind: str) -> None:
    stage.steps({"fail": {"kind": kind, "times": 2}}, {"say": "At last."})
    for retry, refused in ((0, True), (1, True), (2, False)):
        played = stage.play(retry=retry)
        assert (played.refusal is not None) == refused
        assert refused == (played.result.exit_code == 1)
        if played.refusal is not None:
            assert (played.refusal.kind, played.refusal.fatal, played.reply.spoke) == ("throttle", False, False)
    assert played.reply.final_answer == "At last."


@pytest.mark.parametrize(
    ("kind", "error"),
    [("login", LoginRequired), ("cap", SpendingCap), ("model", UnavailableModel), ("configuration", CannotRun)],
)
def test_a_refusal_for_good_is_explained(stage: Stage, kind: str, error: type[Exception]) -> None:
    refusal = stage.steps({"fail": {"kind": kind, "message": "No."}}).play().refusal
    assert refusal == Refusal(kind, "No.")
    assert refusal.fatal
    explained = stage.backend.explain(refusal, ENGINE, judge=False)
    assert isinstance(explained, error)
    assert "No." in str(explained)


def test_a_task_without_behaviour_stops_the_run(stage: Stage) -> None:
    stage.write("tasks: {T: {full: {steps: [{say: x}]}}}")
    refusal = stage.play(ablated=("tide-table",)).refusal
    assert refusal is not None
    assert (refusal.kind, refusal.fatal) == ("configuration", True)
    assert "'T' (without tide-table)" in refusal.text


def test_the_judge_answers_from_the_script(stage: Stage) -> None:
    stage.write("judge: {model: strict, tokens: {output: 4}, tasks: {T: {passed: false, reasoning: Nö.}}}")
    result, answer, refusal = stage.judge()
    assert result.ok
    assert json.loads(answer.text) == {"passed": False, "reasoning": "Nö."}
    assert (answer.model, answer.usage, refusal) == ("strict", Usage(None, 4), None)


def test_the_judge_passes_what_the_script_does_not_mention(stage: Stage) -> None:
    for text in ("tasks: {T: {fail: crash}}", "judge: {tasks: {Other: {passed: false}}}"):
        assert json.loads(stage.write(text).judge()[1].text)["passed"] is True
    assert json.loads(stage.judge(spec_path=None, task_name="")[1].text)["passed"] is True


def test_a_malformed_judgement_may_be_mended_when_asked_again(stage: Stage) -> None:
    stage.write("judge: {tasks: {T: {answer: Fine., times: 1, passed: true}}}")
    assert stage.judge()[1].text == "Fine."
    assert json.loads(stage.judge(retry=1)[1].text)["passed"] is True


def test_a_judge_may_fail(stage: Stage) -> None:
    stage.write("judge: {tasks: {T: {fail: login}}}")
    result, answer, refusal = stage.judge()
    assert (result.exit_code, answer.error_status) == (1, 401)
    assert refusal is not None
    assert "judge" in str(stage.backend.explain(refusal, ENGINE, judge=True))


def test_a_judge_that_is_not_told_of_the_task_still_finds_its_script(stage: Stage) -> None:
    stage.write('tasks: {"*": {fail: crash}}\njudge: {tasks: {"*": [{passed: true}, {passed: false}]}}')
    stage.backend.check(OPERATOR, (), ENGINE, stage.spec)
    texts = {stage.judge(spec_path=None, task_name="", prompt=f"Question {n}")[1].text for n in range(12)}
    assert {json.loads(text)["passed"] for text in texts} == {True, False}


def test_rulings_by_task_need_the_task(stage: Stage) -> None:
    refusal = stage.write("judge: {tasks: {T: {passed: false}}}").judge(task_name="")[2]
    assert refusal is not None
    assert (refusal.kind, "nobody told which task is judged" in refusal.text) == ("configuration", True)


def test_rulings_follow_the_attempt_not_the_moment(stage: Stage) -> None:
    stage.write("judge: {tasks: {T: [{passed: true}, {passed: false}]}}")
    first = [stage.judge(attempt=n)[1].text for n in range(1, 9)]
    assert len(set(first)) == 2
    assert [stage.judge(attempt=n, prompt="another text")[1].text for n in range(8, 0, -1)] == first[::-1]


SPEC = "tasks:\n  - {name: T, prompt: Go.}\n  - {name: U, prompt: Go.}\n"


def test_a_script_is_found_and_checked_before_anything_is_paid(stage: Stage) -> None:
    stage.spec.write_text(SPEC)
    with pytest.raises(BadInput, match=r"no script. Looked for: .*weather\.script\.yaml, .*weather\.script\.yml"):
        stage.backend.check(OPERATOR, (), ENGINE, stage.spec)
    with pytest.raises(BadInput, match="no script"):
        stage.backend.check(OPERATOR, (), ENGINE, None)
    stage.write("tasks: {T: {fail: crash}, U: {fail: crash}}")
    info = stage.backend.check(OPERATOR, (), ENGINE, stage.spec)
    assert info.binary == str(stage.spec.parent / "weather.script.yaml")
    assert str(info.version).startswith("script ")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tasks: {T: {fail: crash}}", "tasks: nothing is said of U"),
        (
            "tasks: {T: {fail: crash}, V: {fail: crash}, '*': {fail: cut}}",
            "the spec has no task called 'V'; it has: T, U",
        ),
        ("judge: {tasks: {t: {passed: true}}}", "judge → tasks: the spec has no task called 't'"),
    ],
)
def test_names_are_compared_with_the_spec(stage: Stage, text: str, words: str) -> None:
    stage.spec.write_text(SPEC)
    with pytest.raises(SpecError) as caught:
        stage.write(text).backend.check(OPERATOR, (), ENGINE, stage.spec)
    assert words in str(caught.value)


def test_a_file_may_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, spec = tmp_path / "here", tmp_path / "specs" / "x.eval.yaml"
    for folder in (here, spec.parent):
        folder.mkdir()
        (folder / "both.yaml").touch()
    (spec.parent / "beside.yaml").touch()
    monkeypatch.chdir(here)
    assert find_script(Engine("scripted", "both.yaml"), spec) == here / "both.yaml"
    assert find_script(Engine("scripted", "beside.yaml"), spec) == spec.parent / "beside.yaml"
    assert find_script(Engine("scripted", str(spec.parent / "both.yaml")), None) == spec.parent / "both.yaml"
    with pytest.raises(BadInput, match=r"here/none\.yaml, .*specs/none\.yaml"):
        find_script(Engine("scripted", "none.yaml"), spec)


@pytest.mark.parametrize("name", ["x.eval.yaml", "x.eval.yml", "x.yaml", "x.eval.json"])
def test_a_script_has_its_specs_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "x.script.yaml").touch()
    assert find_script(ENGINE, tmp_path / name) == tmp_path / "x.script.yaml"


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"[" * 100_000,
        b'{"event": ["say"]}',
        b'{"event": "say", "text": null}',
        b'{"event": "call", "tool": 1, "input": "x"}',
        b'{"event": "result", "output": {}, "error": "yes"}',
        b'{"event": "usage", "input": "many", "output": true}',
        b'{"event": "error", "status": "401"}',
        b'{"event": "start", "model": {}}',
    ],
)
def test_no_line_breaks_the_reading(line: bytes) -> None:
    reply = read_stream(b'{"event": "say", "text": "before"}\n' + line + b'\n{"event": "end"}\n')
    assert reply.turns[0].content == "before"
