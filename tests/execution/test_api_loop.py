"""The loop of the API agents: turns, limits and patience, with a model that plays its replies."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from caliper_pipeline.execution.backends.api_agent.events import Events
from caliper_pipeline.execution.backends.api_agent.failures import RequestFailed
from caliper_pipeline.execution.backends.api_agent.loop import (
    CUT_CALL,
    GO_ON,
    MOST_CUT_REPLIES,
    MOST_REQUESTS,
    Loop,
    take_up,
)
from caliper_pipeline.execution.backends.api_agent.talk import Call, Progress, Reply, Result, call_of
from caliper_pipeline.execution.backends.api_agent.tools import Tools

CALL = Call("1", "bash", {"command": "echo hi"})
BUSY = RequestFailed("busy", status=529, transient=True)


class Played:
    """A model whose replies, or failures, are given; it keeps what it is told. The last one is repeated."""

    def __init__(self, *replies: Reply | RequestFailed, tokens: int = 10) -> None:
        self.replies = list(replies)
        self.tokens = tokens
        self.told: list[Any] = []

    def user(self, text: str) -> None:
        self.told.append(text)

    def assistant(self, text: str, commands: Sequence[tuple[str, str]]) -> None:
        self.told.append((text, list(commands)))

    def results(self, results: Sequence[tuple[Call, Result]]) -> None:
        self.told.append([result for _, result in results])

    def reply(self, progress: Progress) -> Reply:
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, RequestFailed):
            progress.text = "half"
            raise reply
        progress.usage(input=self.tokens)
        return reply


class Bench:
    def __init__(self, workdir: Path) -> None:
        reader, writer = os.pipe()
        self._reader, self._writer = reader, writer
        self.events = Events(writer)
        self.tools = Tools(str(workdir), {"PATH": os.environ["PATH"]}, [], lambda: 30.0)
        self.slept: list[float] = []

    def run(self, model: Played, *, tools: bool = True, seconds: float = 100.0, **facts: Any) -> list[dict[str, Any]]:
        loop = Loop(
            model, self.tools if tools else None, self.events, lambda: seconds, sleep=self.slept.append, **facts
        )
        loop.run()
        return self.told()

    def told(self) -> list[dict[str, Any]]:
        os.close(self._writer)
        with os.fdopen(self._reader, encoding="utf-8") as file:
            return [json.loads(line) for line in file]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["event"] for event in events]


def test_tools_run_until_the_model_is_done(bench: Bench) -> None:
    model = Played(Reply(["Looking.", CALL]), Reply(["Done."]))
    events = bench.run(model)
    assert kinds(events) == ["usage", "say", "call", "result", "usage", "say", "end"]
    assert model.told == [[Result("hi\n")]]
    assert events[3] == {"event": "result", "id": "1", "output": "hi\n", "error": False}


def test_all_calls_of_a_reply_are_answered_in_their_order(bench: Bench) -> None:
    calls = [Call(str(n), "bash", {"command": f"echo {n} >> f; cat f"}) for n in (1, 2)]
    model = Played(Reply([*calls, call_of("3", "bash", "{")]), Reply(["Done."]))
    events = bench.run(model)
    assert [event["id"] for event in events if event["event"] == "call"] == ["1", "2", "3"]
    assert [result.text for result in model.told[0][:2]] == ["1\n", "1\n2\n"]
    assert model.told[0][2].failed


def test_a_declined_task_is_an_end_and_no_error(bench: Bench) -> None:
    events = bench.run(Played(Reply([], stop="refused")))
    assert events[-1] == {"event": "end", "reason": "refused"}


def test_a_pause_is_asked_again_without_a_word(bench: Bench) -> None:
    model = Played(Reply(["Hm."], stop="pause"), Reply(["Done."]))
    assert kinds(bench.run(model)).count("say") == 2
    assert model.told == []


def test_a_reply_that_was_cut_is_gone_on_with(bench: Bench) -> None:
    model = Played(Reply(["Once upon"], stop="length"), Reply([" a time."]))
    assert kinds(bench.run(model))[-1] == "end"
    assert model.told == [GO_ON]


def test_a_call_that_was_cut_is_not_made(bench: Bench) -> None:
    model = Played(Reply([CALL, call_of("2", "bash", '{"comm')], stop="length"), Reply(["Done."]))
    bench.run(model)
    assert model.told == [[Result("hi\n"), Result(CUT_CALL, failed=True)]]


def test_a_model_that_never_comes_to_an_end_is_stopped(bench: Bench) -> None:
    model = Played(Reply(["more"], stop="length"))
    with pytest.raises(RequestFailed) as caught:
        bench.run(model)
    assert (caught.value.code, len(model.told)) == ("length", MOST_CUT_REPLIES)


def test_a_judge_whose_answer_was_cut_is_not_asked_to_go_on(bench: Bench) -> None:
    with pytest.raises(RequestFailed, match="cut off"):
        bench.run(Played(Reply(["{"], stop="length")), tools=False)


def test_a_conversation_too_long_for_the_model_is_an_error(bench: Bench) -> None:
    with pytest.raises(RequestFailed) as caught:
        bench.run(Played(Reply(["x"], stop="context")))
    assert caught.value.code == "context"


def test_requests_are_bounded(bench: Bench) -> None:
    model = Played(Reply([Call("1", "none", {})]))
    with pytest.raises(RequestFailed) as caught:
        bench.run(model)
    assert (caught.value.code, len(model.told)) == ("turns", MOST_REQUESTS - 1)


def test_tokens_are_bounded_and_an_answer_in_time_counts(bench: Bench) -> None:
    model = Played(Reply([CALL]), Reply(["Done."]), tokens=60)
    assert kinds(bench.run(model, max_tokens=100))[-1] == "end"


def test_an_attempt_that_used_up_its_tokens_runs_no_more_tools(bench: Bench) -> None:
    model = Played(Reply([CALL]), tokens=60)
    with pytest.raises(RequestFailed, match="used 120 tokens and may use 100") as caught:
        bench.run(model, max_tokens=100)
    assert (caught.value.code, len(model.told)) == ("token_limit", 1)


class TestPatience:
    def test_what_passes_is_asked_again_with_growing_waits(self, bench: Bench) -> None:
        events = bench.run(Played(BUSY, BUSY, Reply(["Done."])))
        assert kinds(events) == ["wait", "wait", "usage", "say", "end"]
        first, second = bench.slept
        assert 0.5 <= first <= 0.625
        assert 1.0 <= second <= 1.25

    def test_a_wish_of_the_service_is_honoured(self, bench: Bench) -> None:
        wish = RequestFailed("slow", status=429, retry_after=3.0, transient=True)
        bench.run(Played(wish, Reply(["Done."])))
        assert bench.slept == [3.0]

    def test_before_anything_was_done_there_is_little(self, bench: Bench) -> None:
        with pytest.raises(RequestFailed, match="busy"):
            bench.run(Played(BUSY))
        assert sum(bench.slept) <= 5.0
        assert len(bench.slept) == 3

    def test_a_long_wait_at_the_beginning_is_left_to_whoever_started_us(self, bench: Bench) -> None:
        with pytest.raises(RequestFailed) as caught:
            bench.run(Played(RequestFailed("slow", status=429, retry_after=60.0, transient=True)))
        assert (bench.slept, caught.value.retry_after) == ([], 60.0)

    def test_a_conversation_under_way_waits_for_all_that_fits(self, bench: Bench) -> None:
        wish = RequestFailed("slow", status=429, retry_after=60.0, transient=True)
        assert kinds(bench.run(Played(Reply([CALL]), wish, Reply(["Done."]))))[-1] == "end"
        assert bench.slept == [60.0]

    def test_what_does_not_fit_is_not_waited_for(self, bench: Bench) -> None:
        wish = RequestFailed("slow", status=429, retry_after=60.0, transient=True)
        with pytest.raises(RequestFailed):
            bench.run(Played(Reply([CALL]), wish), seconds=50.0)
        assert bench.slept == []

    def test_what_does_not_pass_is_not_asked_again(self, bench: Bench) -> None:
        with pytest.raises(RequestFailed):
            bench.run(Played(RequestFailed("no", status=401)))
        assert bench.slept == []


def test_planted_turns_are_taken_up_and_commands_expanded() -> None:
    model = Played(Reply())
    history = [{"user": "/tides"}, {"assistant": "Yes.", "commands": [["ls", "a\n"]]}, {"user": "Go on."}]
    take_up(model, history, lambda text: text.upper())
    assert model.told == ["/TIDES", ("Yes.", [("ls", "a\n")]), "GO ON."]
