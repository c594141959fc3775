"""A results file is read whatever its age, derives what it can, and names the key that cannot be."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from caliper_pipeline.domain.records import AbortedRecord, EndRecord, HookFailure, Outcome, ResumeRecord
from caliper_pipeline.domain.results import assemble, parse_results, results_dict, usage_totals
from caliper_pipeline.domain.transcript import Usage

from .factories import START, attempt_record, run_header, skill_header, task_header, verdict_record

FIXTURES = Path(__file__).parents[1] / "fixtures" / "results"


def load(name: str) -> Any:
    return json.loads((FIXTURES / name).read_text(encoding="utf-8"))


@pytest.fixture
def file() -> Any:
    return load("reference-0.21.0.json")


def test_a_file_of_the_reference_comes_back_unchanged_under_its_own_keys(file: Any) -> None:
    transcripts = {(t["task_id"], a["attempt"]): a["transcript"] for t in file["task_results"] for a in t["attempts"]}
    written = results_dict(parse_results(file), transcript_of=lambda task, attempt: transcripts[task, attempt])
    assert_keeps(file, written, "")


def assert_keeps(old: Any, new: Any, where: str) -> None:
    """Every key of the old object is in the new one, in the same order and with the same value."""
    if isinstance(old, dict):
        assert [key for key in new if key in old] == list(old), where
        for key, value in old.items():
            assert_keeps(value, new[key], f"{where}.{key}")
    elif isinstance(old, list):
        assert len(old) == len(new), where
        for index, (one, other) in enumerate(zip(old, new, strict=True)):
            assert_keeps(one, other, f"{where}[{index}]")
    else:
        assert old == new, where


def test_what_was_written_is_read_back_equal(file: Any) -> None:
    results = parse_results(file)
    again = json.loads(json.dumps(results_dict(results)))
    assert results_dict(parse_results(again)) == results_dict(results)


def test_the_file_of_0_4_loads_with_its_one_nameless_skill() -> None:
    results = parse_results(load("reference-0.4.0.json"))
    assert results.skill_names == ("tide-table",)
    assert results.run.era is None
    assert [task.scored.score for task in results.task_results] == [1.0, 0.0]
    assert results.aggregate.avg_score == 0.5
    assert results.aggregate.scored_tasks == 2


def test_unknown_keys_are_passed_over(file: Any) -> None:
    file["run"]["flavour"] = "new"
    file["task_results"][0]["attempts"][0]["flavour"] = 7
    assert parse_results(file).run.spec == "multi"


def test_figures_edited_by_hand_change_nothing(file: Any) -> None:
    honest = results_dict(parse_results(file))
    edited = copy.deepcopy(file)
    edited["task_results"][1].update(score=1.0, successes=3, pass_at_k=1.0, pass_hat_k=1.0, usable=9)
    edited["task_results"][1]["attempts"][0].update(passed=True)
    edited["aggregate"].update(avg_score=0.99, scored_tasks=4)
    assert results_dict(parse_results(edited)) == honest


def test_missing_optional_keys_take_their_defaults() -> None:
    attempt = {"attempt": 1, "output": "", "duration_seconds": 0, "outcome": "pass"}
    task = {"task_id": "task-001", "task_name": "T", "attempts": [attempt]}
    run = {"spec": "d", "timestamp": "2026-11-20T12:00:00+02:00", "k": 1, "backend": "claude-code"}
    results = parse_results({"run": run, "task_results": [task]})
    assert results.run.timestamp == START
    assert results.run.mcp_servers is None
    assert results.run.user_customizations is False
    assert results.task_results[0].attempts[0].activated is None
    assert results.aggregate.avg_score == 1.0


def test_tasks_and_attempts_are_sorted(file: Any) -> None:
    shuffled = copy.deepcopy(file)
    shuffled["task_results"].reverse()
    for task in shuffled["task_results"]:
        task["attempts"].reverse()
    assert results_dict(parse_results(shuffled)) == results_dict(parse_results(file))


ATTEMPT = "task_results[0].attempts[0]"


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda d: d["run"].update(k=0), "run.k: a number of at least 1"),
        (lambda d: d["run"].update(k=2.5), "run.k: a whole number"),
        (lambda d: d["run"].update(k=True), "run.k: a number is needed"),
        (lambda d: d["run"].update(k="3"), "run.k: a number is needed, not a text"),
        (lambda d: d["run"].update(timestamp="yesterday"), "run.timestamp: a time like"),
        (lambda d: d["run"].update(timestamp=7), "run.timestamp: a text is needed"),
        (lambda d: d["run"].pop("spec"), "run.spec: is missing"),
        (lambda d: d["run"].update(ablated="tide-table"), "run.ablated: a list is needed"),
        (lambda d: d["run"].update(mcp_servers=[1]), "run.mcp_servers: a list of texts"),
        (lambda d: d.pop("run"), "run: is missing"),
        (lambda d: d.pop("task_results"), "task_results: is missing"),
        (lambda d: d.update(task_results={}), "task_results: a list is needed"),
        (lambda d: d.update(task_results=[None]), "task_results[0]: an object is needed, not null"),
        (lambda d: d["task_results"][0].pop("attempts"), "task_results[0].attempts: is missing"),
        (lambda d: attempt(d).update(attempt=-1), f"{ATTEMPT}.attempt: a number of at least 0"),
        (lambda d: attempt(d).update(duration_seconds=-0.1), f"{ATTEMPT}.duration_seconds: a number of at least 0"),
        (lambda d: attempt(d).update(duration_seconds=float("nan")), f"{ATTEMPT}.duration_seconds: a finite number"),
        (lambda d: attempt(d).update(duration_seconds=float("inf")), f"{ATTEMPT}.duration_seconds: a finite number"),
        (lambda d: attempt(d).update(retries=10**400), f"{ATTEMPT}.retries: a finite number"),
        (lambda d: attempt(d).update(outcome="lucky"), f"{ATTEMPT}.outcome: 'lucky' is none of pass, task_fail"),
        (lambda d: attempt(d).update(outcome=None), f"{ATTEMPT}.outcome: is missing"),
        (lambda d: attempt(d).update(retries=-1), f"{ATTEMPT}.retries: a number of at least 0"),
        (lambda d: attempt(d).update(judge_seconds=float("nan")), f"{ATTEMPT}.judge_seconds: a finite number"),
        (
            lambda d: attempt(d)["usage"].update(input_tokens=-5),
            f"{ATTEMPT}.usage.input_tokens: a number of at least",
        ),
        (lambda d: attempt(d)["usage"].update(output_tokens="nine"), f"{ATTEMPT}.usage.output_tokens: a number is"),
        (lambda d: attempt(d).update(activated=[None]), f"{ATTEMPT}.activated: a list of texts"),
        (lambda d: attempt(d).update(activation_passed="yes"), f"{ATTEMPT}.activation_passed: true or false is"),
        (lambda d: attempt(d).update(output=None), f"{ATTEMPT}.output: is missing"),
        (lambda d: d["aggregate"].update(avg_score=1.2), "aggregate.avg_score: a rate between 0 and 1"),
        (lambda d: d["aggregate"].update(avg_activation_score=-1), "aggregate.avg_activation_score: a number of at"),
        (lambda d: d["aggregate"].update(scored_tasks=-1), "aggregate.scored_tasks: a number of at least 0"),
        (lambda d: d["aggregate"]["per_task"][0].update(score=1.5), "aggregate.per_task[0].score: a rate between"),
        (lambda d: d["aggregate"]["per_task"][0].update(k=-1), "aggregate.per_task[0].k: a number of at least 0"),
        (
            lambda d: d["aggregate"].update(activation_per_skill=[{"skill": "a", "hits": float("nan")}]),
            "aggregate.activation_per_skill[0].hits: a finite number",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_its_key(file: Any, edit: Any, words: str) -> None:
    edit(file)
    with pytest.raises(ValueError) as caught:
        parse_results(file)
    assert words in str(caught.value)


def attempt(data: Any) -> Any:
    return data["task_results"][0]["attempts"][0]


@pytest.mark.parametrize("data", [None, [], 3, "text", {}])
def test_something_else_than_results_is_refused(data: Any) -> None:
    with pytest.raises(ValueError):
        parse_results(data)


def test_a_run_is_assembled_from_its_lines() -> None:
    header = run_header(task_header(1), task_header(2, assert_script=None, activates=()), k=2, model="opus")
    lines = [
        attempt_record(1, 1, output="a", model="m-2", usage=Usage(5, 7)),
        verdict_record(Outcome.PASS, 1, 1, activated=("tide-table",)),
        attempt_record(1, 2, output="b", model="m-2"),
        verdict_record(Outcome.NOT_CHECKED, 1, 2, activated=(), activation_passed=True),
        attempt_record(2, 2, model="m-1", boundary="bwrap"),
        attempt_record(2, 1),
        verdict_record(Outcome.JUDGE_ERROR, 2, 1),
        verdict_record(Outcome.TASK_FAIL, 2, 1, generation=2),
        verdict_record(Outcome.NOT_CHECKED, 2, 2, activated=("x",), activation_passed=False),
    ]
    results = assemble(header, lines, ended_at=START)
    assert results.run.model == "opus"
    assert results.run.reported_model == "m-2"
    assert results.run.boundary == "bwrap+none"
    assert results.run.interrupted is False
    assert [a.outcome.value for a in results.task_results[0].attempts] == ["pass", "task_fail"]
    assert results.aggregate.avg_score == 0.5
    assert results.aggregate.avg_activation_score == 0.5
    assert results.task_results[1].scored.trigger_only
    assert usage_totals(results).total_tokens == 12
    assert parse_results(json.loads(json.dumps(results_dict(results)))) == results


def test_without_a_model_asked_for_the_one_most_often_reported_is_named() -> None:
    lines = [
        line
        for number, model in enumerate(["b", "a", "a", "b"], start=1)
        for line in (attempt_record(number, model=model), verdict_record(attempt=number))
    ]
    assert assemble(run_header(k=4), lines, ended_at=START).run.model == "a"


def test_an_attempt_without_a_verdict_is_counted_but_not_scored() -> None:
    lines = [attempt_record(1), verdict_record(attempt=1), attempt_record(2)]
    results = assemble(run_header(k=2), lines, ended_at=START)
    assert [a.attempt for a in results.task_results[0].attempts] == [1]
    assert results.task_results[0].ungraded == 1
    assert results.run.interrupted is True


def test_a_task_that_fail_fast_gave_up_is_aborted_and_the_run_is_not_interrupted() -> None:
    lines = [attempt_record(1), verdict_record(Outcome.TIMEOUT, 1), AbortedRecord("task-001", "Task 1", 1)]
    results = assemble(run_header(k=3), lines, ended_at=START)
    assert results.task_results[0].aborted
    assert not results.run.interrupted
    assert not results.task_results[0].scored.trigger_only


def test_resuming_with_a_larger_k_takes_the_task_up_again() -> None:
    lines = [
        attempt_record(1),
        verdict_record(Outcome.TIMEOUT, 1),
        AbortedRecord("task-001", "Task 1", 1),
        EndRecord(START, "interrupted"),
        ResumeRecord(START, 5),
    ]
    results = assemble(run_header(k=3), lines, ended_at=START)
    assert results.run.k == 5
    assert not results.task_results[0].aborted
    assert results.run.interrupted


@pytest.mark.parametrize(("status", "interrupted"), [("completed", False), ("interrupted", True), ("stopped", True)])
def test_the_end_line_says_whether_the_run_was_cut_short(status: str, interrupted: bool) -> None:
    lines = [EndRecord(START, status, reason="cap" if status == "stopped" else None)]
    results = assemble(run_header(), lines, ended_at=START)
    assert results.run.interrupted is interrupted
    assert results.run.stop_reason == ("cap" if status == "stopped" else None)


def test_hook_failures_are_sorted_and_a_limit_that_was_passed_has_a_code_in_the_file() -> None:
    lines = [
        attempt_record(1),
        verdict_record(Outcome.INFRA_ERROR, 1),
        HookFailure("task-001", "Task 1", 1, "setup", None, "slow"),
        HookFailure("task-001", "Task 1", 1, "cleanup", 2, "bad"),
    ]
    results = assemble(run_header(k=1), lines, ended_at=START)
    written = results_dict(results)["run"]["hook_failures"]
    assert [(item["phase"], item["exit_code"]) for item in written] == [("cleanup", 2), ("setup", 124)]
    assert results.task_results[0].attempts[0].hook_failures == results.run.hook_failures
    assert parse_results(json.loads(json.dumps(results_dict(results)))) == results


def test_with_a_skill_taken_away_activation_is_observed_but_not_expected() -> None:
    header = run_header(
        task_header(activates=("tide-table",)),
        skills=(skill_header(installed=False), skill_header("moon-phase")),
        ablated=("tide-table",),
        k=1,
    )
    lines = [attempt_record(), verdict_record(activated=("moon-phase",))]
    results = assemble(header, lines, ended_at=START)
    assert results.skill_names == ("moon-phase",)
    assert results.task_results[0].activation_expected is None
    assert results.aggregate.activation_asserted == 0
    assert results.aggregate.avg_activation_score is None


def test_a_server_taken_away_leaves_the_expectation() -> None:
    header = run_header(task_header(activates=("tide-table",)), ablated=("mcp:mail",), k=1)
    results = assemble(header, [attempt_record(), verdict_record(activation_passed=True)], ended_at=START)
    assert results.task_results[0].activation_expected == ("tide-table",)


def test_only_the_end_of_long_answers_is_kept_when_asked() -> None:
    lines = [attempt_record(output="x" * 1000 + "end"), verdict_record()]
    results = assemble(run_header(k=1), lines, ended_at=START, output_limit=10)
    assert results.task_results[0].attempts[0].output == "xxxxxxxend"
