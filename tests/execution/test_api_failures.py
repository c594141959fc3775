"""What a request to a service failed of, whether it is worth asking again, and what refusal it amounts to."""

from dataclasses import replace
from typing import Any

import pytest

from caliper_pipeline.execution.backends.api_agent.failures import RequestFailed, failure_of, told_failure
from caliper_pipeline.execution.backends.api_backend import refusal_of
from caliper_pipeline.execution.backends.api_stream import Trouble


def anthropic(kind: str, message: str, **details: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message, **({"details": details} if details else {})}}


def openai(code: str | None, message: str, kind: str = "invalid_request_error") -> dict[str, Any]:
    return {"message": message, "type": kind, "param": None, "code": code}


def trouble(failure: RequestFailed, *, answered: bool = False) -> Trouble:
    return Trouble(failure.message, failure.status, failure.code, failure.retry_after, answered)


CASES: list[tuple[str, dict[str, Any] | None, int | None, bool, str | None]] = [
    ("bad key", anthropic("authentication_error", "invalid x-api-key"), 401, False, "login"),
    ("bad key", openai("invalid_api_key", "Incorrect API key provided."), 401, False, "login"),
    ("no access", anthropic("permission_error", "Your API key may not use this."), 403, False, "login"),
    ("no such model", anthropic("not_found_error", "model: claude-9"), 404, False, "model"),
    ("no such model", openai("model_not_found", "The model `x` does not exist."), 404, False, "model"),
    ("no such model", openai(None, 'model "llama9" not found, try pulling it first', "api_error"), 404, False, "model"),
    ("no access", openai("model_not_found", "You may not use it."), 403, False, "model"),
    ("wrong URL", {"detail": "Not Found"}, 404, False, "configuration"),
    ("throttled", anthropic("rate_limit_error", "Slow down."), 429, True, "throttle"),
    ("throttled", openai("rate_limit_exceeded", "Rate limit reached for x", "requests"), 429, True, "throttle"),
    ("overloaded", anthropic("overloaded_error", "Overloaded"), 529, True, "throttle"),
    ("overloaded midstream", anthropic("overloaded_error", "Overloaded"), 200, True, "throttle"),
    ("midstream", openai("server_error", "Sorry."), None, True, None),
    ("model is loading", {"error": {"code": 503, "message": "Loading model", "type": "x"}}, 503, True, "throttle"),
    ("broken", anthropic("api_error", "Internal server error"), 500, True, None),
    ("spent", anthropic("invalid_request_error", "Your credit balance is too low to go on."), 400, False, "cap"),
    ("spent", anthropic("billing_error", "Pay first."), 402, False, "cap"),
    (
        "spent",
        anthropic("rate_limit_error", "No more.", error_code="enforced_spend_limit_reached"),
        429,
        False,
        "cap",
    ),
    (
        "spent",
        openai("insufficient_quota", "You exceeded your current quota.", "insufficient_quota"),
        429,
        False,
        "cap",
    ),
    ("no tools", openai(None, "llama2 does not support tools"), 400, False, "configuration"),
    ("too long", anthropic("invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"), 400, False, None),
    ("too long", openai("context_length_exceeded", "This model's maximum context length is 8."), 400, False, None),
    (
        "too long midstream",
        openai("context_length_exceeded", "The input exceeds the context window."),
        None,
        False,
        None,
    ),
    ("no words", None, 500, True, None),
]


@pytest.mark.parametrize(("name", "body", "status", "transient", "kind"), CASES)
def test_a_failure_is_told_apart_by_what_the_service_says(
    name: str, body: dict[str, Any] | None, status: int | None, transient: bool, kind: str | None
) -> None:
    failure = told_failure(body, status)
    refusal = refusal_of(trouble(failure))
    assert (failure.transient, refusal.kind if refusal else None) == (transient, kind)
    assert failure.message


def test_a_conversation_that_was_served_before_is_refused_for_itself_alone() -> None:
    failure = told_failure(anthropic("invalid_request_error", "messages.5: no"), 400)
    assert refusal_of(trouble(failure, answered=True)) is None
    assert refusal_of(trouble(failure)) is not None


def test_what_was_wished_for_reaches_the_back_off() -> None:
    failure = told_failure(anthropic("rate_limit_error", "Slow."), 429, {"retry-after": "12"})
    refusal = refusal_of(trouble(failure))
    assert refusal is not None
    assert (refusal.kind, refusal.retry_after_seconds) == ("throttle", 12.0)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "inf"}, None),
        ({}, None),
    ],
)
def test_the_wish_to_wait_is_read_in_all_its_forms(headers: dict[str, str], seconds: float | None) -> None:
    assert told_failure({}, 429, headers).retry_after == seconds


def test_a_service_may_say_that_asking_again_is_of_no_use() -> None:
    assert not told_failure({}, 500, {"x-should-retry": "false"}).transient


@pytest.mark.parametrize("code", ["context", "length", "token_limit", "turns", "internal", "cut", "connection"])
def test_what_concerns_one_attempt_is_no_refusal(code: str) -> None:
    assert refusal_of(Trouble("text about a 429 and the model", 400, code, None, False)) is None


def test_a_server_or_sdk_that_cannot_be_used_stops_the_run() -> None:
    told = Trouble("the MCP server s cannot be used: no", None, "mcp", None, False)
    for code in ("mcp", "sdk", "protocol"):
        refusal = refusal_of(replace(told, code=code))
        assert refusal is not None
        assert refusal.kind == "configuration"


def test_an_odd_answer_is_a_failure_and_a_bug_elsewhere_is_not() -> None:
    assert failure_of(KeyError("index")).code == "protocol"
    with pytest.raises(RuntimeError):
        failure_of(RuntimeError("x"))
