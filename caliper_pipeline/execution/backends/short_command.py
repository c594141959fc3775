"""A command of the operator's that is asked something short before or between attempts: a version, a key.

It gets its own process group, nothing to read, a time limit, and nothing of it stays: what it leaves in the background
may hold its pipes open for ever.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

LONGEST_LINE = 200


@dataclass(frozen=True, slots=True)
class Said:
    exit_code: int | None = None
    """`None`: it could not be started (`problem` says why), or gave no answer in time."""
    out: str = ""
    err: str = ""
    problem: str | None = None
    timed_out: bool = False

    @property
    def version_line(self) -> str | None:
        """The first line on standard output, else on standard error. `None`: there is none."""
        lines = (self.out.strip() or self.err.strip()).splitlines()
        return lines[0][:LONGEST_LINE] if lines else None


def ask(argv: Sequence[str], env: Mapping[str, str], seconds: float, *, cwd: Path | None = None) -> Said:
    """What the command says within that time."""
    try:
        process = subprocess.Popen(
            list(argv),
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        return Said(problem=str(error))
    with process:
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            return Said(timed_out=True)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
    return Said(process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))
