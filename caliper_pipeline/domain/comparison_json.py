"""A comparison as plain data, under the reference's keys in its order; ours follow.

The averages over tasks measured on both sides stay numbers for the sake of that schema: 0.0 where `measured_tasks`
is 0 means that there is nothing to compare. `regression` means any drop.
"""

from typing import Any

from caliper_pipeline.domain.comparison import Comparison, MatchedTask
from caliper_pipeline.domain.results import run_dict, usage_totals_dict
from caliper_pipeline.domain.results.writing import interval_dict


def comparison_dict(found: Comparison) -> dict[str, Any]:
    """The whole comparison."""
    return {
        "a": run_dict(found.a.run),
        "b": run_dict(found.b.run),
        "a_label": found.a_label,
        "b_label": found.b_label,
        "a_skills": list(found.a.skill_names),
        "b_skills": list(found.b.skill_names),
        "matched": [_task(task) for task in found.matched],
        "unmatched_a": list(found.unmatched_a),
        "unmatched_b": list(found.unmatched_b),
        "k_mismatch": found.mismatches.k,
        "spec_mismatch": found.mismatches.spec,
        "neighbourhood_mismatch": found.mismatches.neighbourhood,
        "mcp_mismatch": found.mismatches.mcp,
        "user_customizations_mismatch": found.mismatches.user_customizations,
        "cross_backend_user_customizations": found.mismatches.cross_backend_user_customizations,
        "judge_mismatch": found.mismatches.judge,
        "skill_drift": [
            {"name": skill.name, "source_kind": skill.source_kind, "a_ref": skill.a_ref, "b_ref": skill.b_ref}
            for skill in found.skill_drift
        ],
        "warnings": list(found.warnings),
        "a_usage": usage_totals_dict(found.a_usage),
        "b_usage": usage_totals_dict(found.b_usage),
        "a_matched_avg": found.a_matched_avg or 0.0,
        "b_matched_avg": found.b_matched_avg or 0.0,
        "aggregate_delta": found.aggregate_delta or 0.0,
        "a_matched_activation_avg": found.a_matched_activation_avg,
        "b_matched_activation_avg": found.b_matched_activation_avg,
        "aggregate_activation_delta": found.aggregate_activation_delta,
        "regressions": list(found.drops),
        "has_regression": bool(found.drops),
        "activation_regressions": list(found.activation_drops),
        "has_activation_regression": bool(found.activation_drops),
        "unmeasured": list(found.unmeasured),
        "token_delta": found.tokens_delta,
        "wall_delta": found.wall_delta,
        "measured_tasks": found.measured_tasks,
        "a_interval": interval_dict(found.a_interval),
        "b_interval": interval_dict(found.b_interval),
        "a_activation_interval": interval_dict(found.a_activation_interval),
        "b_activation_interval": interval_dict(found.b_activation_interval),
    }


def _task(task: MatchedTask) -> dict[str, Any]:
    return {
        "task_name": task.task_name,
        "a_score": task.a.scored.score,
        "b_score": task.b.scored.score,
        "delta": task.delta,
        "regression": task.dropped,
        "a_outcomes": [attempt.outcome.value for attempt in task.a.attempts],
        "b_outcomes": [attempt.outcome.value for attempt in task.b.attempts],
        "a_activation": task.a.scored.activation_score,
        "b_activation": task.b.scored.activation_score,
        "activation_delta": task.activation_delta,
        "activation_regression": task.activation_dropped,
        "a_successes": task.a.scored.successes,
        "a_usable": task.a.scored.usable,
        "b_successes": task.b.scored.successes,
        "b_usable": task.b.scored.usable,
        "a_interval": interval_dict(task.a.scored.interval),
        "b_interval": interval_dict(task.b.scored.interval),
    }
