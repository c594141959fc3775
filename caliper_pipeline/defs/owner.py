"""Whose process tells Dagster about a run, so that a run whose owner died is not shown as going on for ever.

A process is known by host, pid and the moment it started, since pids are used again.
"""

import os
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

PID_TAG, HOST_TAG, STARTED_TAG = ".dagster/caliper_pid", ".dagster/caliper_host", ".dagster/caliper_pid_started"
"""Their prefix keeps them from the lists, where they would crowd out what a reader looks for."""


def owner_tags() -> dict[str, str]:
    """The tags of this process."""
    return {PID_TAG: str(os.getpid()), HOST_TAG: socket.gethostname(), STARTED_TAG: _started(os.getpid()) or ""}


def owner_is_gone(tags: Mapping[str, str]) -> bool:
    """Whether a run with these tags has an owner on this machine that ended. False where that cannot be told."""
    pid = tags.get(PID_TAG, "")
    if tags.get(HOST_TAG) != socket.gethostname() or not pid.isdecimal():
        return False
    return not is_same_process(int(pid), tags.get(STARTED_TAG, ""))


def is_same_process(pid: int, started: str) -> bool:
    """Whether the process lives; with `started` empty any process of that pid will do."""
    now = _started(pid)
    return now is not None and (not started or now == started)


def _started(pid: int) -> str | None:
    """When the process started, in the system's own words. `None`: there is no such process."""
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            return None
        return None if fields[0] == "Z" else fields[19]
    told = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, stdin=subprocess.DEVNULL, check=False
    )
    return told.stdout.decode("utf-8", "replace").strip() or None
