"""pi's output, as recorded from the real CLI in two versions and as it might come on a bad day.

The recordings are as they were, but for the texts of system prompts and tools, which are clipped.
"""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from caliper_pipeline.domain.observations import observe_activation
from caliper_pipeline.domain.plain import to_plain
from caliper_pipeline.domain.transcript import Turn, Usage
from caliper_pipeline.execution.backends.pi import Pi
from caliper_pipeline.execution.backends.pi_stream import read_session, read_stream, tokens_so_far
from caliper_pipeline.execution.command import ProcessResult

RECORDED = Path(__file__).parents[1] / "fixtures" / "pi"

# Folder, turns, final answer, input and output tokens, model, finished, kind of refusal.
ROW = tuple[str, str, str, tuple[int, int] | None, str | None, bool, str | None]
BOTH: list[ROW] = [
    ("append-system-prompt", "says", "Hello.", (100, 10), "scripted-1", True, None),
    ("argv-trust-project-settings", "says", "ok", (100, 10), "scripted-2", True, None),
    ("auth-api-key-flag", "says", "ok", (100, 10), "scripted-1", True, None),
    ("auth-from-environment", "says", "ok", (100, 10), "scripted-1", True, None),
    ("bad-flag", "", "", None, None, False, "option"),
    ("bad-models-json", "", "", None, None, False, "login"),
    ("bad-settings-json", "says", "ok", (100, 10), "scripted-1", True, None),
    ("builtin-anthropic-base-url", "says", "ok", (100, 10), "claude-haiku-4-5", True, None),
    ("builtin-openai-base-url", "says", "ok", (100, 10), "gpt-5-mini", True, None),
    ("context-agents-md", "says", "Bonjour.", (100, 10), "scripted-1", True, None),
    ("context-disabled", "says", "Hello.", (100, 10), "scripted-1", True, None),
    ("empty-answer", "", "", (100, 10), "scripted-1", True, None),
    ("empty-prompt", "", "", None, None, False, None),
    ("error-400", "", "", (0, 0), None, False, None),
    ("error-401", "", "", (0, 0), None, False, "login"),
    ("error-401-anthropic-api", "", "", (0, 0), None, False, "login"),
    ("error-401-responses-api", "", "", (0, 0), None, False, "login"),
    ("error-401-text-mode", "", "", None, None, False, "login"),
    ("error-403", "", "", (0, 0), None, False, "login"),
    ("error-404", "", "", (0, 0), None, False, "model"),
    ("error-429", "", "", (0, 0), None, False, "throttle"),
    ("error-429-quota", "", "", (0, 0), None, False, "cap"),
    ("error-429-retry-after-1", "", "", (0, 0), None, False, "throttle"),
    ("error-429-then-ok", "says", "Recovered.", (100, 10), "scripted-1", True, None),
    ("error-500", "", "", (0, 0), None, False, None),
    ("error-503", "", "", (0, 0), None, False, "throttle"),
    ("error-503-anthropic-api", "", "", (0, 0), None, False, "throttle"),
    ("error-503-default-retry", "", "", (0, 0), None, False, "throttle"),
    ("error-503-html", "", "", (0, 0), None, False, "throttle"),
    ("error-503-retry-disabled", "", "", (0, 0), None, False, "throttle"),
    ("error-503-then-ok", "says", "Recovered.", (100, 10), "scripted-1", True, None),
    ("error-after-tool", "calls bash, gets", "", (100, 10), "scripted-1", False, "login"),
    ("error-after-tool-text-mode", "", "", None, None, False, "login"),
    ("error-connection-dropped", "", "", (0, 0), None, False, None),
    ("error-connection-refused", "", "", (0, 0), None, False, None),
    ("error-context-overflow", "", "", (0, 0), None, False, None),
    ("error-no-api-key-field", "", "", None, None, False, "login"),
    ("error-no-config", "", "", None, None, False, "login"),
    ("error-stream-truncated", "says, says, says", "Partial answer that never", (0, 0), None, False, None),
    ("error-stream-truncated-then-ok", "says, says", "Whole answer.", (100, 10), "scripted-1", True, None),
    ("error-timeout", "", "", (0, 0), None, False, None),
    ("finish-content-filter", "", "", (100, 10), None, False, None),
    ("finish-length", "says", "Cut off", (100, 10), "scripted-1", True, None),
    ("finish-length-at-limit", "says", "Cut off", (100, 16384), "scripted-1", True, None),
    ("finish-length-at-limit-text-mode", "", "", None, None, False, None),
    ("finish-length-text-mode", "", "", None, None, False, None),
    ("list-models", "", "", None, None, False, None),
    ("model-id", "says", "ok", (100, 10), "scripted-2", True, None),
    ("model-provider-and-id", "says", "ok", (100, 10), "scripted-2", True, None),
    ("model-slash", "says", "ok", (100, 10), "scripted-2", True, None),
    ("model-thinking-suffix", "says", "ok", (100, 10), "scripted-2", True, None),
    ("model-unknown", "", "", None, None, False, "model"),
    ("model-unknown-in-provider", "says", "ok", (100, 10), "no-such-model", True, None),
    ("model-unknown-in-provider-404", "", "", (0, 0), None, False, "model"),
    ("no-tools", "says", "No tools.", (100, 10), "scripted-1", True, None),
    ("plain", "says", "Hello from the scripted model.", (1000, 34), "scripted-1", True, None),
    ("plain-anthropic-api", "says", "Hello.", (1200, 34), "scripted-a", True, None),
    ("plain-json-without-print", "says", "Hello.", (100, 10), "scripted-1", True, None),
    ("plain-no-session", "says", "Hello.", (100, 10), "scripted-1", True, None),
    ("plain-responses-api", "says", "Hello.", (1000, 34), "scripted-r", True, None),
    ("plain-stdin", "says", "Hello.", (100, 10), "scripted-1", True, None),
    ("plain-text-mode", "", "", None, None, False, None),
    ("plain-with-cost", "says", "ok", (1000, 34), "scripted-1", True, None),
    ("prompt-file-argument", "says", "ok", (100, 10), "scripted-1", True, None),
    ("provider-unknown", "", "", None, None, False, "configuration"),
    ("response-model-differs", "says", "ok", (100, 10), "scripted-1-2026-01-01", True, None),
    ("session-missing-file", "says", "ok", (100, 10), "scripted-1", True, None),
    ("session-missing-id", "", "", None, None, False, None),
    ("session-planted-by-id", "says", "Teal.", (100, 10), "scripted-1", True, None),
    ("session-planted-continue", "says", "Teal.", (100, 10), "scripted-1", True, None),
    ("session-planted-corrupt-line", "says", "Teal.", (100, 10), "scripted-1", True, None),
    ("session-planted-cwd-gone", "", "", None, None, False, None),
    ("session-planted-file", "says", "Teal.", (100, 10), "scripted-1", True, None),
    ("session-planted-in-root", "says", "ok", (100, 10), "scripted-1", True, None),
    ("session-planted-session-dir", "says", "Teal.", (100, 10), "scripted-1", True, None),
    ("session-planted-with-tools", "says", "Version 2 next.", (100, 10), "scripted-1", True, None),
    ("signal-int-waiting-for-model", "", "", None, None, False, None),
    ("signal-term-running-tool", "calls bash", "", (100, 10), "scripted-1", False, None),
    ("signal-term-waiting-for-model", "", "", None, None, False, None),
    (
        "skill-agent-dir-activated",
        "calls read, gets, calls write, gets, says",
        "Wrote RELEASE.md.",
        (300, 30),
        "scripted-1",
        True,
        None,
    ),
    ("skill-broken-frontmatter", "says", "ok", (100, 10), "scripted-1", True, None),
    (
        "skill-flag-activated",
        "calls read, gets, calls write, gets, says",
        "Wrote RELEASE.md.",
        (300, 30),
        "scripted-1",
        True,
        None,
    ),
    ("skill-flag-listed", "says", "I see one skill.", (100, 10), "scripted-1", True, None),
    ("skill-flag-no-skills", "says", "ok", (100, 10), "scripted-1", True, None),
    ("skill-flag-parent-dir", "says", "I see one skill.", (100, 10), "scripted-1", True, None),
    ("skill-missing-path", "says", "ok", (100, 10), "scripted-1", True, None),
    ("skill-project-dot-agents", "says", "ok", (100, 10), "scripted-1", True, None),
    ("skill-project-untrusted", "says", "ok", (100, 10), "scripted-1", True, None),
    ("skill-slash", "says", "Release notes written.", (100, 10), "scripted-1", True, None),
    ("skill-slash-unknown", "says", "What?", (100, 10), "scripted-1", True, None),
    ("skill-tools-without-read", "says", "ok", (100, 10), "scripted-1", True, None),
    ("skill-without-description", "says", "ok", (100, 10), "scripted-1", True, None),
    ("tool-bad-arguments", "calls bash, fails, says", "Bad arguments.", (200, 20), "scripted-1", True, None),
    ("tool-bash", "calls bash, gets, says", "Done.", (200, 20), "scripted-1", True, None),
    ("tool-bash-anthropic", "calls bash, gets, says", "Done.", (200, 20), "scripted-a", True, None),
    ("tool-bash-exit3", "calls bash, fails, says", "It failed.", (200, 20), "scripted-1", True, None),
    ("tool-bash-responses", "calls bash, gets, says", "Done.", (200, 20), "scripted-r", True, None),
    ("tool-missing-argument", "calls bash, fails, says", "Bad arguments.", (200, 20), "scripted-1", True, None),
    ("tool-parallel", "says, calls bash, calls bash, gets, gets, says", "Done.", (200, 20), "scripted-1", True, None),
    ("tool-read-edit", "calls read, gets, calls edit, gets, says", "Done.", (300, 30), "scripted-1", True, None),
    ("tool-unknown", "calls teleport, fails, says", "No such tool.", (200, 20), "scripted-1", True, None),
    ("tool-write", "calls write, gets, says", "Done.", (200, 20), "scripted-1", True, None),
    ("tools-allowlist", "calls bash, fails, says", "Not available.", (200, 20), "scripted-1", True, None),
    ("two-prompts", "says, says", "Second.", (200, 20), "scripted-1", True, None),
]
NEW: list[ROW] = [
    ("argv-approve-dashdash", "says", "ok", (100, 10), "scripted-1", True, None),
    ("argv-approve-dashdash-prompt-with-dash", "says", "ok", (100, 10), "scripted-1", True, None),
    ("argv-approve-model", "says", "ok", (100, 10), "scripted-2", True, None),
    ("argv-approve-without-dashdash", "says", "ok", (100, 10), "scripted-1", True, None),
    ("argv-dashdash-without-approve", "says", "ok", (100, 10), "scripted-1", True, None),
    ("error-no-api-key-field-explicit-model", "", "", None, None, False, "login"),
    ("error-no-auth", "", "", None, None, False, "login"),
    ("error-no-auth-explicit-model", "", "", None, None, False, "login"),
    ("error-no-auth-text-mode", "", "", None, None, False, "login"),
    (
        "mcp-codemode",
        "calls codemode, calls mcp__echo__shout, gets, gets, says",
        "HELLO it is.",
        (200, 20),
        "scripted-1",
        True,
        None,
    ),
    ("mcp-default-exposure", "says", "ok", (100, 10), "scripted-1", True, None),
    ("mcp-direct", "calls mcp__echo__shout, gets, says", "HELLO it is.", (200, 20), "scripted-1", True, None),
    ("mcp-direct-tool-error", "calls mcp__echo__shout, fails, says", "It failed.", (200, 20), "scripted-1", True, None),
    ("mcp-disabled", "says", "ok", (100, 10), "scripted-1", True, None),
    ("mcp-server-missing", "says", "ok", (100, 10), "scripted-1", True, None),
    ("provider-alone", "", "", None, None, False, "configuration"),
    ("session-id-new", "says", "ok", (100, 10), "scripted-1", True, None),
    ("skill-project-approved", "says", "ok", (100, 10), "scripted-1", True, None),
    ("skill-project-dot-agents-untrusted", "says", "ok", (100, 10), "scripted-1", True, None),
]
OLD: list[ROW] = [
    ("argv-approve-dashdash", "", "", None, None, False, "option"),
    ("argv-approve-dashdash-prompt-with-dash", "", "", None, None, False, "option"),
    ("argv-approve-model", "", "", None, None, False, "option"),
    ("argv-approve-without-dashdash", "", "", None, None, False, "option"),
    ("argv-dashdash-without-approve", "", "", None, None, False, "option"),
    ("error-no-api-key-field-explicit-model", "", "", None, None, False, "model"),
    ("error-no-auth", "says", "ok", (100, 10), "scripted-1", True, None),
    ("error-no-auth-explicit-model", "says", "ok", (100, 10), "scripted-1", True, None),
    ("error-no-auth-text-mode", "", "", None, None, False, None),
    ("provider-alone", "says", "ok", (100, 10), "scripted-1", True, None),
]
TABLE = [("1.6.0", *row) for row in BOTH + NEW] + [("0.74.2", *row) for row in BOTH + OLD]


