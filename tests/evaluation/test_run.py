"""An evaluation from the spec to its score, and what is kept when it ends early."""

import json
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.errors import BadInput, CannotRun
from caliper_pipeline.domain.records import AttemptRecord, EndRecord, Line, Outcome, RunHeader, VerdictRecord
from caliper_pipeline.evaluation.prepare import prepare
from caliper_pipeline.evaluation.request import RunRequest, Silent
from caliper_pipeline.evaluation.resume import is_complete, regrade, resume
from caliper_pipeline.evaluation.streaming import stream
from caliper_pipeline.execution.command import StopToken
from caliper_pipeline.storage import history

from .conftest import Bench

TASK = "  - name: T\n    prompt: Say hi.\n    assert: assert open('made').read() == 'yes'\n    activates: [tides]\n"
GOOD = 'tasks:\n  T:\n    - steps: [{skill: tides}, {run: "printf yes > made"}, {say: Hi.}]\n'


def outcomes(bench: Bench) -> list[str]:
    (run,) = bench.project.store.runs()
    return [verdict.outcome.value for _, verdict in sorted(run.state().verdicts.items())]


def test_a_spec_becomes_a_score_a_results_file_and_a_history(bench: Bench) -> None:
    summary = bench.prepare(bench.write(TASK, GOOD)).execute()
    assert summary.results_path is not None
    saved = json.loads(summary.results_path.read_text(encoding="utf-8"))
    assert saved["task_results"][0]["score"] == 1.0
    assert saved["aggregate"]["avg_activation_score"] == 1.0
    assert saved["run"]["run_id"] == summary.header.run_id
    assert saved["run"]["simulated"] is True
    recorded = history.history_json(bench.project.history_path)
    assert (recorded["run_count"], recorded["attempt_count"]) == (1, 2)


def test_an_ablated_skill_is_not_installed_and_its_expectation_withheld(bench: Bench) -> None:
    script = 'tasks:\n  T:\n    - steps: [{skill: tides}, {run: "printf yes > made"}, {say: Hi.}]\n'
    summary = bench.prepare(bench.write(TASK, script), k=1, ablate=("tides",)).execute()
    attempt = summary.results.task_results[0].attempts[0]
    assert (attempt.outcome, attempt.activation_passed) == (Outcome.PASS, None)
    assert summary.results.run.ablated == ("tides",)


def test_setup_and_cleanup_share_the_workdir_and_cleanup_follows_a_failed_setup(bench: Bench) -> None:
    trace = bench.folder / "trace"
    tasks = (
        "  - name: Good\n    prompt: Hi.\n    assert: assert open('seed').read()\n    setup: echo x > seed\n"
        f"    cleanup: cat seed >> {trace}\n"
        "  - name: Bad\n    prompt: Hi.\n    assert: assert True\n    setup: exit 3\n"
        f"    cleanup: echo after >> {trace}\n"
    )
    script = 'tasks:\n  "*": [{steps: [{say: Hi.}]}]\n'
    summary = bench.prepare(bench.write(tasks, script), k=1).execute()
    assert sorted(trace.read_text(encoding="utf-8").split()) == ["after", "x"]
    assert [task.attempts[0].outcome for task in summary.results.task_results] == [Outcome.PASS, Outcome.INFRA_ERROR]
    assert [(hook.phase, hook.exit_code) for hook in summary.hook_failures] == [("setup", 3)]


def test_a_failed_cleanup_leaves_the_outcome_and_is_reported(bench: Bench) -> None:
    tasks = "  - name: T\n    prompt: Hi.\n    assert: assert True\n    cleanup: echo broken; exit 4\n"
    summary = bench.prepare(bench.write(tasks, 'tasks:\n  "*": [{steps: [{say: Hi.}]}]\n'), k=1).execute()
    assert summary.results.task_results[0].attempts[0].outcome is Outcome.PASS
    assert [(hook.phase, hook.exit_code, hook.output) for hook in summary.hook_failures] == [("cleanup", 4, "broken\n")]


