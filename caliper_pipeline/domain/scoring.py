"""From verdicts to scores: success rate over usable attempts, pass@k and pass^k, and activation, scored apart.

What was not measured is `None`, never 0. The order of attempts is irrelevant, and unusable attempts move no rate.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from caliper_pipeline.domain.records import Outcome, TaskHeader, VerdictRecord
from caliper_pipeline.domain.statistics import (
    Interval,
    plug_in_pass_at,
    plug_in_pass_hat,
    suite_wilson,
    unbiased_pass_at,
    unbiased_pass_hat,
    wilson,
)


class Judged(Protocol):
    """What scoring needs to know of one graded attempt."""

    @property
    def outcome(self) -> Outcome: ...
    @property
    def activated(self) -> tuple[str, ...] | None: ...
    @property
    def activation_passed(self) -> bool | None: ...


@dataclass(frozen=True, slots=True)
class TaskScore:
    """One task of one run."""

    task_id: str
    name: str
    attempts: int
    """Graded ones, whatever came of them."""
    successes: int
    usable: int
    unusable: int
    """Lost to the execution or the judge. Attempts without checks are neither usable nor unusable."""
    score: float | None
    """Success rate. `None`: not measured."""
    interval: Interval | None
    pass_at_k: float | None
    """1 − (1 − p)^usable, as the reference product has it."""
    pass_hat_k: float | None
    """p^usable."""
    trigger_only: bool
    """A probe: activation is all it asks for."""
    activation_expected: tuple[str, ...] | None = None
    activation_usable: int = 0
    """Attempts with a verdict on activation."""
    activation_successes: int = 0
    activation_score: float | None = None
    activation_interval: Interval | None = None

    def unbiased_pass_at(self, k: int) -> float | None:
        """Chance that one of k attempts passes. `None` where fewer than k attempts were usable."""
        return unbiased_pass_at(self.successes, self.usable, k)

    def unbiased_pass_hat(self, k: int) -> float | None:
        """Chance that k attempts all pass. `None` where fewer than k attempts were usable."""
        return unbiased_pass_hat(self.successes, self.usable, k)


@dataclass(frozen=True, slots=True)
class SkillScore:
    """How one skill fired over the attempts whose activation was judged."""

    skill: str
    total: int
    expected: int
    """Attempts whose task wanted it."""
    fired: int
    hits: int
    """Fired where it was wanted."""

    @property
    def recall(self) -> float | None:
        """Fires when wanted."""
        return self.hits / self.expected if self.expected else None

    @property
    def precision(self) -> float | None:
        return self.hits / self.fired if self.fired else None

    @property
    def opportunities(self) -> int:
        """Attempts in which it should have stayed quiet."""
        return self.total - self.expected

    @property
    def unwanted(self) -> int:
        return self.fired - self.hits

    @property
    def unwanted_rate(self) -> float | None:
        """Fires when not wanted. Not the same as 1 − precision: the denominator is the chances to misfire."""
        return self.unwanted / self.opportunities if self.opportunities else None

    @property
    def recall_interval(self) -> Interval | None:
        return wilson(self.hits, self.expected) if self.expected else None

    @property
    def unwanted_interval(self) -> Interval | None:
        return wilson(self.unwanted, self.opportunities) if self.opportunities else None


@dataclass(frozen=True, slots=True)
class RunScore:
    """One run as a whole."""

    tasks: tuple[TaskScore, ...]
    avg_score: float | None
    """Plain mean of the task scores that exist. `None`: not measured."""
    scored_tasks: int
    successes: int
    usable: int
    """Passes and usable attempts of the scored tasks together."""
    interval: Interval | None
    """For the question: how reliable is it on *these* tasks?"""
    avg_activation_score: float | None
    activation_tasks: int
    """Tasks with an activation score."""
    activation_asserted: int
    """Tasks that assert activation."""
    activation_successes: int
    activation_usable: int
    activation_interval: Interval | None
    per_skill: tuple[SkillScore, ...]


def score_run(
    tasks: Sequence[TaskHeader],
    verdicts: Iterable[VerdictRecord],
    skills: Sequence[str],
    *,
    skills_ablated: bool = False,
) -> RunScore:
    """The scores of a run. `skills` are the installed ones in the spec's order.

    Of several verdicts on one attempt the latest generation counts. With a skill taken away nothing is expected to
    fire, so activation is not scored at all.
    """
    latest: dict[tuple[str, int], VerdictRecord] = {}
    for verdict in verdicts:
        place = (verdict.task_id, verdict.attempt)
        if place not in latest or latest[place].generation <= verdict.generation:
            latest[place] = verdict
    judged: dict[str, list[VerdictRecord]] = {task.task_id: [] for task in tasks}
    for verdict in latest.values():
        judged.setdefault(verdict.task_id, []).append(verdict)
    scored = []
    for task in tasks:
        attempts = judged[task.task_id]
        expected = None if skills_ablated else task.activates
        checked = task.expect is not None or task.assert_script is not None
        scored.append((score_task(task.task_id, task.name, attempts, expected, checked=checked), attempts))
    return combine(scored, skills)


def score_task(
    task_id: str,
    name: str,
    attempts: Sequence[Judged],
    activation_expected: Sequence[str] | None,
    *,
    checked: bool | None = None,
) -> TaskScore:
    """The score of one task. `checked`: whether it has `expect` or `assert`; `None`: told from the outcomes."""
    outcomes = [attempt.outcome for attempt in attempts]
    usable = sum(outcome.usable for outcome in outcomes)
    successes = outcomes.count(Outcome.PASS)
    rate = successes / usable if usable else None
    scored = [attempt for attempt in attempts if _activation_scored(attempt)]
    fired_right = sum(attempt.activation_passed is True for attempt in scored)
    return TaskScore(
        task_id=task_id,
        name=name,
        attempts=len(outcomes),
        successes=successes,
        usable=usable,
        unusable=sum(outcome.noise for outcome in outcomes),
        score=rate,
        interval=wilson(successes, usable) if usable else None,
        pass_at_k=None if rate is None else plug_in_pass_at(rate, usable),
        pass_hat_k=None if rate is None else plug_in_pass_hat(rate, usable),
        trigger_only=is_trigger_only(outcomes) if checked is None else not checked,
        activation_expected=None if activation_expected is None else tuple(activation_expected),
        activation_usable=len(scored),
        activation_successes=fired_right,
        activation_score=fired_right / len(scored) if scored else None,
        activation_interval=wilson(fired_right, len(scored)) if scored else None,
    )


def combine(scored: Sequence[tuple[TaskScore, Sequence[Judged]]], skills: Sequence[str]) -> RunScore:
    """The run's score from its tasks' scores, each with the attempts behind it."""
    tasks = tuple(score for score, _ in scored)
    rates = [task.score for task in tasks if task.score is not None]
    fires = [task.activation_score for task in tasks if task.activation_score is not None]
    return RunScore(
        tasks=tasks,
        avg_score=_mean(rates),
        scored_tasks=len(rates),
        successes=sum(task.successes for task in tasks if task.score is not None),
        usable=sum(task.usable for task in tasks),
        interval=suite_wilson([(task.successes, task.usable) for task in tasks]),
        avg_activation_score=_mean(fires),
        activation_tasks=len(fires),
        activation_asserted=sum(task.activation_expected is not None for task in tasks),
        activation_successes=sum(task.activation_successes for task in tasks),
        activation_usable=sum(task.activation_usable for task in tasks),
        activation_interval=suite_wilson([(task.activation_successes, task.activation_usable) for task in tasks]),
        per_skill=_scoreboard(scored, skills),
    )


def is_trigger_only(outcomes: Sequence[Outcome]) -> bool:
    """Whether the attempts are those of a probe: some ran unchecked and no check ever spoke.

    Told by what is absent, so that one timeout among k does not turn a probe into a task that was not measured.
    """
    return Outcome.NOT_CHECKED in outcomes and not {Outcome.PASS, Outcome.TASK_FAIL} & set(outcomes)


def fired_counts(attempts: Iterable[Judged], skills: Sequence[str]) -> Mapping[str, tuple[int, int]]:
    """Per skill, in how many attempts it was seen to fire and in how many one could have seen it."""
    seen = [set(attempt.activated) for attempt in attempts if attempt.activated is not None]
    seen_names = sorted({name for names in seen for name in names} - set(skills))
    return {name: (sum(name in names for names in seen), len(seen)) for name in [*skills, *seen_names]}


def _scoreboard(scored: Sequence[tuple[TaskScore, Sequence[Judged]]], skills: Sequence[str]) -> tuple[SkillScore, ...]:
    rows: list[tuple[frozenset[str], frozenset[str]]] = []
    for task, attempts in scored:
        if task.activation_expected is not None:
            wanted = frozenset(task.activation_expected)
            rows += [(wanted, frozenset(a.activated or ())) for a in attempts if _activation_scored(a)]
    names = list(dict.fromkeys(skills))
    names += sorted({name for _, fired in rows for name in fired} - set(names))
    return tuple(
        SkillScore(
            skill=name,
            total=len(rows),
            expected=sum(name in wanted for wanted, _ in rows),
            fired=sum(name in fired for _, fired in rows),
            hits=sum(name in wanted and name in fired for wanted, fired in rows),
        )
        for name in names
    )


def _activation_scored(attempt: Judged) -> bool:
    return attempt.outcome.activation_usable and attempt.activation_passed is not None


def _mean(values: Sequence[float]) -> float | None:
    return min(math.fsum(values) / len(values), 1.0) if values else None
