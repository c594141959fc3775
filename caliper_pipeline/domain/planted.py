"""A planted history: the conversation that an attempt takes up, as a list of turns that a person wrote."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from caliper_pipeline.domain.authored import Authored, Finding, SolidText, Text, findings_of, kind_of
from caliper_pipeline.domain.transcript import Turn

_SLASH_COMMAND = re.compile(r"/([A-Za-z0-9_.-]+)(?:\s.*)?\Z", re.DOTALL)


class ShellCall(Authored):
    """A command that the agent had run, and what it had printed."""

    run: SolidText
    output: Text


class PlantedTurn(Authored):
    """One turn: of the user, or of the assistant with the commands it ran."""

    user: SolidText | None = None
    assistant: Text | None = None
    shell: tuple[ShellCall, ...] = ()

    @property
    def slash_command(self) -> str | None:
        """The name when the whole turn is `/name` or `/name arguments`."""
        found = _SLASH_COMMAND.match(self.user.strip()) if self.user is not None else None
        return found[1] if found else None

    @classmethod
    def rules(cls, data: Mapping[str, Any], meant: frozenset[str]) -> Iterator[Finding]:
        sides = [key for key in ("user", "assistant") if key in data or key in meant]
        if len(sides) != 1:
            yield Finding(
                (), f"needs exactly one of `user:` and `assistant:`, and has {'both' if sides else 'neither'}"
            )
        if "user" in data and "shell" in data:
            yield Finding(("shell",), "only the assistant can have run something")
        text = data.get("assistant")
        if isinstance(text, str) and not text.strip() and not data.get("shell"):
            yield Finding(("assistant",), "is blank, and nothing was run: give it a text or `shell:`")


def as_turns(planted: Iterable[PlantedTurn]) -> tuple[Turn, ...]:
    """The conversation in the form of a transcript, for a judge to see what came before."""
    turns: list[Turn] = []
    for place, turn in enumerate(planted):
        if turn.user is not None:
            turns.append(Turn("user", turn.user))
            continue
        if turn.assistant:
            turns.append(Turn("assistant", turn.assistant))
        for number, call in enumerate(turn.shell):
            call_id = f"planted-{place}-{number}"
            turns.append(Turn("tool_use", tool_name="shell", tool_input={"command": call.run}, call_id=call_id))
            turns.append(Turn("tool_result", call.output, tool_name="shell", call_id=call_id))
    return tuple(turns)


def read_turns(data: Any) -> tuple[tuple[PlantedTurn, ...], tuple[Finding, ...]]:
    """The turns, and everything that is wrong with them; paths begin with a turn's position, counted from 0."""
    if not isinstance(data, list):
        return (), (Finding((), f"must be a list of turns, not {kind_of(data)}"),)
    if not data:
        return (), (Finding((), "is empty: it needs at least one turn"),)
    turns: list[PlantedTurn] = []
    findings: list[Finding] = []
    if isinstance(data[0], Mapping) and "user" not in data[0] and "assistant" in data[0]:
        findings.append(Finding((0,), "must be a turn of the user: a conversation begins with `user:`"))
    for place, turn in enumerate(data):
        try:
            turns.append(PlantedTurn.model_validate(turn))
        except ValidationError as error:
            findings += [Finding((place, *finding.path), finding.message) for finding in findings_of(error)]
    return tuple(turns), tuple(findings)
