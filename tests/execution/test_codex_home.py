"""What crosses into the home of a codex attempt: the login, the connection, and one's own set-up when it is wanted."""

import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.errors import CannotRun
from caliper_pipeline.execution.backends.base import Invocation, JudgeInvocation, Operator, Server
from caliper_pipeline.execution.backends.codex import Codex
from caliper_pipeline.execution.backends.codex_config import tries
from caliper_pipeline.execution.command import ProcessResult

from .stand_in import operator

SKILL = "---\nname: {}\ndescription: Does things.\n---\n\nDo.\n"
CONFIG = """\
model = "operator-pin"
model_reasoning_effort = "high"
model_provider = "ours"
openai_base_url = "https://example.com/v1"
forced_login_method = "chatgpt"
notify = ["say", "done"]
approval_policy = "never"
profile = "work"

[profiles.work]
model = "profile-pin"
model_verbosity = "low"

[model_providers.ours]
name = "ours"
base_url = "https://example.com/v1"
http_headers = { "X-Key" = "geheim" }
stream_max_retries = 9

[model_providers.another]
name = "another"
experimental_bearer_token = "of-another"

[projects."/home/someone/secret"]
trust_level = "trusted"

[features]
respect_system_proxy = true
goals = false

[mcp_servers.own]
command = "own"
env = { TOKEN = "t" }

[mcp_servers.mail-box]
url = "https://example.com/mcp"

[mcp_servers.off]
command = "off"
enabled = false

[plugins."demo@local"]
enabled = true

[plugins."gone@local"]
enabled = true

[plugins."..@.."]
enabled = true

[plugins."off@local"]
enabled = false
"""


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


