"""Starts Dagster's web server and daemon for a project, and stops both: what `caliper ui` is.

    python -m caliper_pipeline.defs.server --root FOLDER [--host 127.0.0.1] [--port 3000]

It is `dagster dev` with the project's own home and code location. What Dagster prints goes to a file, so that the
terminal says where the page is and nothing else.
"""

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import FrameType

from caliper_pipeline.defs.home import dagster_home, prepare_home

LOOPBACK = ("127.0.0.1", "::1", "localhost")
STOP_SECONDS = 20.0
WORKSPACE = """\
load_from:
  - python_module:
      module_name: caliper_pipeline.definitions
      location_name: caliper
"""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m caliper_pipeline.defs.server", description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="the folder that holds .caliper")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=3000)
    given = parser.parse_args(arguments)
    root = given.root.resolve()
    if not _is_free(given.host, given.port):
        _say(f"Error: port {given.port} of {given.host} is taken. Name another one with --port.")
        return 2
    home = dagster_home(root)
    prepare_home(home)
    log = home / "ui.log"
    if given.host not in LOOPBACK:
        _say(f"Warning: everyone who can reach {given.host} can start agents here; there is no login.")
    # Handled before the server starts: it would inherit ignored signals (a shell's background job has them) and then
    # could not be stopped.
    wishes = _Wishes()
    with log.open("ab") as sink:
        server = subprocess.Popen(
            command(given.host, given.port, _workspace(home)),
            env={**os.environ, "DAGSTER_HOME": str(home), "CALIPER_ROOT": str(root), "PYTHONWARNINGS": "ignore"},
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
        )
    return _attend(server, wishes, f"http://{given.host}:{given.port}", log)


class _Wishes:
    """How often somebody asked to stop."""

    def __init__(self) -> None:
        self.count = 0
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._heard)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        self.count += 1


def command(host: str, port: int, workspace: Path) -> list[str]:
    return [sys.executable, "-m", "dagster", "dev", "-w", str(workspace), "-h", host, "-p", str(port)]


def _workspace(home: Path) -> Path:
    """Names the code location, as the repository's `workspace.yaml` does, which an installed package lacks."""
    path = home / "workspace.yaml"
    path.write_text(WORKSPACE, encoding="utf-8")
    return path


def _attend(server: subprocess.Popen[bytes], wishes: _Wishes, url: str, log: Path) -> int:
    """Say when the page is there, stop when asked (at once when asked twice); give the exit code."""
    _say(f"Starting Dagster (about ten seconds; its messages are in {log}) …")
    announced = False
    while server.poll() is None and not wishes.count:
        if not announced and _answers(url):
            announced = True
            _say(f"Serving {url} (Ctrl-C stops it)")
        time.sleep(0.5 if announced else 0.2)
    if not wishes.count:
        _say(f"Dagster ended by itself (exit {server.returncode}). The end of {log}:")
        _say("\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:]))
        return 2
    server.send_signal(signal.SIGINT)
    until = time.monotonic() + STOP_SECONDS
    while server.poll() is None and wishes.count < 2 and time.monotonic() < until:
        time.sleep(0.1)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)  # whatever of it is left
    server.wait()
    _say("Stopped.")
    return 0


def _answers(url: str) -> bool:
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"{url}/server_info", timeout=2) as page:
            return bool(page.status == 200)
    except (urllib.error.URLError, OSError, ValueError):
        return False


def _is_free(host: str, port: int) -> bool:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError:
        return False
    return True


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
