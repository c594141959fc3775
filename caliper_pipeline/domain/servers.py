"""Whose a tool is: calls in a transcript traced back to the MCP server that served them.

Agents see tools as `mcp__<server>__<tool>`; what is in a server's name that their model's service does not take, they
write as `_`. Older releases of hermes put one `_` where others put two. Names and tools may hold underscores
themselves, so the longest known name that fits is the one.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

_PREFIXES = (("mcp__", "__"), ("mcp_", "_"))


@dataclass(frozen=True, slots=True)
class ServerUse:
    """How one server was used in a run."""

    server: str
    attempts: int
    """In which it was called at all."""
    calls: int


def server_of(tool_name: str, servers: Collection[str]) -> str | None:
    """The server that a tool is of. `None`: it is of none of them."""
    for prefix, separator in _PREFIXES:
        if tool_name.startswith(prefix):
            rest = tool_name.removeprefix(prefix)
            for same in (str, _written):
                fitting = [name for name in servers if rest.startswith(same(name) + separator)]
                if fitting:
                    return max(fitting, key=len)
    return None


def server_uses(calls: Iterable[Mapping[str, int]], servers: Collection[str]) -> tuple[ServerUse, ...]:
    """The use of each server, in their order; `calls` holds the calls of each attempt by tool."""
    attempts: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for by_tool in calls:
        in_attempt: Counter[str] = Counter()
        for tool, count in by_tool.items():
            server = server_of(tool, servers)
            if server is not None:
                in_attempt[server] += count
        total.update(in_attempt)
        attempts.update(in_attempt.keys())
    return tuple(ServerUse(name, attempts[name], total[name]) for name in servers)


def _written(name: str) -> str:
    return name.replace("-", "_")