def recorded(version: str, name: str) -> ProcessResult:
    folder = RECORDED / version / name
    [output] = folder.glob("stdout.*")
    return ProcessResult(
        exit_code=int((folder / "exit_code.txt").read_text(encoding="utf-8")),
        stdout=output.read_bytes(),
        stderr=(folder / "stderr.txt").read_bytes(),
    )


def sketch(turn: Turn) -> str:
    if turn.role == "tool_use":
        return f"calls {turn.tool_name}"
    return {"assistant": "says", "tool_result": "fails" if turn.is_error else "gets"}[turn.role]


def stream(*events: Any) -> bytes:
    return "".join((e if isinstance(e, str) else json.dumps(e)) + "\n" for e in events).encode()


def says(content: Any, stop: Any = "stop", **facts: Any) -> dict[str, Any]:
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return {"type": "message_end", "message": {"role": "assistant", "content": blocks, "stopReason": stop, **facts}}


def fails(error: Any, content: Any = "") -> dict[str, Any]:
    return says(content, "error", errorMessage=error)


def calls(call: str = "a", name: Any = "bash", args: Any = None, **facts: Any) -> dict[str, Any]:
    return {"type": "tool_execution_start", "toolCallId": call, "toolName": name, "args": args, **facts}


def gets(content: Any, call: str = "a", **facts: Any) -> dict[str, Any]:
    return {"type": "tool_execution_end", "toolCallId": call, "result": {"content": content}, **facts}


