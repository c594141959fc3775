"""What an agent said and did in one attempt: turns, tool calls, token usage, and the reply as a whole."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ROLES = ("assistant", "tool_use", "tool_result", "user")


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts in fields that do not overlap. `None`: the backend did not say."""

    input_tokens: int | None = None
    """Read anew, neither from nor into a cache."""
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_creation_tokens: int | None = None

    @property
    def total_tokens(self) -> int | None:
        known = [n for n in self.counts() if n is not None]
        return sum(known) if known else None

    def counts(self) -> tuple[int | None, int | None, int | None, int | None]:
        return (self.input_tokens, self.output_tokens, self.cache_read_tokens, self.cache_creation_tokens)

    def plus(self, other: "Usage") -> "Usage":
        """Field-wise sum; a field unknown on both sides stays unknown."""
        return Usage(*(_add(a, b) for a, b in zip(self.counts(), other.counts(), strict=True)))


def _add(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else a + b


@dataclass(frozen=True, slots=True)
class Turn:
    """One step of the conversation, in the order it happened."""

    role: str
    """One of `ROLES`."""
    content: str = ""
    """The words said, or the tool's output on a `tool_result`."""
    tool_name: str | None = None
    tool_input: Mapping[str, Any] | None = None
    call_id: str | None = None
    """Joins a `tool_result` to its `tool_use`."""
    is_error: bool | None = None
    """On a `tool_result`: the call failed. `None`: the backend did not say."""
    parent_call_id: str | None = None
    """On turns of a sub-agent: the call that started it."""


@dataclass(frozen=True, slots=True)
class AgentReply:
    """What one invocation of an agent gave, read from its stream. Pure data: no verdict, no exit code."""

    turns: tuple[Turn, ...] = ()
    final_answer: str = ""
    usage: Usage | None = None
    model: str | None = None
    """The model that really answered, as the stream tells it."""
    session_id: str | None = None
    builtin_skills: tuple[str, ...] | None = None
    """Skills the CLI listed by itself. `None`: it lists none."""
    mcp_servers: tuple[str, ...] | None = None
    cli_error: str | None = None
    """What the CLI itself (never the agent) reported as an error."""
    error_status: int | None = None
    """HTTP status behind `cli_error`."""
    error_code: str | None = None
    """The CLI's own word for the kind of `cli_error`, where it has one: `rate_limit`, `billing_error`."""
    finished: bool = False
    """The stream held its closing event, and that event was no error."""
    warnings: tuple[str, ...] = ()
    """What the CLI said was odd about the setup, such as a skill that it could not load."""
    unreadable_lines: int = 0
    """Lines of the stream that were no event; they stay in the raw stream."""

    @property
    def spoke(self) -> bool:
        """A model was really called: something was said or done, or tokens were used."""
        acted = any(turn.role != "user" for turn in self.turns)
        tokens = self.usage.total_tokens if self.usage is not None else None
        return acted or bool(self.final_answer) or bool(tokens)
