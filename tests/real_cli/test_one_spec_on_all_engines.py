"""The same spec through `caliper run` on every engine: a skill that is read, a file that an assert looks at, a judge.

Each engine is installed and logged in as a person would have it, with the loopback model server as its service.
"""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from model_server import ModelServer

pytestmark = pytest.mark.real_cli

SKILL = (
    "---\nname: zebra-counter\ndescription: Counts zebras. Use when asked about zebras.\n---\n\nRun `grep -c zebra`.\n"
)
SPEC = """skills: [./zebra-counter/SKILL.md]
user_customizations: false
tasks:
  - name: Counts the herd
    prompt: How many zebras are in herd.txt? Write the number into count.txt.
    setup: printf 'zebra\\nlion\\nzebra\\n' > herd.txt
    expect: The agent counted two zebras.
    assert: |
      assert open('count.txt').read().strip() == '2'
    activates: [zebra-counter]
"""
COUNT = "grep -c zebra herd.txt > count.txt"
VERDICT = '{"passed": true, "reasoning": "It counted two."}'


@dataclass
class Setup:
    """One engine on the operator's machine."""

    engine: str
    read_skill: dict[str, Any]
    count: dict[str, Any]
    environment: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    """In the operator's home."""
    model: str | None = "scripted-1"
    """The one that answers; `None`: the CLI does not tell."""


@pytest.fixture
def setups(request: pytest.FixtureRequest) -> dict[str, Callable[[str], Setup]]:
    def claude(url: str) -> Setup:
        folder: Path = request.getfixturevalue("claude_folder")
        return Setup(
            "claude-code:scripted-1",
            {"name": "Skill", "input": {"skill": "zebra-counter"}},
            {"name": "Bash", "input": {"command": COUNT}},
            {
                "PATH": os.pathsep.join([str(folder), os.environ["PATH"]]),
                "ANTHROPIC_BASE_URL": url,
                "ANTHROPIC_API_KEY": "sk-test",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            },
        )

    def codex(url: str) -> Setup:
        config = (
            'model_provider = "lab"\n[model_providers.lab]\nname = "lab"\nwire_api = "responses"\n'
            f'base_url = "{url}/v1"\nexperimental_bearer_token = "sk-test"\n'
        )
        read = 'cat "$CODEX_HOME/skills/zebra-counter/SKILL.md"'
        return Setup(
            "codex:gpt-5.5",
            {"name": "exec_command", "input": {"cmd": read}},
            {"name": "exec_command", "input": {"cmd": COUNT}},
            {"CODEX_CLI_PATH": str(request.getfixturevalue("codex_binary"))},
            {".codex/config.toml": config},
            model="gpt-5.5",
        )

    def pi(url: str) -> Setup:
        provider = {"baseUrl": f"{url}/v1", "api": "openai-completions", "apiKey": "sk-test"}
        models = {"providers": {"lab": {**provider, "models": [{"id": "scripted-1"}]}}}
        settings = {"defaultProvider": "lab", "defaultModel": "scripted-1"}
        return Setup(
            "pi:lab/scripted-1",
            {"name": "bash", "input": {"command": "cat ~/.pi/agent/skills/zebra-counter/SKILL.md"}},
            {"name": "bash", "input": {"command": COUNT}},
            {"PI_CLI_PATH": str(request.getfixturevalue("pi_binary"))},
            {".pi/agent/models.json": json.dumps(models), ".pi/agent/settings.json": json.dumps(settings)},
        )

    def hermes(url: str) -> Setup:
        config = {
            "model": {"provider": "lab", "default": "scripted-1", "context_length": 200_000},
            "providers": {"lab": {"base_url": f"{url}/v1", "api_key": "sk-test", "api_mode": "chat_completions"}},
        }
        return Setup(
            "hermes",
            {"name": "skill_view", "input": {"name": "zebra-counter"}},
            {"name": "terminal", "input": {"command": COUNT}},
            {"HERMES_CLI_PATH": str(request.getfixturevalue("hermes_binary"))},
            {".hermes/config.yaml": yaml.safe_dump(config)},
        )

    def claude_api(url: str) -> Setup:
        return Setup(
            "claude-api:scripted-1",
            {"name": "skill", "input": {"name": "zebra-counter"}},
            {"name": "bash", "input": {"command": COUNT}},
            {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "sk-test"},
        )

    def openai_api(url: str) -> Setup:
        return Setup(
            "openai-api:scripted-1",
            {"name": "skill", "input": {"name": "zebra-counter"}},
            {"name": "bash", "input": {"command": COUNT}},
            {"OPENAI_BASE_URL": f"{url}/v1"},
        )

    return {
        "claude-code": claude,
        "codex": codex,
        "pi": pi,
        "hermes": hermes,
        "claude-api": claude_api,
        "openai-api": openai_api,
    }


