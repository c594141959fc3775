"""The codex command on this machine: where it is, and which version.

`CODEX_CLI_PATH` comes first, but only when it leads somewhere: a variable that outlived an uninstalled app is no reason
to fail. Then `PATH`. The copy inside the desktop app comes last, since it trails the command that people update, and
refuses models which that one knows.
"""

import functools
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from caliper_pipeline.domain.errors import CannotRun, MissingCli
from caliper_pipeline.execution.backends.base import Operator
from caliper_pipeline.execution.backends.short_command import ask

BINARY = "codex"
OVERRIDE = "CODEX_CLI_PATH"
INSTALL = "npm install -g @openai/codex"
VERSION_SECONDS = 30.0
"""Asking takes 60 ms, on a machine under load many times that."""
_APPS = ("ChatGPT.app", "Codex.app")
"""Newer and older name of the app for macOS."""
_IN_APP = Path("Contents", "Resources", BINARY)


@dataclass(frozen=True, slots=True)
class Cli:
    binary: str
    version: str | None


def find_binary(operator: Operator, extra_path: tuple[str, ...] = ()) -> str | None:
    """Where the command is. `None`: nowhere."""
    named = operator.environment.get(OVERRIDE)
    if named and _runs(path := Path(named).expanduser()):
        return str(path.absolute())
    return shutil.which(BINARY, path=search_path(operator, extra_path)) or _in_an_app(operator)


def search_path(operator: Operator, extra_path: tuple[str, ...]) -> str:
    return os.pathsep.join([*extra_path, operator.environment.get("PATH") or os.defpath])


def find_cli(operator: Operator, extra_path: tuple[str, ...] = ()) -> Cli:
    """The command, with its version. Raises `MissingCli`, or `CannotRun` when it does not start."""
    binary = find_binary(operator, extra_path)
    path = search_path(operator, extra_path)
    if binary is None:
        raise MissingCli(
            f"codex CLI not found. Searched: {path}",
            hint=f"Install it ({INSTALL}), name its folder in the spec's sandbox.extra_path, or the file itself "
            f"in {OVERRIDE}.",
        )
    env = {**operator.allowed, "HOME": str(operator.home), "PATH": path}
    asked = _version(binary, Path(binary).stat().st_mtime_ns, tuple(sorted(env.items())))
    if asked.failed:
        raise CannotRun(
            f"The codex CLI at {binary} does not start: {asked.said or 'it says nothing'}",
            hint=f"Install it anew: {INSTALL}",
        )
    return Cli(binary, asked.said)


def _runs(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _in_an_app(operator: Operator) -> str | None:
    """The command inside the desktop app of macOS; elsewhere there are no such folders."""
    places = (
        folder / app / _IN_APP for app in _APPS for folder in (Path("/Applications"), operator.home / "Applications")
    )
    return next((str(place) for place in places if _runs(place)), None)


@dataclass(frozen=True, slots=True)
class _Asked:
    said: str | None
    """The first line. `None`: none came, or not in time."""
    failed: bool = False


@functools.lru_cache(maxsize=16)
def _version(binary: str, changed: int, env: tuple[tuple[str, str], ...]) -> _Asked:
    """What `--version` says. Agent and judge are mostly the same command; `changed` lets an update be seen."""
    said = ask([binary, "--version"], dict(env), VERSION_SECONDS)
    if said.problem is not None:
        return _Asked(said.problem, failed=True)
    return _Asked(said.version_line, failed=said.exit_code not in (0, None))
