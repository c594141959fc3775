"""The real hermes CLI, driven through the backend against a model that plays scenarios.

Each call takes 2 to 4 s of processor time, so one conversation shows several things where they do not disturb each
other. Time limits are many times what a call takes, since several run at once on few cores.
"""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mcp_server
import pytest
import yaml
from mcp_server import McpServer
from model_server import ModelServer, Request

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.observations import observe_activation
from caliper_pipeline.domain.transcript import AgentReply, Turn, Usage
from caliper_pipeline.execution.backends.base import Invocation, Operator, Refusal, Server
from caliper_pipeline.execution.backends.hermes import Hermes
from caliper_pipeline.execution.command import ProcessResult, StopToken
from caliper_pipeline.execution.judge.assertion import run_assert
from caliper_pipeline.execution.judge.autorater import ask_judge
from caliper_pipeline.execution.process import ProcessLauncher
from caliper_pipeline.execution.workdir import AttemptFolder, make_attempt_folder

pytestmark = pytest.mark.real_cli

LIMIT_SECONDS = 90.0
SKILL = (
    "---\nname: zebra-counter\ndescription: Counts zebras. Use when asked about zebras.\n---\n\nRun `grep -c zebra`.\n"
)
VERDICT = '{"reasoning": "The transcript says so.", "passed": true}'


def terminal(command: str) -> dict[str, Any]:
    return {"name": "terminal", "input": {"command": command}}


@dataclass
class Ran:
    """One attempt as the backend saw it."""

    result: ProcessResult
    reply: AgentReply
    refusal: Refusal | None
    requests: list[Request]
    folder: AttemptFolder

    @property
    def steps(self) -> list[str]:
        return [turn.tool_name or turn.role for turn in self.reply.turns]


@dataclass
class Real:
    """Plays a scenario to the real CLI."""

    models: ModelServer
    launcher: ProcessLauncher
    binary: Path
    folder: AttemptFolder
    stop: StopToken

    @property
    def theirs(self) -> Path:
        """The operator's home."""
        return self.folder.private / "operator"

    def operator(self, url: str, **settings: Any) -> Operator:
        config = {
            # Without a length it would look that up in a catalogue on the internet.
            "model": {"provider": "lab", "default": "scripted-1", "context_length": 200_000},
            "providers": {"lab": {"base_url": f"{url}/v1", "api_key": "sk-test", "api_mode": "chat_completions"}},
        }
        for name, value in settings.items():
            config[name] = {**config.get(name, {}), **value}
        place = self.theirs / ".hermes" / "config.yaml"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(yaml.safe_dump(config), encoding="utf-8")
        base = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        given = {"HERMES_CLI_PATH": str(self.binary)}
        return Operator(environment={**base, **given}, allowed=base, agent_allowed={}, home=self.theirs)

    def customize(self) -> None:
        own = self.theirs / ".hermes"
        for name, text in {
            "SOUL.md": "OPERATOR PERSONA",
            "memories/MEMORY.md": "OPERATOR MEMORY",
            "memories/USER.md": "OPERATOR PROFILE",
            "skills/theirs/own-skill/SKILL.md": "---\nname: own-skill\ndescription: Does their thing.\n---\n\nDo.\n",
        }.items():
            (own / name).parent.mkdir(parents=True, exist_ok=True)
            (own / name).write_text(text, encoding="utf-8")

    def attempt(
        self,
        scenario: dict[str, Any],
        *,
        prompt: str = "Do the task.",
        model: str | None = None,
        seconds: float = LIMIT_SECONDS,
        skill: bool = False,
        settings: dict[str, Any] | None = None,
        **facts: Any,
    ) -> Ran:
        url = self.models.add(scenario)
        backend = Hermes()
        given = Invocation(
            engine=Engine("hermes", model),
            prompt=prompt,
            home=self.folder.home,
            workdir=self.folder.workdir,
            operator=self.operator(url, **(settings or {})),
            timeout_seconds=seconds,
            group=self.folder.group,
            skills=("zebra-counter",) if skill else (),
            **facts,
        )
        backend.prepare(given)
        if skill:
            place = backend.skills_root(self.folder.home) / "zebra-counter"
            place.mkdir(parents=True)
            (place / "SKILL.md").write_text(SKILL, encoding="utf-8")
        result = self.launcher.run(backend.command(given), self.stop)
        rescue = backend.recovery(given, result)
        assert rescue is not None
        told = self.launcher.run(rescue, self.stop)
        result = ProcessResult(result.exit_code, result.stdout + told.stdout, result.stderr, timed_out=result.timed_out)
        reply = backend.read(result, given)
        return Ran(result, reply, backend.refusal(result, reply), self.models.requests(url), self.folder)