START: dict[str, Any] = {"type": "agent_start"}
END: dict[str, Any] = {"type": "agent_end", "messages": []}


@pytest.mark.parametrize("version", ["1.6.0", "0.74.2"])
def test_every_recording_is_in_the_table(version: str) -> None:
    assert sorted(path.name for path in (RECORDED / version).iterdir()) == sorted(
        row[1] for row in TABLE if row[0] == version
    )


@pytest.mark.parametrize(
    ("version", "name", "turns", "answer", "tokens", "model", "finished", "refusal"),
    TABLE,
    ids=[f"{row[0]}-{row[1]}" for row in TABLE],
)
def test_a_recording_reads_as_what_happened(
    version: str,
    name: str,
    turns: str,
    answer: str,
    tokens: tuple[int, int] | None,
    model: str | None,
    finished: bool,
    refusal: str | None,
) -> None:
    result = recorded(version, name)
    reply = Pi().read(result)
    refused = Pi().refusal(result, reply)
    assert ", ".join(sketch(turn) for turn in reply.turns) == turns
    assert reply.final_answer == answer
    assert (reply.usage.counts()[:2] if reply.usage else None) == tokens
    assert reply.model == model
    assert reply.finished == finished
    assert (refused.kind if refused else None) == refusal
    # Whatever the exit code says: an error is told by the stream, or by a command that failed.
    assert finished or reply.cli_error or result.exit_code != 0 or not reply.spoke


