"""An agent can print the key that it was given; the run does not keep it."""

import os
from pathlib import Path

from execution.stand_in import StandIn

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.evaluation.prepare import prepare
from caliper_pipeline.evaluation.project import find_project
from caliper_pipeline.evaluation.request import RunRequest

KEY = "sk-ant-0123456789abcdef"


def test_a_key_that_the_agent_prints_is_stored_nowhere(tmp_path: Path) -> None:
    (tmp_path / ".caliper").mkdir()
    spec = tmp_path / "it.eval.yaml"
    spec.write_text("tasks: [{name: T, prompt: Hi., assert: assert True}]", encoding="utf-8")
    said = {"type": "assistant", "message": {"content": [{"type": "text", "text": f"ANTHROPIC_API_KEY={KEY}"}]}}
    done = {"type": "result", "subtype": "success", "is_error": False, "result": f"It is {KEY}."}
    StandIn.at(tmp_path / "bin").answer(said, done, stderr=f"debug {KEY}")
    environ = {
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path / "home"),
        "CALIPER_ROOT": str(tmp_path),
        "ANTHROPIC_API_KEY": KEY,
    }
    request = RunRequest(spec, engine=Engine("claude-code"), k=1, workers=1)
    summary = prepare(find_project(tmp_path, environ), request).execute()
    assert summary.results.task_results[0].attempts[0].output == "It is [hidden]."
    stored = [path for path in (tmp_path / ".caliper").rglob("*") if path.is_file()]
    assert len(stored) > 3
    assert not any(KEY.encode() in path.read_bytes() for path in stored)
