"""The Claude Code backend: what it finds, seeds, starts, refuses and explains."""

import json
import os
import stat
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
from caliper_pipeline.execution.backends.base import Invocation, JudgeInvocation, Operator, Refusal, Server
from caliper_pipeline.execution.backends.claude_code import ClaudeCode
from caliper_pipeline.execution.command import ProcessResult

from .stand_in import StandIn, operator

ENGINE = Engine("claude-code")
SERVERS = ".claude/servers.json"
"""Always there, so that a CLI told to be strict has its list."""


def invocation(home: Path, by: Operator, **facts: Any) -> Invocation:
    given: dict[str, Any] = {"engine": ENGINE, "prompt": "Go.", "workdir": home, "timeout_seconds": 5.0, **facts}
    return Invocation(home=home, operator=by, **given)


def judge_invocation(home: Path, by: Operator, **facts: Any) -> JudgeInvocation:
    given: dict[str, Any] = {"engine": ENGINE, "prompt": "Judge.", "workdir": home, "timeout_seconds": 5.0, **facts}
    return JudgeInvocation(home=home, operator=by, **given)


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """The operator's home."""
    folder = tmp_path / "operator"
    folder.mkdir()
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The attempt's home."""
    folder = tmp_path / "attempt"
    folder.mkdir()
    return folder


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def skill(root: Path, name: str, text: str = "theirs") -> None:
    write(root / name / "SKILL.md", text)


def tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


class TestCheck:
    def test_the_version_is_the_first_line_that_the_command_prints(self, tmp_path: Path, theirs: Path) -> None:
        StandIn.at(tmp_path / "bin")
        info = ClaudeCode().check(operator(theirs, first_on_path=tmp_path / "bin"), (), ENGINE, None)
        assert (info.binary, info.version) == (str(tmp_path / "bin" / "claude"), "2.1.300 (Claude Code)")

    def test_an_update_of_the_command_is_seen(self, tmp_path: Path, theirs: Path) -> None:
        stand_in = StandIn.at(tmp_path / "bin")
        by = operator(theirs, first_on_path=tmp_path / "bin")
        ClaudeCode().check(by, (), ENGINE, None)
        (stand_in.folder / "version").write_text("3.0.0\n", encoding="utf-8")
        os.utime(stand_in.folder / "claude", ns=(1, 1))
        assert ClaudeCode().check(by, (), ENGINE, None).version == "3.0.0"

    def test_the_specs_own_path_comes_first(self, tmp_path: Path, theirs: Path) -> None:
        StandIn.at(tmp_path / "bin")
        StandIn.at(tmp_path / "extra")
        by = operator(theirs, first_on_path=tmp_path / "bin")
        info = ClaudeCode().check(by, (str(tmp_path / "extra"),), ENGINE, None)
        assert info.binary == str(tmp_path / "extra" / "claude")

    def test_a_missing_command_is_told_before_anything_is_paid(self, tmp_path: Path, theirs: Path) -> None:
        by = Operator(environment={"PATH": str(tmp_path)}, allowed={}, agent_allowed={}, home=theirs)
        with pytest.raises(MissingCli, match="claude command not found") as caught:
            ClaudeCode().check(by, ("/first",), ENGINE, None)
        assert f"/first{os.pathsep}{tmp_path}" in caught.value.message

    @pytest.mark.parametrize("script", ["#!/bin/sh\nexit 3\n", "#!/bin/sh\n"])
    def test_a_command_whose_version_cannot_be_told_may_still_run(
        self, tmp_path: Path, theirs: Path, script: str
    ) -> None:
        binary = write(tmp_path / "bin" / "claude", script)
        binary.chmod(0o755)
        info = ClaudeCode().check(operator(theirs, first_on_path=tmp_path / "bin"), (), ENGINE, None)
        assert (info.binary, info.version) == (str(binary), None)

    @pytest.mark.parametrize("script", ["#!/no/such/interpreter\n", "", "echo a script without a first line\n"])
    def test_a_command_that_cannot_be_started_is_told_before_anything_is_paid(
        self, tmp_path: Path, theirs: Path, script: str
    ) -> None:
        binary = write(tmp_path / "bin" / "claude", script)
        binary.chmod(0o755)
        with pytest.raises(CannotRun, match=f"{binary} does not start: .*interpreter"):
            ClaudeCode().check(operator(theirs, first_on_path=tmp_path / "bin"), (), ENGINE, None)

    def test_a_configuration_folder_that_is_none_is_refused(self, theirs: Path) -> None:
        by = operator(theirs, CLAUDE_CONFIG_DIR=str(theirs / "missing"))
        with pytest.raises(CannotRun, match="CLAUDE_CONFIG_DIR is "):
            ClaudeCode().check(by, (), ENGINE, None)


