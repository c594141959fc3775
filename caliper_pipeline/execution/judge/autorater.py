"""Asks a model whether an attempt met its `expect:`, and returns nothing but a verdict.

Every call gets an empty home (the login apart) and an empty folder of its own, and has no tools. A throttle is waited
out; a malformed answer and a prompt that is too long for the judge's model get one more call each, the latter with
the transcript cut further, and only after the model said so. Whatever it comes to, the calls made are accounted for.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.transcript import Turn, Usage
from caliper_pipeline.execution.backends.base import Backend, JudgeAnswer, JudgeInvocation, Operator, Refusal
from caliper_pipeline.execution.command import Launcher, StopToken
from caliper_pipeline.execution.judge.question import (
    QUOTED_CHARS,
    REASONABLE_CHARS,
    REMINDER,
    ROLE,
    TOOL_RESULT_CHARS,
    Judgement,
    MalformedAnswer,
    build_prompt,
    parse_answer,
    prompt_version,
)
from caliper_pipeline.execution.throttle import Gate
from caliper_pipeline.execution.workdir import make_attempt_folder

__all__ = ["JudgeResult", "Judgement", "MalformedAnswer", "ask_judge", "build_prompt", "parse_answer", "prompt_version"]

PROBE = 'Nothing is to be judged yet. Answer with exactly this: {"reasoning": "ready", "passed": true}'
ANSWER_BYTES = 4 * 1024**2
"""Far beyond any verdict. A judge that floods its output is read no further: 64 MiB took half a minute of a core."""


@dataclass(frozen=True, slots=True)
class JudgeResult:
    passed: bool | None = None
    """`None`: no verdict; `refusal`, `error` or `cancelled` says why."""
    reasoning: str = ""
    seconds: float | None = None
    """Inside the judge's calls, without waits. `None`: no call was made."""
    model: str | None = None
    usage: Usage | None = None
    retries: int = 0
    """Calls beyond the first."""
    refusal: Refusal | None = None
    """A refusal that every further call would meet."""
    error: str | None = None
    cancelled: bool = False
    asked: str = ""
    """The exact input of the last call, the role first."""
    answered: tuple[str, ...] = ()
    """What came back from each call that was answered, as it was."""


@dataclass(frozen=True, slots=True)
class Subject:
    """Which attempt is judged. Only a judge that plays a script looks at it."""

    task_name: str = ""
    attempt: int = 1
    ablated: tuple[str, ...] = ()
    spec_path: Path | None = None


def ask_judge(
    launcher: Launcher,
    stop: StopToken,
    *,
    backend: Backend,
    engine: Engine,
    operator: Operator,
    expect: str,
    prompt: str,
    turns: Sequence[Turn],
    prior_turns: Sequence[Turn] = (),
    limit_seconds: float = 120.0,
    retries: int = 2,
    group: str = "",
    subject: Subject | None = None,
    tool_result_chars: int = TOOL_RESULT_CHARS,
    gate: Gate | None = None,
) -> JudgeResult:
    """Ask until there is a verdict or a reason why there is none. A throttle is tried again `retries` times, as the
    engine's `gate` allows, a malformed answer and a prompt that was too long once each.
    """
    gate = gate if gate is not None else Gate(1)
    question = _Question(launcher, stop, backend, engine, operator, limit_seconds, group, subject or Subject(), gate)
    asked = build_prompt(
        expect=expect, prompt=prompt, turns=turns, prior_turns=prior_turns, tool_result_chars=tool_result_chars
    )
    throttled, reminded, shortened = 0, False, False
    while True:
        answer = question.put(asked)
        if question.over is not None:
            return question.result(**question.over)
        refusal = question.refusal
        if answer.too_long and not shortened:
            shortened = True
            asked = build_prompt(
                expect=expect,
                prompt=prompt,
                turns=turns,
                prior_turns=prior_turns,
                tool_result_chars=tool_result_chars,
                transcript_chars=REASONABLE_CHARS,
            )
        elif refusal is not None and refusal.fatal:
            return question.result(refusal=refusal)
        elif refusal is not None:
            if throttled == retries:
                if gate.lost():
                    return question.result(refusal=refusal)
                return question.result(error=f"The {backend.name} judge was rate limited: {refusal.text}")
            throttled += 1
        elif answer.cli_error is not None:
            return question.result(error=f"The {backend.name} judge gave no answer: {answer.cli_error[:500]}")
        else:
            verdict = parse_answer(answer.text)
            if isinstance(verdict, Judgement):
                return question.result(passed=verdict.passed, reasoning=verdict.reasoning)
            if reminded:
                return question.result(error=f"The judge's answer could not be used: {verdict}")
            reminded = True
            asked += REMINDER.format(reason=verdict.reason)


