"""From a results file to the rows of the history, whoever wrote it: the reference product from 0.4 on, or we.

Such a file knows less than the run store: no start, no log, one verdict an attempt. What it does not say is NULL.
"""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from caliper_pipeline.domain.results import AttemptResult, Results, SkillSnapshot, TaskResult, parse_results
from caliper_pipeline.domain.skills import files_digest
from caliper_pipeline.storage.history_rows import (
    Row,
    RunRows,
    add_scores,
    headline,
    hook_failure_row,
    usage_columns,
)
from caliper_pipeline.storage.results_bytes import plain_data


def rows_of_file(data: bytes) -> RunRows:
    """The rows of one results file. ValueError says what is wrong with it."""
    content = plain_data(data)
    try:
        results = parse_results(content)
    except (TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from error
    _check_places(results)
    own_id = results.run.run_id
    run_id = own_id or _id_from_content(results, content)
    rows = rows_of_results(
        results, run_id=run_id, source_digest=hashlib.sha256(data).hexdigest(), source_bytes=len(data)
    )
    rows.id_from_content = not own_id
    return rows


def _id_from_content(results: Results, content: Any) -> str:
    """An id for a run without one; a file that was only laid out anew gives the same."""
    canonical = hashlib.sha256()
    for piece in _canonical(content, depth=6):
        canonical.update(piece.encode())
    moment = results.run.timestamp
    return f"{moment:%Y%m%dT%H%M%S}{moment.microsecond // 1000:03d}Z-{canonical.hexdigest()[:12]}"


def rows_of_results(results: Results, *, run_id: str, source_digest: str, source_bytes: int) -> RunRows:
    rows = RunRows(run_id, "file", source_bytes, source_digest)
    rows.add("runs", {**_run_row(results), **headline(results)})
    for task in results.task_results:
        _add_task(rows, task)
    _add_skills(rows, results)
    for failure in results.run.hook_failures:
        rows.add("hook_failures", hook_failure_row(failure))
    add_scores(rows, results)
    return rows


def _canonical(value: Any, depth: int) -> Iterator[str]:
    """What `json.dumps` makes of the value with sorted keys and without blanks, in pieces no longer than an attempt."""
    if depth and isinstance(value, dict) and all(isinstance(key, str) for key in value):
        yield "{"
        for number, key in enumerate(sorted(value)):
            yield f"{',' if number else ''}{json.dumps(key)}:"
            yield from _canonical(value[key], depth - 1)
        yield "}"
    elif depth and isinstance(value, list):
        yield "["
        for number, item in enumerate(value):
            if number:
                yield ","
            yield from _canonical(item, depth - 1)
        yield "]"
    else:
        yield json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))


def _check_places(results: Results) -> None:
    """Each attempt has a place of its own, or figures that join over places would count some twice. ValueError."""
    seen: set[tuple[str, int | None]] = set()
    for task in results.task_results:
        for place in [(task.task_id, None), *((task.task_id, attempt.attempt) for attempt in task.attempts)]:
            if place in seen:
                what = f"task {task.task_id}" if place[1] is None else f"attempt {place[1]} of {task.task_id}"
                raise ValueError(f"task_results: {what} is there twice")
            seen.add(place)


def _run_row(results: Results) -> Row:
    run = results.run
    series = run.series
    ungraded = sum(task.ungraded for task in results.task_results)
    return {
        "series_key": run.series_key or series.key,
        "spec": run.spec,
        "spec_path": run.spec_path,
        "spec_digest": run.spec_digest,
        "backend": run.backend,
        "model": run.asked_model,
        "engine": str(series.engine),
        "arm": series.arm,
        "ablated": run.ablated,
        "isolated": not run.user_customizations,
        "loaded_user_customizations": run.loaded_user_customizations,
        "mcp_servers": run.mcp_servers,
        "workers": run.workers,
        "timeout_seconds": run.timeout_seconds,
        "fail_fast": run.fail_fast,
        "started_utc": run.started_at,
        "ended_utc": run.timestamp,
        "status": "stopped" if run.stop_reason else "interrupted" if run.interrupted else "completed",
        "stop_reason": run.stop_reason,
        "resumes": 0,
        "simulated": run.simulated,
        "judge_backend": run.judge_backend,
        "judge_model": run.judge_model,
        "judge_prompt_version": run.judge_prompt_version,
        "cli_version": run.cli_version,
        "judge_cli_version": run.judge_cli_version,
        "product_version": run.product_version,
        "host": run.host,
        "platform": run.platform,
        "git_commit": run.git_commit,
        "git_dirty": run.git_dirty,
        "origin": "import",
        "dagster_run_id": run.dagster_run_id,
        "dagster_run_ids": [] if run.dagster_run_id is None else [run.dagster_run_id],
        "attempt_count": sum(len(task.attempts) for task in results.task_results) + ungraded,
    }


