"""The output of `hermes sessions export`, read: one JSON object a session and line, its messages inside.

The format has no written contract, so nothing here is required: what has an unexpected type is left out, and a line
that was cut off is read as far as it goes, for its messages come last and one by one.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from caliper_pipeline.domain.transcript import Usage
from caliper_pipeline.execution.backends.json_lines import storable, storable_object

USAGE_KEYS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
_LARGEST_COUNT = 10**15
_SESSION_LINE = re.compile(rb'^[ \t]*\{"id": ?"', re.MULTILINE)
_MESSAGES = '"messages": ['
_UNSEEN = re.compile(rb"^\xef\xbb\xbf|\x1b\[[0-9;?]*[ -/]*[@-~]", re.MULTILINE)
"""Byte order marks and colours."""
_DECODER = json.JSONDecoder(parse_constant=str)


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    arguments: Mapping[str, Any]
    call_id: str | None


@dataclass(frozen=True, slots=True)
class Message:
    role: str
    text: str = ""
    calls: tuple[Call, ...] = ()
    answers: str | None = None
    """On a tool's message: the call."""
    finish: str | None = None


@dataclass(frozen=True, slots=True)
class Session:
    id: str
    parent: str | None
    sub_agent: bool
    compacted: bool
    """It ended because it grew too long; another session goes on with it."""
    started: float
    model: str | None
    usage: Usage
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Export:
    before: str
    """What stood before the first session."""
    sessions: tuple[Session, ...]
    unreadable: int
    """Lines among the sessions that were none."""


def read_export(data: bytes) -> Export:
    """The sessions in an output that may begin with other text. Of two with one id the later counts."""
    data = _UNSEEN.sub(b"", data)
    first = _SESSION_LINE.search(data)
    start = first.start() if first else len(data)
    found: dict[str, Session] = {}
    unreadable = 0
    for line in data[start:].split(b"\n"):
        session = _session(line)
        if session is not None:
            found[session.id] = session
        elif line.strip():
            unreadable += 1
    return Export(data[:start].decode("utf-8", "replace").strip(), tuple(found.values()), unreadable)


def read_object(data: bytes) -> dict[str, Any] | None:
    """The JSON object in the bytes, fit to be stored again. `None`: there is none."""
    try:
        value = _DECODER.decode(data.decode("utf-8", "replace").lstrip("\ufeff").strip())
    except (ValueError, RecursionError):
        return None
    return storable_object(value, data)


def usage_in(counts: Mapping[str, Any]) -> Usage:
    return Usage(*(_count(counts.get(key)) for key in USAGE_KEYS))


def string(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _session(line: bytes) -> Session | None:
    if not line.strip():
        return None
    told = read_object(line)
    if told is None and (rescued := _rescued(line)) is not None:
        told = storable_object(rescued, line)
    if told is None or string(told.get("id")) is None or not isinstance(told.get("messages"), list):
        return None
    return Session(
        id=told["id"],
        parent=string(told.get("parent_session_id")),
        sub_agent=told.get("source") == "subagent",
        compacted=told.get("end_reason") == "compression",
        started=_number(told.get("started_at")),
        model=string(told.get("model")),
        usage=usage_in(told),
        messages=tuple(_message(item) for item in told["messages"] if isinstance(item, dict)),
    )


def _rescued(line: bytes) -> dict[str, Any] | None:
    """What a line without its end holds: the facts of the session, and each whole message."""
    text = line.decode("utf-8", "replace").strip()
    head, mark, rest = text.partition(_MESSAGES)
    if not mark:
        return None
    try:
        told = _DECODER.decode(head.rstrip().removesuffix(",") + "}")
    except (ValueError, RecursionError):
        return None
    return {**told, "messages": list(_whole_items(rest))} if isinstance(told, dict) else None


def _whole_items(text: str) -> Iterator[Any]:
    at = 0
    while at < len(text):
        try:
            item, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        yield item
        while at < len(text) and text[at] in ", \t":
            at += 1


def _message(told: Mapping[str, Any]) -> Message:
    return Message(
        role=string(told.get("role")) or "",
        text=_text(told.get("content")),
        calls=tuple(_calls(told.get("tool_calls"))),
        answers=string(told.get("tool_call_id")),
        finish=string(told.get("finish_reason")),
    )


def _text(value: Any) -> str:
    """A message's content as text; parts that are none are named, not shown."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if not isinstance(value, list):
        return json.dumps(value, ensure_ascii=False)
    parts = []
    for item in value:
        if isinstance(item, str):
            parts.append(item)
        elif isinstance(item, dict):
            parts.append(item["text"] if isinstance(item.get("text"), str) else f"[{string(item.get('type')) or '?'}]")
    return "\n".join(parts)


def _calls(value: Any) -> Iterator[Call]:
    """The calls of a message; the database itself holds them as text."""
    if isinstance(value, str):
        try:
            value = _DECODER.decode(value)
        except (ValueError, RecursionError):
            return
    for item in value if isinstance(value, list) else ():
        if not isinstance(item, dict):
            continue
        function = mapping(item.get("function")) or item
        name = string(function.get("name")) or "(unnamed)"
        yield Call(name, _arguments(function.get("arguments")), string(item.get("id")) or string(item.get("call_id")))


def _arguments(value: Any) -> Mapping[str, Any]:
    """The arguments as a mapping; what cannot be read is kept as it was, under `raw`."""
    if value is None or value == "":
        return {}
    if isinstance(value, str):
        try:
            inner = _DECODER.decode(value)
        except (ValueError, RecursionError):
            return {"raw": value}
        value = storable(inner)
    return value if isinstance(value, dict) else {"raw": value}


def _number(value: Any) -> float:
    usable = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15
    return float(value) if usable else 0.0


def _count(value: Any) -> int | None:
    """A count that can be one: a whole number, not negative, not absurd."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST_COUNT:
        return value
    return None
