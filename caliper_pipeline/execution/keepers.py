"""Our side of `spawn_server.py`: its process, its keepers, and one command in the hands of a keeper. Linux only."""

import contextlib
import importlib.util
import marshal
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from caliper_pipeline.execution.command import Command
from caliper_pipeline.execution.running import Ended, NotStarted, as_bytes, start_failure

_PROGRAM = Path(__file__).with_name("spawn_server.py")
_RUNNER = Path(__file__).parent / "judge" / "check_runner.py"
_TRIES = 3
_ACCEPT_SECONDS = 30.0
"""A keeper takes a job within a millisecond, unless the machine itself stands still."""
_LOST = "the process that kept this command ended unexpectedly, and the command with it"


def available() -> bool:
    """Whether this system has child subreapers, and this Python the means to ask for them."""
    return sys.platform == "linux" and importlib.util.find_spec("_ctypes") is not None and Path("/proc/self").exists()


class KeeperPool:
    """The spawn server and the keepers that are free. Used by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[socket.socket] = []
        self._closed = False
        self._null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self._server, self._requests = self._start_server()  # it gets ready while the caller does other things

    def start(self, command: Command, stdin: int | None, writers: Sequence[int], readers: Sequence[int]) -> "Kept":
        job = marshal.dumps(
            {
                "argv": [as_bytes(item) for item in command.argv],
                "env": {as_bytes(name): as_bytes(value) for name, value in command.env.items()},
                "cwd": as_bytes(str(command.cwd)),
                "linger": command.linger,
                "runner": list(command.runner_arguments),
            }
        )
        fds = [self._null if stdin is None else stdin, writers[0], writers[-1], *(readers if command.linger else ())]
        for _ in range(_TRIES):
            control = self._take()
            try:
                if _accepted(control, job, fds):
                    return Kept(self, control, command)
            except BaseException:
                control.close()
                raise
            control.close()  # that keeper, or the server that was to make it, was killed: nothing was started
        raise OSError("no process can be started: the limit of processes or of memory is reached")

    def give_back(self, control: socket.socket) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(control)
                return
        control.close()

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for control in self._idle:
                control.close()
            self._requests.close()
            os.close(self._null)
        try:
            self._server.wait(5)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()

    def _take(self) -> socket.socket:
        """The control socket of a keeper with nothing to do."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            for last in (False, True):
                with self._lock:
                    try:
                        socket.send_fds(self._requests, [b"k"], [theirs.fileno()], socket.MSG_NOSIGNAL)
                        break
                    except OSError:
                        if last or self._closed:
                            ours.close()
                            raise
                        self._requests.close()
                        self._server.kill()
                        self._server.wait()
                        self._server, self._requests = self._start_server()
        return ours

    @staticmethod
    def _start_server() -> tuple["subprocess.Popen[bytes]", socket.socket]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        libraries = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
        with theirs:
            server = subprocess.Popen(
                [sys.executable, "-I", "-S", "-X", "utf8", str(_PROGRAM), str(theirs.fileno()), str(_RUNNER)],
                env=libraries,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        return server, ours


def _accepted(control: socket.socket, job: bytes, fds: Sequence[int]) -> bool:
    """Hand a job over. False: whoever was to keep it is gone and did not begin."""
    try:
        socket.send_fds(control, [b"J" + len(job).to_bytes(4, "little")], fds, socket.MSG_NOSIGNAL)
        control.sendall(job, socket.MSG_NOSIGNAL)
        poller = select.poll()
        poller.register(control, select.POLLIN)
        return bool(poller.poll(_ACCEPT_SECONDS * 1000)) and control.recv(1) == b"J"
    except OSError:
        return False


class Kept:
    """One command in the hands of a keeper."""

    def __init__(self, pool: KeeperPool, control: socket.socket, command: Command) -> None:
        self._pool = pool
        self._control = control
        self._command = command
        self._received = b""
        self._free = self._over = False
        """The keeper has nothing left to keep; its tree is gone."""

    def fileno(self) -> int:
        return self._control.fileno()

    def news(self) -> Ended | NotStarted | None:
        if not self._receive():
            return NotStarted(_LOST)
        kind, size = self._received[:1], len(self._received)
        if kind == b"E" and size >= 6:
            flags, code = self._received[1], int.from_bytes(self._received[2:6], "little", signed=True)
            self._received = self._received[6:]
            self._free = bool(flags & 2)
            return Ended(code, told=bool(flags & 1), clean=self._free)
        if kind == b"F" and size >= 3 and size >= (end := 3 + int.from_bytes(self._received[1:3], "little")):
            phase, code, what = marshal.loads(self._received[3:end])
            self._received = b""
            self._free = True
            return NotStarted(start_failure(self._command, phase, code, os.fsdecode(what)))
        return None

    def ask(self) -> None:
        self._send(b"T")

    def kill(self) -> None:
        self._send(b"K")

    def release(self) -> bool:
        if self._free:
            self._pool.give_back(self._control)
        elif self._command.linger and not self._over:
            self._send(b"D")
            return True
        else:
            self._control.close()  # the keeper goes on killing, and ends when nothing is left
        return False

    def end(self, patience_seconds: float) -> None:
        self._send(b"K")
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        if not self._received and poller.poll(patience_seconds * 1000):
            self._receive()
        if self._received.startswith(b"C"):
            self._pool.give_back(self._control)
        else:
            self._control.close()

    def _send(self, wish: bytes) -> None:
        with contextlib.suppress(OSError):  # it is gone: `news` tells
            self._control.sendall(wish, socket.MSG_NOSIGNAL)

    def _receive(self) -> bool:
        """False: the keeper is gone."""
        try:
            data = self._control.recv(65536, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        self._received += data
        self._over = not data
        return bool(data)
