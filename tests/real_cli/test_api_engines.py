"""The API agents on the vendors' real SDKs, driven through the backends against a model that plays scenarios.

Three engines: Anthropic's Messages API, OpenAI's Responses API, and chat completions as local servers speak them.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcp_server import SCRIPT, McpServer, read_log
from model_server import ModelServer, Request

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.observations import observe_activation
from caliper_pipeline.domain.planted import PlantedTurn, ShellCall
from caliper_pipeline.domain.transcript import AgentReply, Turn, Usage
from caliper_pipeline.execution.backends.api_backend import ApiBackend
from caliper_pipeline.execution.backends.base import Invocation, Operator, Refusal, Server
from caliper_pipeline.execution.backends.claude_api import ClaudeApi
from caliper_pipeline.execution.backends.openai_api import OpenaiApi
from caliper_pipeline.execution.command import ProcessResult, StopToken
from caliper_pipeline.execution.judge.assertion import run_assert
from caliper_pipeline.execution.judge.autorater import JudgeResult, ask_judge
from caliper_pipeline.execution.process import ProcessLauncher
from caliper_pipeline.execution.workdir import AttemptFolder, install_skill, make_attempt_folder

pytestmark = pytest.mark.real_cli

LIMIT_SECONDS = 60.0
CERTIFICATE = Path(__file__).parent.parent / "fixtures" / "tls" / "loopback.pem"
KEY = "sk-do-not-show"
SKILL = "---\nname: zebras\ndescription: Counts zebras.\n---\n\nRun `grep -c zebra`.\n"
VERDICT = '{"reasoning": "The transcript says so.", "passed": true}'
ENGINES: dict[str, ApiBackend] = {
    "messages": ClaudeApi(),
    "responses": OpenaiApi(responses_everywhere=True),
    "chat": OpenaiApi(),
}
UNKNOWN_KEY = {
    "messages": {"status": 401, "error_type": "authentication_error", "message": "invalid x-api-key"},
    "responses": {"status": 401, "code": "invalid_api_key", "message": "Incorrect API key provided."},
    "chat": {"status": 401, "message": "Unauthorized"},
}
UNKNOWN_MODEL = {
    "messages": {"status": 404, "error_type": "not_found_error", "message": "model: no-such-model"},
    "responses": {"status": 404, "code": "model_not_found", "message": "The model `no-such-model` does not exist."},
    "chat": {
        "status": 404,
        "error_type": "api_error",
        "message": 'model "no-such-model" not found, try pulling it first',
    },
}
THROTTLE = {
    "messages": {"status": 429, "error_type": "rate_limit_error", "message": "Slow down."},
    "responses": {"status": 429, "code": "rate_limit_exceeded", "message": "Rate limit reached."},
    "chat": {"status": 429, "message": "Too many requests."},
}


@dataclass
class Ran:
    result: ProcessResult
    reply: AgentReply
    refusal: Refusal | None
    requests: list[Request]
    folder: AttemptFolder


@dataclass
class Bench:
    models: ModelServer
    launcher: ProcessLauncher
    folder: AttemptFolder
    stop: StopToken
    kind: str = "messages"

    @property
    def backend(self) -> ApiBackend:
        return ENGINES[self.kind]

    def operator(self, url: str, **own: str) -> Operator:
        base = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "NO_PROXY": "127.0.0.1"}
        logins = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": url}
        logins |= {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{url}/v1"}
        base, logins = base | own, {name: value for name, value in (logins | own).items() if value}
        return Operator(environment={**base, **logins}, allowed=base, agent_allowed=logins, home=self.folder.private)

    def attempt(
        self,
        turns: list[dict[str, Any]],
        *,
        model: str = "model-1",
        seconds: float = LIMIT_SECONDS,
        skill: bool = False,
        own: dict[str, str] | None = None,
        url: str | None = None,
        **facts: Any,
    ) -> Ran:
        url = url or self.models.add({"turns": turns})
        given = Invocation(
            engine=Engine(self.backend.name, model),
            prompt=facts.pop("prompt", "Do the task."),
            home=self.folder.home,
            workdir=self.folder.workdir,
            operator=self.operator(url, **(own or {})),
            timeout_seconds=seconds,
            skills=("zebras",) if skill else (),
            group=self.folder.group,
            **facts,
        )
        self.backend.prepare(given)
        if skill:
            source = self.folder.private / "zebras"
            source.mkdir()
            (source / "SKILL.md").write_text(SKILL, encoding="utf-8")
            install_skill(source, self.backend.skills_root(self.folder.home), "zebras")
        result = self.launcher.run(self.backend.command(given), self.stop)
        reply = self.backend.read(result, given)
        requests = self.models.requests(url) if "/s/" in url else []
        return Ran(result, reply, self.backend.refusal(result, reply), requests, self.folder)

    def judge(self, turns: list[dict[str, Any]]) -> tuple[JudgeResult, list[Request]]:
        url = self.models.add({"turns": turns, "shared": True})
        result = ask_judge(
            self.launcher,
            self.stop,
            backend=self.backend,
            engine=Engine(self.backend.name, "judge-1"),
            operator=self.operator(url),
            expect="Names the time.",
            prompt="When is high water?",
            turns=(Turn("assistant", "At 12:04."),),
            limit_seconds=LIMIT_SECONDS,
        )
        return result, self.models.requests(url)


@pytest.fixture
def bench(models: ModelServer, launcher: ProcessLauncher) -> Iterator[Bench]:
    stop = StopToken()
    with make_attempt_folder() as folder:
        yield Bench(models, launcher, folder, stop)
        launcher.end_group(folder.group)
    stop.close()


@pytest.fixture(params=ENGINES)
def each(bench: Bench, request: pytest.FixtureRequest) -> Bench:
    """The bench with each of the three engines."""
    bench.kind = request.param
    return bench


def bash(command: str) -> dict[str, Any]:
    return {"name": "bash", "input": {"command": command}}


def test_a_plain_answer(each: Bench) -> None:
    ran = each.attempt([{"text": ["High water ", "is at 12:04."], "model": "model-1-0930"}])
    assert (ran.result.exit_code, ran.result.stderr) == (0, b"")
    assert (ran.reply.turns, ran.reply.final_answer) == (
        (Turn("assistant", "High water is at 12:04."),),
        "High water is at 12:04.",
    )
    assert (ran.reply.finished, ran.refusal, ran.reply.unreadable_lines) == (True, None, 0)
    assert (ran.reply.model, ran.requests[0].body["model"]) == ("model-1-0930", "model-1")
    assert ran.reply.usage is not None
    assert ran.reply.usage.counts()[:3] == (100, 20, 0)
    assert ran.requests[0].body["stream"] is True
    assert "skill" not in ran.requests[0].tools


def test_a_tool_writes_a_file_that_an_assert_then_checks(each: Bench) -> None:
    tools = [bash("echo grüße > out.txt && echo done"), {"name": "write", "input": {"path": "a/b", "content": "x"}}]
    usage = {"input_tokens": 5, "cache_read_input_tokens": 90}
    ran = each.attempt([{"text": "Writing.", "thinking": "Hm.", "tools": tools, "usage": usage}, {"text": "Written."}])
    roles = [turn.role for turn in ran.reply.turns]
    assert roles == ["assistant", "tool_use", "tool_use", "tool_result", "tool_result", "assistant"]
    assert (ran.reply.turns[3].content, ran.reply.turns[3].is_error) == ("done\n", False)
    assert ran.reply.usage is not None
    assert ran.reply.usage.counts()[:3] == (105, 40, 90)
    assert "done\n" in ran.requests[1].text
    checked = run_assert(
        each.launcher,
        each.stop,
        script="assert open('out.txt').read() == 'grüße\\n' and open('a/b').read() == 'x'",
        script_path=None,
        folder=ran.folder,
        env={"PATH": os.environ["PATH"]},
    )
    assert checked.passed is True, checked.evidence


def test_a_call_with_malformed_arguments_is_answered_and_the_work_goes_on(each: Bench) -> None:
    ran = each.attempt([{"tools": [{"name": "bash", "input": '{"command": "l'}]}, {"text": "Done."}])
    assert (ran.reply.turns[1].is_error, ran.reply.final_answer) == (True, "Done.")
    assert "no JSON object" in ran.requests[1].text


def test_an_installed_skill_is_listed_and_activated(each: Bench) -> None:
    ran = each.attempt([{"tools": [{"name": "skill", "input": {"name": "zebras"}}]}, {"text": "3"}], skill=True)
    assert "- zebras: Counts zebras." in str(ran.requests[0].body["tools"])
    assert "grep -c zebra" not in str(ran.requests[0].body)
    assert "Run `grep -c zebra`." in ran.requests[1].text
    assert observe_activation(ran.reply.turns, ("zebras",), backend=each.backend.name) == ("zebras",)


def test_a_planted_conversation_is_taken_up(each: Bench) -> None:
    history = (
        PlantedTurn(user="/zebras in the zoo"),
        PlantedTurn(assistant="Counting.", shell=(ShellCall(run="ls zoo", output="zoo.txt\n"),)),
        PlantedTurn(assistant="There are 3."),
        PlantedTurn(user="Sure?"),
    )
    ran = each.attempt([{"text": "Yes."}], skill=True, history=history, session="planted", prompt="Count again.")
    assert ran.reply.turns == (Turn("assistant", "Yes."),)
    (request,) = ran.requests
    places = [
        str(request.body.get("messages") or request.body.get("input")).index(words)
        for words in (
            "/zebras in the zoo",
            "Run `grep -c zebra`.",
            "Counting.",
            "ls zoo",
            "zoo.txt",
            "There are 3.",
            "Sure?",
            "Count again.",
        )
    ]
    assert places == sorted(places)


def test_a_refused_key_is_a_refusal_for_good(each: Bench) -> None:
    ran = each.attempt([{**UNKNOWN_KEY[each.kind], "repeat": 9}])
    assert (ran.result.exit_code, ran.reply.spoke, len(ran.requests)) == (1, False, 1)
    assert ran.refusal is not None
    assert ran.refusal.kind == "login"


def test_an_unknown_model_is_a_refusal_for_good(each: Bench) -> None:
    ran = each.attempt([{**UNKNOWN_MODEL[each.kind], "repeat": 9}], model="no-such-model")
    assert ran.refusal is not None
    assert (ran.refusal.kind, len(ran.requests)) == ("model", 1)
    assert "no-such-model" in ran.refusal.text


def test_a_throttle_that_ends_in_time_is_none(each: Bench) -> None:
    throttle = {**THROTTLE[each.kind], "headers": {"retry-after": "0"}, "repeat": 2}
    ran = each.attempt([throttle, {"text": "recovered"}])
    assert (ran.reply.final_answer, ran.reply.finished, ran.refusal, len(ran.requests)) == ("recovered", True, None, 3)


def test_a_throttle_that_lasts_is_left_to_the_back_off_of_the_run(each: Bench) -> None:
    ran = each.attempt([{**THROTTLE[each.kind], "headers": {"retry-after": "30"}, "repeat": 9}])
    assert ran.refusal is not None
    assert (ran.refusal.kind, ran.refusal.retry_after_seconds, len(ran.requests)) == ("throttle", 30.0, 1)


def test_a_stream_that_is_cut_or_breaks_is_asked_again(each: Bench) -> None:
    turns = [{"text": "part", "cut": True}, {"text": "part", "stream_error": True}, {"text": "whole answer"}]
    if each.kind == "chat":
        turns[1]["stream_error"] = {"message": "Overloaded", "code": 503, "type": "overloaded_error"}
    ran = each.attempt(turns)
    assert (ran.reply.final_answer, ran.refusal, len(ran.requests)) == ("whole answer", None, 3)
    assert ran.reply.turns == (Turn("assistant", "whole answer"),)


def test_a_judge_gives_a_verdict_without_tools(each: Bench) -> None:
    result, requests = each.judge([{"text": VERDICT}])
    assert (result.passed, result.reasoning, result.model) == (True, "The transcript says so.", "judge-1")
    assert result.usage is not None
    assert result.usage.counts()[:2] == (100, 20)
    (request,) = requests
    assert request.tools == []
    assert "At 12:04." in request.user_text


def test_a_spent_account_is_a_cap(bench: Bench) -> None:
    bench.kind = "responses"
    spent = {"status": 429, "code": "insufficient_quota", "error_type": "insufficient_quota"}
    ran = bench.attempt([{**spent, "message": "You exceeded your current quota.", "repeat": 9}])
    assert ran.refusal is not None
    assert (ran.refusal.kind, len(ran.requests)) == ("cap", 1)


def test_a_transcript_too_long_for_the_judge_is_shortened(bench: Bench) -> None:
    bench.kind = "chat"
    too_long = {"status": 400, "code": "context_length_exceeded", "message": "maximum context length is 8"}
    result, requests = bench.judge([too_long, {"text": VERDICT}])
    assert (result.passed, len(requests)) == (True, 2)


def test_an_attempt_ends_when_its_tokens_are_used_up(bench: Bench) -> None:
    ran = bench.attempt([{"tools": [bash("echo again")], "repeat": 99}], max_tokens=200)
    assert (ran.result.exit_code, len(ran.requests), ran.refusal) == (1, 2, None)
    assert ran.reply.cli_error == "the attempt used 240 tokens and may use 200"
    assert ran.reply.usage == Usage(200, 40, 0, 0)


def test_a_limit_of_a_reply_that_a_model_refuses_is_lowered(bench: Bench) -> None:
    message = "max_tokens: 16000 > 8192, which is the maximum allowed number of output tokens for model-1"
    ran = bench.attempt([{"status": 400, "error_type": "invalid_request_error", "message": message}, {"text": "ok"}])
    assert ran.reply.final_answer == "ok"
    assert [request.body["max_tokens"] for request in ran.requests] == [16000, 8192]


def test_reasoning_is_not_asked_of_a_model_that_has_none(bench: Bench) -> None:
    bench.kind = "responses"
    message = "Encrypted content is not supported with this model."
    ran = bench.attempt([{"status": 400, "message": message}, {"text": "ok"}])
    assert ran.reply.final_answer == "ok"
    assert ["include" in request.body for request in ran.requests] == [True, False]


def test_thoughts_go_back_and_the_conversation_is_cached(bench: Bench) -> None:
    ran = bench.attempt([{"thinking": "Hm.", "tools": [bash("echo a")]}, {"tools": [bash("echo b")]}, {"text": "ok"}])
    body = ran.requests[2].body
    assert {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"} in body["messages"][1]["content"]
    assert "cache_control" in body["system"][-1]
    marked = [number for number, message in enumerate(body["messages"]) if "cache_control" in str(message)]
    assert marked == [2, 4]


def test_openais_thoughts_go_back_and_nothing_is_stored(bench: Bench) -> None:
    bench.kind = "responses"
    ran = bench.attempt([{"thinking": "Hm.", "tools": [bash("echo a")]}, {"text": "ok"}])
    sent = {item.get("type"): item for item in ran.requests[1].body["input"]}
    assert sent["reasoning"]["encrypted_content"] == "c2VjcmV0"
    assert ran.requests[1].body["store"] is False


def test_a_local_server_is_asked_without_a_key(bench: Bench) -> None:
    bench.kind = "chat"
    ran = bench.attempt([{"text": "ok"}], own={"OPENAI_API_KEY": ""})
    assert (ran.reply.final_answer, ran.requests[0].path.rpartition("/v1/")[2]) == ("ok", "chat/completions")
    assert KEY not in str(ran.requests[0].headers)


def test_a_proxy_reaches_the_agents_requests(bench: Bench) -> None:
    bench.kind = "chat"
    url = bench.models.add({"turns": [{"text": "through the proxy"}]})
    host, path = url.removeprefix("http://").split("/", 1)
    own = {"HTTP_PROXY": f"http://{host}", "OPENAI_BASE_URL": f"http://models.invalid/{path}/v1", "NO_PROXY": ""}
    assert bench.attempt([], url=url, own=own).reply.final_answer == "through the proxy"


@pytest.mark.parametrize("kind", ["messages", "chat"])
def test_a_certificate_authority_of_ones_own_is_believed(bench: Bench, kind: str) -> None:
    bench.kind = kind
    with ModelServer(CERTIFICATE) as models:
        bench.models = models
        ran = bench.attempt([{"text": "in private"}], own={"SSL_CERT_FILE": str(CERTIFICATE)})
    assert (ran.reply.final_answer, ran.reply.cli_error) == ("in private", None)


def test_a_web_page_instead_of_an_api_stops_the_run(bench: Bench) -> None:
    bench.kind = "chat"
    ran = bench.attempt([{"raw_body": "<html>Welcome</html>", "repeat": 9}])
    assert ran.refusal is not None
    assert (ran.refusal.kind, len(ran.requests)) == ("configuration", 1)
    assert "answered with a web page" in ran.refusal.text


def test_a_server_that_went_away_costs_the_attempt_and_not_the_run(bench: Bench) -> None:
    ran = bench.attempt([], own={"ANTHROPIC_BASE_URL": "http://127.0.0.1:1"})
    assert (ran.result.exit_code, ran.refusal) == (1, None)
    assert ran.reply.cli_error is not None
    assert "refused" in ran.reply.cli_error


def test_neither_key_nor_our_name_is_visible_to_a_tool(bench: Bench) -> None:
    look = (
        "env; pwd; p=$PPID; while [ $p -gt 1 ] && ! tr '\\0' ' ' < /proc/$p/cmdline | grep -q spawn_server; do "
        "tr '\\0' '\\n' < /proc/$p/cmdline; tr '\\0' '\\n' < /proc/$p/environ; ls -l /proc/$p/cwd; "
        'p=$(ps -o ppid= -p $p); done; wc -c < /proc/$PPID/fd/0; find ~; ps -ef | grep " $$ \\| $PPID "'
    )
    ran = bench.attempt([{"tools": [bash(look)]}, {"text": "ok"}], skill=True)
    seen = ran.reply.turns[1].content
    assert f"HOME={bench.folder.home}" in seen
    assert "import marshal" in seen
    assert KEY not in seen
    assert "caliper" not in seen.lower()
    assert "caliper" not in ran.requests[0].text.lower()
    assert KEY in str(ran.requests[0].headers)


def test_a_tool_left_running_ends_with_an_attempt_that_passed_its_limit(bench: Bench) -> None:
    command = "setsid sleep 987654 & echo $!; sleep 987654"
    ran = bench.attempt([{"text": "Waiting.", "tools": [bash(command)]}, {"text": "never"}], seconds=8.0)
    assert (ran.result.timed_out, ran.refusal, ran.reply.finished) == (True, None, False)
    assert [turn.role for turn in ran.reply.turns] == ["assistant", "tool_use"]
    assert ran.reply.usage == Usage(100, 20, 0, 0)
    deadline = time.monotonic() + 10
    while (left := _running("987654")) and time.monotonic() < deadline:
        bench.stop.wait(0.05)
    assert left == []


@pytest.mark.parametrize("kind", ["messages", "responses"])
def test_what_was_said_when_the_time_was_over_is_kept(bench: Bench, kind: str) -> None:
    bench.kind = kind
    ran = bench.attempt([{"text": "I think it is", "hang_mid": True}], seconds=8.0)
    assert (ran.result.timed_out, ran.reply.final_answer) == (True, "I think it is")


class TestServers:
    def test_a_tool_of_a_stdio_server_is_called_with_its_variables_and_without_the_key(self, bench: Bench) -> None:
        log = bench.folder.private / "log"
        command = "python3"
        server = Server("notes", "stdio", command=command, args=(str(SCRIPT), "--log", str(log)), env={"TOKEN": "t"})
        turns = [
            {"tools": [{"name": f"mcp__notes__{name}", "input": {"text": text}} for name, text in CALLS]},
            {"text": "ok"},
        ]
        ran = bench.attempt(turns, servers=(server,))
        assert {"mcp__notes__echo", "mcp__notes__env", "bash"} <= set(ran.requests[0].tools)
        assert [turn.content for turn in ran.reply.turns if turn.role == "tool_result"] == [
            "echo: hi",
            "t",
            "(not set)",
        ]
        assert (ran.reply.mcp_servers, ran.reply.final_answer) == (("notes",), "ok")
        (start, *_) = read_log(log)
        assert start["start"]["cwd"] == str(bench.folder.workdir)
        assert KEY not in str(start)

    @pytest.mark.parametrize("kind", ["http", "sse"])
    def test_a_tool_of_a_remote_server_is_called_with_its_headers(self, bench: Bench, kind: str) -> None:
        turns = [{"tools": [{"name": "mcp__notes__shout", "input": {"text": "hi"}}]}, {"text": "ok"}]
        with McpServer(kind, token="secret") as remote:
            server = Server("notes", kind, url=remote.url, headers={"Authorization": "Bearer secret"})
            ran = bench.attempt(turns, servers=(server,))
        assert (ran.reply.turns[1].content, ran.reply.final_answer) == ("HI", "ok")

    def test_one_that_cannot_be_used_stops_the_run_before_a_model_is_asked(self, bench: Bench) -> None:
        ran = bench.attempt([], servers=(Server("notes", "stdio", command="no-such-command"),))
        assert ran.refusal is not None
        assert (ran.refusal.kind, ran.requests) == ("configuration", [])
        assert "the MCP server notes cannot be used" in ran.refusal.text


CALLS = (("echo", "hi"), ("env", "TOKEN"), ("env", "ANTHROPIC_API_KEY"))


def _running(word: str) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if word.encode() in command.split(b"\0"):
            found.append(folder.name)
    return found
