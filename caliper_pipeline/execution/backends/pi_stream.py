"""What pi writes in its JSON mode, read; the session file that it keeps is read the same way.

Measured on 0.74.2, 1.3.0 and 1.6.0, and behind the choices:

- A whole message comes as `message_end`, and again inside `turn_end` and `agent_end`; only the first counts. Until
  0.84 every `message_update` carries the whole message so far, so a long answer takes hundreds of MB of them: they are
  passed over unread.
- The exit code is 0 whatever the model answered. An attempt failed when its *last* assistant message did: a message
  that failed and was tried again stays in the stream, and after a tool call there is one more.
- `agent_end` closes a stretch of work. More may follow: a retry, or the work taken up again after a compaction.
- Calls made inside a `codemode` script are events of their own that name the call around them.
- Which servers gave tools is told by the system message alone, and only by versions that write one into the stream.
- MCP tools come as `mcp__<server>__<tool>` with every character but letters, digits and `_` replaced by `_`.
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from caliper_pipeline.domain.transcript import AgentReply, Turn, Usage
from caliper_pipeline.execution.backends.json_lines import (
    blocks,
    content_text,
    count,
    events_in,
    mapping,
    string,
    text,
    tool_input,
)

_UPDATES = (b'{"type":"message_update"', b'{"type":"tool_execution_update"', b'{"type":"message_start"')
_NO_TOKENS = (*_UPDATES, b'{"type":"turn_end"', b'{"type":"agent_end"', b'{"type":"tool_execution_')
_USAGE_KEYS = ("input", "output", "cacheRead", "cacheWrite")
_FAILED = ("error", "aborted")
_STATUS = re.compile(r"(?:[^{\n]{0,80}\()?([45]\d\d)\b")
_LISTED_SERVER = re.compile(r"^- mcp__(\w+)", re.MULTILINE)
_MCP_NAME = re.compile(r"mcp__(.+?)__(.+)", re.DOTALL)


def read_stream(stdout: bytes, servers: Sequence[str] = ()) -> AgentReply:
    """The reply in an event stream. Never raises. `servers`: the names that tools may belong to."""
    return _read(events_in(stdout, passed_over=_UPDATES), _Stream(servers))


def tokens_so_far(stdout: bytes) -> int:
    """What the messages that have ended took."""
    usage = _read(events_in(stdout, passed_over=_NO_TOKENS), _Stream(())).usage
    return (usage.total_tokens or 0) if usage is not None else 0


def read_session(session: bytes, planted: int, servers: Sequence[str] = ()) -> AgentReply:
    """The reply in a session file whose first `planted` messages came before it."""
    stream = _Stream(servers)
    stream.skipped = planted
    reply = _read(events_in(session), stream)
    # Nothing marks the end of work here, but the last message does.
    return reply if stream.ended or stream.stop not in ("stop", "length") else stream.reply(ended=True)


def _read(events: Iterable[dict[str, Any] | int], stream: "_Stream") -> AgentReply:
    for event in events:
        if isinstance(event, int):
            stream.unreadable += event
        else:
            stream.take(event)
    return stream.reply(ended=stream.ended)


class _Stream:
    """Events in, one reply out."""

    def __init__(self, servers: Sequence[str]) -> None:
        self.servers = {re.sub(r"[^A-Za-z0-9_]", "_", name): name for name in servers}
        self.turns: list[Turn] = []
        self.asked: dict[str, Turn] = {}
        """Calls that a message holds, by id, until they are seen to begin."""
        self.begun: set[str] = set()
        self.answered: set[str] = set()
        self.usage = Usage()
        self.model: str | None = None
        self.provider: str | None = None
        self.session_id: str | None = None
        self.offered: dict[str, None] | None = None
        self.answer = ""
        self.stop: str | None = None
        self.error: str | None = None
        self.ended = False
        self.skipped = 0
        self.unreadable = 0

    def take(self, event: dict[str, Any]) -> None:
        kind = event.get("type")
        if kind == "session" and self.session_id is None:
            self.session_id = string(event.get("id"))
        elif kind == "agent_start":
            self.ended = False
        elif kind == "agent_end":
            self.ended = event.get("willRetry") is not True
        elif kind == "agent_settled":
            self.ended = True
        elif kind in ("message_end", "message"):
            if kind == "message" and self.skipped > 0:
                self.skipped -= 1
                return
            self._message(mapping(event.get("message")))
        elif kind == "tool_execution_start":
            self._begin(event)
        elif kind == "tool_execution_end":
            self._finish(event, mapping(event.get("result")).get("content", event.get("result")))
        elif kind == "compaction_end":
            self._spend(mapping(event.get("result")).get("usage"))
        elif kind == "entry_appended":
            self._entry(mapping(event.get("entry")))
        else:
            self._entry(event)

    def _entry(self, entry: Any) -> None:
        """Tokens that no message holds: summaries, and a cache that was kept warm."""
        if entry.get("type") in ("usage", "compaction", "branch_summary"):
            self._spend(entry.get("usage"))

    def _message(self, message: Any) -> None:
        role = message.get("role")
        self._spend(message.get("usage"))
        if role == "assistant":
            self._assistant(message)
        elif role == "toolResult":
            self._finish(message, message.get("content"))
        elif role == "system":
            self._tools(message)

    def _assistant(self, message: Any) -> None:
        self.stop = string(message.get("stopReason"))
        failed = self.stop in _FAILED
        said = []
        for block in blocks(message.get("content")):
            kind = text(block.get("type"))
            if kind == "text" and text(block.get("text")):
                said.append(block["text"])
                self.turns.append(Turn("assistant", block["text"]))
            elif kind == "toolCall" and not failed and (call := string(block.get("id"))) is not None:
                self.asked[call] = self._call(call, block.get("name"), block.get("arguments"), None)
        words = "\n".join(said)
        self.answer = words if words.strip() else ""
        told = string(message.get("errorMessage"))
        self.error = (told or f"the model's answer ended with {self.stop}") if failed else None
        named = string(message.get("responseModel")) or string(message.get("model"))
        if named is not None and not failed:
            self.model, self.provider = named, string(message.get("provider"))

    def _call(self, call: str | None, name: Any, given: Any, parent: str | None) -> Turn:
        tool = self._tool_name(text(name) or "(unnamed)")
        return Turn("tool_use", "", tool_name=tool, tool_input=tool_input(given), call_id=call, parent_call_id=parent)

    def _begin(self, event: dict[str, Any]) -> None:
        call = string(event.get("toolCallId"))
        parent = string(event.get("parentToolCallId"))
        if call is not None:
            if call in self.begun:
                return
            self.begun.add(call)
            self.asked.pop(call, None)
        self.turns.append(self._call(call, event.get("toolName"), event.get("args"), parent))

    def _finish(self, event: Any, content: Any) -> None:
        """A result comes twice, when the call ended and as a message; either alone will do."""
        call = string(event.get("toolCallId"))
        if call is not None:
            if call in self.answered:
                return
            self.answered.add(call)
            if call not in self.begun:
                self.begun.add(call)
                asked = self.asked.pop(call, None)
                self.turns.append(asked or self._call(call, event.get("toolName"), None, None))
        failed = event.get("isError")
        self.turns.append(
            Turn(
                "tool_result",
                content_text(content),
                call_id=call,
                is_error=failed if isinstance(failed, bool) else None,
                parent_call_id=string(event.get("parentToolCallId")),
            )
        )

    def _tools(self, message: Any) -> None:
        """The servers among whose tools the model may choose."""
        added = message.get("toolsAdded")
        if isinstance(added, list):
            self.offered = self.offered if self.offered is not None else {}
            for tool in added:
                name = text(mapping(tool).get("name"))
                if found := _MCP_NAME.fullmatch(name):
                    plain = self._server_in(name) or found[1]
                    self.offered[self.servers.get(plain, plain)] = None
            for plain in _LISTED_SERVER.findall(text(mapping(message.get("sections")).get("mcp_servers"))):
                self.offered[self.servers.get(plain, plain)] = None

    def _server_in(self, name: str) -> str | None:
        """The longest of the known servers that the tool's name may begin with."""
        fits = [plain for plain in self.servers if name.startswith(f"mcp__{plain}__")]
        return max(fits, key=len, default=None)

    def _tool_name(self, name: str) -> str:
        """With the server as it is written in its declaration."""
        plain = self._server_in(name)
        return name if plain is None else f"mcp__{self.servers[plain]}{name[len('mcp__') + len(plain) :]}"

    def _spend(self, counts: Any) -> None:
        given = mapping(counts)
        self.usage = self.usage.plus(Usage(*(count(given.get(key)) for key in _USAGE_KEYS)))

    def reply(self, *, ended: bool) -> AgentReply:
        said = [turn.content for turn in self.turns if turn.role == "assistant" and turn.content.strip()]
        error = self.error.split("; stack=", 1)[0].strip() if self.error is not None else None
        usage = None if self.usage == Usage() else self.usage
        return AgentReply(
            turns=tuple(self.turns),
            final_answer=self.answer or (said[-1] if said else ""),
            usage=usage,
            model=self.model,
            session_id=self.session_id,
            mcp_servers=tuple(self.offered) if self.offered is not None else None,
            cli_error=error or None,
            error_status=_status(error or ""),
            error_code=_code(error or ""),
            finished=ended and self.stop is not None and error is None,
            unreadable_lines=self.unreadable,
        )


def _status(error: str) -> int | None:
    """The HTTP status that an error begins with, after the name of the service perhaps."""
    found = _STATUS.match(error)
    return int(found[1]) if found else None


def _code(error: str) -> str | None:
    """The service's own word for the error, from the body that newer versions quote."""
    brace = error.find("{")
    if brace < 0:
        return None
    try:
        body = json.JSONDecoder().raw_decode(error, brace)[0]
    except (ValueError, RecursionError):
        return None
    body = mapping(mapping(body).get("error")) or mapping(body)
    return string(body.get("code")) or string(body.get("type"))
