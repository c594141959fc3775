"""The backends `claude-api` and `openai-api`: what they check, what they start, and what they explain."""

import marshal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.errors import CannotRun, LoginRequired, MissingCli, SpendingCap, UnavailableModel
from caliper_pipeline.domain.planted import PlantedTurn, ShellCall
from caliper_pipeline.execution.backends import api_backend, api_program
from caliper_pipeline.execution.backends.api_backend import ApiBackend
from caliper_pipeline.execution.backends.base import Invocation, JudgeInvocation, Operator, Refusal, Server
from caliper_pipeline.execution.backends.claude_api import ClaudeApi
from caliper_pipeline.execution.backends.openai_api import OpenaiApi

LOGINS = {"ANTHROPIC_API_KEY": "sk-a", "OPENAI_API_KEY": "sk-o", "AWS_SECRET_ACCESS_KEY": "sk-w"}
BASE = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HTTPS_PROXY": "http://proxy:3128"}
BACKENDS = [ClaudeApi(), OpenaiApi()]


def operator(home: Path, *, login: bool = True, **own: str) -> Operator:
    agent = {**(LOGINS if login else {}), **own}
    return Operator(environment={**BASE, **agent}, allowed=BASE, agent_allowed=agent, home=home)


def invocation(home: Path, backend: ApiBackend, by: Operator | None = None, **facts: Any) -> Invocation:
    given: dict[str, Any] = {"engine": Engine(backend.name), "prompt": "Go.", "workdir": home / "work", **facts}
    return Invocation(home=home, operator=by or operator(home), timeout_seconds=5.0, **given)


