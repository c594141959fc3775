"""The judgement on one attempt: what its transcript shows, its assert, its judge, and the outcome of all of them.

The rules are in `domain`; here they get their inputs in the right order: nothing is paid for that the rules would not
look at, and a judge's fatal refusal is handed back, since the attempt it was asked about is already stored.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.observations import find_forbidden, observe_activation, observe_builtin
from caliper_pipeline.domain.records import AttemptRecord, TaskHeader, VerdictRecord
from caliper_pipeline.domain.transcript import Turn
from caliper_pipeline.domain.verdict import activation_verdict, decide, needs_judging
from caliper_pipeline.execution.backends.base import Backend, Operator, Refusal
from caliper_pipeline.execution.command import Launcher, StopToken
from caliper_pipeline.execution.environment import step_environment
from caliper_pipeline.execution.judge.assertion import run_assert
from caliper_pipeline.execution.judge.autorater import JudgeResult, Subject, ask_judge, prompt_version
from caliper_pipeline.execution.throttle import Gate
from caliper_pipeline.execution.workdir import AttemptFolder


@dataclass(frozen=True, slots=True)
class GradingSettings:
    """What all verdicts of a run share."""

    backend: str
    """Of the agent; its transcripts are read by that backend's rules."""
    operator: Operator
    spec_path: Path
    installed_skills: tuple[str, ...]
    ablated: tuple[str, ...]
    skills_ablated: bool
    forbidden_files: tuple[str, ...]
    judge_backend: Backend | None
    judge_engine: Engine | None
    assert_seconds: float
    judge_seconds: float
    retries: int
    asserts_at_once: int = 4
    prior_turns: Mapping[str, tuple[Turn, ...]] = field(default_factory=dict)
    """Planted conversations, by task id: the judge sees them as what came before."""


@dataclass(frozen=True, slots=True)
class GradingInput:
    task: TaskHeader
    record: AttemptRecord
    turns: tuple[Turn, ...]
    builtin_skills: tuple[str, ...] | None
    folder: AttemptFolder
    generation: int = 1


@dataclass(frozen=True, slots=True)
class Graded:
    verdict: VerdictRecord | None = None
    """`None`: stopped, or the judge refused for good."""
    refusal: Refusal | None = None
    asked: str | None = None
    """The judge's exact input, when it was called."""
    answered: tuple[str, ...] = ()


class Grader:
    """`gate`: of the judge's engine. Who waits there holds no place among the asserts."""

    def __init__(self, settings: GradingSettings, gate: Gate | None = None) -> None:
        self._settings = settings
        self._gate = gate
        self._asserting = threading.BoundedSemaphore(settings.asserts_at_once)

    def grade(self, given: GradingInput, launcher: Launcher, stop: StopToken) -> Graded:
        settings, task, record = self._settings, given.task, given.record
        cheating = find_forbidden(given.turns, settings.forbidden_files, str(settings.spec_path))
        assert_passed: bool | None = None
        assert_evidence: str | None = None
        judge: JudgeResult | None = None
        if needs_judging(
            record, cheating, has_expect=task.expect is not None, has_assert=task.assert_script is not None
        ):
            if task.assert_script is not None:
                with self._asserting:
                    checked = run_assert(
                        launcher,
                        stop,
                        script=task.assert_script,
                        script_path=Path(task.assert_path) if task.assert_path is not None else None,
                        folder=given.folder,
                        env=step_environment(settings.operator, given.folder.workdir, settings.spec_path.parent),
                        limit_seconds=settings.assert_seconds,
                        group=given.folder.group,
                    )
                if checked.cancelled:
                    return Graded()
                assert_passed, assert_evidence = checked.passed, checked.evidence
            if task.expect is not None and settings.judge_backend is not None and settings.judge_engine is not None:
                judge = ask_judge(
                    launcher,
                    stop,
                    backend=settings.judge_backend,
                    engine=settings.judge_engine,
                    operator=settings.operator,
                    expect=task.expect,
                    prompt=task.prompt,
                    turns=given.turns,
                    prior_turns=settings.prior_turns.get(task.task_id, ()),
                    limit_seconds=settings.judge_seconds,
                    retries=settings.retries,
                    group=given.folder.group,
                    gate=self._gate,
                    subject=Subject(task.name, record.attempt, settings.ablated, settings.spec_path),
                )
                if judge.cancelled:
                    return Graded(asked=judge.asked, answered=tuple(judge.answered))
                if judge.refusal is not None:
                    return Graded(refusal=judge.refusal, asked=judge.asked, answered=tuple(judge.answered))
        outcome = decide(
            attempt=record,
            cheat_evidence=cheating,
            has_expect=task.expect is not None,
            has_assert=task.assert_script is not None,
            assert_passed=assert_passed,
            autorater_passed=judge.passed if judge is not None else None,
        )
        fired = observe_activation(given.turns, settings.installed_skills, backend=settings.backend)
        builtin = observe_builtin(
            given.turns, given.builtin_skills, settings.installed_skills, backend=settings.backend
        )
        activated = activation_verdict(
            observed=fired,
            installed=settings.installed_skills,
            expected=task.activates,
            outcome=outcome,
            skills_ablated=settings.skills_ablated,
        )
        verdict = VerdictRecord(
            task_id=task.task_id,
            task_name=task.name,
            attempt=record.attempt,
            outcome=outcome,
            generation=given.generation,
            graded_at=datetime.now(UTC),
            activated=activated.activated,
            activation_passed=activated.passed,
            builtin_activated=builtin,
            cheat_evidence=cheating,
            assert_passed=assert_passed,
            assert_evidence=assert_evidence if assert_evidence is not None else _why_unusable(record),
            autorater_passed=judge.passed if judge is not None else None,
            autorater_reasoning=(judge.reasoning or judge.error) if judge is not None else None,
            judge_seconds=judge.seconds if judge is not None else None,
            judge_model=judge.model if judge is not None else None,
            judge_usage=judge.usage if judge is not None else None,
            judge_retries=judge.retries if judge is not None else 0,
            judge_backend=settings.judge_backend.name if judge is not None and settings.judge_backend else None,
            judge_prompt_version=prompt_version() if judge is not None else None,
        )
        asked = judge.asked if judge is not None else None
        return Graded(verdict=verdict, asked=asked, answered=tuple(judge.answered) if judge is not None else ())


def _why_unusable(record: AttemptRecord) -> str | None:
    if record.setup_error is not None:
        return record.setup_error
    if record.timed_out:
        return record.error or "the agent passed its time limit"
    if record.error is None and not record.spoke:
        return "the agent exited 0, but no model was called: nothing was said and no tokens were used"
    return record.error
