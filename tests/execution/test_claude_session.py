"""Planted conversations as sessions of Claude Code: the lines, their chain, and skills typed as commands."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from caliper_pipeline.domain.planted import PlantedTurn, read_turns
from caliper_pipeline.execution.backends.claude_code import ClaudeCode
from caliper_pipeline.execution.backends.claude_session import expand_skill, plant_session

from .stand_in import operator
from .test_claude_code import invocation, skill

NOW = datetime(2026, 12, 1, 8, 0, tzinfo=UTC)
TALK: list[dict[str, Any]] = [
    {"user": "Count zebras."},
    {"assistant": "I look.", "shell": [{"run": "grep -c z f", "output": "3"}, {"run": "ls", "output": ""}]},
    {"assistant": "Three."},
]


def turns(data: list[dict[str, Any]]) -> tuple[PlantedTurn, ...]:
    found, problems = read_turns(data)
    assert not problems
    return found


def lines(folder: Path, data: list[dict[str, Any]], **skills: Path) -> list[dict[str, Any]]:
    workdir = folder / "work_dir"
    workdir.mkdir()
    session = plant_session(turns(data), config=folder / "config", workdir=workdir, skills=skills, now=NOW)
    slug = "".join(character if character.isalnum() else "-" for character in str(workdir.resolve()))
    file = folder / "config" / "projects" / slug / f"{session}.jsonl"
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def told(line: dict[str, Any]) -> Any:
    return line["message"]["content"]


def test_each_line_points_at_the_one_before(tmp_path: Path) -> None:
    written = lines(tmp_path, TALK)
    assert [line["parentUuid"] for line in written] == [None, *(line["uuid"] for line in written[:-1])]
    assert len({line["uuid"] for line in written}) == len(written)
    assert {line["sessionId"] for line in written} != {""}
    times = [line["timestamp"] for line in written]
    assert times == sorted(set(times))
    assert times[-1] == "2026-12-01T07:59:58.000Z"


def test_messages_of_the_assistant_differ_in_id_and_name_no_model_that_would_answer_next(tmp_path: Path) -> None:
    said = [line["message"] for line in lines(tmp_path, TALK) if line["type"] == "assistant"]
    assert len({message["id"] for message in said}) == len(said) == 2
    assert {message["model"] for message in said} == {"<synthetic>"}


def test_commands_are_calls_of_the_shell_tool_with_their_results(tmp_path: Path) -> None:
    _, asked, answered, _ = lines(tmp_path, TALK)
    text, first, second = told(asked)
    assert text == {"type": "text", "text": "I look."}
    assert (first["name"], first["input"]) == ("Bash", {"command": "grep -c z f"})
    assert [block["tool_use_id"] for block in told(answered)] == [first["id"], second["id"]]
    assert [block["content"] for block in told(answered)] == ["3", ""]
    assert answered["type"] == "user"


@pytest.mark.parametrize("last", [{"user": "And lions?"}, {"assistant": "Wait.", "shell": TALK[1]["shell"]}])
def test_one_that_does_not_end_with_the_assistant_is_closed_unseen(tmp_path: Path, last: dict[str, Any]) -> None:
    *_, before, end = lines(tmp_path, [*TALK, last])
    assert (end["type"], end["isApiErrorMessage"]) == ("assistant", True)
    assert before["type"] == "user"
    assert before.get("isMeta", False) is ("shell" in last)


def test_a_typed_command_of_an_installed_skill_is_expanded_as_the_cli_does(tmp_path: Path) -> None:
    skill(tmp_path / "skills", "zebras", "---\nname: zebras\n---\n\n# Zebras\n\nCount them.\n")
    folder = tmp_path / "skills" / "zebras"
    typed, body, _ = lines(tmp_path, [{"user": " /zebras herd.txt  2 \n"}, {"assistant": "Two."}], zebras=folder)
    assert told(typed) == (
        "<command-message>zebras</command-message>\n<command-name>/zebras</command-name>\n"
        "<command-args>herd.txt  2</command-args>"
    )
    assert told(body)[0]["text"] == (
        f"Base directory for this skill: {folder}\n\n# Zebras\n\nCount them.\n\n\nARGUMENTS: herd.txt  2"
    )
    assert body["isMeta"] is True


def test_other_commands_stay_as_typed(tmp_path: Path) -> None:
    typed, _ = lines(tmp_path, [{"user": "/other x"}, {"assistant": "No."}])
    assert told(typed) == "/other x"


@pytest.mark.parametrize(
    ("text", "arguments", "expected"),
    [
        # All as the CLI itself was seen to do it.
        ("All: $ARGUMENTS.", 'a "b c"', 'All: a "b c".'),
        ("$ARGUMENTS[0]; $0; $1; $2", 'a "b c" d', "a; a; b c; d"),
        ("price $100, home $HOME, \\$1, $ARGUMENTS_X", "a", "price , home $HOME, $1, a_X"),
        ("All: $ARGUMENTS.", "", "All: ."),
        ("Plain.", "", "Plain."),
        ("Plain.\n", "a", "Plain.\n\n\nARGUMENTS: a"),
        ("${CLAUDE_SKILL_DIR} ${CLAUDE_SESSION_ID} ${OTHER}", "", "/skills/x s-1 ${OTHER}"),
        ("$0", 'an "open quotation', "an"),
    ],
)
def test_arguments_are_filled_in(text: str, arguments: str, expected: str) -> None:
    given = expand_skill(f"---\nname: x\n---\n{text}", arguments, folder=Path("/skills/x"), session="s-1")
    assert given == f"Base directory for this skill: /skills/x\n\n{expected}"


@pytest.mark.parametrize("text", ["---\r\nname: x\r\n---\r\n\r\nBody.", "\ufeff---\nname: x\n---\nBody.", "Body."])
def test_the_frontmatter_is_no_part_of_the_text(text: str) -> None:
    assert expand_skill(text, "", folder=Path("/x"), session="s").endswith("skill: /x\n\nBody.")


def test_every_spawn_takes_up_a_session_of_its_own(tmp_path: Path) -> None:
    given = invocation(tmp_path, operator(tmp_path), history=turns(TALK))
    first, second = ClaudeCode().plant(given), ClaudeCode().plant(given)
    assert first != second
    resumed = invocation(tmp_path, operator(tmp_path), history=turns(TALK), session=first)
    argv = ClaudeCode().command(resumed).argv
    assert argv[argv.index("--resume") + 1] == first
