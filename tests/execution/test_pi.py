"""The pi backend: what it finds, starts, refuses and explains."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.errors import (
    CannotRun,
    CliTooOld,
    LoginRequired,
    MissingCli,
    SpendingCap,
    UnavailableModel,
)
from caliper_pipeline.execution.backends.base import Operator, Refusal, Server
from caliper_pipeline.execution.backends.pi import Pi
from caliper_pipeline.execution.command import ProcessResult

from .pi_stand_in import (
    ENGINE,
    NODE,
    executable,
    invocation,
    judge_invocation,
    node_script_at,
    operator,
    pi_at,
    read_json,
    write,
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The attempt's home."""
    folder = tmp_path / "attempt"
    folder.mkdir()
    return folder


@pytest.fixture
def by(tmp_path: Path) -> Operator:
    """An operator with a pi of today."""
    pi_at(tmp_path / "bin")
    return operator(tmp_path / "operator", tmp_path / "bin")


def older(tmp_path: Path, version: str) -> Operator:
    pi_at(tmp_path / "bin", version)
    return operator(tmp_path / "operator", tmp_path / "bin")


class TestCheck:
    def test_the_version_is_what_the_command_tells(self, tmp_path: Path, by: Operator) -> None:
        info = Pi().check(by, (), ENGINE, None)
        assert (info.binary, info.version) == (str(tmp_path / "bin" / "pi"), "1.6.0")

    def test_a_variable_names_the_command_unless_what_it_names_is_gone(self, tmp_path: Path, by: Operator) -> None:
        other = pi_at(tmp_path / "other", "1.5.0")
        for named, version in ((other, "1.5.0"), (tmp_path / "gone", "1.6.0"), (tmp_path, "1.6.0")):
            chosen = operator(by.home, tmp_path / "bin", PI_CLI_PATH=str(named))
            assert Pi().check(chosen, (), ENGINE, None).version == version

    def test_the_specs_own_path_comes_first(self, tmp_path: Path, by: Operator) -> None:
        pi_at(tmp_path / "extra", "1.5.0")
        assert Pi().check(by, (str(tmp_path / "extra"),), ENGINE, None).version == "1.5.0"

    def test_an_update_of_the_command_is_seen(self, tmp_path: Path, by: Operator) -> None:
        Pi().check(by, (), ENGINE, None)
        write(tmp_path / "bin" / "version", "1.7.0\n")
        os.utime(tmp_path / "bin" / "pi", ns=(1, 1))
        assert Pi().check(by, (), ENGINE, None).version == "1.7.0"

    def test_a_missing_command_is_told_before_anything_is_paid(self, tmp_path: Path) -> None:
        with pytest.raises(MissingCli, match="pi CLI not found") as caught:
            Pi().check(operator(tmp_path), ("/first",), ENGINE, None)
        assert "/first:" in caught.value.message

    @pytest.mark.parametrize(
        ("script", "words"),
        [
            ("#!/bin/sh\necho broken >&2; exit 3\n", "`--version` failed: broken."),
            ("#!/bin/sh\n", "`--version` failed."),
            ("#!/no/such/interpreter\n", "`--version` failed"),
        ],
    )
    def test_a_command_that_does_not_start_is_told_once(self, tmp_path: Path, script: str, words: str) -> None:
        pi_at(tmp_path / "bin", script=script)
        with pytest.raises(CannotRun) as caught:
            Pi().check(operator(tmp_path, tmp_path / "bin"), (), ENGINE, None)
        assert words in caught.value.message

    @pytest.mark.parametrize(
        ("version", "mcp"), [("0.74.2", False), ("1.0.3", False), ("1.0.4", True), ("2.0.0", True), ("main", True)]
    )
    def test_servers_need_a_version_that_has_them(self, tmp_path: Path, version: str, mcp: bool) -> None:
        can = Pi().check(older(tmp_path, version), (), ENGINE, None).capabilities
        assert can is not None
        assert (can.mcp, can.history, can.user_customizations) == (mcp, True, True)
        assert mcp or (f"pi {version} " in can.why_not["mcp"] and "1.0.4 or newer" in can.why_not["mcp"])

    @pytest.mark.parametrize("name", ["auth.json", "models.json", "settings.json"])
    @pytest.mark.parametrize("content", ["{ nope", "[]", "\x00"])
    def test_a_file_that_the_cli_would_pass_over_in_silence_is_told(
        self, by: Operator, name: str, content: str
    ) -> None:
        write(by.home / ".pi" / "agent" / name, content)
        with pytest.raises(CannotRun, match=name):
            Pi().check(by, (), ENGINE, None)

    def test_a_configuration_folder_that_is_none_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(CannotRun, match="PI_CODING_AGENT_DIR is "):
            Pi().check(operator(tmp_path, PI_CODING_AGENT_DIR=str(tmp_path / "gone")), (), ENGINE, None)


