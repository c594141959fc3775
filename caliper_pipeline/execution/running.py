"""A command that was started, as the launcher sees it, whatever mechanism holds its process tree."""

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from caliper_pipeline.execution.command import Command


@dataclass(frozen=True, slots=True)
class Ended:
    exit_code: int
    """Negative: ended by that signal."""
    told: bool
    """We asked or killed before it ended."""
    clean: bool
    """Nothing is left of its tree, as far as the mechanism can see."""


@dataclass(frozen=True, slots=True)
class NotStarted:
    reason: str


class Running(Protocol):
    def fileno(self) -> int:
        """Readable when there is news."""
        ...

    def news(self) -> Ended | NotStarted | None: ...

    def ask(self) -> None:
        """SIGTERM to the command's process group."""
        ...

    def kill(self) -> None:
        """SIGKILL to the whole tree."""
        ...

    def release(self) -> bool:
        """The launcher has read enough. True: background processes go on, until `end`."""
        ...

    def end(self, patience_seconds: float) -> None:
        """End what goes on in the background, and wait for that, but not for ever."""
        ...


class Starter(Protocol):
    def start(self, command: Command, stdin: int | None, writers: Sequence[int], readers: Sequence[int]) -> Running:
        """Start it with these descriptors: of `writers`, the first is standard output and the last standard error;
        `readers` are their other ends. All stay the caller's. OSError when nothing can be started at all."""
        ...

    def close(self) -> None: ...


def start_failure(command: Command, phase: str, code: int, what: str) -> str:
    """In one line, why a command could not be started. `phase`: `chdir`, `exec` or `fork`; `what`: the name tried."""
    words = os.strerror(code) if code else what
    if phase == "chdir":
        return f"the working directory {what} cannot be entered: {words}"
    if phase == "fork":
        return f"no process can be started: {words}"
    if code == errno.ENOENT:
        if "/" not in what:
            return f"{what or 'an empty command'}: not found on PATH ({command.env.get('PATH', os.defpath)})"
        if (command.cwd / what).exists():
            return f"{what}: the interpreter that its first line names does not exist"
        return f"{what}: no such file"
    if code == errno.EACCES:
        return f"{what}: not executable"
    if code == errno.ENOEXEC:
        return f"{what}: neither a program of this machine nor a script that names its interpreter"
    if code == errno.E2BIG:
        longest = max(len(item) for item in (*command.argv, *command.env.values()))
        total = sum(len(item) + 1 for item in (*command.argv, *command.env, *command.env.values()))
        return (
            f"{what}: the arguments and environment are too long for this system "
            f"({total:,} characters, the longest item {longest:,})"
        )
    return f"{what}: {words}"


def as_bytes(text: str) -> bytes:
    """Argument, path or variable as the kernel takes it; what the file system's encoding cannot say, as UTF-8."""
    try:
        return os.fsencode(text)
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
