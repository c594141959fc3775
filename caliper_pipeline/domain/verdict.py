"""The outcome of one attempt and its verdict on activation, from what is known of it. Pure rules, no evidence made.

The order of the rules is their precedence. Two of them are stricter than the reference product's: a check that gave
no verdict is not made up for by the other one, because a weak assert beside a judge that flaked would then pass
unseen; and a failed check decides although the other is missing, because no verdict of it could turn the failure.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from caliper_pipeline.domain.records import AttemptRecord, Outcome


@dataclass(frozen=True, slots=True)
class ActivationVerdict:
    activated: tuple[str, ...] | None
    """Sorted. `None`: could not be seen."""
    passed: bool | None
    """`None`: nothing is asserted, or there is nothing to judge it on."""


def decide(
    *,
    attempt: AttemptRecord,
    cheat_evidence: Sequence[str],
    has_expect: bool,
    has_assert: bool,
    assert_passed: bool | None,
    autorater_passed: bool | None,
) -> Outcome:
    """The first rule that fits decides."""
    broken = execution_outcome(attempt)
    if broken is not None:
        return broken
    if cheat_evidence:
        return Outcome.CHEAT
    verdicts = [assert_passed] * has_assert + [autorater_passed] * has_expect
    if not verdicts:
        return Outcome.NOT_CHECKED
    if False in verdicts:
        return Outcome.TASK_FAIL
    return Outcome.JUDGE_ERROR if None in verdicts else Outcome.PASS


def execution_outcome(attempt: AttemptRecord) -> Outcome | None:
    """What the attempt comes to when there is nothing of the agent's to grade; `None` when there is."""
    if attempt.setup_error is not None:
        return Outcome.INFRA_ERROR
    if attempt.timed_out:
        return Outcome.TIMEOUT
    if attempt.exit_code != 0:
        return Outcome.INFRA_ERROR
    if attempt.error is not None or not attempt.spoke:
        return Outcome.INFRA_ERROR
    return None


def needs_judging(attempt: AttemptRecord, cheat_evidence: Sequence[str], *, has_expect: bool, has_assert: bool) -> bool:
    """Whether the checks' verdicts could still change the outcome: nothing is paid for otherwise."""
    return execution_outcome(attempt) is None and not cheat_evidence and (has_expect or has_assert)


def missing_check(
    *, has_expect: bool, has_assert: bool, assert_passed: bool | None, autorater_passed: bool | None
) -> str | None:
    """Why a `judge_error` is one, in a sentence; `None` when every check gave a verdict."""
    missing = [
        name
        for name, given, passed in _checks(has_assert, has_expect, assert_passed, autorater_passed)
        if given and passed is None
    ]
    if not missing:
        return None
    spoke = [
        name
        for name, given, passed in _checks(has_assert, has_expect, assert_passed, autorater_passed)
        if given and passed is not None
    ]
    text = f"no verdict from {' and '.join(missing)}"
    return f"{text}; {spoke[0]} alone does not decide" if spoke else text


def activation_verdict(
    *,
    observed: Sequence[str],
    installed: Sequence[str],
    expected: Sequence[str] | None,
    outcome: Outcome,
    skills_ablated: bool,
) -> ActivationVerdict:
    """The verdict on activation: the fired skills are exactly the expected ones.

    Nothing installed: nothing could be seen. A transcript that a time limit or a failure may have cut shows what did
    fire, never that nothing did. With any skill taken away the observation stands and the expectation is withheld,
    because what should fire instead is not what the spec says.
    """
    fired = tuple(sorted(set(observed)))
    if not installed:
        return ActivationVerdict(None, None)
    if not outcome.activation_usable:
        return ActivationVerdict(fired or None, None)
    if expected is None or skills_ablated:
        return ActivationVerdict(fired, None)
    return ActivationVerdict(fired, set(fired) == set(expected))


def _checks(
    has_assert: bool, has_expect: bool, assert_passed: bool | None, autorater_passed: bool | None
) -> tuple[tuple[str, bool, bool | None], ...]:
    return (("the assert", has_assert, assert_passed), ("the autorater", has_expect, autorater_passed))
