"""Declared servers are asked before anything is paid for or made, and only when an agent is to be started."""

import json
import os
import sys
from pathlib import Path

import pytest
from execution.stand_in import StandIn
from mcp_server import read_log, stdio_args

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.errors import CannotRun
from caliper_pipeline.evaluation.prepare import prepare
from caliper_pipeline.evaluation.project import Project, find_project
from caliper_pipeline.evaluation.request import RunRequest
from caliper_pipeline.evaluation.resume import regrade, resume
from caliper_pipeline.evaluation.run import Evaluation

SECRET = "s3cret-value"
INIT = {"type": "system", "subtype": "init", "mcp_servers": [{"name": "tide", "status": "connected"}]}
SAID = {"type": "assistant", "message": {"content": [{"type": "text", "text": "Hi."}]}}
DONE = {"type": "result", "subtype": "success", "is_error": False, "result": "Hi."}


class Bench:
    """A project whose agent is a stand-in and whose one server keeps what it receives."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "server.log"
        self.command = sys.executable
        self.token: str | None = SECRET
        (folder / ".caliper").mkdir()
        (folder / "home").mkdir()
        self.stand_in = StandIn.at(folder / "bin").answer(INIT, SAID, DONE)

    @property
    def project(self) -> Project:
        environ = {"PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}", "HOME": str(self.folder / "home")}
        if self.token is not None:
            environ["TIDE_TOKEN"] = self.token
        return find_project(self.folder, {**environ, "CALIPER_ROOT": str(self.folder)})

    def spec(self, mcp: object) -> Path:
        task = {"name": "T", "prompt": "Hi.", "assert": "assert True", "setup": f"touch {self.folder / 'began'}"}
        path = self.folder / "it.eval.yaml"
        path.write_text(json.dumps({"tasks": [task], **({} if mcp is None else {"mcp": mcp})}), encoding="utf-8")
        return path

    def server(self) -> dict[str, object]:
        return {"command": self.command, "args": stdio_args(self.log), "env": {"TOKEN": "x ${TIDE_TOKEN}"}}

    def prepare(self, mcp: object, *, engine: str = "claude-code", **facts: object) -> Evaluation:
        request = RunRequest(self.spec(mcp), engine=Engine(engine), k=1, workers=1, **facts)  # type: ignore[arg-type]
        return prepare(self.project, request)

    @property
    def asked(self) -> int:
        """How often the server was started."""
        return sum("start" in entry for entry in read_log(self.log))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_dead_server_is_told_before_setup_and_before_the_run_has_a_folder(bench: Bench) -> None:
    dead = {"command": "sh", "args": ["-c", "echo $TOKEN >&2; exit 1"], "env": {"TOKEN": "${TIDE_TOKEN}"}}
    with pytest.raises(CannotRun, match="the server tide: it ended before it had answered") as caught:
        bench.prepare({"tide": dead})
    assert str(bench.folder / "it.eval.yaml") in caught.value.message
    assert SECRET not in str(caught.value)
    assert bench.project.store.run_ids() == []
    assert not (bench.folder / "began").exists()
    assert bench.stand_in.calls == 0


def test_an_unset_variable_is_told_before_any_server_is_started(bench: Bench) -> None:
    bench.token = None
    with pytest.raises(CannotRun, match=r"tide: env\.TOKEN: TIDE_TOKEN"):
        bench.prepare({"tide": bench.server()})
    assert bench.asked == 0


def test_what_variables_stand_for_is_stored_nowhere_even_if_the_agent_prints_it(bench: Bench) -> None:
    shell = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": f"echo {SECRET}"}}
    printed = {"type": "tool_result", "tool_use_id": "t", "content": f"KEY={SECRET}"}
    events = [
        {"type": "assistant", "message": {"content": [shell]}},
        {"type": "user", "message": {"content": [printed]}},
        {**DONE, "result": f"It is {SECRET}."},
    ]
    bench.stand_in.answers = 0
    bench.stand_in.answer(INIT, *events, stderr=f"debug {SECRET}")
    summary = bench.prepare({"tide": bench.server()}).execute()
    assert summary.results.task_results[0].attempts[0].output == "It is [hidden]."
    assert read_log(bench.log)[0]["start"]["env"]["TOKEN"] == f"x {SECRET}"
    stored = [path for path in (bench.folder / ".caliper").rglob("*") if path.is_file()]
    assert len(stored) > 3
    assert not any(SECRET.encode() in path.read_bytes() for path in stored)


def test_an_ablated_server_is_neither_asked_nor_needs_its_variables(bench: Bench) -> None:
    bench.token = None
    bench.prepare({"tide": bench.server()}, ablate=("mcp:tide",))
    assert bench.asked == 0


def test_a_script_needs_no_server(bench: Bench) -> None:
    bench.token = None
    (bench.folder / "it.script.yaml").write_text("tasks: {T: [{steps: [{say: Hi.}]}]}", encoding="utf-8")
    summary = bench.prepare({"tide": bench.server()}, engine="scripted").execute()
    assert (summary.recorded, bench.asked) == (1, 0)


def test_a_finished_run_is_graded_again_without_its_servers(bench: Bench) -> None:
    summary = bench.prepare({"tide": bench.server()}).execute()
    bench.token = None
    regrade(bench.project, summary.header.run_id).execute()
    assert bench.asked == 1


def test_a_run_taken_up_asks_again_only_when_agents_are_to_start(bench: Bench) -> None:
    summary = bench.prepare({"tide": bench.server()}).execute()
    run_id = summary.header.run_id
    resume(bench.project, run_id=run_id)
    assert bench.asked == 1
    resume(bench.project, run_id=run_id, k=2)
    assert bench.asked == 2


def test_an_empty_list_records_no_server_of_the_operators(bench: Bench) -> None:
    (bench.folder / "home" / ".claude.json").write_text('{"mcpServers": {"own": {}}}', encoding="utf-8")
    assert bench.prepare(None).header.loaded_user_customizations == ("mcp:own",)
    assert bench.prepare({}).header.loaded_user_customizations == ()


def test_an_attempt_without_its_server_is_no_failure_of_the_task(bench: Bench) -> None:
    failed = {**INIT, "mcp_servers": [{"name": "tide", "status": "failed"}]}
    bench.stand_in.answer(failed, SAID, DONE)
    bench.stand_in.answers = 0
    bench.stand_in.answer(failed, SAID, DONE)
    summary = bench.prepare({"tide": bench.server()}).execute()
    (attempt,) = summary.results.task_results[0].attempts
    assert attempt.outcome.value == "infra_error"
    assert attempt.assert_evidence == "the agent ran without the MCP server tide (failed)"
