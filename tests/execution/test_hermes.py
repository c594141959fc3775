"""The hermes backend: what it finds, seeds, starts, refuses and explains."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

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
from caliper_pipeline.execution.backends.hermes import Hermes
from caliper_pipeline.execution.backends.registry import make_backend
from caliper_pipeline.execution.command import ProcessResult

from .stand_in import operator

ENGINE = Engine("hermes")
VERSION = "Hermes Agent v0.20.0 (2027.1.1)"
STDIO = Server("echo-srv", "stdio", command="/bin/echo", args=("a",), env={"TOKEN": "t"})
HTTP = Server("web", "http", url="https://host/mcp", headers={"Authorization": "Bearer b"})
SSE = Server("events", "sse", url="https://host/sse")
LAB = {"model": {"provider": "lab", "default": "m1"}, "providers": {"lab": {"base_url": "http://h/v1", "api_key": "k"}}}


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
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content), encoding="utf-8")
    return path


def executable(path: Path, text: str) -> Path:
    write(path, text).chmod(0o755)
    return path


def stand_in(folder: Path, version: str = VERSION) -> Path:
    """A `hermes` that tells a version and keeps its environment."""
    return executable(folder / "hermes", f"#!/bin/sh\nenv > {folder}/env\necho '{version}'\necho more\n")


def skill(folder: Path, name: str | None = None, text: str = "theirs") -> None:
    write(folder / "SKILL.md", f"---\nname: {name}\ndescription: x\n---\n{text}" if name else text)


def seeded(home: Path) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((home / ".hermes" / "config.yaml").read_text(encoding="utf-8"))
    return config


def tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


class TestCheck:
    def test_it_is_one_of_the_backends(self) -> None:
        assert make_backend("hermes").name == "hermes"

    def test_the_version_is_the_first_line_that_the_command_prints(self, tmp_path: Path, theirs: Path) -> None:
        binary = stand_in(tmp_path / "bin")
        info = Hermes().check(operator(theirs, first_on_path=tmp_path / "bin"), (), ENGINE, None)
        assert (info.binary, info.version) == (str(binary), VERSION)

    def test_the_version_is_asked_without_a_way_out_and_outside_the_operators_home(
        self, tmp_path: Path, theirs: Path
    ) -> None:
        stand_in(tmp_path / "bin", "v0.20.1")
        Hermes().check(operator(theirs, first_on_path=tmp_path / "bin"), (), ENGINE, None)
        asked = dict(line.partition("=")[::2] for line in (tmp_path / "bin" / "env").read_text().splitlines())
        assert asked["HTTPS_PROXY"] == asked["https_proxy"] == "http://127.0.0.1:9"
        assert asked["HERMES_DISABLE_LAZY_INSTALLS"] == "1"
        assert not asked["HERMES_HOME"].startswith(str(theirs))
        assert not Path(asked["HERMES_HOME"]).exists()
        assert tree(theirs) == set()

    def test_the_command_that_is_named_comes_first_where_it_exists(self, tmp_path: Path, theirs: Path) -> None:
        named, found = stand_in(tmp_path / "named"), stand_in(tmp_path / "bin")
        by = operator(theirs, first_on_path=tmp_path / "bin", HERMES_CLI_PATH=str(named))
        assert Hermes().check(by, (), ENGINE, None).binary == str(named)
        assert Hermes().login_command(by) == (str(named), "model")
        by = operator(theirs, first_on_path=tmp_path / "bin", HERMES_CLI_PATH=str(tmp_path / "missing"))
        assert Hermes().check(by, (), ENGINE, None).binary == str(found)

    def test_a_missing_command_is_told_before_anything_is_paid(self, tmp_path: Path, theirs: Path) -> None:
        by = Operator(environment={"PATH": str(tmp_path)}, allowed={}, agent_allowed={}, home=theirs)
        with pytest.raises(MissingCli, match="hermes CLI not found") as caught:
            Hermes().check(by, ("/first",), ENGINE, None)
        assert f"/first{os.pathsep}{tmp_path}" in caught.value.message

    @pytest.mark.parametrize("script", ["#!/bin/sh\nexit 3\n", "#!/bin/sh\n"])
    def test_a_command_whose_version_cannot_be_told_may_still_run(
        self, tmp_path: Path, theirs: Path, script: str
    ) -> None:
        binary = executable(tmp_path / "bin" / "hermes", script)
        info = Hermes().check(operator(theirs, first_on_path=tmp_path / "bin"), (), ENGINE, None)
        assert (info.binary, info.version) == (str(binary), None)

    def test_a_command_that_cannot_be_started_is_told_before_anything_is_paid(
        self, tmp_path: Path, theirs: Path
    ) -> None:
        binary = executable(tmp_path / "bin" / "hermes", "#!/no/such/interpreter\n")
        with pytest.raises(CannotRun, match=f"{binary} does not start: the interpreter"):
            Hermes().check(operator(theirs, first_on_path=tmp_path / "bin"), (), ENGINE, None)

    def test_an_override_that_cannot_be_run_is_passed_over(self, tmp_path: Path, theirs: Path) -> None:
        binary = executable(tmp_path / "bin" / "hermes", "#!/bin/sh\necho 0.19.0\n")
        (tmp_path / "notes.txt").write_text("no program", encoding="utf-8")
        by = operator(theirs, first_on_path=tmp_path / "bin", HERMES_CLI_PATH=str(tmp_path / "notes.txt"))
        assert Hermes().check(by, (), ENGINE, None).binary == str(binary)

    def test_servers_are_refused_where_the_package_for_them_is_missing(self, tmp_path: Path, theirs: Path) -> None:
        packages = tmp_path / "venv" / "lib" / "python3.11" / "site-packages"
        (packages / "hermes_agent-0.19.0.dist-info").mkdir(parents=True)
        executable(tmp_path / "venv" / "bin" / "python", "#!/bin/sh\n")
        executable(tmp_path / "venv" / "bin" / "hermes", f"#!{tmp_path}/venv/bin/python\n")
        by = operator(theirs, first_on_path=tmp_path / "venv" / "bin")
        can = Hermes().check(by, (), ENGINE, None).capabilities
        assert can is not None
        assert (can.mcp, "hermes-agent[mcp]" in can.why_not["mcp"]) == (False, True)
        (packages / "mcp").mkdir()
        can = Hermes().check(by, (), ENGINE, None).capabilities
        assert can is not None
        assert can.mcp

    def test_a_planted_conversation_is_refused_with_the_reason(self) -> None:
        assert not Hermes.capabilities.history
        assert "takes up no session" in Hermes.capabilities.why_not["history"]

    @pytest.mark.parametrize("broken", ["model: [1,\nx: 2\n", "- a\n", "just words\n", "a: !!python/object:x {}\n"])
    def test_settings_that_cannot_be_read_are_refused(self, tmp_path: Path, theirs: Path, broken: str) -> None:
        stand_in(tmp_path / "bin")
        write(theirs / ".hermes" / "config.yaml", broken)
        with pytest.raises(CannotRun, match=r"config\.yaml"):
            Hermes().check(operator(theirs, first_on_path=tmp_path / "bin"), (), ENGINE, None)

    def test_a_configuration_folder_that_is_none_is_refused(self, theirs: Path) -> None:
        by = operator(theirs, HERMES_HOME=str(theirs / "missing"))
        with pytest.raises(CannotRun, match="HERMES_HOME is "):
            Hermes().check(by, (), ENGINE, None)


class TestHome:
    def test_only_the_login_and_what_reaches_the_model_cross(self, theirs: Path, home: Path) -> None:
        source = theirs / ".hermes"
        write(source / "auth.json", '{"tokens": 1}').chmod(0o644)
        write(source / "SOUL.md", "persona")
        write(source / "memories" / "MEMORY.md", "memory")
        write(source / "state.db", "sessions")
        skill(source / "skills" / "own")
        personal = {
            "agent": {"reasoning_effort": "high"},
            "hooks": {"pre_tool_call": []},
            "mcp_servers": {"theirs": {"command": "false"}},
            "fallback_providers": [{"provider": "other", "model": "x"}],
            "terminal": {
                "backend": "local",
                "timeout": 9,
                "cwd": "/srv",
                "home_mode": "real",
                "shell_init_files": ["~/x"],
            },
        }
        write(source / "config.yaml", {**LAB, **personal})
        Hermes().prepare(invocation(home, operator(theirs)))
        assert tree(home) == {".hermes/auth.json", ".hermes/config.yaml", ".hermes/shell.sh"}
        config = seeded(home)
        assert {key: config[key] for key in LAB} == LAB
        assert not {"agent", "hooks", "mcp_servers", "fallback_providers"} & config.keys()
        shell = str(home / ".hermes" / "shell.sh")
        assert config["terminal"] == {"backend": "local", "timeout": 9, "cwd": ".", "shell_init_files": [shell]}
        for name in ("auth.json", "config.yaml"):
            assert stat.S_IMODE((home / ".hermes" / name).stat().st_mode) == 0o600

    def test_what_would_spoil_a_measurement_is_off(self, theirs: Path, home: Path) -> None:
        theirs_on = {
            "compression": {"in_place": True, "threshold": 0.7},
            "openrouter": {"response_cache": True, "min_coding_score": 0.5},
            "memory": {"provider": "honcho", "memory_char_limit": 5},
            "auxiliary": {"title_generation": {"enabled": True, "model": "x"}},
        }
        write(theirs / ".hermes" / "config.yaml", {**LAB, **theirs_on})
        Hermes().prepare(invocation(home, operator(theirs), isolated=False))
        config = seeded(home)
        assert config["compression"] == {"in_place": False, "threshold": 0.7}
        assert config["openrouter"] == {"response_cache": False, "min_coding_score": 0.5}
        assert config["memory"] == {"provider": "", "memory_char_limit": 5, "nudge_interval": 0}
        assert config["auxiliary"] == {"title_generation": {"enabled": False, "model": "x"}}
        assert config["security"] == {"allow_lazy_installs": False, "tirith_enabled": False}
        assert config["model_catalog"] == {"enabled": False}

    def test_the_environment_file_is_left_what_logs_in_to_models(self, theirs: Path, home: Path) -> None:
        kept = [
            "OPENROUTER_API_KEY=or-1\n",
            "export LAB_KEY='a b'\n",
            'MULTI="one\ntwo=3\nthree"\n',
            "HERMES_INFERENCE_PROVIDER=lab\n",
            "HERMES_CODEX_BASE_URL=http://h\n",
            "LAST=1",
        ]
        left = [
            "# a comment\n",
            "HOME=/root\n",
            "HERMES_HOME=/root/.hermes\n",
            "HERMES_EPHEMERAL_SYSTEM_PROMPT=You are a pirate\n",
            "TERMINAL_CWD=/srv\n",
            "TELEGRAM_BOT_TOKEN=t\n",
            'SLACK_NOTE="one\nKEY=2"\n',
            "SUDO_PASSWORD=p\n",
        ]
        write(theirs / ".hermes" / ".env", "".join(kept[:3] + left + kept[3:]))
        Hermes().prepare(invocation(home, operator(theirs)))
        assert (home / ".hermes" / ".env").read_text(encoding="utf-8") == "".join(kept) + "\n"
        assert stat.S_IMODE((home / ".hermes" / ".env").stat().st_mode) == 0o600

    def test_a_named_home_and_the_usual_profile_are_read_instead(
        self, theirs: Path, home: Path, tmp_path: Path
    ) -> None:
        write(theirs / ".hermes" / "config.yaml", {"model": "usual"})
        write(theirs / ".hermes" / "profiles" / "work" / "config.yaml", {"model": "profile"})
        Hermes().prepare(invocation(home, operator(theirs)))
        assert seeded(home)["model"] == "usual"
        write(theirs / ".hermes" / "active_profile", "work\n")
        Hermes().prepare(invocation(home, operator(theirs)))
        assert seeded(home)["model"] == "profile"
        write(tmp_path / "named" / "config.yaml", {"model": "named"})
        Hermes().prepare(invocation(home, operator(theirs, HERMES_HOME=str(tmp_path / "named"))))
        assert seeded(home)["model"] == "named"

    @pytest.mark.parametrize("profile", ["../../etc", "", "gone", "."])
    def test_a_profile_that_is_none_is_passed_over(self, theirs: Path, home: Path, profile: str) -> None:
        write(theirs / ".hermes" / "config.yaml", {"model": "usual"})
        write(theirs / ".hermes" / "active_profile", profile)
        Hermes().prepare(invocation(home, operator(theirs)))
        assert seeded(home)["model"] == "usual"

    def test_declared_servers_are_written_in_the_commands_form(self, theirs: Path, home: Path) -> None:
        write(theirs / ".hermes" / "config.yaml", {"mcp_servers": {"theirs": {"command": "x"}}})
        Hermes().prepare(invocation(home, operator(theirs), servers=(STDIO, HTTP, SSE)))
        common = {"connect_timeout": 60, "sampling": {"enabled": False}}
        assert seeded(home)["mcp_servers"] == {
            "echo-srv": {"command": "/bin/echo", "args": ["a"], "env": {"TOKEN": "t"}, **common},
            "web": {"url": "https://host/mcp", "headers": {"Authorization": "Bearer b"}, **common},
            "events": {"url": "https://host/sse", "headers": {}, "transport": "sse", **common},
        }

    @pytest.mark.parametrize(
        ("theirs_chosen", "chosen"),
        [
            (None, ["hermes-cli", "mcp-web"]),
            (["file", "terminal"], ["file", "terminal", "mcp-web"]),
            ([], ["mcp-web"]),
            ("odd", ["hermes-cli", "mcp-web"]),
        ],
    )
    def test_a_server_may_be_called_like_one_of_the_commands_own_toolsets(
        self, theirs: Path, home: Path, theirs_chosen: Any, chosen: list[str]
    ) -> None:
        config = {} if theirs_chosen is None else {"platform_toolsets": {"cli": theirs_chosen, "telegram": ["x"]}}
        write(theirs / ".hermes" / "config.yaml", config)
        Hermes().prepare(invocation(home, operator(theirs), isolated=False, servers=(HTTP,)))
        assert seeded(home)["platform_toolsets"]["cli"] == chosen

    def test_the_agents_shell_gets_the_path_of_the_attempt(self, theirs: Path, home: Path) -> None:
        Hermes().prepare(invocation(home, operator(theirs), extra_path=("/it's here",)))
        text = (home / ".hermes" / "shell.sh").read_text(encoding="utf-8")
        assert text.startswith("""export PATH='/it'"'"'s here:""")


