"""The results of a run from its header and its lines."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime

from caliper_pipeline.domain.records import (
    AbortedRecord,
    AttemptRecord,
    EndRecord,
    HookFailure,
    Line,
    ResumeRecord,
    RunHeader,
    TaskHeader,
    VerdictRecord,
)
from caliper_pipeline.domain.results.values import (
    ERA,
    AttemptResult,
    Results,
    RunInfo,
    SkillSnapshot,
    SnapshotFile,
    TaskResult,
)
from caliper_pipeline.domain.scoring import combine, score_task


def assemble(
    header: RunHeader,
    lines: Iterable[Line],
    *,
    ended_at: datetime,
    interrupted: bool | None = None,
    stop_reason: str | None = None,
    output_limit: int | None = None,
) -> Results:
    """The results of what the lines tell, without transcripts.

    `interrupted` says whether planned attempts were kept from running; `None`: told by the end line, or, where there
    is none, by what is missing. `output_limit` keeps only the end of each answer, so that memory stays small.
    """
    log = _Log()
    for line in lines:
        log.take(line, output_limit)
    k = max(header.k, log.k)
    withheld = any(not name.startswith("mcp:") for name in header.ablated)
    tasks = sorted((_task(task, log, k, withheld) for task in header.tasks), key=lambda task: task.task_id)
    installed = [skill for skill in header.skills if skill.installed]
    attempts = [attempt for task in tasks for attempt in task.attempts]
    if interrupted is None:
        if log.end is not None:
            interrupted = log.end.status != "completed"
        else:
            interrupted = any(len(task.attempts) < k and not task.aborted for task in tasks)
    reported = _most_frequent(attempt.model for attempt in attempts)
    boundaries = sorted({attempt.boundary for attempt in attempts if attempt.boundary})
    run = RunInfo(
        spec=header.spec,
        timestamp=ended_at,
        k=k,
        backend=header.backend,
        model=header.model or reported,
        era=ERA,
        ablated=tuple(sorted(set(header.ablated))),
        mcp_servers=header.mcp_servers,
        user_customizations=not header.isolated,
        loaded_user_customizations=header.loaded_user_customizations,
        judge_backend=header.judge_backend,
        judge_model=_most_frequent(attempt.judge_model for attempt in attempts) or header.judge_model,
        judge_prompt_version=header.judge_prompt_version,
        cli_version=header.cli_version,
        judge_cli_version=header.judge_cli_version,
        interrupted=interrupted,
        hook_failures=tuple(
            sorted((failure for found in log.hook_failures.values() for failure in found.values()), key=_hook_order)
        ),
        run_id=header.run_id,
        started_at=header.started_at,
        simulated=header.simulated,
        requested_model=header.model,
        reported_model=reported,
        series_key=header.series_key,
        workers=header.workers,
        timeout_seconds=header.timeout_seconds,
        fail_fast=header.fail_fast,
        boundary="+".join(boundaries) or None,
        stop_reason=stop_reason or (log.end.reason if log.end is not None else None),
        spec_path=header.spec_path,
        spec_digest=header.spec_digest,
        product_version=header.product_version or None,
        host=header.host or None,
        platform=header.platform or None,
        git_commit=header.git_commit,
        git_dirty=header.git_dirty,
        origin=header.origin,
        dagster_run_id=header.dagster_run_id,
    )
    snapshots = tuple(
        SkillSnapshot(
            name=skill.name,
            path=skill.path,
            source_kind=skill.source_kind,
            git_repo=skill.git_repo,
            git_sha=skill.git_sha,
            files={path: SnapshotFile(digest) for path, digest in sorted(skill.files.items())},
            git_dirty=skill.git_dirty,
            description=skill.description,
        )
        for skill in installed
    )
    scored = combine([(task.scored, task.attempts) for task in tasks], [skill.name for skill in installed])
    return Results(run=run, skill_snapshots=snapshots, task_results=tuple(tasks), aggregate=scored)


@dataclass(slots=True)
class _Log:
    """What a run's lines come to, the latest word on each thing."""

    attempts: dict[str, dict[int, AttemptRecord]] = field(default_factory=dict)
    """Task id → number → record."""
    verdicts: dict[tuple[str, int], VerdictRecord] = field(default_factory=dict)
    hook_failures: dict[tuple[str, int], dict[str, HookFailure]] = field(default_factory=dict)
    """(Task id, number) → phase → failure."""
    aborted: set[str] = field(default_factory=set)
    end: EndRecord | None = None
    k: int = 0

    def take(self, line: Line, output_limit: int | None) -> None:
        match line:
            case AttemptRecord():
                if output_limit is not None and len(line.output) > output_limit:
                    line = _shortened(line, output_limit)
                self.attempts.setdefault(line.task_id, {})[line.attempt] = line
            case VerdictRecord():
                known = self.verdicts.get((line.task_id, line.attempt))
                if known is None or known.generation <= line.generation:
                    self.verdicts[line.task_id, line.attempt] = line
            case HookFailure():
                self.hook_failures.setdefault((line.task_id, line.attempt), {})[line.phase] = line
            case AbortedRecord():
                self.aborted.add(line.task_id)
            case ResumeRecord():
                self.k, self.end = line.k, None
                self.aborted.clear()
            case EndRecord():
                self.end = line


