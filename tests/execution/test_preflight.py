"""Servers asked before the first attempt: which ones live, what is told of dead ones, and what stays behind."""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp_server import McpServer, read_log, stdio_args

from caliper_pipeline.domain.errors import CannotRun
from caliper_pipeline.execution.backends.base import Operator, Server
from caliper_pipeline.execution.preflight import check_servers
from caliper_pipeline.execution.process import ProcessLauncher

from .stand_in import operator

SECONDS = 20.0


@pytest.fixture(scope="module")
def launcher() -> Iterator[ProcessLauncher]:
    with ProcessLauncher() as made:
        yield made


@pytest.fixture
def by(tmp_path: Path) -> Operator:
    return operator(tmp_path / "operator", agent={"ANTHROPIC_API_KEY": "k"}, SECRET="s")


def stdio(name: str, *args: str, command: str = sys.executable, **env: str) -> Server:
    return Server(name, "stdio", command=command, args=args, env=env)


def script(text: str) -> tuple[str, str]:
    return ("-c", text)


def check(launcher: ProcessLauncher, by: Operator, *servers: Server, seconds: float = SECONDS, **facts: object) -> None:
    given = {"extra_path": (), "shown": "demo.eval.yaml", **facts}
    check_servers(servers, operator=by, seconds=seconds, launcher=launcher, **given)  # type: ignore[arg-type]


def refusal(launcher: ProcessLauncher, by: Operator, *servers: Server, **facts: object) -> CannotRun:
    with pytest.raises(CannotRun) as caught:
        check(launcher, by, *servers, **facts)  # type: ignore[arg-type]
    return caught.value


def test_nothing_is_started_without_servers(by: Operator) -> None:
    check_servers((), operator=by, extra_path=(), shown="demo.eval.yaml")


def test_servers_of_all_kinds_are_asked_side_by_side(launcher: ProcessLauncher, by: Operator, tmp_path: Path) -> None:
    logs = [tmp_path / name for name in ("stdio", "http", "sse")]
    with McpServer("http", token="t", log=logs[1]) as http, McpServer("sse", token="t", log=logs[2]) as sse:
        headers = {"Authorization": "Bearer t"}
        check(
            launcher,
            by,
            stdio("a", *stdio_args(logs[0])),
            Server("b", "http", url=http.url, headers=headers),
            Server("c", "sse", url=sse.url, headers=headers),
        )
    for log in logs:
        asked = [entry["method"] for entry in read_log(log) if "method" in entry]
        assert asked == ["initialize", "notifications/initialized", "tools/list"]


def test_a_server_starts_as_in_an_attempt(launcher: ProcessLauncher, by: Operator, tmp_path: Path) -> None:
    log = tmp_path / "log"
    check(launcher, by, stdio("a", *stdio_args(log), OWN="1"), extra_path=("/extra",))
    start = read_log(log)[0]["start"]
    env = start["env"]
    assert (env["OWN"], env["ANTHROPIC_API_KEY"], env["PATH"].split(os.pathsep)[0]) == ("1", "k", "/extra")
    assert "SECRET" not in env
    assert Path(env["HOME"]).name == "home"
    assert Path(start["cwd"]) == Path(env["HOME"]).parent / "work"
    assert "caliper" not in f"{env}{start['cwd']}".lower()
    assert not Path(env["HOME"]).exists()


def test_a_bare_command_is_found_on_the_specs_own_path(launcher: ProcessLauncher, by: Operator, tmp_path: Path) -> None:
    tool = tmp_path / "bin" / "tide-server"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\nexec {sys.executable} {stdio_args()[0]}\n", encoding="utf-8")
    tool.chmod(0o755)
    check(launcher, by, stdio("tide", command="tide-server"), extra_path=(str(tool.parent),))


