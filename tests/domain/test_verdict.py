"""The first rule that fits decides; a missing check is never made up for by another."""

from typing import Any

import pytest

from caliper_pipeline.domain.records import Outcome
from caliper_pipeline.domain.verdict import activation_verdict, decide, missing_check, needs_judging

from .factories import attempt_record

SETUP = {"setup_error": "setup exited 3", "exit_code": None, "spoke": False}
TIMEOUT = {"timed_out": True, "exit_code": 124}
CRASH = {"exit_code": 1}
NEVER_STARTED = {"exit_code": None}
THROTTLED = {"error": "429 too many requests"}
SILENT = {"spoke": False}
FINE: dict[str, Any] = {}


@pytest.mark.parametrize(
    ("record", "cheated", "checks", "outcome"),
    [
        (SETUP | TIMEOUT, True, (True, True), "infra_error"),
        (TIMEOUT, True, (True, True), "timeout"),
        (TIMEOUT | THROTTLED, False, (True, True), "timeout"),  # what a cut stream says of limits is no refusal
        (CRASH, True, (True, True), "infra_error"),
        (NEVER_STARTED, False, (True, True), "infra_error"),
        (THROTTLED, True, (True, True), "infra_error"),
        (SILENT, True, (True, True), "infra_error"),
        (FINE, True, (True, True), "cheat"),
        (FINE, True, (False, None), "cheat"),
        (FINE, True, (), "cheat"),  # probes are covered too
        (FINE, False, (), "not_checked"),
        (FINE, False, (None, None), "judge_error"),
        (FINE, False, (True, None), "judge_error"),  # a weak assert must not decide alone
        (FINE, False, (None, True), "judge_error"),
        (FINE, False, (False, None), "task_fail"),  # no verdict of the other could turn it
        (FINE, False, (None, False), "task_fail"),
        (FINE, False, (True, False), "task_fail"),
        (FINE, False, (True, True), "pass"),
    ],
)
def test_the_first_rule_that_fits_decides(record: Any, cheated: bool, checks: Any, outcome: str) -> None:
    attempt = attempt_record(**record)
    assert_passed, autorater_passed = checks or (None, None)
    evidence = ("spec.eval.yaml",) if cheated else ()
    found = decide(
        attempt=attempt,
        cheat_evidence=evidence,
        has_expect=bool(checks),
        has_assert=bool(checks),
        assert_passed=assert_passed,
        autorater_passed=autorater_passed,
    )
    assert found == outcome
    judged = found in (Outcome.PASS, Outcome.TASK_FAIL, Outcome.JUDGE_ERROR)
    assert needs_judging(attempt, evidence, has_expect=bool(checks), has_assert=bool(checks)) is judged


@pytest.mark.parametrize(
    ("passed", "outcome"), [(True, Outcome.PASS), (False, Outcome.TASK_FAIL), (None, Outcome.JUDGE_ERROR)]
)
@pytest.mark.parametrize("kind", ["assert", "expect"])
def test_a_single_check_decides_alone(kind: str, passed: bool | None, outcome: Outcome) -> None:
    found = decide(
        attempt=attempt_record(),
        cheat_evidence=(),
        has_expect=kind == "expect",
        has_assert=kind == "assert",
        assert_passed=passed if kind == "assert" else None,
        autorater_passed=passed if kind == "expect" else None,
    )
    assert found is outcome


@pytest.mark.parametrize(
    ("assert_passed", "autorater_passed", "words"),
    [
        (True, True, None),
        (True, None, "no verdict from the autorater; the assert alone does not decide"),
        (None, None, "no verdict from the assert and the autorater"),
    ],
)
def test_a_judge_error_says_what_is_missing(
    assert_passed: bool | None, autorater_passed: bool | None, words: str | None
) -> None:
    found = missing_check(
        has_expect=True, has_assert=True, assert_passed=assert_passed, autorater_passed=autorater_passed
    )
    assert found == words


def test_a_check_that_the_task_does_not_have_is_not_missing() -> None:
    assert missing_check(has_expect=False, has_assert=True, assert_passed=True, autorater_passed=None) is None


PASS, INFRA, TIMED_OUT, JUDGE = Outcome.PASS, Outcome.INFRA_ERROR, Outcome.TIMEOUT, Outcome.JUDGE_ERROR


@pytest.mark.parametrize(
    ("observed", "installed", "expected", "outcome", "ablated", "activated", "passed"),
    [
        (("a",), ("a", "b"), ("a",), PASS, False, ("a",), True),
        (("b", "a"), ("a", "b"), ("a",), PASS, False, ("a", "b"), False),  # exact set
        ((), ("a",), (), PASS, False, (), True),  # a silence probe
        (("a",), ("a",), (), PASS, False, ("a",), False),
        (("a",), ("a",), None, PASS, False, ("a",), None),
        ((), (), ("a",), PASS, False, None, None),  # nothing installed: nothing could be seen
        ((), ("a",), ("a",), JUDGE, False, (), False),  # the agent ran, only the grader broke
        ((), ("a",), (), TIMED_OUT, False, None, None),  # a cut transcript is no proof of silence
        (("a",), ("a",), ("a",), INFRA, False, ("a",), None),
        (("a",), ("a",), ("a", "gone"), PASS, True, ("a",), None),  # any skill taken away
        ((), ("a",), ("a",), Outcome.CHEAT, False, (), False),
    ],
)
def test_activation_is_judged_by_the_exact_set(
    observed: Any, installed: Any, expected: Any, outcome: Outcome, ablated: bool, activated: Any, passed: Any
) -> None:
    found = activation_verdict(
        observed=observed, installed=installed, expected=expected, outcome=outcome, skills_ablated=ablated
    )
    assert (found.activated, found.passed) == (activated, passed)
