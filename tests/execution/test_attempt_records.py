"""What the record of an attempt says of its invocations."""

from datetime import UTC, datetime

import pytest

from caliper_pipeline.domain.records import TaskHeader
from caliper_pipeline.domain.transcript import AgentReply
from caliper_pipeline.execution.attempt_records import AgentCalls, attempt_record
from caliper_pipeline.execution.command import ProcessResult


@pytest.mark.parametrize(
    ("asked", "answered", "warned"),
    [
        ("opus", "claude-opus-4-8", False),
        ("claude-opus-4-8[1m]", "claude-opus-4-8", False),
        ("lab/model-2", "model-2", False),
        ("lab/model-2:high", "model-2-2026-01-01", False),
        ("router/vendor/model-2", "vendor/model-2", False),
        ("llama:8b", "llama:8b", False),
        ("llama:8b", "llama:70b", True),
        ("model-2:high", "model-1", True),
        ("lab/model-2", "lab/other", True),
    ],
)
def test_another_model_than_the_one_asked_for_is_told(asked: str, answered: str, warned: bool) -> None:
    calls = AgentCalls(replies=[AgentReply(final_answer="x", model=answered)], results=[ProcessResult(0)])
    record = attempt_record(
        TaskHeader("task-001", "One", "demo/x/one", "Go."),
        1,
        calls,
        started=datetime.now(UTC),
        setup_seconds=None,
        asked_model=asked,
        stream_bytes=1,
    )
    assert bool(record.warnings) == warned
