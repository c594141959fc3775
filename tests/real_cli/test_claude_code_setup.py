"""What a spec and an operator give to the real Claude Code CLI: servers, a past conversation, one's own setup."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp_server import McpServer, read_log, stdio_args
from model_server import ModelServer

from caliper_pipeline.domain.observations import observe_activation
from caliper_pipeline.domain.planted import PlantedTurn, read_turns
from caliper_pipeline.execution.backends.base import Server
from caliper_pipeline.execution.process import ProcessLauncher

from .claude_driver import Real, driven

pytestmark = pytest.mark.real_cli


@pytest.fixture
def real(models: ModelServer, launcher: ProcessLauncher, claude_folder: Path) -> Iterator[Real]:
    with driven(models, launcher, claude_folder) as made:
        yield made


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


def stdio(name: str, *args: str, **env: str) -> Server:
    return Server(name, "stdio", command=sys.executable, args=args, env=env)


def call(server: str, tool: str, text: str) -> dict[str, Any]:
    return {"name": f"mcp__{server}__{tool}", "input": {"text": text}}


def turns(data: list[dict[str, Any]]) -> tuple[PlantedTurn, ...]:
    found, problems = read_turns(data)
    assert not problems
    return found


def said(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """The conversation that the model was sent, without what the CLI adds to it."""
    found = []
    for message in messages:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks:
            if message["role"] == "system" or str(block.get("text", "")).startswith("<system-reminder>"):
                continue
            text = block.get("text") or block.get("content") or block.get("input", {}).get("command")
            found.append((message["role"], text.strip()))
    return found


def test_servers_of_every_kind_serve_the_agent_and_the_operators_stay_out(real: Real, tmp_path: Path) -> None:
    real.customize()
    with McpServer("http", token="t") as http, McpServer("sse", token="t") as sse:
        headers = {"Authorization": "Bearer t"}
        granted = (
            stdio("tide_srv", *stdio_args(tmp_path / "log"), OWN="from the spec"),
            Server("web", "http", url=http.url, headers=headers),
            Server("old-one", "sse", url=sse.url, headers=headers),
        )
        asked = [
            call("tide_srv", "shout", "hi"),
            call("tide_srv", "env", "OWN"),
            call("web", "echo", "a"),
            call("old-one", "echo", "b"),
        ]
        ran = real.attempt(
            {"turns": [{"tools": asked}, {"text": "Done."}]},
            servers=granted,
            declared_servers=("tide_srv", "web", "old-one", "ablated"),
        )
    assert (ran.reply.final_answer, ran.reply.finished, ran.refusal) == ("Done.", True, None)
    results = {turn.content for turn in ran.reply.turns if turn.role == "tool_result"}
    assert results == {"HI", "from the spec", "echo: a", "echo: b"}
    assert [turn.tool_name for turn in ran.reply.turns if turn.role == "tool_use"] == [tool["name"] for tool in asked]
    assert set(ran.reply.mcp_servers or ()) == {"tide_srv", "web", "old-one"}
    env = read_log(tmp_path / "log")[0]["start"]["env"]
    assert env["HOME"] == str(real.folder.home)
    assert "caliper" not in json.dumps(env).lower().replace(str(tmp_path).lower(), "")


def test_the_agent_begins_when_its_servers_are_there(real: Real) -> None:
    slow = stdio("tide", *stdio_args(None, "--slow", "3"))
    ran = real.attempt(
        {"turns": [{"tools": [call("tide", "shout", "hi")]}, {"text": "Done."}]},
        servers=(slow,),
        declared_servers=("tide",),
    )
    assert "mcp__tide__shout" in ran.requests[0].tools
    assert ran.reply.turns[1].content == "HI"


def test_an_attempt_whose_server_failed_is_lost(real: Real) -> None:
    broken = stdio("tide", "-c", "raise SystemExit(1)")
    ran = real.attempt({"turns": [{"text": "I did without."}]}, servers=(broken,), declared_servers=("tide",))
    assert ran.result.exit_code == 0
    assert (ran.reply.cli_error, ran.reply.finished) == ("the agent ran without the MCP server tide (failed)", False)
    assert ran.refusal is None


def test_a_past_conversation_reaches_the_model_as_it_was(real: Real) -> None:
    history = turns(
        [
            {"user": "Count the zebras."},
            {
                "assistant": "I look.",
                "shell": [{"run": "grep -c zebra f", "output": "3"}, {"run": "wc -l f", "output": "9 f"}],
            },
            {"assistant": "Three."},
            {"user": "/zebra-counter herd.txt"},
            {"assistant": "Two in herd.txt."},
            {"user": "/no-such-skill"},
        ]
    )
    ran = real.attempt({"turns": [{"text": "Sure."}]}, prompt="Really?", skill=True, history=history)
    folder = real.folder.home / ".claude" / "skills" / "zebra-counter"
    typed = "<command-message>zebra-counter</command-message>\n<command-name>/zebra-counter</command-name>"
    typed += "\n<command-args>herd.txt</command-args>"
    assert said(ran.requests[0].body["messages"]) == [
        ("user", "Count the zebras."),
        ("assistant", "I look."),
        ("assistant", "grep -c zebra f"),
        ("assistant", "wc -l f"),
        ("user", "3"),
        ("user", "9 f"),
        ("assistant", "Three."),
        ("user", typed),
        (
            "user",
            f"Base directory for this skill: {folder}\n\nRun `grep -c zebra`.\n\n\nARGUMENTS: herd.txt",
        ),
        ("assistant", "Two in herd.txt."),
        ("user", "/no-such-skill"),
        ("user", "Really?"),
    ]
    # What was planted is no part of what the agent did.
    assert [turn.content for turn in ran.reply.turns] == ["Sure."]
    assert observe_activation(ran.reply.turns, ["zebra-counter"], backend="claude-code") == ()


def test_a_conversation_that_ends_with_a_command_goes_on_from_there_with_the_operators_model(real: Real) -> None:
    real.customize()
    history = turns([{"user": "List."}, {"assistant": "Yes.", "shell": [{"run": "ls", "output": "a.txt"}]}])
    ran = real.attempt({"turns": [{"text": "One."}]}, prompt="How many?", isolated=False, history=history)
    assert said(ran.requests[0].body["messages"]) == [
        ("user", "List."),
        ("assistant", "Yes."),
        ("assistant", "ls"),
        ("user", "a.txt"),
        ("user", "How many?"),
    ]
    assert ran.requests[0].body["model"] == "operator-model"


def install_plugins(config: Path) -> None:
    """As the CLI itself does: one from a marketplace that was fetched, one from a folder of this machine."""
    fetched = {"source": "github", "repo": "harbour/plugins"}
    local = {"source": "directory", "path": str(config.parent / "local")}
    installed, known = {}, {}
    for market, plugin, source in (("fetched", "tools", fetched), ("local", "charts", local)):
        place = config / "plugins" / "marketplaces" / market if source is fetched else config.parent / market
        listed = [{"name": plugin, "source": f"./{plugin}"}]
        write(
            place / ".claude-plugin" / "marketplace.json", {"name": market, "owner": {"name": "x"}, "plugins": listed}
        )
        cache = config / "plugins" / "cache" / market / plugin / "1.0.0"
        for folder in (cache, place / plugin):
            write(folder / ".claude-plugin" / "plugin.json", {"name": plugin, "version": "1.0.0"})
            skill = f"---\nname: moon\ndescription: Moon of {plugin}.\n---\n\nMoon.\n"
            write(folder / "skills" / "moon" / "SKILL.md", skill)
            write(folder / "agents" / "pilot.md", "---\nname: pilot\ndescription: Pilots.\n---\nPilot.")
        installed[f"{plugin}@{market}"] = [{"scope": "user", "installPath": str(cache), "version": "1.0.0"}]
        known[market] = {"source": source, "installLocation": str(place), "lastUpdated": "2026-12-01T01:57:46.544Z"}
    write(config / "plugins" / "installed_plugins.json", {"version": 2, "plugins": installed})
    write(config / "plugins" / "known_marketplaces.json", known)


def test_all_of_ones_own_setup_loads_and_what_is_declared_wins(real: Real, tmp_path: Path) -> None:
    real.customize()
    config = real.theirs / ".claude"
    install_plugins(config)
    hook = {"type": "command", "command": "sh ~/.claude/hooks/note.sh"}
    write(config / "hooks" / "note.sh", f"echo ran > {tmp_path / 'hook'}")
    write(
        config / "settings.json",
        {
            "enabledPlugins": {"tools@fetched": True, "charts@local": True, "gone@fetched": True},
            "outputStyle": "pirate",
            "hooks": {"SessionStart": [{"hooks": [hook]}]},
        },
    )
    write(config / "CLAUDE.md", "RULES-MAIN with @more.md and @~/notes.md\n")
    write(config / "more.md", "RULES-MORE")
    write(real.theirs / "notes.md", "RULES-NOTES")
    write(config / "rules" / "go.md", "RULES-GO")
    write(config / "agents" / "mate.md", "---\nname: mate\ndescription: Helps.\n---\nHelp.")
    write(config / "output-styles" / "pirate.md", "---\nname: pirate\ndescription: arr\n---\nSTYLE-PIRATE")
    for name in ("tidy", "zebra-counter", "ablated-skill"):
        write(config / "commands" / f"{name}.md", "---\ndescription: COMMAND-NAMESAKE\n---\nDo.")
    skill = "---\nname: zebra-counter\ndescription: SKILL-NAMESAKE\n---\nTheirs.\n"
    write(config / "skills" / "zebra-counter" / "SKILL.md", skill)
    server = {"command": sys.executable, "args": stdio_args()}
    write(real.theirs / ".claude.json", {"mcpServers": {"own": server, "tide": {"command": "false"}, "gone": server}})
    ran = real.attempt(
        {"turns": [{"tools": [call("own", "echo", "a"), call("tide", "echo", "b")]}, {"text": "ok"}]},
        isolated=False,
        skill=True,
        ablated=("ablated-skill", "mcp:gone"),
        servers=(stdio("tide", *stdio_args()),),
        declared_servers=("tide", "gone"),
    )
    seen, init = ran.requests[0].text, ran.init
    for text in (
        "RULES-MAIN",
        "RULES-MORE",
        "RULES-NOTES",
        "RULES-GO",
        "STYLE-PIRATE",
        "- tools:moon: Moon of tools.",
        "- charts:moon: Moon of charts.",
    ):
        assert text in seen, text
    assert {(server["name"], server["status"]) for server in init["mcp_servers"]} == {
        ("own", "connected"),
        ("tide", "connected"),
    }
    assert {plugin["name"] for plugin in init["plugins"]} == {"tools", "charts"}
    assert all(plugin["path"].startswith(str(real.folder.home)) for plugin in init["plugins"])
    assert {"tidy", "own-skill", "zebra-counter", "tools:moon"} <= {*init["skills"], *init["slash_commands"]}
    assert {"mate", "tools:pilot", "charts:pilot"} <= set(init["agents"])
    assert (tmp_path / "hook").exists()
    # The declared skill is the spec's own; of an ablated one there is neither.
    assert "- zebra-counter: Counts zebras." in seen
    assert "SKILL-NAMESAKE" not in seen
    assert "ablated-skill" not in seen
    assert seen.count("COMMAND-NAMESAKE") == 1
    assert [turn.content for turn in ran.reply.turns if turn.role == "tool_result"] == ["echo: a", "echo: b"]
