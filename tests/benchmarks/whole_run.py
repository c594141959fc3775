"""Whole runs beside `caliper-eval` 0.21.0 as a black box: the same spec, the same instant stand-in agent.

    python tests/benchmarks/whole_run.py --reference PATH/TO/caliper [--rounds 5]

Prints, for each figure, the medians of both and the median of the ratios pair by pair (A, B, A, B, …), since shared
machines drift. CPU counts the command and all its children, agents included.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

AGENT = """#!/bin/sh
if [ "$1" = "--version" ]; then echo "2.1.197 (Claude Code)"; exit 0; fi
cat <<'END'
{"type":"system","subtype":"init","model":"m","skills":[],"mcp_servers":[]}
{"type":"assistant","message":{"role":"assistant","model":"m","content":[{"type":"text","text":"Done."}]}}
{"type":"result","subtype":"success","is_error":false,"result":"Done.","usage":{"input_tokens":10,"output_tokens":2}}
END
"""
RESULTS = Path(__file__).parents[1] / "fixtures" / "results" / "reference-0.21.0.json"
SKILL = "---\nname: tide-table\ndescription: Reads tide tables.\n---\nRead the table.\n"


def lay_out(folder: Path, tasks: int) -> dict[str, str]:
    """A project with one skill, a spec of that many assert-only tasks, and the stand-in agent on its PATH."""
    for name in ("bin", "home", "skill", ".caliper"):
        (folder / name).mkdir(parents=True)
    agent = folder / "bin" / "claude"
    agent.write_text(AGENT, encoding="utf-8")
    agent.chmod(0o755)
    (folder / "skill" / "SKILL.md").write_text(SKILL, encoding="utf-8")
    body = "".join(f"  - name: task {n}\n    prompt: Say done.\n    assert: assert True\n" for n in range(tasks))
    (folder / "bench.eval.yaml").write_text(f"skills:\n  - ./skill/SKILL.md\ntasks:\n{body}", encoding="utf-8")
    return {
        "PATH": f"{folder / 'bin'}:/usr/bin:/bin",
        "HOME": str(folder / "home"),
        "LANG": "C.UTF-8",
        "CALIPER_RECORDER": "off",
        "NO_COLOR": "1",
    }


def measure(command: list[str], folder: Path, environment: dict[str, str]) -> dict[str, float]:
    """Wall and CPU seconds of one process with its children, and the peak memory of the process itself in MB."""
    peak = 0.0
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )

    def watch() -> None:
        nonlocal peak
        while process.poll() is None:
            try:
                status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
            except OSError:
                return
            for line in status.splitlines():
                if line.startswith("VmHWM:"):
                    peak = max(peak, int(line.split()[1]) / 1024)
            time.sleep(0.02)

    watcher = threading.Thread(target=watch)
    watcher.start()
    output, _ = process.communicate()
    wall = time.perf_counter() - begun
    watcher.join()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode not in (0,):
        sys.exit(f"{command}: exit {process.returncode}\n{output.decode(errors='replace')}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall": wall, "cpu": cpu, "peak_mb": peak}


def compare(name: str, ours: list[str], theirs: list[str], rounds: int, tasks: int) -> None:
    """Both commands in turn, each time in a fresh project."""
    figures: dict[str, list[dict[str, float]]] = {"ours": [], "theirs": []}
    for turn in range(rounds + 1):
        for who, command in (("ours", ours), ("theirs", theirs)):
            top = Path(tempfile.mkdtemp(prefix="bench-"))
            try:
                environment = lay_out(top, tasks)
                found = measure(command, top, environment)
            finally:
                shutil.rmtree(top, ignore_errors=True)
            if turn:
                figures[who].append(found)
    row = {}
    for key in ("wall", "cpu", "peak_mb"):
        a = [figure[key] for figure in figures["ours"]]
        b = [figure[key] for figure in figures["theirs"]]
        ratios = [x / y for x, y in zip(a, b, strict=True) if y]
        row[key] = {
            "ours": round(statistics.median(a), 3),
            "reference": round(statistics.median(b), 3),
            "ratio": round(statistics.median(ratios), 2),
        }
    print(name, json.dumps(row), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", required=True, help="the reference's command, in a venv of its own")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    ours = [str(Path(sys.executable).parent / "caliper")]
    theirs = [os.fspath(Path(args.reference).resolve())]
    flags = ["bench.eval.yaml", "--no-user-customizations", "--workers", "4"]
    for name, extra, tasks in (
        ("run 50x4", ["run", *flags, "--k", "4"], 50),
        ("validate", ["validate", "bench.eval.yaml"], 5),
        ("list", ["list"], 5),
        ("report", ["report", str(RESULTS)], 5),
        ("help", ["--help"], 5),
    ):
        if args.only in name:
            compare(name, ours + extra, theirs + extra, args.rounds, tasks)


if __name__ == "__main__":
    main()
