"""What the UI shows beside each materialization: pure functions from records and results to metadata.

A fact that is not known has no entry. What agents, judges and authors wrote is shown as text, never as Markdown, and
cut; the evidence folder has it whole. Numbers keep one name everywhere, since Dagster plots them by name.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from dagster import MetadataValue

from caliper_pipeline.defs import tables
from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.records import (
    AttemptRecord,
    Outcome,
    RunHeader,
    SkillHeader,
    TaskHeader,
    VerdictRecord,
)
from caliper_pipeline.domain.results import Results, TaskResult, usage_totals
from caliper_pipeline.domain.series import FULL_ARM
from caliper_pipeline.domain.statistics import Interval
from caliper_pipeline.domain.transcript import Usage

TEXT_CHARS = 1_500


class SpecFacts(Protocol):
    """A spec with its skills, whether a run recorded it or it was just read."""

    @property
    def spec_text(self) -> str: ...
    @property
    def spec_digest(self) -> str: ...
    @property
    def spec_path(self) -> str: ...
    @property
    def tasks(self) -> tuple[TaskHeader, ...]: ...
    @property
    def skills(self) -> tuple[SkillHeader, ...]: ...
    @property
    def git_commit(self) -> str | None: ...
    @property
    def git_dirty(self) -> bool | None: ...


Metadata = dict[str, MetadataValue]
_Raw = MetadataValue | str | int | float | bool | None


def engine_of(header: RunHeader) -> str:
    return str(Engine(header.backend, header.model))


def arm_of(header: RunHeader) -> str:
    return "+".join(header.ablated) or FULL_ARM


def origin_metadata(header: RunHeader) -> Metadata:
    """Which run this is from, so that a partition's page tells what it shows."""
    return _known(
        run=header.run_id,
        engine=engine_of(header),
        arm=arm_of(header),
        isolated=header.isolated,
        simulated=header.simulated,
    )


def attempt_metadata(header: RunHeader, run_folder: Path, record: AttemptRecord) -> Metadata:
    return _known(
        ended=MetadataValue.timestamp(record.ended_at),
        seconds=record.agent_seconds,
        setup_seconds=record.setup_seconds,
        **_tokens(record.usage),
        model=record.model,
        turns=record.turns,
        retries=record.retries or None,
        exit_code=record.exit_code,
        timed_out=record.timed_out or None,
        error=_text(record.setup_error or record.error),
        answer=_text(record.output),
        warnings=_text("\n".join(record.warnings)),
        boundary=record.boundary,
        workdir_files=record.snapshot_files,
        workdir_files_left_out=record.snapshot_left_out or None,
        evidence=_path(run_folder, record.evidence),
    ) | origin_metadata(header)


def verdict_metadata(
    header: RunHeader, run_folder: Path, verdict: VerdictRecord, attempt: AttemptRecord | None
) -> Metadata:
    """`attempt` is what was judged; without it the figures of the agent are left out."""
    usage = attempt.usage if attempt is not None else None
    return _known(
        outcome=str(verdict.outcome),
        passed=int(verdict.outcome is Outcome.PASS) if verdict.outcome.usable else None,
        activated=None if verdict.activated is None else ", ".join(verdict.activated) or "nothing",
        activation_passed=verdict.activation_passed,
        builtin_activated=", ".join(verdict.builtin_activated or ()) or None,
        assert_passed=verdict.assert_passed,
        assert_evidence=_text(verdict.assert_evidence),
        judge_passed=verdict.autorater_passed,
        judge_reasoning=_text(verdict.autorater_reasoning),
        judge_model=verdict.judge_model,
        judge_seconds=verdict.judge_seconds,
        judge_tokens=verdict.judge_usage.total_tokens if verdict.judge_usage is not None else None,
        cheat_evidence=_text("\n".join(verdict.cheat_evidence)),
        seconds=attempt.agent_seconds if attempt is not None else None,
        tokens=usage.total_tokens if usage is not None else None,
        generation=verdict.generation,
        evidence=_path(run_folder, attempt.evidence if attempt is not None else ""),
    ) | origin_metadata(header)


def score_metadata(header: RunHeader, task: TaskResult, verdict_lines: int) -> Metadata:
    score = task.scored
    seconds = [attempt.duration_seconds for attempt in task.attempts if not attempt.outcome.noise]
    tokens = [
        attempt.usage.total_tokens
        for attempt in task.attempts
        if attempt.usage is not None and attempt.usage.total_tokens is not None and not attempt.outcome.noise
    ]
    return _known(
        success=tables.rate_text(score.score, score.interval),
        success_rate=score.score,
        **_interval("success", score.interval),
        attempts=len(task.attempts),
        successes=score.successes,
        usable=score.usable,
        unusable=score.unusable,
        pass_at_k=score.pass_at_k,
        pass_hat_k=score.pass_hat_k,
        activation_rate=score.activation_score,
        **_interval("activation", score.activation_interval),
        activation_expected=None
        if score.activation_expected is None
        else ", ".join(score.activation_expected) or "nothing",
        seconds_per_attempt=sum(seconds) / len(seconds) if seconds else None,
        tokens_per_attempt=round(sum(tokens) / len(tokens)) if tokens else None,
        given_up=task.aborted or None,
        attempts_table=MetadataValue.md(tables.attempts_table(task.attempts)),
        prompt=_text(task.prompt),
        verdict_lines=verdict_lines,
    ) | origin_metadata(header)