class TestCustomizations:
    def test_a_spec_that_declares_no_server_on_purpose_keeps_ones_own_out(self, theirs: Path, home: Path) -> None:
        write(theirs / ".hermes" / "config.yaml", {**LAB, "mcp_servers": {"theirs": {"command": "x"}}})
        Hermes().prepare(invocation(home, operator(theirs), isolated=False, declared_servers=()))
        assert "mcp_servers" not in seeded(home)

    def test_persona_settings_servers_and_skills_load_when_not_isolated(self, theirs: Path, home: Path) -> None:
        source = theirs / ".hermes"
        write(source / "SOUL.md", "persona")
        write(source / "memories" / "USER.md", "about me")
        servers = {"theirs": {"command": "x"}, "echo_srv": {"command": "mine"}}
        write(source / "config.yaml", {**LAB, "agent": {"reasoning_effort": "high"}, "mcp_servers": servers})
        skill(source / "skills" / "research" / "papers", "paper-finder")
        by = operator(theirs)
        Hermes().prepare(invocation(home, by, isolated=False, servers=(STDIO,), declared_servers=("echo-srv",)))
        assert (home / ".hermes" / "SOUL.md").read_text(encoding="utf-8") == "persona"
        assert (home / ".hermes" / "memories" / "USER.md").exists()
        assert (home / ".hermes" / "skills" / "research" / "papers" / "SKILL.md").exists()
        config = seeded(home)
        assert config["agent"] == {"reasoning_effort": "high"}
        assert sorted(config["mcp_servers"]) == ["echo-srv", "theirs"]
        assert Hermes().user_layer(by, (), ("echo-srv",)) == (
            "mcp:theirs",
            "rules:SOUL.md",
            "rules:memories/USER.md",
            "settings:config.yaml",
            "skill:paper-finder",
        )

    def test_a_declared_skill_keeps_its_name_also_when_ablated(self, theirs: Path, home: Path) -> None:
        root = theirs / ".hermes" / "skills"
        skill(root / "a" / "folder-name", "Zebra")
        skill(root / "ablated")
        skill(root / "zebra" / "inner", "inner")
        by = operator(theirs)
        Hermes().prepare(invocation(home, by, isolated=False, skills=("zebra",), ablated=("ablated",)))
        # A category of the declared name must not land inside the declared skill.
        assert {name for name in tree(home) if "SKILL" in name} == {".hermes/skills/inner/SKILL.md"}
        assert Hermes().user_layer(by, ("zebra", "ablated")) == ("skill:inner",)

    def test_skills_that_came_with_hermes_load_but_are_not_the_users(self, theirs: Path, home: Path) -> None:
        root = theirs / ".hermes" / "skills"
        skill(root / "art" / "ascii", "ascii-art")
        skill(root / "own")
        write(root / ".bundled_manifest", "ascii-art:0123\ngone:45\n\n")
        by = operator(theirs)
        given = invocation(home, by, isolated=False)
        Hermes().prepare(given)
        assert (home / ".hermes" / "skills" / "art" / "ascii" / "SKILL.md").exists()
        assert Hermes().user_layer(by) == ("skill:own",)
        assert Hermes().read(ProcessResult(0), given).builtin_skills == ("ascii-art", "gone")

    def test_skills_elsewhere_are_copied_so_that_they_stay_what_they_are(
        self, theirs: Path, home: Path, tmp_path: Path
    ) -> None:
        skill(theirs / "team" / "shared")
        skill(tmp_path / "more" / "far")
        folders = ["~/team", str(tmp_path / "more"), str(tmp_path / "missing")]
        write(theirs / ".hermes" / "config.yaml", {"skills": {"external_dirs": folders}})
        by = operator(theirs)
        Hermes().prepare(invocation(home, by, isolated=False))
        assert {name for name in tree(home) if "SKILL" in name} == {
            ".hermes/skills/shared/SKILL.md",
            ".hermes/skills/far/SKILL.md",
        }
        assert seeded(home)["skills"]["external_dirs"] == []
        assert Hermes().user_layer(by) == ("settings:config.yaml", "skill:far", "skill:shared")

    def test_links_are_followed_and_loops_hidden_folders_and_a_skills_own_files_left_out(
        self, theirs: Path, home: Path, tmp_path: Path
    ) -> None:
        root = theirs / ".hermes" / "skills"
        skill(tmp_path / "elsewhere" / "linked")
        skill(root / ".archive" / "old")
        skill(root / "own" / "references" / "example")
        skill(root / "own")
        (root / "more").symlink_to(tmp_path / "elsewhere")
        (root / "own" / "up").symlink_to(root)
        os.mkfifo(root / "own" / "pipe")
        by = operator(theirs)
        Hermes().prepare(invocation(home, by, isolated=False))
        assert Hermes().user_layer(by) == ("skill:linked", "skill:own")
        assert {name for name in tree(home) if "skills" in name} == {
            ".hermes/skills/more/linked/SKILL.md",
            ".hermes/skills/own/SKILL.md",
            ".hermes/skills/own/references/example/SKILL.md",
        }

    def test_nothing_is_loaded_where_nothing_is(self, theirs: Path) -> None:
        assert Hermes().user_layer(operator(theirs)) == ()


