"""A conversation over chat completions, through OpenAI's SDK: what local servers (Ollama, llama.cpp, vLLM) speak.

They differ in what they leave out of a stream: the number of a call, its id, the usage. Nothing of that is needed.
"""

import json
from collections.abc import Sequence
from typing import Any

from .failures import cut_off, failure_of
from .messages import object_schema
from .responses import disjoint, make_client, streamed, without_refused
from .talk import Call, Progress, Reply, Result, Tool, call_of

_STOPS = {"length": "length", "content_filter": "refused"}


class Chat:
    def __init__(self, model: str, system: str, tools: Sequence[Tool], seconds: float) -> None:
        self._client = make_client(seconds)
        self._messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
        self._fixed: dict[str, Any] = {"model": model}
        self._options: dict[str, Any] = {"stream_options": {"include_usage": True}}
        if tools:
            self._fixed["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": tool.name,
                        "description": tool.description,
                        "parameters": object_schema(tool),
                    },
                }
                for tool in tools
            ]

    def user(self, text: str) -> None:
        """Some chat templates refuse two user messages in a row."""
        if self._messages and self._messages[-1]["role"] == "user":
            self._messages[-1]["content"] += f"\n\n{text}"
        else:
            self._messages.append({"role": "user", "content": text})

    def assistant(self, text: str, commands: Sequence[tuple[str, str]]) -> None:
        place = len(self._messages)
        calls = [
            Call(f"call_{place:04d}{number:04d}", "bash", {"command": run}) for number, (run, _) in enumerate(commands)
        ]
        self._said(text, calls)
        outputs = [Result(output) for _, output in commands]
        self.results(list(zip(calls, outputs, strict=True)))

    def results(self, results: Sequence[tuple[Call, Result]]) -> None:
        self._messages += [
            {"role": "tool", "tool_call_id": call.id, "content": result.text} for call, result in results
        ]

    def reply(self, progress: Progress) -> Reply:
        while True:
            try:
                return self._reply(progress)
            except Exception as error:
                failure = failure_of(error)
                if not without_refused(self._options, failure):
                    raise failure from error

    def _reply(self, progress: Progress) -> Reply:
        answer = Answer(progress, len(self._messages))
        body = {**self._fixed, **self._options, "messages": self._messages}
        for chunk in streamed(self._client, "/chat/completions", body):
            answer.take(chunk)
        reply = answer.finished()
        self._said("".join(item for item in reply.items if isinstance(item, str)), reply.calls)
        return reply

    def _said(self, text: str, calls: Sequence[Call]) -> None:
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": json.dumps(call.arguments or {}, ensure_ascii=False)},
                }
                for call in calls
            ]
        if text or calls:
            self._messages.append(message)


class Answer:
    def __init__(self, progress: Progress, place: int) -> None:
        self._progress = progress
        self._place = place
        """Of the reply in the conversation: makes ids that are missing unlike others."""
        self._calls: list[dict[str, str]] = []
        self._numbered: dict[int, dict[str, str]] = {}
        self._named = False
        self._reason: str | None = None

    def take(self, chunk: dict[str, Any]) -> None:
        if not self._named and chunk.get("model"):
            self._named = True
            self._progress.model(chunk["model"])
        if chunk.get("usage"):
            self._progress.usage(**disjoint(chunk["usage"], "prompt", "completion"))
        for choice in (chunk.get("choices") or ())[:1]:
            self._reason = choice.get("finish_reason") or self._reason
            delta = choice.get("delta") or {}
            self._progress.text += delta.get("content") or delta.get("refusal") or ""
            for part in delta.get("tool_calls") or ():
                self._part(part)

    def _part(self, part: dict[str, Any]) -> None:
        """A piece of a call: by its number, else it begins a call when it has a name, else it goes on with the last."""
        told = part.get("function") or {}
        number = part.get("index")
        call = self._numbered.get(number) if number is not None else self._calls[-1] if self._calls else None
        begins = call is None or (number is None and bool(told.get("name")))
        if call is None or begins:
            call = {"id": "", "name": "", "arguments": ""}
            self._calls.append(call)
            if number is not None:
                self._numbered[number] = call
        call["id"] = call["id"] or part.get("id") or ""
        call["name"] += told.get("name") or ""
        call["arguments"] += told.get("arguments") or ""

    def finished(self) -> Reply:
        if self._reason is None:
            raise cut_off("in the middle of an answer")
        reply = Reply(stop=_STOPS.get(self._reason, "end"))
        reply.say(self._progress.text)
        for number, call in enumerate(self._calls):
            key = call["id"] or f"call_{self._place:04d}{number:04d}"
            reply.items.append(call_of(key, call["name"], call["arguments"]))
        return reply
