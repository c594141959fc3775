"""Tokens in the output of an agent that is still at work."""

import json

from caliper_pipeline.execution.backends.token_count import claude_tokens, pi_tokens


def lines(*events: object) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def said(message: str, **usage: object) -> dict[str, object]:
    return {"type": "assistant", "message": {"id": message, "usage": usage}}


def test_an_answer_of_several_events_counts_once() -> None:
    stream = lines(
        said("m1", input_tokens=100, output_tokens=1),
        said("m1", input_tokens=100, output_tokens=40),
        said("m2", input_tokens=7),
    )
    assert claude_tokens(stream) == 147


def test_tokens_from_and_into_a_cache_count() -> None:
    assert claude_tokens(lines(said("m1", cache_read_input_tokens=5, cache_creation_input_tokens=6))) == 11


def test_a_line_that_is_still_being_written_and_odd_counts_are_passed_over() -> None:
    stream = (
        lines(said("m1", input_tokens=3, output_tokens="many"), said("m2", input_tokens=True))
        + b'{"type":"assis"usage"'
    )
    assert claude_tokens(stream) == 3


def test_the_calls_of_pi_add_up() -> None:
    usage = {"input": 10, "output": 2, "cacheRead": 3, "cacheWrite": 1, "cost": {"total": 9}}
    ended = {"type": "message_end", "message": {"role": "assistant", "usage": usage}}
    asked = {"type": "message_end", "message": {"role": "user", "usage": usage}}
    update = {"type": "message_update", "message": {"role": "assistant", "usage": usage}}
    assert pi_tokens(lines(asked, update, ended, ended)) == 32
