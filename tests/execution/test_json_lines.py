import json

import pytest

from caliper_pipeline.execution.backends.json_lines import events_in, plain_lines

EVENT = {"type": "said", "text": "high water"}
PLAIN = json.dumps(EVENT)


@pytest.mark.parametrize(
    "line",
    [
        PLAIN,
        f"\ufeff{PLAIN}",
        f"{PLAIN}\r",
        f"\x1b[32m{PLAIN}\x1b[0m",
        f"\x1b[1;38;5;12m{PLAIN[:8]}\x1b[m{PLAIN[8:]}",
        f"\x1b[2J\x1b[H\x1b[?25l{PLAIN}\x1b[?25h",
        f"\x1b]0;working\x07{PLAIN}",
        f"\x1b]0;working\x1b\\{PLAIN}",
    ],
)
def test_an_event_is_one_whatever_a_terminal_is_told_around_it(line: str) -> None:
    assert [event for event in events_in(f"{line}\n".encode()) if isinstance(event, dict)] == [EVENT]
    assert plain_lines(line.encode()) == []


def test_control_characters_in_a_text_need_not_be_escaped() -> None:
    (event,) = [event for event in events_in(b'{"text": "a\tb\x00c"}\n') if isinstance(event, dict)]
    assert event == {"text": "a\tb\x00c"}


@pytest.mark.parametrize("line", ["\x1b[32mnews {1}\x1b[0m", "log: " + PLAIN, '{"a": "b', "\x1b[31m", "{\x00"])
def test_other_lines_are_counted_and_passed_over(line: str) -> None:
    assert [event for event in events_in(line.encode()) if event != 0] == [1]
