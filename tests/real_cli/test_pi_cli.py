"""The real pi CLI, driven through the backend against a model that plays scenarios.

Time limits are many times what a call takes (0.4 s), since several run at once on few cores.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from mcp_server import SCRIPT, McpServer
from model_server import ModelServer, Request

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.errors import CannotRun
from caliper_pipeline.domain.observations import observe_activation
from caliper_pipeline.domain.planted import PlantedTurn, ShellCall
from caliper_pipeline.domain.transcript import AgentReply, Turn, Usage
from caliper_pipeline.execution.backends.base import Invocation, Operator, Refusal, Server
from caliper_pipeline.execution.backends.pi import Pi
from caliper_pipeline.execution.command import ProcessResult, StopToken
from caliper_pipeline.execution.judge.assertion import run_assert
from caliper_pipeline.execution.judge.autorater import JudgeResult, ask_judge
from caliper_pipeline.execution.process import ProcessLauncher
from caliper_pipeline.execution.workdir import AttemptFolder, make_attempt_folder

pytestmark = pytest.mark.real_cli

LIMIT_SECONDS = 60.0
SKILL = (
    "---\nname: zebra-counter\ndescription: Counts zebras. Use when asked about zebras.\n---\n\nRun `grep -c zebra`.\n"
)
RATE_LIMIT = {"status": 429, "error_type": "rate_limit_error", "message": "Slow down.", "repeat": 50}
BAD_KEY = {"status": 401, "error_type": "authentication_error", "message": "Incorrect API key.", "repeat": 50}
VERDICT = '{"reasoning": "The transcript says so.", "passed": true}'


@dataclass
class Ran:
    """One attempt as the backend saw it."""

    result: ProcessResult
    reply: AgentReply
    refusal: Refusal | None
    requests: list[Request]


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

    def operator(self, url: str, **own: str) -> Operator:
        """Logged in by a variable that stays outside, with a default model and fast tries."""
        agent = self.theirs / ".pi" / "agent"
        agent.mkdir(parents=True, exist_ok=True)
        provider = {"baseUrl": f"{url}/v1", "api": "openai-completions", "apiKey": "$LAB_KEY"}
        models = {"providers": {"lab": {**provider, "models": [{"id": "scripted-1"}, {"id": "scripted-2"}]}}}
        write(agent / "models.json", json.dumps(models))
        if not (agent / "settings.json").exists():
            self.settings()
        base = {"PATH": os.pathsep.join([str(self.binary.parent), os.environ["PATH"]]), "LANG": "C.UTF-8"}
        agents = {"NO_PROXY": "127.0.0.1"}
        return Operator(
            environment={**base, **agents, "LAB_KEY": "sk-secret", **own},
            allowed=base,
            agent_allowed=agents,
            home=self.theirs,
        )

    def settings(self, **more: Any) -> None:
        chosen = {"defaultProvider": "lab", "defaultModel": "scripted-1", "retry": {"baseDelayMs": 10}, **more}
        write(self.theirs / ".pi" / "agent" / "settings.json", json.dumps(chosen))

    def attempt(
        self,
        scenario: dict[str, Any],
        *,
        prompt: str = "Do the task.",
        model: str | None = None,
        seconds: float = LIMIT_SECONDS,
        skill: bool = False,
        backend: Pi | None = None,
        own: dict[str, str] | None = None,
        **facts: Any,
    ) -> Ran:
        url = self.models.add(scenario)
        backend = backend or Pi()
        given = Invocation(
            engine=Engine("pi", model),
            prompt=prompt,
            home=self.folder.home,
            workdir=self.folder.workdir,
            operator=self.operator(url, **(own or {})),
            timeout_seconds=seconds,
            group=self.folder.group,
            skills=("zebra-counter",) if skill else (),
            **facts,
        )
        backend.prepare(given)
        if skill:
            write(backend.skills_root(self.folder.home) / "zebra-counter" / "SKILL.md", SKILL)
        if given.history:
            given = replace(given, session=backend.plant(given))
        result = self.launcher.run(backend.command(given), self.stop)
        reply = backend.read(result, given)
        return Ran(result, reply, backend.refusal(result, reply), self.models.requests(url))

    def judge(self, scenario: dict[str, Any], **facts: Any) -> tuple[JudgeResult, list[Request]]:
        url = self.models.add(scenario)
        given: dict[str, Any] = {
            "expect": "Names the time.",
            "prompt": "When is high water?",
            "turns": (Turn("assistant", "At 12:04."),),
            "limit_seconds": LIMIT_SECONDS,
            **facts,
        }
        result = ask_judge(
            self.launcher, self.stop, backend=Pi(), engine=Engine("pi"), operator=self.operator(url), **given
        )
        return result, self.models.requests(url)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def bash(command: str) -> dict[str, Any]:
    return {"name": "bash", "input": {"command": command}}


@pytest.fixture
def real(models: ModelServer, launcher: ProcessLauncher, pi_binary: Path) -> Iterator[Real]:
    stop = StopToken()
    with make_attempt_folder() as folder:
        yield Real(models, launcher, pi_binary, folder, stop)
        launcher.end_group(folder.group)
    stop.close()


def test_the_version_is_the_pinned_one_and_speaks_mcp(real: Real) -> None:
    info = Pi().check(real.operator(""), (), Engine("pi"), None)
    pinned = json.loads((Path(__file__).parent / "pi" / "package.json").read_text(encoding="utf-8"))
    assert info.version in pinned["dependencies"].values()
    assert info.capabilities is not None
    assert info.capabilities.mcp


def test_a_plain_answer(real: Real) -> None:
    turn = {"text": ["High water ", "is at 12:04."], "usage": {"cache_read_input_tokens": 30}}
    ran = real.attempt({"turns": [turn]}, prompt="-x is no option")
    assert (ran.result.exit_code, ran.result.stderr) == (0, b"")
    assert (ran.reply.final_answer, ran.reply.finished, ran.refusal) == ("High water is at 12:04.", True, None)
    assert ran.reply.turns == (Turn("assistant", "High water is at 12:04."),)
    assert ran.reply.usage == Usage(100, 20, 30, 0)
    assert (ran.reply.model, ran.requests[0].body["model"]) == ("scripted-1", "scripted-1")
    assert ran.reply.unreadable_lines == 0
    assert ran.requests[0].user_text == "-x is no option"
    # The key was looked up outside, where its variable is set.
    assert ran.requests[0].headers["authorization"] == "Bearer sk-secret"


def test_a_prompt_of_any_form_and_length_arrives_whole(real: Real) -> None:
    prompt = "@file /skill:none " + "Räume auf. " * 20_000
    ran = real.attempt({"turns": [{"text": "ok"}]}, prompt=prompt)
    assert ran.reply.final_answer == "ok"
    assert ran.requests[0].user_text == prompt.strip()


def test_a_tool_writes_a_file_that_an_assert_then_checks(real: Real) -> None:
    also = {"name": "write", "input": {"path": "note.txt", "content": "hello\n"}}
    turns = [
        {"text": "Writing.", "tools": [bash("echo grüße > out.txt && echo done")]},
        {"tools": [also]},
        {"tools": [bash("exit 3")]},
        {"text": "Written."},
    ]
    ran = real.attempt({"turns": turns}, model="lab/scripted-2")
    assert [(turn.role, turn.tool_name, turn.is_error) for turn in ran.reply.turns] == [
        ("assistant", None, None),
        ("tool_use", "bash", None),
        ("tool_result", None, False),
        ("tool_use", "write", None),
        ("tool_result", None, False),
        ("tool_use", "bash", None),
        ("tool_result", None, True),
        ("assistant", None, None),
    ]
    assert ran.reply.turns[2].content == "done\n"
    assert (ran.reply.usage, ran.reply.model) == (Usage(400, 80, 0, 0), "scripted-2")
    checked = run_assert(
        real.launcher,
        real.stop,
        script="assert open('out.txt').read() == 'grüße\\n' and open('note.txt').read() == 'hello\\n'",
        script_path=None,
        folder=real.folder,
        env={"PATH": os.environ["PATH"]},
    )
    assert checked.passed is True, checked.evidence


def test_an_installed_skill_is_listed_and_activated_by_being_read(real: Real) -> None:
    place = real.folder.home / ".pi" / "agent" / "skills" / "zebra-counter" / "SKILL.md"
    read = {"name": "read", "input": {"path": str(place)}}
    ran = real.attempt({"turns": [{"tools": [read]}, {"text": "Three."}]}, skill=True)
    assert "<name>zebra-counter</name>" in ran.requests[0].text
    assert "Run `grep -c zebra`." in ran.requests[1].text
    assert observe_activation(ran.reply.turns, ["zebra-counter"], backend="pi") == ("zebra-counter",)


def test_a_project_of_the_workdir_loads_and_the_operators_setup_does_not(real: Real) -> None:
    agent = real.theirs / ".pi" / "agent"
    write(agent / "AGENTS.md", "OPERATOR RULES")
    write(agent / "skills" / "own-skill" / "SKILL.md", "---\nname: own-skill\ndescription: Theirs.\n---\nDo.\n")
    write(agent / "prompts" / "hello.md", "Say hello to $1")
    write(agent / "mcp.json", '{"mcpServers": {"theirs": {"command": "false", "exposure": "direct"}}}')
    write(agent / "extensions" / "loud.ts", "export default function (pi) { throw new Error('loaded'); }")
    real.settings(skills=[str(agent / "skills")], extensions=[str(agent / "extensions")], shellCommandPrefix="exit 9")
    write(
        real.folder.workdir / ".pi" / "skills" / "of-project" / "SKILL.md",
        "---\nname: of-project\ndescription: Of the project.\n---\nDo.\n",
    )
    ran = real.attempt({"turns": [{"tools": [bash("env; pwd; ls -a ~/.pi/agent; ps -ef")]}, {"text": "ok"}]})
    seen = ran.requests[-1].text
    assert ran.reply.turns[1].is_error is False
    assert "of-project" in seen
    assert "PI_OFFLINE=1" in seen
    for word in ("OPERATOR RULES", "own-skill", "hello.md", "mcp__theirs", "sk-secret"):
        assert word not in seen, word
    own = [line for line in seen.splitlines() if str(real.folder.top.name) in line or line.startswith("PI_")]
    assert own
    assert not [line for line in own if "caliper" in line.lower()]


def test_the_operators_setup_loads_when_wanted(real: Real) -> None:
    agent = real.theirs / ".pi" / "agent"
    write(agent / "AGENTS.md", "OPERATOR RULES")
    write(agent / "APPEND_SYSTEM.md", "OPERATOR ADDITION")
    write(agent / "skills" / "own-skill" / "SKILL.md", "---\nname: own-skill\ndescription: Theirs.\n---\nDo.\n")
    write(agent / "skills" / "twin" / "SKILL.md", "---\nname: zebra-counter\ndescription: TWIN.\n---\nDo.\n")
    write(real.theirs / ".agents" / "skills" / "x" / "SKILL.md", "---\nname: other\ndescription: Also.\n---\nDo.\n")
    write(agent / "prompts" / "hello.md", "Say hello to $1")
    write(agent / "extensions" / "tool.ts", EXTENSION)
    package = real.theirs / "package"
    write(package / "skills" / "packed" / "SKILL.md", "---\nname: packed\ndescription: PACKED.\n---\nDo.\n")
    write(package / "skills" / "z" / "SKILL.md", "---\nname: zebra-counter\ndescription: PACKED TWIN.\n---\nDo.\n")
    server = {"command": sys.executable, "args": [str(SCRIPT)], "exposure": "direct"}
    write(agent / "mcp.json", json.dumps({"mcpServers": {"theirs": server, "my_docs": {"command": "false"}}}))
    real.settings(packages=["~/package"], shellCommandPrefix="export PREFIX=set")
    declared = Server("my-docs", "stdio", command=sys.executable, args=(str(SCRIPT),))
    ran = real.attempt(
        {"turns": [{"tools": [bash("echo prefix=$PREFIX")]}, {"text": "ok"}]},
        prompt="/hello Ann",
        skill=True,
        isolated=False,
        servers=(declared,),
        declared_servers=("my-docs",),
    )
    seen = ran.requests[-1].text
    for word in ("OPERATOR RULES", "OPERATOR ADDITION", "own-skill", "other", "PACKED.", "Say hello to Ann"):
        assert word in seen, (word, ran.result.stderr)
    assert "Counts zebras." in seen
    assert "TWIN" not in seen
    assert {"their_tool", "mcp__theirs__echo", "mcp__my_docs__echo"} <= set(ran.requests[0].tools)
    assert ran.reply.turns[1].content == "prefix=set\n"
    layer = Pi().user_layer(real.operator(""), ("zebra-counter",), ("my-docs",))
    assert layer == (
        "extension:tool",
        "mcp:theirs",
        "package:~/package",
        "prompt:hello",
        "rules:AGENTS.md",
        "rules:APPEND_SYSTEM.md",
        "settings:settings.json",
        "skill:other",
        "skill:own-skill",
        "skill:packed",
    )


EXTENSION = """
export default function (pi) {
    pi.registerTool({
        name: "their_tool", label: "Theirs", description: "A tool of theirs.",
        parameters: { type: "object", properties: {} },
        async execute() { return { content: [{ type: "text", text: "x" }], details: {} }; },
    });
}
"""


def test_declared_servers_are_reached_by_pipe_and_by_http(real: Real, tmp_path: Path) -> None:
    log = tmp_path / "log"
    value = "a$HOME${X}$$!b"
    with McpServer("http", token="to$ken") as web:
        servers = (
            Server(
                "echo-srv", "stdio", command=sys.executable, args=(str(SCRIPT), "--log", str(log)), env={"V": value}
            ),
            Server("bang", "stdio", command=sys.executable, args=(str(SCRIPT),), env={"V": "!echo no"}),
            Server("web", "http", url=web.url, headers={"Authorization": "Bearer to$ken"}),
            Server("dead", "stdio", command="/bin/false"),
        )
        tools = [
            {"name": "mcp__echo_srv__env", "input": {"text": "V"}},
            {"name": "mcp__bang__env", "input": {"text": "V"}},
            {"name": "mcp__web__shout", "input": {"text": "hi"}},
        ]
        ran = real.attempt({"turns": [{"tools": tools}, {"text": "ok"}]}, servers=servers)
    called = [turn for turn in ran.reply.turns if turn.role == "tool_use"]
    results = {turn.call_id: turn.content for turn in ran.reply.turns if turn.role == "tool_result"}
    assert {turn.tool_name: results[turn.call_id] for turn in called} == {
        "mcp__echo-srv__env": value,
        "mcp__bang__env": "!echo no",
        "mcp__web__shout": "HI",
    }
    # One that is dead does not stop the others, and is seen by what it does not offer.
    assert set(ran.reply.mcp_servers or ()) == {"echo-srv", "bang", "web"}
    started = json.loads(log.read_text(encoding="utf-8").splitlines()[0])["start"]
    assert started["cwd"] == str(real.folder.workdir)
    assert (real.folder.home / ".pi" / "agent" / "mcp.json").stat().st_mode & 0o777 == 0o600


def test_a_planted_conversation_is_taken_up(real: Real) -> None:
    history = (
        PlantedTurn(user="/zebra-counter in the savanna"),
        PlantedTurn(
            assistant="I look.", shell=(ShellCall(run="ls", output="herd.txt\n"), ShellCall(run=":", output=""))
        ),
        PlantedTurn(user="/unknown stays"),
        PlantedTurn(assistant="Two herds."),
    )
    ran = real.attempt({"turns": [{"text": "Three."}]}, prompt="And now?", skill=True, history=history)
    place = real.folder.home / ".pi" / "agent" / "skills" / "zebra-counter"
    told = [message for message in ran.requests[0].body["messages"] if message["role"] not in ("system", "developer")]
    said = [text_of(message) for message in told]
    assert [message["role"] for message in told] == [
        *("user", "assistant", "tool", "tool", "user", "assistant", "user"),
    ]
    assert said[0] == (
        f'<skill name="zebra-counter" location="{place}/SKILL.md">\nReferences are relative to {place}.\n\n'
        "Run `grep -c zebra`.\n</skill>\n\nin the savanna"
    )
    assert said[1:] == ["I look.", "herd.txt\n", "(no output)", "/unknown stays", "Two herds.", "And now?"]
    calls = [call["function"] for call in told[1]["tool_calls"]]
    assert [(call["name"], json.loads(call["arguments"])) for call in calls] == [
        ("bash", {"command": "ls"}),
        ("bash", {"command": ":"}),
    ]
    # What was planted is no part of the reply, and the default model answered.
    assert ran.reply.turns == (Turn("assistant", "Three."),)
    assert (ran.reply.usage, ran.reply.model) == (Usage(100, 20, 0, 0), "scripted-1")


def test_the_planted_block_of_a_skill_is_the_one_that_the_cli_makes(real: Real) -> None:
    typed = real.attempt({"turns": [{"text": "ok"}]}, prompt="/skill:zebra-counter in the savanna", skill=True)
    history = (PlantedTurn(user="/zebra-counter in the savanna"), PlantedTurn(assistant="Two."))
    planted = real.attempt({"turns": [{"text": "ok"}]}, skill=True, history=history)
    user = [message for message in planted.requests[0].body["messages"] if message["role"] == "user"]
    assert text_of(user[0]) == typed.requests[0].user_text


def text_of(message: dict[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(block["text"] for block in content)


def test_a_refused_key_is_a_refusal_for_good(real: Real) -> None:
    ran = real.attempt({"turns": [BAD_KEY]})
    assert ran.result.exit_code == 0
    assert ran.refusal is not None
    assert (ran.refusal.kind, ran.reply.spoke, len(ran.requests)) == ("login", False, 1)


def test_no_login_at_all_is_a_refusal_for_good(real: Real) -> None:
    ran = real.attempt({"turns": []}, own={"LAB_KEY": ""})
    assert ran.refusal is not None
    assert (ran.refusal.kind, ran.requests) == ("login", [])
    assert "No API key found" in ran.refusal.text


@pytest.mark.parametrize("model", ["no-such-model", "lab/no-such-model"])
def test_an_unknown_model_is_a_refusal_for_good(real: Real, model: str) -> None:
    error = {"status": 404, "error_type": "not_found_error", "message": "The model does not exist.", "repeat": 50}
    ran = real.attempt({"turns": [error]}, model=model)
    assert ran.refusal is not None
    assert ran.refusal.kind == "model"


def test_a_throttle_that_ends_in_time_is_none(real: Real) -> None:
    ran = real.attempt({"turns": [{**RATE_LIMIT, "repeat": 1}, {"text": "recovered"}]})
    assert (ran.reply.final_answer, ran.reply.finished, ran.refusal) == ("recovered", True, None)
    assert len(ran.requests) == 2


@pytest.mark.parametrize(
    ("turn", "kind", "requests"),
    [
        (RATE_LIMIT, "throttle", 4),
        ({"status": 529, "error_type": "overloaded_error", "message": "Overloaded", "repeat": 50}, "throttle", 4),
        ({**RATE_LIMIT, "error_type": "insufficient_quota", "code": "insufficient_quota"}, "cap", 1),
        ({"status": 500, "message": "internal error", "repeat": 50}, None, 4),
    ],
    ids=["429", "529", "quota", "500"],
)
def test_an_error_that_lasts_is_told_as_what_it_is(
    real: Real, turn: dict[str, Any], kind: str | None, requests: int
) -> None:
    ran = real.attempt({"turns": [turn]})
    assert (ran.result.exit_code, ran.reply.finished, len(ran.requests)) == (0, False, requests)
    assert (ran.refusal.kind if ran.refusal else None) == kind
    assert ran.reply.cli_error


def test_the_clis_own_tries_fit_into_its_time(real: Real) -> None:
    real.settings(retry={})
    ran = real.attempt({"turns": [RATE_LIMIT]}, seconds=10.0)
    assert not ran.result.timed_out
    assert ran.refusal is not None
    assert (ran.refusal.kind, len(ran.requests)) == ("throttle", 2)


def test_an_attempt_that_hangs_in_a_tool_is_ended_and_leaves_nothing(real: Real) -> None:
    begun = time.monotonic()
    ran = real.attempt({"turns": [{"tools": [bash("echo begun > out.txt; sleep 987")]}]}, seconds=6.0)
    assert ran.result.timed_out
    assert time.monotonic() - begun < 30
    assert ran.refusal is None
    assert [turn.role for turn in ran.reply.turns] == ["tool_use"]
    assert (real.folder.workdir / "out.txt").exists()
    assert not [line for line in _processes() if "sleep 987" in line]


def _processes() -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(entry.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
        except OSError:
            continue
    return found


def test_a_stream_that_is_cut_is_asked_again(real: Real) -> None:
    ran = real.attempt({"turns": [{"text": "partial", "cut": True}, {"text": "whole answer"}]})
    assert (ran.reply.final_answer, ran.reply.finished, ran.refusal) == ("whole answer", True, None)


def test_a_judge_answers_without_tools_skills_or_a_coding_agents_prompt(real: Real) -> None:
    write(real.theirs / ".pi" / "agent" / "AGENTS.md", "OPERATOR RULES")
    result, requests = real.judge({"judge": [{"text": VERDICT}]})
    assert (result.passed, result.reasoning, result.error) == (True, "The transcript says so.", None)
    assert (result.usage, result.model) == (Usage(100, 20, 0, 0), "scripted-1")
    (request,) = requests
    assert request.tools == []
    assert "At 12:04." in request.user_text
    assert "OPERATOR RULES" not in request.text
    system = [message for message in request.body["messages"] if message["role"] in ("system", "developer")]
    assert sum(len(text_of(message)) for message in system) < 1_000


def test_a_judge_reads_a_transcript_of_a_megabyte(real: Real) -> None:
    text = "The tide turns. " * 65_536
    result, requests = real.judge({"judge": [{"text": VERDICT}]}, turns=(Turn("assistant", text),))
    assert result.passed is True, result.error
    assert text in requests[0].user_text


def test_a_judge_without_a_login_is_refused_for_good(real: Real) -> None:
    result, _ = real.judge({"judge": [BAD_KEY]})
    assert result.refusal is not None
    assert result.refusal.kind == "login"
    explained = Pi().explain(result.refusal, Engine("pi"), judge=True)
    assert "The pi judge cannot run: Not logged in" in str(explained)


def test_a_node_that_is_too_old_is_one_clear_error(real: Real, tmp_path: Path) -> None:
    old = tmp_path / "bin"
    write(old / "node", '#!/bin/sh\n[ "$1" = --version ] && echo v20.1.0 && exit\necho "SyntaxError: no" >&2; exit 1\n')
    (old / "node").chmod(0o755)
    (old / "pi").symlink_to(real.binary.resolve())
    by = replace(real.operator(""), environment={"PATH": f"{old}:/usr/bin:/bin"})
    with pytest.raises(
        CannotRun, match=r"pi 1\.\S+ needs Node.js >=22\.19\.0, and the node that it finds is v20\.1\.0"
    ):
        Pi().check(by, (), Engine("pi"), None)