def test_turns_carry_what_was_called_and_what_came_back() -> None:
    call, got, done = Pi().read(recorded("1.6.0", "tool-bash")).turns
    assert (call.tool_name, call.tool_input) == ("bash", {"command": "echo hi > out.txt && cat out.txt"})
    assert (got.content, got.is_error, got.call_id) == ("hi\n", False, call.call_id)
    assert done == Turn("assistant", "Done.")


def test_calls_that_run_side_by_side_keep_their_results() -> None:
    _, first, second, one, other, _ = Pi().read(recorded("1.6.0", "tool-parallel")).turns
    assert {one.call_id, other.call_id} == {first.call_id, second.call_id}
    assert first.call_id != second.call_id


def test_calls_made_by_a_script_name_the_call_around_them() -> None:
    script, inner, back, end, _ = Pi().read(recorded("1.6.0", "mcp-codemode")).turns
    assert (script.tool_name, script.parent_call_id) == ("codemode", None)
    assert (inner.tool_name, inner.tool_input, inner.parent_call_id) == (
        "mcp__echo__shout",
        {"text": "hello"},
        script.call_id,
    )
    assert (back.content, back.parent_call_id) == ("HELLO", script.call_id)
    assert (end.call_id, end.parent_call_id) == (script.call_id, None)


