"""The real codex CLI, driven through the backend against a model that plays scenarios."""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp_server import McpServer, read_log, stdio_args
from model_server import ModelServer

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.observations import observe_activation
from caliper_pipeline.domain.transcript import Turn, Usage
from caliper_pipeline.execution.backends.base import Server
from caliper_pipeline.execution.backends.codex import Codex
from caliper_pipeline.execution.command import StopToken
from caliper_pipeline.execution.judge.assertion import run_assert
from caliper_pipeline.execution.process import ProcessLauncher
from caliper_pipeline.execution.workdir import make_attempt_folder

from .codex_driver import BUILT_IN, MODEL, SKILL, Real, sh

pytestmark = pytest.mark.real_cli

OWN_SKILL = "---\nname: {}\ndescription: Does {} things.\n---\n\nDo.\n"
RATE_LIMIT = {"status": 429, "error_type": "rate_limit_error", "message": "Slow down.", "repeat": 50}
BAD_KEY = {"status": 401, "message": "Incorrect API key provided: sk-test.", "repeat": 50}
VERDICT = '{"reasoning": "The transcript says so.", "passed": true}'


@pytest.fixture
def real(models: ModelServer, launcher: ProcessLauncher, codex_binary: Path) -> Iterator[Real]:
    stop = StopToken()
    with make_attempt_folder() as folder:
        yield Real(models, launcher, codex_binary, folder, stop)
        launcher.end_group(folder.group)
    stop.close()


def test_the_version_is_the_pinned_one(real: Real) -> None:
    info = Codex().check(real.operator(""), (), Engine("codex"), None)
    pinned = (Path(__file__).parent / "package.json").read_text(encoding="utf-8")
    assert info.version is not None
    assert f'"{info.version.split()[-1]}"' in pinned


def test_a_plain_answer(real: Real) -> None:
    ran = real.attempt({"turns": [{"text": ["High water ", "is at 12:04."]}]}, prompt="--version")
    assert (ran.result.exit_code, ran.result.stderr) == (0, b"")
    assert (ran.reply.final_answer, ran.reply.finished, ran.refusal) == ("High water is at 12:04.", True, None)
    assert ran.reply.turns == (Turn("assistant", "High water is at 12:04."),)
    assert (ran.reply.usage, ran.reply.model) == (Usage(100, 20, 0, 0), MODEL)
    assert ran.reply.unreadable_lines == 0
    assert "--version" in ran.requests[0].user_text
    assert ran.requests[0].headers["authorization"] == "Bearer sk-test"


def test_without_a_model_it_is_the_clis_own_and_not_the_one_that_the_operator_pinned(real: Real) -> None:
    ran = real.attempt({"turns": [{"text": "ok"}]}, model=None)
    assert ran.reply.final_answer == "ok"
    assert ran.reply.model == ran.requests[0].body["model"]
    assert ran.reply.model != "operator-model"


def test_a_tool_writes_a_file_that_an_assert_then_checks(real: Real) -> None:
    patch = "*** Begin Patch\n*** Add File: note.txt\n+hello\n*** End Patch\n"
    ran = real.attempt(
        {
            "turns": [
                {"text": "Writing.", "tools": [sh("echo grüße > out.txt && echo done")]},
                {"tools": [{"name": "apply_patch", "kind": "custom", "input": patch}]},
                {"text": "Written.", "usage": {"cache_read_input_tokens": 50}},
            ]
        }
    )
    calls = [turn.tool_name for turn in ran.reply.turns if turn.role == "tool_use"]
    assert calls == ["shell", "file_change"]
    assert (ran.reply.turns[2].content, ran.reply.turns[2].is_error) == ("done\n", False)
    assert ran.reply.usage == Usage(300, 60, 50, 0)
    checked = run_assert(
        real.launcher,
        real.stop,
        script="assert open('out.txt').read() == 'grüße\\n' and open('note.txt').read() == 'hello\\n'",
        script_path=None,
        folder=ran.folder,
        env={"PATH": os.environ["PATH"]},
    )
    assert checked.passed is True, checked.evidence


