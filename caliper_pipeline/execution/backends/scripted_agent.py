"""The program that plays a scripted agent: it does what its plan says, and nothing else. Run by path.

The plan comes marshalled on standard input: a list of steps, of which the lines to print are already made. It imports
hardly anything, so that it starts in 8 ms and a load test measures what is around it.
"""

import marshal
import os
import sys
import time

try:
    from _json import encode_basestring_ascii as quoted
except ImportError:
    from json.encoder import py_encode_basestring_ascii as quoted

_MOST_OUTPUT = 30_000
"""Characters of a command's output that are told, as agent CLIs cut theirs."""


def main() -> None:
    for step, *given in marshal.loads(_read_all(0)):
        if step == "print":
            _print(given[0])
        elif step == "run":
            _run(*given)
        elif step == "wait":
            time.sleep(given[0])
        elif step == "hang":
            while True:
                time.sleep(3600)
        elif step == "exit":
            os.write(2, given[1])
            os._exit(given[0])


def _run(command: bytes, head: bytes) -> None:
    """Run a shell command; print what came of it as the event that `head` begins."""
    fd = _nameless_file()
    pid = os.posix_spawn(
        "/bin/sh",
        [b"sh", b"-c", command],
        os.environb,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, fd, 1),
            (os.POSIX_SPAWN_DUP2, fd, 2),
        ],
    )
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.lseek(fd, 0, os.SEEK_SET)
    output = _read_all(fd).decode("utf-8", "replace")[:_MOST_OUTPUT]
    os.close(fd)
    if code != 0:
        output = f"Exit code {code}\n{output}"
    failed = "true" if code != 0 else "false"
    _print(head + f'"output": {quoted(output)}, "error": {failed}}}\n'.encode("ascii"))


def _nameless_file() -> int:
    if sys.platform == "linux":
        fd = os.memfd_create("output", os.MFD_CLOEXEC)
    else:
        path = f"{os.environ.get('TMPDIR', '/tmp')}/o-{os.getpid()}-{time.monotonic_ns()}"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.remove(path)  # noqa: PTH107 - pathlib would double the time to start
    return fd


def _read_all(fd: int) -> bytes:
    parts = []
    while part := os.read(fd, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def _print(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


if __name__ == "__main__":
    main()
