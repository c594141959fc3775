"""A conversation over OpenAI's Responses API, through its SDK.

Nothing is stored by the service: each request holds the whole conversation, and reasoning goes back encrypted, so that
a model takes up its own thoughts after a tool call. An option that a model or a gateway does not take is left out.
"""

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

from .events import clean
from .failures import RequestFailed, check_stream, cut_off, failure_of, told_failure
from .messages import object_schema
from .talk import Call, Progress, Reply, Result, Tool, call_of

_OPTIONAL = {
    "include": ("include", "encrypted content"),
    "prompt_cache_key": ("prompt_cache_key",),
    "stream_options": ("stream_options", "include_usage"),
}
"""What may be left out of a request, and the words of a refusal that is about it."""


def make_client(seconds: float) -> Any:
    """The SDK's client. A local server wants no key, the SDK does."""
    import openai

    key = os.environ.get("OPENAI_API_KEY") or "none"
    return openai.OpenAI(api_key=key, max_retries=0, timeout=openai.Timeout(seconds, connect=10.0))


def streamed(client: Any, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The events of an answer, as the service wrote them. The SDK's own methods for an endpoint make typed events of
    them, and importing those types takes 0.3 s, half of what an attempt takes to start."""
    import openai

    kind = openai.Stream[object]
    with client.post(path, cast_to=object, body={**body, "stream": True}, stream=True, stream_cls=kind) as stream:
        check_stream(stream)
        for event in stream:
            if isinstance(event, dict):
                yield event


def without_refused(options: dict[str, Any], failure: RequestFailed) -> bool:
    """Whether the request was refused for an option that may be left out; it is from then on."""
    if failure.status not in (400, 422):
        return False
    told = f"{failure.code} {failure.message}".lower()
    for name, words in _OPTIONAL.items():
        if name in options and any(word in told for word in words):
            del options[name]
            return True
    return False


class Responses:
    def __init__(self, model: str, system: str, tools: Sequence[Tool], seconds: float, session: str) -> None:
        self._client = make_client(seconds)
        self._input: list[dict[str, Any]] = []
        self._fixed: dict[str, Any] = {"model": model, "store": False}
        self._options: dict[str, Any] = {"include": ["reasoning.encrypted_content"], "prompt_cache_key": session}
        if system:
            self._fixed["instructions"] = system
        if tools:
            self._fixed["tools"] = [
                {
                    "type": "function",
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": object_schema(tool),
                    "strict": False,
                }
                for tool in tools
            ]

    def user(self, text: str) -> None:
        self._input.append({"role": "user", "content": text})

    def assistant(self, text: str, commands: Sequence[tuple[str, str]]) -> None:
        if text.strip():
            self._input.append({"role": "assistant", "content": text})
        place = len(self._input)
        for number, (run, _) in enumerate(commands):
            given = json.dumps({"command": run}, ensure_ascii=False)
            call = {"type": "function_call", "call_id": f"call_{place:04d}{number:04d}", "name": "bash"}
            self._input.append({**call, "arguments": given})
        for number, (_, output) in enumerate(commands):
            self._input.append(_output(f"call_{place:04d}{number:04d}", output))

    def results(self, results: Sequence[tuple[Call, Result]]) -> None:
        self._input += [_output(call.id, result.text) for call, result in results]

    def reply(self, progress: Progress) -> Reply:
        while True:
            try:
                return self._reply(progress)
            except Exception as error:
                failure = failure_of(error)
                if not without_refused(self._options, failure):
                    raise failure from error

    def _reply(self, progress: Progress) -> Reply:
        answer = Answer(progress)
        body = {**self._fixed, **self._options, "input": self._input}
        for event in streamed(self._client, "/responses", body):
            answer.take(event)
        reply, items = answer.finished()
        self._input += items
        return reply


class Answer:
    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._items: dict[int, dict[str, Any]] = {}
        self._response: dict[str, Any] | None = None

    def take(self, event: dict[str, Any]) -> None:
        kind = event.get("type")
        response = event.get("response") or {}
        if kind == "response.created":
            self._progress.model(response.get("model"))
        elif kind in ("response.output_text.delta", "response.refusal.delta"):
            self._progress.text += event.get("delta") or ""
        elif kind == "response.output_item.done":
            self._items[event.get("output_index", len(self._items))] = event["item"]
        elif kind in ("response.completed", "response.incomplete", "response.failed"):
            self._usage(response.get("usage") or {})
            self._response = response
            if kind == "response.failed":
                raise told_failure(
                    response.get("error") or {"message": "the service could not finish its answer"}, None
                )
            self._progress.model(response.get("model"))
        elif kind == "error":
            raise told_failure(event.get("error") or event, None)

    def _usage(self, told: dict[str, Any]) -> None:
        self._progress.usage(**disjoint(told, "input", "output"))

    def finished(self) -> tuple[Reply, list[dict[str, Any]]]:
        """The reply, and the items to send back."""
        if self._response is None:
            raise cut_off("in the middle of an answer")
        reply, kept = Reply(stop=self._stop()), []
        for item in [self._items[key] for key in sorted(self._items)] or self._response.get("output") or []:
            item = clean(item)
            kind = item.get("type")
            if kind == "message":
                for part in item.get("content") or ():
                    reply.say(part.get("text") or part.get("refusal") or "")
            elif kind == "function_call":
                call = call_of(item["call_id"], item["name"], item.get("arguments") or "")
                item["arguments"] = item.get("arguments") if call.arguments is not None else "{}"
                reply.items.append(call)
            elif kind == "reasoning" and not item.get("encrypted_content"):
                continue  # known by its id alone, and nothing was stored
            kept.append({key: value for key, value in item.items() if key != "status"})
        return reply, kept

    def _stop(self) -> str:
        assert self._response is not None
        reason = str((self._response.get("incomplete_details") or {}).get("reason"))
        return {"max_output_tokens": "length", "content_filter": "refused"}.get(reason, "end")


def disjoint(told: dict[str, Any], read: str, written: str) -> dict[str, Any]:
    """Usage in counts that do not overlap: what OpenAI's protocols call input holds what came from the cache."""
    whole = told.get(f"{read}_tokens")
    details = told.get(f"{read}_tokens_details") or {}
    cached, stored = details.get("cached_tokens"), details.get("cache_write_tokens")
    cached = cached if isinstance(cached, int) else None
    stored = stored if isinstance(stored, int) else None
    rest = max(0, whole - (cached or 0) - (stored or 0)) if isinstance(whole, int) else None
    return {
        "input": rest,
        "output": told.get(f"{written}_tokens"),
        "cache_read": cached,
        "cache_creation": stored,
    }


def _output(call_id: str, text: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}
