"""A run as an eval log of Inspect (version 2 of its format), as plain data.

A spec is an Inspect task, a task of ours a sample, an attempt an epoch. Attempts that were lost to the execution carry
an error and no score, as Inspect leaves what is not scored out of its means; so its accuracy, the mean over samples of
the mean over epochs, is our success rate.
"""

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from caliper_pipeline import __version__
from caliper_pipeline.domain.plain import to_plain
from caliper_pipeline.domain.records import Outcome
from caliper_pipeline.domain.results import AttemptResult, Results, TaskResult
from caliper_pipeline.domain.series import slug
from caliper_pipeline.domain.skills import files_digest
from caliper_pipeline.domain.transcript import Usage
from caliper_pipeline.storage.exports.inspect_messages import messages_of
from caliper_pipeline.storage.exports.inspect_scores import (
    SCORERS,
    present,
    sample_ids,
    score_of,
    scorers_of,
    scores_of,
)
from caliper_pipeline.storage.exports.source import WholeAttempt, moment_text

Plain = dict[str, Any]


def start_of(results: Results) -> Plain:
    """What the log says before the first sample: what is evaluated, and how."""
    run = results.run
    began = run.started_at or run.timestamp
    revision = None
    if run.git_commit is not None:
        revision = present({"type": "git", "origin": "", "commit": run.git_commit, "dirty": run.git_dirty})
    evaluated = present(
        {
            "eval_id": eval_id(results),
            "run_id": run.run_id or eval_id(results),
            "created": moment_text(began),
            "task": run.spec,
            "task_id": run.series_key or run.series.key,
            "task_version": run.spec_digest or 0,
            "task_file": run.spec_path,
            "solver": run.backend,
            "tags": _tags(results),
            "dataset": {
                "name": run.spec,
                "location": run.spec_path,
                "samples": len(results.task_results),
                "sample_ids": sample_ids(results),
                "shuffled": False,
            },
            "model": model_of(results),
            "config": present(
                {
                    "epochs": run.k,
                    "epochs_reducer": ["mean"],
                    "fail_on_error": False,
                    "time_limit": None if run.timeout_seconds is None else math.ceil(run.timeout_seconds),
                    "max_samples": run.workers,
                }
            ),
            "revision": revision,
            "packages": {"caliper_pipeline": run.product_version or __version__},
            "metadata": _metadata(results),
            "scorers": [
                {"name": name, "metrics": [{"name": "accuracy"}, {"name": "stderr"}], "metadata": {"about": about}}
                for name, about in SCORERS.items()
                if name in scorers_of(results)
            ],
        }
    )
    plan = {"name": "plan", "steps": [{"solver": run.backend, "params": {"ablated": list(run.ablated)}}], "config": {}}
    return {"version": 2, "eval": evaluated, "plan": plan}


def header_of(results: Results) -> Plain:
    """All that the log says besides its samples."""
    run = results.run
    status, error = "success", None
    if run.stop_reason is not None:
        status, error = "error", _error(run.stop_reason)
    elif run.interrupted:
        status = "cancelled"
    attempts = [attempt for task in results.task_results for attempt in task.attempts]
    start = start_of(results)
    return present(
        {
            "version": start["version"],
            "status": status,
            "eval": start["eval"],
            "plan": start["plan"],
            "results": {
                "total_samples": len(results.task_results) * run.k,
                "completed_samples": sum(not attempt.outcome.noise for attempt in attempts),
                "logged_samples": len(attempts),
                "scores": [score_of(results, name) for name in scorers_of(results)],
            },
            "stats": {
                "started_at": moment_text(run.started_at) or "",
                "completed_at": moment_text(run.timestamp),
                "model_usage": _usages(results, attempts),
                "role_usage": _judge_usage(attempts),
            },
            "error": error,
        }
    )


def sample_of(results: Results, task: TaskResult, whole: WholeAttempt, sample_id: str) -> Plain:
    """One attempt with its messages, scores and costs."""
    attempt, model = whole.attempt, model_of(results, whole.attempt)
    name = f"{eval_id(results)}-{task.task_id}-{attempt.attempt}"
    choice = {"message": {"role": "assistant", "content": attempt.output, "model": model}, "stop_reason": "stop"}
    timeout = results.run.timeout_seconds
    if attempt.outcome is Outcome.TIMEOUT and timeout is not None:
        limit = present({"type": "time", "limit": timeout, "reason": attempt.assert_evidence})
    else:
        limit = None
    return present(
        {
            "id": sample_id,
            "epoch": attempt.attempt,
            "input": task.prompt or "",
            "target": task.expect or "",
            "messages": messages_of(task.prompt, whole.turns or (), model=model, name=name),
            "output": {"model": model, "choices": [choice], "completion": attempt.output},
            "scores": scores_of(task, attempt),
            "metadata": _sample_metadata(task, whole),
            "model_usage": _usages(results, [attempt]),
            "role_usage": _judge_usage([attempt]),
            "started_at": moment_text(attempt.started_at),
            "completed_at": moment_text(attempt.ended_at),
            "total_time": _elapsed(attempt.started_at, attempt.ended_at),
            "working_time": attempt.duration_seconds,
            "uuid": name,
            "error": _error(_why_lost(attempt)) if attempt.outcome.noise else None,
            "limit": limit,
        }
    )


