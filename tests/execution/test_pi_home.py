"""What a pi attempt finds in its home: login, models, settings, servers, a planted conversation."""

import json
import os
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from caliper_pipeline.domain.errors import CannotRun
from caliper_pipeline.domain.planted import PlantedTurn, ShellCall
from caliper_pipeline.execution.backends.base import Operator, Server
from caliper_pipeline.execution.backends.pi import Pi
from caliper_pipeline.execution.backends.pi_settings import for_attempt
from caliper_pipeline.execution.backends.pi_values import loads

from .pi_stand_in import invocation, operator, pi_at, read_json, tree, write

NEW, OLD = "1.6.0", "0.74.2"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The attempt's home."""
    folder = tmp_path / "attempt"
    folder.mkdir()
    return folder


@pytest.fixture
def agent(home: Path) -> Path:
    """Where the CLI of the attempt keeps everything."""
    return home / ".pi" / "agent"


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """Where the operator's CLI does."""
    folder = tmp_path / "operator" / ".pi" / "agent"
    folder.mkdir(parents=True)
    return folder


def op(theirs: Path, version: str = NEW, **own: Any) -> Operator:
    """The operator of that folder, with a pi of that version."""
    folder = theirs.parents[2] / f"bin-{version}"
    if not folder.exists():
        pi_at(folder, version)
    return operator(theirs.parents[1], folder, **own)


class TestLogin:
    def test_a_home_without_a_login_holds_settings_alone(self, theirs: Path, home: Path) -> None:
        Pi().prepare(invocation(home, op(theirs)))
        assert tree(home) == {".pi/agent/settings.json"}

    def test_what_carries_the_login_crosses_whole_and_nothing_else(self, theirs: Path, home: Path, agent: Path) -> None:
        auth = write(theirs / "auth.json", '{ "lab": {"type": "oauth", "access": "a", "refresh": "r", "expires": 1} }')
        auth.chmod(0o644)
        models = write(theirs / "models.json", '{\n  // mine\n  "providers": {"lab": {"apiKey": "sk-1",}},\n}\n')
        write(theirs / "models-store.json", {"lab": {"models": []}})
        write(theirs / "settings.json", {"defaultProvider": "lab", "defaultModel": "m"})
        for name in ("AGENTS.md", "SYSTEM.md", "mcp.json", "trust.json", "skills/a/SKILL.md", "sessions/s/x.jsonl"):
            write(theirs / name, "{}")
        Pi().prepare(invocation(home, op(theirs)))
        files = ("auth.json", "models.json", "models-store.json", "settings.json")
        assert tree(agent) == set(files)
        assert (agent / "auth.json").read_bytes() == auth.read_bytes()
        assert (agent / "models.json").read_bytes() == models.read_bytes()
        assert {stat.S_IMODE((agent / name).stat().st_mode) for name in files} == {0o600}

    def test_a_named_folder_is_read_instead(self, theirs: Path, home: Path, agent: Path, tmp_path: Path) -> None:
        write(theirs / "auth.json", {"usual": {}})
        write(tmp_path / "named" / "auth.json", {"named": {}})
        Pi().prepare(invocation(home, op(theirs, PI_CODING_AGENT_DIR=str(tmp_path / "named"))))
        assert read_json(agent / "auth.json") == {"named": {}}

    def test_preparing_twice_is_the_same_as_once(self, theirs: Path, home: Path) -> None:
        write(theirs / "auth.json", {"a": {"type": "api_key", "key": "$KEY"}})
        write(theirs / "skills" / "own" / "SKILL.md", "---\ndescription: x\n---\n")
        for _ in range(2):
            Pi().prepare(invocation(home, op(theirs, KEY="k"), isolated=False))
        assert tree(home) == {
            ".pi/agent/auth.json",
            ".pi/agent/settings.json",
            ".pi/agent/skills/own/SKILL.md",
        }

    @pytest.mark.parametrize("broken", ["{", "[1]", '"text"', '{"providers": [1]}', '{"providers": {"a": 5}}'])
    def test_an_odd_file_crosses_as_it_is(self, theirs: Path, home: Path, agent: Path, broken: str) -> None:
        for name in ("auth.json", "models.json"):
            write(theirs / name, broken)
        Pi().prepare(invocation(home, op(theirs)))
        assert (agent / "auth.json").read_text(encoding="utf-8") == broken
        assert (agent / "models.json").read_text(encoding="utf-8") == broken


