"""Runs that may use only so much, and engines that are throttled."""

from dataclasses import replace
from pathlib import Path

import pytest

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.errors import BadInput, BudgetReached, CannotRun
from caliper_pipeline.domain.records import Outcome
from caliper_pipeline.evaluation.dry_run import dry_run
from caliper_pipeline.evaluation.prepare import prepare
from caliper_pipeline.evaluation.request import RunRequest, RunSummary
from caliper_pipeline.evaluation.resume import resume
from caliper_pipeline.execution.budget import Allowance

from .conftest import Bench

TASK = "  - {name: High water, prompt: When is high water?, assert: 'pass'}\n"
GOOD = "tokens: {input: 90, output: 10}\ntasks:\n  High water:\n    full: {steps: [{say: At noon.}]}\n"
THROTTLED = "tasks:\n  High water:\n    full: {steps: [{fail: rate_limit}]}\n"
ONCE = "tasks:\n  High water:\n    full: {steps: [{fail: {kind: rate_limit, times: 1}}, {say: At noon.}]}\n"
FAST = "limits: {backoff_seconds: 0.01, backoff_most_seconds: 0.02, throttled_attempts: 3, retries: 1}\n"
PRICES = "prices: {other: {input: 1, output: 1}, scripted: {input: 10000, output: 10000}}\n"


def request(spec: Path, **facts: object) -> RunRequest:
    given: dict[str, object] = {"spec_path": spec, "engine": Engine("scripted"), "k": 10, "workers": 1, **facts}
    return RunRequest(**given)  # type: ignore[arg-type]


def settings(bench: Bench, text: str) -> None:
    (bench.folder / "caliper.yaml").write_text(text, encoding="utf-8")


def outcomes(summary: RunSummary) -> list[Outcome]:
    return [attempt.outcome for task in summary.results.task_results for attempt in task.attempts]


def test_no_attempt_is_started_that_would_pass_the_budget_of_tokens(bench: Bench) -> None:
    summary = prepare(bench.project, request(bench.write(TASK, GOOD), max_tokens=350)).execute()
    assert outcomes(summary) == [Outcome.PASS] * 3
    assert isinstance(summary.fatal, BudgetReached)
    assert "300 of 350 tokens are used (--max-tokens)" in summary.fatal.message


def test_a_run_that_ended_for_its_budget_goes_on_with_a_larger_one(bench: Bench) -> None:
    summary = prepare(bench.project, request(bench.write(TASK, GOOD), max_tokens=350)).execute()
    again = resume(bench.project, run_id=summary.header.run_id, allowance=Allowance(max_tokens=520)).execute()
    assert len(outcomes(again)) == 5
    unbound = resume(bench.project, run_id=summary.header.run_id, allowance=Allowance(max_tokens=10**6)).execute()
    assert (len(outcomes(unbound)), unbound.fatal) == (10, None)


def test_a_run_that_is_resumed_without_a_budget_keeps_the_one_it_began_with(bench: Bench) -> None:
    summary = prepare(bench.project, request(bench.write(TASK, GOOD), max_tokens=350)).execute()
    again = resume(bench.project, run_id=summary.header.run_id).execute()
    assert len(outcomes(again)) == 3


def test_dollars_are_counted_by_the_prices_of_the_project(bench: Bench) -> None:
    settings(bench, PRICES)  # a dollar an attempt
    summary = prepare(bench.project, request(bench.write(TASK, GOOD), max_cost_usd=2.5)).execute()
    assert len(outcomes(summary)) == 2
    assert summary.fatal is not None
    assert "$2.00 of $2.50 are used (--max-cost)" in summary.fatal.message


def test_a_budget_in_dollars_without_a_price_is_refused(bench: Bench) -> None:
    spec = bench.write(TASK, GOOD)
    wanted = replace(request(spec, max_cost_usd=1.0), engine=Engine("claude-code", "sonnet"))
    with pytest.raises(BadInput, match=r"no price for claude-code:sonnet"):
        prepare(bench.project, wanted)


def test_an_agent_that_used_more_than_one_attempt_may_is_ended(bench: Bench) -> None:
    steps = "[{tokens: {input: 5000}}, {say: Still at it.}, {fail: timeout}]"
    script = f"tasks:\n  High water:\n    full: {{steps: {steps}}}\n"
    summary = prepare(bench.project, request(bench.write(TASK, script), k=1, max_tokens_per_attempt=1000)).execute()
    (attempt,) = summary.results.task_results[0].attempts
    assert attempt.outcome is Outcome.TIMEOUT
    assert attempt.assert_evidence == "the agent used 5,000 tokens, and may use 1,000 (--max-tokens-per-attempt)"


def test_an_attempt_that_was_throttled_once_is_made_all_the_same(bench: Bench) -> None:
    settings(bench, FAST)
    summary = prepare(bench.project, request(bench.write(TASK, ONCE), k=4, workers=4)).execute()
    assert outcomes(summary) == [Outcome.PASS] * 4


def test_a_run_that_is_throttled_again_and_again_ends_and_can_be_resumed(bench: Bench) -> None:
    settings(bench, FAST)
    summary = prepare(bench.project, request(bench.write(TASK, THROTTLED), k=10, workers=2)).execute()
    assert isinstance(summary.fatal, CannotRun)
    assert "rate limited again and again" in summary.fatal.message
    assert len(outcomes(summary)) < 5, "it did not go through all ten"
    (bench.folder / "it.script.yaml").write_text(GOOD, encoding="utf-8")
    again = resume(bench.project, run_id=summary.header.run_id).execute()
    assert outcomes(again).count(Outcome.PASS) == 10 - outcomes(summary).count(Outcome.INFRA_ERROR)


def test_an_engine_may_have_fewer_workers_than_the_project(bench: Bench) -> None:
    settings(bench, "workers: 8\nengines: {scripted: {workers: 2, timeout_seconds: 7}}\n")
    evaluation = prepare(bench.project, request(bench.write(TASK, GOOD), workers=None))
    assert (evaluation.workers, evaluation.header.timeout_seconds) == (2, 7.0)


def test_a_dry_run_shows_what_would_be_started_and_leaves_nothing(bench: Bench) -> None:
    spec = bench.write(TASK, GOOD)
    before = sorted(path for path in bench.folder.rglob("*"))
    plan = dry_run(bench.project, request(spec, max_tokens=99))
    assert (plan.attempts, plan.skills, plan.allowance.max_tokens) == (10, {"tides": ".agent/skills/tides"}, 99)
    assert plan.tasks[0].argv[-1].endswith("scripted_agent.py")
    assert sorted(path for path in bench.folder.rglob("*")) == before


def test_a_dry_run_refuses_what_a_run_refuses(bench: Bench) -> None:
    with pytest.raises(BadInput, match="nothing"):
        dry_run(bench.project, request(bench.write(TASK, GOOD), ablate=("nothing",)))
