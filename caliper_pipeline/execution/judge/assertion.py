"""Runs the script of an `assert:` against what the agent left, and says what that shows.

The script runs in the workdir with the interpreter of this package, from a file that the agent never saw. Exit code 0
is true, any other is false, a crash included. A script that gave no answer (it passed its limit, never started, or is
no Python) is no verdict: that is the check's failing, not the agent's.

The interpreter's flags: no user site (`-s`), nothing importable from the script's or the working folder (`-P`), so
that a `yaml.py` of the agent's shadows nothing, no bytecode beside an author's helpers (`-B`), UTF-8 whatever the
locale, no `site` (`-S`), whose work `check_runner` does in less time. Optimisation would strip every assert, so the
environment may not turn it on.

Not covered: a script that exits 0 before it asserted anything.
"""

import os
import re
import site
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from caliper_pipeline.execution.command import Command, Launcher, ProcessResult, StopToken

LIMIT_SECONDS = 30.0
EVIDENCE_CHARS = 500
_KEEP_BYTES = 16 * 1024
_FLAGS = ("-S", "-s", "-P", "-B", "-X", "utf8")
_RUNNER = str(Path(__file__).with_name("check_runner.py"))
_NEVER_PASSED = ("PYTHONOPTIMIZE", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONINSPECT")
_NOT_PYTHON = re.compile(r"^(?:SyntaxError|IndentationError|TabError): ", re.MULTILINE)


class CheckFolder(Protocol):
    @property
    def workdir(self) -> Path:
        """Where the agent worked."""
        ...

    @property
    def private(self) -> Path:
        """Where no agent looks."""
        ...


@dataclass(frozen=True, slots=True)
class AssertResult:
    passed: bool | None = None
    """`None`: the script gave no verdict."""
    evidence: str | None = None
    """Why it is not true: the end of what a failed script wrote, where the assertion is, or why there is no verdict."""
    cancelled: bool = False


def run_assert(
    launcher: Launcher,
    stop: StopToken,
    *,
    script: str,
    script_path: Path | None,
    folder: CheckFolder,
    env: Mapping[str, str],
    limit_seconds: float = LIMIT_SECONDS,
    group: str = "",
) -> AssertResult:
    """Run the script in the folder's workdir. `script_path`: the file it came from, whose siblings it may import."""
    staged = folder.private / "check.py"
    staged.write_bytes(script.encode("utf-8", "surrogateescape"))
    try:
        arguments = (sys.prefix, os.pathsep.join(_libraries(script_path)), str(staged))
        command = Command(
            argv=(sys.executable, *_FLAGS, _RUNNER, *arguments),
            runner_arguments=arguments,
            env={name: value for name, value in env.items() if name not in _NEVER_PASSED},
            cwd=folder.workdir,
            timeout_seconds=limit_seconds,
            merge_output=True,
            keep_bytes=_KEEP_BYTES,
            keep_tail=True,
            group=group,
        )
        return _verdict(launcher.run(command, stop), staged, limit_seconds)
    finally:
        staged.unlink(missing_ok=True)


def _libraries(script_path: Path | None) -> list[str]:
    """Where a script imports from besides the standard library: beside its own file, and what is installed here."""
    installed = set(site.getsitepackages())
    # What `.pth` files add (editable installs) stands behind the folder that they are in.
    first = next((place for place, folder in enumerate(sys.path) if folder in installed), len(sys.path))
    return ([str(script_path.parent)] if script_path is not None else []) + sys.path[first:]


def _verdict(result: ProcessResult, staged: Path, limit_seconds: float) -> AssertResult:
    output = result.stdout.decode("utf-8", "replace").strip()
    if result.cancelled:
        return AssertResult(cancelled=True)
    if result.timed_out:
        return AssertResult(evidence=f"assert timed out after {limit_seconds:g}s")
    if result.exit_code is None:
        return AssertResult(evidence=f"assert could not be started: {result.start_error or 'unknown reason'}")
    if result.exit_code == 0:
        return AssertResult(passed=True)
    if result.exit_code < 0:
        # What the agent left made the check crash: that is no better than a failed one.
        return AssertResult(passed=False, evidence=_tail(f"assert was ended by signal {-result.exit_code}", output))
    if output.startswith(f'File "{staged}"') and _NOT_PYTHON.search(output):
        # No traceback above it: the script itself did not compile, so it checked nothing.
        return AssertResult(evidence=_tail("assert is not valid Python", output))
    return AssertResult(passed=False, evidence=output[-EVIDENCE_CHARS:] or f"assert exited {result.exit_code}")


def _tail(message: str, output: str) -> str:
    return f"{message}: {output[-(EVIDENCE_CHARS - len(message) - 2) :]}" if output else message