class TestNode:
    """The Node.js beside the command is the one that fits it."""

    def test_the_one_beside_it_comes_first_on_its_path(self, tmp_path: Path, home: Path) -> None:
        binary = node_script_at(tmp_path / "bin")
        executable(tmp_path / "bin" / "node", NODE % ("24.0.0", "new"))
        executable(tmp_path / "other" / "node", NODE % ("18.0.0", "old"))
        chosen = operator(tmp_path, tmp_path / "other", PI_CLI_PATH=str(binary))
        assert Pi().check(chosen, (), ENGINE, None).version == "1.6.0"
        command = Pi().command(invocation(home, chosen))
        assert command.argv[0] == str(binary)
        assert command.env["PATH"].split(os.pathsep)[:2] == [str(tmp_path / "bin"), str(tmp_path / "other")]

    def test_it_is_named_outright_where_the_spec_puts_another_first(self, tmp_path: Path, home: Path) -> None:
        binary = node_script_at(tmp_path / "bin")
        executable(tmp_path / "bin" / "node", NODE % ("24.0.0", "new"))
        executable(tmp_path / "extra" / "node", NODE % ("18.0.0", "old"))
        chosen = operator(tmp_path, tmp_path / "bin")
        command = Pi().command(invocation(home, chosen, extra_path=(str(tmp_path / "extra"),)))
        assert command.argv[:2] == (str(tmp_path / "bin" / "node"), str(binary))
        assert command.env["PATH"].split(os.pathsep)[:2] == [str(tmp_path / "extra"), str(tmp_path / "bin")]

    def test_where_it_is_found_anyway_no_path_changes(self, tmp_path: Path, home: Path) -> None:
        node_script_at(tmp_path / "bin")
        executable(tmp_path / "bin" / "node", NODE % ("24.0.0", "new"))
        command = Pi().command(invocation(home, operator(tmp_path, tmp_path / "first", tmp_path / "bin")))
        assert command.env["PATH"].split(os.pathsep)[:2] == [str(tmp_path / "first"), str(tmp_path / "bin")]

    def test_one_that_is_too_old_is_one_clear_error(self, tmp_path: Path) -> None:
        package = tmp_path / "lib" / "pi-coding-agent"
        write(package / "package.json", {"version": "1.6.0", "engines": {"node": ">=22.19.0"}})
        binary = node_script_at(package / "dist")
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "pi").symlink_to(binary)
        executable(tmp_path / "bin" / "node", NODE % ("20.20.2", "old"))
        with pytest.raises(CannotRun) as caught:
            Pi().check(operator(tmp_path, tmp_path / "bin"), (), ENGINE, None)
        assert "pi 1.6.0 needs Node.js >=22.19.0, and the node that it finds is v20.20.2" in caught.value.message
        assert "npm install" in str(caught.value.hint)

    def test_one_that_is_missing_is_told(self, tmp_path: Path) -> None:
        node_script_at(tmp_path / "bin")
        executable(tmp_path / "bin" / "env", "#!/bin/sh\n")
        by = Operator({"PATH": str(tmp_path / "bin"), "HOME": "/"}, {}, {}, tmp_path)
        with pytest.raises(CannotRun, match="there is no node on PATH"):
            Pi().check(by, (), ENGINE, None)