def _add_task(rows: RunRows, task: TaskResult) -> None:
    digests = task.digests  # of texts that are not in the file; those that are get their own, whatever the file says
    rows.add(
        "tasks",
        {
            "task_id": task.task_id,
            "task_name": task.task_name,
            "task_key": task.key,
            "prompt_digest": rows.add_text(task.prompt, None),
            "expect_digest": rows.add_text(task.expect, None),
            **{f"{key}_digest": digests.get(key) for key in ("assert", "setup", "cleanup", "history", "activates")},
            "activates": task.activation_expected,
            "aborted_after": len(task.attempts) if task.aborted else None,
        },
    )
    for attempt in task.attempts:
        place = {"task_id": task.task_id, "task_name": task.task_name, "attempt": attempt.attempt}
        rows.add("attempts", {**place, **_attempt_row(attempt)})
        rows.add("verdicts", {**place, **_verdict_row(attempt)})


def _attempt_row(attempt: AttemptResult) -> Row:
    return {
        "started_utc": attempt.started_at,
        "ended_utc": attempt.ended_at,
        "agent_seconds": attempt.duration_seconds,
        "output": attempt.output,  # whole: there is no evidence that holds it
        **usage_columns(attempt.usage),
        "model": attempt.model,
        "retries": attempt.retries,
        "turns": attempt.turns,
        "boundary": attempt.boundary,
        "evidence": attempt.evidence,
        "warnings": attempt.warnings,
    }


def _verdict_row(attempt: AttemptResult) -> Row:
    return {
        "generation": attempt.generation,
        "is_latest": True,
        "outcome": attempt.outcome.value,
        "usable": attempt.outcome.usable,
        "activated": attempt.activated,
        "activation_passed": attempt.activation_passed,
        "builtin_activated": attempt.builtin_activated,
        "cheat_evidence": attempt.cheat_evidence,
        "assert_passed": attempt.assert_passed,
        "assert_evidence": attempt.assert_evidence,
        "autorater_passed": attempt.autorater_passed,
        "autorater_reasoning": attempt.autorater_reasoning,
        "autorater_script": attempt.autorater_script,
        "judge_seconds": attempt.judge_seconds,
        "judge_model": attempt.judge_model,
        **usage_columns(attempt.judge_usage, "judge_"),
        "judge_retries": 0,
    }


def _add_skills(rows: RunRows, results: Results) -> None:
    for place, snapshot in enumerate(results.skill_snapshots):
        rows.add("skills", _skill_row(rows, snapshot, place))
    installed = len(results.skill_snapshots)
    for place, name in enumerate(results.run.ablated_skills, installed):
        rows.add("skills", {"skill": name, "place": place, "installed": False, "source_kind": "path"})


def _skill_row(rows: RunRows, snapshot: SkillSnapshot, place: int) -> Row:
    hashes = {path: file.hash for path, file in snapshot.files.items()}
    digest = files_digest(hashes) if hashes else None
    if digest is not None:
        rows.skill_files[digest] = hashes
    return {
        "skill": snapshot.name,
        "place": place,
        "installed": True,
        "path": snapshot.path,
        "description": snapshot.description,
        "source_kind": snapshot.source_kind,
        "digest": digest,
        "git_repo": snapshot.git_repo,
        "git_sha": snapshot.git_sha,
        "git_dirty": snapshot.git_dirty,
    }
