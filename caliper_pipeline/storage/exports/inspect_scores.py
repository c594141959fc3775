"""What judged an attempt, as the scorers and scores of Inspect: `C`, `I`, or no score where there is no verdict."""

import itertools
import math
import statistics
from collections.abc import Iterable
from typing import Any

from caliper_pipeline.domain.plain import to_plain
from caliper_pipeline.domain.results import AttemptResult, Results, TaskResult
from caliper_pipeline.domain.series import slug

Plain = dict[str, Any]

SCORERS = {
    "success": "every check of the task passed",
    "assert": "the task's assert passed",
    "autorater": "a model judged that the answer meets what was expected",
    "activation": "exactly the skills that were to fire did",
}


def present(told: Plain) -> Plain:
    """Without what is not known: readers of the format take a missing key for its default, and trip over some nulls."""
    return {key: value for key, value in told.items() if value is not None}


def scorers_of(results: Results) -> list[str]:
    """Those with something to say of some attempt."""
    attempts = [attempt for task in results.task_results for attempt in task.attempts]
    return [name for name in SCORERS if any(_value(name, attempt) is not None for attempt in attempts)]


def scores_of(task: TaskResult, attempt: AttemptResult) -> Plain:
    """`C` or `I` by each scorer that judged the attempt."""
    told = {
        "success": (attempt.output, _why(attempt)),
        "assert": (None, attempt.assert_evidence),
        "autorater": (None, attempt.autorater_reasoning),
        "activation": (", ".join(attempt.activated or ()) or "nothing", _wanted(task)),
    }
    values = {name: _value(name, attempt) for name in SCORERS}
    return {
        name: present({"value": "C" if value else "I", "answer": told[name][0], "explanation": told[name][1]})
        for name, value in values.items()
        if value is not None
    }


def score_of(results: Results, scorer: str) -> Plain:
    rates = [rate for task in results.task_results if (rate := _rate(scorer, task.attempts)) is not None]
    scored = sum(_value(scorer, attempt) is not None for task in results.task_results for attempt in task.attempts)
    error = statistics.stdev(rates) / math.sqrt(len(rates)) if len(rates) > 1 else 0.0
    whole = results.aggregate
    interval = {"success": whole.interval, "activation": whole.activation_interval}.get(scorer)
    return present(
        {
            "name": scorer,
            "scorer": scorer,
            "reducer": "mean",
            "scored_samples": scored,
            "unscored_samples": sum(len(task.attempts) for task in results.task_results) - scored,
            "metrics": {
                "accuracy": {"name": "accuracy", "value": math.fsum(rates) / len(rates)},
                "stderr": {"name": "stderr", "value": error},
            },
            "metadata": None if interval is None else {"interval": to_plain(interval)},
        }
    )


def reductions_of(results: Results) -> list[Plain]:
    """Each task's share of attempts that a scorer was content with, as the means over epochs."""
    return [
        {
            "scorer": name,
            "reducer": "mean",
            "samples": [
                {"sample_id": sample, "value": rate}
                for sample, task in zip(sample_ids(results), results.task_results, strict=True)
                if (rate := _rate(name, task.attempts)) is not None
            ],
        }
        for name in scorers_of(results)
    ]


def sample_ids(results: Results) -> list[str]:
    """The tasks' names; a slug where a name cannot be a file's, and a number behind one that comes again."""
    ids: list[str] = []
    for task in results.task_results:
        name = task.task_name
        fit = name.isprintable() and not set(name) & set("/\\") and name.strip(". ") == name and 0 < len(name) <= 100
        base = name if fit else slug(name)
        numbered = (base if number == 1 else f"{base} ({number})" for number in itertools.count(1))
        ids.append(next(candidate for candidate in numbered if candidate not in ids))
    return ids


def _value(scorer: str, attempt: AttemptResult) -> bool | None:
    """`None`: the attempt is not scored by it."""
    match scorer:
        case "success":
            return attempt.passed if attempt.outcome.usable else None
        case "assert":
            return attempt.assert_passed
        case "autorater":
            return attempt.autorater_passed
        case _:
            return attempt.activation_passed if attempt.outcome.activation_usable else None


def _rate(scorer: str, attempts: Iterable[AttemptResult]) -> float | None:
    values = [value for attempt in attempts if (value := _value(scorer, attempt)) is not None]
    return sum(values) / len(values) if values else None


def _why(attempt: AttemptResult) -> str:
    reasons = [attempt.outcome.value, *attempt.cheat_evidence, attempt.assert_evidence, attempt.autorater_reasoning]
    return "\n\n".join(reason for reason in reasons if reason)


def _wanted(task: TaskResult) -> str:
    return f"to fire: {', '.join(task.activation_expected or ()) or 'nothing'}"