class TestCommand:
    @pytest.mark.parametrize("prompt", ["--version", "-p x", "model", 'quo"te\n$(rm -rf /) `x`', "ümlaut \ud800"])
    def test_the_prompt_is_part_of_one_argument(self, theirs: Path, home: Path, prompt: str) -> None:
        command = Hermes().command(invocation(home, operator(theirs), prompt=prompt))
        assert command.argv[1] == "--oneshot=" + prompt.replace("\ud800", "?")
        assert command.argv[2:] == ("--usage-file", str(home / ".cache" / "usage.json"), "--yolo")
        assert command.stdin is None

    @pytest.mark.parametrize("prompt", ["Räume auf. " * 20_000, "a\0b"], ids=["long", "zero byte"])
    def test_a_prompt_that_no_argument_can_carry_goes_to_the_interpreter(
        self, theirs: Path, home: Path, tmp_path: Path, prompt: str
    ) -> None:
        script = executable(tmp_path / "venv" / "hermes", "#!/opt/py/bin/python3.11\n")
        wrapper = f'#!/usr/bin/env bash\nunset PYTHONPATH\nexec "{script}" "$@"\n'
        executable(tmp_path / "bin" / "hermes", wrapper)
        by = operator(theirs, first_on_path=tmp_path / "bin")
        command = Hermes().command(invocation(home, by, prompt=prompt))
        assert (command.argv[0], command.argv[1], command.argv[3]) == ("/opt/py/bin/python3.11", "-c", str(script))
        assert command.stdin == prompt.encode()
        assert max(len(word) for word in command.argv) < 1000

    def test_what_is_no_python_script_is_left_to_the_system_to_refuse(
        self, theirs: Path, home: Path, tmp_path: Path
    ) -> None:
        executable(tmp_path / "bin" / "hermes", "#!/bin/sh\nexit 0\n")
        by = operator(theirs, first_on_path=tmp_path / "bin")
        command = Hermes().command(invocation(home, by, prompt="x" * 200_000))
        assert (len(command.argv[1]), command.stdin) == (200_010, None)

    @pytest.mark.parametrize(
        ("head", "interpreter"),
        [
            ("#!/opt/venv/bin/python\n", "/opt/venv/bin/python"),
            ("#!/opt/venv/bin/python3.12 -E\n", "/opt/venv/bin/python3.12"),
            ("#!/usr/bin/env python3\n", "python3"),
            ("#!/bin/sh\n'''exec' \"/a long way/bin/python3\" \"$0\" \"$@\"\n' '''\n", "/a long way/bin/python3"),
            ("#!/bin/sh\n'''exec' /opt/bin/python3 \"$0\" \"$@\"\n' '''\n", "/opt/bin/python3"),
        ],
    )
    def test_the_interpreter_is_found_however_it_is_named(
        self, theirs: Path, home: Path, tmp_path: Path, head: str, interpreter: str
    ) -> None:
        executable(tmp_path / "bin" / "hermes", head)
        by = operator(theirs, first_on_path=tmp_path / "bin")
        assert Hermes().command(invocation(home, by, prompt="x" * 200_000)).argv[0] == interpreter

    @pytest.mark.parametrize(
        ("config", "flags"),
        [
            (LAB, ("--model", "m9", "--provider", "lab")),
            ({"model": "m1", "provider": "lab"}, ("--model", "m9", "--provider", "lab")),
            ({}, ("--model", "m9")),
            ({"model": {"provider": "auto"}}, ("--model", "m9")),
            ({**LAB, "model_aliases": {"M9": {"model": "x", "provider": "y"}}}, ("--model", "m9")),
        ],
    )
    def test_a_model_is_asked_of_the_configured_provider(
        self, theirs: Path, home: Path, config: dict[str, Any], flags: tuple[str, ...]
    ) -> None:
        write(theirs / ".hermes" / "config.yaml", config)
        given = invocation(home, operator(theirs), engine=Engine("hermes", "m9"))
        Hermes().prepare(given)
        assert Hermes().command(given).argv[5:] == flags

    @pytest.mark.parametrize(
        ("facts", "waits"),
        [({}, False), ({"servers": (STDIO,)}, True), ({"isolated": False}, True)],
        ids=["none", "declared", "the operator's"],
    )
    def test_servers_are_waited_for_where_there_are_any(
        self, theirs: Path, home: Path, facts: dict[str, Any], waits: bool
    ) -> None:
        write(theirs / ".hermes" / "config.yaml", {"mcp_servers": {"theirs": {"command": "x"}}})
        given = invocation(home, operator(theirs), **facts)
        Hermes().prepare(given)
        assert (Hermes().command(given).argv[-2:] == ("mcp", "serve")) == waits

    def test_the_environment_is_the_allowed_one_and_names_no_evaluation(self, theirs: Path, home: Path) -> None:
        by = operator(theirs, agent={"OPENROUTER_API_KEY": "k", "HERMES_HOME": "/theirs"}, SECRET="s")
        command = Hermes().command(invocation(home, by, extra_path=("/extra",), group="g"))
        assert command.env["OPENROUTER_API_KEY"] == "k"
        assert command.env["HERMES_HOME"] == str(home / ".hermes")
        assert command.env["HERMES_DISABLE_LAZY_INSTALLS"] == "1"
        assert command.env["PATH"].startswith(f"/extra{os.pathsep}")
        assert "SECRET" not in command.env
        assert (command.group, command.cwd, command.timeout_seconds) == ("g", home, 5.0)
        told = [*command.argv, *command.env, *command.env.values()]
        assert not any("caliper" in word.lower() for word in told if str(home.parent) not in word)

    def test_the_session_of_an_earlier_call_is_not_told_again(self, theirs: Path, home: Path) -> None:
        left = [home / ".hermes" / name for name in ("state.db", "state.db-wal", "logs/agent.log")]
        for path in (*left, home / ".cache" / "usage.json"):
            write(path, "x")
        Hermes().command(invocation(home, operator(theirs)))
        assert tree(home) == set()

    def test_the_session_is_exported_whatever_ended_the_call(self, theirs: Path, home: Path) -> None:
        given = invocation(home, operator(theirs), group="g")
        for result in (ProcessResult(0), ProcessResult(-9, timed_out=True)):
            command = Hermes().recovery(given, result)
            assert command is not None
            assert command.argv[1:] == ("sessions", "export", "-")
            assert (command.env["HERMES_HOME"], command.group) == (str(home / ".hermes"), "g")
        assert Hermes().recovery(given, ProcessResult(None, start_error="not found")) is None

    def test_a_judge_gets_a_role_a_login_and_no_tools(self, theirs: Path, home: Path) -> None:
        source = theirs / ".hermes"
        write(source / "config.yaml", {**LAB, "mcp_servers": {"theirs": {"command": "x"}}})
        write(source / "SOUL.md", "persona")
        skill(source / "skills" / "own")
        write(source / "auth.json", "{}")
        given = judge_invocation(home, operator(theirs), system="You grade.", engine=Engine("hermes", "m2"))
        Hermes().prepare_judge(given)
        assert tree(home) == {".hermes/auth.json", ".hermes/config.yaml", ".hermes/SOUL.md"}
        assert (home / ".hermes" / "SOUL.md").read_text(encoding="utf-8") == "You grade."
        config = seeded(home)
        assert config["platform_toolsets"] == {"cli": []}
        assert config["compression"] == {"enabled": False, "in_place": False}
        assert "mcp_servers" not in config
        command = Hermes().judge_command(given)
        assert command.argv[1:3] == ("--oneshot=Judge.", "--usage-file")
        assert command.argv[-4:] == ("--model", "m2", "--provider", "lab")


