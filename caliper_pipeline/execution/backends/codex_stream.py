"""What `codex exec --json` writes to its standard output, read: one event a line.

The format has no written contract and changes between releases, so nothing here is required: what is of an unexpected
type is left out, and what remains is the reply. Measured facts behind the choices (0.171.0):

- An item of the kind `error` is a notice, also in good runs; the one that says that the service answered with another
  model than was asked for is the only trace of it. An event `error` may be a notice too ("Reconnecting… 1/5"): what
  counts is whether the last turn completed or failed.
- `usage` is the running total of the thread. Its input holds the cached part, its output the reasoning.
- A command that was begun and not ended was cut off; it was run all the same.
- No event names the model, none tells what a sub-agent did, and a turn that fails tells no tokens: all of it is in the
  sessions of the attempt's home (`codex_rollout`).
- Calls that the CLI refuses by itself (an unknown tool, a patch that does not apply) emit nothing.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from caliper_pipeline.domain.transcript import AgentReply, Turn, Usage
from caliper_pipeline.execution.backends.codex_rollout import SHELL, Session, usage_of
from caliper_pipeline.execution.backends.json_lines import content_text, events_in, mapping, string, text, tool_input

_NOTICE = re.compile(r"\s*reconnecting\b|.*;\s*retrying \d+/\d+", re.IGNORECASE | re.DOTALL)
_REROUTED = re.compile(r"\s*model rerouted: (\S+) -> (\S+)")
_STATUS = re.compile(r"\b(?:unexpected|last) status:? ([45][0-9]{2})\b")
_SILENT = ("reasoning", "error", "user_message")
"""Kinds of items that are no turn: thoughts, notices, what the agent was asked."""
_MESSAGES = ("agent_message", "assistant_message")
_FRAME = ("id", "type", "item_type", "status")
_SKIPPED_SKILL = re.compile(rb"failed to load skill ([^\r\n]{1,300})")
_MOST_SKIPPED = 20


def read_stream(stdout: bytes, session: Session | None = None, *, servers: tuple[str, ...] | None = None) -> AgentReply:
    """The reply in an event stream, with what its session knows besides. Never raises."""
    return replace(_events(stdout).reply(session or Session()), mcp_servers=servers)


def thread_of(stdout: bytes) -> str | None:
    """The thread that the stream is about."""
    for event in events_in(stdout):
        if isinstance(event, dict) and (found := string(event.get("thread_id"))):
            return found
    return None


def status_in(words: str | None) -> int | None:
    """The HTTP status that a message of the CLI names."""
    found = _STATUS.search(words or "")
    return int(found[1]) if found else None


def _events(stdout: bytes) -> "_Stream":
    stream = _Stream()
    for event in events_in(stdout):
        if isinstance(event, int):
            stream.unreadable += event
        else:
            stream.take(event)
    return stream


class _Stream:
    """Events in, one reply out."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.thread_id: str | None = None
        self.usage: Usage | None = None
        self.model: str | None = None
        self.completed = False
        self.failed: str | None = None
        self.complaint: str | None = None
        self.notice: str | None = None
        self.spawned: dict[str, str] = {}
        """Thread of a sub-agent → the call that started it."""
        self.unreadable = 0
        self._open: dict[str, int] = {}
        """Items that were begun and have not ended: id → place of their turn."""
        self._used: dict[str, int] = {}
        """Item id → how many items had it."""

    def take(self, event: Mapping[str, Any]) -> None:
        kind = text(event.get("type"))
        if self.thread_id is None:
            self.thread_id = string(event.get("thread_id"))
        item = event.get("item")
        if isinstance(item, dict):
            self._item(item, ended=not kind.endswith((".started", ".updated")))
        elif kind == "turn.completed":
            self.completed = True
            self.failed = self.complaint = self.notice = None
            self.usage = usage_of(event.get("usage")) or self.usage
        elif kind == "turn.failed":
            self.failed = _words(event) or self.complaint or "the turn failed"
        elif kind == "error" or isinstance(event.get("error"), dict):
            said = _words(event) or "the CLI reported an error without a text"
            if _NOTICE.match(said):
                self.notice = said
            else:
                self.complaint = said

    def _item(self, item: dict[str, Any], *, ended: bool) -> None:
        kind = text(item.get("type")) or text(item.get("item_type"))
        if kind in _SILENT:
            rerouted = _REROUTED.match(content_text(item.get("message"))) if kind == "error" else None
            self.model = rerouted[2] if rerouted else self.model
            return
        self.complaint = self.notice = None
        given_id = string(item.get("id"))
        if given_id is None and not ended:
            return  # it will come again, and nothing would tell that it is the same
        if kind in _MESSAGES:
            said = item.get("text", item.get("content"))
            self._message(content_text(said) if isinstance(said, str | list) else "", given_id, ended=ended)
        else:
            self._call(kind or "(unnamed)", item, given_id, ended=ended)

    def _message(self, said: str, given_id: str | None, *, ended: bool) -> None:
        place = self._open.get(given_id or "")
        if place is not None and self.turns[place].role == "assistant":
            self.turns[place] = replace(self.turns[place], content=said or self.turns[place].content)
        elif said:
            place = len(self.turns)
            self.turns.append(Turn("assistant", said))
        self._mark(given_id, place, ended=ended)

    def _call(self, kind: str, item: dict[str, Any], given_id: str | None, *, ended: bool) -> None:
        name, given = _tool(kind, item)
        place = self._open.get(given_id or "")
        if place is not None and self.turns[place].role == "tool_use":
            self.turns[place] = replace(self.turns[place], tool_name=name, tool_input=given)
        else:
            place = len(self.turns)
            self.turns.append(Turn("tool_use", tool_name=name, tool_input=given, call_id=self._call_id(given_id)))
        call_id = self.turns[place].call_id
        receivers = item.get("receiver_thread_ids")
        for thread in receivers if isinstance(receivers, list) else ():
            if isinstance(thread, str) and call_id is not None:
                self.spawned.setdefault(thread, call_id)
        self._mark(given_id, place, ended=ended)
        if ended and (result := _result(item, call_id)) is not None:
            self.turns.append(result)

    def _mark(self, given_id: str | None, place: int | None, *, ended: bool) -> None:
        if given_id is None:
            return
        if ended:
            self._open.pop(given_id, None)
        elif place is not None:
            self._open[given_id] = place

    def _call_id(self, given_id: str | None) -> str | None:
        """An id that no other call of the attempt has: every thread counts its items from 0."""
        if given_id is None:
            return None
        again = self._used[given_id] = self._used.get(given_id, 0) + 1
        own = given_id if again == 1 else f"{given_id}#{again}"
        return own if self.thread_id is None else f"{self.thread_id[-12:]}/{own}"

    def reply(self, session: Session) -> AgentReply:
        main = session.main
        usage = self.usage or (main.usage if main is not None else None)
        for other in session.others:
            if other.usage is not None:
                usage = other.usage if usage is None else usage.plus(other.usage)
        error = self.failed or self.complaint or (None if self.completed else self.notice)
        said = [turn.content for turn in self.turns if turn.role == "assistant" and turn.content.strip()]
        turns = self._with(session)
        spoke = bool(turns) or bool(usage is not None and usage.total_tokens)
        return AgentReply(
            turns=turns,
            final_answer=said[-1] if said else "",
            usage=usage,
            model=(self.model or (main.model if main is not None else None)) if spoke else None,
            session_id=self.thread_id,
            cli_error=error,
            error_status=status_in(error),
            finished=self.completed and self.failed is None,
            unreadable_lines=self.unreadable,
        )

    def _with(self, session: Session) -> tuple[Turn, ...]:
        """The turns, each sub-agent's behind the call that started it."""
        turns = list(self.turns)
        for thread in session.others:
            call_id = self.spawned.get(thread.thread_id) or self.spawned.get(thread.parent or "")
            theirs = [replace(turn, parent_call_id=call_id or thread.thread_id) for turn in thread.turns]
            places = [place for place, turn in enumerate(turns) if turn.call_id == call_id and call_id is not None]
            at = places[-1] + 1 if places else len(turns)
            turns[at:at] = theirs
        return tuple(turns)