def _task(header: TaskHeader, log: _Log, k: int, activation_withheld: bool) -> TaskResult:
    records = [record for _, record in sorted(log.attempts.get(header.task_id, {}).items())]
    attempts = tuple(
        _attempt(record, verdict, log)
        for record in records
        if (verdict := log.verdicts.get((record.task_id, record.attempt))) is not None
    )
    checks = tuple(
        name for name, given in (("assert", header.assert_script), ("expect", header.expect)) if given is not None
    )
    expected = None if activation_withheld else header.activates
    return TaskResult(
        task_id=header.task_id,
        task_name=header.name,
        attempts=attempts,
        scored=score_task(header.task_id, header.name, attempts, expected, checked=bool(checks)),
        activation_expected=expected,
        expect=header.expect,
        prompt=header.prompt,
        key=header.key,
        checks=checks,
        aborted=header.task_id in log.aborted and len(records) < k,
        ungraded=len(records) - len(attempts),
        digests=header.digests,
    )


def _attempt(record: AttemptRecord, verdict: VerdictRecord, log: _Log) -> AttemptResult:
    failures = log.hook_failures.get((record.task_id, record.attempt), {}).values()
    return AttemptResult(
        attempt=record.attempt,
        output=record.output,
        duration_seconds=record.agent_seconds,
        outcome=verdict.outcome,
        hook_failures=tuple(sorted(failures, key=_hook_order)),
        usage=record.usage,
        cheat_evidence=verdict.cheat_evidence,
        activated=verdict.activated,
        activation_passed=verdict.activation_passed,
        builtin_activated=verdict.builtin_activated,
        assert_passed=verdict.assert_passed,
        assert_evidence=verdict.assert_evidence,
        autorater_passed=verdict.autorater_passed,
        autorater_reasoning=verdict.autorater_reasoning,
        judge_seconds=verdict.judge_seconds,
        retries=record.retries,
        started_at=record.started_at,
        ended_at=record.ended_at,
        model=record.model,
        judge_model=verdict.judge_model,
        judge_usage=verdict.judge_usage,
        generation=verdict.generation,
        boundary=record.boundary,
        evidence=record.evidence or None,
        turns=record.turns,
        warnings=record.warnings,
    )


def _shortened(record: AttemptRecord, limit: int) -> AttemptRecord:
    return replace(record, output=record.output[-limit:])


def _hook_order(failure: HookFailure) -> tuple[str, int, str]:
    return (failure.task_id, failure.attempt, failure.phase)


def _most_frequent(models: Iterable[str | None]) -> str | None:
    """The commonest name; of several equally common ones the first by alphabet."""
    counts = Counter(model for model in models if model)
    return min(counts, key=lambda name: (-counts[name], name)) if counts else None