def probe_judge(
    launcher: Launcher,
    stop: StopToken,
    *,
    backend: Backend,
    engine: Engine,
    operator: Operator,
    limit_seconds: float,
    spec_path: Path | None = None,
) -> Refusal | str | None:
    """Asks the judge something trivial: what would stop every verdict shows before any attempt is paid for.

    Gives the refusal, or why the judge could not be started; `None` when it answered, whatever it answered, and when it
    was only slow or throttled, which a later question need not be.
    """
    subject = Subject(spec_path=spec_path)
    question = _Question(launcher, stop, backend, engine, operator, limit_seconds, "probe", subject, Gate(1))
    question.put(PROBE)
    if question.refusal is not None:
        return question.refusal if question.refusal.fatal else None
    return question.not_started


@dataclass(slots=True)
class _Question:
    """The calls that one question takes, and what they add up to."""

    launcher: Launcher
    stop: StopToken
    backend: Backend
    engine: Engine
    operator: Operator
    limit_seconds: float
    group: str
    subject: Subject
    gate: Gate
    calls: int = 0
    seconds: float = 0.0
    model: str | None = None
    usage: Usage | None = None
    asked: str = ""
    answered: list[str] = field(default_factory=list)
    refusal: Refusal | None = None
    not_started: str | None = None
    """Why the judge's command could not be started at all."""
    over: dict[str, Any] | None = None
    """Set when the call itself ended the matter: what to return."""

    def put(self, prompt: str) -> JudgeAnswer:
        """One call, in a home and folder that are made for it and removed after it."""
        self.asked = f"{ROLE}\n\n{prompt}"
        returning = self.refusal is not None
        self.refusal = None
        if not self.gate.enter(self.stop, returning=returning):
            self.over = {"cancelled": True}
            return JudgeAnswer()
        try:
            return self._called(prompt)
        finally:
            self._leave()

    def _leave(self) -> None:
        refusal = self.refusal
        if refusal is None:
            self.gate.leave()
        else:
            self.gate.leave(throttled=not refusal.fatal, retry_after=refusal.retry_after_seconds)

    def _called(self, prompt: str) -> JudgeAnswer:
        with make_attempt_folder() as folder:
            invocation = JudgeInvocation(
                engine=self.engine,
                prompt=prompt,
                home=folder.home,
                workdir=folder.workdir,
                operator=self.operator,
                timeout_seconds=self.limit_seconds,
                system=ROLE,
                task_name=self.subject.task_name,
                attempt=self.subject.attempt,
                retry=self.calls,
                ablated=self.subject.ablated,
                spec_path=self.subject.spec_path,
                group=self.group,
            )
            self.backend.prepare_judge(invocation)
            command = replace(self.backend.judge_command(invocation), keep_bytes=ANSWER_BYTES)
            ran = self.launcher.run(command, self.stop)
            answer = self.backend.read_judge(ran, invocation)
        self.calls += 1
        self.seconds += ran.wall_seconds
        if ran.cancelled:
            self.over = {"cancelled": True}
            return JudgeAnswer()
        if ran.exit_code is None and not ran.timed_out:
            self.not_started = ran.start_error or "it could not be started"
            self.over = {"error": f"The {self.backend.name} judge could not be started: {self.not_started}"}
            return JudgeAnswer()
        self.model = answer.model or self.model
        if answer.usage is not None:
            self.usage = answer.usage if self.usage is None else self.usage.plus(answer.usage)
        if answer.text:
            self.answered.append(answer.text)
        if ran.timed_out:
            self.over = {"error": f"The {self.backend.name} judge gave no answer within {self.limit_seconds:g}s"}
            return answer
        self.refusal = self.backend.judge_refusal(ran, answer)
        if self.refusal is None and ran.exit_code != 0 and not answer.too_long:
            said = answer.cli_error or answer.text or ran.stderr.decode("utf-8", "replace").strip()
            told = f": {said[:QUOTED_CHARS]}" if said else ", without a word"
            self.over = {"error": f"{self.backend.name} judge exited {ran.exit_code}{told}"}
        return answer

    def result(self, **facts: Any) -> JudgeResult:
        return JudgeResult(
            seconds=round(self.seconds, 6),
            model=self.model,
            usage=self.usage,
            retries=self.calls - 1,
            asked=self.asked,
            answered=tuple(self.answered),
            **facts,
        )
