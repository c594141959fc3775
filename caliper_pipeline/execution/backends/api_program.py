"""How the process of an API agent is started: a bare interpreter that gets its program and its key on standard input.

What a tool can see of that process, and of itself, does not tell what it belongs to: the arguments name an interpreter
and a line of code, the environment is the tools' own, and no file of the program lies in the home. The API key is in
neither; the process empties the file it came in before anything else (`api_agent/start.py`).
"""

import functools
import marshal
import os
import secrets
import site
import sys
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from caliper_pipeline.execution.backends.base import Invocation, JudgeInvocation
from caliper_pipeline.execution.command import Command
from caliper_pipeline.execution.environment import agent_environment

AGENT_FOLDER = ".agent"
_PROGRAM = Path(__file__).parent / "api_agent"
_FLAGS = ("-I", "-S", "-X", "utf8")
_FIRST_LINE = "import marshal,sys;parcel=marshal.load(sys.stdin.buffer);exec(marshal.loads(parcel['code']['start']))"
_OUR_NAME = "caliper"


def program_command(
    invocation: Invocation | JudgeInvocation, job: Mapping[str, Any], *, keys: tuple[str, ...]
) -> Command:
    """The command for a job. `keys`: the vendor's variables that hold keys; the job hands them over, the environment
    does not."""
    extra_path = invocation.extra_path if isinstance(invocation, Invocation) else ()
    parcel = {"code": _code(), "libraries": _libraries(), "job": {**job, "session": secrets.token_hex(8)}}
    return Command(
        argv=(_interpreter(invocation.home), *_FLAGS, "-c", _FIRST_LINE),
        env=_environment(invocation, extra_path, keys),
        cwd=invocation.workdir,
        timeout_seconds=invocation.timeout_seconds,
        stdin=marshal.dumps(parcel),
        group=invocation.group,
    )


@functools.cache
def _code() -> dict[str, bytes]:
    """Module → its marshalled code. File names in tracebacks are those of the package as the process knows it."""
    return {
        path.stem: marshal.dumps(
            compile(path.read_bytes(), f"agent/{path.name}", "exec", dont_inherit=True),
        )
        for path in sorted(_PROGRAM.glob("*.py"))
        if path.stem != "__init__"
    }


def _libraries() -> list[str]:
    """Where the SDKs are. What `.pth` files add stands behind the folder that they are in."""
    installed = {*site.getsitepackages(), site.getusersitepackages()}
    first = next((place for place, folder in enumerate(sys.path) if folder in installed), len(sys.path))
    return sys.path[first:]


def _interpreter(home: Path) -> str:
    """The interpreter below a virtual environment, whose path may be named after us; else a link with another name."""
    real = os.path.realpath(sys.executable)
    if _OUR_NAME not in real.lower():
        return real
    link = home / AGENT_FOLDER / "bin" / "python3"
    link.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(real)
    return str(link)


def _environment(
    invocation: Invocation | JudgeInvocation, extra_path: tuple[str, ...], keys: tuple[str, ...]
) -> dict[str, str]:
    """That of the process and of its tools: as an agent command's, without the logins that such commands need."""
    from caliper_pipeline.domain.project import AGENT

    operator = invocation.operator
    logins = {
        name
        for name in operator.agent_allowed
        if name not in operator.allowed and any(fnmatchcase(name, pattern) for pattern in AGENT)
    }
    env = agent_environment(operator, invocation.home, extra_path=extra_path)
    return {name: value for name, value in env.items() if name not in logins and name not in keys}