def test_an_installed_skill_is_listed_and_activated_when_it_is_read(real: Real) -> None:
    look = sh("ls ~/.codex/skills; rg --files -g '**/SKILL.md' ~/.codex/skills")
    only_seen = {"turns": [{"tools": [look]}, {"text": "Seen."}]}
    read = {"turns": [{"tools": [sh("cat ~/.codex/skills/zebra-counter/SKILL.md")]}, {"text": "Three."}]}
    ran = real.attempt({"when": [{"text": "Look", **only_seen}], **read}, skills=("zebra-counter",))
    assert "- zebra-counter: Counts zebras." in ran.requests[0].text
    assert "Run `grep -c zebra`." in ran.requests[1].text
    installed = ("zebra-counter", "other")
    assert observe_activation(ran.reply.turns, installed, backend="codex") == ("zebra-counter",)
    assert observe_activation(ran.reply.turns, ("skill-creator",), backend="codex") == ()


def customize(real: Real) -> None:
    real.write(".codex/AGENTS.md", "OPERATOR RULES")
    real.write(".codex/skills/deep/own/SKILL.md", OWN_SKILL.format("own-skill", "own"))
    real.write(".agents/skills/shared/SKILL.md", OWN_SKILL.format("shared-skill", "shared"))
    real.write(".codex/skills/zebras/SKILL.md", OWN_SKILL.format("zebra-counter", "their"))
    plugin = ".codex/plugins/cache/local/demo/1.0.0"
    real.write(f"{plugin}/.codex-plugin/plugin.json", '{"name": "demo", "version": "1.0.0", "skills": "./skills/"}')
    real.write(f"{plugin}/skills/plugged/SKILL.md", OWN_SKILL.format("plugged", "plugged"))


def servers_of(real: Real, *names: str) -> str:
    return "".join(
        f"[mcp_servers.{name}]\ncommand = '{sys.executable}'\nargs = {stdio_args(real.folder.private / name)}\n"
        for name in names
    )


def test_nothing_of_the_operators_and_no_word_of_an_evaluation_reaches_the_model(real: Real) -> None:
    customize(real)
    ran = real.attempt(
        {"turns": [{"tools": [sh("env; pwd; cat ~/.codex/config.toml")]}, {"text": "ok"}]},
        top=servers_of(real, "theirs"),
        given={"extra_path": ("/opt/extra",)},
    )
    seen = ran.requests[-1].text
    assert "OPERATOR RULES" not in seen
    assert "own-skill" not in seen
    assert "shared-skill" not in seen
    assert "operator-model" not in seen
    assert ran.reply.mcp_servers == ()
    assert read_log(real.folder.private / "theirs") == []
    output = ran.reply.turns[1].content
    assert f"HOME={ran.folder.home}\n" in output
    # Commands run in a login shell, which on many systems would set another search path.
    assert "/opt/extra:" in next(line for line in output.splitlines() if line.startswith("PATH="))
    assert "caliper" not in (seen + " ".join(ran.folder.home.parts)).lower()


def test_the_operators_customizations_load_when_wanted(real: Real) -> None:
    customize(real)
    call = {"name": "echo", "namespace": "mcp__theirs", "input": {"text": "hi"}}
    ours = Server(name="ours-too", kind="stdio", command=sys.executable, args=tuple(stdio_args()))
    ran = real.attempt(
        {"turns": [{"tools": [call]}, {"text": "ok"}]},
        skills=("zebra-counter",),
        top=servers_of(real, "theirs", "ours_too") + '[plugins."demo@local"]\nenabled = true\n',
        given={"isolated": False, "servers": (ours,), "declared_servers": ("ours-too",)},
    )
    seen = ran.requests[0].text
    assert "OPERATOR RULES" in seen
    assert "- own-skill: Does own things." in seen
    assert "- shared-skill: Does shared things." in seen
    assert "- demo:plugged: Does plugged things." in seen
    assert "- zebra-counter: Counts zebras." in seen
    assert "their things" not in seen
    assert (ran.reply.mcp_servers, ran.reply.model) == (("ours-too", "theirs"), MODEL)
    assert ran.reply.turns[1].content == "echo: hi"
    assert read_log(real.folder.private / "ours_too") == []


