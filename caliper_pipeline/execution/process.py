"""Start commands, wait for them without using the processor, read what they write, and end their whole trees.

The calling thread sleeps in one `poll` over both outputs, the news of the command's end and the stop token, until the
next deadline; nothing is looked at by the clock. How trees are held together is the business of `keepers.py` (Linux)
and `plain_process.py` (elsewhere).

The end of a command, in all cases:

    it exits            what is left of its tree is killed (not with `linger`), what it wrote is read
    the time is over    SIGTERM to its process group, 0.5 s later SIGKILL to the tree: what it wrote is kept
    enough is written   the same, where the command's `watch` says so
    the run is stopped  the same with 2 s, so that an agent can close its session

Measured on Linux: `true` with its two pipes costs 1.5 ms of processor time, all processes together (0.6 ms with
`subprocess.run`, which leaves its tree behind); 200 waiting commands cost none, and 0.7 MB of memory each.
"""

import os
import select
import sys
import tempfile
import threading
import time

from caliper_pipeline.execution import keepers
from caliper_pipeline.execution.command import Command, ProcessResult, StopToken
from caliper_pipeline.execution.plain_process import PlainStarter
from caliper_pipeline.execution.running import Ended, NotStarted, Running, Starter

DRAIN_SECONDS = 1.0
"""How long is read on after the end, when something out of our reach still holds an output open."""
LOST_SECONDS = 5.0
"""How long after SIGKILL we wait for the end to be told. Longer only where the system itself hangs."""
WATCH_SECONDS = 0.2
"""Between two looks of whoever watches the output."""
_CHUNK = 65536


class ProcessLauncher:
    """One for the life of a run; `run` is called by many threads at once."""

    def __init__(
        self,
        *,
        stop_grace_seconds: float = 2.0,
        timeout_grace_seconds: float = 0.5,
        starter: Starter | None = None,
    ) -> None:
        self._stop_grace = stop_grace_seconds
        self._timeout_grace = timeout_grace_seconds
        self._starter = starter or (keepers.KeeperPool() if keepers.available() else PlainStarter())
        self._lock = threading.Lock()
        self._lingering: dict[str, list[Running]] = {}

    def __enter__(self) -> "ProcessLauncher":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def run(self, command: Command, stop: StopToken) -> ProcessResult:
        """Start, wait, collect. Returns early, with everything ended, when `stop` is set."""
        if stop.is_set:
            return ProcessResult(None, cancelled=True)
        began = time.monotonic()
        running: Running | None = None
        try:
            with _Descriptors() as fds:
                try:
                    stdin = None if command.stdin is None else fds.staged(command.stdin)
                    pairs = [fds.pipe() for _ in range(1 if command.merge_output else 2)]
                    readers = [reader for reader, _ in pairs]
                    writers = [writer for _, writer in pairs]
                    running = self._starter.start(command, stdin, writers, readers)
                except OSError as error:
                    return ProcessResult(None, start_error=error.strerror or str(error))
                for fd in writers:
                    fds.close(fd)
                wait = _Wait(command, running, [_Output(fd, command) for fd in readers], stop, began)
                result = wait.finish(self._stop_grace, self._timeout_grace)
        except BaseException:  # Ctrl-C in this thread, say: nothing may stay behind
            if running is not None:
                running.kill()
                running.end(LOST_SECONDS)
            raise
        if running.release():
            with self._lock:
                self._lingering.setdefault(command.group, []).append(running)
        return result

    def end_group(self, group: str) -> None:
        """End every process that the attempt of this name left behind."""
        with self._lock:
            left = self._lingering.pop(group, [])
        for running in left:
            running.end(LOST_SECONDS)

    def close(self) -> None:
        """End what still lingers. No `run` may be going on."""
        for group in list(self._lingering):
            self.end_group(group)
        self._starter.close()