class TestLogin:
    def test_a_new_home_without_a_login_stays_empty(self, theirs: Path, home: Path) -> None:
        ClaudeCode().prepare(invocation(home, operator(theirs)))
        assert tree(home) == {SERVERS}

    def test_only_the_account_crosses(self, theirs: Path, home: Path) -> None:
        account = {"oauthAccount": {"emailAddress": "a@b.c"}, "userID": "u", "hasCompletedOnboarding": True}
        private = {"projects": {"/secret": {"history": ["x"]}}, "mcpServers": {"s": {}}, "tipsHistory": {"t": 1}}
        write(theirs / ".claude.json", {**account, **private})
        write(theirs / ".claude" / "settings.json", {"model": "pinned"})
        write(theirs / ".claude" / "CLAUDE.md", "rules")
        write(theirs / ".claude" / "history.jsonl", "x")
        skill(theirs / ".claude" / "skills", "own")
        secret = write(theirs / ".claude" / ".credentials.json", {"claudeAiOauth": {"accessToken": "t"}})
        secret.chmod(0o644)
        ClaudeCode().prepare(invocation(home, operator(theirs)))
        assert tree(home) == {".claude.json", ".claude/.credentials.json", SERVERS}
        assert json.loads((home / ".claude.json").read_text(encoding="utf-8")) == account
        copy = home / ".claude" / ".credentials.json"
        assert copy.read_bytes() == secret.read_bytes()
        assert stat.S_IMODE(copy.stat().st_mode) == stat.S_IMODE((home / ".claude.json").stat().st_mode) == 0o600

    def test_a_named_configuration_folder_is_read_instead_and_not_passed_on(
        self, theirs: Path, home: Path, tmp_path: Path
    ) -> None:
        write(theirs / ".claude.json", {"userID": "usual"})
        write(tmp_path / "named" / ".claude.json", {"userID": "named"})
        write(tmp_path / "named" / ".credentials.json", {"a": 1})
        by = operator(theirs, agent={"CLAUDE_CONFIG_DIR": str(tmp_path / "named")})
        ClaudeCode().prepare(invocation(home, by))
        assert json.loads((home / ".claude.json").read_text(encoding="utf-8")) == {"userID": "named"}
        assert "CLAUDE_CONFIG_DIR" not in ClaudeCode().command(invocation(home, by)).env

    @pytest.mark.parametrize("broken", ["{", "[]", "\xff"])
    def test_an_unreadable_account_file_is_left_alone(self, theirs: Path, home: Path, broken: str) -> None:
        (theirs / ".claude.json").write_bytes(broken.encode("latin-1"))
        ClaudeCode().prepare(invocation(home, operator(theirs)))
        assert tree(home) == {SERVERS}

    def test_a_key_crosses_only_without_a_login_file(self, theirs: Path, home: Path) -> None:
        by = operator(theirs, agent={"ANTHROPIC_API_KEY": "k"}, CLAUDE_CODE_OAUTH_TOKEN="t")
        ClaudeCode().prepare(invocation(home, by))
        env = ClaudeCode().command(invocation(home, by)).env
        assert (env["ANTHROPIC_API_KEY"], env["CLAUDE_CODE_OAUTH_TOKEN"]) == ("k", "t")
        write(theirs / ".claude" / ".credentials.json", {"a": 1})
        ClaudeCode().prepare(invocation(home, by))
        env = ClaudeCode().command(invocation(home, by)).env
        assert "ANTHROPIC_API_KEY" not in env
        assert env["CLAUDE_CODE_OAUTH_TOKEN"] == "t"

    def test_preparing_twice_is_the_same_as_once(self, theirs: Path, home: Path) -> None:
        write(theirs / ".claude" / ".credentials.json", {"a": 1})
        skill(theirs / ".claude" / "skills", "own")
        for _ in range(2):
            ClaudeCode().prepare(invocation(home, operator(theirs), isolated=False))
        assert tree(home) == {".claude/.credentials.json", ".claude/skills/own/SKILL.md", SERVERS}