def test_an_agent_that_removes_its_workdir_is_judged_and_cleaned_up_after_all_the_same(bench: Bench) -> None:
    tasks = "  - name: T\n    prompt: Hi.\n    assert: assert open('made').read()\n    cleanup: 'true'\n"
    script = "tasks:\n  T: [{steps: [{run: 'touch made; rm -rf \"$PWD\"'}, {say: Hi.}]}]\n"
    summary = bench.prepare(bench.write(tasks, script), k=1).execute()
    assert summary.results.task_results[0].attempts[0].outcome is Outcome.TASK_FAIL
    assert summary.hook_failures == ()


def test_a_setup_that_removes_the_workdir_is_cleaned_up_after(bench: Bench) -> None:
    tasks = "  - name: T\n    prompt: Hi.\n    assert: assert True\n    setup: rmdir \"$PWD\"\n    cleanup: 'true'\n"
    summary = bench.prepare(bench.write(tasks, 'tasks:\n  "*": [{steps: [{say: Hi.}]}]\n'), k=1).execute()
    assert summary.hook_failures == ()
    assert summary.results.task_results[0].attempts[0].outcome is Outcome.INFRA_ERROR


def test_an_answer_after_more_output_than_is_kept_is_lost_and_not_called_silence(bench: Bench) -> None:
    (bench.folder / "caliper.yaml").write_text("limits: {stream_bytes: 1000}\n", encoding="utf-8")
    script = "tasks:\n  T: [{steps: [{say: " + "x" * 2000 + "}, {say: Hi.}]}]\n"
    summary = bench.prepare(bench.write(TASK, script), k=1).execute()
    attempt = summary.results.task_results[0].attempts[0]
    assert attempt.outcome is Outcome.INFRA_ERROR
    assert "stream_bytes" in (attempt.assert_evidence or "")


def test_hooks_and_asserts_know_where_they_are_and_agents_do_not(bench: Bench) -> None:
    tasks = (
        '  - name: T\n    prompt: Hi.\n    setup: \'[ "$CALIPER_WORKDIR" = "$PWD" ] && [ -d "$CALIPER_SPEC_DIR" ]\'\n'
        "    assert: |\n      import os\n      assert os.environ['CALIPER_SPEC_DIR']\n"
        "      told = open('env').read().lower()\n      assert 'caliper' not in told and 'eval' not in told, told\n"
    )
    script = 'tasks:\n  "*": [{steps: [{run: "env > env; pwd >> env"}, {say: Hi.}]}]\n'
    summary = bench.prepare(bench.write(tasks, script), k=1).execute()
    attempt = summary.results.task_results[0].attempts[0]
    assert (attempt.outcome, attempt.assert_evidence) == (Outcome.PASS, None)


def test_fail_fast_gives_a_task_up_and_says_so(bench: Bench) -> None:
    tasks = TASK + "  - name: U\n    prompt: Hi.\n    assert: assert True\n"
    script = GOOD + "  U: [{fail: crash}]\n"
    summary = bench.prepare(bench.write(tasks, script), k=5, fail_fast=2).execute()
    by_name = {task.task_name: task for task in summary.results.task_results}
    assert len(by_name["U"].attempts) == 2
    assert by_name["U"].aborted
    assert len(by_name["T"].attempts) == 5
    assert not summary.interrupted


def test_a_run_that_is_stopped_keeps_what_is_finished_and_resumes_with_the_rest(bench: Bench) -> None:
    evaluation = bench.prepare(bench.write(TASK, GOOD), k=6)
    stop = StopToken()

    class StopAfterTwo(Silent):
        graded = 0

        def line(self, line: Line) -> None:
            self.graded += isinstance(line, VerdictRecord)
            if self.graded == 2:
                stop.set()

    first = evaluation.execute(StopAfterTwo(), stop)
    stop.close()
    assert first.interrupted
    assert 2 <= first.recorded < 6
    assert first.results_path is not None
    assert json.loads(first.results_path.read_text(encoding="utf-8"))["run"]["interrupted"] is True
    (run,) = bench.project.store.runs()
    assert not is_complete(run)

    second = resume(bench.project).execute()
    assert second.header.run_id == first.header.run_id
    lines = list(run.lines())
    made = [(line.task_id, line.attempt) for line in lines if isinstance(line, AttemptRecord)]
    assert sorted(made) == [("task-001", n) for n in range(1, 7)]
    assert not second.interrupted
    assert is_complete(run)
    files = list((bench.folder / ".caliper" / "results").glob("*/*.json"))
    assert files == [second.results_path]
    assert history.history_json(bench.project.history_path)["attempt_count"] == 6