class _Wait:
    """One command from its start to its result."""

    def __init__(
        self, command: Command, running: Running, outputs: "list[_Output]", stop: StopToken, began: float
    ) -> None:
        self.running = running
        self.all = outputs
        self.outputs = {output.fd: output for output in outputs}
        self.stop_fd = stop.fileno()
        self.linger = command.linger
        self.watch = command.watch
        self.next_watch = began
        self.unwatched = False
        """Something was written that the watch has not seen yet."""
        self.reason: str | None = None
        self.began = began
        self.next_step = began + command.timeout_seconds
        self.poll = select.poll()
        for fd in (*self.outputs, self.stop_fd, running.fileno()):
            self.poll.register(fd, select.POLLIN)

    def finish(self, stop_grace: float, timeout_grace: float) -> ProcessResult:
        cause = ""
        killed = False
        news: Ended | NotStarted | None = None
        while news is None:
            now = time.monotonic()
            if not cause and self.unwatched and now >= self.next_watch and self.is_enough():
                cause = "watch"
                killed = stop_grace <= 0
                self.step(kill=killed, seconds=stop_grace)
                continue
            left = self.next_step - now
            if left <= 0:
                if killed:
                    news = NotStarted("it was killed, but the system did not tell of its end")
                    break
                killed = cause != "" or timeout_grace <= 0
                cause = cause or "timeout"
                self.step(kill=killed, seconds=timeout_grace)
                continue
            if self.unwatched and not cause:
                left = min(left, self.next_watch - now)
            for fd, _ in self.poll.poll(min(left, 86400.0) * 1000 + 1):
                if fd in self.outputs:
                    self.read(fd)
                    self.unwatched = self.watch is not None
                elif fd == self.stop_fd:
                    self.poll.unregister(fd)
                    if not cause:
                        cause = "stop"
                        killed = stop_grace <= 0
                        self.step(kill=killed, seconds=stop_grace)
                else:
                    news = self.running.news()
        wall = time.monotonic() - self.began
        if cause and self.linger:
            self.running.kill()  # it did not get as far as leaving something behind on purpose
        self.drain()
        stdout, *rest = self.all
        told = isinstance(news, NotStarted) or news.told
        return ProcessResult(
            exit_code=None if isinstance(news, NotStarted) else news.exit_code,
            stdout=stdout.kept(),
            stderr=rest[0].kept() if rest else b"",
            timed_out=cause == "timeout" and told,
            cancelled=cause == "stop" and told,
            ended_because=self.reason if told else None,
            cut=any(output.cut for output in self.all),
            wall_seconds=wall,
            start_error=news.reason if isinstance(news, NotStarted) else None,
        )

    def is_enough(self) -> bool:
        """Whether whoever watches the output wants the command ended."""
        assert self.watch is not None
        self.reason = self.watch(self.all[0].kept())
        self.unwatched = False
        self.next_watch = time.monotonic() + WATCH_SECONDS
        return self.reason is not None

    def step(self, *, kill: bool, seconds: float) -> None:
        """Ask or kill, and set the time of the next step."""
        if kill:
            self.running.kill()
        else:
            self.running.ask()
        self.next_step = time.monotonic() + (LOST_SECONDS if kill else seconds)

    def read(self, fd: int) -> None:
        if not self.outputs[fd].read():
            self.poll.unregister(fd)
            del self.outputs[fd]

    def drain(self) -> None:
        """Read what is still in the pipes; wait for their end only where everybody who could write is gone."""
        self.poll = select.poll()
        for fd in self.outputs:
            self.poll.register(fd, select.POLLIN)
        limit = time.monotonic() + DRAIN_SECONDS
        while self.outputs and (left := limit - time.monotonic()) > 0:
            ready = self.poll.poll(0 if self.linger else left * 1000)
            if not ready:
                break
            for fd, _ in ready:
                self.read(fd)


class _Output:
    """One output of a command: its first or last bytes, within a limit."""

    def __init__(self, fd: int, command: Command) -> None:
        self.fd = fd
        self.cut = False
        self._limit = command.keep_bytes
        self._tail = command.keep_tail
        self._kept = bytearray()

    def read(self) -> bool:
        """Read once. False at the end."""
        try:
            data = os.read(self.fd, _CHUNK)
        except BlockingIOError:
            return True
        if not data:
            return False
        if self._tail:
            self._kept += data
            if len(self._kept) > 2 * self._limit:
                self._trim()
        else:
            room = self._limit - len(self._kept)
            self.cut = self.cut or len(data) > room
            self._kept += data[:room]
        return True

    def kept(self) -> bytes:
        self._trim()
        return bytes(self._kept)

    def _trim(self) -> None:
        if len(self._kept) > self._limit:
            self.cut = True
            del self._kept[: len(self._kept) - self._limit]


class _Descriptors:
    """File descriptors that are closed at the end, each once."""

    def __init__(self) -> None:
        self._open: set[int] = set()

    def __enter__(self) -> "_Descriptors":
        return self

    def __exit__(self, *exc: object) -> None:
        for fd in list(self._open):
            self.close(fd)

    def close(self, fd: int) -> None:
        self._open.discard(fd)
        os.close(fd)

    def pipe(self) -> tuple[int, int]:
        """A reading end, which never blocks, and a writing end."""
        reader, writer = os.pipe()
        self._open |= {reader, writer}
        os.set_blocking(reader, False)
        return reader, writer

    def staged(self, data: bytes) -> int:
        """A file without a name that holds the data, to be read from its start."""
        if sys.platform == "linux":
            fd = os.memfd_create("input", os.MFD_CLOEXEC)
        else:
            with tempfile.TemporaryFile() as file:
                fd = os.dup(file.fileno())
        self._open.add(fd)
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.lseek(fd, 0, os.SEEK_SET)
        return fd