class TestCustomizations:
    def test_everything_loads_when_not_isolated(self, theirs: Path, home: Path) -> None:
        write(theirs / ".claude.json", {"mcpServers": {"mail": {}}, "projects": {"/secret": {}}})
        config = theirs / ".claude"
        write(config / ".credentials.json", {"claudeAiOauth": {}})
        write(config / "CLAUDE.md", "rules")
        write(config / "rules" / "go" / "style.md", "more rules")
        write(config / "settings.json", {"model": "m", "hooks": {}, "extraKnownMarketplaces": {}})
        write(config / "hooks" / "log.sh", "#!/bin/sh")
        write(config / "agents" / "reviewer.md", "an agent")
        write(config / "commands" / "git" / "tidy.md", "a command")
        write(config / "output-styles" / "pirate.md", "arr")
        write(config / "history.jsonl", "private")
        skill(config / "skills", "own")
        by = operator(theirs)
        ClaudeCode().prepare(invocation(home, by, isolated=False))
        assert tree(home) == {
            ".claude.json",
            ".claude/.credentials.json",
            ".claude/CLAUDE.md",
            ".claude/agents/reviewer.md",
            ".claude/commands/git/tidy.md",
            ".claude/hooks/log.sh",
            ".claude/output-styles/pirate.md",
            ".claude/rules/go/style.md",
            ".claude/settings.json",
            ".claude/skills/own/SKILL.md",
            SERVERS,
        }
        assert json.loads((home / ".claude.json").read_text(encoding="utf-8")) == {"mcpServers": {"mail": {}}}
        assert json.loads((home / ".claude" / "settings.json").read_text(encoding="utf-8")) == {
            "model": "m",
            "hooks": {},
        }
        assert ClaudeCode().user_layer(by) == (
            "agent:reviewer",
            "command:git:tidy",
            "mcp:(not listed)",
            "mcp:mail",
            "output-style:pirate",
            "rules:CLAUDE.md",
            "rules:rules/go/style.md",
            "settings:settings.json",
            "skill:own",
        )

    def test_a_declared_skill_keeps_its_name_also_when_ablated(self, theirs: Path, home: Path) -> None:
        for name in ("installed", "Ablated", "own"):
            skill(theirs / ".claude" / "skills", name)
            write(theirs / ".claude" / "commands" / f"{name}.md", "typed by this name")
        write(theirs / ".claude" / "commands" / "sub" / "installed.md", "another name: sub:installed")
        by = operator(theirs)
        given = invocation(home, by, isolated=False, skills=("installed",), ablated=("ablated", "mcp:own"))
        ClaudeCode().prepare(given)
        assert tree(home) == {
            ".claude/commands/own.md",
            ".claude/commands/sub/installed.md",
            ".claude/skills/own/SKILL.md",
            SERVERS,
        }
        layer = ("command:own", "command:sub:installed", "skill:own")
        assert ClaudeCode().user_layer(by, ("installed", "ablated")) == layer

    def test_a_declared_server_keeps_its_name_also_when_ablated(self, theirs: Path, home: Path) -> None:
        write(theirs / ".claude.json", {"mcpServers": {"mail": {}, "notes": {}, "own": {}}})
        by = operator(theirs)
        given = invocation(home, by, isolated=False, declared_servers=("mail", "notes"))
        ClaudeCode().prepare(given)
        assert json.loads((home / ".claude.json").read_text(encoding="utf-8")) == {"mcpServers": {"own": {}}}
        assert ClaudeCode().user_layer(by, (), ("mail", "notes")) == ("mcp:own",)

    def test_an_empty_list_of_servers_keeps_all_others_out(self, theirs: Path, home: Path) -> None:
        write(theirs / ".claude.json", {"mcpServers": {"own": {}}})
        given = invocation(home, operator(theirs), isolated=False, declared_servers=())
        ClaudeCode().prepare(given)
        assert tree(home) == {SERVERS}
        assert "--strict-mcp-config" in ClaudeCode().command(given).argv

    def test_what_rules_import_is_found_from_the_copy(self, theirs: Path, home: Path, tmp_path: Path) -> None:
        config = theirs / ".claude"
        absolute = write(tmp_path / "elsewhere.md", "absolute")
        text = (
            f"See @style.md or @~/notes/all.md and @{absolute} too.\n`@code.md`\n```\n@block.md\n```\nme@example.org\n"
        )
        write(config / "CLAUDE.md", text + "@../up.md @missing.md @.credentials.json\n")
        write(config / "style.md", "@sub/deep.md")
        write(config / "sub" / "deep.md", "@deeper.md @../style.md")
        for place in (config / "sub" / "deeper.md", theirs / "notes" / "all.md", theirs / "up.md"):
            write(place, "imported")
        for place in (config / "code.md", config / "block.md", config / "example.org"):
            write(place, "not imported")
        secret = write(config / ".credentials.json", {"a": 1})
        ClaudeCode().prepare(invocation(home, operator(theirs), isolated=False))
        assert tree(home) == {
            ".claude/.credentials.json",
            ".claude/CLAUDE.md",
            ".claude/style.md",
            ".claude/sub/deep.md",
            ".claude/sub/deeper.md",
            "notes/all.md",
            "up.md",
            SERVERS,
        }
        assert (home / ".claude" / ".credentials.json").read_bytes() == secret.read_bytes()

    def test_customizations_that_cannot_be_copied_are_told(self, theirs: Path, home: Path) -> None:
        write(theirs / ".claude" / "agents" / "a.md", "x")
        write(home / ".claude" / "agents", "a file in its place")
        with pytest.raises(CannotRun, match="cannot be copied"):
            ClaudeCode().prepare(invocation(home, operator(theirs), isolated=False))

    def test_only_what_the_cli_would_load_is_a_skill(self, theirs: Path, home: Path) -> None:
        root = theirs / ".claude" / "skills"
        skill(root / "group", "nested")
        write(root / "SKILL.md", "at the root")
        write(root / "notes" / "README.md", "no skill")
        ClaudeCode().prepare(invocation(home, operator(theirs), isolated=False))
        assert tree(home) == {SERVERS}

    def test_links_are_followed_and_loops_and_pipes_left_out(self, theirs: Path, home: Path, tmp_path: Path) -> None:
        skill(tmp_path / "elsewhere", "linked")
        root = theirs / ".claude" / "skills"
        root.mkdir(parents=True)
        (root / "linked").symlink_to(tmp_path / "elsewhere" / "linked")
        (root / "linked" / "loop").symlink_to(root)
        (root / "linked" / "up").symlink_to(tmp_path / "elsewhere" / "linked")
        (root / "linked" / "dangling").symlink_to(tmp_path / "nowhere")
        os.mkfifo(root / "linked" / "pipe")
        write(root / "linked" / ".git" / "config", "x")
        ClaudeCode().prepare(invocation(home, operator(theirs), isolated=False))
        found = tree(home)
        assert ".claude/skills/linked/SKILL.md" in found
        assert not any(word in path for path in found for word in ("up/", "dangling", "pipe", ".git"))

    def test_nothing_is_loaded_where_nothing_is(self, theirs: Path) -> None:
        assert ClaudeCode().user_layer(operator(theirs)) == ()


