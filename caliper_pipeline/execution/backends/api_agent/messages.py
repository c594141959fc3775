"""A conversation over the Messages API, through Anthropic's SDK.

What is sent again and again is cached by the service: the tools and the system prompt, and the conversation up to the
last two turns of the user, so that a turn is found again even after twenty tool calls at once. Replies go back exactly
as they came, thinking and its signature included: the service refuses a conversation whose thinking was changed.
"""

import os
import re
from collections.abc import Sequence
from typing import Any

from .events import clean
from .failures import check_stream, cut_off, failure_of
from .talk import Call, Progress, Reply, Result, Tool, call_of

REPLY_TOKENS = 16_000
"""A request must name a limit; above that of a model it is refused, and today's take this much."""
_STOPS = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "end",
    "max_tokens": "length",
    "pause_turn": "pause",
    "refusal": "refused",
    "model_context_window_exceeded": "context",
}
_CACHED = {"cache_control": {"type": "ephemeral"}}
_LOWER_LIMIT = re.compile(r"max_tokens: \d+ > (\d+)")


class Messages:
    def __init__(self, model: str, system: str, tools: Sequence[Tool], seconds: float) -> None:
        import anthropic

        named = os.environ.get("ANTHROPIC_API_KEY") or os.environ.get("ANTHROPIC_AUTH_TOKEN")
        self._client: Any = anthropic.Anthropic(
            # A gateway that wants no key is sent this word, since the SDK wants one.
            api_key=None if named else "none",
            max_retries=0,
            timeout=anthropic.Timeout(seconds, connect=10.0),
        )
        self._messages: list[dict[str, Any]] = []
        self._reply_tokens = REPLY_TOKENS
        self._fixed: dict[str, Any] = {"model": model}
        if system:
            self._fixed["system"] = [{"type": "text", "text": system, **(_CACHED if tools else {})}]
        if tools:
            self._fixed["tools"] = [
                {"name": tool.name, "description": tool.description, "input_schema": object_schema(tool)}
                for tool in tools
            ]

    def user(self, text: str) -> None:
        self._add("user", [{"type": "text", "text": text}])

    def assistant(self, text: str, commands: Sequence[tuple[str, str]]) -> None:
        place = len(self._messages)
        calls = [(f"toolu_{place:04d}{number:04d}", run, output) for number, (run, output) in enumerate(commands)]
        said = [{"type": "text", "text": text}] if text.strip() else []
        self._add(
            "assistant",
            said
            + [{"type": "tool_use", "id": key, "name": "bash", "input": {"command": run}} for key, run, _ in calls],
        )
        if calls:
            self._add("user", [_tool_result(key, output, failed=False) for key, _, output in calls])

    def results(self, results: Sequence[tuple[Call, Result]]) -> None:
        self._add("user", [_tool_result(call.id, result.text, failed=result.failed) for call, result in results])

    def reply(self, progress: Progress) -> Reply:
        while True:
            try:
                return self._reply(progress)
            except Exception as error:
                failure = failure_of(error)
                lower = _LOWER_LIMIT.search(failure.message) if failure.status == 400 else None
                if lower is None or not 0 < int(lower[1]) < self._reply_tokens:
                    raise failure from error
                self._reply_tokens = int(lower[1])

    def _reply(self, progress: Progress) -> Reply:
        answer = Answer(progress)
        with self._client.messages.create(
            **self._fixed, max_tokens=self._reply_tokens, messages=self._marked(), stream=True
        ) as stream:
            check_stream(stream)
            for event in stream:
                answer.take(event.to_dict())
        reply, content = answer.finished()
        if content:
            self._add("assistant", content)
        return reply

    def _add(self, role: str, content: list[dict[str, Any]]) -> None:
        """Roles alternate: what follows in the same role is part of the same message."""
        if self._messages and self._messages[-1]["role"] == role:
            self._messages[-1]["content"] = [*self._messages[-1]["content"], *content]
        else:
            self._messages.append({"role": role, "content": content})

    def _marked(self) -> list[dict[str, Any]]:
        """The conversation with the places to cache up to. A single question is not worth the surcharge."""
        if "tools" not in self._fixed:
            return self._messages
        marked = list(self._messages)
        places = [place for place, message in enumerate(marked) if message["role"] == "user"]
        for place in places[-2:]:
            *before, last = marked[place]["content"]
            marked[place] = {"role": "user", "content": [*before, {**last, **_CACHED}]}
        return marked


class Answer:
    """The events of one reply, put together."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._blocks: dict[int, dict[str, Any]] = {}
        self._arguments: dict[int, str] = {}
        self._stop: str | None = None
        self._ended = False

    def take(self, event: dict[str, Any]) -> None:
        kind = event.get("type")
        if kind == "message_start":
            message = event.get("message") or {}
            self._progress.model(message.get("model"))
            self._usage(message.get("usage"))
        elif kind == "content_block_start":
            self._blocks[event["index"]] = dict(event["content_block"])
        elif kind == "content_block_delta":
            self._delta(event["index"], event["delta"])
        elif kind == "message_delta":
            self._stop = event["delta"].get("stop_reason") or self._stop
            self._usage(event.get("usage"))
        elif kind == "message_stop":
            self._ended = True

    def _delta(self, index: int, delta: dict[str, Any]) -> None:
        block = self._blocks.setdefault(index, {})
        kind = delta.get("type")
        if kind == "text_delta":
            block["text"] = block.get("text", "") + delta["text"]
            self._progress.text += delta["text"]
        elif kind == "input_json_delta":
            self._arguments[index] = self._arguments.get(index, "") + delta["partial_json"]
        elif kind == "thinking_delta":
            block["thinking"] = block.get("thinking", "") + delta["thinking"]
        elif kind == "signature_delta":
            block["signature"] = block.get("signature", "") + delta["signature"]
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or ()), delta["citation"]]

    def _usage(self, told: dict[str, Any] | None) -> None:
        told = told or {}
        self._progress.usage(
            input=told.get("input_tokens"),
            output=told.get("output_tokens"),
            cache_read=told.get("cache_read_input_tokens"),
            cache_creation=told.get("cache_creation_input_tokens"),
        )

    def finished(self) -> tuple[Reply, list[dict[str, Any]]]:
        """The reply, and the message to send back."""
        if not self._ended and self._stop is None:
            raise cut_off("in the middle of an answer")
        reply = Reply(stop=_STOPS.get(self._stop or "end_turn", "end"))
        content = []
        for index in sorted(self._blocks):
            block = clean(self._blocks[index])
            if block.get("type") == "text":
                if not block.get("text", "").strip():
                    continue  # would be refused
                reply.say(block["text"])
            elif block.get("type") == "tool_use":
                raw = self._arguments.get(index)
                if raw is None:
                    call = Call(block["id"], block["name"], block.get("input") or {})
                else:
                    call = call_of(block["id"], block["name"], raw)
                block["input"] = call.arguments or {}
                reply.items.append(call)
            content.append(block)
        return reply, content


def object_schema(tool: Tool) -> dict[str, Any]:
    """Both services want the schema of an object, which a server may leave unsaid."""
    return {"type": "object", "properties": {}, **tool.schema}


def _tool_result(call_id: str, text: str, *, failed: bool) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": text, **({"is_error": True} if failed else {})}