def write(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def skill(root: Path, folder: str, name: str | None = None) -> None:
    write(root / folder / "SKILL.md", SKILL.format(name or folder))


def prepared(home: Path, by: Operator, **facts: Any) -> dict[str, Any]:
    """The configuration of an attempt."""
    given: dict[str, Any] = {"engine": Engine("codex"), "prompt": "Go.", "timeout_seconds": 120.0, **facts}
    Codex().prepare(Invocation(home=home, workdir=home, operator=by, **given))
    return tomllib.loads((home / ".codex" / "config.toml").read_text(encoding="utf-8"))


def tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


class TestConfiguration:
    def test_an_isolated_attempt_gets_the_connection_and_nothing_else(self, home: Path, theirs: Path) -> None:
        write(theirs / ".codex" / "config.toml", CONFIG)
        assert prepared(home, operator(theirs)) == {
            "model_provider": "ours",
            "openai_base_url": "https://example.com/v1",
            "forced_login_method": "chatgpt",
            "model_providers": {
                "ours": {
                    "name": "ours",
                    "base_url": "https://example.com/v1",
                    "http_headers": {"X-Key": "geheim"},
                    "request_max_retries": 4,
                    "stream_max_retries": 9,
                }
            },
            "check_for_update_on_startup": False,
            "cli_auth_credentials_store": "file",
            "mcp_oauth_credentials_store": "file",
            "analytics": {"enabled": False},
            "features": {"respect_system_proxy": True, "unbounded_connection_retries": False},
        }
        assert tree(home) == {".codex/config.toml", ".profile", ".zprofile"}

    def test_ones_own_settings_load_when_wanted_but_for_the_model_and_what_acts_outside(
        self, home: Path, theirs: Path
    ) -> None:
        write(theirs / ".codex" / "config.toml", CONFIG)
        config = prepared(home, operator(theirs), isolated=False)
        assert {"model", "notify", "projects"}.isdisjoint(config)
        assert (config["model_reasoning_effort"], config["approval_policy"]) == ("high", "never")
        assert config["profiles"] == {"work": {"model_verbosity": "low"}}
        assert config["features"] == {
            "respect_system_proxy": True,
            "goals": False,
            "unbounded_connection_retries": False,
        }
        assert set(config["mcp_servers"]) == {"own", "mail-box", "off"}
        assert config["mcp_servers"]["own"] == {"command": "own", "env": {"TOKEN": "t"}}
        assert set(config["model_providers"]) == {"ours", "another"}

    def test_the_operators_file_is_not_touched(self, home: Path, theirs: Path) -> None:
        own = write(theirs / ".codex" / "config.toml", CONFIG)
        prepared(home, operator(theirs), isolated=False)
        assert own.read_text(encoding="utf-8") == CONFIG

    def test_a_named_folder_is_read_instead(self, home: Path, theirs: Path, tmp_path: Path) -> None:
        write(theirs / ".codex" / "config.toml", 'openai_base_url = "usual"')
        write(theirs / ".codex" / "auth.json", "usual")
        write(tmp_path / "named" / "config.toml", '\ufeffopenai_base_url = "named"\r\n')
        write(tmp_path / "named" / "auth.json", "named")
        by = operator(theirs, agent={"CODEX_HOME": str(tmp_path / "named")})
        assert prepared(home, by)["openai_base_url"] == "named"
        assert (home / ".codex" / "auth.json").read_text(encoding="utf-8") == "named"
        given = Invocation(Engine("codex"), "Go.", home, home, by, 5.0)
        assert Codex().command(given).env["CODEX_HOME"] == str(home / ".codex")

    @pytest.mark.parametrize(
        "odd", ["model_providers = 7", "mcp_servers = []", "features = 'all'", "profiles = [1]", "model_provider = 5"]
    )
    @pytest.mark.parametrize("isolated", [True, False])
    def test_an_odd_value_is_left_to_the_cli(self, home: Path, theirs: Path, odd: str, isolated: bool) -> None:
        write(theirs / ".codex" / "config.toml", odd)
        prepared(home, operator(theirs), isolated=isolated)
        Codex().user_layer(operator(theirs))

    def test_whatever_a_value_holds_is_written_as_it_was(self, home: Path, theirs: Path) -> None:
        text = (
            'openai_base_url = "a\\"b\\\\c\\u007f\\U0001f600\\n"\n'
            "[model_providers.openai]\n'odd key.\"' = [1, 2.5, inf, true, 2026-12-01T10:00:00Z, {a = [{}]}]\n"
        )
        write(theirs / ".codex" / "config.toml", text)
        config, given = prepared(home, operator(theirs)), tomllib.loads(text)
        assert config["openai_base_url"] == given["openai_base_url"]
        assert given["model_providers"]["openai"].items() <= config["model_providers"]["openai"].items()

    @pytest.mark.parametrize(
        ("seconds", "number"),
        [(0.1, (0, 0)), (1.0, (1, 1)), (2.0, (1, 2)), (15.0, (3, 4)), (27.0, (4, 5)), (3600.0, (4, 5))],
    )
    def test_the_cli_tries_again_as_often_as_fits(self, seconds: float, number: tuple[int, int]) -> None:
        assert tries(seconds) == number

    def test_commands_search_the_folders_that_the_spec_names(self, home: Path, theirs: Path) -> None:
        prepared(home, operator(theirs), extra_path=("/opt/it's here",))
        for name in (".profile", ".zprofile"):
            script = f". '{home / name}'; echo \"$PATH\""
            found = subprocess.run(["/bin/sh", "-c", script], capture_output=True, check=True)
            assert found.stdout.startswith(b"/opt/it's here:")


class TestServers:
    STDIO = Server("my-srv", "stdio", command="/s", args=("-x",), env={"TOKEN": "t"})
    HTTP = Server("far", "http", url="https://h/mcp", headers={"Authorization": "Bearer t"})

    def test_declared_ones_are_written_in_the_clis_own_form(self, home: Path, theirs: Path) -> None:
        by = Operator(
            environment={},
            allowed={"PATH": "/bin", "LANG": "C", "LC_ALL": "C", "HTTPS_PROXY": "p", "NO_PROXY": "n", "CALIPER_A": "1"},
            agent_allowed={"OPENAI_API_KEY": "k"},
            home=theirs,
        )
        # One that is not required is silently missing when it takes a second to start.
        assert prepared(home, by, servers=(self.STDIO, self.HTTP))["mcp_servers"] == {
            "my-srv": {
                "command": "/s",
                "args": ["-x"],
                "env": {"TOKEN": "t"},
                "env_vars": ["HTTPS_PROXY", "NO_PROXY"],
                "required": True,
                "startup_timeout_sec": 60.0,
            },
            "far": {
                "url": "https://h/mcp",
                "http_headers": {"Authorization": "Bearer t"},
                "required": True,
                "startup_timeout_sec": 60.0,
            },
        }

    @pytest.mark.parametrize("declared", [None, ()])
    def test_without_any_an_isolated_attempt_has_none(
        self, home: Path, theirs: Path, declared: tuple[str, ...] | None
    ) -> None:
        write(theirs / ".codex" / "config.toml", CONFIG)
        assert "mcp_servers" not in prepared(home, operator(theirs), declared_servers=declared)

    def test_an_empty_declaration_keeps_ones_own_out_whatever_else_loads(self, home: Path, theirs: Path) -> None:
        write(theirs / ".codex" / "config.toml", CONFIG)
        write(theirs / ".codex" / "auth.json", '{"tokens": {}}')
        facts: dict[str, Any] = {"isolated": False, "declared_servers": ()}
        assert "mcp_servers" not in prepared(home, operator(theirs), **facts)
        given = Invocation(Engine("codex"), "Go.", home, home, operator(theirs), 5.0, **facts)
        assert "features.apps=false" in Codex().command(given).argv
        assert Codex().read(ProcessResult(0), given).mcp_servers == ()

    @pytest.mark.parametrize("servers", [(Server("mail_box", "stdio", command="/s"),), ()])
    def test_a_declared_one_wins_also_when_ablated_or_spelt_otherwise(
        self, home: Path, theirs: Path, servers: tuple[Server, ...]
    ) -> None:
        write(theirs / ".codex" / "config.toml", CONFIG)
        facts: dict[str, Any] = {"isolated": False, "servers": servers, "declared_servers": ("mail_box",)}
        config = prepared(home, operator(theirs), **facts)
        assert set(config["mcp_servers"]) == {"own", "off", *(server.name for server in servers)}

    def test_one_that_the_cli_cannot_talk_to_is_refused(self, home: Path, theirs: Path) -> None:
        with pytest.raises(CannotRun, match="old: codex cannot talk to a server of type sse"):
            prepared(home, operator(theirs), servers=(Server("old", "sse", url="https://h/sse"),))

    @pytest.mark.parametrize(
        ("login", "config", "isolated", "known"),
        [
            ("", CONFIG, True, ("my-srv",)),
            ("", CONFIG, False, ("my-srv", "own", "mail-box")),
            ('{"OPENAI_API_KEY": "k"}', "", False, ("my-srv",)),
            # An account may bring connectors and plugins that nothing lists.
            ('{"tokens": {}}', "", True, ("my-srv",)),
            ('{"tokens": {}}', "", False, None),
            ('{"tokens": {}}', "[features]\nplugins = false", False, ("my-srv", "codex_apps")),
            ('{"tokens": {}}', "[features]\nplugins = false\napps = false", False, ("my-srv",)),
        ],
    )
    def test_which_ones_an_agent_has_is_known_where_it_can_be(
        self, home: Path, theirs: Path, login: str, config: str, isolated: bool, known: tuple[str, ...] | None
    ) -> None:
        write(theirs / ".codex" / "config.toml", config)
        if login:
            write(theirs / ".codex" / "auth.json", login)
        given = Invocation(
            Engine("codex"), "Go.", home, home, operator(theirs), 5.0, isolated=isolated, servers=(self.STDIO,)
        )
        assert Codex().read(ProcessResult(0), given).mcp_servers == known


class TestCustomizations:
    def customize(self, theirs: Path) -> None:
        write(theirs / ".codex" / "config.toml", CONFIG)
        write(theirs / ".codex" / "AGENTS.md", "rules")
        write(theirs / ".codex" / "AGENTS.override.md", "more rules")
        write(theirs / ".codex" / "history.jsonl")
        write(theirs / ".codex" / "sessions" / "2026" / "rollout.jsonl")
        write(theirs / ".codex" / "plugins" / "cache" / "local" / "demo" / "1.0" / "skills" / "p" / "SKILL.md")
        write(theirs / ".codex" / "plugins" / "cache" / "local" / "off" / "1.0" / "x")
        skills = theirs / ".codex" / "skills"
        skill(skills, "plain")
        skill(skills, "folder", "named-otherwise")
        skill(skills, "deep/er/down", "down")
        skill(skills, ".system/imagegen", "imagegen")
        skill(skills, "tide-table", "Tide-Table")
        skill(theirs / ".agents" / "skills", "shared")
        skill(theirs / ".agents" / "skills", "plain")  # the first of namesakes counts
        write(skills / "plain" / "notes.md")
        write(skills / "plain" / ".git" / "config")
        (skills / "round").mkdir()
        (skills / "round" / "again").symlink_to(skills)
        (skills / "linked").symlink_to(theirs / "elsewhere")
        skill(theirs, "elsewhere", "elsewhere")

    def test_rules_skills_and_plugins_are_copied(self, home: Path, theirs: Path) -> None:
        self.customize(theirs)
        prepared(home, operator(theirs), isolated=False)
        assert tree(home) == {
            ".profile",
            ".zprofile",
            ".codex/config.toml",
            ".codex/AGENTS.md",
            ".codex/AGENTS.override.md",
            ".codex/plugins/cache/local/demo/1.0/skills/p/SKILL.md",
            ".codex/skills/plain/SKILL.md",
            ".codex/skills/plain/notes.md",
            ".codex/skills/named-otherwise/SKILL.md",
            ".codex/skills/down/SKILL.md",
            ".codex/skills/Tide-Table/SKILL.md",
            ".codex/skills/elsewhere/SKILL.md",
            ".agents/skills/shared/SKILL.md",
        }

    @pytest.mark.parametrize("facts", [{"skills": ("tide-table",)}, {"ablated": ("tide-table",)}])
    def test_a_declared_skill_wins_also_when_ablated(self, home: Path, theirs: Path, facts: dict[str, Any]) -> None:
        self.customize(theirs)
        prepared(home, operator(theirs), isolated=False, **facts)
        assert not any("tide" in name.lower() for name in tree(home))

    def test_they_are_named_by_kind(self, theirs: Path) -> None:
        self.customize(theirs)
        assert Codex().user_layer(operator(theirs), ("tide-table",), ("mail_box",)) == (
            "mcp:own",
            "plugin:demo@local",
            "rules:AGENTS.md",
            "rules:AGENTS.override.md",
            "settings:config.toml",
            "skill:down",
            "skill:elsewhere",
            "skill:named-otherwise",
            "skill:plain",
            "skill:shared",
        )

    def test_an_account_may_bring_more_than_can_be_listed(self, theirs: Path) -> None:
        write(theirs / ".codex" / "auth.json", '{"tokens": {"access_token": "t"}}')
        assert Codex().user_layer(operator(theirs)) == ("mcp:(not listed)", "mcp:codex_apps")

    def test_a_connection_is_no_customization(self, theirs: Path) -> None:
        write(theirs / ".codex" / "config.toml", 'model = "m"\nopenai_base_url = "u"\n')
        assert Codex().user_layer(operator(theirs)) == ()

    def test_a_skill_whose_name_is_no_folder_name_keeps_its_own(self, home: Path, theirs: Path) -> None:
        skill(theirs / ".codex" / "skills", "safe", "../../escape")
        prepared(home, operator(theirs), isolated=False)
        assert ".codex/skills/safe/SKILL.md" in tree(home)
        assert not (home / "escape").exists()


def test_a_judge_gets_the_connection_and_no_means(home: Path, theirs: Path) -> None:
    write(theirs / ".codex" / "config.toml", CONFIG)
    Codex().prepare_judge(JudgeInvocation(Engine("codex"), "Judge.", home, home, operator(theirs), 60.0))
    config = tomllib.loads((home / ".codex" / "config.toml").read_text(encoding="utf-8"))
    assert config["model_provider"] == "ours"
    assert config["model_providers"]["ours"]["request_max_retries"] == 3
    assert {"model", "mcp_servers", "approval_policy", "profiles"}.isdisjoint(config)
    assert not any(on for name, on in config["features"].items() if name != "respect_system_proxy")
    assert (config["features"]["shell_tool"], config["web_search"]) == (False, "disabled")