def scoreboard_metadata(header: RunHeader, results: Results, results_path: Path | None, verdict_lines: int) -> Metadata:
    """The headline of a run, and its tasks as a table."""
    run, total, cost = results.run, results.aggregate, usage_totals(results)
    return _known(
        success=tables.rate_text(total.avg_score, total.interval),
        success_rate=total.avg_score,
        **_interval("success", total.interval),
        tasks=MetadataValue.md(tables.tasks_table(results)),
        attempts=cost.attempts,
        usable=total.usable,
        unusable=cost.unusable_attempts,
        scored_tasks=total.scored_tasks,
        activation_rate=total.avg_activation_score,
        **_interval("activation", total.activation_interval),
        skills=MetadataValue.md(tables.skills_table(results)) if total.per_skill else None,
        tokens=cost.total_tokens if cost.tokens_reported else None,
        tokens_per_attempt=cost.tokens_per_attempt,
        agent_seconds=cost.wall_seconds,
        seconds_per_attempt=cost.wall_per_attempt,
        judge_seconds=cost.judge_seconds if cost.judged_attempts else None,
        wall_seconds=None if run.started_at is None else (run.timestamp - run.started_at).total_seconds(),
        started=None if run.started_at is None else MetadataValue.timestamp(run.started_at),
        k=run.k,
        interrupted=run.interrupted or None,
        stopped_because=_text(run.stop_reason),
        failed_hooks=len(run.hook_failures) or None,
        model=run.reported_model,
        cli_version=run.cli_version,
        judge=_judge(header),
        spec_digest=header.spec_digest,
        git_commit=_commit(header.git_commit, header.git_dirty),
        results=None if results_path is None else MetadataValue.path(str(results_path)),
        verdict_lines=verdict_lines,
    ) | origin_metadata(header)


def eval_run_metadata(header: RunHeader, results: Results) -> Metadata:
    """The headline again, for those who follow runs and not series."""
    total, cost = results.aggregate, usage_totals(results)
    return _known(
        success=tables.rate_text(total.avg_score, total.interval),
        success_rate=total.avg_score,
        **_interval("success", total.interval),
        tasks=MetadataValue.md(tables.tasks_table(results)),
        spec=header.spec,
        series=header.series_key,
        attempts=cost.attempts,
        usable=total.usable,
        unusable=cost.unusable_attempts,
        tokens=cost.total_tokens if cost.tokens_reported else None,
    ) | origin_metadata(header)


def spec_metadata(spec: SpecFacts) -> Metadata:
    return _known(
        tasks=len(spec.tasks),
        task_table=MetadataValue.md(tables.spec_table(spec.tasks)),
        skills=", ".join(skill.name for skill in spec.skills) or "none",
        spec=MetadataValue.md(tables.fenced(spec.spec_text, "yaml")),
        digest=spec.spec_digest,
        path=MetadataValue.path(spec.spec_path),
        git_commit=_commit(spec.git_commit, spec.git_dirty),
    )


def skill_sources_metadata(skills: Sequence[SkillHeader]) -> Metadata:
    rows = [
        [
            skill.name,
            "yes" if skill.installed else "no, ablated",
            str(len(skill.files)),
            skill.digest[:12],
            _commit(skill.git_sha, skill.git_dirty) or "—",
            skill.path,
        ]
        for skill in skills
    ]
    files = [[skill.name, name, digest] for skill in skills for name, digest in sorted(skill.files.items())]
    return _known(
        skills=len(skills),
        sources=MetadataValue.md(tables.table(["skill", "installed", "files", "digest", "commit", "source"], rows)),
        files=MetadataValue.md(tables.table(["skill", "file", "sha256"], files[:500])),
    )


def _judge(header: RunHeader) -> str | None:
    if header.judge_backend is None:
        return None
    return str(Engine(header.judge_backend, header.judge_model))


def _tokens(usage: Usage | None) -> dict[str, _Raw]:
    if usage is None:
        return {}
    return {
        "tokens": usage.total_tokens,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_creation_tokens": usage.cache_creation_tokens,
    }


def _interval(name: str, interval: Interval | None) -> dict[str, _Raw]:
    """Only the ends: the level and the method are the same everywhere and stand in the asset's description."""
    return {} if interval is None else {f"{name}_low": interval.low, f"{name}_high": interval.high}


def _commit(commit: str | None, dirty: bool | None) -> str | None:
    return None if commit is None else commit[:12] + (" with uncommitted changes" if dirty else "")


def _path(run_folder: Path, evidence: str) -> MetadataValue | None:
    return MetadataValue.path(str(run_folder / evidence)) if evidence else None


def _text(text: str | None) -> str | None:
    if not text:
        return None
    return text if len(text) <= TEXT_CHARS else text[:TEXT_CHARS] + " …"


def _known(**values: _Raw) -> Metadata:
    return {name: _value(value) for name, value in values.items() if value is not None}


def _value(value: MetadataValue | str | int | float | bool) -> MetadataValue:
    """Numbers with four decimals: enough for a rate and for a second, and what one can read."""
    if isinstance(value, bool):
        return MetadataValue.bool(value)
    if isinstance(value, int):
        return MetadataValue.int(value)
    if isinstance(value, float):
        return MetadataValue.float(round(value, 4))
    return MetadataValue.text(value) if isinstance(value, str) else value
