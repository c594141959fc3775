"""The laws of scoring: unusable attempts move no rate, order is irrelevant, what was not measured is None."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caliper_pipeline.domain.records import Outcome, VerdictRecord
from caliper_pipeline.domain.scoring import fired_counts, is_trigger_only, score_run

from .factories import task_header, verdict_record

PASS, FAIL, CHEAT = Outcome.PASS, Outcome.TASK_FAIL, Outcome.CHEAT
INFRA, TIMEOUT, JUDGE, UNCHECKED = Outcome.INFRA_ERROR, Outcome.TIMEOUT, Outcome.JUDGE_ERROR, Outcome.NOT_CHECKED
SKILLS = ("tide-table", "moon-phase")
TASKS = (task_header(1), task_header(2, activates=("tide-table",)), task_header(3, assert_script=None, activates=()))


def outcomes(*each: Outcome, task: int = 1) -> list[VerdictRecord]:
    return [verdict_record(outcome, number, task) for number, outcome in enumerate(each, 1)]


def score(*each: Outcome) -> Any:
    return score_run([task_header(1)], outcomes(*each), SKILLS).tasks[0]


@pytest.mark.parametrize(
    ("each", "rate", "at", "hat"),
    [
        ((TIMEOUT, FAIL, INFRA), 0, 0, 0),
        ((PASS, PASS, CHEAT), 2 / 3, 0.963, 0.296),
        ((TIMEOUT, JUDGE, INFRA), None, None, None),
        ((PASS,), 1, 1, 1),
        ((), None, None, None),
    ],
)
def test_rates_are_over_usable_attempts(each: Any, rate: Any, at: Any, hat: Any) -> None:
    found = score(*each)
    assert found.score == rate
    assert found.pass_at_k == (at if at is None else pytest.approx(at, abs=1e-3))
    assert found.pass_hat_k == (hat if hat is None else pytest.approx(hat, abs=1e-3))
    assert (found.interval is None) is (rate is None)


def test_unbiased_estimates_are_for_the_k_that_is_chosen() -> None:
    found = score(PASS, PASS, FAIL, PASS, TIMEOUT)
    assert found.unbiased_pass_hat(3) == pytest.approx(0.25)
    assert found.unbiased_pass_at(3) == 1
    assert found.unbiased_pass_at(5) is None


def test_the_headline_is_the_mean_of_the_tasks_that_were_measured() -> None:
    verdicts = outcomes(PASS, FAIL) + outcomes(TIMEOUT, INFRA, task=2) + outcomes(UNCHECKED, task=3)
    run = score_run(TASKS, verdicts, SKILLS)
    assert (run.avg_score, run.scored_tasks, run.successes, run.usable) == (0.5, 1, 1, 2)


def test_with_nothing_measured_there_is_no_headline() -> None:
    run = score_run(TASKS, outcomes(TIMEOUT), SKILLS)
    assert run.avg_score is None
    assert run.interval is None
    assert run.avg_activation_score is None


def test_of_several_generations_the_latest_counts() -> None:
    verdicts = [verdict_record(PASS, generation=2), verdict_record(FAIL, generation=1)]
    assert score_run([task_header(1)], verdicts, SKILLS).avg_score == 1


@pytest.mark.parametrize(
    ("each", "probe"),
    [
        ((UNCHECKED, UNCHECKED), True),
        ((UNCHECKED, TIMEOUT, TIMEOUT), True),  # one timeout does not turn a probe into something else
        ((UNCHECKED, PASS), False),
        ((TIMEOUT, TIMEOUT), False),
        ((PASS, FAIL), False),
        ((), False),
    ],
)
def test_a_probe_is_told_by_the_absence_of_verdicts(each: Any, probe: bool) -> None:
    assert is_trigger_only(each) is probe


def test_a_task_without_checks_is_a_probe_even_when_every_attempt_was_lost() -> None:
    run = score_run(TASKS, outcomes(TIMEOUT, TIMEOUT, task=3), SKILLS)
    assert [task.trigger_only for task in run.tasks] == [False, False, True]


def fired(task: int, attempt: int, *names: str, wanted: tuple[str, ...], outcome: Outcome = PASS) -> VerdictRecord:
    return verdict_record(
        outcome, attempt, task, activated=tuple(sorted(names)), activation_passed=set(names) == set(wanted)
    )


def test_activation_is_scored_apart_and_per_skill() -> None:
    verdicts = [
        fired(2, 1, "tide-table", wanted=("tide-table",), outcome=FAIL),
        fired(2, 2, "tide-table", "moon-phase", wanted=("tide-table",)),
        fired(2, 3, wanted=("tide-table",), outcome=JUDGE),  # only the grader broke
        verdict_record(TIMEOUT, 4, 2, activated=("tide-table",)),
        fired(3, 1, "moon-phase", wanted=(), outcome=UNCHECKED),
        verdict_record(PASS, 1, 1, activated=("moon-phase",)),  # not an asserting task
    ]
    run = score_run(TASKS, verdicts, SKILLS)
    assert [task.activation_score for task in run.tasks] == [None, pytest.approx(1 / 3), 0]
    assert run.avg_activation_score == pytest.approx(1 / 6)
    assert (run.activation_tasks, run.activation_asserted) == (2, 2)
    tide, moon = run.per_skill
    assert (tide.total, tide.expected, tide.fired, tide.hits) == (4, 3, 2, 2)
    assert (tide.recall, tide.precision) == (pytest.approx(2 / 3), 1)
    assert (tide.opportunities, tide.unwanted, tide.unwanted_rate) == (1, 0, 0)
    assert (moon.expected, moon.fired, moon.hits, moon.recall) == (0, 2, 0, None)
    assert (moon.opportunities, moon.unwanted, moon.unwanted_rate) == (4, 2, 0.5)
    assert moon.unwanted_interval is not None
    assert moon.recall_interval is None


def test_observed_skills_that_nobody_declared_come_after_the_declared_ones() -> None:
    verdicts = [fired(2, 1, "zoo", "abc", wanted=("tide-table",))]
    run = score_run(TASKS, verdicts, SKILLS)
    assert [row.skill for row in run.per_skill] == ["tide-table", "moon-phase", "abc", "zoo"]


def test_with_a_skill_taken_away_nothing_is_expected() -> None:
    verdicts = [verdict_record(PASS, 1, 2, activated=("moon-phase",))]
    run = score_run(TASKS, verdicts, SKILLS[1:], skills_ablated=True)
    assert run.activation_asserted == 0
    assert run.avg_activation_score is None


def test_fired_counts_are_over_the_attempts_one_could_see() -> None:
    seen = [verdict_record(activated=("b",)), verdict_record(activated=()), verdict_record(activated=None)]
    assert fired_counts(seen, ["a"]) == {"a": (0, 2), "b": (1, 2)}


verdict_lists = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.sampled_from(list(Outcome)),
        st.one_of(st.none(), st.sets(st.sampled_from([*SKILLS, "other"])).map(lambda s: tuple(sorted(s)))),
        st.sampled_from([None, True, False]),
    ),
    max_size=30,
).map(
    lambda rows: [
        verdict_record(outcome, number, task, activated=names, activation_passed=passed)
        for number, (task, outcome, names, passed) in enumerate(rows, 1)
    ]
)


@given(verdict_lists, st.randoms(use_true_random=False))
def test_the_order_of_verdicts_is_irrelevant(verdicts: list[VerdictRecord], order: random.Random) -> None:
    shuffled = list(verdicts)
    order.shuffle(shuffled)
    assert score_run(TASKS, shuffled, SKILLS) == score_run(TASKS, verdicts, SKILLS)


@given(verdict_lists, st.sampled_from([INFRA, TIMEOUT, JUDGE]))
def test_unusable_attempts_never_move_a_rate(verdicts: list[VerdictRecord], outcome: Outcome) -> None:
    lost = [verdict_record(outcome, 1000 + n, n % 3 + 1) for n in range(4)]
    before, after = score_run(TASKS, verdicts, SKILLS), score_run(TASKS, verdicts + lost, SKILLS)
    assert (after.avg_score, after.interval) == (before.avg_score, before.interval)
    assert after.per_skill == before.per_skill
    for one, other in zip(before.tasks, after.tasks, strict=True):
        assert (one.score, one.pass_at_k, one.pass_hat_k) == (other.score, other.pass_at_k, other.pass_hat_k)


@given(verdict_lists)
def test_every_rate_is_none_or_between_0_and_1(verdicts: list[VerdictRecord]) -> None:
    run = score_run(TASKS, verdicts, SKILLS)
    rates = [run.avg_score, run.avg_activation_score]
    for task in run.tasks:
        rates += [task.score, task.pass_at_k, task.pass_hat_k, task.activation_score]
        if task.score is not None:
            assert task.pass_hat_k <= task.score + 1e-12
            assert task.score <= task.pass_at_k + 1e-12
            assert task.interval is not None
            assert task.interval.low <= task.score <= task.interval.high
    for row in run.per_skill:
        rates += [row.recall, row.precision, row.unwanted_rate]
        assert row.hits <= min(row.fired, row.expected)
    assert all(rate is None or 0 <= rate <= 1 for rate in rates)
