"""Declared MCP servers made ready for an attempt: `${VAR}` filled from the operator's environment, relative paths
anchored to the spec. What comes out holds secrets and is stored nowhere.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from caliper_pipeline.domain.errors import CannotRun
from caliper_pipeline.domain.spec import McpServer
from caliper_pipeline.execution.backends.base import Server

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_RELATIVE = ("./", "../")
_LONGEST_PORT = 5


def resolve_servers(
    declared: Mapping[str, McpServer], environment: Mapping[str, str], directory: Path, shown: str
) -> tuple[Server, ...]:
    """The servers in the order of the spec. Raises `CannotRun` naming every variable that is not set.

    `directory` is the spec's folder, `shown` what messages call the spec.
    """
    missing = [
        f"{name}: {key}: {variable}"
        for name, server in declared.items()
        for key, text in _texts(server)
        for variable in _VARIABLE.findall(text)
        if variable not in environment
    ]
    if missing:
        raise CannotRun(
            f"{shown}: mcp: these variables are not set: {'; '.join(missing)}.",
            hint="Export them in the shell that starts the run; their values are never stored.",
        )

    def filled(text: str) -> str:
        return _VARIABLE.sub(lambda found: environment[found[1]], text)

    def anchored(text: str) -> str:
        return str((directory / text).resolve()) if text.startswith(_RELATIVE) else text

    return tuple(
        Server(
            name=name,
            kind=server.type,
            command=anchored(server.command or ""),
            args=tuple(anchored(text) for text in server.args),
            env={key: filled(text) for key, text in server.env.items()},
            url=filled(server.url or ""),
            headers={key: filled(text) for key, text in server.headers.items()},
        )
        for name, server in declared.items()
    )


def secret_values(declared: Mapping[str, McpServer], environment: Mapping[str, str]) -> frozenset[str]:
    """What the variables in the servers stand for: told to nobody.

    A short number or a path of this machine is no secret, and hiding it would spoil what is told.
    """
    texts = (text for server in declared.values() for _, text in _texts(server))
    values = {environment.get(variable, "") for text in texts for variable in _VARIABLE.findall(text)}
    return frozenset(value for value in values if value and not _is_plain(value))


def _is_plain(value: str) -> bool:
    if value.isdigit() and len(value) <= _LONGEST_PORT:
        return True
    return value.startswith("/") and "\0" not in value and os.path.exists(value)  # noqa: PTH110  a very long one raises there


def _texts(server: McpServer) -> Iterator[tuple[str, str]]:
    """Where variables are filled in: never in a command or its arguments, which every process list shows."""
    if server.url is not None:
        yield "url", server.url
    for key, values in (("env", server.env), ("headers", server.headers)):
        for name, text in values.items():
            yield f"{key}.{name}", text
