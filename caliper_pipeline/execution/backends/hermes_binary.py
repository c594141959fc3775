"""The hermes command: where it is, which version it is, and what runs it when a prompt is too long for an argument.

`hermes --version` looks for an update on the package index or in its git repository, up to 10 s without a network. Its
own cache file would stop that only for somebody who knows the version already, so the probe gets a proxy on a port
where nobody listens: the look-up fails at once. The probe has a home of its own, since the command writes into it.

The command takes a prompt in an argument only, of which Linux allows 128 KiB. But it is a Python script: its own
interpreter can read the prompt from standard input and hand it to the script as if it had been an argument. 1.4 MB
arrived whole (0.19.0).
"""

import functools
import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from caliper_pipeline.domain.errors import CannotRun
from caliper_pipeline.execution.backends.base import Operator
from caliper_pipeline.execution.backends.short_command import ask

BINARY = "hermes"
OVERRIDE = "HERMES_CLI_PATH"
VERSION_SECONDS = 15.0
_NOBODY = "http://127.0.0.1:9"
_PROXIES = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), _NOBODY)
_WRAPPERS = 3
"""How many scripts that start the next one are followed."""

PROMPT_FROM_STDIN = (
    "import os, sys\n"
    "del sys.argv[0]\n"
    "sys.path[0] = os.path.dirname(sys.argv[0])\n"
    "import runpy\n"
    "sys.argv.insert(1, '--oneshot=' + sys.stdin.buffer.read().decode('utf-8', 'replace'))\n"
    "runpy.run_path(sys.argv[0], run_name='__main__')\n"
)
"""For `python -c … SCRIPT OPTIONS…`. The first entry of the path would be the workdir, whose files are the agent's."""

_SHEBANG = re.compile(rb"\A#![ \t]*(/\S*/(?:python|pypy)[\w.]*)[ \t]*(?:-\S*)?\r?\n")
_ENV_SHEBANG = re.compile(rb"\A#![ \t]*/\S*/env[ \t]+(python[\w.]*)[ \t]*\r?\n")
_LONG_SHEBANG = re.compile(rb"\A#!/bin/sh\r?\n'''exec' (\"?)(/[^\"\n]*/(?:python|pypy)[\w.]*)\1 ")
_HANDS_ON = re.compile(rb"^\s*exec\s+([\"']?)(/[^\"'\n]+?)\1\s+\"\$@\"", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PythonScript:
    interpreter: str
    path: str


def search_path(operator: Operator, extra_path: Iterable[str]) -> str:
    return os.pathsep.join([*extra_path, operator.environment.get("PATH", os.defpath)])


def find_binary(operator: Operator, extra_path: Iterable[str] = ()) -> str | None:
    """The command that the override names, when it can be run; else the one on the path. `None`: there is none."""
    named = operator.environment.get(OVERRIDE)
    override = Path(named).expanduser() if named else None
    if override is not None and override.is_file() and os.access(override, os.X_OK):
        return str(override.absolute())
    return shutil.which(BINARY, path=search_path(operator, extra_path))


def python_script(binary: str) -> PythonScript | None:
    """The script behind the command, and what runs it. `None`: it is no Python script, as far as can be told."""
    for _ in range(_WRAPPERS):
        try:
            with Path(binary).open("rb") as file:
                head = file.read(4096)
        except OSError:
            return None
        if found := _SHEBANG.match(head):
            return PythonScript(os.fsdecode(found[1]), binary)
        if found := _LONG_SHEBANG.match(head):
            return PythonScript(os.fsdecode(found[2]), binary)
        if found := _ENV_SHEBANG.match(head):
            return PythonScript(os.fsdecode(found[1]), binary)
        handed_on = _HANDS_ON.search(head) if head.startswith(b"#!") else None
        if handed_on is None:
            return None
        binary = os.fsdecode(handed_on[2])
    return None


def has_mcp(binary: str) -> bool:
    """Whether its installation can speak MCP: the package comes with an extra. Without it servers would be left out
    in silence. True also where the installation cannot be looked into."""
    script = python_script(binary)
    if script is None or "/" not in script.interpreter:
        return True
    library = Path(script.interpreter).parent.parent / "lib"
    for packages in library.glob("python3*/site-packages"):
        if any(packages.glob("hermes_agent-*.dist-info")):
            return (packages / "mcp").is_dir()
    return True


def version_of(operator: Operator, binary: str, path: str) -> str | None:
    """The first line of `--version`, asked once. `None`: it fails or hangs; the command may work all the same. Raises
    `CannotRun` for a command that the system cannot start."""
    env = {**operator.allowed, "HOME": str(operator.home), "PATH": path}
    return _version(binary, Path(binary).stat().st_mtime_ns, tuple(sorted(env.items())))


@functools.lru_cache(maxsize=16)
def _version(binary: str, changed: int, env: tuple[tuple[str, str], ...]) -> str | None:
    """`changed` lets an update be seen."""
    home = tempfile.mkdtemp(prefix="h-")
    proxies = _PROXIES | {name.lower(): value for name, value in _PROXIES.items()} | {"NO_PROXY": "", "no_proxy": ""}
    quiet = {**proxies, "HERMES_HOME": home, "HERMES_DISABLE_LAZY_INSTALLS": "1"}
    try:
        said = ask([binary, "--version"], {**dict(env), **quiet}, VERSION_SECONDS)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    if said.problem is not None:
        raise CannotRun(
            f"The {BINARY} CLI at {binary} does not start: {said.problem}",
            hint="Install it anew: pip install 'hermes-agent[mcp]'",
        )
    return said.version_line if said.exit_code == 0 else None