@pytest.mark.parametrize("version", ["1.6.0", "0.74.2"])
@pytest.mark.parametrize(
    ("name", "fired"),
    [("skill-agent-dir-activated", ("release-notes",)), ("skill-flag-listed", ()), ("skill-slash", ())],
)
def test_a_skill_is_activated_by_being_read(version: str, name: str, fired: tuple[str, ...]) -> None:
    reply = Pi().read(recorded(version, name))
    assert observe_activation(reply.turns, ["release-notes"], backend="pi") == fired


@pytest.mark.parametrize(
    ("version", "name", "status", "code", "error"),
    [
        ("1.6.0", "error-401", 401, "invalid_api_key", "401: {"),
        ("0.74.2", "error-401", 401, None, "401 Incorrect API key provided: sk-test."),
        ("1.6.0", "error-401-anthropic-api", 401, "authentication_error", "401 {"),
        ("1.6.0", "error-401-responses-api", 401, "authentication_error", "lab-responses API error (401): {"),
        ("1.6.0", "error-404", 404, "model_not_found", "404: {"),
        ("0.74.2", "error-503-html", 503, None, "503 <html>"),
        ("1.6.0", "error-connection-refused", None, None, "Connection error.: connect ECONNREFUSED"),
        ("0.74.2", "finish-content-filter", None, None, "Provider finish_reason: content_filter"),
    ],
)
def test_an_error_comes_with_its_status_and_the_words_of_the_service(
    version: str, name: str, status: int | None, code: str | None, error: str
) -> None:
    reply = Pi().read(recorded(version, name))
    assert (reply.error_status, reply.error_code) == (status, code)
    assert reply.cli_error is not None
    assert reply.cli_error.startswith(error)


@pytest.mark.parametrize(
    ("name", "servers"),
    [("mcp-direct", ("echo",)), ("mcp-server-missing", ()), ("mcp-disabled", ()), ("no-tools", None)],
)
def test_the_servers_are_those_that_gave_tools(name: str, servers: tuple[str, ...] | None) -> None:
    assert Pi().read(recorded("1.6.0", name)).mcp_servers == servers


def test_a_server_whose_tools_only_scripts_may_call_is_one_too() -> None:
    section = "MCP servers whose tools are not declared.\n- mcp__my_docs (codemode): Docs.\n- mcp__b (tool_search)"
    system = {"role": "system", "sections": {"mcp_servers": section}, "toolsAdded": [{"name": "read"}, None, "x"]}
    reply = read_stream(stream({"type": "message_end", "message": system}, says("x"), END), ["my-docs"])
    assert reply.mcp_servers == ("my-docs", "b")


def test_a_tool_is_named_with_its_server_as_it_was_declared() -> None:
    names = ["mcp__a_b__c", "mcp__a_b_c__d", "mcp__other_one__x", "mcp__a", "read"]
    reply = read_stream(stream(*(calls(str(i), name) for i, name in enumerate(names))), ["a-b", "a-b_c"])
    assert [turn.tool_name for turn in reply.turns] == [
        "mcp__a-b__c",
        "mcp__a-b_c__d",
        "mcp__other_one__x",
        "mcp__a",
        "read",
    ]


