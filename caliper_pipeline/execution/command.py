"""What is started and what came of it: plain values between the backends, the steps and the process launcher."""

import os
import select
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Command:
    """One process to start, with its whole process tree ended when it ends."""

    argv: tuple[str, ...]
    """The first is found on the command's own `PATH`."""
    env: Mapping[str, str]
    """The whole environment; nothing is inherited."""
    cwd: Path
    timeout_seconds: float
    stdin: bytes | None = None
    """`None`: nothing to read, as from /dev/null."""
    merge_output: bool = False
    """Standard error goes into standard output, in the order it was written."""
    keep_bytes: int = 64 * 1024 * 1024
    """How much of each output stream is kept; beyond it the rest is read and thrown away."""
    keep_tail: bool = False
    """Keep the last `keep_bytes` instead of the first."""
    linger: bool = False
    """Processes left in the background may go on after the command ends (hooks start servers); they end with
    the attempt (`Launcher.end_group`)."""
    watch: Callable[[bytes], str | None] | None = None
    """Shown the standard output so far, now and then as it grows; when it gives a reason, the command is ended."""
    group: str = ""
    """Names the attempt that the processes belong to."""
    runner_arguments: tuple[str, ...] = ()
    """The arguments of `check_runner` in `argv`: a launcher that can may run it in a process it forks, instead of
    starting an interpreter."""


@dataclass(frozen=True, slots=True)
class ProcessResult:
    exit_code: int | None
    """Negative: ended by that signal. `None`: it never started."""
    stdout: bytes = b""
    stderr: bytes = b""
    timed_out: bool = False
    cancelled: bool = False
    """We ended it because the run was stopped: not its own doing."""
    ended_because: str | None = None
    """The reason that `Command.watch` gave to end it."""
    cut: bool = False
    """More was written than is kept."""
    wall_seconds: float = 0.0
    start_error: str | None = None
    """Why it could not be started, in one line."""

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and not self.timed_out and not self.cancelled and self.ended_because is None


class Launcher(Protocol):
    """Starts processes and ends whole process trees; one for the life of a run, used by many threads."""

    def run(self, command: Command, stop: "StopToken") -> ProcessResult:
        """Start, wait, collect. Returns early, with everything ended, when `stop` is set."""
        ...

    def end_group(self, group: str) -> None:
        """End every process that the attempt of this name left behind."""
        ...

    def close(self) -> None: ...


class StopToken:
    """A flag that many threads can wait for in one `poll` together with their pipes, without polling by time."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_inheritable(self._reader, False)
        os.set_inheritable(self._writer, False)
        self._set = False

    @property
    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        """May be called from a signal handler, and more than once."""
        if not self._set:
            self._set = True
            os.write(self._writer, b"x")

    def fileno(self) -> int:
        """Readable, for good, once the token is set."""
        return self._reader

    def wait(self, seconds: float) -> bool:
        """Wait that long. False: set meanwhile."""
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if poll.poll(left * 1000):
                return False
        return not self._set

    def close(self) -> None:
        os.close(self._reader)
        os.close(self._writer)
