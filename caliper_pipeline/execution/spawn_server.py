"""The program that starts commands and ends their process trees, on Linux. Run by path, never imported as part of us.

    launcher (our process, many threads)
      └─ server    one small single-threaded process a launcher; forks keepers, does nothing else
           └─ keeper    one a running command, used again when its tree is gone; a *child subreaper*
                └─ command    in a session of its own
                     └─ whatever it starts; orphans, also those that called setsid or forked twice, fall to the keeper

A keeper finds what is left of a command by asking the kernel for its own children, so nothing has to be watched while
the command runs: all processes here sleep in `poll`. It kills children only while it has not reaped them, so a pid
that was given out anew is never hit. It goes on until the kernel says there is no child left.

Everything ends with the launcher: keepers see the end of their control socket, or of the launcher's pidfd where a
forked copy keeps the socket open. A command gets SIGKILL from the kernel when its keeper dies, and what a dead
keeper leaves falls to the server, which ends it. Signals of the terminal do not reach us (own session) and polite
ones are ignored: the launcher decides how commands end.

Not covered: processes that a service outside the tree starts on a command's behalf (docker, systemd, cron, at), those
of another user (sudo), and a chain that forks and exits faster than it can be killed.

It starts in about 10 ms because it imports only C modules and ctypes; `socket`, `signal` and `struct` would add half.

Control messages, launcher to keeper: `J` + 4 bytes length + marshalled job, with the file descriptors; `T` ask the
command's process group to end (SIGTERM); `K` kill everything; `D` read the command's output and throw it away.
Keeper to launcher: `J` the job has come; `E` + flags + 4 bytes exit code; `F` + 2 bytes length + marshalled reason: not
started; `C` the tree of a lingering command is gone.
"""

# ruff: noqa: SIM105, PTH208 - contextlib and pathlib would cost more than everything else here
from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import ctypes
import gc
import marshal
import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

SUBREAPER, DEATH_SIGNAL = 36, 1  # PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG
TOLD, CLEAN = 1, 2  # flags of `E`: ended because it was told to; nothing is left of its tree
PATIENCE_SECONDS = 2.0  # after which the end is told although something of the tree cannot be ended
MAX_FDS = 5
_CLOEXEC = _socket.MSG_CMSG_CLOEXEC
_POLITE = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGTSTP", "SIGUSR1", "SIGUSR2", "SIGPIPE")


class Watch:
    """Sleeps until a descriptor can be read or a child ended."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        _signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        _signal.signal(_signal.SIGCHLD, lambda number, frame: None)
        self._poll = select.poll()
        self.add(self._reader)

    def add(self, fd: int) -> None:
        self._poll.register(fd, select.POLLIN)

    def drop(self, fd: int) -> None:
        try:
            self._poll.unregister(fd)
        except KeyError:
            pass

    def wait(self, seconds: float | None = None) -> list[int]:
        """The descriptors that can be read or whose other side is gone; empty after a child's end or the time."""
        ready = [fd for fd, _ in self._poll.poll(None if seconds is None else seconds * 1000)]
        if self._reader in ready:
            ready.remove(self._reader)
            try:
                while os.read(self._reader, 512):
                    pass
            except BlockingIOError:
                pass
        return ready

    def close(self) -> None:
        _signal.set_wakeup_fd(-1)
        os.close(self._reader)
        os.close(self._writer)


def own_children() -> list[int]:
    """Direct children of this process, those not reaped yet included."""
    me = os.getpid()
    try:
        return [int(word) for word in _read_file(f"/proc/self/task/{me}/children").split()]
    except OSError:  # a kernel without that file
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    stat = _read_file(f"/proc/{name}/stat")
                except OSError:
                    continue
                if int(stat[stat.rindex(b")") + 2 :].split(None, 2)[1]) == me:
                    found.append(int(name))
        return found


