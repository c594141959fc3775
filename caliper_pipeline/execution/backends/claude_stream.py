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

SYNTHETIC = "<synthetic>"
NO_SERVER = "mcp_server_missing"
"""Our word for the kind of error; the CLI has none."""
_LARGEST_COUNT = 10**15
_FLOOD = 1_000_000
"""Bytes of lines without an event, from which on they are looked at in less detail."""
_DEEPEST = 60
_SURELY_FLAT = 60
_USAGE_KEYS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_MODEL_USAGE_KEYS = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
_TOO_LONG = ("prompt is too long", "piped stdin input exceeds")


def read_stream(stdout: bytes, *, servers: Sequence[str] = ()) -> AgentReply:
    """The reply in an event stream; `servers`: what the agent was to have. Never raises."""
    stream = _Stream()
    at = 0
    while (brace := stdout.find(b"{", at)) >= 0:
        start = max(at, stdout.rfind(b"\n", at, brace) + 1)
        end = stdout.find(b"\n", brace)
        end = len(stdout) if end < 0 else end
        stream.unreadable += _line_count(stdout[at:start])
        stream.take(_parsed(stdout[start:end]))
        at = end + 1
    stream.unreadable += _line_count(stdout[at:])
    reply = stream.reply()
    missing = stream.missing(servers)
    if not missing or reply.cli_error is not None:
        return reply
    text = f"the agent ran without the MCP server {missing}"
    return replace(reply, cli_error=text, error_code=NO_SERVER, finished=False)


def read_envelope(stdout: bytes, stderr: bytes, exit_code: int | None) -> JudgeAnswer:
    """The answer in the output of a judge call: one `result` object, or events, or, failing that, plain text."""
    text = stdout.decode("utf-8", "replace").strip()
    results = [event for event in _events_in(text) if event.get("type") == "result"]
    if not results:
        complaint = stderr.decode("utf-8", "replace").strip()
        if exit_code == 0:
            return JudgeAnswer(text=text)
        return JudgeAnswer(cli_error=(complaint or text)[-1000:] or None, too_long=_is_too_long(complaint))
    last = results[-1]
    error, status = _result_error(last)
    return JudgeAnswer(
        text="" if error is not None else _text(last.get("result")),
        model=_main_model(last.get("modelUsage")),
        usage=_usage_of(results),
        cli_error=error,
        error_status=status,
        too_long=error is not None and (last.get("terminal_reason") == "prompt_too_long" or _is_too_long(error)),
    )


def plain_lines(stdout: bytes) -> list[str]:
    """The lines that are no event: what the CLI said outside its own format."""
    if len(stdout) > 2 * _FLOOD:
        stdout = stdout[:_FLOOD] + b"\n" + stdout[-_FLOOD:]
    lines = [line for line in stdout.split(b"\n") if line.strip()]
    return [line.decode("utf-8", "replace").strip() for line in lines if _parsed(line) is None]


