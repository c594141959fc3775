"""What becomes of commands when a process that holds them is killed. Linux only: macOS has no such keepers."""

import contextlib
import os
import random
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from caliper_pipeline.execution import keepers
from caliper_pipeline.execution.command import Command, ProcessResult, StopToken
from caliper_pipeline.execution.process import ProcessLauncher

pytestmark = pytest.mark.skipif(not keepers.available(), reason="needs child subreapers")
PATH = "/usr/local/bin:/usr/bin:/bin"


@pytest.fixture
def launcher() -> Iterator[ProcessLauncher]:
    with ProcessLauncher(stop_grace_seconds=0.2, timeout_grace_seconds=0.2) as launcher:
        yield launcher


@pytest.fixture
def stop() -> Iterator[StopToken]:
    token = StopToken()
    yield token
    token.close()


@pytest.fixture
def mark() -> str:
    """An argument of `sleep` that no other process has."""
    return f"300.{uuid.uuid4().int % 10**12:012d}"


def carrying(mark: str) -> list[int]:
    """Processes with that mark among their arguments."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def all_end(mark: str, within: float = 10.0) -> bool:
    deadline = time.monotonic() + within
    while found := carrying(mark):
        for pid in found:
            try:
                fd = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            ended = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
            os.close(fd)
            if not ended:
                return False
    return True


def has_ended(pid: int) -> bool:
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    ended = bool(poll.poll(10_000))
    os.close(fd)
    return ended


def start(launcher: ProcessLauncher, stop: StopToken, cwd: Path, mark: str) -> "tuple[Future[ProcessResult], int]":
    """A running tree, one process of which has a session of its own, and the pid of its shell."""
    _fifo(cwd / "up")
    script = f"(setsid sleep {mark} &); echo said; echo $$ > up; sleep {mark}"
    command = Command(("sh", "-c", script), {"PATH": PATH}, cwd, 60)
    pool = ThreadPoolExecutor(1)
    future = pool.submit(launcher.run, command, stop)
    shell = int((cwd / "up").read_text())
    pool.shutdown(wait=False)
    return future, shell


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


PROGRAM = """
import os, sys, threading
from pathlib import Path
from caliper_pipeline.execution.command import Command, StopToken
from caliper_pipeline.execution.process import ProcessLauncher
mark, up, copy = os.environ["MARK"], *sys.argv[1:]
launcher, stop = ProcessLauncher(), StopToken()
script = f"(setsid env -i sleep {mark} &); sleep {mark} & echo up > {up}; sleep {mark}"
def go(linger):
    while True:
        launcher.run(Command(("sh", "-c", script), {"PATH": os.environ["PATH"]}, Path("/"), 60, linger=linger), stop)
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0))).start()  # ends with whoever runs the test
for number in range(4):
    threading.Thread(target=go, args=(number % 2 == 1,)).start()
if copy:
    import time
    time.sleep(float(copy))
    if os.fork() == 0:
        time.sleep(20)
"""


@pytest.fixture
def killed(tmp_path: Path, mark: str) -> Iterator[Callable[[float, str], None]]:
    """Runs the program until its first command is up, and a little longer, then kills it."""
    reading = os.open(_fifo(tmp_path / "up"), os.O_RDWR)
    programs = []

    def run_and_kill(more_seconds: float, copy: str = "") -> None:
        argv = [sys.executable, "-c", PROGRAM, str(tmp_path / "up"), copy]
        env = {**os.environ, "MARK": mark}  # not among the arguments, where `carrying` looks
        program = subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, start_new_session=True)
        programs.append(program)
        os.read(reading, 1)
        select.select([], [], [], more_seconds)
        program.kill()
        program.communicate()

    yield run_and_kill
    os.close(reading)
    for program in programs:  # the copy, if there was one, is in its group
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)


def _fifo(path: Path) -> Path:
    os.mkfifo(path)
    return path


@pytest.mark.parametrize("moment", range(5))
def test_nothing_outlives_a_killed_launcher(killed: Callable[..., None], mark: str, moment: int) -> None:
    killed(random.random() * 0.05)
    assert all_end(mark)


def test_nothing_outlives_a_launcher_of_which_a_copy_lives_on(killed: Callable[..., None], mark: str) -> None:
    """A forked child holds all descriptors of the launcher, so their end alone would tell the keepers nothing."""
    killed(0.4, copy="0.1")
    assert all_end(mark, within=5)


def test_a_command_whose_keeper_is_killed_ends_with_it(
    launcher: ProcessLauncher, stop: StopToken, tmp_path: Path, mark: str
) -> None:
    future, shell = start(launcher, stop, tmp_path, mark)
    os.kill(parent(shell), signal.SIGKILL)
    result = future.result(20)
    assert (result.exit_code, result.stdout, result.cancelled) == (None, b"said\n", False)
    assert "ended unexpectedly" in str(result.start_error)
    assert all_end(mark)
    assert launcher.run(Command(("true",), {"PATH": PATH}, tmp_path, 30), stop).ok


def test_a_command_goes_on_when_the_server_is_killed(
    launcher: ProcessLauncher, stop: StopToken, tmp_path: Path, mark: str
) -> None:
    future, shell = start(launcher, stop, tmp_path, mark)
    os.kill(parent(parent(shell)), signal.SIGKILL)
    assert launcher.run(Command(("true",), {"PATH": PATH}, tmp_path, 30), stop).ok
    assert not future.done()
    stop.set()
    assert future.result(20).cancelled
    assert all_end(mark)


def test_the_agent_dies_with_everybody_who_could_end_it(
    launcher: ProcessLauncher, stop: StopToken, tmp_path: Path, mark: str
) -> None:
    """`killall python` in an agent's shell: at least nothing that costs money goes on."""
    future, shell = start(launcher, stop, tmp_path, mark)
    for pid in (parent(parent(shell)), parent(shell)):
        os.kill(pid, signal.SIGKILL)
    assert future.result(20).exit_code is None
    assert has_ended(shell)
    assert launcher.run(Command(("true",), {"PATH": PATH}, tmp_path, 30), stop).ok
    for pid in carrying(mark):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_keepers_and_server_outlive_polite_signals(
    launcher: ProcessLauncher, stop: StopToken, tmp_path: Path, mark: str, number: int
) -> None:
    future, shell = start(launcher, stop, tmp_path, mark)
    for pid in (parent(parent(shell)), parent(shell)):
        os.kill(pid, number)
    assert launcher.run(Command(("true",), {"PATH": PATH}, tmp_path, 30), stop).ok
    assert not future.done()
    stop.set()
    assert future.result(20).exit_code == -signal.SIGTERM


def test_free_keepers_that_were_killed_are_replaced(launcher: ProcessLauncher, stop: StopToken, tmp_path: Path) -> None:
    for _ in range(3):
        told = launcher.run(Command(("sh", "-c", "echo $PPID"), {"PATH": PATH}, tmp_path, 30), stop)
        keeper = int(told.stdout)
        os.kill(keeper, signal.SIGKILL)
        assert has_ended(keeper)
