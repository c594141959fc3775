"""The commands of the agents on this machine: which there are, in which version, and whether that is the newest.

The newest version is asked of the registry that the person's own tools are set up for: `npm view` and `pip index`, or
where those are missing the one that `npm_config_registry` or `PIP_INDEX_URL` names. What cannot be reached in time is
unknown, which is no failure.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.errors import CannotRun, MissingCli
from caliper_pipeline.evaluation.cli_installs import Installation, installation, on_path
from caliper_pipeline.execution.backends import codex_cli, hermes_binary, pi_cli
from caliper_pipeline.execution.backends.base import Operator
from caliper_pipeline.execution.backends.claude_code import ClaudeCode
from caliper_pipeline.execution.backends.hermes_binary import python_script
from caliper_pipeline.execution.backends.short_command import ask

SECONDS = 20.0
_VERSION = re.compile(r"\d+(?:\.\d+)+")
_BYTES = 20_000_000


@dataclass(frozen=True, slots=True)
class AgentCli:
    name: str
    """Of the command."""
    package: str
    find: Callable[[Operator], tuple[str, str | None]]
    """Its path, and what it says its version is. Raises `CannotRun`."""
    install: str
    python: bool = False
    """The package is a Python one; else one for Node.js."""


@dataclass(frozen=True, slots=True)
class CliState:
    cli: AgentCli
    binary: str | None = None
    """`None`: it is not there."""
    version: str | None = None
    newest: str | None = None
    installation: Installation | None = None
    trouble: str = ""
    """Why it is there and does not start."""
    others: tuple[str, ...] = field(default=())
    """Further commands of that name on PATH, which are not used."""

    @property
    def status(self) -> str:
        if self.binary is None:
            return "not installed"
        if self.trouble:
            return "broken"
        if self.version is None or self.newest is None:
            return "unknown"
        return "behind" if _numbers(self.version) < _numbers(self.newest) else "current"


def _claude(operator: Operator) -> tuple[str, str | None]:
    info = ClaudeCode().check(operator, (), Engine("claude-code"), None)
    return info.binary or "claude", info.version


def _codex(operator: Operator) -> tuple[str, str | None]:
    cli = codex_cli.find_cli(operator)
    return cli.binary, cli.version


def _pi(operator: Operator) -> tuple[str, str | None]:
    cli = pi_cli.find_cli(operator)
    return str(cli.binary), cli.version_text


def _hermes(operator: Operator) -> tuple[str, str | None]:
    binary = hermes_binary.find_binary(operator)
    if binary is None:
        raise MissingCli("hermes CLI not found.")
    return binary, hermes_binary.version_of(operator, binary, hermes_binary.search_path(operator, ()))


CLIS = (
    AgentCli("claude", "@anthropic-ai/claude-code", _claude, "npm install -g @anthropic-ai/claude-code"),
    AgentCli("codex", "@openai/codex", _codex, codex_cli.INSTALL),
    AgentCli("pi", pi_cli.PACKAGE, _pi, pi_cli.INSTALL),
    AgentCli("hermes", "hermes-agent", _hermes, "pip install 'hermes-agent[mcp]'", python=True),
)


def look(operator: Operator, names: Sequence[str] = (), *, seconds: float = SECONDS) -> list[CliState]:
    """The state of the named commands, or of all; each is asked about for at most so long, all at the same time."""
    wanted = [cli for cli in CLIS if not names or cli.name in names]
    with ThreadPoolExecutor(len(wanted)) as pool:
        return list(pool.map(partial(_state, operator=operator, seconds=seconds), wanted))


def _state(cli: AgentCli, *, operator: Operator, seconds: float) -> CliState:
    path = operator.environment.get("PATH") or os.defpath
    found = tuple(on_path(cli.name, path))
    trouble = ""
    try:
        binary, version = cli.find(operator)
    except MissingCli:
        return CliState(cli, newest=_newest(cli, None, operator, seconds))
    except CannotRun as error:
        if not found:
            return CliState(cli, newest=_newest(cli, None, operator, seconds))
        binary, version, trouble = found[0], None, error.message
    told = _VERSION.search(version or "")
    return CliState(
        cli,
        binary=binary,
        version=told[0] if told else None,
        newest=_newest(cli, binary, operator, seconds),
        installation=installation(binary, cli.package, python=cli.python),
        trouble=trouble,
        others=tuple(place for place in found if os.path.realpath(place) != os.path.realpath(binary)),
    )


def _newest(cli: AgentCli, binary: str | None, operator: Operator, seconds: float) -> str | None:
    env = operator.environment
    if not cli.python:
        npm = shutil.which("npm", path=env.get("PATH") or os.defpath)
        if npm is not None:
            return _one_version(_said([npm, "view", cli.package, "version"], operator, seconds))
        registry = next((value for name, value in env.items() if name.lower() == "npm_config_registry"), "")
        told = _fetched(f"{registry.rstrip('/')}/{cli.package.replace('/', '%2f')}/latest", "application/json", seconds)
        return _one_version(str(told.get("version", "")))
    script = python_script(binary) if binary is not None else None
    if script is not None and "/" in script.interpreter:
        asked = [script.interpreter, "-m", "pip", "index", "versions", cli.package, "--disable-pip-version-check"]
        said = _said(asked, operator, seconds)
        if version := _one_version(said.partition("\n")[0]):
            return version
    index = env.get("PIP_INDEX_URL") or ""
    told = _fetched(f"{index.rstrip('/')}/{cli.package}/", "application/vnd.pypi.simple.v1+json", seconds)
    versions = told.get("versions")
    released = [str(one) for one in versions if re.fullmatch(r"[\d.]+", str(one))] if isinstance(versions, list) else []
    return max(released, key=_numbers, default=None)


def _said(command: list[str], operator: Operator, seconds: float) -> str:
    """What it prints; nothing when it fails or takes too long. Run at home: a project may name another registry."""
    said = ask(command, operator.environment, seconds, cwd=operator.home if operator.home.is_dir() else Path("/"))
    return said.out if said.exit_code == 0 else ""


def _fetched(address: str, kind: str, seconds: float) -> dict[str, object]:
    """The JSON object there; empty when there is none."""
    from http.client import HTTPException
    from urllib.request import Request, urlopen

    if not address.startswith(("https://", "http://")):
        return {}
    try:
        with urlopen(Request(address, headers={"Accept": kind}), timeout=seconds) as reply:
            found = json.loads(reply.read(_BYTES))
    except (OSError, HTTPException, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _one_version(text: str) -> str | None:
    found = _VERSION.search(text)
    return found[0] if found else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:6])
