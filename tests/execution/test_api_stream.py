"""The stream of an API agent, read: whole, cut, and with what does not belong there."""

import json
from typing import Any

import pytest

from caliper_pipeline.domain.transcript import AgentReply, Turn, Usage
from caliper_pipeline.execution.backends.api_stream import read_stream, read_trouble

START = {"event": "start", "session": "s", "servers": ["notes"]}
CALL = {"event": "call", "id": "c", "tool": "bash", "input": {"command": "ls"}}
RESULT = {"event": "result", "id": "c", "output": "a\n", "error": False}


def stream(*events: Any) -> bytes:
    return b"".join((event if isinstance(event, bytes) else json.dumps(event).encode()) + b"\n" for event in events)


def say(text: str) -> dict[str, Any]:
    return {"event": "say", "text": text}


def usage(request: int, **counts: int) -> dict[str, Any]:
    return {"event": "usage", "request": request, **counts}


def test_a_whole_stream_is_a_finished_reply() -> None:
    events = [START, {"event": "model", "name": "m"}, say("Looking."), CALL, RESULT, say("Done."), {"event": "end"}]
    assert read_stream(stream(*events)) == AgentReply(
        turns=(
            Turn("assistant", "Looking."),
            Turn("tool_use", tool_name="bash", tool_input={"command": "ls"}, call_id="c"),
            Turn("tool_result", "a\n", call_id="c", is_error=False),
            Turn("assistant", "Done."),
        ),
        final_answer="Done.",
        model="m",
        session_id="s",
        mcp_servers=("notes",),
        finished=True,
    )


def test_of_each_request_the_last_count_is_added_up() -> None:
    events = [usage(1, input=5, output=1), usage(1, input=5, output=9), usage(2, input=7, cache_read=100)]
    assert read_stream(stream(*events)).usage == Usage(12, 9, 100, None)


def test_the_answer_is_what_was_said_after_the_last_tool() -> None:
    assert read_stream(stream(say("a"), CALL, RESULT, say("Once upon"), say(" a time."))).final_answer == (
        "Once upon a time."
    )


def test_an_answer_that_came_before_the_last_tool_counts_where_none_came_after() -> None:
    assert read_stream(stream(say("It is 12:04."), CALL, RESULT, {"event": "end"})).final_answer == "It is 12:04."


def test_a_stream_that_ends_anywhere_can_be_read() -> None:
    whole = stream(START, usage(1, input=5), say("Grüße"), CALL, RESULT, {"event": "end"})
    for cut in range(len(whole)):
        reply = read_stream(whole[:cut])
        assert reply.finished == (cut == len(whole) - 1)
        assert reply.unreadable_lines <= 1


@pytest.mark.parametrize(
    "line",
    [b"\xff\xfe", b"[]", b"{", b'{"event": "new"}', b"5", b"[" * 100_000, b'{"a":' * 80 + b"1" + b"}" * 80],
)
def test_a_line_that_is_no_event_is_counted_and_costs_nothing(line: bytes) -> None:
    reply = read_stream(stream(say("a"), line, say("b")))
    assert (reply.final_answer, reply.unreadable_lines) == ("ab", 1)


def test_values_of_odd_types_are_left_out() -> None:
    events = [
        {"event": "start", "session": 5, "servers": "x"},
        {"event": "model", "name": None},
        {"event": "usage", "request": "x", "input": "many", "output": True, "cache_read": -1},
        {"event": "say", "text": ["a"]},
        {"event": "call", "input": "ls"},
        {"event": "result", "output": None, "error": "no"},
        {"event": "error", "message": 5, "status": "400", "retry_after": "soon"},
    ]
    reply = read_stream(stream(*events))
    assert (reply.session_id, reply.model, reply.usage) == (None, None, Usage())
    assert reply.turns[1:] == (Turn("tool_use", tool_name="(unnamed)", tool_input={}), Turn("tool_result"))
    assert (reply.cli_error, reply.error_status) == ("an error without words", None)


def test_half_a_surrogate_pair_can_be_stored() -> None:
    reply = read_stream(b'{"event": "say", "text": "\\ud83d"}\n')
    reply.final_answer.encode()


def test_an_error_is_told_with_all_that_is_known_of_it() -> None:
    error = {"event": "error", "message": "Slow.", "status": 429, "code": "rate_limit_error", "retry_after": 7}
    data = stream(START, error)
    reply, trouble = read_stream(data), read_trouble(data)
    assert (reply.cli_error, reply.error_status, reply.error_code) == ("Slow.", 429, "rate_limit_error")
    assert (reply.finished, reply.spoke) == (False, False)
    assert trouble is not None
    assert (trouble.retry_after, trouble.answered) == (7.0, False)


def test_a_wait_that_ended_well_is_no_error() -> None:
    data = stream(START, {"event": "wait", "seconds": 1, "message": "busy", "status": 529}, say("a"), {"event": "end"})
    assert (read_stream(data).finished, read_trouble(data)) == (True, None)
