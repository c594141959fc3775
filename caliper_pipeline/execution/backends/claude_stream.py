"""What Claude Code writes to its standard output, read: the event stream of an attempt, the envelope of a judge call.

The format has no written contract and changes between releases, so nothing here is required: an event of an unknown
kind is passed over, a part of an unexpected type is left out, and what remains is the reply. Measured facts behind
the choices (2.1.197):

- Each content block is an event of its own. Only `result` holds final token counts. A run that is woken again by a
  background task has several of them: `usage` is for the stretch since the one before, `modelUsage` for the whole
  process. What sub-agents used, and a request without streaming (the fallback after a lost connection), is in
  `modelUsage` alone, so the larger count is the true one.
- Of a sub-agent only its tool calls are in the stream, not what it says.
- A refused call is `subtype: success` with `is_error: true`; its text also comes as an assistant message of the model
  `<synthetic>`. That is the CLI talking, never the agent, so it is no turn and no answer.
- `init` tells of every MCP server whether it is `connected`. Of one that the agent was to have and had not, the reply
  is an error: whatever was done without its tools is no answer to the task.
- `init` names the configured model, with a `[1m]` suffix for the long context; each message names the one that
  answered.
"""

import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from caliper_pipeline.domain.transcript import AgentReply, Turn, Usage
from caliper_pipeline.execution.backends.base import JudgeAnswer
from caliper_pipeline.execution.backends.json_lines import (
    blocks,
    content_text,
    count,
    events_in,
    mapping,
    parsed,
    string,
    text,
    tool_input,
)

SYNTHETIC = "<synthetic>"
NO_SERVER = "mcp_server_missing"
"""Our word for the kind of error; the CLI has none."""
_USAGE_KEYS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_MODEL_USAGE_KEYS = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
_TOO_LONG = ("prompt is too long", "piped stdin input exceeds")


def read_stream(stdout: bytes, *, servers: Sequence[str] = ()) -> AgentReply:
    """The reply in an event stream; `servers`: what the agent was to have. Never raises."""
    stream = _Stream()
    for event in events_in(stdout):
        if isinstance(event, int):
            stream.unreadable += event
        else:
            stream.take(event)
    reply = stream.reply()
    missing = stream.missing(servers)
    if not missing or reply.cli_error is not None:
        return reply
    told = f"the agent ran without the MCP server {missing}"
    return replace(reply, cli_error=told, error_code=NO_SERVER, finished=False)


def read_envelope(stdout: bytes, stderr: bytes, exit_code: int | None) -> JudgeAnswer:
    """The answer in the output of a judge call: one `result` object, or events, or, failing that, plain text."""
    output = stdout.decode("utf-8", "replace").strip()
    results = [event for event in _events_in(output) if event.get("type") == "result"]
    if not results:
        complaint = stderr.decode("utf-8", "replace").strip()
        if exit_code == 0:
            return JudgeAnswer(text=output)
        return JudgeAnswer(cli_error=(complaint or output)[-1000:] or None, too_long=_is_too_long(complaint))
    last = results[-1]
    error, status = _result_error(last)
    return JudgeAnswer(
        text="" if error is not None else text(last.get("result")),
        model=_main_model(last.get("modelUsage")),
        usage=_usage_of(results),
        cli_error=error,
        error_status=status,
        too_long=error is not None and (last.get("terminal_reason") == "prompt_too_long" or _is_too_long(error)),
    )


def tokens_so_far(stdout: bytes) -> int:
    """What the output of an agent that works tells of: all that it read, and the first of what each message says. Once
    the CLI sums up, the true count."""
    told: dict[str, int] = {}
    results: list[dict[str, Any]] = []
    for event in events_in(stdout, passed_over=(b'{"type":"user"',)):
        if isinstance(event, int):
            continue
        message = mapping(event.get("message"))
        if event.get("type") == "assistant" and message.get("model") != SYNTHETIC:
            tokens = _usage(mapping(message.get("usage")), _USAGE_KEYS).total_tokens or 0
            told[text(message.get("id"))] = max(tokens, told.get(text(message.get("id")), 0))
        elif event.get("type") == "result":
            results.append(event)
    usage = _usage_of(results)
    return max(sum(told.values()), (usage.total_tokens or 0) if usage is not None else 0)


