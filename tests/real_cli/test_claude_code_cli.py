"""The real Claude Code CLI, driven through the backend against a model that plays scenarios.

Time limits are many times what a call takes (0.5 s), since several run at once on few cores.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from model_server import ModelServer

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.transcript import Turn, Usage
from caliper_pipeline.execution.backends.base import JudgeInvocation
from caliper_pipeline.execution.backends.claude_code import ClaudeCode
from caliper_pipeline.execution.judge.assertion import run_assert
from caliper_pipeline.execution.process import ProcessLauncher

from .claude_driver import LIMIT_SECONDS, Real, driven

pytestmark = pytest.mark.real_cli

RATE_LIMIT = {"status": 429, "error_type": "rate_limit_error", "message": "Slow down.", "repeat": 50}
VERDICT = '{"reasoning": "The transcript says so.", "passed": true}'


@pytest.fixture
def real(models: ModelServer, launcher: ProcessLauncher, claude_folder: Path) -> Iterator[Real]:
    with driven(models, launcher, claude_folder) as made:
        yield made


def test_the_version_is_the_pinned_one(real: Real) -> None:
    info = ClaudeCode().check(real.operator(""), (), Engine("claude-code"), None)
    pinned = (Path(__file__).parent / "package.json").read_text(encoding="utf-8")
    assert info.version is not None
    assert f'"{info.version.split()[0]}"' in pinned


def test_a_plain_answer(real: Real) -> None:
    ran = real.attempt({"turns": [{"text": ["High water ", "is at 12:04."]}]}, prompt="--version")
    assert (ran.result.exit_code, ran.result.stderr) == (0, b"")
    assert (ran.reply.final_answer, ran.reply.finished, ran.refusal) == ("High water is at 12:04.", True, None)
    assert ran.reply.turns == (Turn("assistant", "High water is at 12:04."),)
    assert ran.reply.usage == Usage(100, 20, 0, 0)
    assert ran.reply.model == ran.requests[0].body["model"]
    assert ran.reply.unreadable_lines == 0
    # What looks like an option stayed a prompt; as root the sandbox variable let it run at all.
    assert "--version" in ran.requests[0].user_text
    assert ran.requests[0].headers["x-api-key"] == "sk-test"


def test_a_prompt_beyond_one_argument_arrives_whole(real: Real) -> None:
    prompt = "Räume auf. " * 20_000
    ran = real.attempt({"turns": [{"text": "ok"}]}, prompt=prompt)
    assert ran.reply.final_answer == "ok"
    assert prompt.strip() in ran.requests[0].user_text


def test_a_tool_writes_a_file_that_an_assert_then_checks(real: Real) -> None:
    write = {"name": "Bash", "input": {"command": "echo grüße > out.txt && echo done", "description": "write"}}
    also = {"name": "Write", "input": {"file_path": "{workdir}/note.txt", "content": "hello\n"}}
    ran = real.attempt({"turns": [{"text": "Writing.", "tools": [write]}, {"tools": [also]}, {"text": "Written."}]})
    assert [turn.role for turn in ran.reply.turns] == [
        "assistant",
        "tool_use",
        "tool_result",
        "tool_use",
        "tool_result",
        "assistant",
    ]
    assert ran.reply.turns[1].tool_input == write["input"]
    assert (ran.reply.turns[2].content, ran.reply.turns[2].is_error) == ("done", False)
    assert ran.reply.usage == Usage(300, 60, 0, 0)
    checked = run_assert(
        real.launcher,
        real.stop,
        script="assert open('out.txt').read() == 'grüße\\n' and open('note.txt').read() == 'hello\\n'",
        script_path=None,
        folder=ran.folder,
        env={"PATH": os.environ["PATH"]},
    )
    assert checked.passed is True, checked.evidence


def test_an_installed_skill_is_listed_and_activated(real: Real) -> None:
    call = {"name": "Skill", "input": {"skill": "zebra-counter"}}
    ran = real.attempt({"turns": [{"tools": [call]}, {"text": "Three."}]}, skill=True)
    assert ran.reply.builtin_skills is not None
    assert "zebra-counter" in ran.reply.builtin_skills
    assert "- zebra-counter: Counts zebras." in ran.requests[0].text
    assert ran.reply.turns[0].tool_input == {"skill": "zebra-counter"}
    assert ran.reply.turns[1].content == "Launching skill: zebra-counter"
    assert "Run `grep -c zebra`." in ran.requests[1].text


def test_nothing_of_the_operators_and_no_word_of_an_evaluation_reaches_the_model(real: Real) -> None:
    real.customize()
    tools = [{"name": "Bash", "input": {"command": "env; pwd", "description": "look"}}]
    ran = real.attempt({"turns": [{"tools": tools}, {"text": "ok"}]})
    seen = ran.requests[-1].text
    assert "OPERATOR RULES" not in seen
    assert "own-skill" not in seen
    assert ran.reply.mcp_servers == ()
    assert "operator-model" not in {request.body["model"] for request in ran.requests}
    assert "HOME=" in ran.reply.turns[1].content
    assert "caliper" not in seen.lower()


def test_the_operators_customizations_load_when_wanted(real: Real) -> None:
    real.customize()
    ran = real.attempt({"turns": [{"text": "ok"}]}, skill=True, isolated=False)
    seen = ran.requests[0].text
    assert "OPERATOR RULES" in seen
    assert "- own-skill: Does their thing." in seen
    assert "- zebra-counter: Counts zebras." in seen
    assert (ran.reply.model, ran.reply.mcp_servers) == ("operator-model", ("theirs",))


def test_what_a_sub_agent_does_is_told_apart_and_counted(real: Real) -> None:
    job = {"description": "sub job", "prompt": "Say sub-hello", "subagent_type": "general-purpose"}
    call = {"name": "Bash", "input": {"command": "echo sub", "description": "run"}}
    turns = [{"tools": [{"name": "Agent", "input": job}]}, {"tools": [call]}, {"text": "sub-hello"}, {"text": "Done."}]
    reply = real.attempt({"turns": turns}).reply
    started, called, came_back, ended, said = reply.turns
    assert (called.tool_name, called.parent_call_id) == ("Bash", started.call_id)
    assert (came_back.content, came_back.parent_call_id) == ("sub", started.call_id)
    assert (ended.call_id, ended.parent_call_id) == (started.call_id, None)
    assert (said.content, reply.final_answer) == ("Done.", "Done.")
    assert reply.usage == Usage(400, 80, 0, 0)


def test_a_run_that_a_background_task_woke_again_ends_with_its_last_answer(real: Real) -> None:
    call = {"name": "Bash", "input": {"command": "sleep 0.3", "run_in_background": True, "description": "wait"}}
    reply = real.attempt({"turns": [{"tools": [call]}, {"text": "first"}, {"text": "second"}]}).reply
    assert (reply.final_answer, reply.usage) == ("second", Usage(300, 60, 0, 0))


def test_a_refused_key_is_a_refusal_for_good(real: Real) -> None:
    error = {"status": 401, "error_type": "authentication_error", "message": "invalid x-api-key", "repeat": 50}
    ran = real.attempt({"turns": [error]})
    assert ran.result.exit_code == 1
    assert ran.refusal is not None
    assert (ran.refusal.kind, ran.reply.spoke) == ("login", False)


def test_a_refused_key_is_told_before_the_time_is_over(real: Real) -> None:
    error = {"status": 401, "error_type": "authentication_error", "message": "invalid x-api-key", "repeat": 50}
    ran = real.attempt({"turns": [error]}, seconds=20.0, agent={"CLAUDE_CODE_MAX_RETRIES": ""})
    assert not ran.result.timed_out
    assert ran.refusal is not None
    assert (ran.refusal.kind, len(ran.requests)) == ("login", 4)


def test_no_login_at_all_is_a_refusal_for_good(real: Real) -> None:
    ran = real.attempt({"turns": []}, agent={"ANTHROPIC_API_KEY": ""})
    assert ran.refusal is not None
    assert (ran.refusal.kind, ran.requests) == ("login", [])
    assert "Not logged in" in ran.refusal.text


def test_an_unknown_model_is_a_refusal_for_good(real: Real) -> None:
    error = {"status": 404, "error_type": "not_found_error", "message": "model: no-such-model", "repeat": 50}
    ran = real.attempt({"turns": [error]}, model="no-such-model")
    assert ran.refusal is not None
    assert ran.refusal.kind == "model"
    assert {request.body["model"] for request in ran.requests} == {"no-such-model"}


def test_a_throttle_that_ends_in_time_is_none(real: Real) -> None:
    once = {**RATE_LIMIT, "repeat": 1, "headers": {"retry-after": "0"}}
    ran = real.attempt({"turns": [once, {"text": "recovered"}]}, agent={"CLAUDE_CODE_MAX_RETRIES": "2"})
    assert (ran.reply.final_answer, ran.refusal, len(ran.requests)) == ("recovered", None, 2)


@pytest.mark.parametrize(
    ("turn", "words"),
    [
        (RATE_LIMIT, "Slow down."),
        ({"status": 529, "error_type": "overloaded_error", "message": "Overloaded", "repeat": 50}, "529"),
        ({"text": "partial", "stream_error": True, "repeat": 50}, "Overloaded"),
    ],
    ids=["429", "529", "overloaded midstream"],
)
def test_a_throttle_that_lasts_is_one(real: Real, turn: dict[str, Any], words: str) -> None:
    ran = real.attempt({"turns": [turn]})
    assert ran.result.exit_code == 1
    assert ran.refusal is not None
    assert (ran.refusal.kind, ran.reply.finished) == ("throttle", False)
    assert words in ran.refusal.text


def test_a_spent_account_is_a_cap(real: Real) -> None:
    message = "Your credit balance is too low to access the Anthropic API."
    ran = real.attempt({"turns": [{"status": 400, "error_type": "invalid_request_error", "message": message}]})
    assert ran.refusal is not None
    assert ran.refusal.kind == "cap"


def test_an_attempt_that_hangs_is_ended_at_its_limit(real: Real) -> None:
    begun = time.monotonic()
    tool = {"name": "Bash", "input": {"command": "echo begun > out.txt", "description": "begin"}}
    ran = real.attempt({"turns": [{"tools": [tool]}, {"hang": True}]}, seconds=8.0)
    assert ran.result.timed_out
    assert time.monotonic() - begun < 30
    assert ran.refusal is None
    assert [turn.role for turn in ran.reply.turns] == ["tool_use", "tool_result"]
    assert (ran.folder.workdir / "out.txt").exists()


def test_a_stream_that_is_cut_is_asked_again_without_streaming(real: Real) -> None:
    ran = real.attempt({"turns": [{"text": "partial", "cut": True}, {"text": "whole answer"}]})
    assert (ran.reply.final_answer, ran.refusal) == ("whole answer", None)
    assert [request.body.get("stream", False) for request in ran.requests] == [True, False]
    assert ran.reply.usage == Usage(100, 20, 0, 0)


def test_a_stream_that_is_always_cut_is_an_error(real: Real) -> None:
    cut = {"text": "partial", "cut": True, "repeat": 50}
    ran = real.attempt({"turns": [cut]}, agent={"CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "1"})
    assert (ran.result.exit_code, ran.refusal, ran.reply.finished) == (1, None, False)
    assert ran.reply.cli_error is not None
    assert "lost" in ran.reply.cli_error


def test_a_judge_answers_without_tools_skills_or_a_coding_agents_prompt(real: Real) -> None:
    result, requests = real.judge({"judge": [{"text": VERDICT}]})
    assert (result.passed, result.reasoning) == (True, "The transcript says so.")
    assert result.usage == Usage(100, 20, 0, 0)
    assert result.model == requests[0].body["model"]
    (request,) = requests
    assert request.tools == []
    assert "At 12:04." in request.user_text
    assert "Skill tool" not in request.text
    assert len("\n".join(block["text"] for block in request.body["system"])) < 1_000


def test_a_judge_reads_a_transcript_of_a_megabyte(real: Real) -> None:
    text = "The tide turns. " * 65_536
    result, requests = real.judge({"judge": [{"text": VERDICT}]}, turns=(Turn("assistant", text),))
    assert result.passed is True, result.error
    assert text in requests[0].user_text


def test_a_transcript_too_long_for_the_judges_model_is_shortened(real: Real) -> None:
    too_long = {"status": 400, "error_type": "invalid_request_error"}
    too_long["message"] = "prompt is too long: 300000 tokens > 200000 maximum"
    scenario = {"judge": [{**too_long}, {"text": VERDICT}], "shared": True}
    result, requests = real.judge(scenario, turns=(Turn("assistant", "The tide turns. " * 65_536),))
    assert result.passed is True, result.error
    assert [len(request.user_text) > 500_000 for request in requests] == [True, False]


def test_a_judge_that_is_throttled_and_malformed_gets_there(real: Real) -> None:
    turns = [{**RATE_LIMIT, "repeat": 1}, {"text": "It passed."}, {"text": f"```json\n{VERDICT}\n```"}]
    result, requests = real.judge({"judge": turns, "shared": True})
    assert (result.passed, result.retries, len(requests)) == (True, 2, 3)


def test_a_judge_without_a_login_is_refused_for_good(real: Real) -> None:
    error = {"status": 401, "error_type": "authentication_error", "message": "invalid x-api-key", "repeat": 50}
    result, _ = real.judge({"judge": [error]})
    assert result.refusal is not None
    assert result.refusal.kind == "login"


def test_a_role_is_taken_by_the_real_command(real: Real) -> None:
    url = real.models.add({"judge": [{"text": "ok"}]})
    given = JudgeInvocation(
        engine=Engine("claude-code", "haiku"),
        prompt="Judge.",
        home=real.folder.home,
        workdir=real.folder.workdir,
        operator=real.operator(url),
        timeout_seconds=LIMIT_SECONDS,
        system="You are the harbour master.",
    )
    backend = ClaudeCode()
    backend.prepare_judge(given)
    answer = backend.read_judge(real.launcher.run(backend.judge_command(given), real.stop))
    assert answer.text == "ok"
    assert answer.model is not None
    assert answer.model.startswith("claude-haiku")
    assert "You are the harbour master." in real.models.requests(url)[0].text
