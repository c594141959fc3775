"""What a turn of a scenario looks like in each protocol that `model_server` speaks: the Messages API of Anthropic, the
Responses API and the chat completions of OpenAI. Pure: a turn and the request's body in, events and bodies out.
"""

import json
import uuid
from collections.abc import Iterator
from typing import Any
from typing import Protocol as Interface

USAGE = {
    "input_tokens": 100,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "output_tokens": 20,
}
"""Of every turn that gives none, in the words of the Messages API. `usage` of a turn is laid over it; the other
protocols, whose input holds the cached part, get it translated."""
OVERLOADED = {"type": "overloaded_error", "message": "Overloaded"}
Turn = dict[str, Any]
Event = dict[str, Any] | str


class Protocol(Interface):
    def error(self, turn: Turn) -> dict[str, Any]:
        """The body of an HTTP error."""
        ...

    def stream_error(self, turn: Turn) -> Event: ...

    def whole(self, turn: Turn, body: dict[str, Any]) -> dict[str, Any]: ...

    def events(self, turn: Turn, body: dict[str, Any], *, whole: bool) -> Iterator[Event]:
        """The events of a streamed answer; not `whole`: up to the last delta, without an end."""
        ...


def protocol_of(path: str) -> Protocol | None:
    for ending, protocol in _PROTOCOLS.items():
        if path.endswith(ending):
            return protocol
    return None


def _id(prefix: str) -> str:
    return prefix + uuid.uuid4().hex[:20]


def _deltas(turn: Turn) -> list[str]:
    if "text" not in turn:
        return []
    return list(turn["text"]) if isinstance(turn["text"], list) else [turn["text"]]


class Messages:
    def error(self, turn: Turn) -> dict[str, Any]:
        kind, message = turn.get("error_type", "api_error"), turn.get("message", "refused")
        return {"type": "error", "error": {"type": kind, "message": message}}

    def stream_error(self, turn: Turn) -> Event:
        return {"type": "error", "error": OVERLOADED if turn["stream_error"] is True else turn["stream_error"]}

    def whole(self, turn: Turn, body: dict[str, Any]) -> dict[str, Any]:
        content = [{k: v for k, v in block.items() if k != "deltas"} for block in self._blocks(turn)]
        return {
            "id": _id("msg_"),
            "type": "message",
            "role": "assistant",
            "model": turn.get("model", body.get("model")),
            "content": content,
            "stop_reason": turn.get("stop_reason", "tool_use" if turn.get("tools") else "end_turn"),
            "stop_sequence": None,
            "usage": USAGE | turn.get("usage", {}),
        }

    def _blocks(self, turn: Turn) -> list[dict[str, Any]]:
        blocks: list[dict[str, Any]] = []
        if "thinking" in turn:
            blocks.append({"type": "thinking", "thinking": turn["thinking"], "signature": "c2ln"})
        if "text" in turn:
            deltas = _deltas(turn)
            blocks.append({"type": "text", "text": "".join(deltas), "deltas": deltas})
        for tool in turn.get("tools", []):
            call = {"type": "tool_use", "id": "toolu_" + uuid.uuid4().hex[:24], "name": tool["name"]}
            blocks.append(call | {"input": tool.get("input", {})})
        return blocks

    def events(self, turn: Turn, body: dict[str, Any], *, whole: bool) -> Iterator[Event]:
        message = self.whole(turn, body)
        usage, stop_reason = message["usage"], message["stop_reason"]
        start = message | {"content": [], "stop_reason": None, "usage": usage | {"output_tokens": 1}}
        yield {"type": "message_start", "message": start}
        for index, block in enumerate(self._blocks(turn)):
            kind = block["type"]
            if kind == "text":
                empty: dict[str, Any] = {"type": "text", "text": ""}
                deltas = [{"type": "text_delta", "text": part} for part in block["deltas"]]
            elif kind == "thinking":
                empty = {"type": "thinking", "thinking": "", "signature": ""}
                deltas = [
                    {"type": "thinking_delta", "thinking": block["thinking"]},
                    {"type": "signature_delta", "signature": block["signature"]},
                ]
            else:
                empty = block | {"input": {}}
                deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
            yield {"type": "content_block_start", "index": index, "content_block": empty}
            for delta in deltas:
                yield {"type": "content_block_delta", "index": index, "delta": delta}
            if whole or turn.get("stream_error") or turn.get("hang_mid"):
                yield {"type": "content_block_stop", "index": index}
        if whole:
            change = {"stop_reason": stop_reason, "stop_sequence": None}
            yield {"type": "message_delta", "delta": change, "usage": {"output_tokens": usage["output_tokens"]}}
            yield {"type": "message_stop"}