def start(folder: Path, setup: Setup, *arguments: str) -> "subprocess.Popen[str]":
    home, temp = folder / "home", folder / "temp"
    temp.mkdir(exist_ok=True)
    for name, text in setup.files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text, encoding="utf-8")
    (folder / "zebra-counter").mkdir(exist_ok=True)
    (folder / "zebra-counter" / "SKILL.md").write_text(SKILL, encoding="utf-8")
    (folder / "it.eval.yaml").write_text(SPEC, encoding="utf-8")
    (folder / ".caliper").mkdir(exist_ok=True)
    (folder / "caliper.yaml").write_text("environment: {agent: [CLAUDE_CODE_DISABLE_*]}\n", encoding="utf-8")
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "COLUMNS": "200",
        "CALIPER_RECORDER": "off",
        "NO_PROXY": "127.0.0.1",
        "TMPDIR": str(temp),
        **setup.environment,
    }
    return subprocess.Popen(
        [sys.executable, "-m", "caliper_pipeline.interfaces.cli", *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(folder: Path, setup: Setup, *arguments: str) -> "subprocess.CompletedProcess[str]":
    process = start(folder, setup, *arguments)
    out, err = process.communicate(timeout=180)
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def left_in(folder: Path) -> list[str]:
    """Files of attempts that are still there, whether of a home or of a workdir."""
    return [str(path.relative_to(folder)) for path in (folder / "temp").rglob("*") if path.is_file()]


def processes_of(folder: Path) -> list[int]:
    """Processes that were started from the folder, told by their environment; none of a test beside this one."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            told = (place / "environ").read_bytes()
            if str(folder).encode() in told and (place / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.append(int(place.name))
        except OSError:
            continue  # it ended while we looked
    return found


def await_end(pids: list[int]) -> list[int]:
    """Those that are still there after 20 s, waiting for each without looking at the clock."""
    still = []
    for pid in pids:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        ready, _, _ = select.select([fd], [], [], 20.0)
        os.close(fd)
        if not ready:
            still.append(pid)
    return still


ENGINES = ["claude-code", "codex", "pi", "hermes", "claude-api", "openai-api"]


@pytest.mark.parametrize("engine", ENGINES)
def test_the_spec_gives_the_same_results_on(
    engine: str, tmp_path: Path, models: ModelServer, setups: dict[str, Callable[[str], Setup]]
) -> None:
    judge = [{"text": VERDICT, "repeat": 9}]
    scenario: dict[str, Any] = {
        "when": [
            {"text": "Nothing is to be judged yet", "turns": judge},
            {"text": "Decide whether an agent's attempt met", "turns": judge},
        ]
    }
    url = models.add(scenario)
    setup = setups[engine](url)
    scenario["turns"] = [{"tools": [setup.read_skill]}, {"tools": [setup.count]}, {"text": "There are two zebras."}]
    (tmp_path / "home").mkdir()
    done = run(tmp_path, setup, "run", "it.eval.yaml", "--k", "1", "--model", setup.engine)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (left_in(tmp_path), processes_of(tmp_path)) == ([], [])

    (path,) = (tmp_path / ".caliper" / "results").glob("*/*.json")
    results = json.loads(path.read_text(encoding="utf-8"))
    (attempt,) = results["task_results"][0]["attempts"]
    told = {
        "backend": results["run"]["backend"],
        "reported_model": results["run"]["reported_model"],
        "outcome": attempt["outcome"],
        "assert_passed": attempt["assert_passed"],
        "autorater_passed": attempt["autorater_passed"],
        "activated": attempt["activated"],
        "output": attempt["output"],
        "usage": attempt["usage"] is not None and attempt["usage"]["output_tokens"],
        "cli_version": bool(results["run"]["cli_version"]),
    }
    assert told == {
        "backend": engine,
        "reported_model": setup.model,
        "outcome": "pass",
        "assert_passed": True,
        "autorater_passed": True,
        "activated": ["zebra-counter"],
        "output": "There are two zebras.",
        "usage": 60,
        "cli_version": True,
    }


@pytest.mark.skipif(sys.platform != "linux", reason="looks processes up in /proc")
@pytest.mark.parametrize("ending", ["SIGTERM", "SIGKILL"])
@pytest.mark.parametrize("engine", ENGINES)
def test_nothing_stays_behind_when_the_run_is_ended_amid_a_tool_of(
    engine: str, ending: str, tmp_path: Path, models: ModelServer, setups: dict[str, Callable[[str], Setup]]
) -> None:
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    scenario: dict[str, Any] = {"when": [{"text": "Nothing is to be judged yet", "turns": [{"text": VERDICT}]}]}
    setup = setups[engine](models.add(scenario))
    (key,) = setup.count["input"]
    wait = {"name": setup.count["name"], "input": {key: f"echo $$ > {begun}; sleep 300"}}
    scenario["turns"] = [{"tools": [wait]}]
    (tmp_path / "home").mkdir()
    process = start(tmp_path, setup, "run", "it.eval.yaml", "--k", "1", "--model", setup.engine)
    begun.read_text(encoding="utf-8")  # comes once the tool runs
    started = processes_of(tmp_path)
    process.send_signal(signal.Signals[ending])
    process.communicate(timeout=60)
    assert await_end(started) == []
    if ending == "SIGKILL":  # nobody was left to tidy up: the next run does
        (tmp_path / "it.script.yaml").write_text("tasks: {'*': {steps: [{say: Two.}]}}\n", encoding="utf-8")
        run(tmp_path, Setup("scripted", {}, {}), "run", "it.eval.yaml", "--k", "1", "--model", "scripted")
    assert (left_in(tmp_path), processes_of(tmp_path)) == ([], [])
