"""The rules of a planted conversation."""

from typing import Any

import pytest

from caliper_pipeline.domain.planted import read_turns


def test_a_conversation_of_user_assistant_and_shell_is_read() -> None:
    turns, findings = read_turns(
        [
            {"user": "Go."},
            {"assistant": "Done.", "shell": [{"run": "ls", "output": ""}]},
            {"assistant": "", "shell": [{"run": "pwd", "output": "/"}]},
        ]
    )
    assert findings == ()
    assert [(turn.user, turn.assistant, len(turn.shell)) for turn in turns] == [
        ("Go.", None, 0),
        (None, "Done.", 1),
        (None, "", 1),
    ]


@pytest.mark.parametrize(
    ("data", "path", "words"),
    [
        ({"user": "x"}, (), "must be a list of turns, not a mapping"),
        ("x", (), "must be a list of turns"),
        ([], (), "at least one turn"),
        ([{"assistant": "a"}], (0,), "begins with `user:`"),
        ([{"user": "a", "assistant": "b"}], (0,), "both"),
        ([{"user": "a"}, {}], (1,), "neither"),
        ([{"user": "a"}, {"asistant": "b"}], (1, "asistant"), "`assistant`"),
        ([{"user": "a", "shell": []}], (0, "shell"), "only the assistant"),
        ([{"user": "a"}, {"assistant": " "}], (1, "assistant"), "blank"),
        ([{"user": " "}], (0, "user"), "blank"),
        ([{"user": "a"}, {"assistant": "b", "shell": [{"run": "ls"}]}], (1, "shell", 0, "output"), "missing"),
        ([{"user": "a"}, {"assistant": "b", "shell": [{"output": "x"}]}], (1, "shell", 0, "run"), "missing"),
        ([{"user": "a"}, {"assistant": "b", "shell": [{"run": "a", "output": 1}]}], (1, "shell", 0, "output"), "text"),
        ([{"user": "a"}, {"assistant": "b", "shell": ["ls"]}], (1, "shell", 0), "must be a mapping"),
        ([{"user": "a"}, "b"], (1,), "must be a mapping"),
        ([{"user": 5}], (0, "user"), "must be text"),
    ],
)
def test_a_refusal_names_the_turn(data: Any, path: tuple[str | int, ...], words: str) -> None:
    found = {finding.path: finding.message for finding in read_turns(data)[1]}
    assert words in found[path]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("/tides", "tides"),
        (" /tides now please\nand here ", "tides"),
        ("/a.b_c-1", "a.b_c-1"),
        ("/tmp/foo", None),
        ("see /tides", None),
        ("/", None),
        ("/tides, please", None),
    ],
)
def test_a_turn_that_is_a_slash_command_is_known(text: str, name: str | None) -> None:
    assert read_turns([{"user": text}])[0][0].slash_command == name
