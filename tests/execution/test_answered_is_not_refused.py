"""A command that answered, and then failed on its way out with words about limits or logins, did not refuse."""

import json
from typing import Any

import pytest

from caliper_pipeline.execution.backends.base import Backend
from caliper_pipeline.execution.backends.claude_code import ClaudeCode
from caliper_pipeline.execution.backends.codex import Codex
from caliper_pipeline.execution.backends.pi import Pi
from caliper_pipeline.execution.command import ProcessResult

TEXT = {"type": "text", "text": "12:04."}
STREAMS: list[tuple[Backend, list[dict[str, Any]]]] = [
    (ClaudeCode(), [{"type": "result", "subtype": "success", "result": "12:04.", "usage": {"output_tokens": 5}}]),
    (
        Codex(),
        [
            {"type": "item.completed", "item": {"id": "i", "type": "agent_message", "text": "12:04."}},
            {"type": "turn.completed", "usage": {"input_tokens": 9, "output_tokens": 5}},
        ],
    ),
    (
        Pi(),
        [
            {"type": "message_end", "message": {"role": "assistant", "content": [TEXT], "stopReason": "stop"}},
            {"type": "agent_end"},
        ],
    ),
]


@pytest.mark.parametrize(("backend", "events"), STREAMS, ids=lambda value: getattr(value, "name", ""))
def test_an_answered_call_was_not_refused(backend: Backend, events: list[dict[str, Any]]) -> None:
    stream = "".join(json.dumps(event) + "\n" for event in events).encode()
    for stderr in (b"telemetry: 429 too many requests", b"not logged in to the update service"):
        result = ProcessResult(1, stream, stderr)
        assert backend.refusal(result, backend.read(result)) is None
        unanswered = ProcessResult(1, b"", stderr)
        assert backend.refusal(unanswered, backend.read(unanswered)) is not None
