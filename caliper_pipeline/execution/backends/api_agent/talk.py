"""What the loop and the protocols pass to each other."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from .events import Events, clean


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    description: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call that the model asked for."""

    id: str
    name: str
    arguments: dict[str, Any] | None
    """`None`: they were no JSON object."""
    raw: str = ""
    """The arguments as they came."""

    @property
    def shown(self) -> dict[str, Any]:
        """For the transcript: what a tool was to get, or what was there instead."""
        return {"arguments": self.raw} if self.arguments is None else self.arguments


@dataclass(frozen=True, slots=True)
class Result:
    text: str
    failed: bool = False


@dataclass(slots=True)
class Reply:
    """One answer of the model."""

    items: list[str | Call] = field(default_factory=list)
    """What it said and which tools it called, in its order."""
    stop: str = "end"
    """`end`; `length`: cut at the limit of a reply; `pause`: to be asked again; `refused`: it declined; `context`: the
    conversation is longer than it can read."""

    @property
    def calls(self) -> list[Call]:
        return [item for item in self.items if isinstance(item, Call)]

    def say(self, text: str) -> None:
        """Texts that nothing comes between are one."""
        if self.items and isinstance(self.items[-1], str):
            self.items[-1] += text
        elif text.strip():
            self.items.append(text)


class Progress:
    """One request while it is answered: what is known of it is told when it is known, since it is paid for."""

    def __init__(self, events: Events, number: int) -> None:
        self._events = events
        self._number = number
        self._usage: dict[str, int] = {}
        self.text = ""
        """Of a reply that is not complete yet."""

    def model(self, name: Any) -> None:
        if isinstance(name, str) and name:
            self._events.tell("model", name=name)

    def usage(self, **counts: Any) -> None:
        """Counts of this request so far: `input`, `output`, `cache_read`, `cache_creation`; they do not overlap."""
        known = {name: n for name, n in counts.items() if isinstance(n, int) and not isinstance(n, bool) and n >= 0}
        if known:
            self._usage |= known
            self._events.tell("usage", request=self._number, **self._usage)

    @property
    def tokens(self) -> int:
        return sum(self._usage.values())


class Model(Protocol):
    """A conversation in the form of one protocol."""

    def user(self, text: str) -> None: ...

    def assistant(self, text: str, commands: Sequence[tuple[str, str]]) -> None:
        """A turn that was had before: what was said, and which shell commands ran, each with its output."""
        ...

    def results(self, results: Sequence[tuple[Call, Result]]) -> None:
        """Answers to all calls of the last reply, in their order."""
        ...

    def reply(self, progress: Progress) -> Reply:
        """Ask; the reply is part of the conversation from then on. Raises `RequestFailed`; then nothing has changed."""
        ...


def call_of(call_id: str, name: str, raw: str) -> Call:
    """The call in a model's words; arguments may be left out, and some models write them as an empty text."""
    try:
        arguments = clean(json.loads(raw, parse_constant=str)) if raw.strip() else {}
    except (ValueError, RecursionError):
        arguments = None
    return Call(clean(call_id), clean(name), arguments if isinstance(arguments, dict) else None, clean(raw))