def test_a_run_is_topped_up_to_a_larger_k(bench: Bench) -> None:
    summary = bench.prepare(bench.write(TASK, GOOD), k=1).execute()
    topped = resume(bench.project, run_id=summary.header.run_id, k=3).execute()
    assert len(topped.results.task_results[0].attempts) == 3
    assert topped.results.run.k == 3


def test_a_run_whose_spec_has_changed_is_not_taken_up(bench: Bench) -> None:
    spec = bench.write(TASK, GOOD)
    summary = bench.prepare(spec, k=1).execute()
    spec.write_text(spec.read_text(encoding="utf-8").replace("Say hi.", "Say hello."), encoding="utf-8")
    with pytest.raises(BadInput, match="changed since"):
        resume(bench.project, run_id=summary.header.run_id, k=3)


def test_nothing_to_resume_is_said(bench: Bench) -> None:
    bench.prepare(bench.write(TASK, GOOD), k=1).execute()
    with pytest.raises(BadInput, match="Nothing to resume"):
        resume(bench.project)


def test_regrading_adds_a_generation_and_pays_no_agent(bench: Bench) -> None:
    summary = bench.prepare(bench.write(TASK, GOOD), k=2).execute()
    again = regrade(bench.project, summary.header.run_id).execute()
    (run,) = bench.project.store.runs()
    lines = list(run.lines())
    assert sum(isinstance(line, AttemptRecord) for line in lines) == 2
    generations = [line.generation for line in lines if isinstance(line, VerdictRecord)]
    assert sorted(generations) == [1, 1, 2, 2]
    # The assert reads a file of the workdir: it is there again.
    assert [attempt.outcome for attempt in again.results.task_results[0].attempts] == [Outcome.PASS, Outcome.PASS]


def test_what_every_attempt_would_meet_stops_the_run_and_can_be_resumed(bench: Bench) -> None:
    tasks = "  - name: T\n    prompt: Hi.\n    expect: Greets.\n"
    script = 'tasks:\n  "*": [{steps: [{say: Hi.}]}]\njudge:\n  tasks:\n    T: {fail: login}\n'
    spec = bench.write(tasks, script)
    summary = bench.prepare(spec, k=2).execute()
    assert isinstance(summary.fatal, CannotRun)
    assert summary.ungraded >= 1
    (bench.folder / "it.script.yaml").write_text('tasks:\n  "*": [{fail: crash}]\n', encoding="utf-8")
    again = resume(bench.project, run_id=summary.header.run_id).execute()
    assert again.fatal is None
    graded = [attempt.outcome for attempt in again.results.task_results[0].attempts]
    assert graded.count(Outcome.PASS) == summary.ungraded


def test_a_verdict_says_which_judge_was_asked_and_in_what_words(bench: Bench) -> None:
    script = 'tasks:\n  "*": [{steps: [{say: Hi.}]}]\njudge:\n  tasks:\n    T: {passed: true}\n'
    bench.prepare(bench.write("  - name: T\n    prompt: Hi.\n    expect: Greets.\n", script), k=1).execute()
    (run,) = bench.project.store.runs()
    [verdict] = run.state().verdicts.values()
    assert (verdict.judge_backend, verdict.judge_prompt_version) == ("scripted", run.header().judge_prompt_version)


def test_a_resumption_notes_the_dagster_run_that_took_it_up(bench: Bench) -> None:
    bench.prepare(bench.write(TASK, GOOD), k=1).execute()
    (run,) = bench.project.store.runs()
    replace(resume(bench.project, run_id=run.run_id, k=2), dagster_run_id="d-2").execute()
    assert [resumed.dagster_run_id for resumed in run.state().resumes] == ["d-2"]


