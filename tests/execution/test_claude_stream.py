"""Claude Code's output, as recorded from the real CLI and as it might come on a bad day."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from caliper_pipeline.domain.plain import to_plain
from caliper_pipeline.domain.transcript import Turn, Usage
from caliper_pipeline.execution.backends.claude_code import ClaudeCode
from caliper_pipeline.execution.backends.claude_stream import read_envelope, read_stream, tokens_so_far
from caliper_pipeline.execution.command import ProcessResult

RECORDED = Path(__file__).parents[1] / "fixtures" / "claude-code"

# Folder, turns, final answer, input and output tokens, model, kind of refusal. Nothing that the CLI itself says
# (`<synthetic>`) is a turn or an answer, and where no model spoke, none is named.
TABLE = [
    ("custom-bare", "says", "ok", (100, 20), "claude-user-model", None),
    ("custom-isolated-setting-sources-empty", "says", "ok", (100, 20), "claude-opus-4-8", None),
    ("custom-loaded", "says", "ok", (100, 20), "claude-user-model", None),
    ("custom-safe-mode", "says", "ok", (100, 20), "claude-user-model", None),
    ("custom-setting-sources-project", "says", "ok", (100, 20), "claude-opus-4-8", None),
    ("error-200-not-an-api", "", "", (0, 0), None, None),
    ("error-400-credit-balance", "", "", (0, 0), None, "cap"),
    ("error-400-prompt-too-long", "", "", (0, 0), None, None),
    ("error-400-usage-limit", "", "", (0, 0), None, "cap"),
    ("error-401", "", "", (0, 0), None, "login"),
    ("error-402-spend-limit", "", "", (0, 0), None, "cap"),
    ("error-403", "", "", (0, 0), None, "login"),
    ("error-404-model", "", "", (0, 0), None, "model"),
    ("error-429", "", "", (0, 0), None, "throttle"),
    ("error-429-one-retry", "", "", (0, 0), None, "throttle"),
    ("error-429-subscription-limit", "", "", (0, 0), None, "cap"),
    ("error-500", "", "", (0, 0), None, None),
    ("error-502-html", "", "", (0, 0), None, None),
    ("error-529", "", "", (0, 0), None, "throttle"),
    ("error-529-then-ok", "says", "recovered", (100, 20), "claude-opus-4-8", None),
    ("error-after-tool-529", "says, calls Bash, gets", "Working.", (100, 20), "claude-opus-4-8", "throttle"),
    ("error-connection-cut", "", "", (0, 0), None, None),
    ("error-connection-cut-fallback", "says", "whole answer", (100, 20), "claude-opus-4-8", None),
    ("error-connection-refused", "", "", (0, 0), None, None),
    ("error-midstream-overloaded", "says", "partial", (0, 0), "claude-opus-4-8", "throttle"),
    ("error-not-logged-in", "", "", (0, 0), None, "login"),
    ("error-timeout", "", "", (0, 0), None, None),
    ("limit-max-budget", "says, calls Bash", "again", (100, 90000), "claude-opus-4-8", None),
    ("limit-max-turns", "says, calls Bash, gets, says, calls Bash, gets", "again", (200, 40), "claude-opus-4-8", None),
    ("mcp-config-missing", "", "", None, None, "configuration"),
    ("mcp-server-failed", "says", "ok", (100, 20), "claude-opus-4-8", None),
    ("mcp-tool", "calls mcp__echo-srv__echo, gets, says", "Echoed.", (200, 40), "claude-opus-4-8", None),
    ("mcp-tool-error", "calls mcp__echo-srv__echo, fails, says", "Failed.", (200, 40), "claude-opus-4-8", None),
    ("model-alias-haiku", "says", "ok", (100, 20), "claude-haiku-4-5-20251001", None),
    ("model-override", "says", "ok", (100, 20), "my-model-x", None),
    ("prompt-after-double-dash", "says", "ok", (100, 20), "my-model", None),
    ("resume-fork", "says", "It was 4711.", (100, 20), "claude-opus-4-8", None),
    ("resume-own-session", "says", "It was 4711.", (100, 20), "claude-opus-4-8", None),
    ("resume-planted-file", "says", "It is 12345.", (100, 20), "claude-opus-4-8", None),
    ("resume-planted-no-message-id", "says", "Two lions.", (100, 20), "claude-opus-4-8", None),
    ("resume-planted-no-model-hangs", "", "", None, None, None),
    ("resume-planted-session", "says", "Two lions.", (100, 20), "claude-opus-4-8", None),
    ("resume-seed", "calls Bash, gets, says", "The code is 4711.", (200, 40), "claude-opus-4-8", None),
    ("resume-unknown-id", "", "", (0, 0), None, None),
    ("root-refused", "", "", None, None, "configuration"),
    ("root-refused-is-sandbox-yes", "", "", None, None, "configuration"),
    ("settings-env-project", "says", "ok", (100, 20), "claude-opus-4-8", None),
    ("settings-env-project-is-sandbox-refused", "", "", None, None, "configuration"),
    ("settings-env-user", "says", "ok", (100, 20), "claude-opus-4-8", None),
    ("signal-sigint", "", "", None, None, None),
    ("signal-sigint-in-tool", "calls Bash, fails", "", (100, 20), "claude-opus-4-8", None),
    ("signal-sigint-midstream", "says", "partial", (0, 0), "claude-opus-4-8", None),
    ("signal-sigterm", "", "", None, None, None),
    ("signal-sigterm-in-tool", "calls Bash", "", (100, 1), "claude-opus-4-8", None),
    ("skill-cat-by-bash", "calls Bash, gets, says", "Read.", (200, 40), "claude-opus-4-8", None),
    ("skill-disabled", "calls Skill, fails, says", "No.", (200, 40), "claude-opus-4-8", None),
    ("skill-plugin-dir", "calls Skill, gets, says", "Roar.", (200, 40), "claude-opus-4-8", None),
    ("skill-project", "calls Skill, gets, says", "Counted.", (200, 40), "claude-opus-4-8", None),
    ("skill-read-as-file", "calls Read, gets, says", "Read.", (200, 40), "claude-opus-4-8", None),
    ("skill-slash-in-prompt", "says", "Counted: 3 zebras.", (100, 20), "claude-opus-4-8", None),
    ("skill-unknown", "calls Skill, fails, says", "No such skill.", (200, 40), "claude-opus-4-8", None),
    ("skill-user", "says, calls Skill, gets, says", "Counted: 3 zebras.", (200, 40), "claude-opus-4-8", None),
    ("skill-user-with-args", "calls Skill, gets, says", "Counted: 3 zebras.", (200, 40), "claude-opus-4-8", None),
    ("stop-max-tokens", "says, says, says, says", "partial", (400, 80), "claude-opus-4-8", None),
    ("stop-refusal", "says", "No.", (100, 20), "claude-opus-4-8", None),
    ("stream-json-without-verbose", "", "", None, None, None),
    ("structured-output", "calls StructuredOutput, gets", '{"answer":"42"}', (100, 20), "claude-opus-4-8", None),
    ("subagent", "calls Agent, gets, says", "Agent finished.", (300, 60), "claude-opus-4-8", None),
    ("text", "says", "Hello from the fake model.", (100, 20), "claude-opus-4-8", None),
    ("text-output-format-json", "", "Hello.", (100, 20), "claude-opus-4-8", None),
    ("text-output-format-text", "", "", None, None, None),
    ("text-partial-messages", "says", "Hello from the fake model.", (100, 20), "claude-opus-4-8", None),
    ("thinking", "says", "Thought.", (100, 20), "claude-opus-4-8", None),
    ("tool-allowed-by-list", "calls Bash, gets, says", "Done.", (200, 40), "claude-opus-4-8", None),
    ("tool-bad-input", "calls Bash, fails, says", "Could not.", (200, 40), "claude-opus-4-8", None),
    ("tool-bash", "says, calls Bash, gets, says", "All done.", (200, 40), "claude-opus-4-8", None),
    ("tool-bash-nonzero", "calls Bash, fails, says", "It failed.", (200, 40), "claude-opus-4-8", None),
    ("tool-denied-default-mode", "calls Write, fails, says", "Could not.", (200, 40), "claude-opus-4-8", None),
    ("tool-disallowed", "calls Bash, fails, says", "Could not.", (200, 40), "claude-opus-4-8", None),
    ("tool-parallel", "calls Bash, calls Bash, gets, gets, says", "Both done.", (200, 40), "claude-opus-4-8", None),
    ("tool-unknown-name", "calls NoSuchTool, fails, says", "Could not.", (200, 40), "claude-opus-4-8", None),
    ("tool-write", "says, calls Write, gets, says", "Written.", (200, 40), "claude-opus-4-8", None),
]


def recorded(name: str) -> ProcessResult:
    folder = RECORDED / name
    return ProcessResult(
        exit_code=int((folder / "exit_code.txt").read_text(encoding="utf-8")),
        stdout=(folder / "stdout.jsonl").read_bytes(),
        stderr=(folder / "stderr.txt").read_bytes(),
    )


def sketch(turn: Turn) -> str:
    if turn.role == "tool_use":
        return f"calls {turn.tool_name}"
    return {"assistant": "says", "tool_result": "fails" if turn.is_error else "gets"}[turn.role]


def stream(*events: Any) -> bytes:
    return "".join((e if isinstance(e, str) else json.dumps(e)) + "\n" for e in events).encode()


def says(text: str, **facts: Any) -> dict[str, Any]:
    return {"type": "assistant", "message": {"content": [{"type": "text", "text": text}]}, **facts}


def closes(result: Any = "", **facts: Any) -> dict[str, Any]:
    return {"type": "result", "subtype": "success", "is_error": False, "result": result, **facts}


def synthetic(text: str, **facts: Any) -> dict[str, Any]:
    """What the CLI says in the agent's stead."""
    message = {"model": "<synthetic>", "content": [{"type": "text", "text": text}]}
    return {"type": "assistant", "message": message, **facts}


