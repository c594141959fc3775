"""Process trees where the kernel has no child subreaper (macOS): process groups, and one look at the process table.

What it does not cover: a tool that started a session of its own and whose parent is already gone when we look; a tree
whose launcher was killed with SIGKILL (nobody is left to end it). `keepers.py` covers both, on Linux.
"""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Sequence

from caliper_pipeline.execution.command import Command
from caliper_pipeline.execution.running import Ended, NotStarted, start_failure


class PlainStarter:
    def start(
        self, command: Command, stdin: int | None, writers: Sequence[int], readers: Sequence[int]
    ) -> "PlainProcess":
        return PlainProcess(command, stdin, writers)

    def close(self) -> None:
        pass


class PlainProcess:
    def __init__(self, command: Command, stdin: int | None, writers: Sequence[int]) -> None:
        self._command = command
        self._failure: str | None = None
        self._told = False
        self._known: set[int] = set()
        """Descendants seen when we looked."""
        self._reader, self._writer = os.pipe()
        try:
            self._process = subprocess.Popen(
                command.argv,
                env=dict(command.env),
                cwd=command.cwd,
                stdin=subprocess.DEVNULL if stdin is None else stdin,
                stdout=writers[0],
                stderr=writers[-1],
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            code = error.errno or 0 if isinstance(error, OSError) else 0
            missing_folder = isinstance(error, OSError) and str(error.filename) == str(command.cwd)
            what = str(command.cwd) if missing_folder else command.argv[0] if code else str(error)
            self._failure = start_failure(command, "chdir" if missing_folder else "exec", code, what)
            os.write(self._writer, b"x")
        else:
            threading.Thread(target=self._wait, name="process-end", daemon=True).start()

    def fileno(self) -> int:
        return self._reader

    def news(self) -> Ended | NotStarted | None:
        if self._failure is not None:
            return NotStarted(self._failure)
        code = self._process.poll()
        if code is None:
            return None
        if not self._command.linger:
            self._kill_tree()
        return Ended(code, told=self._told, clean=not self._command.linger)

    def ask(self) -> None:
        self._told = self._told or self._process.poll() is None
        self._look()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGTERM)

    def kill(self) -> None:
        self._told = self._told or self._process.poll() is None
        self._look()
        self._kill_tree()

    def release(self) -> bool:
        lingers = self._command.linger and self._failure is None
        if not lingers:
            os.close(self._reader)
        return lingers

    def end(self, patience_seconds: float) -> None:
        self._kill_tree()
        os.close(self._reader)

    def _wait(self) -> None:
        self._process.wait()
        with contextlib.suppress(OSError):
            os.write(self._writer, b"x")
        os.close(self._writer)

    def _look(self) -> None:
        """Remember the tree below the command, while its links are still there."""
        try:
            table = subprocess.run(
                ["ps", "-axo", "pid=,ppid="], capture_output=True, stdin=subprocess.DEVNULL, timeout=5, check=False
            ).stdout
        except (OSError, subprocess.TimeoutExpired):
            return
        children: dict[int, list[int]] = {}
        for line in table.splitlines():
            pid, parent = (int(word) for word in line.split()[:2])
            children.setdefault(parent, []).append(pid)
        waiting = [self._process.pid]
        while waiting:
            found = children.get(waiting.pop(), [])
            self._known.update(found)
            waiting.extend(found)

    def _kill_tree(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for pid in self._known:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        self._known.clear()
