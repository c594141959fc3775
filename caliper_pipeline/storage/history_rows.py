"""From a run in the store to its rows of the history. Plain Python: nothing is opened here."""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.records import (
    AbortedRecord,
    AttemptRecord,
    EndRecord,
    HookFailure,
    Line,
    Outcome,
    ResumeRecord,
    RunHeader,
    SkillHeader,
    TaskHeader,
    VerdictRecord,
)
from caliper_pipeline.domain.results import Results, TaskResult, assemble, usage_totals
from caliper_pipeline.domain.series import Series
from caliper_pipeline.domain.statistics import Interval
from caliper_pipeline.domain.transcript import Usage
from caliper_pipeline.storage.runs import KEPT_OUTPUT, RunFolder

Row = dict[str, Any]


@dataclass(slots=True)
class RunRows:
    """All rows of one run, by table."""

    run_id: str
    source: str
    """`run_store` or `file`."""
    source_bytes: int
    source_digest: str | None = None
    tables: dict[str, list[Row | Callable[[], Row]]] = field(default_factory=dict)
    """A row, or what makes it: of those that a run has by the thousand only a few exist at a time."""
    texts: dict[str, str] = field(default_factory=dict)
    """sha256 → text."""
    skill_files: dict[str, dict[str, str]] = field(default_factory=dict)
    """A skill's digest → path → hash."""

    def add(self, table: str, row: Row) -> None:
        self.tables.setdefault(table, []).append({"run_id": self.run_id, **row})

    def add_later(self, table: str, make: Callable[[], Row]) -> None:
        self.tables.setdefault(table, []).append(lambda: {"run_id": self.run_id, **make()})

    def add_text(self, text: str | None, digest: str | None) -> str | None:
        """Keeps the text and gives its digest; without a text the digest as it is."""
        if text is None:
            return digest
        digest = digest or hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        self.texts[digest] = text
        return digest


def rows_of_run(run: RunFolder) -> RunRows | None:
    """The rows of a run as far as it has come. `None`: there is nothing of it yet."""
    size = run.log.size()  # before reading: what comes while we read makes the next look worth while
    header = run.header()
    lines = [_shortened(line) for line in run.lines()]
    if not lines:
        return None
    end = lines[-1] if isinstance(lines[-1], EndRecord) else None
    results = assemble(header, lines, ended_at=_last_moment(header, lines))
    rows = RunRows(header.run_id, "run_store", size)
    rows.add("runs", {**_header_row(rows, header), **_log_row(lines, end), **headline(results)})
    aborted = {line.task_id: line.after_attempt for line in lines if isinstance(line, AbortedRecord)}
    for task in header.tasks:
        rows.add("tasks", {**_task_row(rows, task), "aborted_after": aborted.get(task.task_id)})
    for place, skill in enumerate(header.skills):
        rows.add("skills", _skill_row(rows, skill, place))
    for place, resumed in enumerate((line for line in lines if isinstance(line, ResumeRecord)), 1):
        rows.add("resumes", {"place": place, "resumed_utc": resumed.resumed_at, "k": resumed.k, "pid": resumed.pid})
    _add_lines(rows, lines)
    add_scores(rows, results)
    return rows


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


def hook_failure_row(failure: HookFailure) -> Row:
    return {
        "task_id": failure.task_id,
        "task_name": failure.task_name,
        "attempt": failure.attempt,
        "phase": failure.phase,
        "exit_code": failure.exit_code,
        "output": failure.output,
    }


def usage_columns(usage: Usage | None, prefix: str = "") -> Row:
    counts = (None,) * 4 if usage is None else usage.counts()
    names = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_creation_tokens")
    return {f"{prefix}has_usage": usage is not None} | {
        f"{prefix}{name}": count for name, count in zip(names, counts, strict=True)
    }


def interval_columns(name: str, interval: Interval | None) -> Row:
    return {
        f"{name}_low": None if interval is None else interval.low,
        f"{name}_high": None if interval is None else interval.high,
    }


def _shortened(line: Line) -> Line:
    if isinstance(line, AttemptRecord) and len(line.output) > KEPT_OUTPUT:
        return replace(line, output=line.output[-KEPT_OUTPUT:])
    return line


def _last_moment(header: RunHeader, lines: Sequence[Line]) -> datetime:
    moments = [header.started_at]
    for line in lines:
        match line:
            case AttemptRecord() | EndRecord():
                moments.append(line.ended_at)
            case VerdictRecord() if line.graded_at is not None:
                moments.append(line.graded_at)
    return max(moments)


def _header_row(rows: RunRows, header: RunHeader) -> Row:
    series = Series(header.spec, Engine(header.backend, header.model), header.ablated, header.isolated)
    return {
        "series_key": header.series_key,
        "spec": header.spec,
        "spec_path": header.spec_path,
        "spec_digest": rows.add_text(header.spec_text, header.spec_digest),
        "backend": header.backend,
        "model": header.model,
        "engine": str(series.engine),
        "arm": series.arm,
        "ablated": header.ablated,
        "isolated": header.isolated,
        "loaded_user_customizations": header.loaded_user_customizations,
        "mcp_servers": header.mcp_servers,
        "forbidden_files": header.forbidden_files,
        "workers": header.workers,
        "timeout_seconds": header.timeout_seconds,
        "fail_fast": header.fail_fast,
        "limits": json.dumps(header.limits),
        "started_utc": header.started_at,
        "simulated": header.simulated,
        "judge_backend": header.judge_backend,
        "judge_model": header.judge_model,
        "judge_prompt_version": header.judge_prompt_version,
        "cli_version": header.cli_version,
        "judge_cli_version": header.judge_cli_version,
        "product_version": header.product_version,
        "python_version": header.python_version,
        "host": header.host,
        "platform": header.platform,
        "cpu_count": header.cpu_count,
        "git_commit": header.git_commit,
        "git_dirty": header.git_dirty,
        "origin": header.origin,
        "dagster_run_id": header.dagster_run_id,
        "dagster_run_ids": [] if header.dagster_run_id is None else [header.dagster_run_id],
        "pid": header.pid,
        "header_schema": header.schema,
    }


