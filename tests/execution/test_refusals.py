"""Which of a CLI's complaints is which kind of refusal."""

import pytest

from caliper_pipeline.execution.backends.refusals import Complaint, classify, marker

MARKERS = (marker("login", "not logged in"), marker("configuration", "only on failure", only_when_failed=True))


def kind_of(
    *texts: str | None, exit_code: int | None = 1, status: int | None = None, structure: str | None = None
) -> str | None:
    complaint = Complaint.of(texts, exit_code=exit_code, status=status)
    refusal = classify(complaint, structure=lambda _: structure, markers=MARKERS)
    return refusal.kind if refusal else None


@pytest.mark.parametrize(
    "text",
    [
        "You have reached your specified API usage limits.",
        "usage_limit_reached",
        "Claude AI usage limit reached|1796083200",
        "Quota exceeded. Check your plan.",
        "429 You exceeded your current quota, please check your plan and billing details.",
        '{"type":"insufficient_quota","message":"no"}',
        "Your organization has reached its spend limit",
        "monthly spending cap",
        "Credit balance is too low",
        "You've hit your session limit · resets 12am (UTC)",
        "You’ve hit your limit · resets 3pm",
        "You've hit your Opus limit",
        "You're out of extra usage",
    ],
)
def test_a_cap_is_told_by_its_words(text: str) -> None:
    assert kind_of(text) == "cap"
    assert kind_of(text, status=429) == "cap"


@pytest.mark.parametrize(
    "text",
    [
        "rate limit",
        "rate_limit_error",
        "RateLimit hit",
        "HTTP 429",
        "Overloaded",
        "Too Many Requests",
        "Service Unavailable",
        "got 503 from upstream",
        "API Error: 529",
    ],
)
def test_a_throttle_is_told_by_its_words(text: str) -> None:
    assert kind_of(text) == "throttle"


@pytest.mark.parametrize("status", [429, 503, 529])
def test_a_throttle_is_told_by_its_status(status: int) -> None:
    assert kind_of("You have hit your hourly limit.", status=status) == "throttle"


@pytest.mark.parametrize("text", ["port 4290", "0x529", "15031 tokens", "all is well", ""])
def test_other_numbers_and_words_are_no_refusal(text: str) -> None:
    assert kind_of(text) is None


def test_a_number_in_the_text_does_not_outweigh_the_status() -> None:
    assert kind_of("failed at 10.0.0.1 after 429 ms", status=500) is None


def test_the_order_is_cap_throttle_structure_option_words() -> None:
    everything = [
        "error: unknown option '--x'",
        "not logged in",
        "rate limit",
        "usage limit of your subscription",
    ]
    assert kind_of(*everything, structure="model") == "cap"
    assert kind_of(*everything[:3], structure="model") == "throttle"
    assert kind_of(*everything[:2], structure="model") == "model"
    assert kind_of(*everything[:2]) == "option"
    assert kind_of("not logged in") == "login"


@pytest.mark.parametrize(
    "line",
    [
        "error: unknown option '--strict-mcp-config'",
        "error: unexpected argument '--x' found",
        "x: error: unrecognized arguments: --y",
    ],
)
def test_a_rejected_option_counts_only_when_the_command_failed(line: str) -> None:
    assert kind_of(line) == "option"
    assert kind_of(line, exit_code=0) is None


def test_a_marker_may_need_a_failed_command() -> None:
    assert kind_of("only on failure") == "configuration"
    assert kind_of("only on failure", exit_code=0) is None


def test_the_line_that_tells_is_quoted_and_cut() -> None:
    complaint = Complaint.of(["first\n  rate limit " + "x" * 400 + "\nlast", None], exit_code=1)
    refusal = classify(complaint, structure=lambda _: None, markers=())
    assert refusal is not None
    assert refusal.text.startswith("rate limit xxx")
    assert len(refusal.text) == 300
    assert not refusal.fatal