@pytest.fixture
def real(models: ModelServer, launcher: ProcessLauncher, hermes_binary: Path) -> Iterator[Real]:
    stop = StopToken()
    with make_attempt_folder() as folder:
        yield Real(models, launcher, hermes_binary, folder, stop)
        launcher.end_group(folder.group)
    stop.close()


def test_the_version_is_the_pinned_one(real: Real) -> None:
    info = Hermes().check(real.operator("http://127.0.0.1:9"), (), Engine("hermes"), None)
    pinned = (Path(__file__).parent / "hermes.txt").read_text(encoding="utf-8").strip().rpartition("==")[2]
    assert info.version is not None
    assert info.version.startswith(f"Hermes Agent v{pinned} ")
    assert info.capabilities is not None
    assert info.capabilities.mcp
    assert not info.capabilities.history


def test_an_isolated_attempt_sees_its_task_and_nothing_of_the_operators(real: Real) -> None:
    real.customize()
    (real.folder.workdir / "AGENTS.md").write_text("RULES OF THE TASK", encoding="utf-8")
    prompt = '--version "it\'s" $(touch hit) `touch hit` model\nsecond line'
    look = terminal("env; pwd; tr '\\0' ' ' < /proc/$PPID/cmdline")
    ran = real.attempt(
        {"turns": [{"tools": [look]}, {"text": ["High water ", "is at 12:04."]}]},
        prompt=prompt,
        model="scripted-2",
        extra_path=("/opt/extra bin",),
    )
    assert (ran.result.exit_code, ran.result.stderr) == (0, b"")
    assert (ran.reply.final_answer, ran.reply.finished, ran.refusal) == ("High water is at 12:04.", True, None)
    assert ran.steps == ["terminal", "tool_result", "assistant"]
    assert (ran.reply.usage, ran.reply.model, ran.reply.unreadable_lines) == (Usage(200, 40, 0, 0), "scripted-2", 0)
    # The prompt arrived as it is, and no shell had a look at it.
    assert prompt in ran.requests[0].user_text
    assert sorted(path.name for path in ran.folder.workdir.iterdir()) == ["AGENTS.md"]
    assert {request.body["model"] for request in ran.requests} == {"scripted-2"}
    assert ran.requests[0].headers["authorization"] == "Bearer sk-test"
    seen = ran.requests[-1].text
    assert "RULES OF THE TASK" in seen
    assert "OPERATOR" not in seen
    assert "own-skill" not in seen
    assert "caliper" not in seen.lower()
    told = ran.reply.turns[1].content
    assert "\nPATH=/opt/extra bin:" in f"\n{told}"
    assert f"\nHOME={ran.folder.home}\n" in f"\n{told}"


def test_the_operators_customizations_load_when_wanted_and_an_installed_skill_is_activated(real: Real) -> None:
    real.customize()
    call = {"name": "skill_view", "input": {"name": "zebra-counter"}}
    ran = real.attempt({"turns": [{"tools": [call]}, {"text": "Three."}]}, skill=True, isolated=False)
    seen = ran.requests[0].text
    for words in ("OPERATOR PERSONA", "OPERATOR MEMORY", "OPERATOR PROFILE", "own-skill", "zebra-counter"):
        assert words in seen
    assert "Run `grep -c zebra`." in ran.requests[1].text
    assert observe_activation(ran.reply.turns, ["zebra-counter", "own-skill"], backend="hermes") == ("zebra-counter",)