class TestCommand:
    @pytest.mark.parametrize(
        "prompt", ["-x", "--version", "@file", "/skill:a b", "ä" * 200_000, "nul \0 byte", "\udc80"]
    )
    def test_the_prompt_goes_to_standard_input(self, home: Path, by: Operator, prompt: str) -> None:
        command = Pi().command(invocation(home, by, prompt=prompt))
        assert command.stdin == prompt.encode("utf-8", "replace")
        assert not any(prompt in word for word in command.argv)

    @pytest.mark.parametrize(
        ("version", "flags"),
        [
            ("1.6.0", ("--no-session", "--approve", "--no-mcp")),
            ("1.0.3", ("--no-session", "--approve")),
            ("0.84.0", ("--no-session", "--approve")),
            ("0.83.0", ("--session", "*", "--approve")),
            ("0.74.2", ("--session", "*")),
        ],
    )
    def test_the_flags_are_those_that_the_version_knows(
        self, tmp_path: Path, home: Path, version: str, flags: tuple[str, ...]
    ) -> None:
        argv = Pi().command(invocation(home, older(tmp_path, version))).argv
        assert argv[1:4] == ("--print", "--mode", "json")
        kept = [word for word in argv if word.endswith(".jsonl")]
        assert tuple("*" if word in kept else word for word in argv[4:]) == flags
        assert all(Path(word).is_relative_to(home / ".pi" / "agent" / "sessions") for word in kept)

    def test_a_model_is_named_and_a_session_taken_up(self, home: Path, by: Operator) -> None:
        given = invocation(home, by, engine=Engine("pi", "lab/family:7b"), session="/s.jsonl")
        argv = Pi().command(given).argv
        assert argv[4:6] == ("--session", "/s.jsonl")
        assert argv[-2:] == ("--model", "lab/family:7b")

    @pytest.mark.parametrize(
        "facts", [{"isolated": False}, {"servers": (Server("a", "stdio", command="x"),)}], ids=["loading", "declared"]
    )
    def test_servers_are_switched_off_only_where_there_are_none(
        self, home: Path, by: Operator, facts: dict[str, Any]
    ) -> None:
        assert "--no-mcp" not in Pi().command(invocation(home, by, **facts)).argv

    def test_the_environment_is_the_allowed_one_and_names_no_evaluation(self, tmp_path: Path, home: Path) -> None:
        pi_at(tmp_path / "bin")
        agent = {
            "OPENAI_API_KEY": "k",
            "HTTPS_PROXY": "http://proxy",
            "NODE_EXTRA_CA_CERTS": "/ca.pem",
            "PI_CODING_AGENT_DIR": str(tmp_path),
            "PI_CODING_AGENT_SESSION_DIR": "/theirs",
        }
        by = operator(tmp_path / "operator", tmp_path / "bin", agent=agent, SECRET="s", CALIPER_RECORDER="off")
        command = Pi().command(invocation(home, by, extra_path=("/extra",)))
        env = dict(command.env)
        assert env["HOME"] == str(home)
        assert env["PI_CODING_AGENT_DIR"] == str(home / ".pi" / "agent")
        assert (env["PI_OFFLINE"], env["PI_SKIP_VERSION_CHECK"], env["PI_TELEMETRY"]) == ("1", "1", "0")
        assert (env["OPENAI_API_KEY"], env["HTTPS_PROXY"], env["NODE_EXTRA_CA_CERTS"]) == (
            "k",
            "http://proxy",
            "/ca.pem",
        )
        assert env["PATH"].startswith(f"/extra{os.pathsep}")
        assert env["TMPDIR"].startswith(str(home))
        assert not {"SECRET", "PI_CODING_AGENT_SESSION_DIR", "CALIPER_RECORDER"} & env.keys()
        told = [f"{name}={value}" for name, value in env.items()] + list(command.argv)
        assert not [text for text in told if "caliper" in text.replace(str(tmp_path), "").lower()]

    def test_a_judge_gets_a_role_and_no_tools(self, home: Path, by: Operator) -> None:
        agent = by.home / ".pi" / "agent"
        write(agent / "auth.json", {"lab": {"type": "api_key", "key": "k"}})
        write(agent / "settings.json", {"defaultModel": "m", "packages": ["npm:x"]})
        write(agent / "AGENTS.md", "rules")
        given = judge_invocation(home, by, system="You grade.", engine=Engine("pi", "m"), timeout_seconds=20.0)
        Pi().prepare_judge(given)
        command = Pi().judge_command(given)
        assert not (home / ".pi" / "agent" / "AGENTS.md").exists()
        kept = read_json(home / ".pi" / "agent" / "settings.json")
        assert ("packages" in kept, kept["defaultModel"], kept["retry"]["maxRetries"]) == (False, "m", 1)
        assert command.argv[1:5] == ("--print", "--mode", "json", "--no-session")
        assert {"--no-tools", "--no-skills", "--no-extensions", "--no-context-files"} < set(command.argv)
        assert command.argv[-4:] == ("--system-prompt", "You grade.", "--model", "m")
        assert command.stdin == b"Judge."

    def test_there_is_no_command_to_log_in_with(self, by: Operator) -> None:
        assert Pi().login_command(by) is None