def test_a_declared_server_that_takes_its_time_is_waited_for_and_called(real: Real, tmp_path: Path) -> None:
    log = tmp_path / "log"
    calls = [
        {"name": "echo", "namespace": "mcp__my_srv", "input": {"text": "hi"}},
        {"name": "env", "namespace": "mcp__my_srv", "input": {"text": "TOKEN"}},
    ]
    server = Server(
        name="my-srv",
        kind="stdio",
        command=sys.executable,
        args=tuple(stdio_args(log, "--slow", "1.5")),
        env={"TOKEN": "s3cret"},
    )
    ran = real.attempt({"turns": [{"tools": calls}, {"text": "ok"}]}, given={"servers": (server,)})
    named = [turn.tool_name for turn in ran.reply.turns if turn.role == "tool_use"]
    assert named == ["mcp__my-srv__echo", "mcp__my-srv__env"]
    results = [turn.content for turn in ran.reply.turns if turn.role == "tool_result"]
    assert results == ["echo: hi", "s3cret"]
    assert ran.reply.mcp_servers == ("my-srv",)
    assert "s3cret" not in " ".join(read_log(log)[0]["start"]["argv"])


def test_a_server_is_reached_by_url_with_its_headers(real: Real) -> None:
    with McpServer("http", token="secret") as http:
        call = {"name": "shout", "namespace": "mcp__far", "input": {"text": "hi"}}
        server = Server(name="far", kind="http", url=http.url, headers={"Authorization": "Bearer secret"})
        ran = real.attempt({"turns": [{"tools": [call]}, {"text": "ok"}]}, given={"servers": (server,)})
    assert ran.reply.turns[1].content == "HI"


def test_a_declared_server_that_does_not_start_is_an_error_and_costs_nothing(real: Real) -> None:
    server = Server(name="dead", kind="stdio", command="/no/such/server")
    ran = real.attempt({"turns": [{"text": "ok"}]}, given={"servers": (server,)})
    assert (ran.result.exit_code, ran.requests, ran.reply.spoke, ran.refusal) == (1, [], False, None)
    assert b"required MCP servers failed to initialize: dead" in ran.result.stderr


def test_a_planted_conversation_is_taken_up(real: Real) -> None:
    history = [
        {"user": "My number is 4711. Räume auf."},
        {"assistant": "I look.", "shell": [{"run": "ls", "output": "a.txt\n"}, {"run": "pwd", "output": "/w\n"}]},
        {"assistant": "Noted."},
        {"user": "/zebra-counter the herd"},
        {"assistant": "Three."},
        {"user": "/unknown thing"},
    ]
    ran = real.attempt(
        {"turns": [{"text": "It is 4711."}]}, prompt="What number?", history=history, skills=("zebra-counter",)
    )
    assert (ran.reply.final_answer, ran.result.exit_code) == ("It is 4711.", 0)
    # Nothing was paid for what was planted, and it is not the agent's own doing.
    assert ran.reply.usage == Usage(100, 20, 0, 0)
    assert ran.reply.turns == (Turn("assistant", "It is 4711."),)
    assert ran.reply.model == MODEL
    items = [item for item in ran.requests[0].body["input"] if item.get("role") != "developer"]
    told = [
        item.get("output") or item.get("arguments") or "".join(part["text"] for part in item["content"])
        for item in items
        if "environment_context" not in str(item)
    ]
    file = ran.folder.home / ".codex" / "skills" / "zebra-counter" / "SKILL.md"
    assert told == [
        "My number is 4711. Räume auf.",
        "I look.",
        '{"cmd": "ls"}',
        "a.txt\n",
        '{"cmd": "pwd"}',
        "/w\n",
        "Noted.",
        "$zebra-counter the herd",
        f"<skill>\n<name>zebra-counter</name>\n<path>{file}</path>\n{SKILL}\n</skill>",
        "Three.",
        "/unknown thing",
        "What number?",
    ]


def test_a_planted_call_of_a_skill_is_what_the_cli_makes_of_a_typed_one(real: Real) -> None:
    ran = real.attempt({"turns": [{"text": "Three."}]}, prompt="$zebra-counter the herd", skills=("zebra-counter",))
    file = ran.folder.home / ".codex" / "skills" / "zebra-counter" / "SKILL.md"
    made = f"<skill>\n<name>zebra-counter</name>\n<path>{file}</path>\n{SKILL}\n</skill>"
    assert made in ran.requests[0].user_text