class TestServers:
    def test_they_stand_in_a_file_of_the_home_that_nobody_else_can_read(self, theirs: Path, home: Path) -> None:
        mail = Server("mail", "stdio", command="/bin/mail", args=("-x",), env={"KEY": "s3cret"})
        web = Server("web", "http", url="https://x/mcp", headers={"Authorization": "Bearer s3cret"})
        given = invocation(home, operator(theirs), servers=(mail, web), declared_servers=("mail", "web", "gone"))
        ClaudeCode().prepare(given)
        assert json.loads((home / SERVERS).read_text(encoding="utf-8")) == {
            "mcpServers": {
                "mail": {"type": "stdio", "command": "/bin/mail", "args": ["-x"], "env": {"KEY": "s3cret"}},
                "web": {"type": "http", "url": "https://x/mcp", "headers": {"Authorization": "Bearer s3cret"}},
            }
        }
        assert stat.S_IMODE((home / SERVERS).stat().st_mode) == 0o600
        command = ClaudeCode().command(given)
        assert command.argv[command.argv.index("--mcp-config") + 1] == str(home / SERVERS)
        assert "s3cret" not in f"{command.argv}{command.env}"
        assert "caliper" not in SERVERS

    def test_the_cli_waits_for_them_before_the_agent_begins(self, theirs: Path, home: Path) -> None:
        by = operator(theirs)
        assert "MCP_CONNECTION_NONBLOCKING" not in ClaudeCode().command(invocation(home, by)).env
        given = invocation(home, by, servers=(Server("mail", "stdio", command="m"),))
        assert ClaudeCode().command(given).env["MCP_CONNECTION_NONBLOCKING"] == "0"

    @pytest.mark.parametrize(
        ("listed", "told"),
        [
            ([{"name": "mail", "status": "connected"}, {"name": "own", "status": "failed"}], None),
            ([{"name": "mail", "status": "failed"}], "mail (failed)"),
            ([{"name": "mail", "status": "pending"}], "mail (pending)"),
            ([{"name": "other", "status": "connected"}], "mail (not listed)"),
            ("something new", None),
        ],
    )
    def test_an_attempt_without_its_servers_is_lost_and_no_failure(
        self, theirs: Path, home: Path, listed: Any, told: str | None
    ) -> None:
        said = {"type": "assistant", "message": {"content": [{"type": "text", "text": "429 rate limit"}]}}
        events = [{"type": "system", "subtype": "init", "mcp_servers": listed}, said]
        events.append({"type": "result", "subtype": "success", "is_error": False, "result": "Not sent."})
        result = ProcessResult(0, "\n".join(map(json.dumps, events)).encode())
        given = invocation(home, operator(theirs), servers=(Server("mail", "stdio", command="m"),))
        reply = ClaudeCode().read(result, given)
        assert reply.cli_error == (f"the agent ran without the MCP server {told}" if told else None)
        assert reply.finished is (told is None)
        assert ClaudeCode().refusal(result, reply) is None