def test_tools_and_a_sub_agent_write_files_that_an_assert_then_checks(real: Real) -> None:
    job = {"name": "delegate_task", "input": {"goal": "Write the SUBNOTE."}}
    also = {"name": "write_file", "input": {"path": "{workdir}/note.txt", "content": "hello\n"}}
    scenario = {
        "turns": [
            {"text": "Writing.", "tools": [terminal("echo grüße > out.txt && echo done; exit 3"), also]},
            {"tools": [job]},
            {"text": "Written."},
        ],
        "when": [
            {"text": "Write the SUBNOTE.", "turns": [{"tools": [terminal("echo sub > sub.txt")]}, {"text": "ok"}]}
        ],
    }
    ran = real.attempt(scenario)
    said, shell, wrote, shell_gave, _, sent, *theirs, came_back, last = ran.reply.turns
    assert (said.content, shell.tool_input) == (
        "Writing.",
        terminal("echo grüße > out.txt && echo done; exit 3")["input"],
    )
    assert (shell_gave.content, shell_gave.is_error, shell_gave.call_id) == ("done\nexit code 3", True, shell.call_id)
    assert wrote.tool_name == "write_file"
    assert [turn.tool_name or turn.role for turn in theirs] == ["terminal", "tool_result", "assistant"]
    assert {turn.parent_call_id for turn in theirs} == {sent.call_id}
    assert (came_back.call_id, last.content) == (sent.call_id, "Written.")
    assert ran.reply.usage == Usage(500, 100, 0, 0)
    checked = run_assert(
        real.launcher,
        real.stop,
        script=(
            "written = {name: open(name).read() for name in ('out.txt', 'note.txt', 'sub.txt')}\n"
            "assert written == {'out.txt': 'grüße\\n', 'note.txt': 'hello\\n', 'sub.txt': 'sub\\n'}, written"
        ),
        script_path=None,
        folder=ran.folder,
        env={"PATH": os.environ["PATH"]},
    )
    assert checked.passed is True, checked.evidence


def test_declared_servers_are_waited_for_and_their_tools_called(real: Real) -> None:
    # Slower than the single shot would wait for by itself.
    script = (str(mcp_server.SCRIPT), "--slow", "3")
    calls = [
        {"name": "mcp__test_srv__env", "input": {"text": "TOKEN"}},
        {"name": "mcp__web__shout", "input": {"text": "over http"}},
        {"name": "mcp__events__shout", "input": {"text": "over sse"}},
    ]
    with McpServer("http", token="secret") as web, McpServer("sse") as events:
        servers = (
            Server("test-srv", "stdio", command=sys.executable, args=script, env={"TOKEN": "t-1"}),
            Server("web", "http", url=web.url, headers={"Authorization": "Bearer secret"}),
            Server("events", "sse", url=events.url),
        )
        ran = real.attempt({"turns": [{"tools": calls}, {"text": "ok"}]}, servers=servers)
    assert {"mcp__test_srv__shout", "mcp__web__echo", "mcp__events__echo"} <= set(ran.requests[0].tools)
    assert ran.steps[:3] == ["mcp__test-srv__env", "mcp__web__shout", "mcp__events__shout"]
    for turn, words in zip(ran.reply.turns[3:6], ("t-1", "OVER HTTP", "OVER SSE"), strict=True):
        assert words in turn.content
        assert turn.is_error is False
    assert (sorted(ran.reply.mcp_servers or ()), ran.reply.finished) == (["events", "test-srv", "web"], True)


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (401, "Incorrect API key provided: sk-test.", "login"),
        (404, "The model `no-such-model` does not exist or you do not have access to it.", "model"),
    ],
    ids=["bad key", "unknown model"],
)
def test_a_refusal_that_exits_0_is_one_for_good(real: Real, status: int, message: str, kind: str) -> None:
    error = {"status": status, "message": message, "repeat": 50}
    ran = real.attempt({"turns": [error]}, model="no-such-model")
    assert (ran.result.exit_code, ran.reply.final_answer, ran.reply.spoke) == (0, "", False)
    assert (ran.reply.cli_error, ran.reply.error_status) == (f"HTTP {status}: {message}", status)
    assert ran.refusal == Refusal(kind, f"HTTP {status}: {message}")