def test_every_recording_is_in_the_table() -> None:
    assert sorted(path.name for path in RECORDED.iterdir()) == [row[0] for row in TABLE]


@pytest.mark.parametrize(("name", "turns", "answer", "tokens", "model", "refusal"), TABLE, ids=[r[0] for r in TABLE])
def test_a_recording_reads_as_what_happened(
    name: str, turns: str, answer: str, tokens: tuple[int, int] | None, model: str | None, refusal: str | None
) -> None:
    result = recorded(name)
    reply = ClaudeCode().read(result)
    refused = ClaudeCode().refusal(result, reply)
    assert ", ".join(sketch(turn) for turn in reply.turns) == turns
    assert reply.final_answer == answer
    assert (reply.usage.counts()[:2] if reply.usage else None) == tokens
    assert reply.model == model
    assert (refused.kind if refused else None) == refusal
    assert reply.finished == (result.exit_code == 0 and '"is_error":false' in result.stdout.decode())


def test_turns_carry_what_was_called_and_what_came_back() -> None:
    said, call, got, done = ClaudeCode().read(recorded("tool-bash")).turns
    assert said == Turn("assistant", "I will run a command.")
    assert (call.tool_name, call.tool_input) == (
        "Bash",
        {"command": "echo hi > out.txt && cat out.txt", "description": "run"},
    )
    assert (got.content, got.is_error, got.call_id) == ("hi", False, call.call_id)
    assert done.content == "All done."