class TestLoginInSettings:
    def test_a_key_helper_runs_at_home_also_when_isolated_and_for_a_judge(self, theirs: Path, home: Path) -> None:
        settings = {"apiKeyHelper": "~/bin/key.sh --short", "model": "pinned", "hooks": {"x": []}, "awsAuthRefresh": 5}
        environment = {"CLAUDE_CODE_USE_BEDROCK": "1", "AWS_REGION": "eu-west-1", "MY_SECRET": "s", "AWS_PROFILE": 3}
        write(theirs / ".claude" / "settings.json", {**settings, "env": environment})
        given = invocation(home, operator(theirs))
        ClaudeCode().prepare(given)
        argv = ClaudeCode().command(given).argv
        file = Path(argv[argv.index("--settings") + 1])
        assert json.loads(file.read_text(encoding="utf-8")) == {
            "apiKeyHelper": f"export HOME={theirs}; ~/bin/key.sh --short",
            "env": {"CLAUDE_CODE_USE_BEDROCK": "1", "AWS_REGION": "eu-west-1"},
        }
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        judged = judge_invocation(home, operator(theirs))
        ClaudeCode().prepare_judge(judged)
        assert str(file) in ClaudeCode().judge_command(judged).argv

    def test_settings_without_a_login_do_not_cross(self, theirs: Path, home: Path) -> None:
        write(theirs / ".claude" / "settings.json", {"model": "pinned", "apiKeyHelper": " "})
        given = invocation(home, operator(theirs))
        ClaudeCode().prepare(given)
        assert tree(home) == {SERVERS}
        assert "--settings" not in ClaudeCode().command(given).argv

    @pytest.mark.parametrize(
        ("switch", "place", "variable"),
        [
            ("CLAUDE_CODE_USE_BEDROCK", ".aws/config", "AWS_CONFIG_FILE"),
            ("CLAUDE_CODE_USE_BEDROCK", ".aws/credentials", "AWS_SHARED_CREDENTIALS_FILE"),
            (
                "CLAUDE_CODE_USE_VERTEX",
                ".config/gcloud/application_default_credentials.json",
                "GOOGLE_APPLICATION_CREDENTIALS",
            ),
        ],
    )
    def test_the_login_of_a_cloud_is_found_although_the_home_is_another(
        self, theirs: Path, home: Path, switch: str, place: str, variable: str
    ) -> None:
        def env(**agent: str) -> dict[str, str]:
            return dict(ClaudeCode().command(invocation(home, operator(theirs, agent=agent))).env)

        assert variable not in env(**{switch: "1"})
        file = write(theirs / place, "x")
        assert env(**{switch: "1"})[variable] == str(file)
        assert env(**{switch: "1", variable: "/own"})[variable] == "/own"
        assert variable not in env(**{switch: "0"})
        assert variable not in env()
        write(theirs / ".claude" / "settings.json", {"env": {switch: "true"}})
        assert env()[variable] == str(file)


