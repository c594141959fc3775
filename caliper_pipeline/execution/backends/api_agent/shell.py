"""One shell command for a tool: in a session of its own, with nothing to read, within a time and an amount of output.

What a command leaves in the background goes on, as in a terminal; its output is read on and thrown away, so that it
does not die of a closed pipe. At the end of the attempt everything ends.
"""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HEAD_CHARS, TAIL_CHARS = 20_000, 10_000
"""How much of an output is shown: most errors are at its end."""
_BYTES_A_CHAR = 4
_SHELL = "/bin/bash" if Path("/bin/bash").exists() else "/bin/sh"
_LAST_WORDS_SECONDS = 0.3
"""For what a command wrote just before it ended, where something in the background still holds its output open."""


@dataclass(frozen=True, slots=True)
class Ran:
    output: str
    exit_code: int | None
    """Negative: ended by that signal. `None`: it passed its limit and was ended."""


def run(command: str, *, cwd: str, env: Mapping[str, str], seconds: float) -> Ran:
    """Raises `OSError` or `ValueError` for a command that cannot be started."""
    process = subprocess.Popen(
        [_SHELL, "-c", command],
        cwd=cwd,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    output = _Output(process.stdout.fileno())
    ended = threading.Event()

    def wait() -> None:
        process.wait()
        ended.set()

    def read() -> None:
        with process.stdout:  # type: ignore[union-attr]
            output.read()

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    threading.Thread(target=wait, daemon=True).start()
    try:
        in_time = ended.wait(seconds)
    except BaseException:
        _kill(process.pid)
        raise
    if not in_time:
        _kill(process.pid)
        ended.wait()
    reading.join(_LAST_WORDS_SECONDS)
    return Ran(output.text(), process.returncode if in_time else None)


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


class _Output:
    """The beginning and the end of what is written."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self._head, self._tail = bytearray(), bytearray()
        self._closed = False
        self._lost = 0

    def read(self) -> None:
        while data := os.read(self._fd, 65536):
            with self._lock:
                if not self._closed:
                    self._keep(data)

    def _keep(self, data: bytes) -> None:
        room = HEAD_CHARS * _BYTES_A_CHAR - len(self._head)
        self._head += data[:room]
        self._tail += data[max(0, room) :]
        too_much = len(self._tail) - TAIL_CHARS * _BYTES_A_CHAR
        if too_much > 65536:
            self._lost += too_much
            del self._tail[:too_much]

    def text(self) -> str:
        """What was kept; from now on nothing is."""
        with self._lock:
            self._closed = True
            if self._lost:
                head, tail = self._head.decode("utf-8", "replace"), self._tail.decode("utf-8", "replace")
                return _joined(head[:HEAD_CHARS], tail[-TAIL_CHARS:], "much")
            whole = (self._head + self._tail).decode("utf-8", "replace")
        if len(whole) <= HEAD_CHARS + TAIL_CHARS:
            return whole
        left_out = f"{len(whole) - HEAD_CHARS - TAIL_CHARS:,} characters"
        return _joined(whole[:HEAD_CHARS], whole[-TAIL_CHARS:], left_out)


def _joined(head: str, tail: str, left_out: str) -> str:
    return f"{head}\n[… {left_out} left out …]\n{tail}"
