"""MCP servers of a hermes attempt: how they are written down, what their tools are called, which were reached.

Hermes calls a tool `mcp__<server>__<tool>`, with `_` for all in the server's name that is no letter or digit. A server
that does not start is left out without a word but in the log; it is tried three times more, in 7 s. So is one that is
called like a toolset of hermes' own, if that is all that names it (see `hermes_config`).
"""

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from caliper_pipeline.execution.backends.base import Server

START_SECONDS = 60
_NO_NAME = re.compile(r"[^A-Za-z0-9_]")
_REACHED = re.compile(r"MCP server '(.+?)' \([A-Za-z]+\): registered \d+ tool")
_MISSED = re.compile(r"Failed to connect to MCP server '(.+?)'(?: \(.*?\))?:(.*)")


def server_entry(server: Server) -> dict[str, Any]:
    """The server as `config.yaml` has it; it may ask for no answers of a model, which would not be counted."""
    common: dict[str, Any] = {"connect_timeout": START_SECONDS, "sampling": {"enabled": False}}
    if server.kind == "stdio":
        return {"command": server.command, "args": list(server.args), "env": dict(server.env), **common}
    remote = {"url": server.url, "headers": dict(server.headers), **common}
    return remote | {"transport": "sse"} if server.kind == "sse" else remote


def user_servers(theirs: Mapping[str, Any], declared: Collection[str] = ()) -> dict[str, Any]:
    """The operator's servers that no declared one takes the name of, by name."""
    listed = theirs.get("mcp_servers")
    taken = {plain_name(name).casefold() for name in declared}
    return {
        str(name): server
        for name, server in (listed.items() if isinstance(listed, dict) else ())
        if plain_name(str(name)).casefold() not in taken
    }


def plain_name(server: str) -> str:
    """What hermes calls the server in the names of its tools."""
    return _NO_NAME.sub("_", server)


def has_servers(path: Path) -> bool:
    """Whether a file that was written here names servers."""
    try:
        return b"\nmcp_servers:\n" in b"\n" + path.read_bytes()
    except OSError:
        return False


def called_as_declared(tool: str, servers: Iterable[str]) -> str:
    """The tool's name with its server as the spec calls it; the longest that fits, since names may hold the mark."""
    fits = [(plain_name(name), name) for name in servers if tool.startswith(f"mcp__{plain_name(name)}__")]
    if not fits:
        return tool
    plain, name = max(fits, key=lambda fit: len(fit[0]))
    return f"mcp__{name}__{tool.removeprefix(f'mcp__{plain}__')}"


def reached_servers(log: str) -> tuple[str, ...] | None:
    """The servers that hermes noted to have reached. `None`: it noted none."""
    return tuple(dict.fromkeys(_REACHED.findall(log))) or None


def missed_servers(log: str, wanted: Iterable[str]) -> dict[str, str]:
    """Of the wanted servers those that hermes noted to have given up, with its reason: they were missing from the
    tools."""
    reached = reached_servers(log) or ()
    missed = {name: reason.strip() for name, reason in _MISSED.findall(log)}
    return {name: missed[name] for name in wanted if name in missed and name not in reached}
