"""From a run in the store to its rows of the history. Plain Python: nothing is opened here.

Long texts stay in the evidence, to which each attempt's row leads. The row holds what one wants to see of an attempt
that did not pass: the end of its answer, and why; of one that passed only what is short. A million attempts with all
they said would take six times the room, and that room is copied and read by everybody who asks for a rate.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.plain import to_plain
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
from caliper_pipeline.domain.results import assemble
from caliper_pipeline.domain.series import Series
from caliper_pipeline.domain.transcript import Usage
from caliper_pipeline.storage.files import json_bytes
from caliper_pipeline.storage.run_rows import Row, RunRows
from caliper_pipeline.storage.runs import KEPT_OUTPUT, RunFolder
from caliper_pipeline.storage.score_rows import add_scores, headline, seconds

__all__ = ["Row", "RunRows", "add_scores", "headline", "hook_failure_row", "rows_of_run", "usage_columns"]

ANSWER_END = 60
REASON = 120
SHORT = 40
"""Characters of an answer, of a reason, and of what is short enough to be kept whole of any attempt."""


def rows_of_run(run: RunFolder) -> RunRows | None:
    """The rows of a run as far as it has come. `None`: there is nothing of it yet."""
    size = run.log.size()  # before reading: what comes while we read makes the next look worth while
    header = run.header()
    lines = [_shortened(line) for line in run.lines()]
    if not lines:
        return None
    end = _end(lines)
    results = assemble(header, lines, ended_at=_last_moment(header, lines))
    rows = RunRows(header.run_id, "run_store", size)
    resumes = [line for line in lines if isinstance(line, ResumeRecord)]
    dagster_runs = {"dagster_run_ids": _dagster_runs(header, resumes)}
    rows.add("runs", {**_header_row(rows, header), **_log_row(lines, end), **headline(results), **dagster_runs})
    aborted = {line.task_id: line.after_attempt for line in lines if isinstance(line, AbortedRecord)}
    for task in header.tasks:
        rows.add("tasks", {**_task_row(rows, task), "aborted_after": aborted.get(task.task_id)})
    for place, skill in enumerate(header.skills):
        rows.add("skills", _skill_row(rows, skill, place))
    for place, resumed in enumerate(resumes, 1):
        rows.add("resumes", _resume_row(resumed, place))
    _add_lines(rows, lines)
    add_scores(rows, results)
    return rows


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


def _shortened(line: Line) -> Line:
    if isinstance(line, AttemptRecord) and len(line.output) > KEPT_OUTPUT:
        return replace(line, output=line.output[-KEPT_OUTPUT:])
    return line


def _end(lines: Iterable[Line]) -> EndRecord | None:
    """Its last end, unless it was taken up again since; verdicts of a regrading may follow it."""
    end: EndRecord | None = None
    for line in lines:
        match line:
            case EndRecord():
                end = line
            case ResumeRecord():
                end = None
    return end


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
        "limits": json_bytes(header.limits).decode(),
        "prices": json_bytes(to_plain(header.prices)).decode() if header.prices else None,
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


def _dagster_runs(header: RunHeader, resumes: Iterable[ResumeRecord]) -> list[str]:
    """Each once, in the order in which they worked on it."""
    found = dict.fromkeys([header.dagster_run_id, *(resumed.dagster_run_id for resumed in resumes)])
    return [run_id for run_id in found if run_id is not None]


def _resume_row(resumed: ResumeRecord, place: int) -> Row:
    return {
        "place": place,
        "resumed_utc": resumed.resumed_at,
        "k": resumed.k,
        "pid": resumed.pid,
        "dagster_run_id": resumed.dagster_run_id,
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
    latest: dict[tuple[str, int], int] = {}
    for task_id, number, generation in verdicts:
        latest[task_id, number] = max(generation, latest.get((task_id, number), generation))
    for place, attempt in attempts.items():
        verdict = verdicts.get((*place, latest.get(place, 0)))
        rows.add_later("attempts", partial(_attempt_row, attempt, passed=_well(verdict)))
    for (task_id, number, generation), verdict in verdicts.items():
        rows.add_later("verdicts", partial(_verdict_row, verdict, latest[task_id, number] == generation))


def _well(verdict: VerdictRecord | None) -> bool:
    """Nobody will ask why."""
    return verdict is not None and verdict.outcome in (Outcome.PASS, Outcome.NOT_CHECKED)


def _answer(text: str, *, passed: bool) -> str | None:
    if len(text) <= SHORT:
        return text
    return None if passed else text[-ANSWER_END:]


def _reason(text: str | None, *, passed: bool, end: bool = False) -> str | None:
    if text is None or len(text) <= SHORT:
        return text
    return None if passed else text[-REASON:] if end else text[:REASON]


def _attempt_row(record: AttemptRecord, *, passed: bool) -> Row:
    return {
        "task_id": record.task_id,
        "task_name": record.task_name,
        "attempt": record.attempt,
        "started_utc": record.started_at,
        "ended_utc": record.ended_at,
        "agent_seconds": seconds(record.agent_seconds),
        "setup_seconds": seconds(record.setup_seconds),
        "exit_code": record.exit_code,
        "timed_out": record.timed_out,
        "setup_error": record.setup_error,
        "error": _reason(record.error, passed=passed),
        "spoke": record.spoke,
        "output": _answer(record.output, passed=passed),
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
    well = _well(record)
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
        "assert_evidence": _reason(record.assert_evidence, passed=well, end=True),
        "judge_backend": record.judge_backend,
        "judge_prompt_version": record.judge_prompt_version,
        "autorater_passed": record.autorater_passed,
        # One reason is enough: of an attempt that failed its assert too, the assert's.
        "autorater_reasoning": _reason(record.autorater_reasoning, passed=well or bool(record.assert_evidence)),
        "judge_seconds": seconds(record.judge_seconds),
        "judge_model": record.judge_model,
        **usage_columns(record.judge_usage, "judge_"),
        "judge_retries": record.judge_retries,
        "is_latest": is_latest,
    }
