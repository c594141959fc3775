"""Results as plain data, in the reference's order of keys; ours follow in each object.

`avg_score` stays a number for the sake of the schema: 0.0 beside `scored_tasks` 0 says that nothing was measured,
and our own `score` beside it is then null.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from caliper_pipeline.domain.plain import utc_text
from caliper_pipeline.domain.records import HookFailure
from caliper_pipeline.domain.results.usage import UsageTotals
from caliper_pipeline.domain.results.values import AttemptResult, Results, RunInfo, SkillSnapshot, TaskResult
from caliper_pipeline.domain.scoring import RunScore, SkillScore, TaskScore
from caliper_pipeline.domain.statistics import Interval
from caliper_pipeline.domain.transcript import Usage

TIMED_OUT_CODE = 124
"""The exit code that stands for a hook that passed its limit: the schema has no null there."""

TranscriptOf = Callable[[str, int], Sequence[Any] | None]


def results_dict(results: Results, *, transcript_of: TranscriptOf | None = None) -> dict[str, Any]:
    """The whole file. `transcript_of(task_id, attempt)` gives the transcripts; without it the key is left out."""
    return {
        "run": run_dict(results.run),
        "skill_snapshots": [_snapshot(snapshot) for snapshot in results.skill_snapshots],
        "task_results": [
            task_dict(task, k=results.run.k, transcript_of=transcript_of) for task in results.task_results
        ],
        "aggregate": _aggregate(results.aggregate),
    }


def run_dict(run: RunInfo) -> dict[str, Any]:
    return {
        "spec": run.spec,
        "timestamp": utc_text(run.timestamp),
        "k": run.k,
        "backend": run.backend,
        "model": run.model,
        "era": run.era,
        "ablated": list(run.ablated),
        "mcp_servers": _list(run.mcp_servers),
        "user_customizations": run.user_customizations,
        "loaded_user_customizations": _list(run.loaded_user_customizations),
        "judge_backend": run.judge_backend,
        "judge_model": run.judge_model,
        "judge_prompt_version": run.judge_prompt_version,
        "cli_version": run.cli_version,
        "judge_cli_version": run.judge_cli_version,
        "interrupted": run.interrupted,
        "hook_failures": [_hook_failure(failure) for failure in run.hook_failures],
        "run_id": run.run_id,
        "started_at": None if run.started_at is None else utc_text(run.started_at),
        "simulated": run.simulated,
        "requested_model": run.requested_model,
        "reported_model": run.reported_model,
        "series_key": run.series_key,
        "workers": run.workers,
        "timeout_seconds": run.timeout_seconds,
        "fail_fast": run.fail_fast,
        "boundary": run.boundary,
        "stop_reason": run.stop_reason,
        "spec_path": run.spec_path,
        "spec_digest": run.spec_digest,
        "product_version": run.product_version,
        "host": run.host,
        "platform": run.platform,
        "git_commit": run.git_commit,
        "git_dirty": run.git_dirty,
        "origin": run.origin,
        "dagster_run_id": run.dagster_run_id,
    }


def task_dict(task: TaskResult, *, k: int, transcript_of: TranscriptOf | None = None) -> dict[str, Any]:
    """One task. `k` is the run's: what the unbiased estimates are for."""
    attempts = []
    for attempt in task.attempts:
        if transcript_of is None:
            attempts.append(attempt_dict(attempt))
        else:
            attempts.append(attempt_dict(attempt, transcript=transcript_of(task.task_id, attempt.attempt)))
    return {
        "task_id": task.task_id,
        "task_name": task.task_name,
        "attempts": attempts,
        "activation_expected": _list(task.activation_expected),
        "expect": task.expect,
        "prompt": task.prompt,
        **_task_score(task.scored),
        "interval": interval_dict(task.scored.interval),
        "activation_interval": interval_dict(task.scored.activation_interval),
        "unbiased_k": k,
        "unbiased_pass_at_k": task.scored.unbiased_pass_at(k),
        "unbiased_pass_hat_k": task.scored.unbiased_pass_hat(k),
        "key": task.key,
        "checks": _list(task.checks),
        "aborted": task.aborted,
        "ungraded": task.ungraded,
        "digests": dict(task.digests),
    }


_LEFT_OUT: Any = object()