def test_a_failed_call_is_marked_and_keeps_its_output() -> None:
    result = ClaudeCode().read(recorded("tool-bash-nonzero")).turns[1]
    assert (result.content, result.is_error) == ("Exit code 3\nbad", True)


def test_a_tool_output_in_blocks_is_joined() -> None:
    reply = ClaudeCode().read(recorded("subagent"))
    assert reply.turns[1].content.startswith("sub-hello\nagentId: ")


def test_what_the_cli_lists_by_itself_is_kept() -> None:
    reply = ClaudeCode().read(recorded("custom-loaded"))
    assert reply.mcp_servers == ("usermcp",)
    assert reply.builtin_skills is not None
    assert {"zebra-counter", "deep-research"} <= set(reply.builtin_skills)


@pytest.mark.parametrize(
    ("name", "status", "code", "error"),
    [
        # The status is put before a text that does not name it.
        ("error-401", 401, "authentication_failed", "API error 401: Invalid API key · Fix external API key"),
        ("error-402-spend-limit", 402, "unknown", "API Error: 402 Your organization has reached its spend limit"),
        ("error-timeout", None, "server_error", "Request timed out"),
        ("limit-max-turns", None, None, "Reached maximum number of turns (2)"),
    ],
)
def test_an_error_comes_with_its_status_and_the_words_of_the_cli(
    name: str, status: int | None, code: str | None, error: str
) -> None:
    reply = ClaudeCode().read(recorded(name))
    assert (reply.error_status, reply.error_code, reply.cli_error) == (status, code, error)


REFUSED = "API Error: 429 rate limited"


