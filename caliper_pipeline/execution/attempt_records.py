"""The records of an attempt, from what its steps and invocations gave. Pure: nothing is run or stored here."""

import re
import traceback
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from caliper_pipeline.domain.records import AttemptRecord, HookFailure, Outcome, TaskHeader, VerdictRecord
from caliper_pipeline.domain.transcript import AgentReply, Usage
from caliper_pipeline.execution.backends.base import Refusal
from caliper_pipeline.execution.command import ProcessResult

HOOK_OUTPUT_CHARS = 4_000
OUTPUT_CHARS = 32_768
_NOT_STARTED = 127
"""What shells say of a command that could not be started: a hook's exit code, when it has none of its own."""
_THINKING = re.compile(r":(?:off|minimal|low|medium|high|xhigh|max)\Z")


@dataclass(slots=True)
class AgentCalls:
    """What all invocations of one attempt gave together."""

    replies: list[AgentReply] = field(default_factory=list)
    results: list[ProcessResult] = field(default_factory=list)
    refusal: Refusal | None = None
    """Of the last invocation."""
    hopeless: bool = False
    """Throttled once too often: every further attempt would only be lost too."""


def attempt_record(
    task: TaskHeader,
    attempt: int,
    calls: AgentCalls,
    *,
    started: datetime,
    setup_seconds: float | None,
    asked_model: str | None,
    stream_bytes: int,
) -> AttemptRecord:
    """What is known of an attempt from its invocations. `asked_model`: warn when another one answered."""
    last, reply = calls.results[-1], calls.replies[-1]
    usage: Usage | None = None
    for item in calls.replies:
        if item.usage is not None:
            usage = item.usage if usage is None else usage.plus(item.usage)
    warnings = [text for item in calls.replies[-1:] for text in item.warnings]
    if reply.model is not None and asked_model is not None:
        warnings += _model_warning(asked_model, reply.model)
    return AttemptRecord(
        task_id=task.task_id,
        task_name=task.name,
        attempt=attempt,
        started_at=started,
        ended_at=datetime.now(UTC),
        agent_seconds=round(sum(result.wall_seconds for result in calls.results), 6),
        setup_seconds=setup_seconds,
        exit_code=last.exit_code,
        timed_out=last.timed_out or last.ended_because is not None,
        error=last.ended_because or _error(last, reply, calls.refusal) or _lost_end(last, reply, stream_bytes),
        spoke=any(item.spoke for item in calls.replies),
        output=reply.final_answer[:OUTPUT_CHARS],
        usage=usage,
        model=next((item.model for item in reversed(calls.replies) if item.model is not None), None),
        retries=len(calls.results) - 1,
        turns=sum(len(item.turns) for item in calls.replies),
        warnings=tuple(warnings),
    )


def internal_error(task: TaskHeader, attempt: int, started: datetime, error: Exception) -> AttemptRecord:
    """The record of an attempt in which this program itself failed: one attempt is lost, never the run."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    return AttemptRecord(
        task_id=task.task_id,
        task_name=task.name,
        attempt=attempt,
        started_at=started,
        ended_at=datetime.now(UTC),
        agent_seconds=0.0,
        spoke=False,
        error=f"internal error: {type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})",
    )


def internal_verdict(record: AttemptRecord) -> VerdictRecord:
    return VerdictRecord(
        task_id=record.task_id,
        task_name=record.task_name,
        attempt=record.attempt,
        outcome=Outcome.INFRA_ERROR,
        graded_at=datetime.now(UTC),
        assert_evidence=record.error,
    )


def setup_error(hook: ProcessResult, limit: float) -> str:
    if hook.timed_out:
        return f"setup timed out after {limit:g}s"
    if hook.exit_code is None:
        return f"setup could not start: {hook.start_error}"
    return f"setup exited {hook.exit_code}"


def hook_failure(task: TaskHeader, attempt: int, phase: str, hook: ProcessResult) -> HookFailure:
    output = hook.stdout.decode("utf-8", "replace")[-HOOK_OUTPUT_CHARS:]
    code = None if hook.timed_out else _NOT_STARTED if hook.exit_code is None else hook.exit_code
    return HookFailure(task.task_id, task.name, attempt, phase, code, hook.start_error or output)


def _error(result: ProcessResult, reply: AgentReply, refusal: Refusal | None) -> str | None:
    """Why there is nothing to grade; `None` when there is."""
    if result.timed_out:
        return None
    if result.exit_code is None:
        return result.start_error or "the agent could not be started"
    said = refusal.text if refusal is not None else reply.cli_error
    if result.exit_code != 0:
        if not said:
            said = result.stderr.decode("utf-8", "replace").strip()[-500:]
        return f"agent exited {result.exit_code}: {said}" if said else f"agent exited {result.exit_code}"
    if said and not reply.finished:
        return said
    return None


def _lost_end(result: ProcessResult, reply: AgentReply, limit: int) -> str | None:
    """An answer that came after more output than is kept cannot be graded, and is not the agent's silence."""
    if not result.cut or reply.finished or result.timed_out:
        return None
    return f"the agent wrote more than {limit:,} bytes (limits: stream_bytes), so the end of its output is missing"


def _model_warning(asked: str, answered: str) -> list[str]:
    """A warning when the model that answered is another than the one asked for. An alias is not another; a provider
    before it and a level of thinking after it are no part of its name."""
    plain = answered.partition("[")[0].lower()
    wanted = _THINKING.sub("", asked.partition("[")[0].lower())
    if wanted in plain or wanted.rpartition("/")[2] in plain:
        return []
    return [f"asked for {asked}, answered by {answered}"]


def joined(parts: Iterable[bytes]) -> bytes:
    kept = [part for part in parts if part]
    return b"".join(part if part.endswith(b"\n") or part is kept[-1] else part + b"\n" for part in kept)