def summary_of(sample: Plain) -> Plain:
    """What a list of samples shows of one."""
    copied = ("id", "epoch", "target", "model_usage", "role_usage", "started_at", "completed_at", "total_time")
    error, limit = sample.get("error"), sample.get("limit")
    return present(
        {
            **{key: sample.get(key) for key in (*copied, "working_time", "uuid")},
            "input": sample["input"][:5_000],
            "metadata": {"outcome": sample["metadata"]["outcome"]},
            "scores": {
                name: {**score, "explanation": score["explanation"][:1_000]} if "explanation" in score else score
                for name, score in sample["scores"].items()
            },
            "error": None if error is None else error["message"][:1_000],
            "limit": None if limit is None else limit["type"],
            "completed": error is None,
            "message_count": len(sample["messages"]),
        }
    )


def eval_id(results: Results) -> str:
    run = results.run
    return run.run_id or slug(f"{run.spec}-{run.timestamp:%Y%m%dT%H%M%S}-{run.backend}-{run.model}")


def model_of(results: Results, attempt: AttemptResult | None = None) -> str:
    """The engine in Inspect's way of naming models."""
    run, told = results.run, None if attempt is None else attempt.model
    return f"{run.backend}/{told or run.reported_model or run.model or 'default'}"


def _why_lost(attempt: AttemptResult) -> str:
    return (
        f"{attempt.outcome.value}: {attempt.assert_evidence or attempt.autorater_reasoning or 'no reason is recorded'}"
    )


def _error(message: str) -> Plain:
    return {"message": message, "traceback": "", "traceback_ansi": ""}


def _elapsed(began: datetime | None, ended: datetime | None) -> float | None:
    return None if began is None or ended is None else max((ended - began).total_seconds(), 0.0)


def _usages(results: Results, attempts: Sequence[AttemptResult]) -> Plain:
    """Model → what the agents used. The judge's stands apart, by its role."""
    totals: dict[str, Usage] = {}
    for attempt in attempts:
        if attempt.usage is not None:
            model = model_of(results, attempt)
            totals[model] = totals.get(model, Usage()).plus(attempt.usage)
    return {model: _usage(usage) for model, usage in totals.items()}


def _judge_usage(attempts: Sequence[AttemptResult]) -> Plain:
    told = [attempt.judge_usage for attempt in attempts if attempt.judge_usage is not None]
    total = Usage()
    for usage in told:
        total = total.plus(usage)
    return {"grader": _usage(total)} if told else {}


def _usage(usage: Usage) -> Plain:
    return present(
        {
            "input_tokens": usage.input_tokens or 0,
            "output_tokens": usage.output_tokens or 0,
            "total_tokens": usage.total_tokens or 0,
            "input_tokens_cache_write": usage.cache_creation_tokens,
            "input_tokens_cache_read": usage.cache_read_tokens,
        }
    )


def _tags(results: Results) -> list[str]:
    run = results.run
    arm = [f"without {name}" for name in run.ablated] or ["full"]
    return [*arm, *(["simulated"] if run.simulated else [])]


def _metadata(results: Results) -> Plain:
    run = results.run
    names = (
        "era ablated mcp_servers user_customizations loaded_user_customizations judge_backend judge_model "
        "judge_prompt_version cli_version judge_cli_version interrupted hook_failures simulated requested_model "
        "reported_model series_key fail_fast boundary host platform origin dagster_run_id"
    )
    skills = [
        {
            "name": skill.name,
            "source_kind": skill.source_kind,
            "git_sha": skill.git_sha,
            "digest": files_digest({path: file.hash for path, file in skill.files.items()}) if skill.files else None,
        }
        for skill in results.skill_snapshots
    ]
    return {**{name: to_plain(getattr(run, name)) for name in names.split()}, "skills": skills}


def _sample_metadata(task: TaskResult, whole: WholeAttempt) -> Plain:
    names = (
        "outcome activated activation_passed builtin_activated cheat_evidence retries judge_seconds judge_model "
        "boundary evidence generation hook_failures warnings"
    )
    told = {name: to_plain(getattr(whole.attempt, name)) for name in names.split()}
    told |= {"task_id": task.task_id, "task_name": task.task_name, "transcript_kept": whole.turns is not None}
    return {**told, "activation_expected": to_plain(task.activation_expected)}
