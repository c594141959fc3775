"""From a run's results to the rows that sum it up: its headline, and the score of each task and skill.

Seconds are kept to the millisecond, the ends of intervals and what follows from a rate to six places: more would say
nothing, and digits that are noise are what a database cannot make small.
"""

import math

from caliper_pipeline.domain.records import Outcome
from caliper_pipeline.domain.results import Results, TaskResult, usage_totals
from caliper_pipeline.domain.statistics import Interval
from caliper_pipeline.domain.transcript import Usage
from caliper_pipeline.storage.run_rows import Row, RunRows


def headline(results: Results) -> Row:
    """What a run came to, for its row."""
    score, totals = results.aggregate, usage_totals(results)
    counted = [task.scored for task in results.task_results]
    return {
        "k": results.run.k,
        "reported_model": results.run.reported_model,
        "boundary": results.run.boundary,
        "era": results.run.era,
        "task_count": len(counted),
        "graded": sum(task.attempts for task in counted),
        "successes": sum(task.successes for task in counted),
        "usable": sum(task.usable for task in counted),
        "unusable": sum(task.unusable for task in counted),
        "scored_tasks": score.scored_tasks,
        "score": score.avg_score,
        **interval_columns("score", score.interval if score.avg_score is not None else None),
        "activation_score": score.avg_activation_score,
        **interval_columns("activation", score.activation_interval if score.avg_activation_score is not None else None),
        "activation_tasks": score.activation_tasks,
        "activation_asserted": score.activation_asserted,
        "total_tokens": totals.total_tokens if totals.tokens_reported else None,
        "agent_seconds": totals.wall_seconds,
        "judge_seconds": totals.judge_seconds if totals.judged_attempts else None,
    }


def add_scores(rows: RunRows, results: Results) -> None:
    for task in results.task_results:
        rows.add("scores", _score_row(task))
    for skill in results.aggregate.per_skill:
        rows.add(
            "skill_scores",
            {
                "skill": skill.skill,
                "total": skill.total,
                "expected": skill.expected,
                "fired": skill.fired,
                "hits": skill.hits,
            },
        )


def interval_columns(name: str, interval: Interval | None) -> Row:
    return {
        f"{name}_low": None if interval is None else _places(interval.low),
        f"{name}_high": None if interval is None else _places(interval.high),
    }


def seconds(value: float | None) -> float | None:
    """To the millisecond."""
    return None if value is None else round(value, 3)


def _places(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def _score_row(task: TaskResult) -> Row:
    scored = task.scored
    outcomes = [attempt.outcome for attempt in task.attempts]
    usages = [attempt.usage for attempt in task.attempts if attempt.usage is not None]
    total = Usage()
    for usage in usages:
        total = total.plus(usage)
    lost = [attempt for attempt in task.attempts if attempt.outcome.noise]
    lost_tokens = [a.usage.total_tokens for a in lost if a.usage is not None and a.usage.total_tokens is not None]
    judged = [attempt.judge_seconds for attempt in task.attempts if attempt.judge_seconds is not None]
    return {
        "task_id": task.task_id,
        "task_name": task.task_name,
        "graded": scored.attempts,
        "successes": scored.successes,
        "usable": scored.usable,
        "unusable": scored.unusable,
        "score": scored.score,
        **interval_columns("score", scored.interval),
        "pass_at_k": _places(scored.pass_at_k),
        "pass_hat_k": _places(scored.pass_hat_k),
        "trigger_only": scored.trigger_only,
        "activation_expected": scored.activation_expected,
        "activation_usable": scored.activation_usable,
        "activation_successes": scored.activation_successes,
        "activation_score": scored.activation_score,
        **interval_columns("activation", scored.activation_interval),
        "task_fails": outcomes.count(Outcome.TASK_FAIL),
        "cheats": outcomes.count(Outcome.CHEAT),
        "infra_errors": outcomes.count(Outcome.INFRA_ERROR),
        "timeouts": outcomes.count(Outcome.TIMEOUT),
        "judge_errors": outcomes.count(Outcome.JUDGE_ERROR),
        "not_checked": outcomes.count(Outcome.NOT_CHECKED),
        "input_tokens": total.input_tokens,
        "output_tokens": total.output_tokens,
        "cache_read_tokens": total.cache_read_tokens,
        "cache_creation_tokens": total.cache_creation_tokens,
        "unusable_tokens": sum(lost_tokens) if lost_tokens else None,
        "agent_seconds": seconds(math.fsum(attempt.duration_seconds for attempt in task.attempts)),
        "unusable_seconds": seconds(math.fsum(attempt.duration_seconds for attempt in lost)),
        "judge_seconds": seconds(math.fsum(judged)) if judged else None,
        "retries": sum(attempt.retries for attempt in task.attempts),
    }