class TestEndOfWork:
    """An attempt failed when its last message did."""

    def test_an_error_that_was_tried_again_with_success_is_none(self) -> None:
        retry = {"type": "agent_end", "willRetry": True}
        reply = read_stream(stream(START, fails("503 busy"), retry, START, says("12:04."), END))
        assert (reply.cli_error, reply.final_answer, reply.finished) == (None, "12:04.", True)

    def test_an_error_after_an_answer_is_one(self) -> None:
        reply = read_stream(stream(START, says("I look."), fails("401 no"), END))
        assert (reply.cli_error, reply.final_answer, reply.finished) == ("401 no", "I look.", False)

    def test_an_answer_after_a_compaction_counts_with_what_the_summary_took(self) -> None:
        usage = {"input": 5, "output": 2, "cacheRead": 1, "cacheWrite": 0}
        summary = {"type": "compaction_end", "result": {"summary": "s", "usage": usage}, "willRetry": True}
        events = [START, says("a", usage=usage), END, {"type": "compaction_start"}, summary, START, says("b"), END]
        reply = read_stream(stream(*events))
        assert (reply.final_answer, reply.usage, reply.finished) == ("b", Usage(10, 4, 2, 0), True)

    def test_a_stretch_that_has_begun_again_is_not_finished(self) -> None:
        assert not read_stream(stream(START, says("a"), END, START)).finished
        assert not read_stream(stream(START, says("a"))).finished
        assert read_stream(stream(START, says("a"), {"type": "agent_settled"})).finished

    def test_work_without_a_message_is_not_finished(self) -> None:
        assert not read_stream(stream(START, END)).finished

    @pytest.mark.parametrize(
        ("message", "error"),
        [
            (fails("401 no; stack=Error: at x.js:3"), "401 no"),
            (fails(None), "the model's answer ended with error"),
            (fails(["odd"]), "the model's answer ended with error"),
            (says("", "aborted"), "the model's answer ended with aborted"),
            (says("", "aborted", errorMessage="Request was aborted"), "Request was aborted"),
            (says("x", "stop", errorMessage="left over"), None),
            (says("cut", "length"), None),
        ],
    )
    def test_the_stop_reason_decides(self, message: dict[str, Any], error: str | None) -> None:
        reply = read_stream(stream(START, message, END))
        assert (reply.cli_error, reply.finished) == (error, error is None)

    def test_a_call_in_a_message_that_failed_was_never_made(self) -> None:
        block = {"type": "toolCall", "id": "a", "name": "bash", "arguments": {"command": "rm x"}}
        assert read_stream(stream(says([block], "error", errorMessage="terminated"), END)).turns == ()

    def test_no_model_is_named_that_did_not_answer(self) -> None:
        assert read_stream(stream(fails("401 no"), END)).model is None
        assert read_stream(stream(says("x", model="m", responseModel="m-2026"), END)).model == "m-2026"
        assert read_stream(stream(says("x", model="m", responseModel=None), END)).model == "m"


def test_raw_output_is_never_an_answer() -> None:
    reply = read_stream(b"Hello, I am no event.\nNor I.\n")
    assert (reply.final_answer, reply.turns, reply.unreadable_lines, reply.spoke) == ("", (), 2, False)


@pytest.mark.parametrize(
    "event",
    [
        {"type": "message_end", "message": None},
        {"type": "message_end"},
        {"type": "message_end", "message": "text"},
        {"type": "message_end", "message": {"role": "assistant"}, "usage": 5},
        {"type": "message_end", "message": {"role": "user", "content": "the prompt"}},
        {"type": "message_end", "message": {"role": "system", "toolsAdded": "all", "sections": 3}},
        {"type": "message_end", "message": {"role": "custom", "content": [None]}},
        {"type": "message_end", "message": {"role": ["assistant"], "usage": [1]}},
        says([{"type": "text"}, None, 7, [], {"text": "x"}, {"type": "text", "text": None}, {"type": "toolCall"}]),
        says({"type": "text", "text": "x"}),
        says("", None),
        {"type": "message_update", "assistantMessageEvent": {"delta": "12"}, "message": {"content": "partial"}},
        {"type": "tool_execution_update", "toolCallId": "a", "partialResult": None},
        {"type": "turn_end", "message": {"role": "assistant", "content": [{"type": "text", "text": "again"}]}},
        {"type": "compaction_end", "result": None},
        {"type": "entry_appended", "entry": "x"},
        {"type": "auto_retry_start", "attempt": "one"},
        {"type": "agent_end", "messages": "none", "willRetry": "yes"},
        {"type": "usage", "usage": {"input": "many"}},
        {"type": "session", "id": 5},
        {"type": ["agent_end"]},
        {"type": "something_new", "usage": {"input": 5}},
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
    reply = read_stream(stream(event, START, says("12:04."), END))
    assert (reply.final_answer, reply.finished) == ("12:04.", True)
    assert [turn.content for turn in reply.turns] == ["12:04."]


def test_a_content_that_is_a_plain_text_is_read() -> None:
    message = {"role": "assistant", "content": "plain", "stopReason": "stop"}
    assert read_stream(stream({"type": "message_end", "message": message})).turns == (Turn("assistant", "plain"),)


def test_what_is_said_in_parts_is_one_answer() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "b"}]
    assert read_stream(stream(says(parts), END)).final_answer == "a\nb"


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
    (turn,) = read_stream(stream(calls(args=given))).turns
    assert turn.tool_input == kept


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("out", "out"),
        ([{"type": "text", "text": "a"}, {"type": "image", "data": ""}, "b", None], "a\n[image]\nb"),
        ({"odd": 1}, '{"odd": 1}'),
        (5, "5"),
    ],
)
def test_a_tool_output_is_text_whatever_it_came_as(content: Any, text: str) -> None:
    _, result = read_stream(stream(calls(), gets(content, isError="yes"))).turns
    assert (result.content, result.is_error) == (text, None)