def _read_file(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(fd, 65536):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(fd)


def kill_children(but: Iterable[int] = ()) -> None:
    for pid in own_children():
        if pid not in but:
            try:
                os.kill(pid, _signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass


class Keeper:
    """One command after the other, each with its whole tree."""

    def __init__(self, control: _socket.socket, launcher: int | None, prctl: Callable[..., int]) -> None:
        self.control = control
        self.launcher = launcher
        self.prctl = prctl
        self.watch = Watch()
        self.watch.add(control.fileno())
        if launcher is not None:
            self.watch.add(launcher)
        self.alone = False
        """The launcher is gone."""
        prctl(SUBREAPER, 1, 0, 0, 0)

    def serve(self) -> None:
        while not self.alone and (job := self.next_job()) is not None:
            Tree(self, *job).keep()

    def next_job(self) -> tuple[dict[str, Any], list[int]] | None:
        while True:
            ready = self.watch.wait()
            if self.launcher in ready:
                return None
            if self.control.fileno() not in ready:
                continue
            head, ancillary, _, _ = self.control.recvmsg(1, _socket.CMSG_SPACE(4 * MAX_FDS), _CLOEXEC)
            if not head:
                return None
            if head == b"J":
                size = int.from_bytes(self.receive(4), "little")
                job = marshal.loads(self.receive(size))
                self.tell(b"J")
                return job, _descriptors(ancillary)
            # Else a wish about the command before, sent while its end was being told.

    def receive(self, size: int) -> bytes:
        parts = []
        while size:
            part = self.control.recv(min(size, 1 << 20))
            if not part:
                os._exit(0)  # the launcher ended while it sent a job: nothing was started
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def tell(self, message: bytes) -> None:
        try:
            self.control.sendall(message, _socket.MSG_NOSIGNAL)
        except OSError:
            pass  # the launcher is gone, which the next wait notices


class Tree:
    """One command and all that came from it, from start to the last reaped child."""

    def __init__(self, keeper: Keeper, job: dict[str, Any], fds: list[int]) -> None:
        self.keeper = keeper
        self.linger: bool = job["linger"]
        self.outputs = fds[3:]
        self.told = self.ending = self.reported = False
        self.status = -_signal.SIGKILL
        self.command, self.failure = _start(job, fds, keeper.prctl)
        """The command's pid until it is reaped, then 0; and why it did not start."""
        for fd in fds[:3]:
            os.close(fd)
        self.ending = bool(self.failure)

    def keep(self) -> None:
        watch = self.keeper.watch
        deadline = 0.0
        limit: float | None = None
        while self.reap():
            if self.ending:
                kill_children()
                deadline = deadline or time.monotonic() + PATIENCE_SECONDS
                late = time.monotonic() > deadline
                # A child that ends wakes us; the limit is for one not seen just now, or that cannot be killed.
                limit = 1.0 if late else 0.05
                if late and not self.reported and not self.failure:
                    self.report(clean=False)
            elif self.command == 0 and not self.reported:
                self.report(clean=False)
            for fd in watch.wait(limit):
                self.react(fd)
        for fd in self.outputs:
            watch.drop(fd)
            os.close(fd)
        # From here on the keeper is free: the launcher gives it the next job as soon as it hears of that.
        if self.failure:
            self.keeper.tell(b"F" + len(self.failure).to_bytes(2, "little") + self.failure)
        elif not self.reported:
            self.report(clean=True)
        else:
            self.keeper.tell(b"C")

    def reap(self) -> bool:
        """Whether any process of the tree is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.command:
                self.command = 0
                self.status = os.waitstatus_to_exitcode(status)
                self.ending = self.ending or not self.linger

    def react(self, fd: int) -> None:
        watch = self.keeper.watch
        if fd in self.outputs:
            if not _discard(fd):
                watch.drop(fd)
            return
        wish = b"" if fd == self.keeper.launcher else self.keeper.control.recv(1)
        if not wish:
            self.keeper.alone = self.ending = True
            watch.drop(fd)  # it would be ready for ever
        elif wish in b"TK":
            self.reap()  # what ended by itself just now was not ended by us
            self.told = self.told or self.command != 0
            if wish == b"K":
                self.ending = True
            elif self.command:
                _ask_group(self.command)
        elif wish == b"D":
            for output in self.outputs:
                os.set_blocking(output, False)
                watch.add(output)

    def report(self, *, clean: bool) -> None:
        self.reported = True
        flags = (TOLD if self.told else 0) | (CLEAN if clean else 0)
        self.keeper.tell(b"E" + bytes((flags,)) + self.status.to_bytes(4, "little", signed=True))


def _start(job: dict[str, Any], fds: list[int], prctl: Callable[..., int]) -> tuple[int, bytes]:
    """The command's pid, and why it did not start: marshalled (phase, errno, what), or nothing."""
    reader, writer = os.pipe()
    try:
        pid = os.fork()
    except OSError as error:
        os.close(reader)
        os.close(writer)
        return 0, marshal.dumps(("fork", error.errno, b""))
    if pid == 0:
        _become(job, fds, writer, prctl)
    os.close(writer)
    failure = b""
    while part := os.read(reader, 4096):
        failure += part
    os.close(reader)
    return pid, failure


def _become(job: dict[str, Any], fds: list[int], writer: int, prctl: Callable[..., int]) -> None:
    """In the forked child: turn into the command. Never returns."""
    phase, what = "exec", b""
    try:
        os.setsid()
        prctl(DEATH_SIGNAL, _signal.SIGKILL, 0, 0, 0)
        for target, fd in enumerate(fds[:3]):
            os.dup2(fd, target)
        for number in _IGNORED:
            _signal.signal(number, _signal.SIG_DFL)
        phase, what = "chdir", job["cwd"]
        os.chdir(what)
        if job["runner"]:
            _signal.set_wakeup_fd(-1)
            _RUNNER["run_forked"](job["runner"], job["env"])
        phase, what = "exec", job["argv"][0]
        _exec_on_path(job["argv"], job["env"])
    except OSError as error:
        os.write(writer, marshal.dumps((phase, error.errno, what[:300])))
    except BaseException as error:  # the child must not go on as a second keeper
        os.write(writer, marshal.dumps((phase, 0, f"{type(error).__name__}: {error}".encode()[:300])))
    os._exit(127)


def _exec_on_path(argv: list[bytes], env: dict[bytes, bytes]) -> None:
    """As execvp: the first file on the command's own PATH that can be run."""
    name = argv[0]
    if b"/" in name or not name:
        os.execve(name, argv, env)
    denied: OSError | None = None
    for folder in env.get(b"PATH", os.defpath.encode()).split(b":"):
        try:
            os.execve((folder or b".") + b"/" + name, argv, env)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            denied = error
    raise denied or FileNotFoundError(2, "not found on PATH")


def _ask_group(leader: int) -> None:
    try:
        os.killpg(leader, _signal.SIGTERM)
    except (ProcessLookupError, PermissionError):
        pass


def _discard(fd: int) -> bool:
    """Whether more may come."""
    try:
        return bool(os.read(fd, 65536))
    except BlockingIOError:
        return True
    except OSError:
        return False


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    packed = b"".join(data for level, kind, data in ancillary if kind == _socket.SCM_RIGHTS)
    return [int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed) - 3, 4)]