class _Stream:
    """Events in, one reply out."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.results: list[dict[str, Any]] = []
        self.init: dict[str, Any] | None = None
        self.model: str | None = None
        self.session_id: str | None = None
        self.complaint: tuple[str, str | None] | None = None
        self.code: str | None = None
        self.unreadable = 0

    def take(self, event: dict[str, Any] | None) -> None:
        if event is None:
            self.unreadable += 1
            return
        if self.session_id is None:
            self.session_id = _string(event.get("session_id"))
        kind = event.get("type")
        if kind == "system" and event.get("subtype") == "init" and self.init is None:
            self.init = event
        elif kind == "assistant":
            self._assistant(event)
        elif kind == "user":
            self._results_in(_blocks(event), _string(event.get("parent_tool_use_id")))
        elif kind == "tool_result":
            self._results_in([event], _string(event.get("parent_tool_use_id")))
        elif kind == "result":
            self.results.append(event)
        elif kind == "error":
            problem = event.get("error")
            self.complaint = (_text(_mapping(problem).get("message")) or _text(problem) or "error", None)

    def _assistant(self, event: dict[str, Any]) -> None:
        message = _mapping(event.get("message"))
        parent = _string(event.get("parent_tool_use_id"))
        blocks = _blocks(event)
        if message.get("model") == SYNTHETIC:
            if parent is None:
                said = "\n".join(_text(block.get("text")) for block in blocks if block.get("type") == "text")
                self.code = _string(event.get("error"))
                self.complaint = (said, self.code)
            return
        for block in blocks:
            kind = _text(block.get("type"))
            if kind == "text" and isinstance(block.get("text"), str) and block["text"]:
                self.turns.append(Turn("assistant", block["text"], parent_call_id=parent))
                self.complaint = None
            elif kind.endswith("tool_use"):
                call = _string(block.get("id"))
                name = _text(block.get("name")) or "(unnamed)"
                tool_input = _tool_input(block.get("input"))
                turn = Turn("tool_use", "", tool_name=name, tool_input=tool_input, call_id=call, parent_call_id=parent)
                self.turns.append(turn)
                self.complaint = None
        self._results_in(blocks, parent)
        if parent is None and _string(message.get("model")):
            self.model = _string(message.get("model"))

    def _results_in(self, blocks: list[dict[str, Any]], parent: str | None) -> None:
        for block in blocks:
            if not _text(block.get("type")).endswith("tool_result"):
                continue
            failed = block.get("is_error")
            self.turns.append(
                Turn(
                    "tool_result",
                    _content_text(block.get("content")),
                    call_id=_string(block.get("tool_use_id")),
                    is_error=failed if isinstance(failed, bool) else None,
                    parent_call_id=parent,
                )
            )

    def reply(self) -> AgentReply:
        usage = _usage_of(self.results)
        spoke = bool(self.turns) or bool(usage is not None and usage.total_tokens)
        error, status = _result_error(self.results[-1]) if self.results else (None, None)
        code = self.code if error is not None else None
        if error is None and self.complaint is not None:
            said, known = self.complaint
            closing = _text(self.results[-1].get("result")).strip() if self.results else said.strip()
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
        found = [(name, _text(states.get(name)) or "not listed") for name in servers]
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
        configured = _string(self.init.get("model")) if self.init is not None else None
        return _plain_model(configured) if configured is not None else None


def _line_count(text: bytes) -> int:
    """The lines that are not blank; in a flood, all of them, for it may hold tens of millions."""
    return text.count(b"\n") if len(text) > _FLOOD else sum(1 for line in text.split(b"\n") if line.strip())


def _parsed(line: bytes) -> dict[str, Any] | None:
    """The event on the line, fit to be stored again. `None`: it holds none."""
    if b"{" not in line:
        return None
    try:
        value = json.loads(line.decode("utf-8", "replace").lstrip("\ufeff"), parse_constant=str)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    # Half a surrogate pair cannot be written as UTF-8; hundreds of nested levels cannot be walked.
    if b"\\ud" in line or b"\\uD" in line or line.count(b"[") + line.count(b"{") > _SURELY_FLAT:
        value = _storable(value, 0)
    return value if isinstance(value, dict) else None


def _storable(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict | list) and depth > _DEEPEST:
        return "(nested too deeply)"
    if isinstance(value, dict):
        return {_storable(key, depth): _storable(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_storable(item, depth + 1) for item in value]
    return value


def _events_in(text: str) -> Iterator[dict[str, Any]]:
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        found = (_parsed(line.encode("utf-8", "replace")) for line in text.splitlines())
        yield from (event for event in found if event is not None)
        return
    for item in whole if isinstance(whole, list) else [whole]:
        if isinstance(item, dict):
            yield item


def _result_error(result: Mapping[str, Any]) -> tuple[str | None, int | None]:
    """The error that a closing event reports, with its HTTP status. (None, None): it reports none."""
    subtype = _text(result.get("subtype"))
    status = _status(result.get("api_error_status"))
    flagged = result.get("is_error") in (True, "true", "True")
    if not flagged and not subtype.startswith("error") and status is None:
        return None, None
    errors = result.get("errors")
    listed = "; ".join(item for item in errors if isinstance(item, str)) if isinstance(errors, list) else ""
    text = _text(result.get("result")).strip() or listed or subtype or "the CLI reported an error without a text"
    if status is not None and str(status) not in text:
        text = f"API error {status}: {text}"
    return text, status


def _usage_of(results: list[dict[str, Any]]) -> Usage | None:
    """Token counts of the whole stream, sub-agents included. `None`: none that can be believed."""
    told = _sum(_usage(_mapping(result.get("usage")), _USAGE_KEYS) for result in results)
    models = _mapping(results[-1].get("modelUsage")).values() if results else ()
    billed = _sum(_usage(_mapping(counts), _MODEL_USAGE_KEYS) for counts in models)
    pairs = zip(told.counts(), billed.counts(), strict=True)
    usage = Usage(*(max((n for n in pair if n is not None), default=None) for pair in pairs))
    return None if usage == Usage() else usage


def _usage(counts: Mapping[str, Any], keys: tuple[str, str, str, str]) -> Usage:
    return Usage(*(_count(counts.get(key)) for key in keys))


def _sum(usages: Iterable[Usage]) -> Usage:
    return functools.reduce(Usage.plus, usages, Usage())


def _main_model(model_usage: Any) -> str | None:
    """The model that used the most tokens, the first on a tie."""
    totals = {}
    for name, counts in _mapping(model_usage).items():
        totals[name] = _usage(_mapping(counts), _MODEL_USAGE_KEYS).total_tokens or 0
    return _plain_model(max(totals, key=lambda name: totals[name])) if totals else None


def _plain_model(name: str) -> str:
    return name.removesuffix("[1m]")


def _is_too_long(text: str) -> bool:
    return any(words in text.lower() for words in _TOO_LONG)


def _blocks(event: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = _mapping(event.get("message")).get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _tool_input(value: Any) -> dict[str, Any]:
    """The call's arguments as a mapping, whatever they came as."""
    if isinstance(value, dict):
        return value
    if isinstance(value, str):
        try:
            inner = json.loads(value)
        except (ValueError, RecursionError):
            inner = None
        if isinstance(inner, dict):
            return inner
    return {} if value is None else {"input": value}


def _content_text(value: Any) -> str:
    """A tool's output as text; blocks that are no text are named, not shown."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return json.dumps(value, ensure_ascii=False)
    parts = []
    for item in value:
        if isinstance(item, str):
            parts.append(item)
        elif isinstance(item, dict):
            parts.append(item["text"] if isinstance(item.get("text"), str) else f"[{_text(item.get('type')) or '?'}]")
    return "\n".join(parts)


def _names(value: Any) -> tuple[str, ...] | None:
    """Names in a list of strings or of objects that have one. `None`: no list."""
    if not isinstance(value, list):
        return None
    found = [item.get("name") if isinstance(item, dict) else item for item in value]
    return tuple(name for name in found if isinstance(name, str))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _status(value: Any) -> int | None:
    """An HTTP status that says that a call failed."""
    number = int(value) if isinstance(value, str) and re.fullmatch("[45][0-9]{2}", value) else _count(value)
    return number if number is not None and number >= 400 else None


def _count(value: Any) -> int | None:
    """A count that can be one: a whole number, not negative, not absurd."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST_COUNT:
        return value
    return None