class _OpenAI:
    def error(self, turn: Turn) -> dict[str, Any]:
        kind, message = turn.get("error_type", "invalid_request_error"), turn.get("message", "refused")
        return {"error": {"message": message, "type": kind, "param": None, "code": turn.get("code")}}


class Responses(_OpenAI):
    def stream_error(self, turn: Turn) -> Event:
        told = {"message": "Overloaded"} if turn["stream_error"] is True else turn["stream_error"]
        error = {"code": told.get("code") or told.get("type", "server_error"), "message": told["message"]}
        return {"type": "response.failed", "response": {"id": _id("resp_"), "status": "failed", "error": error}}

    def whole(self, turn: Turn, body: dict[str, Any]) -> dict[str, Any]:
        usage = USAGE | turn.get("usage", {})
        cached = usage["cache_read_input_tokens"]
        read = usage["input_tokens"] + cached
        return {
            "id": _id("resp_"),
            "object": "response",
            "created_at": 1_750_000_000,
            "status": "completed",
            "model": turn.get("model", body.get("model")),
            "output": list(self._items(turn)),
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": read,
                "input_tokens_details": {"cached_tokens": cached},
                "output_tokens": usage["output_tokens"],
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": read + usage["output_tokens"],
            },
        }

    def _items(self, turn: Turn) -> Iterator[dict[str, Any]]:
        if "thinking" in turn:
            summary = [{"type": "summary_text", "text": turn["thinking"]}]
            yield {"type": "reasoning", "id": _id("rs_"), "summary": summary, "encrypted_content": "c2VjcmV0"}
        if "text" in turn:
            content = [{"type": "output_text", "text": "".join(_deltas(turn)), "annotations": []}]
            yield {
                "type": "message",
                "id": _id("msg_"),
                "role": "assistant",
                "status": "completed",
                "content": content,
            }
        for tool in turn.get("tools", []):
            given = tool.get("input", {})
            common = {"call_id": _id("call_"), "name": tool["name"], "status": "completed"}
            if tool.get("kind") == "custom":
                yield {"type": "custom_tool_call", "id": _id("ctc_"), **common, "input": given}
            else:
                arguments = given if isinstance(given, str) else json.dumps(given)
                space = {"namespace": tool["namespace"]} if "namespace" in tool else {}
                yield {"type": "function_call", "id": _id("fc_"), **common, **space, "arguments": arguments}

    def events(self, turn: Turn, body: dict[str, Any], *, whole: bool) -> Iterator[Event]:
        response = self.whole(turn, body)
        begun = response | {"status": "in_progress", "output": [], "usage": None}
        numbers = iter(range(10_000))

        def event(kind: str, **more: Any) -> dict[str, Any]:
            return {"type": kind, "sequence_number": next(numbers), **more}

        yield event("response.created", response=begun)
        for index, item in enumerate(response["output"]):
            where: dict[str, Any] = {"item_id": item["id"], "output_index": index}
            if item["type"] == "message":
                text = item["content"][0]["text"]
                yield event(
                    "response.output_item.added",
                    output_index=index,
                    item=item | {"status": "in_progress", "content": []},
                )
                empty = {"type": "output_text", "text": "", "annotations": []}
                yield event("response.content_part.added", **where, content_index=0, part=empty)
                for delta in _deltas(turn):
                    yield event("response.output_text.delta", **where, content_index=0, delta=delta, logprobs=[])
                yield event("response.output_text.done", **where, content_index=0, text=text, logprobs=[])
                yield event("response.content_part.done", **where, content_index=0, part=item["content"][0])
            elif item["type"] == "function_call":
                yield event("response.output_item.added", output_index=index, item=item | {"arguments": ""})
                yield event("response.function_call_arguments.delta", **where, delta=item["arguments"])
                yield event(
                    "response.function_call_arguments.done", **where, arguments=item["arguments"], name=item["name"]
                )
            else:
                yield event("response.output_item.added", output_index=index, item=item)
            yield event("response.output_item.done", output_index=index, item=item)
        if whole and turn.get("incomplete"):
            details = {"incomplete_details": {"reason": turn["incomplete"]}}
            yield event("response.incomplete", response=response | {"status": "incomplete"} | details)
        elif whole:
            yield event("response.completed", response=response)