@pytest.mark.parametrize("result", ["plain", ["a"], None, 5])
def test_a_result_that_is_no_object_is_kept(result: Any) -> None:
    event = {"type": "tool_execution_end", "toolCallId": "a", "result": result}
    assert [turn.role for turn in read_stream(stream(calls(), event)).turns] == ["tool_use", "tool_result"]


def test_a_call_is_told_once_however_often_it_comes() -> None:
    message = {"role": "toolResult", "toolCallId": "a", "content": "out", "isError": False}
    block = {"type": "toolCall", "id": "a", "name": "bash", "arguments": {"command": "ls"}}
    events = [says([block], "toolUse"), calls(), calls(), gets("out"), {"type": "message_end", "message": message}]
    assert [turn.role for turn in read_stream(stream(*events)).turns] == ["tool_use", "tool_result"]


def test_a_call_whose_own_events_are_missing_is_told_by_the_messages() -> None:
    block = {"type": "toolCall", "id": "a", "name": "bash", "arguments": {"command": "ls"}}
    message = {"role": "toolResult", "toolCallId": "a", "toolName": "bash", "content": "out", "isError": True}
    call, got = read_stream(stream(says([block], "toolUse"), {"type": "message_end", "message": message})).turns
    assert (call.tool_name, call.tool_input) == ("bash", {"command": "ls"})
    assert (got.content, got.is_error) == ("out", True)


def test_calls_without_an_id_are_kept() -> None:
    start, end = calls(), gets("out")
    del start["toolCallId"], end["toolCallId"]
    assert [turn.role for turn in read_stream(stream(start, end, start, end)).turns] == ["tool_use", "tool_result"] * 2


@pytest.mark.parametrize(
    ("usage", "kept"),
    [
        ({"input": -5, "output": "nine", "cacheRead": None}, None),
        ({"input": True, "output": 9}, Usage(None, 9)),
        ({"input": 40, "output": 10**30}, Usage(40, None)),
        ({"input": "40", "output": 9.0}, Usage(40, 9)),
        ({"input": 4.5, "output": "٣"}, None),
        ({"input": 40, "output": 9, "cacheRead": 7, "cacheWrite": 3, "totalTokens": 59}, Usage(40, 9, 7, 3)),
        ([], None),
        (None, None),
    ],
)
def test_a_count_that_cannot_be_one_is_unknown(usage: Any, kept: Usage | None) -> None:
    assert read_stream(stream(says("x", usage=usage), END)).usage == kept


def test_tokens_of_all_messages_and_of_what_tools_spent_are_added() -> None:
    usage = {"input": 100, "output": 10, "cacheRead": 0, "cacheWrite": 5}
    tool = {"type": "message_end", "message": {"role": "toolResult", "toolCallId": "a", "usage": usage}}
    warm = {"type": "entry_appended", "entry": {"type": "usage", "kind": "cache_warm", "usage": usage}}
    assert read_stream(stream(says("x", usage=usage), tool, warm, says("y", usage=usage))).usage == Usage(
        400, 40, 0, 20
    )


