"""SIGKILL at any moment loses only attempts in flight: what is stored is never made again, and nothing is missing."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

TASKS, K, KILLS = 50, 4, 20
NOTHING_LEFT = b"Nothing to resume"

AGENT = """#!/bin/sh
# Stand-in agent: says that it started, answers at once.
if [ "$1" = "--version" ]; then echo "2.1.197 (Claude Code)"; exit 0; fi
echo "$$" >> "@STARTS@"
echo done > made.txt
cat <<'END'
{"type":"assistant","message":{"role":"assistant","model":"m","content":[{"type":"text","text":"Done."}]}}
{"type":"result","subtype":"success","is_error":false,"result":"Done.","usage":{"input_tokens":10,"output_tokens":2}}
END
"""


def project(folder: Path) -> dict[str, str]:
    binaries, home = folder / "bin", folder / "home"
    for made in (binaries, home, folder / ".caliper"):
        made.mkdir()
    agent = binaries / "claude"
    agent.write_text(AGENT.replace("@STARTS@", str(folder / "starts")), encoding="utf-8")
    agent.chmod(0o755)
    tasks = "".join(
        f"  - name: task {n}\n    prompt: Make the file.\n    assert: assert open('made.txt').read()\n"
        for n in range(TASKS)
    )
    (folder / "kill.eval.yaml").write_text(f"tasks:\n{tasks}", encoding="utf-8")
    return {
        "PATH": f"{binaries}:/usr/bin:/bin",
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "CALIPER_RECORDER": "off",
        "TMPDIR": str(folder),
    }


def start(folder: Path, environment: dict[str, str], *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "caliper_pipeline.interfaces.cli", "run", *arguments]
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def lines(folder: Path) -> list[dict[str, object]]:
    (log,) = (folder / ".caliper" / "runs").glob("*/attempts.jsonl")
    kept = []
    for line in log.read_bytes().splitlines():
        try:
            kept.append(json.loads(line))
        except ValueError:
            continue
    return kept


def test_after_twenty_kills_a_resumed_run_has_every_attempt_once(tmp_path: Path) -> None:
    environment = project(tmp_path)
    chance = random.Random(int.from_bytes(os.urandom(4), "big"))
    first = ("kill.eval.yaml", "--k", str(K), "--workers", "4", "--no-user-customizations")
    kills = 0
    for _ in range(KILLS * 3):
        # The run folder stands once run.json does; only then is there something to resume.
        begun = any((tmp_path / ".caliper" / "runs").glob("*/run.json"))
        process = start(tmp_path, environment, *(("--resume",) if begun else first))
        try:
            process.wait(timeout=chance.uniform(0.25, 0.75))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            kills += 1
        output, _ = process.communicate()
        if process.returncode == 0 or kills == KILLS or NOTHING_LEFT in output:
            break
        assert b"Traceback" not in output, output.decode()
    if process.returncode != 0:
        process = start(tmp_path, environment, "--resume")
        output, _ = process.communicate(timeout=120)
        # A kill may hit between the run's last line and the command's end.
        assert process.returncode == 0 or NOTHING_LEFT in output, output.decode()
    attempts = Counter((line["task_id"], line["attempt"]) for line in lines(tmp_path) if line["type"] == "attempt")
    verdicts = Counter((line["task_id"], line["attempt"]) for line in lines(tmp_path) if line["type"] == "verdict")
    assert len(attempts) == TASKS * K
    assert set(attempts.values()) == {1}
    assert verdicts == attempts
    (results,) = (tmp_path / ".caliper" / "results" / "kill").glob("*.json")
    saved = json.loads(results.read_text(encoding="utf-8"))
    assert sum(len(task["attempts"]) for task in saved["task_results"]) == TASKS * K
    started = len((tmp_path / "starts").read_text(encoding="utf-8").split())
    assert started <= TASKS * K + 4 * kills
    _no_agent_is_left(tmp_path)


def _no_agent_is_left(folder: Path) -> None:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        left = subprocess.run(["pgrep", "-f", str(folder / "bin")], capture_output=True, text=True).stdout.split()
        if not left:
            return
    raise AssertionError(f"agents still run: {left}")
