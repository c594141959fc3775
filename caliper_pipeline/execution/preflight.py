"""Whether the declared MCP servers live, found out before anything is paid for.

Each is started (or connected to) as an attempt's would be: the environment that lets through what attempts get, a new
home, a new workdir, the attempt's `PATH`. It has to shake hands and to list its tools. All are asked side by side, in
one process (`server_probe.py`) whose whole tree is ended afterwards. Importing the SDK is most of what it costs: 0.7 s
of time and of processor, whatever the number of servers.

What is told of a dead server holds the last lines that it wrote, without the values of any variable that was filled
in.

Not covered: what a server answers to a later attempt, and authorisation that asks a person in a browser.
"""

import json
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from caliper_pipeline.domain.errors import CannotRun
from caliper_pipeline.domain.redaction import Redaction
from caliper_pipeline.execution.backends.base import Operator, Server
from caliper_pipeline.execution.command import Command, Launcher, StopToken
from caliper_pipeline.execution.environment import agent_environment
from caliper_pipeline.execution.process import ProcessLauncher
from caliper_pipeline.execution.workdir import AttemptFolder, make_attempt_folder

SECONDS = 30.0
"""As long as agent commands wait for a server at most."""
_PROGRAM = Path(__file__).with_name("server_probe.py")
_START_SECONDS = 20.0
_STDERR_LINES = 4
_STDERR_CHARS = 400
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def check_servers(
    servers: Sequence[Server],
    *,
    operator: Operator,
    extra_path: Sequence[str],
    shown: str,
    secrets: Iterable[str] = (),
    seconds: float = SECONDS,
    launcher: Launcher | None = None,
) -> None:
    """Returns when every server lives. Raises `CannotRun` that names each one that does not, with what happened.

    `shown` is what messages call the spec; `secrets` are not to be told.
    """
    if not servers:
        return
    if launcher is None:
        with ProcessLauncher() as own:
            check_servers(
                servers,
                operator=operator,
                extra_path=extra_path,
                shown=shown,
                secrets=secrets,
                seconds=seconds,
                launcher=own,
            )
        return
    stop = StopToken()
    try:
        with make_attempt_folder() as folder:
            environment = agent_environment(operator, folder.home, extra_path=extra_path)
            command = _command(servers, folder, environment, seconds)
            result = launcher.run(command, stop)
    finally:
        stop.close()
    told = dict(_lines(result.stdout))
    dead = [(server, told.get(server.name)) for server in servers]
    problems = [(server, facts) for server, facts in dead if facts is None or facts["what"]]
    if problems:
        fallback = result.start_error or result.stderr.decode("utf-8", "replace").strip()[-_STDERR_CHARS:]
        raise _refusal(problems, shown, secrets, seconds, fallback)


def _command(servers: Sequence[Server], folder: AttemptFolder, environment: dict[str, str], seconds: float) -> Command:
    scratch = folder.private / "servers"
    scratch.mkdir(mode=0o700)
    job = {
        # The home is an empty one, so whatever is installed below the person's own has to be named.
        "libraries": [path for path in sys.path if path],
        "seconds": seconds,
        "workdir": str(folder.workdir),
        "scratch": str(scratch),
        "servers": [
            {
                "place": place,
                "name": server.name,
                "kind": server.kind,
                "command": server.command,
                "args": list(server.args),
                "env": {**environment, **server.env},
                "url": server.url,
                "headers": dict(server.headers),
            }
            for place, server in enumerate(servers)
        ],
    }
    return Command(
        argv=(sys.executable, "-P", str(_PROGRAM)),
        env=environment,
        cwd=folder.workdir,
        timeout_seconds=seconds + _START_SECONDS,
        stdin=json.dumps(job).encode(),
        group=folder.group,
    )


def _lines(output: bytes) -> Iterable[tuple[str, dict[str, Any]]]:
    for line in output.splitlines():
        try:
            facts = json.loads(line)
            yield facts["name"], facts
        except (ValueError, TypeError, KeyError):
            continue


def _refusal(
    problems: Sequence[tuple[Server, dict[str, Any] | None]],
    shown: str,
    secrets: Iterable[str],
    seconds: float,
    fallback: str,
) -> CannotRun:
    hide = Redaction(secrets).text
    texts, hints = [], []
    for server, facts in problems:
        text, hint = _told(server, facts or {"what": "unasked", "detail": fallback}, seconds)
        texts.append(f"{server.name}: {hide(text)}")
        hints.append(hint)
    head = f"{shown}: mcp: "
    if len(texts) == 1:
        message = f"{head}the server {texts[0]}"
    else:
        message = "\n".join((f"{head}{len(texts)} servers cannot be used.", *(f"  {text}" for text in texts)))
    return CannotRun(message, hint="\n".join(dict.fromkeys(hints)))


_BY_HAND = "Start it by hand with the same arguments, in an empty folder and with an empty HOME, as attempts do."
_INSTALL = (
    "Install what is missing, or name its folder in the spec's sandbox.extra_path; a command that begins with ./ is "
    "looked for beside the spec."
)
_CREDENTIALS = "Check what its `headers:` send, and that the variables in them hold a valid key."
_ADDRESS = "Check its `url:`, and whether its `type:` is http or sse."
_REACH = (
    "Check its `url:`, and that the server runs. Proxies and certificates that attempts are to use have to be let "
    "through by caliper.yaml (environment)."
)


def _told(server: Server, facts: dict[str, Any], seconds: float) -> tuple[str, str]:
    """What happened, and what would help."""
    what, detail = facts["what"], facts.get("detail", "")
    if what == "start":
        return f"its command {server.command} cannot be started: {detail}.", _INSTALL
    if what == "ended":
        return f"it ended before it had answered.{_words(facts)}", _BY_HAND
    if what == "silent":
        noise = f" What it wrote is no message of MCP: {facts['noise']!r}." if facts.get("noise") else ""
        return f"it gave no answer within {seconds:g} s.{noise}{_words(facts)}", _BY_HAND
    if what == "status" and detail in ("401", "403"):
        return f"it refused the credentials (HTTP {detail}).", _CREDENTIALS
    if what == "status":
        return f"it answered HTTP {detail}.", _ADDRESS
    if what == "unreachable":
        return f"it cannot be reached: {detail}.", _REACH
    if what == "unasked":
        return f"it could not be asked: {detail or 'the check did not end'}.", _BY_HAND
    verb = "refused" if what == "refused" else "answered what is not MCP"
    hint = _BY_HAND if server.kind == "stdio" else _ADDRESS
    return f"it {verb}: {detail}.{_words(facts)}", hint


def _words(facts: dict[str, Any]) -> str:
    lines = [line for line in _CONTROL.sub("", facts.get("stderr", "")).splitlines() if line.strip()]
    said = "\n".join(lines[-_STDERR_LINES:])[-_STDERR_CHARS:].strip()
    return f" Its last words: {said}" if said else ""