def _words(event: Mapping[str, Any]) -> str:
    """What an event says went wrong, in whatever form it says it."""
    problem = event.get("error")
    for said in (event.get("message"), mapping(problem).get("message"), problem):
        found = content_text(said) if isinstance(said, str | list) else ""
        if found.strip():
            return found.strip()
    told = {key: value for key, value in mapping(problem).items() if value is not None}
    return json.dumps(told, ensure_ascii=False) if told else ""


def _tool(kind: str, item: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """What the tool is called and was given. An MCP call is told by its shape, since its label changed."""
    server, tool = string(item.get("server")), string(item.get("tool")) or string(item.get("tool_name"))
    if server is not None and tool is not None:
        return f"mcp__{server}__{tool}", tool_input(item.get("arguments"))
    if kind == "command_execution" or (kind == "(unnamed)" and "command" in item):
        command = item.get("command")
        return SHELL, {} if command is None else {"command": command}
    return kind, {key: value for key, value in item.items() if key not in _FRAME}


def _result(item: Mapping[str, Any], call_id: str | None) -> Turn | None:
    """What came of a call that ended. `None`: the item says nothing of it."""
    status, problem = text(item.get("status")), item.get("error")
    code = item.get("exit_code")
    failed = status in ("failed", "declined", "error") or bool(problem) or code not in (None, 0, "0", False)
    known = status or code is not None or problem
    parts = [f"Exit code {code}"] if code not in (None, 0, "0", False) else []
    parts += [_said(item.get(key)) for key in ("aggregated_output", "result", "output")]
    if problem:
        parts.append(_words({"error": problem}) or content_text(problem))
    told = "\n".join(part for part in parts if part)
    if not known and not told:
        return None
    return Turn("tool_result", told, call_id=call_id, is_error=failed if known else None)


def _said(value: Any) -> str:
    """A tool's output as text. An MCP result holds it as blocks, and maybe as data besides."""
    if isinstance(value, dict) and ("content" in value or "structured_content" in value):
        return content_text(value.get("content")) or _said(value.get("structured_content"))
    return content_text(value) if value not in (None, "") else ""


def skipped_skills(stderr: bytes) -> tuple[str, ...]:
    """Warnings of skills that the CLI could not load: without them the attempt measured their absence."""
    found = dict.fromkeys(_SKIPPED_SKILL.findall(stderr))
    return tuple(
        f"codex skipped a skill: {text.decode('utf-8', 'replace').strip()}" for text in [*found][:_MOST_SKIPPED]
    )