class TestReading:
    def attempt(self, theirs: Path, home: Path, report: Any, log: str = "") -> Invocation:
        given = invocation(home, operator(theirs), servers=(STDIO, HTTP))
        write(home / ".cache" / "usage.json", json.dumps(report))
        write(home / ".hermes" / "logs" / "agent.log", log)
        return given

    def test_a_declared_server_that_did_not_start_makes_the_attempt_unusable(self, theirs: Path, home: Path) -> None:
        log = (
            "INFO MCP server 'web' (HTTP): registered 2 tool(s): a, b\n"
            "WARNING Failed to connect to MCP server 'echo-srv' (command=/bin/echo): Connection closed\n"
        )
        session = {"id": "s", "messages": [{"role": "assistant", "content": "ok"}]}
        given = self.attempt(theirs, home, {"failed": False, "completed": True, "session_id": "s"}, log)
        reply = Hermes().read(ProcessResult(0, json.dumps(session).encode()), given)
        assert reply.mcp_servers == ("web",)
        assert reply.cli_error == "without the MCP servers that did not start (echo-srv: Connection closed)"
        assert (reply.finished, reply.final_answer) == (False, "ok")

    def test_a_server_that_was_reached_in_the_end_was_not_missed(self, theirs: Path, home: Path) -> None:
        log = (
            "Failed to connect to MCP server 'echo-srv' (command=x): y\n"
            "MCP server 'echo-srv' (stdio): registered 1 tool(s): a\n"
        )
        session = {"id": "s", "messages": [{"role": "assistant", "content": "ok"}]}
        given = self.attempt(theirs, home, {"failed": False, "completed": True, "session_id": "s"}, log)
        reply = Hermes().read(ProcessResult(0, json.dumps(session).encode()), given)
        assert (reply.cli_error, reply.finished) == (None, True)

    def test_the_report_in_the_home_tells_an_error_from_an_answer(self, theirs: Path, home: Path) -> None:
        given = self.attempt(theirs, home, {"failed": True, "completed": False})
        reply = Hermes().read(ProcessResult(0, b"HTTP 401: no\n"), given)
        assert (reply.cli_error, reply.error_status) == ("HTTP 401: no", 401)


