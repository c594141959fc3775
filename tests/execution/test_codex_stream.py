"""Codex's output, as recorded from the real CLI and as it might come on a bad day."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caliper_pipeline.domain.observations import observe_activation
from caliper_pipeline.domain.plain import to_plain
from caliper_pipeline.domain.transcript import Turn, Usage
from caliper_pipeline.execution.backends.codex import Codex
from caliper_pipeline.execution.backends.codex_stream import read_stream
from caliper_pipeline.execution.command import ProcessResult

RECORDED = Path(__file__).parents[1] / "fixtures" / "codex"
ONE, TWO, THREE = Usage(100, 20, 0, 0), Usage(200, 40, 0, 0), Usage(300, 60, 0, 0)
SHELL = "calls shell, gets, says"

# Folder, turns, final answer, tokens, kind of refusal. A turn that fails tells no tokens; a call that the CLI refuses
# by itself leaves no turn; notices ("Model metadata … not found", "Reconnecting...") are none.
TABLE: list[tuple[str, str, str, Usage | None, str | None]] = [
    ("analytics-on-no-route", "says", "ok", ONE, None),
    ("builtin-provider-ws-404", "says", "ok", ONE, None),
    ("builtin-provider-ws-426", "says", "ok", ONE, None),
    ("default-model", "says", "ok", ONE, None),
    ("error-200-not-an-api", "", "", None, None),
    ("error-400", "", "", None, None),
    ("error-401", "", "", None, "login"),
    ("error-403", "", "", None, "login"),
    ("error-404-model", "", "", None, "model"),
    ("error-429", "", "", None, "throttle"),
    ("error-429-one-retry", "", "", None, "throttle"),
    ("error-429-quota", "", "", None, "cap"),
    ("error-429-usage-limit", "", "", None, "cap"),
    ("error-500", "", "", None, "throttle"),  # "experiencing high demand, which may cause temporary errors"
    ("error-500-one-retry", "", "", None, "throttle"),
    ("error-500-then-ok", "says", "recovered", ONE, None),
    ("error-502-html", "", "", None, None),
    ("error-503-overloaded", "", "", None, "throttle"),
    ("error-after-tool-500", "says, calls shell, gets", "Working.", None, "throttle"),
    ("error-bad-config", "", "", None, "configuration"),
    ("error-bad-flag", "", "", None, "option"),
    ("error-connection-cut", "", "", None, None),
    ("error-connection-cut-then-ok", "says", "recovered", ONE, None),
    ("error-connection-refused", "", "", None, None),
    ("error-connection-refused-default-feature", "", "", None, None),
    ("error-no-key", "", "", None, "configuration"),
    ("error-server-never-answers", "", "", None, None),
    ("error-stream-failed-context-length", "says", "partial", None, None),
    ("error-stream-failed-quota", "says", "partial", None, "cap"),
    ("error-stream-failed-rate-limit", "says", "partial", None, "throttle"),
    ("error-stream-failed-server-error", "says", "partial", None, None),
    ("error-stream-idle-timeout", "says", "partial", None, None),
    ("error-stream-incomplete-max-output", "says", "partial", None, None),
    ("mcp-server-failed", "says", "ok", ONE, None),
    ("mcp-server-failed-required", "", "", None, None),
    ("mcp-tool", "calls mcp__echo-srv__echo, gets, says", "Echoed.", TWO, None),
    ("mcp-tool-approval-needed", "calls mcp__echo-srv__echo, fails, says", "Echoed.", TWO, None),
    ("mcp-tool-error", "calls mcp__echo-srv__echo, fails, says", "Failed.", TWO, None),
    ("mcp-tool-wrong-name", "says", "Could not.", TWO, None),
    ("model-flag", "says", "ok", ONE, None),
    ("not-a-git-repo-refused", "", "", None, "configuration"),
    ("output-last-message-error", "", "", None, "login"),
    ("output-last-message-without-json", "", "", None, None),
    ("project-codex-dir-untrusted", "says", "ok", ONE, None),
    ("prompt-on-stdin", "says", "ok", ONE, None),
    ("reasoning", "says", "Thought.", ONE, None),
    ("resume", "says", "It was 4711.", THREE, None),
    ("resume-planted-file", "says", "It is 12345.", ONE, None),  # nothing was paid for what was planted
    ("resume-seed", SHELL, "The code is 4711.", TWO, None),
    ("resume-unknown-id", "", "", None, None),
    ("sandbox-default-read-only-read", SHELL, "Read.", TWO, None),
    ("sandbox-default-read-only-write", "says", "Could not.", TWO, None),
    ("sandbox-workspace-write", SHELL, "Done.", TWO, None),
    ("signal-sigint", "", "", None, None),
    ("signal-sigterm", "", "", None, None),
    ("signal-sigterm-in-tool", "calls shell", "", None, None),  # it was run, though it never ended
    ("skill-codex-home", "says, " + SHELL, "3 zebras.", TWO, None),
    ("skill-dollar-mention", "says", "3 zebras.", ONE, None),
    ("skill-home-agents", SHELL, "3 zebras.", TWO, None),
    ("skill-project-agents", SHELL, "3 zebras.", TWO, None),
    ("subagent", "calls collab_tool_call, gets, says", "first reply", TWO, None),
    ("text", "says", "Hello from the fake model.", ONE, None),
    ("text-minimal-sse", "says", "Hello.", ONE, None),
    ("text-output-schema", "says", '{"answer":"42"}', ONE, None),
    ("text-unknown-model-metadata", "says", "Hello.", ONE, None),
    ("text-without-json-flag", "", "", None, None),
    ("tool-apply-patch", "calls file_change, gets, says", "Patched.", TWO, None),
    ("tool-apply-patch-bad", "says", "Could not.", TWO, None),
    ("tool-apply-patch-via-shell", "calls file_change, gets, says", "Patched.", TWO, None),
    ("tool-code-mode-exec", SHELL, "Done.", TWO, None),
    ("tool-shell", "says, " + SHELL, "All done.", TWO, None),
    ("tool-shell-nonzero", "calls shell, fails, says", "It failed.", TWO, None),
    ("tool-shell-parallel", "calls shell, gets, calls shell, gets, says", "Both done.", TWO, None),
    ("tool-unknown-name", "says", "Could not.", TWO, None),
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


def item(kind: Any, when: str = "completed", **facts: Any) -> dict[str, Any]:
    return {"type": f"item.{when}", "item": {"id": "item_1", "type": kind, **facts}}


def says(text: Any, **facts: Any) -> dict[str, Any]:
    return item("agent_message", text=text, **{"id": "said", **facts})


def ran(command: Any, output: Any = "", code: Any = 0, **facts: Any) -> dict[str, Any]:
    given = {"command": command, "aggregated_output": output, "exit_code": code, "status": "completed", **facts}
    return item("command_execution", **given)


def closes(**usage: Any) -> dict[str, Any]:
    return {"type": "turn.completed", "usage": usage or {"input_tokens": 10, "output_tokens": 2}}


def fails(message: Any) -> dict[str, Any]:
    return {"type": "turn.failed", "error": {"message": message}}


def notes(message: Any) -> dict[str, Any]:
    return {"type": "error", "message": message}


BEGINS = {"type": "thread.started", "thread_id": "01a22e45-b662-7400-865c-6843a0e1ed63"}


def test_every_recording_is_in_the_table() -> None:
    assert sorted(path.name for path in RECORDED.iterdir()) == [row[0] for row in TABLE]


@pytest.mark.parametrize(("name", "turns", "answer", "tokens", "refusal"), TABLE, ids=[row[0] for row in TABLE])
def test_a_recording_reads_as_what_happened(
    name: str, turns: str, answer: str, tokens: Usage | None, refusal: str | None
) -> None:
    result = recorded(name)
    reply = Codex().read(result)
    refused = Codex().refusal(result, reply)
    assert ", ".join(sketch(turn) for turn in reply.turns) == turns
    assert reply.final_answer == answer
    assert reply.usage == tokens
    assert (refused.kind if refused else None) == refusal
    assert reply.finished == (b'"type":"turn.completed"' in result.stdout)


def test_turns_carry_what_was_called_and_what_came_back() -> None:
    said, call, got, done = Codex().read(recorded("tool-shell")).turns
    assert said == Turn("assistant", "Running.")
    assert call.tool_input == {"command": "/bin/bash -lc 'echo hi > out.txt && cat out.txt'"}
    assert (got.content, got.is_error, got.call_id) == ("hi\n", False, call.call_id)
    assert done.content == "All done."


def test_a_failed_command_is_marked_and_keeps_its_code_and_output() -> None:
    result = Codex().read(recorded("tool-shell-nonzero")).turns[1]
    assert (result.content, result.is_error) == ("Exit code 3\nbad\n", True)


def test_an_mcp_call_is_named_after_its_server_as_configured() -> None:
    call, got, _ = Codex().read(recorded("mcp-tool")).turns
    assert (call.tool_name, call.tool_input) == ("mcp__echo-srv__echo", {"text": "hi there"})
    assert got.content == "echo: hi there"


def test_why_an_mcp_call_was_refused_is_its_result() -> None:
    got = Codex().read(recorded("mcp-tool-approval-needed")).turns[1]
    assert got.content.startswith("MCP tool call requires approval")


@pytest.mark.parametrize("name", ["skill-codex-home", "skill-home-agents", "skill-project-agents"])
def test_a_skill_that_was_read_is_activated(name: str) -> None:
    turns = Codex().read(recorded(name)).turns
    assert observe_activation(turns, ("zebra-counter", "other"), backend="codex") == ("zebra-counter",)


@pytest.mark.parametrize(
    ("name", "status", "error"),
    [
        ("error-429", 429, "exceeded retry limit, last status: 429 Too Many Requests, request id: req_fake"),
        ("error-404-model", None, "The model `no-such-model` does not exist or you do not have access to it."),
    ],
)
def test_an_error_comes_with_its_status_and_the_words_of_the_cli(name: str, status: int | None, error: str) -> None:
    reply = Codex().read(recorded(name))
    assert (reply.error_status, reply.cli_error) == (status, error)


RECONNECT = "Reconnecting... 2/5 (unexpected status 429 Too Many Requests)"


class TestNoticesAndFailures:
    @pytest.mark.parametrize(
        "events",
        [
            [notes(RECONNECT), says("12:04."), closes()],
            [says("12:04."), notes(RECONNECT), closes()],
            [notes("stream error: 429; retrying 1/5 in 203ms"), says("12:04."), closes()],
            [notes("rate limit"), says("12:04."), closes()],
            [item("error", message="event stream lagged; dropped 133 events"), says("12:04."), closes()],
            [says("12:04."), item("error", message=["429"]), closes()],
            [says("12:04."), closes(), item("error", message="late")],
        ],
    )
    def test_a_turn_that_completed_was_none(self, events: list[Any]) -> None:
        result = ProcessResult(exit_code=0, stdout=stream(BEGINS, *events), stderr=b"")
        reply = Codex().read(result)
        assert (reply.finished, reply.cli_error, reply.final_answer) == (True, None, "12:04.")
        assert [turn.role for turn in reply.turns] == ["assistant"]
        assert Codex().refusal(result, reply) is None

    @pytest.mark.parametrize(
        "events",
        [
            [fails("rate limit reached")],
            [notes("rate limit reached"), fails("rate limit reached")],
            [notes("rate limit reached"), fails(None)],
            [notes("rate limit reached"), {"type": "turn.failed"}],
            [notes("rate limit reached")],
            [{"type": "error", "message": ["rate limit reached"]}],
            [{"type": "error", "error": "rate limit reached"}],
            [{"type": "stream.broken", "error": {"message": "rate limit reached"}}],
            [says("I begin."), closes(), {"type": "turn.started"}, fails("rate limit reached")],
            [notes("rate limit reached"), item("error", message="a notice after it")],
        ],
    )
    @pytest.mark.parametrize("exit_code", [0, 1])
    def test_one_that_failed_says_why(self, events: list[Any], exit_code: int) -> None:
        result = ProcessResult(exit_code=exit_code, stdout=stream(BEGINS, *events), stderr=b"")
        reply = Codex().read(result)
        assert (reply.finished, reply.cli_error) == (False, "rate limit reached")
        assert (refused := Codex().refusal(result, reply)) is not None and refused.kind == "throttle"

    def test_a_failure_without_any_words_is_one(self) -> None:
        assert read_stream(stream({"type": "turn.failed", "error": None})).cli_error == "the turn failed"

    def test_a_turn_that_completes_after_one_that_failed_counts(self) -> None:
        failed = {"type": "turn.failed", "error": {"message": "boom"}}
        reply = read_stream(stream(failed, says("12:04."), closes()))
        assert (reply.final_answer, reply.finished, reply.cli_error) == ("12:04.", True, None)
        reply = read_stream(stream(says("12:04."), closes(), failed))
        assert (reply.finished, reply.cli_error) == (False, "boom")
        assert read_stream(stream({"type": "error"})).cli_error is not None

    def test_what_was_said_last_is_all_that_is_known_of_a_stream_that_breaks_off(self) -> None:
        reply = read_stream(stream(BEGINS, notes(RECONNECT)))
        assert (reply.finished, reply.cli_error, reply.error_status) == (False, RECONNECT, 429)

    def test_an_error_that_the_agent_outlived_is_none(self) -> None:
        reply = read_stream(stream(notes("overloaded"), ran("ls"), says("x")))
        assert (reply.cli_error, reply.finished) == (None, False)

    def test_the_agents_own_words_about_limits_are_no_refusal(self) -> None:
        said = stream(says("I hit a 429: usage limit, not logged in."), ran("x", "error: unexpected argument", 1))
        result = ProcessResult(exit_code=1, stdout=said, stderr=b"")
        assert Codex().refusal(result, Codex().read(result)) is None


class TestAnswers:
    def test_the_last_message_is_the_answer_also_before_a_last_call(self) -> None:
        assert read_stream(stream(says("first"), says("12:04."), ran("ls"), closes())).final_answer == "12:04."

    def test_reasoning_is_neither_answer_nor_turn(self) -> None:
        reply = read_stream(stream(item("reasoning", text="Hm."), closes()))
        assert (reply.final_answer, reply.turns) == ("", ())

    def test_raw_output_is_never_an_answer(self) -> None:
        reply = read_stream(b"Hello, I am no event.\nNor I.\n42\n[1,2]\n")
        assert (reply.final_answer, reply.turns, reply.unreadable_lines, reply.spoke) == ("", (), 4, False)

    def test_a_message_that_grows_is_one_turn(self) -> None:
        events = [item("agent_message", when, text=text) for when, text in (("started", "1"), ("updated", "12:"))]
        reply = read_stream(stream(*events, item("agent_message", text="12:04."), closes()))
        assert reply.turns == (Turn("assistant", "12:04."),)

    def test_a_message_that_was_cut_off_is_kept(self) -> None:
        assert read_stream(stream(item("agent_message", "updated", text="High wa"))).final_answer == "High wa"

    @pytest.mark.parametrize("text", [None, "", " ", 7, {"text": "x"}, [], [None, 3]])
    def test_an_odd_or_empty_text_falls_back_to_what_was_said_before(self, text: Any) -> None:
        reply = read_stream(stream(says("12:04."), says(text), closes()))
        assert (reply.final_answer, reply.finished) == ("12:04.", True)

    def test_a_text_in_parts_is_joined(self) -> None:
        reply = read_stream(stream(says(["12", {"type": "text", "text": ":04."}])))
        assert reply.final_answer == "12\n:04."

    def test_older_names_of_items_are_known(self) -> None:
        old = {"type": "item.completed", "item": {"id": "1", "item_type": "assistant_message", "text": "12:04."}}
        assert read_stream(stream(old)).final_answer == "12:04."


class TestCalls:
    def test_a_command_that_never_ended_is_a_call_without_a_result(self) -> None:
        begun = item("command_execution", "started", command="sleep 99", aggregated_output="", status="in_progress")
        (turn,) = read_stream(stream(begun)).turns
        assert (turn.role, turn.tool_input) == ("tool_use", {"command": "sleep 99"})

    def test_calls_stand_where_they_began_and_results_where_they_came(self) -> None:
        def one(number: str, when: str) -> dict[str, Any]:
            return item("command_execution", when, id=number, command=number, aggregated_output=f"of {number}")

        turns = read_stream(
            stream(one("a", "started"), one("b", "started"), one("b", "completed"), one("a", "completed"))
        )
        assert [turn.tool_input or turn.content for turn in turns.turns] == [
            {"command": "a"},
            {"command": "b"},
            "of b",
            "of a",
        ]

    def test_ids_that_come_again_are_told_apart(self) -> None:
        turns = read_stream(stream(BEGINS, ran("one", "1"), ran("two", "2"))).turns
        assert [turn.call_id for turn in turns[::2]] == ["6843a0e1ed63/item_1", "6843a0e1ed63/item_1#2"]
        assert [turn.call_id for turn in turns[1::2]] == [turn.call_id for turn in turns[::2]]

    def test_ids_of_another_thread_are_others(self) -> None:
        other = {**BEGINS, "thread_id": "01a22e45-b662-7400-865c-6843a0e1ffff"}
        first, second = (read_stream(stream(begins, ran("x"))).turns[0].call_id for begins in (BEGINS, other))
        assert first != second

    def test_a_list_of_things_to_do_is_one_call_with_its_last_state(self) -> None:
        states = [
            item("todo_list", when, items=[{"text": "a", "completed": done}])
            for when, done in (("started", False), ("updated", False), ("completed", True))
        ]
        (turn,) = read_stream(stream(*states)).turns
        assert (turn.tool_name, turn.tool_input) == ("todo_list", {"items": [{"text": "a", "completed": True}]})

    @pytest.mark.parametrize("label", ["mcp_tool_call", "mcp_call", "tool_call", None])
    @pytest.mark.parametrize("key", ["tool", "tool_name"])
    def test_an_mcp_call_is_told_by_its_shape(self, label: str | None, key: str) -> None:
        facts = {"server": "my_srv", key: "read", "arguments": '{"id": 7}', "result": {"content": ["a"]}}
        call, got = read_stream(stream(item(label, **facts, status="completed"))).turns
        assert (call.tool_name, call.tool_input) == ("mcp__my_srv__read", {"id": 7})
        assert (got.content, got.is_error) == ("a", False)

    @pytest.mark.parametrize(
        ("facts", "content"),
        [
            ({"result": {"content": [{"type": "text", "text": "a"}, {"type": "image"}]}}, "a\n[image]"),
            ({"result": {"content": [], "structured_content": {"n": 1}}}, '{"n": 1}'),
            ({"result": "plain"}, "plain"),
            ({"result": None, "output": "older"}, "older"),
            ({"result": None, "error": {"message": "no such tool"}}, "no such tool"),
            ({"error": "no such tool"}, "no such tool"),
            ({"error": ["no", "such"]}, "no\nsuch"),
            ({"result": 7}, "7"),
        ],
    )
    def test_what_an_mcp_call_gave_is_kept_whatever_its_form(self, facts: dict[str, Any], content: str) -> None:
        call, got = read_stream(stream(item("mcp_tool_call", server="s", tool="t", **facts))).turns
        assert (got.content, got.call_id) == (content, call.call_id)

    @pytest.mark.parametrize(
        ("command", "output", "code", "told"),
        [
            ("ls", "a", 0, ({"command": "ls"}, "a", False)),
            (["bash", "-lc", "ls"], "a", 0, ({"command": ["bash", "-lc", "ls"]}, "a", False)),
            (None, None, None, ({}, "", False)),
            ("ls", ["a", "b"], "0", ({"command": "ls"}, "a\nb", False)),
            ("ls", 7, "2", ({"command": "ls"}, "Exit code 2\n7", True)),
            ({"cmd": "ls"}, {"text": "a"}, -1, ({"command": {"cmd": "ls"}}, 'Exit code -1\n{"text": "a"}', True)),
        ],
    )
    def test_a_command_is_kept_whatever_its_types(self, command: Any, output: Any, code: Any, told: Any) -> None:
        call, got = read_stream(stream(ran(command, output, code))).turns
        assert (call.tool_input, got.content, got.is_error) == told

    @pytest.mark.parametrize("kind", ["web_search", "collab_tool_call", "something_new", None, 7, ["x"]])
    def test_any_other_item_is_a_call_named_by_its_kind(self, kind: Any) -> None:
        call = read_stream(stream(item(kind, query="tide tables", status="completed"))).turns[0]
        assert call.tool_name == (kind if isinstance(kind, str) else "(unnamed)")
        assert call.tool_input == {"query": "tide tables"}

    def test_an_item_without_an_id_counts_when_it_ends(self) -> None:
        begun, ended = (item("command_execution", when, id=None, command="ls") for when in ("started", "completed"))
        assert [turn.role for turn in read_stream(stream(begun, ended)).turns] == ["tool_use"]


class TestUsage:
    @pytest.mark.parametrize(
        ("counts", "usage"),
        [
            ({"input_tokens": 100, "cached_input_tokens": 40, "output_tokens": 6}, Usage(60, 6, 40, None)),
            (
                {"input_tokens": 100, "cached_input_tokens": 40, "cache_write_input_tokens": 10, "output_tokens": 6},
                Usage(50, 6, 40, 10),
            ),
            ({"input_tokens": 100, "output_tokens": 6}, Usage(100, 6, None, None)),
            ({"input_tokens": "100", "cached_input_tokens": 40.0, "output_tokens": "6"}, Usage(60, 6, 40, None)),
            ({"input_tokens": 10, "cached_input_tokens": 40, "output_tokens": 6}, Usage(0, 6, 40, None)),
            ({"input_tokens": None, "output_tokens": 6}, Usage(None, 6, None, None)),
            ({"input_tokens": -5, "output_tokens": True, "cached_input_tokens": [1]}, None),
            ({"input_tokens": 10**18, "output_tokens": "many"}, None),
        ],
    )
    def test_counts_that_can_be_believed_come_in_fields_that_do_not_overlap(
        self, counts: dict[str, Any], usage: Usage | None
    ) -> None:
        assert read_stream(stream(says("x"), closes(**counts))).usage == usage

    def test_the_last_total_is_the_total(self) -> None:
        first = closes(input_tokens=1000, cached_input_tokens=600, output_tokens=20)
        last = closes(input_tokens=2500, cached_input_tokens=1600, output_tokens=55)
        assert read_stream(stream(first, last)).usage == Usage(900, 55, 1600, None)

    @pytest.mark.parametrize("usage", [None, [], "none", 7, {}, {"total": 5}])
    def test_a_total_that_is_missing_at_the_end_is_the_last_that_was_told(self, usage: Any) -> None:
        reply = read_stream(stream(closes(input_tokens=9, output_tokens=1), {"type": "turn.completed", "usage": usage}))
        assert (reply.usage, reply.finished) == (Usage(9, 1, None, None), True)

    def test_a_turn_that_tells_no_tokens_is_finished_all_the_same(self) -> None:
        reply = read_stream(stream(says("x"), {"type": "turn.completed"}))
        assert (reply.usage, reply.finished) == (None, True)


@pytest.mark.parametrize(
    "event",
    [
        {"type": "item.completed"},
        {"type": "item.completed", "item": None},
        {"type": "item.completed", "item": "text"},
        {"type": "item.completed", "item": []},
        {"type": "item.started", "item": {"type": "agent_message"}},
        {"type": "item.updated", "item": {"type": "error"}},
        {"type": "thread.started", "thread_id": None},
        {"type": "thread.started", "thread_id": 7},
        {"type": ["turn.completed"]},
        {"type": "turn.started", "error": "none"},
        {"type": None, "item": None},
        {"type": "something.new", "payload": {"message": "429"}},
        {"no": "type"},
        [],
        "null",
        "7",
        "{",
        '{"type": "item.completed", "item": {"type": "agent_me',
        "\x00\x01",
        "",
    ],
)
def test_an_odd_event_is_passed_over(event: Any) -> None:
    reply = read_stream(stream(event, says("12:04."), closes(), event))
    assert (reply.final_answer, reply.finished, reply.cli_error) == ("12:04.", True, None)
    assert [turn.content for turn in reply.turns] == ["12:04."]


def test_bytes_that_are_no_utf_8_cost_nothing_but_themselves() -> None:
    said = stream(says("12:04 \u00fc"), closes()).replace(b"\\u00fc", b"\xfc")
    reply = read_stream(said)
    assert (reply.final_answer, reply.finished) == ("12:04 \ufffd", True)


def test_byte_order_marks_and_line_ends_of_windows_cost_nothing() -> None:
    reply = read_stream(b"\xef\xbb\xbf" + stream(BEGINS, says("12:04."), closes()).replace(b"\n", b"\r\n"))
    assert (reply.final_answer, reply.finished, reply.session_id) == ("12:04.", True, BEGINS["thread_id"])
    assert reply.unreadable_lines == 0


def test_a_line_of_many_megabytes_is_read_like_any_other() -> None:
    output = "x" * 5_000_000
    begin = time.process_time()
    reply = read_stream(stream(ran("cat big", output), says("12:04."), closes()))
    assert time.process_time() - begin < 3
    assert (len(reply.turns[1].content), reply.final_answer) == (len(output), "12:04.")


def test_half_a_surrogate_pair_and_deep_nesting_can_be_stored() -> None:
    deep: Any = "x"
    for _ in range(200):
        deep = [deep]
    reply = read_stream(stream(item("new_tool", value=deep), says("\ud83d"), closes()))
    json.dumps(to_plain(reply.turns), ensure_ascii=False).encode()
    assert reply.finished


def test_another_model_that_the_service_put_in_place_is_named() -> None:
    told = item("error", message="model rerouted: gpt-5.5 -> gpt-5.2 (HighRiskCyberActivity)")
    assert read_stream(stream(told, says("x"), closes())).model == "gpt-5.2"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = (
    "id",
    "type",
    "text",
    "command",
    "aggregated_output",
    "exit_code",
    "status",
    "server",
    "tool",
    "result",
    "error",
)
ITEMS = st.dictionaries(
    st.sampled_from((*KEYS, "arguments", "receiver_thread_ids", "message", "changes")),
    JSON | st.sampled_from(["agent_message", "command_execution", "mcp_tool_call", "error", "item_1"]),
    max_size=8,
)
EVENTS = st.dictionaries(
    st.sampled_from(("type", "thread_id", "usage", "error", "message", "item")),
    JSON | ITEMS | st.sampled_from(["item.completed", "item.started", "turn.completed", "turn.failed", "error"]),
    max_size=5,
)


@given(st.lists(EVENTS, max_size=6), st.integers(0, 2))
def test_whatever_comes_is_read_without_an_error(events: list[Any], exit_code: int) -> None:
    result = ProcessResult(exit_code=exit_code, stdout=stream(*events), stderr=b"")
    reply = Codex().read(result)
    Codex().refusal(result, reply)
    json.dumps(to_plain(reply), ensure_ascii=False, allow_nan=False).encode()
    observe_activation(reply.turns, ("x",), backend="codex")


def test_a_skill_that_the_command_skipped_is_a_warning() -> None:
    said = b"WARN other: noise\nERROR session: failed to load skill tides/SKILL.md: invalid description: too long\n" * 2
    reply = Codex().read(ProcessResult(0, b"", said))
    assert reply.warnings == ("codex skipped a skill: tides/SKILL.md: invalid description: too long",)