def attempt_dict(attempt: AttemptResult, *, transcript: Sequence[Any] | None = _LEFT_OUT) -> dict[str, Any]:
    """One attempt. The key `transcript` is there, at its place in the schema, when one is given, be it null."""
    placed = {} if transcript is _LEFT_OUT else {"transcript": None if transcript is None else list(transcript)}
    return {
        "attempt": attempt.attempt,
        "output": attempt.output,
        "duration_seconds": attempt.duration_seconds,
        "outcome": attempt.outcome.value,
        "hook_failures": [_hook_failure(failure) for failure in attempt.hook_failures],
        "usage": _usage(attempt.usage),
        **placed,
        "cheat_evidence": list(attempt.cheat_evidence),
        "activated": _list(attempt.activated),
        "activation_passed": attempt.activation_passed,
        "builtin_activated": _list(attempt.builtin_activated),
        "assert_passed": attempt.assert_passed,
        "assert_evidence": attempt.assert_evidence,
        "autorater_passed": attempt.autorater_passed,
        "autorater_reasoning": attempt.autorater_reasoning,
        "autorater_script": attempt.autorater_script,
        "judge_seconds": attempt.judge_seconds,
        "retries": attempt.retries,
        "passed": attempt.passed,
        "cheated": attempt.cheated,
        "started_at": None if attempt.started_at is None else utc_text(attempt.started_at),
        "ended_at": None if attempt.ended_at is None else utc_text(attempt.ended_at),
        "model": attempt.model,
        "judge_model": attempt.judge_model,
        "judge_usage": _usage(attempt.judge_usage),
        "generation": attempt.generation,
        "boundary": attempt.boundary,
        "evidence": attempt.evidence,
        "turns": attempt.turns,
        "warnings": list(attempt.warnings),
    }


def usage_totals_dict(totals: UsageTotals) -> dict[str, Any]:
    derived = (
        "total_tokens",
        "prompt_tokens",
        "usable_attempts",
        "usable_wall_seconds",
        "tokens_per_attempt",
        "wall_per_attempt",
        "judge_per_attempt",
    )
    names = [field.name for field in dataclasses.fields(totals)] + list(derived)
    return {name: getattr(totals, name) for name in names}


def _task_score(score: TaskScore) -> dict[str, Any]:
    return {
        "successes": score.successes,
        "unusable": score.unusable,
        "usable": score.usable,
        "score": score.score,
        "pass_at_k": score.pass_at_k,
        "pass_hat_k": score.pass_hat_k,
        "activation_usable": score.activation_usable,
        "activation_successes": score.activation_successes,
        "activation_score": score.activation_score,
    }


def _aggregate(score: RunScore) -> dict[str, Any]:
    return {
        "avg_score": 0.0 if score.avg_score is None else score.avg_score,
        "scored_tasks": score.scored_tasks,
        "per_task": [
            {
                "task_id": task.task_id,
                "task_name": task.name,
                "k": task.attempts,
                "successes": task.successes,
                "score": task.score,
            }
            for task in score.tasks
        ],
        "avg_activation_score": score.avg_activation_score,
        "activation_tasks": score.activation_tasks,
        "activation_asserted": score.activation_asserted,
        "activation_per_skill": [_skill_score(row) for row in score.per_skill],
        "score": score.avg_score,
        "successes": score.successes,
        "usable": score.usable,
        "interval": interval_dict(score.interval),
        "activation_interval": interval_dict(score.activation_interval),
    }


def _skill_score(row: SkillScore) -> dict[str, Any]:
    return {
        "skill": row.skill,
        "total": row.total,
        "expected": row.expected,
        "fired": row.fired,
        "hits": row.hits,
        "recall": row.recall,
        "precision": row.precision,
        "opportunities": row.opportunities,
        "unwanted": row.unwanted,
        "unwanted_rate": row.unwanted_rate,
        "recall_interval": interval_dict(row.recall_interval),
        "unwanted_interval": interval_dict(row.unwanted_interval),
    }


def _snapshot(snapshot: SkillSnapshot) -> dict[str, Any]:
    return {
        "name": snapshot.name,
        "path": snapshot.path,
        "source_kind": snapshot.source_kind,
        "git_repo": snapshot.git_repo,
        "git_sha": snapshot.git_sha,
        "files": {path: {"content": file.content, "hash": file.hash} for path, file in snapshot.files.items()},
        "git_dirty": snapshot.git_dirty,
        "description": snapshot.description,
    }


def _hook_failure(failure: HookFailure) -> dict[str, Any]:
    return {
        "task_id": failure.task_id,
        "attempt": failure.attempt,
        "phase": failure.phase,
        "exit_code": TIMED_OUT_CODE if failure.exit_code is None else failure.exit_code,
        "output": failure.output,
        "timed_out": failure.exit_code is None,
    }


def _usage(usage: Usage | None) -> dict[str, int | None] | None:
    if usage is None:
        return None
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_creation_tokens": usage.cache_creation_tokens,
        "total_tokens": usage.total_tokens,
    }


def interval_dict(interval: Interval | None) -> dict[str, Any] | None:
    if interval is None:
        return None
    return {"low": interval.low, "high": interval.high, "level": interval.level, "method": interval.method}


def _list(names: tuple[str, ...] | None) -> list[str] | None:
    return None if names is None else list(names)