REFUSALS = [
    ("HTTP 401: Incorrect API key provided.", "login"),
    ("HTTP 402: Insufficient credits. Add more.", "cap"),
    ("HTTP 403: Your plan is out of credits", "cap"),
    ("HTTP 429: You exceeded your current quota", "cap"),
    ("API call failed after 3 retries: HTTP 429: Slow down.", "throttle"),
    ("API call failed after 3 retries: HTTP 529: x", "throttle"),
    ("HTTP 404: The model `x` does not exist", "model"),
    ("HTTP 400: bad request", None),
    ("HTTP 400: foo/bar is not a valid model ID", "model"),
    ("HTTP 404: 404 page not found", "configuration"),
    ("HTTP 500: internal error", None),
    ("hermes -z: agent failed: No inference provider configured. Run 'hermes model'", "login"),
    ("No Anthropic credentials found.", "login"),
    ("Unknown provider 'nope'. Check 'hermes model'", "configuration"),
    ("hermes: error: unrecognized arguments: --usage-file x", "option"),
    ("API call failed after 3 retries: Connection error.", None),
]


class TestRefusal:
    @pytest.mark.parametrize(("text", "kind"), REFUSALS)
    def test_the_commands_words_tell_the_kind(self, theirs: Path, home: Path, text: str, kind: str | None) -> None:
        write(home / ".cache" / "usage.json", json.dumps({"failed": True}))
        code = 2 if "unrecognized" in text else 0
        result = ProcessResult(code, text.encode() if code == 0 else b"", text.encode() if code else b"")
        refusal = Hermes().refusal(result, Hermes().read(result, invocation(home, operator(theirs))))
        assert (refusal.kind if refusal else None) == kind

    def test_what_the_agent_says_is_never_a_refusal(self, theirs: Path, home: Path) -> None:
        write(home / ".cache" / "usage.json", json.dumps({"failed": False, "completed": True, "session_id": "s"}))
        said = "HTTP 401: I was rate limited and not logged in."
        session = {"id": "s", "messages": [{"role": "assistant", "content": said}]}
        result = ProcessResult(0, said.encode() + b"\n" + json.dumps(session).encode())
        reply = Hermes().read(result, invocation(home, operator(theirs)))
        assert (reply.final_answer, Hermes().refusal(result, reply)) == (said, None)

    @pytest.mark.parametrize("facts", [{"timed_out": True}, {"cancelled": True}])
    def test_what_we_ended_ourselves_is_no_refusal(self, facts: dict[str, bool]) -> None:
        result = ProcessResult(-15, b"HTTP 429: x", b"HTTP 429: x", **facts)
        assert Hermes().refusal(result, Hermes().read(result)) is None

    def test_a_judge_is_refused_by_its_report(self, theirs: Path, home: Path) -> None:
        write(home / ".cache" / "usage.json", json.dumps({"failed": True}))
        given = judge_invocation(home, operator(theirs))
        result = ProcessResult(0, b"HTTP 401: Incorrect API key provided.\n")
        answer = Hermes().read_judge(result, given)
        refusal = Hermes().judge_refusal(result, answer)
        assert (answer.text, refusal.kind if refusal else None) == ("", "login")


class TestExplain:
    @pytest.mark.parametrize(
        ("kind", "error", "words"),
        [
            ("cap", SpendingCap, "hit a spending or usage cap"),
            ("login", LoginRequired, "Not logged in"),
            ("model", UnavailableModel, "m1 is not available"),
            ("option", CliTooOld, "rejects an option"),
            ("configuration", CannotRun, "cannot run: words"),
        ],
    )
    def test_a_refusal_becomes_the_error_of_its_kind(self, kind: str, error: type[CannotRun], words: str) -> None:
        found = Hermes().explain(Refusal(kind, "words"), Engine("hermes", "m1"), judge=False)
        assert type(found) is error
        assert isinstance(found, CannotRun)
        assert found.message.startswith("The hermes agent ")
        assert words in found.message
        assert found.hint

    def test_the_advice_names_the_picker_and_the_flag_of_who_failed(self) -> None:
        login = str(Hermes().explain(Refusal("login", "x"), ENGINE, judge=True))
        assert "The hermes judge cannot run" in login
        assert "`hermes model`" in login
        assert "--judge-model hermes:" in str(Hermes().explain(Refusal("model", "x"), ENGINE, judge=True))
