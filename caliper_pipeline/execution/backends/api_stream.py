"""The stream of an API agent, read. One JSON object a line, written by `api_agent/events.py`:

{"event": "start", "session": ID, "servers": [NAME…]}
{"event": "model", "name": NAME}                  who answers, as the service says
{"event": "usage", "request": N, "input": N, "output": N, "cache_read": N, "cache_creation": N}
                                                  of that request so far: its last line counts
{"event": "say", "text": TEXT}
{"event": "call", "id": ID, "tool": NAME, "input": {…}}
{"event": "result", "id": ID, "output": TEXT, "error": BOOL}
{"event": "wait", "seconds": N, …}                before asking again, with what an `error` has
{"event": "error", "message": TEXT, "status": N or null, "code": TEXT, "retry_after": N or null}
{"event": "end", "reason": "end" or "refused"}
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from caliper_pipeline.domain.transcript import AgentReply, Turn, Usage
from caliper_pipeline.execution.backends.api_agent.events import clean

_COUNTS = ("input", "output", "cache_read", "cache_creation")
_LARGEST_COUNT = 10**15
_OWN_LEVELS = 4
"""Of an event, around what a model gave."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """What the service said when it did not serve."""

    message: str
    status: int | None
    code: str
    retry_after: float | None
    answered: bool
    """It had served this conversation before."""


def read_stream(data: bytes) -> AgentReply:
    """The reply in the program's output, whatever else is in it."""
    stream = _Stream()
    for line in data.split(b"\n"):
        if line.strip():
            stream.take(_event(line))
    return stream.reply()


def read_trouble(data: bytes) -> Trouble | None:
    """The error that the stream ends with. `None`: it has none."""
    stream = _Stream()
    for line in data.split(b"\n"):
        if line.strip():
            stream.take(_event(line))
    return stream.trouble


class _Stream:
    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.usage: dict[int, Usage] = {}
        self.said: list[str] = []
        self.model: str | None = None
        self.session: str | None = None
        self.servers: tuple[str, ...] | None = None
        self.trouble: Trouble | None = None
        self.finished = False
        self.unreadable = 0

    def take(self, event: Mapping[str, Any]) -> None:
        kind = event.get("event")
        if kind == "start":
            self.session = _text(event, "session") or None
            names = event.get("servers")
            self.servers = tuple(map(str, names)) if isinstance(names, list) else None
        elif kind == "model":
            self.model = _text(event, "name") or self.model
        elif kind == "usage":
            request = event.get("request")
            self.usage[request if isinstance(request, int) else 0] = Usage(*(_count(event.get(n)) for n in _COUNTS))
        elif kind == "say":
            self.said.append(_text(event, "text"))
            self.turns.append(Turn("assistant", self.said[-1]))
        elif kind == "call":
            given = event.get("input")
            self.turns.append(
                Turn(
                    "tool_use",
                    tool_name=_text(event, "tool") or "(unnamed)",
                    tool_input=given if isinstance(given, dict) else {},
                    call_id=_text(event, "id") or None,
                )
            )
        elif kind == "result":
            failed = event.get("error")
            self.turns.append(
                Turn(
                    "tool_result",
                    _text(event, "output"),
                    call_id=_text(event, "id") or None,
                    is_error=failed if isinstance(failed, bool) else None,
                )
            )
        elif kind == "error":
            status = _count(event.get("status"))
            self.trouble = Trouble(
                message=_text(event, "message") or "an error without words",
                status=status,
                code=_text(event, "code"),
                retry_after=_seconds(event.get("retry_after")),
                answered=bool(self.turns),
            )
        elif kind == "end":
            self.finished = True
        elif kind != "wait":
            self.unreadable += 1

    def reply(self) -> AgentReply:
        trouble = self.trouble
        return AgentReply(
            turns=tuple(self.turns),
            final_answer=self._answer(),
            usage=reduce(Usage.plus, self.usage.values()) if self.usage else None,
            model=self.model,
            session_id=self.session,
            mcp_servers=self.servers,
            cli_error=trouble.message if trouble is not None else None,
            error_status=trouble.status if trouble is not None else None,
            error_code=(trouble.code or None) if trouble is not None else None,
            finished=self.finished and trouble is None,
            unreadable_lines=self.unreadable,
        )

    def _answer(self) -> str:
        """What was said since the last tool came back; a model that says nothing at its end has said it before."""
        closing: list[str] = []
        for turn in reversed(self.turns):
            if turn.role != "assistant":
                break
            closing.append(turn.content)
        return "".join(reversed(closing)) or (self.said[-1] if self.said else "")


def _event(line: bytes) -> Mapping[str, Any]:
    try:
        event = clean(json.loads(line, parse_constant=str), -_OWN_LEVELS)
    except (ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}


def _text(event: Mapping[str, Any], key: str) -> str:
    value = event.get(key)
    return value if isinstance(value, str) else ""


def _count(value: Any) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 <= value <= _LARGEST_COUNT else None


def _seconds(value: Any) -> float | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and 0 <= value <= _LARGEST_COUNT else None