class TestRenewal:
    """A login by account that would not outlast the attempt is renewed by the operator's own CLI."""

    def renewing(self, theirs: Path, version: str = NEW, *, works: bool = True) -> Operator:
        """A pi that renews a login for ten hours, and counts how often it is asked."""
        new = int(time.time() + 36_000) * 1000
        renewal = f'sed -i "s/[0-9]\\{{10,\\}}/{new}/" {theirs}/auth.json' if works else "exit 1"
        told = '[ "$1" = auth ] || exec cat "$(dirname "$0")/version"'
        script = f'#!/bin/sh\n{told}\necho "$@" >> {theirs}/asked\n{renewal}\n'
        pi_at(theirs.parents[2] / f"bin-{version}", version, script=script)
        return op(theirs, version)

    def login(self, theirs: Path, seconds: float, kind: str = "oauth") -> None:
        credential = {"type": kind, "access": "a", "refresh": "r", "expires": int((time.time() + seconds) * 1000)}
        write(theirs / "auth.json", {"lab": credential})

    def asked(self, theirs: Path) -> list[str]:
        file = theirs / "asked"
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else []

    def test_what_is_copied_outlasts_the_attempt(self, theirs: Path, home: Path, agent: Path) -> None:
        by = self.renewing(theirs)
        self.login(theirs, 200)
        for _ in range(3):
            Pi().prepare(invocation(home, by))
        assert self.asked(theirs) == ["auth print-bearer-token --provider lab --min-expiry 480000ms"]
        assert read_json(agent / "auth.json")["lab"]["expires"] > (time.time() + 30_000) * 1000

    def test_one_that_cannot_be_renewed_is_not_tried_for_each_attempt(self, theirs: Path, home: Path) -> None:
        by = self.renewing(theirs, works=False)
        self.login(theirs, -5)
        for _ in range(3):
            Pi().prepare(invocation(home, by))
        assert len(self.asked(theirs)) == 1

    @pytest.mark.parametrize(
        ("seconds", "kind", "version"), [(3_600, "oauth", NEW), (5, "api_key", NEW), (5, "oauth", OLD)]
    )
    def test_others_are_left_alone(self, theirs: Path, home: Path, seconds: float, kind: str, version: str) -> None:
        by = self.renewing(theirs, version)
        self.login(theirs, seconds, kind)
        Pi().prepare(invocation(home, by))
        assert self.asked(theirs) == []

    @pytest.mark.parametrize("expires", [None, "soon", True, [], {}])
    def test_an_odd_end_is_none(self, theirs: Path, home: Path, expires: Any) -> None:
        by = self.renewing(theirs)
        write(theirs / "auth.json", {"lab": {"type": "oauth", "expires": expires}, "odd": 5})
        Pi().prepare(invocation(home, by))
        assert self.asked(theirs) == []