class TestCommand:
    def test_the_prompt_is_an_argument_that_is_no_option(self, theirs: Path, home: Path) -> None:
        command = ClaudeCode().command(invocation(home, operator(theirs), prompt="--version ä"))
        assert command.argv == (
            "claude",
            "-p",
            "--output-format",
            "stream-json",
            "--verbose",
            "--dangerously-skip-permissions",
            "--mcp-config",
            str(home / SERVERS),
            "--strict-mcp-config",
            "--",
            "--version ä",
        )
        assert command.stdin is None

    @pytest.mark.parametrize("prompt", ["x" * 200_000, "nul \0 byte"])
    def test_a_prompt_that_no_argument_can_carry_goes_to_standard_input(
        self, theirs: Path, home: Path, prompt: str
    ) -> None:
        command = ClaudeCode().command(invocation(home, operator(theirs), prompt=prompt))
        assert "--" not in command.argv
        assert command.stdin == prompt.encode()

    def test_a_model_is_named_and_user_servers_load_when_wanted(self, theirs: Path, home: Path) -> None:
        given = invocation(home, operator(theirs), engine=Engine("claude-code", "family:size-7b"), isolated=False)
        argv = ClaudeCode().command(given).argv
        assert argv[-4:-2] == ("--model", "family:size-7b")
        assert "--strict-mcp-config" not in argv

    def test_the_environment_is_the_allowed_one_and_names_no_evaluation(self, theirs: Path, home: Path) -> None:
        by = operator(theirs, agent={"ANTHROPIC_BASE_URL": "http://x"}, SECRET="s", CALIPER_RECORDER="off")
        env = ClaudeCode().command(invocation(home, by, extra_path=("/extra",))).env
        assert env["HOME"] == str(home)
        assert env["PATH"].startswith(f"/extra{os.pathsep}")
        assert env["ANTHROPIC_BASE_URL"] == "http://x"
        assert env["TMPDIR"].startswith(str(home))
        assert "SECRET" not in env
        assert not any("caliper" in f"{name}={value}".lower() for name, value in env.items() if name != "HOME")

    @pytest.mark.parametrize(("seconds", "tries"), [(1, "0"), (20, "3"), (120, "5"), (3_600, "10")])
    def test_the_clis_own_tries_fit_into_its_time(self, theirs: Path, home: Path, seconds: float, tries: str) -> None:
        given = invocation(home, operator(theirs), timeout_seconds=seconds)
        assert ClaudeCode().command(given).env["CLAUDE_CODE_MAX_RETRIES"] == tries
        chosen = invocation(home, operator(theirs, agent={"CLAUDE_CODE_MAX_RETRIES": "7"}))
        assert ClaudeCode().command(chosen).env["CLAUDE_CODE_MAX_RETRIES"] == "7"

    @pytest.mark.parametrize(("euid", "set_to"), [(0, "1"), (1000, None)])
    def test_root_is_told_to_be_in_a_sandbox(
        self, theirs: Path, home: Path, monkeypatch: pytest.MonkeyPatch, euid: int, set_to: str | None
    ) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: euid)
        assert ClaudeCode().command(invocation(home, operator(theirs))).env.get("IS_SANDBOX") == set_to

    def test_a_judge_gets_a_role_and_no_tools(self, theirs: Path, home: Path) -> None:
        write(theirs / ".claude" / ".credentials.json", {"a": 1})
        write(theirs / ".claude" / "settings.json", {"model": "pinned"})
        given = judge_invocation(home, operator(theirs), system="You grade.", engine=Engine("claude-code", "m"))
        ClaudeCode().prepare_judge(given)
        command = ClaudeCode().judge_command(given)
        assert tree(home) == {".claude/.credentials.json"}
        assert command.argv[:6] == ("claude", "-p", "--output-format", "json", "--strict-mcp-config", "--tools")
        assert command.argv[6] == ""
        assert command.argv[-4:] == ("--system-prompt", "You grade.", "--model", "m")
        assert "stream-json" not in command.argv
        assert command.stdin == b"Judge."


