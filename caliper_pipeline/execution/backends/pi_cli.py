"""The pi command on this machine: where it is, which version, the Node.js that it runs on, and what it can do.

`pi` starts through `#!/usr/bin/env node`, and each version needs a Node.js of at least some version. The one that was
installed beside it is the one that fits, so it comes first; it is named outright where something else would be found.
A Node.js that is too old ends the command before any output, in every attempt alike: that is told once, before them.
"""

import contextlib
import functools
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from caliper_pipeline.domain.errors import CannotRun, MissingCli
from caliper_pipeline.execution.backends.base import Operator
from caliper_pipeline.execution.backends.short_command import ask

BINARY = "pi"
OVERRIDE = "PI_CLI_PATH"
VERSION_SECONDS = 30.0
"""Starting takes 0.3 s, on a machine under load several times that."""
PACKAGE = "@earendil-works/pi-coding-agent"
INSTALL = f"npm install -g {PACKAGE}"

Version = tuple[int, ...]
APPROVE_SINCE: Version = (0, 79, 0)
"""`--approve` exists, and without it a print-mode run leaves the project's own skills and settings out."""
DELTAS_SINCE: Version = (0, 84, 0)
"""A stream holds each part of a message once; before, each update held all that came before it."""
DOLLAR_SINCE: Version = (0, 77, 0)
"""Credentials name variables as `$NAME`; before, by the bare name."""
BARE_UNTIL: Version = (0, 79, 4)
MCP_SINCE: Version = (1, 0, 4)
"""Servers came with 0.99, and with 1.0.4 the switch that keeps a project's own ones out."""

_SCRIPT = re.compile(rb"#!.*\bnode\b")
_NODE_FAILURE = re.compile(r"SyntaxError|ERR_UNSUPPORTED|Unsupported engine|ERR_UNKNOWN_BUILTIN|is not a function")


@dataclass(frozen=True, slots=True)
class Cli:
    binary: Path
    version_text: str
    node: Path | None
    """The Node.js beside it; `None`: there is none, or it needs none."""
    path: str
    """The search path that it was found on."""

    @property
    def version(self) -> Version:
        found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", self.version_text)
        return tuple(int(part or 0) for part in found.groups()) if found else ()

    def since(self, version: Version) -> bool:
        """A version that cannot be told is taken for a new one."""
        return not self.version or self.version >= version

    def start(self, path: str) -> tuple[str, ...]:
        """How it is started with that `PATH`."""
        if self.node is None or _first(path, "node") == self.node:
            return (str(self.binary),)
        return (str(self.node), str(self.binary))

    def path_prefixes(self, path: str) -> tuple[str, ...]:
        """The folder that goes before `path` for its own Node.js to be found first."""
        return () if self.node is None or _first(path, "node") == self.node else (str(self.node.parent),)


def find_cli(operator: Operator, extra_path: tuple[str, ...] = ()) -> Cli:
    """The command, with its version. Raises `MissingCli`, or `CannotRun` when it does not start."""
    path = os.pathsep.join([*extra_path, operator.environment.get("PATH") or os.defpath])
    binary = _override(operator) or _first(path, BINARY)
    if binary is None:
        raise MissingCli(
            f"pi CLI not found. Searched: {path}",
            hint=f"Install it ({INSTALL}), name its folder in the spec's sandbox.extra_path, or name the command "
            f"itself in {OVERRIDE}.",
        )
    node = _node_beside(binary)
    search = os.pathsep.join([str(node.parent), path]) if node is not None else path
    start = (str(binary),) if node is None else (str(node), str(binary))
    # Asking for a version leaves nothing behind, not even compiled code in the temporary folder.
    quiet = {"PI_OFFLINE": "1", "NODE_DISABLE_COMPILE_CACHE": "1"}
    env = {**operator.allowed, "HOME": str(operator.home), "PATH": search, **quiet}
    try:
        version = _version(start, _changed(binary), tuple(sorted(env.items())))
    except _NoVersion as error:
        raise _does_not_start(binary, error.said, env) from None
    return Cli(binary, version[:200], node, path)


def _override(operator: Operator) -> Path | None:
    """The command that the variable names; one left over from another machine or version is passed over."""
    named = operator.environment.get(OVERRIDE)
    if not named:
        return None
    path = Path(named).expanduser()
    return path.absolute() if path.is_file() and os.access(path, os.X_OK) else None


def _first(path: str, command: str) -> Path | None:
    found = shutil.which(command, path=path)
    return Path(found).absolute() if found else None


def _node_beside(binary: Path) -> Path | None:
    with contextlib.suppress(OSError), binary.open("rb") as file:
        if not _SCRIPT.match(file.readline(200)):
            return None
    node = binary.parent / "node"
    return node if node.is_file() and os.access(node, os.X_OK) else None


def _changed(binary: Path) -> int:
    try:
        return binary.stat().st_mtime_ns
    except OSError:
        return 0


class _NoVersion(Exception):
    """Holds what the command said instead."""

    def __init__(self, said: str) -> None:
        super().__init__(said)
        self.said = said


@functools.lru_cache(maxsize=32)
def _version(start: tuple[str, ...], changed: int, env: tuple[tuple[str, str], ...]) -> str:
    """The first line of `--version`. Raises `_NoVersion`, which is not kept.

    Agent and judge are mostly the same command, and each attempt asks what it can do; `changed` lets an update be seen.
    """
    said = ask([*start, "--version"], dict(env), VERSION_SECONDS)
    if said.problem is not None:
        raise _NoVersion(said.problem)
    if said.timed_out:
        raise _NoVersion(f"no answer within {VERSION_SECONDS:g}s")
    if said.exit_code != 0 or said.version_line is None:
        raise _NoVersion(said.err)
    return said.version_line


def _does_not_start(binary: Path, said: str, env: Mapping[str, str]) -> CannotRun:
    node = _first(env["PATH"], "node")
    manifest = _manifest(binary)
    engines = manifest.get("engines")
    needed = f"Node.js {engines['node']}" if isinstance(engines, dict) and "node" in engines else "Node.js"
    hint = f"Put a folder with such a node first on PATH, or one beside the command: npm install {PACKAGE} node@24"
    if node is None and "node" in said:
        return CannotRun(f"{binary} cannot run: it needs {needed}, and there is no node on PATH.", hint=hint)
    if node is not None and needed != "Node.js" and _NODE_FAILURE.search(said):
        try:
            found = _version((str(node),), _changed(node), tuple(sorted(env.items())))
        except _NoVersion:
            found = "of an unknown version"
        pi = f"pi {manifest['version']}" if isinstance(manifest.get("version"), str) else "it"
        return CannotRun(
            f"{binary} cannot run: {pi} needs {needed}, and the node that it finds is {found} ({node}).", hint=hint
        )
    line = next((line.strip() for line in said.splitlines() if line.strip()), "")
    return CannotRun(
        f"{binary} cannot run: `--version` failed{f': {line[:300]}' if line else ''}.",
        hint=f"Install it anew: {INSTALL}",
    )


def _manifest(binary: Path) -> dict[str, object]:
    """The package.json of the package that the command belongs to. Empty: it is not to be found."""
    for folder in list(Path(os.path.realpath(binary)).parents)[:5]:
        try:
            manifest = json.loads((folder / "package.json").read_bytes())
        except (OSError, ValueError):
            continue
        if isinstance(manifest, dict) and "engines" in manifest:
            return manifest
    return {}
