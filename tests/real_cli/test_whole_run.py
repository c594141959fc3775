"""`caliper run` from the spec file to the results, with the real Claude Code CLI and a model that plays scenarios."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from model_server import ModelServer

pytestmark = pytest.mark.real_cli

EXAMPLES = Path(__file__).parents[2] / "skills" / "examples"
NOTES = """# 2.4.0

## Breaking

- Import maps only in the new format (#377)

## New

- Use the map offline (#412)

## Fixed

- Hear each alarm once (#398)
"""
SETTINGS = "environment:\n  agent: [CLAUDE_CODE_DISABLE_*, CLAUDE_CODE_MAX_RETRIES]\n"
VERDICT = '{"passed": true, "reasoning": "It says so."}'
REFUSED = {"status": 401, "error_type": "authentication_error", "message": "invalid x-api-key", "repeat": 50}
THROTTLED = {"status": 429, "error_type": "rate_limit_error", "message": "Slow down."}


@dataclass
class Project:
    """A project folder, and a home and environment of its own for the command."""

    folder: Path
    environment: dict[str, str]

    def run(self, *arguments: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "caliper_pipeline.interfaces.cli", *arguments],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
        )

    def results(self) -> dict[str, Any]:
        (path,) = (self.folder / ".caliper" / "results").glob("*/*.json")
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found

    def attempt(self, task: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = self.results()["task_results"][task]["attempts"][0]
        return found


@pytest.fixture
def project(tmp_path: Path, claude_folder: Path) -> Project:
    folder, home = tmp_path / "project", tmp_path / "home"
    (folder / ".caliper").mkdir(parents=True)
    home.mkdir()
    environment = {
        "PATH": os.pathsep.join([str(claude_folder), os.environ["PATH"]]),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "COLUMNS": "160",
        "CALIPER_RECORDER": "off",
        "ANTHROPIC_API_KEY": "sk-test",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "0",
        "NO_PROXY": "127.0.0.1",
    }
    (folder / "caliper.yaml").write_text(SETTINGS, encoding="utf-8")
    return Project(folder, environment)


def play(project: Project, models: ModelServer, scenario: dict[str, Any]) -> None:
    project.environment["ANTHROPIC_BASE_URL"] = models.add(scenario)


def spec(project: Project, text: str) -> str:
    (project.folder / "it.eval.yaml").write_text(f"user_customizations: false\n{text}", encoding="utf-8")
    return "it.eval.yaml"


def test_the_starter_example_passes_when_the_model_follows_the_skill(project: Project, models: ModelServer) -> None:
    shutil.copytree(EXAMPLES, project.folder / "skills")
    skill = {"name": "Skill", "input": {"skill": "release-notes"}}
    other = {"name": "Skill", "input": {"skill": "meeting-minutes"}}
    write = {"name": "Bash", "input": {"command": f"cat > RELEASE.md <<'END'\n{NOTES}END"}}
    scenario = {
        "when": [
            {
                "text": "about to ship version 2.4.0",
                "turns": [{"tools": [skill]}, {"tools": [write]}, {"text": "Done."}],
            },
            {"text": "renamed an internal class", "turns": [{"tools": [skill]}, {"text": "Only the start-up: New."}]},
            {"text": "notes of this morning", "turns": [{"tools": [other]}, {"text": "Written."}]},
            {"text": "2.10.0 newer", "turns": [{"text": "Newer."}]},
        ],
        "judge": [{"text": VERDICT, "repeat": 50}],
        "turns": [],
    }
    play(project, models, scenario)
    done = project.run("run", "skills/release-notes/release-notes.eval.yaml", "--k", "1", "--workers", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    results = project.results()
    assert [task["attempts"][0]["outcome"] for task in results["task_results"]] == [
        "pass",
        "pass",
        "not_checked",
        "not_checked",
    ]
    assert results["aggregate"]["avg_activation_score"] == 1.0
    assert results["run"]["reported_model"] is not None
    assert results["run"]["cli_version"].startswith("2.1.197")


def test_a_file_that_the_agent_writes_is_what_the_assert_sees(project: Project, models: ModelServer) -> None:
    write = {"name": "Bash", "input": {"command": "echo 42 > answer.txt"}}
    play(project, models, {"turns": [{"tools": [write]}, {"text": "Done."}]})
    text = "tasks:\n  - name: T\n    prompt: Write 42.\n    assert: assert open('answer.txt').read() == '42\\n'\n"
    done = project.run("run", spec(project, text), "--k", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert project.attempt()["outcome"] == "pass"


@pytest.mark.parametrize(
    ("turn", "words"),
    [
        ({"status": 401, "error_type": "authentication_error", "message": "invalid x-api-key"}, "logged in"),
        ({"status": 404, "error_type": "not_found_error", "message": "model: nope"}, "model"),
    ],
)
def test_what_every_attempt_would_meet_stops_the_run_at_once(
    project: Project, models: ModelServer, turn: dict[str, Any], words: str
) -> None:
    play(project, models, {"turns": [{**turn, "repeat": 50}]})
    text = "tasks:\n  - name: T\n    prompt: Say hi.\n    assert: assert True\n"
    done = project.run("run", spec(project, text), "--k", "3", "--workers", "1", "--model", "claude-code:nope")
    assert done.returncode == 2
    assert words in done.stderr.lower()
    assert "Traceback" not in done.stderr


def test_a_throttle_is_waited_out(project: Project, models: ModelServer) -> None:
    play(project, models, {"turns": [THROTTLED, {"text": "Hi."}], "shared": True})
    text = "tasks:\n  - name: T\n    prompt: Say hi.\n    assert: assert True\n"
    done = project.run("run", spec(project, text), "--k", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (project.attempt()["outcome"], project.attempt()["retries"]) == ("pass", 1)


@pytest.mark.parametrize(
    "turn",
    [
        {"status": 529, "error_type": "overloaded_error", "message": "Overloaded", "repeat": 50},
        {"text": "Half an ans", "stream_error": True, "repeat": 50},
        {"text": "Half an ans", "cut": True, "repeat": 50},
    ],
    ids=["overloaded", "overloaded mid-stream", "cut mid-stream"],
)
def test_trouble_at_the_provider_is_never_the_skills_failure(
    project: Project, models: ModelServer, turn: dict[str, Any]
) -> None:
    (project.folder / "caliper.yaml").write_text(f"{SETTINGS}limits:\n  retries: 0\n", encoding="utf-8")
    play(project, models, {"turns": [turn]})
    project.environment["CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK"] = "1"
    text = "tasks:\n  - name: T\n    prompt: Say hi.\n    assert: assert True\n"
    done = project.run("run", spec(project, text), "--k", "1")
    assert done.returncode == 2, done.stdout + done.stderr
    assert project.attempt()["outcome"] == "infra_error"
    assert project.results()["task_results"][0]["score"] is None


def test_an_agent_that_never_ends_is_a_timeout(project: Project, models: ModelServer) -> None:
    play(project, models, {"turns": [{"hang": True, "repeat": 50}]})
    text = "tasks:\n  - name: T\n    prompt: Say hi.\n    assert: assert True\n"
    done = project.run("run", spec(project, text), "--k", "1", "--timeout", "5")
    assert done.returncode == 2
    assert project.attempt()["outcome"] == "timeout"


def test_a_judge_that_cannot_log_in_loses_no_attempt(project: Project, models: ModelServer) -> None:
    first = [{"text": "Nothing is to be judged yet", "turns": [{"text": VERDICT}], "judge": True}]
    play(project, models, {"when": first, "turns": [{"text": "Hi."}], "judge": [REFUSED]})
    text = "tasks:\n  - name: T\n    prompt: Say hi.\n    expect: Greets.\n"
    stopped = project.run("run", spec(project, text), "--k", "1")
    assert stopped.returncode == 2
    assert "--resume" in stopped.stderr
    requests = len(models.requests(project.environment["ANTHROPIC_BASE_URL"]))
    play(project, models, {"turns": [{"text": "Not asked."}], "judge": [{"text": VERDICT, "repeat": 5}]})
    resumed = project.run("run", "--resume")
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert (project.attempt()["outcome"], project.attempt()["output"]) == ("pass", "Hi.")
    assert requests == 3, "the judge's first question, the agent, and the judge that is refused by now"
    assert all(not request.tools for request in models.requests(project.environment["ANTHROPIC_BASE_URL"]))


def test_a_judge_that_cannot_log_in_is_found_out_before_any_attempt(project: Project, models: ModelServer) -> None:
    play(project, models, {"turns": [{"text": "Hi."}], "judge": [REFUSED]})
    text = "tasks:\n  - name: T\n    prompt: Say hi.\n    expect: Greets.\n"
    stopped = project.run("run", spec(project, text), "--k", "1")
    assert (stopped.returncode, "The claude-code judge cannot run: Not logged in" in stopped.stderr) == (2, True)
    assert len(models.requests(project.environment["ANTHROPIC_BASE_URL"])) == 1
    assert not (project.folder / ".caliper" / "runs").exists()