class ChatCompletions(_OpenAI):
    def stream_error(self, turn: Turn) -> Event:
        return {"error": {"message": "Overloaded"} if turn["stream_error"] is True else turn["stream_error"]}

    def whole(self, turn: Turn, body: dict[str, Any]) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(_deltas(turn)) or None}
        calls = self._calls(turn)
        if calls:
            message["tool_calls"] = calls
        return {
            "id": _id("chatcmpl-"),
            "object": "chat.completion",
            "created": 1_750_000_000,
            "model": turn.get("model", body.get("model")),
            "choices": [{"index": 0, "message": message, "finish_reason": self._reason(turn), "logprobs": None}],
            "usage": self._usage(turn),
        }

    def _calls(self, turn: Turn) -> list[dict[str, Any]]:
        return [
            {
                "id": _id("call_"),
                "type": "function",
                "function": {"name": tool["name"], "arguments": _arguments(tool.get("input", {}))},
            }
            for tool in turn.get("tools", [])
        ]

    def _reason(self, turn: Turn) -> str:
        return str(turn.get("stop_reason", "tool_calls" if turn.get("tools") else "stop"))

    def _usage(self, turn: Turn) -> dict[str, Any]:
        usage = USAGE | turn.get("usage", {})
        cached = usage["cache_read_input_tokens"]
        read = usage["input_tokens"] + cached
        return {
            "prompt_tokens": read,
            "completion_tokens": usage["output_tokens"],
            "total_tokens": read + usage["output_tokens"],
            "prompt_tokens_details": {"cached_tokens": cached},
        }

    def events(self, turn: Turn, body: dict[str, Any], *, whole: bool) -> Iterator[Event]:
        common = {
            "id": _id("chatcmpl-"),
            "object": "chat.completion.chunk",
            "created": 1_750_000_000,
            "model": turn.get("model", body.get("model")),
        }

        def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
            return {**common, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

        yield chunk({"role": "assistant", "content": ""})
        if "thinking" in turn:
            yield chunk({"reasoning_content": turn["thinking"]})
        for delta in _deltas(turn):
            yield chunk({"content": delta})
        for index, call in enumerate(self._calls(turn)):
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            first = {"index": index, "id": call["id"], "type": "function", "function": {"name": name, "arguments": ""}}
            yield chunk({"tool_calls": [first]})
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]})
        if whole:
            yield chunk({}, self._reason(turn))
            if (body.get("stream_options") or {}).get("include_usage"):
                yield {**common, "choices": [], "usage": self._usage(turn)}
            yield "[DONE]"


def _arguments(given: Any) -> str:
    return given if isinstance(given, str) else json.dumps(given)


_PROTOCOLS: dict[str, Protocol] = {
    "/messages": Messages(),
    "/responses": Responses(),
    "/chat/completions": ChatCompletions(),
}