def test_tokens_are_counted_while_the_agent_works() -> None:
    output = recorded("1.6.0", "skill-agent-dir-activated").stdout
    counts = [tokens_so_far(output[: len(output) * part // 10]) for part in range(11)]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1], len(set(counts))) == (0, 330, 4)
    assert tokens_so_far(b"odd\n{}\n") == 0


def test_bytes_that_are_no_utf8_are_replaced() -> None:
    assert read_stream(stream(says("caf@")).replace(b"@", b"\xe9")).final_answer == "caf\ufffd"


def test_a_mark_at_the_beginning_and_carriage_returns_do_no_harm() -> None:
    lines = stream(START, says("12:04."), END).replace(b"\n", b"\r\n")
    reply = read_stream(b"\xef\xbb\xbf" + lines)
    assert (reply.final_answer, reply.finished, reply.unreadable_lines) == ("12:04.", True, 0)


def test_line_separators_inside_a_text_separate_no_events() -> None:
    event = json.dumps(says("a\u2028b\x85c"), ensure_ascii=False)
    assert read_stream(stream(event)).final_answer == "a\u2028b\x85c"


def test_a_last_line_that_was_cut_off_leaves_what_came_before() -> None:
    whole = stream(START, says("first"), says("second"))
    reply = read_stream(whole[:-20])
    assert (reply.final_answer, reply.finished, reply.unreadable_lines) == ("first", False, 1)


def test_half_a_surrogate_pair_can_be_stored() -> None:
    event = json.dumps(says("a @ b")).replace("@", "\\ud83d")
    assert read_stream(stream(event)).final_answer == "a \ufffd b"


def test_an_input_nested_beyond_reason_can_be_stored() -> None:
    deep = '{"a":' * 900 + "1" + "}" * 900
    (turn,) = read_stream(('{"type":"tool_execution_start","toolName":"X","args":' + deep + "}").encode()).turns
    assert "nested too deeply" in json.dumps(to_plain(turn))


def test_updates_that_grow_with_the_square_of_the_answer_are_passed_over() -> None:
    update = b'{"type":"message_update","message":{"content":"' + b"x" * 100_000 + b'"}}\n'
    begin = time.process_time()
    reply = read_stream(update * 300 + stream(START, says("12:04."), END))
    assert time.process_time() - begin < 1
    assert (reply.final_answer, reply.unreadable_lines) == ("12:04.", 0)


class TestKeptSession:
    """What the CLI keeps on disk tells of an answer that the cut stream has lost."""

    @pytest.mark.parametrize("version", ["1.6.0", "0.74.2"])
    @pytest.mark.parametrize("name", ["tool-bash", "skill-agent-dir-activated"])
    def test_a_session_reads_as_the_stream_does(self, version: str, name: str) -> None:
        session = (RECORDED / version / name / "session.jsonl").read_bytes()
        kept, streamed = read_session(session, 0), Pi().read(recorded(version, name))
        assert [(t.role, t.content, t.tool_name, t.tool_input) for t in kept.turns] == [
            (t.role, t.content, t.tool_name, t.tool_input) for t in streamed.turns
        ]
        assert (kept.final_answer, kept.usage, kept.model, kept.finished) == (
            streamed.final_answer,
            streamed.usage,
            streamed.model,
            True,
        )

    def test_what_was_planted_is_not_told(self) -> None:
        lines = [{**event, "type": "message"} for event in (says("planted"), says("planted too"), says("12:04."))]
        reply = read_session(stream({"type": "session", "id": "s"}, *lines), 2)
        assert [turn.content for turn in reply.turns] == ["12:04."]

    def test_a_session_that_ends_with_a_call_is_not_finished(self) -> None:
        assert not read_session(stream({**says("I look.", "toolUse"), "type": "message"}), 0).finished


class TestJudge:
    def test_the_answer_its_model_and_its_tokens_are_read(self) -> None:
        answer = Pi().read_judge(recorded("1.6.0", "plain"))
        assert (answer.text, answer.model) == ("Hello from the scripted model.", "scripted-1")
        assert (answer.usage, answer.cli_error) == (Usage(1000, 34, 200, 0), None)

    @pytest.mark.parametrize(
        ("name", "kind", "text"),
        [
            ("error-401", "login", "401: {"),
            ("error-429", "throttle", "429: {"),
            ("error-no-auth", "login", "No API key found"),
            ("bad-flag", "option", "Error: Unknown option"),
            ("model-unknown", "model", "Error: Model"),
        ],
    )
    def test_an_error_is_no_answer(self, name: str, kind: str, text: str) -> None:
        result = recorded("1.6.0", name)
        answer = Pi().read_judge(result)
        refusal = Pi().judge_refusal(result, answer)
        assert (answer.text, refusal.kind if refusal else None) == ("", kind)
        assert refusal is not None
        assert refusal.text.startswith(text)
        assert answer.cli_error

    @pytest.mark.parametrize("version", ["1.6.0", "0.74.2"])
    def test_a_prompt_that_is_too_long_is_told_apart(self, version: str) -> None:
        assert Pi().read_judge(recorded(version, "error-context-overflow")).too_long
        assert not Pi().read_judge(recorded(version, "error-400")).too_long
