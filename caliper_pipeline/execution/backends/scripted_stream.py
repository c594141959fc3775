"""What passes between us and the process that plays an agent: the plan that it is given, and the stream that it prints.

The stream is one JSON object a line:

    {"event": "start", "session": ID, "model": NAME or null}
    {"event": "say", "text": TEXT}
    {"event": "call", "id": ID, "tool": NAME, "input": {…}}
    {"event": "result", "id": ID, "output": TEXT, "error": BOOL}
    {"event": "usage", "input": N, "output": N, "cache_read": N, "cache_creation": N}     adds up
    {"event": "error", "status": N or null, "message": TEXT}
    {"event": "end"}
"""

import json
import marshal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from caliper_pipeline.domain.transcript import AgentReply, Turn, Usage
from caliper_pipeline.execution.backends.base import Invocation, JudgeInvocation
from caliper_pipeline.execution.backends.script_file import REFUSALS, Failure, Ruling, Step
from caliper_pipeline.execution.command import Command

_PROGRAM = Path(__file__).with_name("scripted_agent.py")
_ARGV = (sys.executable, "-I", "-S", str(_PROGRAM))
_WORDS = {
    "rate_limit": "Rate limited, try again later",
    "overloaded": "Overloaded, try again later",
    "login": "Not logged in",
    "cap": "The usage limit is reached",
    "model": "There is no such model",
    "configuration": "The configuration is wrong",
}
_ACTING = ("say", "run", "skill", "tool")


class Plan:
    """What the program is to do, step by step."""

    def __init__(self, session: str, model: str | None) -> None:
        self._steps: list[tuple[Any, ...]] = []
        self._calls = 0
        self._print(event="start", session=session, model=model)

    def command(self, env: Mapping[str, str], invocation: Invocation | JudgeInvocation) -> Command:
        return Command(
            argv=_ARGV,
            env=env,
            cwd=invocation.workdir,
            timeout_seconds=invocation.timeout_seconds,
            stdin=marshal.dumps(self._steps),
            group=invocation.group,
        )

    def play(self, steps: Sequence[Step], skills: Sequence[str], retry: int, tokens: Usage | None) -> None:
        for step in steps:
            if step.kind in _ACTING and tokens is not None:
                self._usage(tokens)
                tokens = None
            if step.kind == "say":
                self._print(event="say", text=step.value)
            elif step.kind == "run":
                call = self._call("Bash", {"command": step.value})
                head = json.dumps({"event": "result", "id": call})[:-1] + ", "
                self._steps.append(("run", step.value.encode("utf-8", "surrogateescape"), head.encode()))
            elif step.kind == "skill":
                call = self._call("Skill", {"skill": step.value})
                known = step.value in skills
                said = f"Launching skill: {step.value}" if known else f"Unknown skill: {step.value}"
                self._print(event="result", id=call, output=said, error=not known)
            elif step.kind == "tool":
                call = self._call(step.value.name, step.value.input)
                self._print(event="result", id=call, output=step.value.result, error=step.value.error)
            elif step.kind == "wait":
                self._steps.append(("wait", step.value))
            elif step.kind == "tokens":
                self._usage(step.value)
            elif step.kind == "model":
                self._print(event="start", model=step.value)
            elif step.kind == "raw":
                self._steps.append(("print", f"{step.value}\n".encode("utf-8", "surrogateescape")))
            elif self.fail(step.value, retry):
                return
        self._print(event="end")

    def rule(self, ruling: Ruling, retry: int, tokens: Usage | None) -> None:
        if ruling.wait_seconds:
            self._steps.append(("wait", ruling.wait_seconds))
        if ruling.failure is not None and self.fail(ruling.failure, retry):
            return
        if tokens is not None:
            self._usage(tokens)
        if ruling.answer is not None and (ruling.times is None or retry < ruling.times):
            self._print(event="say", text=ruling.answer)
        else:
            verdict = {"passed": ruling.passed is not False, "reasoning": ruling.reasoning}
            self._print(event="say", text=json.dumps(verdict, ensure_ascii=False))
        self._print(event="end")

    def fail(self, failure: Failure, retry: int) -> bool:
        """False: this invocation does not meet it."""
        if failure.times is not None and retry >= failure.times:
            return False
        if failure.kind == "timeout":
            self._steps.append(("hang",))
        elif failure.kind == "silent":
            self._steps.append(("exit", 0, b""))
        elif failure.kind == "cut":
            self._steps += [("print", b'{"event": "say", "te'), ("exit", failure.exit_code, b"")]
        elif failure.kind == "crash":
            text = failure.message or "the script makes this agent crash"
            self._steps.append(("exit", failure.exit_code, f"{text}\n".encode()))
        else:
            self._print(event="error", status=REFUSALS[failure.kind], message=failure.message or _WORDS[failure.kind])
            self._steps.append(("exit", failure.exit_code, b""))
        return True

    def _call(self, tool: str, given: Mapping[str, Any]) -> str:
        self._calls += 1
        self._print(event="call", id=f"c{self._calls}", tool=tool, input=given)
        return f"c{self._calls}"

    def _usage(self, usage: Usage) -> None:
        names = ("input", "output", "cache_read", "cache_creation")
        self._print(event="usage", **dict(zip(names, usage.counts(), strict=True)))

    def _print(self, **event: Any) -> None:
        self._steps.append(("print", f"{json.dumps(event)}\n".encode()))


def read_stream(data: bytes) -> AgentReply:
    """The reply in the program's output, whatever else is in it."""
    turns: list[Turn] = []
    usage: Usage | None = None
    facts: dict[str, Any] = {"model": None, "session_id": None, "cli_error": None, "error_status": None}
    answer, finished, unreadable = "", False, 0
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        event = _event(line)
        kind = event.get("event")
        if kind == "start":
            facts["model"] = _text(event, "model") or facts["model"]
            facts["session_id"] = _text(event, "session") or facts["session_id"]
        elif kind == "say":
            answer = _text(event, "text") or ""
            turns.append(Turn("assistant", answer))
        elif kind == "call":
            given = event.get("input")
            turns.append(
                Turn(
                    "tool_use",
                    tool_name=_text(event, "tool"),
                    tool_input=given if isinstance(given, dict) else {},
                    call_id=_text(event, "id"),
                )
            )
        elif kind == "result":
            failed = event.get("error")
            turns.append(
                Turn(
                    "tool_result",
                    _text(event, "output") or "",
                    call_id=_text(event, "id"),
                    is_error=failed if isinstance(failed, bool) else None,
                )
            )
        elif kind == "usage":
            counts = (event.get(name) for name in ("input", "output", "cache_read", "cache_creation"))
            used = Usage(*(n if isinstance(n, int) and not isinstance(n, bool) else None for n in counts))
            usage = used if usage is None else usage.plus(used)
        elif kind == "error":
            status = event.get("status")
            facts["cli_error"] = _text(event, "message") or "an error without words"
            facts["error_status"] = status if isinstance(status, int) else None
        elif kind == "end":
            finished = True
        else:
            unreadable += 1
    return AgentReply(
        turns=tuple(turns),
        final_answer=answer,
        usage=usage,
        finished=finished and facts["cli_error"] is None,
        unreadable_lines=unreadable,
        **facts,
    )


def _event(line: bytes) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}


def _text(event: Mapping[str, Any], key: str) -> str | None:
    value = event.get(key)
    return value if isinstance(value, str) else None


def scripted_tokens(stdout: bytes) -> int:
    """Tokens that the output so far tells of."""
    usage = read_stream(stdout).usage
    return (usage.total_tokens or 0) if usage is not None else 0