def test_what_a_sub_agent_does_is_told_apart_and_counted(real: Real) -> None:
    job = {"name": "spawn_agent", "namespace": "multi_agent_v1", "input": {"message": "SUBJOB"}}
    theirs = [{"tools": [sh("cat skills/zebra-counter/SKILL.md; echo sub > sub.txt")]}, {"text": "sub done"}]
    wait = sh("until [ -e sub.txt ]; do sleep 0.05; done; sleep 0.3")
    turns = [{"tools": [job]}, {"tools": [wait]}, {"text": "Done."}]
    # The name of a model that the CLI does not know brings tools without a search for them.
    reply = real.attempt({"when": [{"text": "SUBJOB", "turns": theirs}], "turns": turns}, model="some-model").reply
    started = reply.turns[0]
    sub = [turn for turn in reply.turns if turn.parent_call_id == started.call_id]
    assert [turn.role for turn in sub[:2]] == ["tool_use", "tool_result"]
    assert sub[0].tool_input is not None
    assert "zebra-counter/SKILL.md" in sub[0].tool_input["command"]
    assert reply.final_answer == "Done."
    assert reply.usage is not None
    assert reply.usage.output_tokens in (80, 100)  # the sub-agent's last words may come too late


@pytest.mark.parametrize(
    ("login", "environment", "sent"),
    [
        ('{"OPENAI_API_KEY": "sk-file"}', {}, "Bearer sk-file"),
        ("", {"CODEX_API_KEY": "sk-key"}, "Bearer sk-key"),
        ("", {"OPENAI_API_KEY": "sk-old"}, "Bearer sk-old"),
        # A key wins over a login, and may belong to an account without credit.
        ('{"OPENAI_API_KEY": "sk-file"}', {"CODEX_API_KEY": "sk-key"}, "Bearer sk-file"),
    ],
    ids=["login", "key", "key under its older name", "login and key"],
)
def test_a_login_or_a_key_reaches_the_service(real: Real, login: str, environment: dict[str, str], sent: str) -> None:
    if login:
        real.write(".codex/auth.json", login)
    ran = real.attempt({"turns": [{"text": "ok"}]}, config=BUILT_IN, **environment)
    assert (ran.reply.final_answer, ran.requests[0].headers["authorization"]) == ("ok", sent)


def test_a_refused_key_is_a_refusal_for_good(real: Real) -> None:
    ran = real.attempt({"turns": [BAD_KEY]})
    assert ran.result.exit_code == 1
    assert ran.refusal is not None
    assert (ran.refusal.kind, ran.reply.spoke, len(ran.requests)) == ("login", False, 1)


def test_no_key_at_all_is_a_refusal_for_good(real: Real) -> None:
    ran = real.attempt({"turns": []}, OURS_API_KEY="")
    assert ran.refusal is not None
    assert (ran.refusal.kind, ran.requests) == ("configuration", [])
    assert "OURS_API_KEY" in ran.refusal.text


def test_an_unknown_model_is_a_refusal_for_good(real: Real) -> None:
    error = {"status": 404, "code": "model_not_found", "message": "The model `no-such-model` does not exist."}
    ran = real.attempt({"turns": [error]}, model="no-such-model")
    assert ran.refusal is not None
    assert ran.refusal.kind == "model"
    assert {request.body["model"] for request in ran.requests} == {"no-such-model"}


def test_a_configuration_that_the_cli_refuses_is_a_refusal_for_good(real: Real) -> None:
    ran = real.attempt({"turns": []}, top='forced_login_method = "by post"')
    assert ran.refusal is not None
    assert (ran.refusal.kind, ran.requests) == ("configuration", [])
    assert "forced_login_method" in ran.refusal.text


def test_a_throttle_that_ends_in_time_is_none(real: Real) -> None:
    # The CLI tries again only where the service says when.
    once = {**RATE_LIMIT, "repeat": 1, "headers": {"retry-after": "0"}}
    ran = real.attempt({"turns": [once, {"text": "recovered"}]}, retries=2)
    assert (ran.reply.final_answer, ran.refusal, len(ran.requests)) == ("recovered", None, 2)
    assert b"Reconnecting" in ran.result.stdout


@pytest.mark.parametrize(
    ("turn", "kind"),
    [
        (RATE_LIMIT, "throttle"),
        ({"status": 503, "code": "server_is_overloaded", "message": "busy", "repeat": 50}, "throttle"),
        ({"status": 429, "error_type": "usage_limit_reached", "message": "spent", "repeat": 50}, "cap"),
    ],
    ids=["429", "overloaded", "usage limit"],
)
def test_a_throttle_and_a_cap_are_told_apart(real: Real, turn: dict[str, Any], kind: str) -> None:
    ran = real.attempt({"turns": [turn]})
    assert ran.result.exit_code == 1
    assert ran.refusal is not None
    assert (ran.refusal.kind, ran.reply.finished) == (kind, False)