class TestRefusal:
    def refusal(self, stdout: str = "", stderr: str = "", exit_code: int | None = 1, **facts: Any) -> Refusal | None:
        result = ProcessResult(exit_code, stdout.encode(), stderr.encode(), **facts)
        return Pi().refusal(result, Pi().read(result))

    @pytest.mark.parametrize(
        ("stderr", "kind"),
        [
            ("Error: Unknown option: --approve", "option"),
            ("Error: Unknown options: --approve, --no-mcp", "option"),
            ('Error: Unknown provider "nope". Use --list-models', "configuration"),
            ('Error: Failed to load extension "/x.ts": boom', "configuration"),
            ('Authentication failed for "anthropic". Credentials may have expired', "login"),
            ("OAuth refresh failed for openai-codex: invalid_grant", "login"),
            ("No API key found for lab.\n\nUse /login to log into a provider. See:\n  /429/docs.md", "login"),
            ('Warning: Model "x" not found for provider "lab".', None),
            ("boom: cannot allocate", None),
            ("", None),
        ],
    )
    def test_standard_error_counts_when_the_command_failed(self, stderr: str, kind: str | None) -> None:
        refusal = self.refusal(stderr=stderr)
        assert (refusal.kind if refusal else None) == kind

    @pytest.mark.parametrize(
        ("error", "kind"),
        [
            ("400 no-such-model is not a valid model ID", "model"),
            ('400: {"message":"Model x is not supported with this account"}', "model"),
            ('403: {"message":"no","type":"permission_error"}', "login"),
            ("402 Insufficient credits. Add more at the settings.", "cap"),
            ('429: {"message":"slow","code":"insufficient_quota"}', "cap"),
            ("You have hit your ChatGPT usage limit (plus plan).", "cap"),
            ("500 port 4290 and 503 others", None),
            ("terminated: other side closed (UND_ERR_SOCKET)", None),
        ],
    )
    def test_an_error_of_the_stream_counts_whatever_the_exit_code(self, error: str, kind: str | None) -> None:
        message = {"role": "assistant", "content": [], "stopReason": "error", "errorMessage": error}
        refusal = self.refusal(_line({"type": "message_end", "message": message}), exit_code=0)
        assert (refusal.kind if refusal else None) == kind

    def test_what_the_agent_says_is_never_a_refusal(self) -> None:
        said = "429 rate limit: Not logged in, usage limit reached, No API key found for lab"
        message = {"role": "assistant", "content": said, "stopReason": "stop"}
        stream = _line({"type": "message_end", "message": message})
        assert self.refusal(stream, exit_code=1) is None
        assert self.refusal(stream, stderr="usage limit reached", exit_code=0) is None

    def test_plain_output_counts_when_nothing_else_was_said(self) -> None:
        refusal = self.refusal("No API key found for lab.\n", exit_code=0)
        assert refusal is not None
        assert refusal.kind == "login"

    @pytest.mark.parametrize("facts", [{"timed_out": True}, {"cancelled": True}])
    def test_what_we_ended_ourselves_is_no_refusal(self, facts: dict[str, Any]) -> None:
        assert self.refusal(stderr="429 rate limit", exit_code=-9, **facts) is None

    def test_what_never_started_is_no_refusal(self) -> None:
        assert self.refusal(stderr="429 rate limit", exit_code=None) is None


class TestExplain:
    @pytest.mark.parametrize(
        ("kind", "error", "words"),
        [
            ("cap", SpendingCap, "cap: the text"),
            ("login", LoginRequired, "Not logged in"),
            ("model", UnavailableModel, "the default model is not available"),
            ("option", CliTooOld, "rejects an option"),
            ("configuration", CannotRun, "cannot run: the text"),
        ],
    )
    def test_a_refusal_becomes_the_error_of_its_kind(self, kind: str, error: type[CannotRun], words: str) -> None:
        for judge, who in ((False, "The pi agent"), (True, "The pi judge")):
            explained = Pi().explain(Refusal(kind, "the text"), ENGINE, judge=judge)
            assert type(explained) is error
            assert who in str(explained)
            assert words in str(explained)
            assert "the text" in str(explained)

    def test_how_to_log_in_is_told(self) -> None:
        assert "/login" in str(Pi().explain(Refusal("login", "x"), ENGINE, judge=False))

    def test_the_advice_names_the_flag_of_who_failed(self) -> None:
        refusal = Refusal("model", "x")
        assert "--judge-model" in str(Pi().explain(refusal, ENGINE, judge=True))
        assert "--judge-model" not in str(Pi().explain(refusal, ENGINE, judge=False))


def _line(event: dict[str, Any]) -> str:
    return json.dumps(event) + "\n"