def job_of(backend: ApiBackend, given: Invocation) -> dict[str, Any]:
    stdin = backend.command(given).stdin
    assert stdin is not None
    job: dict[str, Any] = marshal.loads(stdin)["job"]
    return job


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
class TestBoth:
    def test_the_version_is_that_of_the_sdk(self, backend: ApiBackend, tmp_path: Path) -> None:
        info = backend.check(operator(tmp_path), (), Engine(backend.name), None)
        assert info.version is not None
        assert info.version.startswith(f"{backend.sdk} ")

    def test_without_a_key_nobody_is_logged_in(self, backend: ApiBackend, tmp_path: Path) -> None:
        with pytest.raises(LoginRequired, match=f"Not logged in: {backend.keys[0]} is not set"):
            backend.check(operator(tmp_path, login=False), (), Engine(backend.name), None)

    def test_a_line_end_behind_a_key_is_no_part_of_it(self, backend: ApiBackend, tmp_path: Path) -> None:
        by = operator(tmp_path, login=False, **{backend.keys[0]: "sk-a\n"})
        assert job_of(backend, invocation(tmp_path, backend, by))["variables"] == {backend.keys[0]: "sk-a"}
        with pytest.raises(LoginRequired):
            backend.check(operator(tmp_path, login=False, **{backend.keys[0]: "\n"}), (), Engine(backend.name), None)

    def test_without_the_sdk_it_says_how_to_get_it(
        self, backend: ApiBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(api_backend.importlib.util, "find_spec", lambda name: None)
        with pytest.raises(MissingCli) as caught:
            backend.check(operator(tmp_path), (), Engine(backend.name), None)
        assert f"pip install 'caliper-pipeline[{backend.sdk}]'" in str(caught.value)

    @pytest.mark.parametrize("url", ["nonsense", "ftp://x/", "http://", "http://127.0.0.1:x/"])
    def test_a_url_that_is_none_is_refused(self, backend: ApiBackend, tmp_path: Path, url: str) -> None:
        with pytest.raises(CannotRun, match=f"{backend.url_variable} is "):
            backend.check(operator(tmp_path, **{backend.url_variable: url}), (), Engine(backend.name, "m"), None)

    def test_a_local_server_that_is_not_there_is_told_before_anything_begins(
        self, backend: ApiBackend, tmp_path: Path
    ) -> None:
        by = operator(tmp_path, **{backend.url_variable: "http://127.0.0.1:1/v1"})
        with pytest.raises(CannotRun, match="nothing answers at http"):
            backend.check(by, (), Engine(backend.name, "m"), None)

    def test_a_remote_server_needs_no_key(self, backend: ApiBackend, tmp_path: Path) -> None:
        by = operator(tmp_path, login=False, **{backend.url_variable: "https://gateway.example/v1"})
        backend.check(by, (), Engine(backend.name, "m"), None)

    def test_no_key_and_no_name_of_ours_is_in_what_tools_can_see(self, backend: ApiBackend, tmp_path: Path) -> None:
        command = backend.command(invocation(tmp_path, backend))
        shown = " ".join([*command.argv, *command.env, *command.env.values()])
        assert "sk-" not in shown
        assert "caliper" not in shown.lower()
        assert command.env["HTTPS_PROXY"] == "http://proxy:3128"
        assert not list(tmp_path.iterdir())

    def test_what_caliper_yaml_lets_through_besides_reaches_the_tools(
        self, backend: ApiBackend, tmp_path: Path
    ) -> None:
        by = operator(tmp_path, MY_GATEWAY="g", CALIPER_ROOT="/x")
        env = backend.command(invocation(tmp_path, backend, by)).env
        assert env["MY_GATEWAY"] == "g"
        assert "CALIPER_ROOT" not in env

    def test_only_its_own_vendors_key_is_handed_over(self, backend: ApiBackend, tmp_path: Path) -> None:
        stdin = backend.command(invocation(tmp_path, backend)).stdin
        assert stdin is not None
        assert {key for key in ("sk-a", "sk-o", "sk-w") if key.encode() in stdin} == {LOGINS[backend.keys[0]]}

    def test_an_interpreter_named_after_us_gets_another_name(
        self, backend: ApiBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place = tmp_path / "caliper-env"
        place.mkdir()
        (place / "python3").write_bytes(b"")
        monkeypatch.setattr(api_program.sys, "executable", str(place / "python3"))
        home = tmp_path / "home"
        argv = backend.command(invocation(home, backend)).argv
        assert argv[0] == str(home / ".agent" / "bin" / "python3")
        assert (home / ".agent" / "bin" / "python3").readlink() == place / "python3"

    def test_a_job_holds_all_of_the_invocation(self, backend: ApiBackend, tmp_path: Path) -> None:
        server = Server("notes", "stdio", command="python", args=("x",), env={"A": "b"})
        history = (
            PlantedTurn(user="Hi."),
            PlantedTurn(assistant="Yes.", shell=(ShellCall(run="ls", output="a\n"),)),
            PlantedTurn.model_validate({"shell": [{"run": "ls", "output": ""}], "assistant": ""}),
        )
        engine = Engine(backend.name, "m")
        facts: dict[str, Any] = {"servers": (server,), "history": history, "skills": ("tides",), "max_tokens": 7}
        job = job_of(backend, invocation(tmp_path, backend, engine=engine, **facts))
        assert (job["model"], job["prompt"], job["skills"], job["max_tokens"]) == ("m", "Go.", ["tides"], 7)
        assert (job["servers"][0]["name"], job["servers"][0]["args"]) == ("notes", ["x"])
        assert job["history"] == [
            {"user": "Hi."},
            {"assistant": "Yes.", "commands": [["ls", "a\n"]]},
            {"assistant": "", "commands": [["ls", ""]]},
        ]

    def test_a_judge_has_no_tools(self, backend: ApiBackend, tmp_path: Path) -> None:
        given = JudgeInvocation(
            engine=Engine(backend.name, "m"),
            prompt="Judge.",
            home=tmp_path,
            workdir=tmp_path,
            operator=operator(tmp_path),
            timeout_seconds=5.0,
            system="You judge.",
        )
        stdin = backend.judge_command(given).stdin
        assert stdin is not None
        job = marshal.loads(stdin)["job"]
        assert (job["tools"], job["system"], job["servers"]) == (False, "You judge.", [])

    @pytest.mark.parametrize(
        ("kind", "error", "words"),
        [
            ("login", LoginRequired, "Not logged in"),
            ("cap", SpendingCap, "cap"),
            ("model", UnavailableModel, "is not available"),
            ("configuration", CannotRun, "cannot run: because"),
        ],
    )
    def test_a_refusal_is_explained(self, backend: ApiBackend, kind: str, error: type[CannotRun], words: str) -> None:
        for judge in (False, True):
            told = backend.explain(Refusal(kind, "because"), Engine(backend.name), judge=judge)
            assert type(told) is error
            assert words in str(told)
            assert f"The {backend.name} {'judge' if judge else 'agent'}" in str(told)


class TestProtocols:
    @pytest.mark.parametrize(
        ("url", "protocol"),
        [
            ("", "responses"),
            ("https://api.openai.com/v1", "responses"),
            ("https://eu.api.openai.com/v1/", "responses"),
            ("http://localhost:11434/v1", "chat"),
            ("https://api.openai.com.example/v1", "chat"),
        ],
    )
    def test_the_url_decides_on_openais(self, tmp_path: Path, url: str, protocol: str) -> None:
        assert OpenaiApi().protocol(operator(tmp_path, OPENAI_BASE_URL=url)) == protocol

    def test_a_gateway_may_speak_the_same_as_the_vendor(self, tmp_path: Path) -> None:
        by = operator(tmp_path, OPENAI_BASE_URL="http://localhost:1/v1")
        assert OpenaiApi(responses_everywhere=True).protocol(by) == "responses"

    def test_a_local_server_has_no_default_model(self, tmp_path: Path) -> None:
        by = operator(tmp_path, OPENAI_BASE_URL="https://gateway.example/v1")
        with pytest.raises(CannotRun, match="no model is named"):
            OpenaiApi().check(by, (), Engine("openai-api"), None)


def test_neither_sdk_is_imported_by_the_backends() -> None:
    code = (
        "import sys, importlib.util; from caliper_pipeline.execution.backends.registry import make_backend; "
        "make_backend('claude-api'); make_backend('openai-api'); print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"anthropic", "openai", "mcp", "httpx", "httpx2", "yaml"} & set(loaded)