class _Stream:
    """Events in, one reply out."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.results: list[dict[str, Any]] = []
        self.told: dict[str, Usage] = {}
        """By message: what it says of its tokens, the largest of its events."""
        self.init: dict[str, Any] | None = None
        self.model: str | None = None
        self.session_id: str | None = None
        self.complaint: tuple[str, str | None] | None = None
        self.code: str | None = None
        self.unreadable = 0

    def take(self, event: dict[str, Any]) -> None:
        if self.session_id is None:
            self.session_id = string(event.get("session_id"))
        kind = event.get("type")
        if kind == "system" and event.get("subtype") == "init" and self.init is None:
            self.init = event
        elif kind == "assistant":
            self._assistant(event)
        elif kind == "user":
            message = mapping(event.get("message"))
            self._results_in(blocks(message.get("content")), string(event.get("parent_tool_use_id")))
        elif kind == "tool_result":
            self._results_in([event], string(event.get("parent_tool_use_id")))
        elif kind == "result":
            if event not in self.results[-1:]:  # the same one twice is no second stretch of work
                self.results.append(event)
        elif kind == "error":
            problem = event.get("error")
            self.complaint = (text(mapping(problem).get("message")) or text(problem) or "error", None)

    def _assistant(self, event: dict[str, Any]) -> None:
        message = mapping(event.get("message"))
        parent = string(event.get("parent_tool_use_id"))
        content = blocks(message.get("content"))
        if message.get("model") == SYNTHETIC:
            if parent is None:
                said = "\n".join(text(block.get("text")) for block in content if block.get("type") == "text")
                self.code = string(event.get("error"))
                self.complaint = (said, self.code)
            return
        self._tokens(text(message.get("id")), mapping(message.get("usage")))
        for block in content:
            kind = text(block.get("type"))
            if kind == "text" and isinstance(block.get("text"), str) and block["text"]:
                self.turns.append(Turn("assistant", block["text"], parent_call_id=parent))
                self.complaint = None
            elif kind.endswith("tool_use"):
                call = string(block.get("id"))
                name = text(block.get("name")) or "(unnamed)"
                given = tool_input(block.get("input"))
                turn = Turn("tool_use", "", tool_name=name, tool_input=given, call_id=call, parent_call_id=parent)
                self.turns.append(turn)
                self.complaint = None
        self._results_in(content, parent)
        if parent is None and string(message.get("model")):
            self.model = string(message.get("model"))

    def _tokens(self, message: str, counts: Mapping[str, Any]) -> None:
        usage = _usage(counts, _USAGE_KEYS)
        if (usage.total_tokens or 0) > (self.told.get(message, Usage()).total_tokens or 0):
            self.told[message] = usage

    def _results_in(self, content: list[dict[str, Any]], parent: str | None) -> None:
        for block in content:
            if not text(block.get("type")).endswith("tool_result"):
                continue
            failed = block.get("is_error")
            self.turns.append(
                Turn(
                    "tool_result",
                    content_text(block.get("content")),
                    call_id=string(block.get("tool_use_id")),
                    is_error=failed if isinstance(failed, bool) else None,
                    parent_call_id=parent,
                )
            )

    def reply(self) -> AgentReply:
        # Of an agent that was cut off only its messages tell, each what it knew at first: the least it was.
        usage = _usage_of(self.results) if self.results else (_sum(self.told.values()) if self.told else None)
        spoke = bool(self.turns) or bool(usage is not None and usage.total_tokens)
        error, status = _result_error(self.results[-1]) if self.results else (None, None)
        code = self.code if error is not None else None
        if error is None and self.complaint is not None:
            said, known = self.complaint
            closing = text(self.results[-1].get("result")).strip() if self.results else said.strip()
            if closing == said.strip() and (not self.results or known is not None or not spoke):
                error, code = said, known
        return AgentReply(
            turns=tuple(self.turns),
            final_answer=self._answer(failed=error is not None),
            usage=usage,
            model=self._model() if spoke else None,
            session_id=self.session_id,
            builtin_skills=_names(self.init.get("skills")) if self.init is not None else None,
            mcp_servers=_names(self.init.get("mcp_servers")) if self.init is not None else None,
            cli_error=error or None,
            error_status=status,
            error_code=code,
            finished=bool(self.results) and error is None,
            unreadable_lines=self.unreadable,
        )

    def missing(self, servers: Sequence[str]) -> str:
        """Those of the servers that were not there, with their state; empty: none that is known of."""
        listed = self.init.get("mcp_servers") if self.init is not None else None
        if not isinstance(listed, list):
            return ""
        states = {item.get("name"): item.get("status") for item in listed if isinstance(item, dict)}
        found = [(name, text(states.get(name)) or "not listed") for name in servers]
        return ", ".join(f"{name} ({state})" for name, state in found if state != "connected")

    def _answer(self, *, failed: bool) -> str:
        """The last closing text, unless it is an error or blank; then the last thing the agent said."""
        if self.results and not failed:
            closing = self.results[-1].get("result")
            if isinstance(closing, str) and closing.strip():
                return closing
        said = [turn for turn in self.turns if turn.role == "assistant" and turn.content.strip()]
        own = [turn for turn in said if turn.parent_call_id is None] or said
        return own[-1].content if own else ""

    def _model(self) -> str | None:
        if self.model is not None:
            return _plain_model(self.model)
        billed = _main_model(self.results[-1].get("modelUsage")) if self.results else None
        if billed is not None:
            return billed
        configured = string(self.init.get("model")) if self.init is not None else None
        return _plain_model(configured) if configured is not None else None


def _events_in(text: str) -> Iterator[dict[str, Any]]:
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        found = (parsed(line.encode("utf-8", "replace")) for line in text.splitlines())
        yield from (event for event in found if event is not None)
        return
    for item in whole if isinstance(whole, list) else [whole]:
        if isinstance(item, dict):
            yield item


def _result_error(result: Mapping[str, Any]) -> tuple[str | None, int | None]:
    """The error that a closing event reports, with its HTTP status. (None, None): it reports none."""
    subtype = text(result.get("subtype"))
    status = _status(result.get("api_error_status"))
    flagged = result.get("is_error") in (True, "true", "True")
    if not flagged and not subtype.startswith("error") and status is None:
        return None, None
    errors = result.get("errors")
    listed = "; ".join(item for item in errors if isinstance(item, str)) if isinstance(errors, list) else ""
    told = text(result.get("result")).strip() or listed or subtype or "the CLI reported an error without a text"
    if status is not None and str(status) not in told:
        told = f"API error {status}: {told}"
    return told, status


def _usage_of(results: list[dict[str, Any]]) -> Usage | None:
    """Token counts of the whole stream, sub-agents included. `None`: none that can be believed."""
    told = _sum(_usage(mapping(result.get("usage")), _USAGE_KEYS) for result in results)
    models = mapping(results[-1].get("modelUsage")).values() if results else ()
    billed = _sum(_usage(mapping(counts), _MODEL_USAGE_KEYS) for counts in models)
    pairs = zip(told.counts(), billed.counts(), strict=True)
    usage = Usage(*(max((n for n in pair if n is not None), default=None) for pair in pairs))
    return None if usage == Usage() else usage


def _usage(counts: Mapping[str, Any], keys: tuple[str, str, str, str]) -> Usage:
    return Usage(*(count(counts.get(key)) for key in keys))


def _sum(usages: Iterable[Usage]) -> Usage:
    return functools.reduce(Usage.plus, usages, Usage())


def _main_model(model_usage: Any) -> str | None:
    """The model that used the most tokens, the first on a tie."""
    totals = {}
    for name, counts in mapping(model_usage).items():
        totals[name] = _usage(mapping(counts), _MODEL_USAGE_KEYS).total_tokens or 0
    return _plain_model(max(totals, key=lambda name: totals[name])) if totals else None


def _plain_model(name: str) -> str:
    return name.removesuffix("[1m]")


def _is_too_long(text: str) -> bool:
    return any(words in text.lower() for words in _TOO_LONG)


def _names(value: Any) -> tuple[str, ...] | None:
    """Names in a list of strings or of objects that have one. `None`: no list."""
    if not isinstance(value, list):
        return None
    found = [item.get("name") if isinstance(item, dict) else item for item in value]
    return tuple(name for name in found if isinstance(name, str))


def _status(value: Any) -> int | None:
    """An HTTP status that says that a call failed."""
    number = int(value) if isinstance(value, str) and re.fullmatch("[45][0-9]{2}", value) else count(value)
    return number if number is not None and number >= 400 else None
