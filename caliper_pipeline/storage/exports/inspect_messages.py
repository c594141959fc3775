"""A transcript as Inspect has it: chat messages, with the calls of tools in the message that makes them."""

from collections.abc import Iterable
from typing import Any

from caliper_pipeline.domain.transcript import Turn

Message = dict[str, Any]


def messages_of(prompt: str | None, turns: Iterable[Turn], *, model: str, name: str) -> list[Message]:
    """The prompt and what followed. `name` starts the ids of the messages, which are to be unlike all others."""
    talk = _Talk(model, name)
    if prompt is not None:
        talk.say({"role": "user", "content": prompt, "source": "input"})
    for turn in turns:
        talk.take(turn)
    return talk.messages


class _Talk:
    def __init__(self, model: str, name: str) -> None:
        self.messages: list[Message] = []
        self._model, self._name = model, name
        self._open: list[tuple[str, str | None]] = []
        """Calls without a result so far: id and tool."""
        self._calls = 0

    def say(self, message: Message, turn: Turn | None = None) -> Message:
        message = {"id": f"{self._name}-{len(self.messages) + 1}", **message}
        if turn is not None and turn.parent_call_id is not None:
            message["metadata"] = {"parent_call_id": turn.parent_call_id}
        self.messages.append(message)
        return message

    def take(self, turn: Turn) -> None:
        match turn.role:
            case "tool_use":
                self._call(turn)
            case "tool_result":
                self._result(turn)
            case "user":
                self.say({"role": "user", "content": turn.content}, turn)
            case _:
                self.say({"role": "assistant", "content": turn.content, "model": self._model}, turn)

    def _call(self, turn: Turn) -> None:
        self._calls += 1
        call_id = turn.call_id or f"{self._name}-call-{self._calls}"
        call = {
            "id": call_id,
            "function": turn.tool_name or "unknown",
            "arguments": dict(turn.tool_input or {}),
            "type": "function",
        }
        last = self.messages[-1] if self.messages else None
        parent = None if last is None else last.get("metadata", {}).get("parent_call_id")
        if last is None or last["role"] != "assistant" or parent != turn.parent_call_id:
            last = self.say({"role": "assistant", "content": "", "model": self._model}, turn)
        last.setdefault("tool_calls", []).append(call)
        self._open.append((call_id, turn.tool_name))

    def _result(self, turn: Turn) -> None:
        call_id, tool = self._answered(turn)
        message: Message = {"role": "tool", "content": turn.content, "tool_call_id": call_id}
        if tool is not None:
            message["function"] = tool
        if turn.is_error:
            message["error"] = {"type": "unknown", "message": turn.content}
        self.say(message, turn)

    def _answered(self, turn: Turn) -> tuple[str, str | None]:
        """Which call this is the result of: the one it names, or the first open one of its tool, or of any."""
        by_id = [call for call in self._open if call[0] == turn.call_id]
        by_tool = [call for call in self._open if turn.tool_name in (None, call[1])] if turn.call_id is None else []
        for call in (*by_id, *by_tool):
            self._open.remove(call)
            return call
        return turn.call_id or f"{self._name}-result-{len(self.messages) + 1}", turn.tool_name
