"""A command of the operator's that is asked something short before or between attempts: a version, a key.

It gets its own process group, nothing to read, a time limit, and nothing of it stays. Its answer is complete when it
ends: what it left in the background (a look for updates, say) may hold its pipes open for ever.
"""

import contextlib
import errno
import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

LONGEST_LINE = 200
KEPT_BYTES = 1024 * 1024
"""Of each output; the rest is read and thrown away."""
_LOOK_SECONDS = 0.05
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")
_NUMBER = re.compile(r"\d+\.\d+")


@dataclass(frozen=True, slots=True)
class Said:
    exit_code: int | None = None
    """`None`: it could not be started (`problem` says why), or did not end in time."""
    out: str = ""
    err: str = ""
    problem: str | None = None
    timed_out: bool = False

    @property
    def version_line(self) -> str | None:
        """The first line that holds a version, else the first; on standard output, else on standard error. `None`:
        there is none."""
        lines = [line for line in _CONTROL.sub("", self.out.strip() or self.err.strip()).splitlines() if line.strip()]
        told = next((line for line in lines if _NUMBER.search(line)), lines[0] if lines else None)
        return told.strip()[:LONGEST_LINE] if told is not None else None


def ask(argv: Sequence[str], env: Mapping[str, str], seconds: float, *, cwd: Path | None = None) -> Said:
    """What the command says until it ends, or within that time."""
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
        return Said(problem=_not_started(argv[0], error))
    with process:
        try:
            out, err = _outputs(process, time.monotonic() + seconds)
            code = process.poll()
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
    return Said(code, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"), timed_out=code is None)


def _outputs(process: "subprocess.Popen[bytes]", deadline: float) -> tuple[bytes, bytes]:
    """Both outputs, until the process has ended or the time is over."""
    assert process.stdout is not None and process.stderr is not None
    kept = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    with selectors.DefaultSelector() as selector:
        for fd in kept:
            os.set_blocking(fd, False)
            selector.register(fd, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0 and process.poll() is None:
            if selector.get_map():
                _read(selector, kept, min(left, _LOOK_SECONDS))
            else:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(left)
        # What it wrote before its end is in the pipes; what others write into them may never end.
        while time.monotonic() < deadline and selector.get_map() and _read(selector, kept, 0):
            if any(len(data) >= KEPT_BYTES for data in kept.values()):
                break
    out, err = kept.values()
    return bytes(out), bytes(err)


def _read(selector: selectors.BaseSelector, kept: Mapping[int, bytearray], seconds: float) -> bool:
    """Read what is there. False: nothing was."""
    ready = selector.select(seconds)
    for key, _ in ready:
        data = os.read(key.fd, 65536)
        if not data:
            selector.unregister(key.fd)
        kept[key.fd].extend(data[: KEPT_BYTES - len(kept[key.fd])])
    return bool(ready)


def _not_started(command: str, error: OSError) -> str:
    if error.errno == errno.ENOENT and os.path.lexists(command):
        return "the interpreter that its first line names does not exist"
    if error.errno == errno.ENOEXEC:
        return "it is neither a program of this machine nor a script that names its interpreter"
    return error.strerror or str(error)