def test_what_was_paid_for_is_known_of_a_turn_that_failed(real: Real) -> None:
    ran = real.attempt({"turns": [{"tools": [sh("true")]}, {"status": 500, "message": "boom", "repeat": 50}]})
    assert (ran.reply.finished, ran.reply.usage, ran.reply.model) == (False, Usage(100, 20, 0, 0), MODEL)


def test_an_attempt_that_hangs_is_ended_at_its_limit_with_all_that_it_started(real: Real) -> None:
    begun = time.monotonic()
    # In a session of its own, where a signal to the CLI's group does not reach it.
    tool = sh("setsid sleep 987 & echo $! > pid.txt; sleep 986")
    ran = real.attempt({"turns": [{"tools": [tool]}]}, seconds=8.0)
    assert ran.result.timed_out
    assert time.monotonic() - begun < 30
    assert ran.refusal is None
    assert [turn.role for turn in ran.reply.turns] == ["tool_use"]
    assert ran.reply.usage == Usage(100, 20, 0, 0)
    pid = int((ran.folder.workdir / "pid.txt").read_text(encoding="utf-8"))
    real.launcher.end_group(ran.folder.group)
    assert not Path(f"/proc/{pid}").exists() or "sleep" not in Path(f"/proc/{pid}/cmdline").read_text("utf-8")
    ran.folder.remove()
    assert not ran.folder.top.exists()


def test_a_server_that_never_answers_is_left_at_the_limit(real: Real) -> None:
    ran = real.attempt({"turns": [{"hang": True}]}, seconds=4.0)
    assert (ran.result.timed_out, ran.refusal, ran.reply.spoke) == (True, None, False)


def test_a_judge_answers_without_tools_skills_or_a_coding_agents_prompt(real: Real) -> None:
    customize(real)
    real.write(".codex/prompts/x.md", "x")
    result, requests = real.judge({"turns": [{"text": VERDICT}]})
    assert (result.passed, result.reasoning) == (True, "The transcript says so.")
    assert (result.usage, result.model) == (Usage(100, 20, 0, 0), MODEL)
    (request,) = requests
    # Neither does anything: its sandbox refuses the one, and nobody answers the other.
    assert set(request.tools) <= {"apply_patch", "request_user_input"}
    assert "At 12:04." in request.user_text
    assert "OPERATOR RULES" not in request.text
    assert "skill" not in request.text.lower().replace(request.user_text.lower(), "")
    assert len(request.text) - len(request.user_text) < 2_000


def test_a_judge_changes_no_file(real: Real) -> None:
    patch = {"name": "apply_patch", "kind": "custom", "input": "*** Begin Patch\n*** Add File: x\n+x\n*** End Patch\n"}
    result, requests = real.judge({"turns": [{"tools": [patch]}, {"text": VERDICT}]})
    assert result.passed is True
    assert "read-only sandbox" in str(requests[-1].body["input"][-1])


def test_a_transcript_too_long_for_the_cli_is_shortened(real: Real) -> None:
    result, requests = real.judge({"turns": [{"text": VERDICT}]}, turns=(Turn("assistant", "Tide. " * 200_000),))
    assert result.passed is True, result.error
    # The first question never left the CLI.
    assert (result.retries, [len(request.user_text) < 500_000 for request in requests]) == (1, [True])


def test_a_judge_that_is_throttled_and_malformed_gets_there(real: Real) -> None:
    turns = [{**RATE_LIMIT, "repeat": 1}, {"text": "It passed."}, {"text": f"```json\n{VERDICT}\n```"}]
    result, requests = real.judge({"turns": turns, "shared": True})
    assert (result.passed, result.retries, len(requests)) == (True, 2, 3)


def test_a_judge_without_a_login_is_refused_for_good_whatever_it_was_to_judge(real: Real) -> None:
    said = Turn("assistant", "ERROR: Quota exceeded.\nERROR: 429 rate limit")
    result, _ = real.judge({"turns": [BAD_KEY]}, turns=(said,))
    assert result.refusal is not None
    assert result.refusal.kind == "login"