def test_a_throttle_that_ends_in_time_is_none(real: Real) -> None:
    once = {"status": 429, "message": "Rate limit reached.", "headers": {"retry-after": "0.05"}}
    ran = real.attempt({"turns": [once, {"text": "recovered"}]})
    assert (ran.reply.final_answer, ran.refusal, len(ran.requests)) == ("recovered", None, 2)


def test_an_attempt_that_hangs_leaves_no_process_and_is_told_as_far_as_it_went(real: Real) -> None:
    seconds = "6137.25"
    script = f"setsid sleep {seconds} &\nsleep {seconds}\n"
    wrote = {"name": "write_file", "input": {"path": "{workdir}/run.sh", "content": script}}
    ran = real.attempt({"turns": [{"tools": [wrote]}, {"tools": [terminal("sh run.sh")]}]}, seconds=12.0)
    assert ran.result.timed_out
    assert ran.steps == ["write_file", "tool_result", "terminal"]
    assert (ran.reply.usage, ran.refusal, ran.reply.cli_error) == (Usage(200, 40, 0, 0), None, None)
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if seconds.encode() in _bytes(path)]
    assert left == []


def test_a_megabyte_of_a_prompt_arrives_whole(real: Real) -> None:
    prompt = "Räume auf. " * 90_000
    settings = {"model": {"context_length": 4_000_000}}
    ran = real.attempt({"turns": [{"text": "ok"}]}, prompt=prompt, settings=settings)
    assert len(prompt.encode()) > 1024 * 1024
    assert (ran.reply.final_answer, ran.reply.finished) == ("ok", True)
    assert prompt.strip() in ran.requests[0].user_text


def test_turns_before_a_compaction_are_told(real: Real) -> None:
    # The tokens that the model reports make the conversation seem too long for it.
    turns = [
        {
            "text": f"step {number}",
            "tools": [terminal(f"echo {number}; seq 6000")],
            "usage": {"input_tokens": 9000 * number},
        }
        for number in range(1, 9)
    ]
    scenario = {"turns": [*turns, {"text": "final"}], "judge": [{"text": "SUMMARY"}]}
    ran = real.attempt(scenario, settings={"model": {"context_length": 64_000}})
    assert any(not request.tools for request in ran.requests)
    assert [turn.content for turn in ran.reply.turns if turn.role == "assistant"] == [
        *(f"step {number}" for number in range(1, 9)),
        "final",
    ]
    assert len({turn.call_id for turn in ran.reply.turns if turn.role == "tool_use"}) == 8


def test_a_judge_answers_without_tools_or_the_operators_persona(real: Real) -> None:
    real.customize()
    url = real.models.add({"judge": [{"text": VERDICT}]})
    result = ask_judge(
        real.launcher,
        real.stop,
        backend=Hermes(),
        engine=Engine("hermes"),
        operator=real.operator(url),
        expect="Names the time.",
        prompt="When is high water?",
        turns=(Turn("assistant", "At 12:04."),),
        limit_seconds=LIMIT_SECONDS,
    )
    assert (result.passed, result.reasoning, result.error) == (True, "The transcript says so.", None)
    assert (result.model, result.usage) == ("scripted-1", Usage(100, 20, 0, 0))
    (request,) = real.models.requests(url)
    assert request.tools == []
    assert "OPERATOR" not in request.text
    assert "At 12:04." in request.user_text


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