class TestRefusal:
    def refusal(self, stdout: str = "", stderr: str = "", exit_code: int | None = 1, **facts: Any) -> Refusal | None:
        result = ProcessResult(exit_code, stdout.encode(), stderr.encode(), **facts)
        return ClaudeCode().refusal(result, ClaudeCode().read(result))

    @pytest.mark.parametrize(
        ("stderr", "kind"),
        [
            ("error: unknown option '--strict-mcp-config'", "option"),
            ("Error: claude native binary not installed.", "configuration"),
            ("Your organization has disabled Claude subscription access for Claude Code", "configuration"),
            ("file:///x/cli.js:3\nTypeError: a is not a function\nNode.js v23.1.0", "configuration"),
            ("Please set your Anthropic API key", "login"),
            ("OAuth session expired, please run /login", "login"),
            ("boom: cannot allocate", None),
            ("", None),
        ],
    )
    def test_standard_error_counts_when_the_command_failed(self, stderr: str, kind: str | None) -> None:
        refusal = self.refusal(stderr=stderr)
        assert (refusal.kind if refusal else None) == kind

    def test_what_the_agent_says_is_never_a_refusal(self) -> None:
        said = {"type": "assistant", "message": {"content": "429 rate limit: Not logged in, usage limit reached"}}
        assert self.refusal(json.dumps(said), exit_code=1) is None
        assert self.refusal(json.dumps(said), stderr="usage limit reached", exit_code=0) is None

    def test_plain_output_counts_when_nothing_else_was_said(self) -> None:
        refusal = self.refusal("Not logged in · Please run /login\n", exit_code=0)
        assert refusal is not None
        assert refusal.kind == "login"

    def test_an_error_dressed_as_success_is_a_throttle(self) -> None:
        event = {"type": "result", "subtype": "success", "is_error": True, "api_error_status": 429}
        refusal = self.refusal(json.dumps({**event, "result": "You have hit your hourly limit."}), exit_code=0)
        assert refusal is not None
        assert (refusal.kind, refusal.fatal) == ("throttle", False)

    @pytest.mark.parametrize("facts", [{"timed_out": True}, {"cancelled": True}])
    def test_what_we_ended_ourselves_is_no_refusal(self, facts: dict[str, bool]) -> None:
        assert self.refusal(stderr="429 rate limit", exit_code=-9, **facts) is None

    def test_a_judge_is_refused_by_its_envelope_and_its_errors(self) -> None:
        event = {"type": "result", "is_error": True, "api_error_status": 401, "result": "Invalid API key"}
        backend = ClaudeCode()
        for stdout, stderr, kind in [
            (json.dumps(event), "", "login"),
            ("", "error: unknown option '--tools'", "option"),
            ('{"result": "429 rate limit", "type": "result"}', "429", "throttle"),
        ]:
            result = ProcessResult(1, stdout.encode(), stderr.encode())
            refusal = backend.judge_refusal(result, backend.read_judge(result))
            assert refusal is not None
            assert refusal.kind == kind
        fine = ProcessResult(0, b'{"result": "429 rate limit", "type": "result"}', b"429")
        assert backend.judge_refusal(fine, backend.read_judge(fine)) is None


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
        for judge, who in ((False, "The claude-code agent"), (True, "The claude-code judge")):
            explained = ClaudeCode().explain(Refusal(kind, "the text"), ENGINE, judge=judge)
            assert type(explained) is error
            assert who in str(explained)
            assert words in str(explained)
            assert "the text" in str(explained)

    def test_the_advice_names_the_flag_of_who_failed(self) -> None:
        refusal = Refusal("model", "x")
        assert "--judge-model" in str(ClaudeCode().explain(refusal, ENGINE, judge=True))
        assert "--judge-model" not in str(ClaudeCode().explain(refusal, ENGINE, judge=False))
