"""A stand-in `pi` command that only tells a version, and the invocations that the backend is given in tests."""

import json
import os
from pathlib import Path
from typing import Any

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.execution.backends.base import Invocation, JudgeInvocation, Operator

ENGINE = Engine("pi")
NODE = """#!/bin/sh
if [ "$1" = --version ]; then echo v%s; exit; fi
if [ %s = old ]; then echo "SyntaxError: no such export" >&2; exit 1; fi
cat "$(dirname "$1")/version"
"""


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def executable(path: Path, text: str) -> Path:
    write(path, text).chmod(0o755)
    return path


def pi_at(folder: Path, version: str = "1.6.0", *, script: str = '#!/bin/sh\ncat "$(dirname "$0")/version"\n') -> Path:
    write(folder / "version", f"{version}\n")
    return executable(folder / "pi", script)


def node_script_at(folder: Path, version: str = "1.6.0") -> Path:
    """A `pi` that a Node.js has to run."""
    return pi_at(folder, version, script="#!/usr/bin/env node\n")


def operator(home: Path, *path: Path, agent: dict[str, str] | None = None, **own: str) -> Operator:
    """An operator whose environment holds the `own` variables; `agent` crosses into attempts besides."""
    base = {"PATH": os.pathsep.join([*map(str, path), "/usr/bin", "/bin"]), "LANG": "C.UTF-8"}
    agent = agent or {}
    return Operator(
        environment={**base, "HOME": str(home), **agent, **own}, allowed=base, agent_allowed=agent, home=home
    )


def invocation(home: Path, by: Operator, **facts: Any) -> Invocation:
    given: dict[str, Any] = {
        "engine": ENGINE,
        "prompt": "Go.",
        "workdir": home / "w",
        "timeout_seconds": 120.0,
        **facts,
    }
    return Invocation(home=home, operator=by, **given)


def judge_invocation(home: Path, by: Operator, **facts: Any) -> JudgeInvocation:
    given: dict[str, Any] = {"engine": ENGINE, "prompt": "Judge.", "workdir": home / "w", "timeout_seconds": 120.0}
    return JudgeInvocation(home=home, operator=by, **{**given, **facts})


def tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