class TestValues:
    """Credentials that a variable or a command holds are resolved outside, where they are set."""

    def resolved(self, theirs: Path, home: Path, written: str, version: str = NEW, **own: str) -> str:
        write(theirs / "models.json", {"providers": {"lab": {"apiKey": written}}})
        Pi().prepare(invocation(home, op(theirs, version, **own)))
        return str(read_json(home / ".pi" / "agent" / "models.json")["providers"]["lab"]["apiKey"])

    @pytest.mark.parametrize(
        ("written", "kept"),
        [
            ("sk-plain", "sk-plain"),
            ("$KEY", "secret"),
            ("${KEY}", "secret"),
            ("Bearer $KEY!", "Bearer secret!"),
            ("$KEY-${KEY}x", "secret-secretx"),
            ("$ODD", "a$$b$$$$c"),  # written back so that it is read as it was
            ("$BANG", "$!no"),
            ("$$KEY", "$$KEY"),  # an escape, not a variable
            ("$!x", "$!x"),
            ("$KEY$$x", "secret$$x"),
            ("$UNSET", "$UNSET"),  # the CLI says what is missing
            ("$EMPTY", "$EMPTY"),
            ("$KEY and $UNSET", "$KEY and $UNSET"),
            ("KEY", "KEY"),
            ("${not a name}", "${not a name}"),
            ("costs 5$", "costs 5$"),
        ],
    )
    def test_a_variable_is_filled_in(self, theirs: Path, home: Path, written: str, kept: str) -> None:
        own = {"KEY": "secret", "ODD": "a$b$$c", "BANG": "!no", "EMPTY": ""}
        assert self.resolved(theirs, home, written, **own) == kept

    @pytest.mark.parametrize(
        ("version", "written", "kept"),
        [
            (OLD, "KEY", "a$b"),  # older versions read the bare name, and no escapes
            (OLD, "$KEY", "$KEY"),
            (OLD, "NAME", "NAME"),
            ("0.77.0", "KEY", "a$$b"),
            ("0.77.0", "$KEY", "a$$b"),
            ("0.79.4", "KEY", "KEY"),
        ],
    )
    def test_how_a_variable_is_written_depends_on_the_version(
        self, theirs: Path, home: Path, version: str, written: str, kept: str
    ) -> None:
        assert self.resolved(theirs, home, written, version, KEY="a$b") == kept

    @pytest.mark.parametrize(
        ("command", "kept"),
        [
            ("!printf ' a$b \\n'", "a$$b"),
            ("!echo $KEY", "secret"),
            ("!pwd", "*home*"),
            ("!exit 3", "!exit 3"),
            ("!true", "!true"),
            ("!echo partial; exit 1", "!echo partial; exit 1"),
        ],
    )
    def test_a_command_is_run(self, theirs: Path, home: Path, command: str, kept: str) -> None:
        expected = str(theirs.parents[1]) if kept == "*home*" else kept
        assert self.resolved(theirs, home, command, KEY="secret") == expected

    def test_a_command_that_hangs_is_given_up(self, theirs: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("caliper_pipeline.execution.backends.pi_values.COMMAND_SECONDS", 0.2)
        begun = time.monotonic()
        assert self.resolved(theirs, home, "!echo x; sleep 60") == "!echo x; sleep 60"
        assert time.monotonic() - begun < 10

    def test_a_command_is_run_once_for_many_attempts(self, theirs: Path, home: Path) -> None:
        log = theirs / "log"
        for _ in range(3):
            assert self.resolved(theirs, home, f"!echo x >> {log}; echo key") == "key"
        assert log.read_text(encoding="utf-8") == "x\n"

    def test_headers_of_providers_and_models_are_resolved_too(self, theirs: Path, home: Path, agent: Path) -> None:
        headers = {"X": "$KEY", "Y": 5, "Z": "z"}
        provider = {
            "headers": headers,
            "models": [{"id": "m", "headers": headers}, "odd"],
            "modelOverrides": {"n": {"headers": headers}, "o": None},
        }
        write(theirs / "models.json", {"providers": {"lab": provider}})
        Pi().prepare(invocation(home, op(theirs, KEY="secret")))
        kept = read_json(agent / "models.json")["providers"]["lab"]
        wanted = {**headers, "X": "secret"}
        assert [kept["headers"], kept["models"][0]["headers"], kept["modelOverrides"]["n"]["headers"]] == [wanted] * 3

    def test_a_stored_key_is_resolved_and_its_own_variables_go_first(
        self, theirs: Path, home: Path, agent: Path
    ) -> None:
        credential = {"type": "api_key", "key": "${KEY}", "env": {"KEY": "own"}}
        write(theirs / "auth.json", {"lab": credential, "other": {"type": "api_key", "key": "$KEY"}})
        write(theirs / "models.json", {"providers": {"lab": {"headers": {"X": "$KEY"}}}})
        Pi().prepare(invocation(home, op(theirs, KEY="outer")))
        auth = read_json(agent / "auth.json")
        assert (auth["lab"]["key"], auth["other"]["key"]) == ("own", "outer")
        assert read_json(agent / "models.json")["providers"]["lab"]["headers"] == {"X": "own"}

    def test_comments_and_commas_at_the_end_are_no_error(self) -> None:
        text = '\ufeff{\n// c\n"a": "http://x, ]", "b": [1, 2, ], // d\n"c": {"e": "\\"//", },\n}'
        assert loads(text.encode()) == {"a": "http://x, ]", "b": [1, 2], "c": {"e": '"//'}}


class TestSettings:
    def test_the_default_model_stays_and_customizations_go(self, theirs: Path, home: Path, agent: Path) -> None:
        kept = {"defaultProvider": "lab", "defaultModel": "m", "defaultThinkingLevel": "high", "httpProxy": "http://p"}
        gone = {
            "packages": ["npm:x"],
            "extensions": ["-builtin:mcp"],
            "skills": ["~/s"],
            "prompts": [],
            "themes": [],
            "theme": "dark",
            "shellCommandPrefix": "x",
            "defaultTools": ["+grep"],
            "sessionDir": "/elsewhere",
        }
        write(theirs / "settings.json", {**kept, **gone})
        Pi().prepare(invocation(home, op(theirs)))
        written = read_json(agent / "settings.json")
        assert {key: written[key] for key in kept} == kept
        assert set(written) == {*kept, "retry", "enableInstallTelemetry", "enableAnalytics"}

    @pytest.mark.parametrize(
        ("theirs", "seconds", "tries"),
        [
            ({}, 120.0, 3),
            ({}, 20.0, 1),
            ({}, 1.0, 0),
            ({"maxRetries": 10, "baseDelayMs": 1_000}, 120.0, 4),
            ({"maxRetries": 10, "baseDelayMs": 1_000, "maxAgentDelayMs": 2_000}, 120.0, 10),
            ({"maxRetries": 2, "baseDelayMs": 10}, 120.0, 2),
            ({"maxRetries": "many", "baseDelayMs": None}, 120.0, 3),
        ],
    )
    def test_the_clis_own_tries_fit_into_its_time(self, theirs: dict[str, Any], seconds: float, tries: int) -> None:
        retry = for_attempt({"retry": {**theirs, "enabled": True}}, seconds)["retry"]
        assert (retry["maxRetries"], retry["enabled"], retry["provider"]) == (tries, True, {"maxRetries": 0})

    @pytest.mark.parametrize("retry", [None, 5, [], {"provider": "x"}])
    def test_odd_settings_of_tries_are_passed_over(self, retry: Any) -> None:
        assert for_attempt({"retry": retry}, 120.0)["retry"]["maxRetries"] == 3


class TestServers:
    def test_they_are_written_as_the_cli_reads_them(self, theirs: Path, home: Path, agent: Path) -> None:
        servers = (
            Server("a", "stdio", command="npx", args=("-y", "$x"), env={"T": "a$b", "U": "!v"}),
            Server("b", "http", url="https://x/mcp", headers={"Authorization": "Bearer $t"}),
        )
        write(theirs / "mcp.json", {"mcpServers": {"theirs": {"command": "x"}}})
        Pi().prepare(invocation(home, op(theirs), servers=servers))
        assert read_json(agent / "mcp.json") == {
            "mcpServers": {
                "a": {
                    "command": "npx",
                    "args": ["-y", "$x"],
                    "env": {"T": "a$$b", "U": "$!v"},
                    "exposure": "direct",
                },
                "b": {
                    "type": "http",
                    "url": "https://x/mcp",
                    "headers": {"Authorization": "Bearer $$t"},
                    "exposure": "direct",
                },
            }
        }
        assert stat.S_IMODE((agent / "mcp.json").stat().st_mode) == 0o600

    def test_a_transport_that_the_cli_does_not_speak_is_refused(self, theirs: Path, home: Path) -> None:
        with pytest.raises(CannotRun, match="mcp: old: pi does not speak the older SSE transport"):
            Pi().prepare(invocation(home, op(theirs), servers=(Server("old", "sse", url="http://x/sse"),)))

    def test_two_names_that_the_cli_does_not_tell_apart_are_refused(self, theirs: Path, home: Path) -> None:
        servers = (Server("a-b", "stdio", command="x"), Server("a_b", "stdio", command="x"))
        with pytest.raises(CannotRun, match=r"mcp: a_b: .* the same name as a-b"):
            Pi().prepare(invocation(home, op(theirs), servers=servers))


class TestPlanting:
    SKILL = "---\r\nname: notes\r\ndescription: x\r\n---\r\n\r\n# Notes\r\n---\r\nMore.\r\n"

    def planted(self, theirs: Path, home: Path, *turns: PlantedTurn) -> list[dict[str, Any]]:
        write(home / ".pi" / "agent" / "skills" / "notes" / "SKILL.md", self.SKILL)
        given = invocation(home, op(theirs), history=turns, skills=("notes",))
        text = Path(Pi().plant(given)).read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]

    def test_the_session_lies_where_the_cli_keeps_its_own(self, theirs: Path, home: Path, agent: Path) -> None:
        given = invocation(home, op(theirs), history=(PlantedTurn(user="hi"),))
        path = Path(Pi().plant(given))
        folder = str(given.workdir).removeprefix("/").replace("/", "-")
        assert path.parent == agent / "sessions" / f"--{folder}--"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def test_messages_are_chained_and_dated_in_order(self, theirs: Path, home: Path) -> None:
        turns = (PlantedTurn(user="hi"), PlantedTurn(assistant="I.", shell=(ShellCall(run="ls", output="x"),)))
        header, *messages = self.planted(theirs, home, *turns)
        assert (header["type"], header["version"], header["cwd"]) == ("session", 3, str(home / "w"))
        assert [line["parentId"] for line in messages] == [None, *(line["id"] for line in messages[:-1])]
        times = [line["timestamp"] for line in (header, *messages)]
        assert times == sorted(set(times))
        user, assistant, result = (line["message"] for line in messages)
        assert user["content"] == [{"type": "text", "text": "hi"}]
        assert [block["type"] for block in assistant["content"]] == ["text", "toolCall"]
        assert (assistant["stopReason"], assistant["usage"]["totalTokens"]) == ("toolUse", 0)
        assert (result["toolCallId"], result["isError"]) == (assistant["content"][1]["id"], False)

    def test_a_command_that_printed_nothing_says_so_as_the_tool_would(self, theirs: Path, home: Path) -> None:
        turns = (PlantedTurn(user="hi"), PlantedTurn(assistant="", shell=(ShellCall(run=":", output=""),)))
        _, _, assistant, result = self.planted(theirs, home, *turns)
        assert [block["type"] for block in assistant["message"]["content"]] == ["toolCall"]
        assert result["message"]["content"] == [{"type": "text", "text": "(no output)"}]

    @pytest.mark.parametrize("typed", ["/notes for 1.0", "/skill:notes for 1.0", " /notes   for 1.0\n"])
    def test_a_slash_command_of_an_installed_skill_is_expanded(self, theirs: Path, home: Path, typed: str) -> None:
        _, user = self.planted(theirs, home, PlantedTurn(user=typed))
        place = home / ".pi" / "agent" / "skills" / "notes"
        assert user["message"]["content"][0]["text"] == (
            f'<skill name="notes" location="{place}/SKILL.md">\nReferences are relative to {place}.\n\n'
            "# Notes\n---\nMore.\n</skill>\n\nfor 1.0"
        )

    def test_without_arguments_nothing_follows_the_skill(self, theirs: Path, home: Path) -> None:
        _, user = self.planted(theirs, home, PlantedTurn(user="/notes"))
        assert user["message"]["content"][0]["text"].endswith("More.\n</skill>")

    @pytest.mark.parametrize("typed", ["/other x", "/skill:other x", "/tmp/notes", "/Notes", "see /notes"])
    def test_anything_else_stays_as_it_was_typed(self, theirs: Path, home: Path, typed: str) -> None:
        _, user = self.planted(theirs, home, PlantedTurn(user=typed))
        assert user["message"]["content"][0]["text"] == typed

    def test_each_spawn_gets_a_session_of_its_own(self, theirs: Path, home: Path, agent: Path) -> None:
        given = invocation(home, op(theirs), history=(PlantedTurn(user="hi"),))
        first = Path(Pi().plant(given))
        second = Path(Pi().plant(given))
        assert first != second
        assert list(agent.rglob("*.jsonl")) == [second]

    def test_half_a_surrogate_pair_can_be_planted(self, theirs: Path, home: Path) -> None:
        _, user = self.planted(theirs, home, PlantedTurn.model_construct(user="a \ud83d b"))
        assert user["message"]["content"][0]["text"] == "a ? b"


def test_no_path_or_name_in_the_home_tells_of_an_evaluation(theirs: Path, home: Path) -> None:
    write(theirs / "auth.json", {})
    given = invocation(home, op(theirs), history=(PlantedTurn(user="hi"), PlantedTurn(assistant="yo")))
    Pi().prepare(given)
    Pi().plant(given)
    told = [*tree(home), *(Path(home, name).read_text(encoding="utf-8") for name in tree(home))]
    assert not [text for text in told for word in ("caliper", "planted", "eval") if word in _own(text, home)]


def _own(text: str, home: Path) -> str:
    here = str(home.parent)
    return text.replace(here, "").replace(here.replace(os.sep, "-").removeprefix("-"), "").lower()
