"""Events of an agent command, one JSON object a line, read so that no odd line costs anything.

A line that holds no object is counted and passed over; what an object holds comes out as the type that was asked for
or as nothing. Every event can be stored again: half a surrogate pair cannot be written as UTF-8, and hundreds of
nested levels cannot be walked.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

LARGEST_COUNT = 10**15
_FLOOD = 1_000_000
"""Bytes of lines without an event, from which on they are looked at in less detail."""
_CONTROL = re.compile(r"[\x00-\x1f]")
_TERMINAL = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[=>])")
"""What is meant for a terminal: colours, the cursor, the title of the window."""
_DEEPEST = 60
_SURELY_FLAT = 60


def events_in(stdout: bytes, *, passed_over: tuple[bytes, ...] = ()) -> Iterator[dict[str, Any] | int]:
    """The events in order, and between them how many lines held none. Lines that begin with one of `passed_over` are
    events that nobody wants to see parsed."""
    at = 0
    while (brace := stdout.find(b"{", at)) >= 0:
        start = max(at, stdout.rfind(b"\n", at, brace) + 1)
        end = stdout.find(b"\n", brace)
        end = len(stdout) if end < 0 else end
        yield _line_count(stdout[at:start])
        if not (passed_over and stdout.startswith(passed_over, brace)):
            event = parsed(stdout[start:end])
            yield 1 if event is None else event
        at = end + 1
    yield _line_count(stdout[at:])


def plain_lines(stdout: bytes) -> list[str]:
    """The lines that are no event: what the command said outside its own format."""
    if len(stdout) > 2 * _FLOOD:
        stdout = stdout[:_FLOOD] + b"\n" + stdout[-_FLOOD:]
    lines = [line for line in stdout.split(b"\n") if line.strip()]
    return [line.decode("utf-8", "replace").strip() for line in lines if parsed(line) is None]


def parsed(line: bytes) -> dict[str, Any] | None:
    """The event on the line, fit to be stored again. `None`: it holds none."""
    if b"{" not in line:
        return None
    return storable_object(_loaded(line.decode("utf-8", "replace").lstrip("\ufeff")), line)


def storable_object(value: Any, told: bytes) -> dict[str, Any] | None:
    """The object, fit to be stored again; `told` is the JSON that it was read from. `None`: it is no object."""
    if not isinstance(value, dict):
        return None
    if b"\\ud" in told or b"\\uD" in told or told.count(b"[") + told.count(b"{") > _SURELY_FLAT:
        value = storable(value)
    return value if isinstance(value, dict) else None


def _loaded(told: str) -> Any:
    """The JSON value that is told, also in colours, and with control characters that should have been escaped."""
    try:
        return json.loads(told, parse_constant=str)
    except (ValueError, RecursionError):
        if not _CONTROL.search(told):
            return None
    try:
        return json.loads(_TERMINAL.sub("", told), parse_constant=str, strict=False)
    except (ValueError, RecursionError):
        return None


def mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def string(value: Any) -> str | None:
    """A text that says something."""
    return value if isinstance(value, str) and value else None


def text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def count(value: Any) -> int | None:
    """A count that can be one: a whole number in whatever form, not negative, not absurd."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= len(str(LARGEST_COUNT)):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_COUNT:
        return value
    return None


def blocks(content: Any) -> list[dict[str, Any]]:
    """The blocks of a message's content, which may as well be one text."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def tool_input(value: Any) -> dict[str, Any]:
    """The arguments of a call as a mapping, whatever they came as."""
    if isinstance(value, dict):
        return value
    if isinstance(value, str):
        try:
            inner = json.loads(value)
        except (ValueError, RecursionError):
            inner = None
        if isinstance(inner, dict):
            return inner
    return {} if value is None else {"input": value}


def content_text(value: Any) -> str:
    """A tool's output as text; blocks that are no text are named, not shown."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return json.dumps(value, ensure_ascii=False)
    parts = []
    for item in value:
        if isinstance(item, str):
            parts.append(item)
        elif isinstance(item, dict):
            parts.append(item["text"] if isinstance(item.get("text"), str) else f"[{text(item.get('type')) or '?'}]")
    return "\n".join(parts)


def _line_count(lines: bytes) -> int:
    """The lines that are not blank; in a flood, all of them, for it may hold tens of millions."""
    return lines.count(b"\n") if len(lines) > _FLOOD else sum(1 for line in lines.split(b"\n") if line.strip())


def storable(value: Any, depth: int = 0) -> Any:
    """The value without half surrogate pairs, and cut where it is nested too deeply."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict | list) and depth > _DEEPEST:
        return "(nested too deeply)"
    if isinstance(value, dict):
        return {storable(key, depth): storable(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [storable(item, depth + 1) for item in value]
    return value