@pytest.mark.parametrize(
    "events",
    [
        [closes(REFUSED, is_error=True)],
        [closes(REFUSED, is_error="true")],
        [closes(REFUSED, is_error=1)],
        [closes(REFUSED, api_error_status=429)],
        [closes(REFUSED, is_error=None, api_error_status="429")],
        [synthetic(REFUSED), closes(REFUSED)],  # nobody else spoke
        [says("I begin."), synthetic(REFUSED, error="rate_limit"), closes(REFUSED)],
        [says("I begin."), closes("done"), closes(REFUSED, is_error=True)],
    ],
)
def test_a_refusal_is_one_however_it_is_marked(events: list[Any]) -> None:
    result = ProcessResult(exit_code=0, stdout=stream(*events), stderr=b"")
    reply = ClaudeCode().read(result)
    assert (reply.finished, reply.cli_error, reply.final_answer == REFUSED) == (False, REFUSED, False)
    assert (refused := ClaudeCode().refusal(result, reply)) is not None and refused.kind == "throttle"


@pytest.mark.parametrize(
    "events",
    [
        [says(REFUSED), closes(REFUSED)],  # the agent's own words
        [closes(REFUSED, is_error=False, api_error_status=None)],
        [closes(REFUSED, is_error="false", api_error_status=200)],
        [synthetic("Another."), says(REFUSED), closes(REFUSED)],
        [says("I begin."), synthetic("No response requested."), closes(REFUSED)],
    ],
)
def test_an_answer_about_refusals_is_none(events: list[Any]) -> None:
    reply = read_stream(stream(*events))
    assert (reply.finished, reply.cli_error, reply.final_answer) == (True, None, REFUSED)


@pytest.mark.parametrize(("line", "times", "counted"), [(b"y", 3_000_000, 3_000_000), (b"x" * 9_000_000, 1, 1)])
def test_a_flood_around_the_events_is_passed_over(line: bytes, times: int, counted: int) -> None:
    flood = (line + b"\n") * times
    begin = time.process_time()
    reply = read_stream(flood + stream(says("12:04."), "no event", closes("12:04.")) + flood)
    assert time.process_time() - begin < 2
    assert (reply.final_answer, reply.finished) == ("12:04.", True)
    assert reply.unreadable_lines == 2 * counted + 1


def test_a_stream_without_its_closing_event_is_answered_by_the_last_words() -> None:
    reply = read_stream(stream(says("first"), says("High water is at 12:04.")))
    assert (reply.final_answer, reply.finished, reply.cli_error) == ("High water is at 12:04.", False, None)


@pytest.mark.parametrize("closing", ["", None, " \n", ["a list"], 7])
def test_a_blank_or_odd_closing_text_falls_back_to_what_was_said(closing: Any) -> None:
    assert read_stream(stream(says("12:04."), closes(closing))).final_answer == "12:04."


def test_the_last_words_are_the_agents_own_and_not_a_sub_agents() -> None:
    assert read_stream(stream(says("mine"), says("its", parent_tool_use_id="toolu_1"))).final_answer == "mine"


def test_turns_of_a_sub_agent_name_the_call_that_started_it() -> None:
    reply = read_stream(stream(says("its", parent_tool_use_id="toolu_1")))
    assert reply.turns == (Turn("assistant", "its", parent_call_id="toolu_1"),)


def test_raw_output_is_never_an_answer() -> None:
    reply = read_stream(b"Hello, I am no event.\nNor I.\n")
    assert (reply.final_answer, reply.turns, reply.unreadable_lines, reply.spoke) == ("", (), 2, False)


@pytest.mark.parametrize(
    "event",
    [
        {"type": "assistant", "message": None},
        {"type": "assistant"},
        {"type": "assistant", "message": "text"},
        {"type": "assistant", "message": {"content": None}},
        {"type": "assistant", "message": {"content": {"type": "text", "text": "x"}}},
        {"type": "assistant", "message": {"content": [{"type": "text"}, None, 7, [], {"text": "x"}]}},
        {"type": "assistant", "message": {"content": [{"type": "text", "text": None}, {"type": 5}]}},
        {"type": "user", "message": None},
        {"type": "user", "message": {"content": "the prompt again"}},
        {"type": "system", "subtype": "init", "skills": "all", "mcp_servers": {"a": 1}, "model": 3},
        {"type": ["result"]},
        {"type": "result", "usage": [1], "modelUsage": "none", "errors": 3, "subtype": None},
        {"no": "type"},
        [],
        "null",
        "7",
        "{",
        "\x00\x01",
        "",
    ],
)
def test_an_odd_event_is_passed_over(event: Any) -> None:
    reply = read_stream(stream(event, says("12:04."), closes("12:04.")))
    assert (reply.final_answer, reply.finished) == ("12:04.", True)
    assert [turn.content for turn in reply.turns] == ["12:04."]