def test_a_server_that_asks_back_gets_its_answers(launcher: ProcessLauncher, by: Operator, tmp_path: Path) -> None:
    log = tmp_path / "log"
    check(launcher, by, stdio("a", *stdio_args(log, "--asks", "initialize", "--asks", "tools/list")))
    answers = {entry["id"]: entry for entry in read_log(log) if str(entry.get("id", "")).startswith("mine")}
    assert answers["mine-0"]["result"] == {}
    assert all("error" in answers[f"mine-{number}"] for number in (1, 2, 3))


def test_a_line_that_is_no_message_is_forgiven(launcher: ProcessLauncher, by: Operator) -> None:
    check(launcher, by, stdio("a", *stdio_args(None, "--banner")))


def test_every_dead_server_is_named_in_one_message(launcher: ProcessLauncher, by: Operator) -> None:
    error = refusal(
        launcher,
        by,
        stdio("fine", *stdio_args()),
        stdio("missing", command="no-such-command"),
        stdio("exits", *script("import sys; print('no licence\\nfound', file=sys.stderr); sys.exit(3)")),
        Server("away", "http", url="http://127.0.0.1:1/mcp"),
        Server("gone", "sse", url="http://127.0.0.1:1/sse"),
    )
    assert error.message.splitlines()[0] == "demo.eval.yaml: mcp: 4 servers cannot be used."
    assert "missing: its command no-such-command cannot be started: No such file or directory." in error.message
    assert "exits: it ended before it had answered. Its last words: no licence\nfound" in error.message
    assert "away: it cannot be reached" in error.message
    assert "gone: it cannot be reached" in error.message
    assert "fine" not in error.message
    assert error.hint is not None
    assert "sandbox.extra_path" in error.hint


def test_a_process_that_lives_and_speaks_no_mcp_is_told_apart(launcher: ProcessLauncher, by: Operator) -> None:
    began = time.monotonic()
    error = refusal(launcher, by, stdio("mute", *stdio_args(None, "--mute", "--banner")), seconds=2.0)
    assert error.message == (
        "demo.eval.yaml: mcp: the server mute: it gave no answer within 2 s. "
        "What it wrote is no message of MCP: 'Welcome to the test server!'."
    )
    assert time.monotonic() - began < SECONDS


@pytest.mark.parametrize("kind", ["http", "sse"])
def test_refused_credentials_are_told_as_such(launcher: ProcessLauncher, by: Operator, kind: str) -> None:
    with McpServer(kind, token="right") as server:
        error = refusal(launcher, by, Server("web", kind, url=server.url, headers={"Authorization": "Bearer wrong"}))
    assert "the server web: it refused the credentials (HTTP 401)." in error.message
    assert "headers:" in (error.hint or "")


def test_a_server_of_the_other_kind_is_told_by_its_status(launcher: ProcessLauncher, by: Operator) -> None:
    with McpServer("http") as server:
        error = refusal(launcher, by, Server("web", "sse", url=server.url))
    assert "it answered HTTP 405." in error.message
    assert "http or sse" in (error.hint or "")


def test_no_secret_is_told_in_any_form(launcher: ProcessLauncher, by: Operator) -> None:
    say = "import base64,json,os,sys,urllib.parse as u; s=os.environ['KEY']; "
    say += "print(s, json.dumps(s), u.quote(s), base64.b64encode(s.encode()).decode(), file=sys.stderr); sys.exit(1)"
    secret = 'p"ss wörd/1'
    error = refusal(launcher, by, stdio("a", *script(say), KEY=secret), secrets=[secret])
    assert error.message.endswith('Its last words: [hidden] "[hidden]" [hidden] [hidden]')


def test_control_characters_of_a_server_do_not_reach_the_terminal(launcher: ProcessLauncher, by: Operator) -> None:
    error = refusal(launcher, by, stdio("a", *script(r"import sys; print('\x1b[31mred\x07', file=sys.stderr)")))
    assert error.message.endswith("Its last words: red")


def test_what_a_server_started_ends_with_the_check(launcher: ProcessLauncher, by: Operator, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    check(launcher, by, stdio("a", *stdio_args(None, "--child", str(pid))))
    if sys.platform == "linux":
        assert not Path(f"/proc/{pid.read_text(encoding='utf-8')}").exists()
