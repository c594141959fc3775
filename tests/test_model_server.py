"""The model that the real CLIs are driven against: who gets which turn."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from model_server import ModelServer

TOOLS = [{"name": "Bash"}]


@pytest.fixture(scope="module")
def models() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


def ask(url: str, text: str = "hi", *, session: str = "s", tools: Any = TOOLS, stream: bool = False) -> str:
    body = {
        "model": "m",
        "metadata": {"user_id": session},
        "tools": tools,
        "stream": stream,
        "messages": [{"role": "user", "content": [{"type": "text", "text": text}]}],
    }
    request = urllib.request.Request(f"{url}/v1/messages?beta=true", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=10) as response:
        return str(response.read().decode())


def said(url: str, text: str = "hi", **facts: Any) -> str:
    return str(json.loads(ask(url, text, **facts))["content"][0]["text"])


def test_turns_are_played_in_order_and_then_it_is_done(models: ModelServer) -> None:
    url = models.add({"turns": [{"text": "a", "repeat": 2}, {"text": "b"}]})
    assert [said(url) for _ in range(5)] == ["a", "a", "b", "done", "done"]


def test_every_session_has_its_own_turns_unless_they_are_shared(models: ModelServer) -> None:
    turns = [{"text": "a"}, {"text": "b"}]
    own, shared = models.add({"turns": turns}), models.add({"turns": turns, "shared": True})
    assert [said(own, session=name) for name in "xyx"] == ["a", "a", "b"]
    assert [said(shared, session=name) for name in "xyx"] == ["a", "b", "done"]


def test_a_judge_and_a_prompt_may_have_turns_of_their_own(models: ModelServer) -> None:
    scenario = {
        "turns": [{"text": "else"}],
        "judge": [{"text": "verdict"}],
        "when": [{"text": "zebra", "turns": [{"text": "Z"}]}, {"text": "lion", "turns": [{"text": "L"}]}],
    }
    url = models.add(scenario)
    assert said(url, "a lion", session="1") == "L"
    assert said(url, "a zebra and a lion", session="2") == "Z"
    assert said(url, "a cat", session="3") == "else"
    assert said(url, "a lion", session="4", tools=[]) == "verdict"


def test_an_error_comes_in_the_shape_of_the_api(models: ModelServer) -> None:
    error = {"status": 429, "error_type": "rate_limit_error", "message": "Slow.", "headers": {"retry-after": "7"}}
    url = models.add({"turns": [error]})
    with pytest.raises(urllib.error.HTTPError) as caught:
        ask(url)
    with caught.value as response:
        assert (response.code, response.headers["retry-after"]) == (429, "7")
        assert json.loads(response.read())["error"] == {"type": "rate_limit_error", "message": "Slow."}


def test_a_streamed_answer_is_the_whole_one_in_events(models: ModelServer) -> None:
    turn = {"thinking": "Hm.", "text": ["a", "b"], "tools": [{"name": "Bash", "input": {"command": "ls"}}]}
    url = models.add({"turns": [turn, turn]})
    events = [json.loads(line[6:]) for line in ask(url, stream=True).splitlines() if line.startswith("data: ")]
    assert [event["type"] for event in events if "delta" not in event["type"]] == [
        "message_start",
        *["content_block_start", "content_block_stop"] * 3,
        "message_stop",
    ]
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert "".join(delta.get("text", "") for delta in deltas) == "ab"
    assert json.loads(deltas[-1]["partial_json"]) == {"command": "ls"}
    whole = json.loads(ask(url))
    assert [block["type"] for block in whole["content"]] == ["thinking", "text", "tool_use"]
    assert (whole["stop_reason"], whole["usage"]["output_tokens"]) == ("tool_use", 20)


def test_what_was_asked_is_kept(models: ModelServer) -> None:
    url = models.add({"turns": []}, name="kept")
    ask(url, "first words")
    (request,) = models.requests("kept")
    assert (request.user_text, request.tools, request.session) == ("first words", ["Bash"], "s")


def test_an_unknown_scenario_is_not_found(models: ModelServer) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        ask(models.url("nothing"))
    caught.value.close()
    assert caught.value.code == 404
