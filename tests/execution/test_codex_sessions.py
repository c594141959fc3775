"""Codex's sessions: a planted conversation written as one, and what those of an attempt tell."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from caliper_pipeline.domain.observations import observe_activation
from caliper_pipeline.domain.planted import read_turns
from caliper_pipeline.domain.transcript import Turn, Usage
from caliper_pipeline.execution.backends.codex_rollout import Session, read_session
from caliper_pipeline.execution.backends.codex_session import plant_session
from caliper_pipeline.execution.backends.codex_stream import read_stream

NOW = datetime(2026, 12, 1, 10, 0, 0, tzinfo=UTC)
MAIN, SUB = "01a22e45-b662-7400-865c-6843a0e1ed63", "01a22f78-4556-7772-ba45-6c8db202c599"


def planted(top: Path, history: list[dict[str, Any]], skills: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    turns, findings = read_turns(history)
    assert not findings
    session = plant_session(
        turns,
        config_home=top,
        workdir=Path("/w"),
        skills_root=top / "skills",
        skills=skills,
        provider="ours",
        version="0.171.0",
        now=NOW,
    )
    (path,) = (top / "sessions" / "2026" / "12" / "01").iterdir()
    assert path.name.startswith("rollout-2026-12-01T09-59-")
    assert path.name.endswith(f"-{session}.jsonl")
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [line["timestamp"] for line in lines] == sorted(line["timestamp"] for line in lines)
    return lines


def test_a_session_says_what_every_release_wants_to_know(tmp_path: Path) -> None:
    about = planted(tmp_path, [{"user": "Hi."}])[0]
    assert about["type"] == "session_meta"
    assert about["payload"] | {"id": "", "session_id": ""} == {
        "id": "",
        "session_id": "",
        "timestamp": "2026-12-01T09:59:56.000Z",
        "cwd": "/w",
        "originator": "codex_exec",
        "cli_version": "0.171.0",
        "source": "exec",
        "model_provider": "ours",
    }


def test_words_and_commands_become_items(tmp_path: Path) -> None:
    shell = [{"run": "ls 'ü'", "output": ""}, {"run": "pwd", "output": "/w\n"}]
    history = [{"user": "Hi.\u2028"}, {"assistant": "I look.", "shell": shell}, {"assistant": "", "shell": shell[:1]}]
    items = [line["payload"] for line in planted(tmp_path, history)[1:]]
    assert [item["type"] for item in items] == [
        "message",
        "message",
        *("function_call", "function_call_output") * 2,
        *("function_call", "function_call_output"),
    ]
    assert items[0]["content"] == [{"type": "input_text", "text": "Hi.\u2028"}]
    assert items[1]["content"] == [{"type": "output_text", "text": "I look."}]
    assert json.loads(items[2]["arguments"]) == {"cmd": "ls 'ü'"}
    calls = [item["call_id"] for item in items[2:]]
    assert calls == [f"call_planted_{n}" for n in ("1_0", "1_0", "1_1", "1_1", "2_0", "2_0")]


@pytest.mark.parametrize(
    ("typed", "called"),
    [("/tide", "$tide"), ("/tide Cuxhaven, please", "$tide Cuxhaven, please"), (" /tide a\nb ", "$tide a\nb")],
)
def test_a_slash_command_brings_the_whole_file(tmp_path: Path, typed: str, called: str) -> None:
    body = "---\nname: tide\ndescription: T\n---\r\n\r\nLook ü.\n"
    (tmp_path / "skills" / "tide").mkdir(parents=True)
    file = tmp_path / "skills" / "tide" / "SKILL.md"
    file.write_bytes(body.encode())
    items = [line["payload"] for line in planted(tmp_path, [{"user": typed}], ("tide",))[1:]]
    told = [item["content"][0]["text"] for item in items]
    assert told == [called, f"<skill>\n<name>tide</name>\n<path>{file}</path>\n{body}\n</skill>"]


@pytest.mark.parametrize("typed", ["/moon", "/Tide", "/tmp/x", "Use /tide"])
def test_what_calls_no_installed_skill_stays_as_typed(tmp_path: Path, typed: str) -> None:
    lines = planted(tmp_path, [{"user": typed}], ("tide",))
    assert [line["payload"]["content"][0]["text"] for line in lines[1:]] == [typed]


# What the CLI writes.


def about(thread: str = MAIN, **facts: Any) -> dict[str, Any]:
    return {"type": "session_meta", "payload": {"id": thread, "session_id": MAIN, **facts}}


def sub(**facts: Any) -> dict[str, Any]:
    return about(SUB, parent_thread_id=MAIN, **facts)


def context(model: Any) -> dict[str, Any]:
    return {"type": "turn_context", "payload": {"model": model}}


def used(thread: str, tokens: int) -> dict[str, Any]:
    counts = {"input_tokens": tokens, "cached_input_tokens": 0, "output_tokens": 1}
    return {"type": "token_usage_record", "payload": {"thread_id": thread, "thread_token_usage": counts}}


def item(**payload: Any) -> dict[str, Any]:
    return {"type": "response_item", "payload": payload}


def keep(top: Path, thread: str, *lines: Any) -> Path:
    path = top / "sessions" / "2026" / "12" / "01" / f"rollout-2026-12-01T10-00-00-{thread}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    return path


def test_the_model_is_that_of_the_last_turn(tmp_path: Path) -> None:
    keep(tmp_path, MAIN, about(), context("one"), context("two"), context(None), context(""))
    main = read_session(tmp_path, MAIN).main
    assert main is not None
    assert main.model == "two"


def test_tokens_of_a_turn_that_never_ended_are_known(tmp_path: Path) -> None:
    older = {"total_token_usage": {"input_tokens": 9, "cached_input_tokens": 4, "output_tokens": 2}}
    counted = {"type": "event_msg", "payload": {"type": "token_count", "info": older}}
    keep(tmp_path, MAIN, about(), counted, {"type": "event_msg", "payload": {"type": "token_count", "info": None}})
    reply = read_stream(b"", read_session(tmp_path, MAIN))
    assert (reply.usage, reply.spoke) == (Usage(5, 2, 4, None), True)


def test_what_the_stream_tells_counts_before_the_session(tmp_path: Path) -> None:
    keep(tmp_path, MAIN, about(), context("m"), used(MAIN, 7))
    stream = b'{"type":"turn.completed","usage":{"input_tokens":5,"output_tokens":1}}'
    reply = read_stream(stream, read_session(tmp_path, MAIN))
    assert (reply.usage, reply.model) == (Usage(5, 1, None, None), "m")


def test_no_model_is_named_where_none_was_called(tmp_path: Path) -> None:
    keep(tmp_path, MAIN, about(), context("m"))
    assert read_stream(b"", read_session(tmp_path, MAIN)).model is None


SPAWN = json.dumps(
    {
        "type": "item.completed",
        "item": {
            "id": "item_1",
            "type": "collab_tool_call",
            "tool": "spawn_agent",
            "receiver_thread_ids": [SUB],
            "status": "completed",
        },
    }
)
SAID = json.dumps({"type": "item.completed", "item": {"id": "item_2", "type": "agent_message", "text": "Done."}})


def test_a_sub_agents_turns_stand_behind_the_call_that_started_it(tmp_path: Path) -> None:
    keep(
        tmp_path,
        SUB,
        sub(),
        context("small"),
        item(type="message", role="user", content=[{"type": "input_text", "text": "SUBJOB"}]),
        item(type="reasoning", summary=[]),
        item(type="function_call", name="exec_command", arguments='{"cmd": "cat x/SKILL.md"}', call_id="c1"),
        item(type="function_call_output", call_id="c1", output="Output:\n---\nname: x\n---\n"),
        item(type="function_call", namespace="mcp__s", name="t", arguments="{", call_id="c2"),
        item(type="custom_tool_call", name="apply_patch", input="*** Begin Patch", call_id="c3"),
        item(type="custom_tool_call_output", call_id="c3", output={"content": "ok", "success": True}),
        item(type="message", role="assistant", content=[{"type": "output_text", "text": "sub done"}]),
        used(SUB, 30),
    )
    keep(tmp_path, MAIN, about(), context("large"), used(MAIN, 10))
    reply = read_stream(f"{SPAWN}\n{SAID}\n".encode(), read_session(tmp_path, MAIN))
    assert [(turn.role, turn.tool_name) for turn in reply.turns] == [
        ("tool_use", "collab_tool_call"),
        ("tool_result", None),
        ("tool_use", "shell"),
        ("tool_result", None),
        ("tool_use", "mcp__s__t"),
        ("tool_use", "apply_patch"),
        ("tool_result", None),
        ("assistant", None),
        ("assistant", None),
    ]
    assert {turn.parent_call_id for turn in reply.turns[2:-1]} == {"item_1"}
    assert reply.turns[2].tool_input == {"command": "cat x/SKILL.md"}
    assert observe_activation(reply.turns, ("x",), backend="codex") == ("x",)
    assert (reply.final_answer, reply.model, reply.usage) == ("Done.", "large", Usage(40, 2, 0, None))


def test_what_a_sub_agent_was_given_of_its_parents_is_not_its_own(tmp_path: Path) -> None:
    said = item(type="message", role="assistant", content="of the parent")
    keep(
        tmp_path,
        SUB,
        sub(subagent_history_start_ordinal=5),
        {**said, "ordinal": 3},
        {**used(MAIN, 99), "ordinal": 4},
        {**item(type="message", role="assistant", content="its own"), "ordinal": 6},
        {**used(SUB, 7), "ordinal": 7},
    )
    (thread,) = read_session(tmp_path, MAIN).others
    assert (thread.turns, thread.usage) == ((Turn("assistant", "its own"),), Usage(7, 1, 0, None))


def test_sessions_of_other_spawns_in_the_same_home_are_left_alone(tmp_path: Path) -> None:
    other = "01a22e45-0000-7400-865c-6843a0e1ed63"
    keep(tmp_path, other, {"type": "session_meta", "payload": {"id": other}}, used(other, 5))
    keep(tmp_path, MAIN, {"type": "session_meta", "payload": {"id": MAIN}}, used(MAIN, 7))
    session = read_session(tmp_path, MAIN)
    assert session.main is not None
    assert (session.main.usage, session.others) == (Usage(7, 1, 0, None), ())


def test_the_newest_session_is_meant_when_none_is_named(tmp_path: Path) -> None:
    keep(tmp_path, MAIN, about(), context("m"))
    keep(tmp_path, SUB, sub(), context("small"))
    main = read_session(tmp_path, None).main
    assert main is not None
    assert (main.thread_id, main.model) == (MAIN, "m")


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [""],
        ["no session"],
        [7, [], None],
        ['{"type": "session_meta", "payload": null}'],
        [{"type": "session_meta", "payload": {"id": 7}}],
        [{"type": "turn_context", "payload": {"model": "m"}}],
        ["\udcff\udcfe", about()],
    ],
)
def test_an_odd_file_is_passed_over(tmp_path: Path, lines: list[Any]) -> None:
    keep(tmp_path, MAIN, *lines)
    session = read_session(tmp_path, MAIN)
    assert session.main is None


@pytest.mark.parametrize(
    "line",
    [
        "7",
        '{"type": "turn_context"}',
        '{"type": "turn_context", "payload": []}',
        '{"type": "token_usage_record", "payload": {"thread_token_usage": "many"}}',
        '{"type": "event_msg", "payload": {"type": "token_count", "info": [1]}}',
        '{"type": "response_item", "payload": {"type": ["message"], "role": 7}}',
        '{"type": "response_item", "payload": {"type": "function_call", "name": null, "arguments": 7}}',
        '{"type": "response_item", "payload": {"type": "function_call_output", "output": [1, {"x": 1}]}}',
        '{"type": "response_item", "ordinal": "first"}',
        '{"type": "response_item", "payload": {"typ',
    ],
)
def test_an_odd_line_costs_nothing_but_itself(tmp_path: Path, line: str) -> None:
    keep(tmp_path, MAIN, about(), line, context("m"), line)
    keep(tmp_path, SUB, sub(), line, used(SUB, 7))
    session = read_session(tmp_path, MAIN)
    assert session.main is not None
    assert session.main.model == "m"
    assert [thread.usage for thread in session.others] == [Usage(7, 1, 0, None)]


def test_what_is_no_plain_file_is_not_opened(tmp_path: Path) -> None:
    real = keep(tmp_path, MAIN, about(), context("m"))
    outside = real.rename(tmp_path / "outside.jsonl")
    real.symlink_to(outside)
    os.mkfifo(real.with_name(f"rollout-2026-12-01T10-00-00-{SUB}.jsonl"))
    assert read_session(tmp_path, MAIN) == Session()


def test_a_home_without_sessions_tells_nothing(tmp_path: Path) -> None:
    assert read_session(tmp_path / "missing", MAIN) == Session()
