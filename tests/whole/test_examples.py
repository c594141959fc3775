"""The example skills: each spec is valid, and a scripted agent runs it from end to end."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "skills" / "examples"


@pytest.mark.parametrize("name", sorted(folder.name for folder in EXAMPLES.iterdir()))
def test_an_example_runs_from_end_to_end(name: str, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    (tmp_path / ".caliper").mkdir()
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8", "CALIPER_RECORDER": "off"}
    spec = f"examples/{name}/{name}.eval.yaml"
    command = [sys.executable, "-m", "caliper_pipeline.interfaces.cli", "run", spec, "--model", "scripted", "--k", "1"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (path,) = (tmp_path / ".caliper" / "results").glob("*/*.json")
    results = json.loads(path.read_text(encoding="utf-8"))
    kinds = {
        "assert": any(task["attempts"][0]["assert_passed"] is not None for task in results["task_results"]),
        "judge": any(task["attempts"][0]["autorater_passed"] is not None for task in results["task_results"]),
        "silence probe": any(task["activation_expected"] == [] for task in results["task_results"]),
        "neighbour probe": any(task["activation_expected"] not in ([], [name]) for task in results["task_results"]),
    }
    assert all(kinds.values()), kinds
