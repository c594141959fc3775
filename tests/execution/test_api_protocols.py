"""Replies put together from the events of the three protocols, odd ones included."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from model_protocols import Protocol, protocol_of

from caliper_pipeline.execution.backends.api_agent import chat, messages, responses
from caliper_pipeline.execution.backends.api_agent.events import Events
from caliper_pipeline.execution.backends.api_agent.failures import RequestFailed
from caliper_pipeline.execution.backends.api_agent.talk import Call, Progress, Reply

TOOL = {"name": "bash", "input": {"command": "ls"}}


@pytest.fixture
def progress() -> Iterator[Progress]:
    fd = os.open(os.devnull, os.O_WRONLY)
    yield Progress(Events(fd), 1)
    os.close(fd)


def events_of(path: str, turn: dict[str, Any], *, whole: bool = True) -> list[dict[str, Any]]:
    protocol: Protocol | None = protocol_of(path)
    assert protocol is not None
    body = {"model": "m", "stream_options": {"include_usage": True}}
    return [event for event in protocol.events(turn, body, whole=whole) if isinstance(event, dict)]


def from_messages(progress: Progress, events: list[dict[str, Any]]) -> tuple[Reply, list[dict[str, Any]]]:
    answer = messages.Answer(progress)
    for event in events:
        answer.take(event)
    return answer.finished()


def from_responses(progress: Progress, events: list[dict[str, Any]]) -> tuple[Reply, list[dict[str, Any]]]:
    answer = responses.Answer(progress)
    for event in events:
        answer.take(event)
    return answer.finished()


def from_chat(progress: Progress, events: list[dict[str, Any]]) -> Reply:
    answer = chat.Answer(progress, 3)
    for event in events:
        answer.take(event)
    return answer.finished()


def chunk(delta: dict[str, Any] | None = None, reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


def part(**facts: Any) -> dict[str, Any]:
    return chunk({"tool_calls": [facts]})


class TestMessages:
    def test_a_reply_goes_back_as_it_came(self, progress: Progress) -> None:
        turn = {"thinking": "Hm.", "text": ["Let me ", "see."], "tools": [TOOL]}
        reply, content = from_messages(progress, events_of("/messages", turn))
        said, call = reply.items
        assert said == "Let me see."
        assert isinstance(call, Call)
        assert (call.name, call.arguments) == ("bash", {"command": "ls"})
        assert content == [
            {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
            {"type": "text", "text": "Let me see."},
            {"type": "tool_use", "id": call.id, "name": "bash", "input": {"command": "ls"}},
        ]

    @pytest.mark.parametrize(
        ("told", "stop"),
        [
            ("end_turn", "end"),
            ("max_tokens", "length"),
            ("refusal", "refused"),
            ("pause_turn", "pause"),
            ("model_context_window_exceeded", "context"),
            ("something_new", "end"),
        ],
    )
    def test_how_it_ended_is_told_apart(self, progress: Progress, told: str, stop: str) -> None:
        events = events_of("/messages", {"text": "x", "stop_reason": told})
        assert from_messages(progress, events)[0].stop == stop

    def test_a_call_that_was_cut_goes_back_empty(self, progress: Progress) -> None:
        events = events_of("/messages", {"tools": [TOOL], "stop_reason": "max_tokens"})
        for event in events:
            if event["type"] == "content_block_delta":
                event["delta"]["partial_json"] = '{"command": "l'
        reply, content = from_messages(progress, events)
        assert (reply.calls[0].arguments, content[0]["input"]) == (None, {})

    def test_blank_text_and_unknown_events_are_passed_over(self, progress: Progress) -> None:
        events = [{"type": "ping"}, {"type": "new"}, *events_of("/messages", {"text": " \n"})]
        assert from_messages(progress, events) == (Reply([]), [])

    def test_a_block_of_an_unknown_kind_goes_back_untouched(self, progress: Progress) -> None:
        block = {"type": "redacted_thinking", "data": "x"}
        events = events_of("/messages", {"text": "a"})
        events.insert(1, {"type": "content_block_start", "index": 7, "content_block": block})
        assert from_messages(progress, events)[1][-1] == block

    def test_a_stream_without_an_end_was_cut(self, progress: Progress) -> None:
        with pytest.raises(RequestFailed) as caught:
            from_messages(progress, events_of("/messages", {"text": "part"}, whole=False))
        assert (caught.value.transient, progress.text) == (True, "part")

    def test_tokens_are_counted_even_of_a_reply_that_was_cut(self, progress: Progress) -> None:
        with pytest.raises(RequestFailed):
            from_messages(progress, events_of("/messages", {"text": "part"}, whole=False))
        assert progress.tokens == 101


class TestResponses:
    def test_a_reply_goes_back_as_it_came(self, progress: Progress) -> None:
        turn = {"thinking": "Hm.", "text": ["Let me ", "see."], "tools": [TOOL]}
        reply, items = from_responses(progress, events_of("/responses", turn))
        said, call = reply.items
        assert said == "Let me see."
        assert isinstance(call, Call)
        assert [item["type"] for item in items] == ["reasoning", "message", "function_call"]
        assert (items[2]["call_id"], items[2]["arguments"]) == (call.id, '{"command": "ls"}')

    def test_reasoning_that_is_known_by_its_id_alone_stays_out(self, progress: Progress) -> None:
        events = events_of("/responses", {"thinking": "Hm.", "text": "x"})
        for event in events:
            event.get("item", {}).pop("encrypted_content", None)
        assert [item["type"] for item in from_responses(progress, events)[1]] == ["message"]

    @pytest.mark.parametrize(
        ("told", "stop"), [("max_output_tokens", "length"), ("content_filter", "refused"), ("new", "end")]
    )
    def test_how_it_ended_is_told_apart(self, progress: Progress, told: str, stop: str) -> None:
        events = events_of("/responses", {"text": "x", "incomplete": told})
        assert from_responses(progress, events)[0].stop == stop

    def test_a_malformed_call_goes_back_empty(self, progress: Progress) -> None:
        events = events_of("/responses", {"tools": [{"name": "bash", "input": '{"comm'}]})
        reply, items = from_responses(progress, events)
        assert (reply.calls[0].arguments, items[0]["arguments"]) == (None, "{}")

    def test_a_refusal_is_what_it_said(self, progress: Progress) -> None:
        events = events_of("/responses", {"text": "x"})
        for event in events:
            if event["type"] == "response.output_item.done":
                event["item"] = {"type": "message", "content": [{"type": "refusal", "refusal": "I will not."}]}
        assert from_responses(progress, events)[0].items == ["I will not."]

    @pytest.mark.parametrize(("code", "status"), [("server_error", 500), ("rate_limit_exceeded", 429), ("new", None)])
    def test_a_failure_in_the_stream_is_one(self, progress: Progress, code: str, status: int | None) -> None:
        failed = {"type": "response.failed", "response": {"error": {"code": code, "message": "No."}}}
        for event in (failed, {"type": "error", "code": code, "message": "No."}):
            with pytest.raises(RequestFailed, match="No") as caught:
                from_responses(progress, [event])
            assert caught.value.status == status

    def test_a_stream_without_an_end_was_cut(self, progress: Progress) -> None:
        with pytest.raises(RequestFailed) as caught:
            from_responses(progress, events_of("/responses", {"text": "part"}, whole=False))
        assert (caught.value.transient, progress.text) == (True, "part")


class TestChat:
    def test_text_and_calls_are_put_together(self, progress: Progress) -> None:
        reply = from_chat(progress, events_of("/chat/completions", {"text": ["Let me ", "see."], "tools": [TOOL] * 2}))
        assert reply.items[0] == "Let me see."
        assert [call.arguments for call in reply.calls] == [{"command": "ls"}] * 2
        assert len({call.id for call in reply.calls}) == 2

    @pytest.mark.parametrize(
        ("told", "stop"), [("stop", "end"), ("length", "length"), ("content_filter", "refused"), ("tool_calls", "end")]
    )
    def test_how_it_ended_is_told_apart(self, progress: Progress, told: str, stop: str) -> None:
        assert from_chat(progress, [chunk({"content": "x"}), chunk({}, told)]).stop == stop

    def test_calls_without_number_or_id_are_told_apart_by_their_names(self, progress: Progress) -> None:
        events = [
            part(function={"name": "a", "arguments": '{"x"'}),
            part(function={"arguments": ": 1}"}),
            part(function={"name": "b", "arguments": "{}"}),
            chunk(None, "stop"),
        ]
        calls = from_chat(progress, events).calls
        assert [(call.id, call.name, call.arguments) for call in calls] == [
            ("call_00030000", "a", {"x": 1}),
            ("call_00030001", "b", {}),
        ]

    def test_a_call_counts_although_the_stream_says_it_just_stopped(self, progress: Progress) -> None:
        events = [part(index=0, id="c", function={"name": "a", "arguments": ""}), chunk({}, "stop")]
        assert from_chat(progress, events).calls == [Call("c", "a", {})]

    def test_a_stream_without_an_end_was_cut(self, progress: Progress) -> None:
        with pytest.raises(RequestFailed) as caught:
            from_chat(progress, [chunk({"content": "part"}), {"choices": []}, {}])
        assert (caught.value.transient, progress.text) == (True, "part")


@pytest.mark.parametrize(
    ("told", "counts"),
    [
        (
            {"input_tokens": 10, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 4}},
            {"input": 6, "output": 2, "cache_read": 4, "cache_creation": None},
        ),
        (
            {
                "input_tokens": 10,
                "output_tokens": 2,
                "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 5},
            },
            {"input": 1, "output": 2, "cache_read": 4, "cache_creation": 5},
        ),
        ({"input_tokens": 3, "input_tokens_details": {"cached_tokens": 9}}, {"input": 0, "cache_read": 9}),
        ({"input_tokens_details": None}, {"input": None}),
    ],
)
def test_cached_input_is_counted_once(told: dict[str, Any], counts: dict[str, int | None]) -> None:
    found = responses.disjoint(told, "input", "output")
    assert {name: found[name] for name in counts} == counts


@pytest.mark.parametrize(
    ("message", "left"),
    [
        ("Encrypted content is not supported with this model.", ["prompt_cache_key"]),
        ("Unknown parameter: 'prompt_cache_key'.", ["include"]),
        ("Something else.", ["include", "prompt_cache_key"]),
    ],
)
def test_an_option_that_is_refused_is_left_out(message: str, left: list[str]) -> None:
    options = {"include": ["x"], "prompt_cache_key": "k"}
    assert responses.without_refused(options, RequestFailed(message, status=400)) == (len(left) < 2)
    assert list(options) == left