def test_an_unforeseen_error_costs_one_attempt_and_not_the_run(bench: Bench) -> None:
    evaluation = bench.prepare(bench.write(TASK, GOOD), k=3)

    class Faulty:
        def __init__(self, backend: object) -> None:
            self._backend = backend
            self._lock = threading.Lock()
            self._calls = 0

        def __getattr__(self, name: str) -> object:
            return getattr(self._backend, name)

        def read(self, result: object, invocation: object) -> object:
            with self._lock:
                self._calls += 1
                first = self._calls == 1
            if first:
                raise ZeroDivisionError("odd event")
            return self._backend.read(result, invocation)  # type: ignore[attr-defined]

    summary = replace(evaluation, backend=Faulty(evaluation.backend)).execute()  # type: ignore[arg-type]
    found = sorted(attempt.outcome.value for attempt in summary.results.task_results[0].attempts)
    assert found == ["infra_error", "pass", "pass"]


def test_a_refused_spec_leaves_nothing_behind(bench: Bench) -> None:
    spec = bench.write(TASK, GOOD)
    with pytest.raises(BadInput, match="tidse"):
        bench.prepare(spec, ablate=("tidse",))
    assert bench.project.store.run_ids() == []


def test_streamed_lines_come_as_they_become_durable_and_end_with_the_end(bench: Bench) -> None:
    evaluation = bench.prepare(bench.write(TASK, GOOD), k=2)
    stop = StopToken()
    kinds = [line.type for line in stream(evaluation, stop)]
    stop.close()
    assert kinds.count("attempt") == kinds.count("verdict") == 2
    assert kinds[-1] == "end"


def test_a_closed_stream_stops_the_run(bench: Bench) -> None:
    evaluation = bench.prepare(bench.write(TASK, GOOD), k=50)
    stop = StopToken()
    lines = stream(evaluation, stop)
    next(lines)
    lines.close()  # type: ignore[attr-defined]
    stop.close()
    (run,) = bench.project.store.runs()
    end = run.state().end
    assert isinstance(end, EndRecord)
    assert end.status == "interrupted"


def test_the_header_keeps_every_input_of_the_numbers(bench: Bench) -> None:
    header: RunHeader = bench.prepare(bench.write(TASK, GOOD), k=1).header
    assert header.spec_text.startswith("skills:")
    assert set(header.tasks[0].digests) == {"prompt", "assert", "activates"}
    assert [skill.name for skill in header.skills] == ["tides"]
    assert header.limits["assert_seconds"] == 30
    assert Path(header.spec_path).is_absolute()


def test_no_folder_of_an_attempt_is_left(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    bench.prepare(bench.write(TASK, GOOD), k=2).execute()
    assert list(temporary.iterdir()) == []


def test_a_run_is_also_known_by_the_name_of_its_results_file(bench: Bench) -> None:
    summary = bench.prepare(bench.write(TASK, GOOD), k=1).execute()
    assert summary.results_path is not None
    topped = resume(bench.project, run_id=summary.results_path.stem, k=2).execute()
    assert topped.header.run_id == summary.header.run_id


def test_a_history_that_is_gone_is_made_anew_from_all_runs(bench: Bench) -> None:
    spec = bench.write(TASK, GOOD)
    bench.prepare(spec, k=1).execute()
    bench.project.history_path.unlink()
    bench.prepare(spec, k=2).execute()
    recorded = history.history_json(bench.project.history_path)
    assert (recorded["run_count"], recorded["attempt_count"]) == (2, 3)


def test_numbers_that_cannot_be_meant_are_refused_whoever_asks(bench: Bench) -> None:
    with pytest.raises(BadInput, match="k 1e"):
        bench.prepare(bench.write(TASK, GOOD), k=10**9)


def test_what_no_home_can_be_made_ready_for_is_refused_before_anything_is_made(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = bench.folder / "bin"
    commands.mkdir()
    (commands / "pi").write_text("#!/bin/sh\necho 1.6.0\n", encoding="utf-8")
    (commands / "pi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    tasks = "  - name: T\n    prompt: Hi.\n    assert: assert True\n    setup: touch set-up\n"
    spec = bench.write(tasks, GOOD)
    spec.write_text("mcp: {far: {type: sse, url: 'http://127.0.0.1:9/'}}\n" + spec.read_text("utf-8"), "utf-8")
    with pytest.raises(CannotRun, match="SSE"):
        prepare(bench.project, RunRequest(spec_path=spec, engine=Engine("pi")))
    assert list(bench.project.store.runs()) == []