def test_a_message_that_is_a_plain_string_is_read() -> None:
    reply = read_stream(stream({"type": "assistant", "message": {"content": "plain"}}))
    assert reply.turns == (Turn("assistant", "plain"),)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ('{"command": "ls"}', {"command": "ls"}),
        ("ls", {"input": "ls"}),
        (["a", 1], {"input": ["a", 1]}),
        (None, {}),
    ],
)
def test_the_input_of_a_tool_is_kept_whatever_its_type(given: Any, kept: dict[str, Any]) -> None:
    call = {"type": "tool_use", "id": 5, "name": "Bash", "input": given}
    (turn,) = read_stream(stream({"type": "assistant", "message": {"content": [call]}})).turns
    assert (turn.tool_name, turn.tool_input, turn.call_id) == ("Bash", kept, None)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("out", "out"),
        ([{"type": "text", "text": "a"}, {"type": "image", "source": {}}, "b", None], "a\n[image]\nb"),
        ({"odd": 1}, '{"odd": 1}'),
        (5, "5"),
    ],
)
def test_a_tool_output_is_text_whatever_it_came_as(content: Any, text: str) -> None:
    block = {"type": "tool_result", "tool_use_id": "a", "content": content, "is_error": "yes"}
    older = {"type": "tool_result", "tool_use_id": "a", "content": content}
    reply = read_stream(stream({"type": "user", "message": {"content": [block]}}, older))
    assert [(turn.role, turn.content, turn.is_error) for turn in reply.turns] == [("tool_result", text, None)] * 2


@pytest.mark.parametrize(
    ("usage", "kept"),
    [
        ({"input_tokens": -5, "output_tokens": "nine", "cache_read_input_tokens": None}, None),
        ({"input_tokens": True, "output_tokens": 9}, Usage(None, 9)),
        ({"input_tokens": 40, "output_tokens": 10**30}, Usage(40, None)),
        ({"input_tokens": 4.5, "output_tokens": 9}, Usage(None, 9)),
        (
            {
                "input_tokens": 40,
                "output_tokens": 9,
                "cache_read_input_tokens": 7,
                "cache_creation_input_tokens": 3,
            },
            Usage(40, 9, 7, 3),
        ),
        ([], None),
        (None, None),
    ],
)
def test_a_count_that_cannot_be_one_is_unknown(usage: Any, kept: Usage | None) -> None:
    assert read_stream(stream(says("x"), closes("x", usage=usage))).usage == kept


def test_a_run_that_was_woken_again_adds_its_stretches_and_ends_with_the_last_answer() -> None:
    whole = {"m": {"inputTokens": 300, "outputTokens": 60}}
    first = closes("first", usage={"input_tokens": 200, "output_tokens": 40}, modelUsage={"m": {"inputTokens": 200}})
    for known in ({}, {"modelUsage": whole}):
        second = closes("second", usage={"input_tokens": 100, "output_tokens": 20}, **known)
        reply = read_stream(stream(says("first"), first, says("second"), second))
        assert (reply.final_answer, reply.usage) == ("second", Usage(300, 60))


def test_a_closing_event_that_comes_twice_counts_once() -> None:
    end = closes("done", usage={"input_tokens": 200, "output_tokens": 40})
    assert read_stream(stream(says("done"), end, end)).usage == Usage(200, 40)


def test_tokens_of_sub_agents_count() -> None:
    usage = {"input_tokens": 200, "output_tokens": 40, "cache_read_input_tokens": 5}
    billed = {"big": {"inputTokens": 200, "outputTokens": 40}, "small": {"inputTokens": 30, "outputTokens": -1}}
    assert read_stream(stream(closes("x", usage=usage, modelUsage=billed))).usage == Usage(230, 40, 5)


def test_the_model_is_the_one_that_answered_and_not_the_configured_one() -> None:
    init = {"type": "system", "subtype": "init", "model": "asked-for[1m]"}
    answer = {"type": "assistant", "message": {"model": "answered", "content": [{"type": "text", "text": "x"}]}}
    assert read_stream(stream(init, answer)).model == "answered"
    assert read_stream(stream(init, says("x"))).model == "asked-for"
    assert read_stream(stream(init)).model is None