_RUNNER: dict[str, Any] = {"__name__": "check_runner"}
"""What `check_runner.py` defines: the way scripts of asserts are run."""
_IGNORED: list[int] = []
"""Signals that this process ignores, on purpose or because it was started so; commands get them back."""


def serve(requests: _socket.socket, launcher: int | None) -> None:
    """Fork a keeper for each control socket that comes, until the launcher is gone and the keepers are too."""
    prctl = ctypes.CDLL(None).prctl
    prctl.argtypes = (ctypes.c_int, *(ctypes.c_ulong,) * 4)
    prctl(SUBREAPER, 1, 0, 0, 0)
    watch = Watch()
    watch.add(requests.fileno())
    if launcher is not None:
        watch.add(launcher)
    keepers: set[int] = set()
    gc.collect()
    gc.freeze()
    gc.disable()
    while True:
        ready = watch.wait()
        _look_after(keepers)
        if launcher in ready:
            break
        if not ready:
            continue
        message, ancillary, _, _ = requests.recvmsg(1, _socket.CMSG_SPACE(4), _CLOEXEC)
        if not message:
            break
        control = _socket.socket(fileno=_descriptors(ancillary)[0])
        try:
            pid = os.fork()
        except OSError:  # too many processes: the launcher sees the socket close
            control.close()
            continue
        if pid == 0:
            watch.close()
            requests.close()
            Keeper(control, launcher, prctl).serve()
            os._exit(0)
        keepers.add(pid)
        control.close()
    watch.drop(requests.fileno())
    if launcher is not None:
        watch.drop(launcher)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while keepers and time.monotonic() < deadline:
        watch.wait(0.1)
        _look_after(keepers)


def _look_after(keepers: set[int]) -> None:
    """Reap; and end what a keeper that was killed has left to us."""
    orphans = False
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if pid == 0:
            break
        orphans = orphans or pid not in keepers or status != 0
        keepers.discard(pid)
    if orphans:
        kill_children(but=keepers)


def main() -> None:
    requests = _socket.socket(fileno=int(sys.argv[1]))
    exec(compile(_read_file(sys.argv[2]), sys.argv[2], "exec"), _RUNNER)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
    for number in (getattr(_signal, name) for name in _POLITE):
        _signal.signal(number, _signal.SIG_IGN)
    _IGNORED.extend(n for n in _signal.valid_signals() if _signal.getsignal(n) == _signal.SIG_IGN)
    try:
        launcher: int | None = os.pidfd_open(os.getppid())
    except (AttributeError, OSError):
        launcher = None
    serve(requests, launcher)
    os._exit(0)


if __name__ == "__main__":
    main()