def _log_row(lines: Sequence[Line], end: EndRecord | None) -> Row:
    attempts = {(line.task_id, line.attempt) for line in lines if isinstance(line, AttemptRecord)}
    files = [line.results for line in lines if isinstance(line, EndRecord) and line.results]
    return {
        "ended_utc": None if end is None else end.ended_at,
        "status": None if end is None else end.status,
        "stop_reason": None if end is None else end.reason,
        "resumes": sum(isinstance(line, ResumeRecord) for line in lines),
        "attempt_count": len(attempts),
        "results_file": files[-1] if files else None,
    }


def _task_row(rows: RunRows, task: TaskHeader) -> Row:
    texts = {
        "prompt": task.prompt,
        "expect": task.expect,
        "assert": task.assert_script,
        "setup": task.setup,
        "cleanup": task.cleanup,
        "history": task.history,
    }
    return {
        "task_id": task.task_id,
        "task_name": task.name,
        "task_key": task.key,
        **{f"{key}_digest": rows.add_text(text, task.digests.get(key)) for key, text in texts.items()},
        "activates_digest": task.digests.get("activates"),
        "assert_path": task.assert_path,
        "activates": task.activates,
    }


def _skill_row(rows: RunRows, skill: SkillHeader, place: int) -> Row:
    if skill.files:
        rows.skill_files[skill.digest] = skill.files
    return {
        "skill": skill.name,
        "place": place,
        "installed": skill.installed,
        "path": skill.path,
        "description": skill.description,
        "source_kind": skill.source_kind,
        "digest": skill.digest,
        "git_repo": skill.git_repo,
        "git_sha": skill.git_sha,
        "git_dirty": skill.git_dirty,
    }


def _add_lines(rows: RunRows, lines: Iterable[Line]) -> None:
    attempts: dict[tuple[str, int], AttemptRecord] = {}
    verdicts: dict[tuple[str, int, int], VerdictRecord] = {}
    for line in lines:
        match line:
            case AttemptRecord():
                attempts[line.task_id, line.attempt] = line
            case VerdictRecord():
                verdicts[line.task_id, line.attempt, line.generation] = line
            case HookFailure():
                rows.add("hook_failures", hook_failure_row(line))
    for attempt in attempts.values():
        rows.add_later("attempts", partial(_attempt_row, attempt))
    latest: dict[tuple[str, int], int] = {}
    for task_id, number, generation in verdicts:
        latest[task_id, number] = max(generation, latest.get((task_id, number), generation))
    for (task_id, number, generation), verdict in verdicts.items():
        rows.add_later("verdicts", partial(_verdict_row, verdict, latest[task_id, number] == generation))


def _attempt_row(record: AttemptRecord) -> Row:
    return {
        "task_id": record.task_id,
        "task_name": record.task_name,
        "attempt": record.attempt,
        "started_utc": record.started_at,
        "ended_utc": record.ended_at,
        "agent_seconds": record.agent_seconds,
        "setup_seconds": record.setup_seconds,
        "exit_code": record.exit_code,
        "timed_out": record.timed_out,
        "setup_error": record.setup_error,
        "error": record.error,
        "spoke": record.spoke,
        "output": record.output,
        **usage_columns(record.usage),
        "model": record.model,
        "retries": record.retries,
        "turns": record.turns,
        "boundary": record.boundary,
        "evidence": record.evidence,
        "snapshot_files": record.snapshot_files,
        "snapshot_left_out": record.snapshot_left_out,
        "warnings": record.warnings,
    }


def _verdict_row(record: VerdictRecord, is_latest: bool) -> Row:
    return {
        "task_id": record.task_id,
        "task_name": record.task_name,
        "attempt": record.attempt,
        "generation": record.generation,
        "outcome": record.outcome.value,
        "usable": record.outcome.usable,
        "graded_utc": record.graded_at,
        "activated": record.activated,
        "activation_passed": record.activation_passed,
        "builtin_activated": record.builtin_activated,
        "cheat_evidence": record.cheat_evidence,
        "assert_passed": record.assert_passed,
        "assert_evidence": record.assert_evidence,
        "autorater_passed": record.autorater_passed,
        "autorater_reasoning": record.autorater_reasoning,
        "judge_seconds": record.judge_seconds,
        "judge_model": record.judge_model,
        **usage_columns(record.judge_usage, "judge_"),
        "judge_retries": record.judge_retries,
        "is_latest": is_latest,
    }


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
        "pass_at_k": scored.pass_at_k,
        "pass_hat_k": scored.pass_hat_k,
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
        "agent_seconds": math.fsum(attempt.duration_seconds for attempt in task.attempts),
        "unusable_seconds": math.fsum(attempt.duration_seconds for attempt in lost),
        "judge_seconds": math.fsum(judged) if judged else None,
        "retries": sum(attempt.retries for attempt in task.attempts),
    }