def test_an_error_that_the_agent_outlived_is_no_error() -> None:
    synthetic = {
        "type": "assistant",
        "error": "rate_limit",
        "message": {"model": "<synthetic>", "content": [{"type": "text", "text": "Limit"}]},
    }
    assert read_stream(stream(synthetic)).cli_error == "Limit"
    assert read_stream(stream(synthetic, says("Recovered."))).cli_error is None


def test_bytes_that_are_no_utf8_are_replaced() -> None:
    line = stream(says("caf@")).replace(b"@", b"\xe9")
    assert read_stream(line).final_answer == "caf\ufffd"


def test_half_a_surrogate_pair_can_be_stored() -> None:
    reply = read_stream(b'{"type":"assistant","message":{"content":"a \\ud83d b \\ud83d\\ude00"}}\n')
    assert reply.final_answer == "a \ufffd b \U0001f600"


def test_an_input_nested_beyond_reason_can_be_stored() -> None:
    deep = '{"a":' * 900 + "1" + "}" * 900
    line = '{"type":"assistant","message":{"content":[{"type":"tool_use","name":"X","input":' + deep + "}]}}"
    (turn,) = read_stream(line.encode()).turns
    assert "nested too deeply" in json.dumps(to_plain(turn))


def test_a_huge_line_is_read() -> None:
    text = "x" * 5_000_000
    assert read_stream(stream(says(text))).final_answer == text


class TestJudgeEnvelope:
    def test_the_answer_its_model_and_its_tokens_are_read(self) -> None:
        answer = ClaudeCode().read_judge(recorded("text-output-format-json"))
        assert (answer.text, answer.model, answer.usage) == ("Hello.", "claude-opus-4-8", Usage(100, 20, 0, 0))
        assert answer.cli_error is None

    def test_the_model_that_did_most_is_named(self) -> None:
        usage = {"small": {"inputTokens": 5}, "large[1m]": {"inputTokens": 50, "outputTokens": 9}}
        assert read_envelope(stream(closes("x", modelUsage=usage)), b"", 0).model == "large"
        assert read_envelope(stream(closes("x", modelUsage={"first": {}, "second": {}})), b"", 0).model == "first"

    def test_events_instead_of_an_envelope_do_too(self) -> None:
        events = [{"type": "system"}, says("no"), closes("yes")]
        assert read_envelope(json.dumps(events).encode(), b"", 0).text == "yes"
        assert read_envelope(stream(*events), b"", 0).text == "yes"

    def test_without_an_envelope_the_output_is_the_answer_only_on_success(self) -> None:
        assert read_envelope(b' {"passed": true} \n', b"", 0).text == '{"passed": true}'
        failed = read_envelope(b"", b"Error: no\n", 1)
        assert (failed.text, failed.cli_error) == ("", "Error: no")

    def test_an_error_is_no_answer(self) -> None:
        answer = ClaudeCode().read_judge(recorded("error-404-model"))
        assert (answer.text, answer.error_status) == ("", 404)

    @pytest.mark.parametrize(
        ("stdout", "stderr"),
        [
            (None, b""),
            (b"", b"Error: piped stdin input exceeds 10MB. Pass large content as a file path in your prompt.\n"),
        ],
    )
    def test_a_prompt_that_is_too_long_is_told_apart(self, stdout: bytes | None, stderr: bytes) -> None:
        long = recorded("error-400-prompt-too-long").stdout if stdout is None else stdout
        assert read_envelope(long, stderr, 1).too_long


def test_tokens_are_counted_while_the_agent_works() -> None:
    def said(message_id: str, **usage: int) -> dict[str, Any]:
        message = {"id": message_id, "model": "m", "content": [{"type": "text", "text": "x"}], "usage": usage}
        return {"type": "assistant", "message": message}

    events = [
        said("a", input_tokens=100, output_tokens=1, cache_read_input_tokens=50),
        said("a", input_tokens=100, output_tokens=1, cache_read_input_tokens=50),
        {"type": "user", "message": {"content": []}},
        said("b", input_tokens=10, output_tokens=2),
    ]
    output = "\n".join(map(json.dumps, events)).encode() + b'\n{"type": "assist'
    assert tokens_so_far(output) == 163
    total = {"type": "result", "usage": {"input_tokens": 110, "output_tokens": 90, "cache_read_input_tokens": 50}}
    assert tokens_so_far(output + b"\n" + json.dumps(total).encode()) == 250
    assert tokens_so_far(b"nothing") == 0
