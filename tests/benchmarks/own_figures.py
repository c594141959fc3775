"""Figures of this product alone: first agent, memory, the cost of waiting, and the recorder.

    python tests/benchmarks/own_figures.py [first|memory|waiting|recorder]…

first      seconds from the command's start to the first agent's start, median of 7
memory     peak MB of the command at 200 and at 4,000 attempts
waiting    CPU of the command and its keepers per waiting attempt, in percent of a core
recorder   CPU of the recorder, and the seconds from the command's end until Dagster has everything
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from whole_run import lay_out, measure

CALIPER = str(Path(sys.executable).parent / "caliper")
RUN = [CALIPER, "run", "bench.eval.yaml", "--no-user-customizations", "--workers", "4"]
STAMPING = """#!/bin/sh
if [ "$1" = "--version" ]; then echo "2.1.197 (Claude Code)"; exit 0; fi
[ -e "@FOLDER@/first" ] || date +%s.%N > "@FOLDER@/first"
echo '{"type":"result","is_error":false,"result":"Done.","usage":{"output_tokens":1}}'
"""
SLEEPING = """#!/bin/sh
if [ "$1" = "--version" ]; then echo "2.1.197 (Claude Code)"; exit 0; fi
exec sleep 40
"""


@contextmanager
def project(tasks: int, agent: str | None = None) -> Iterator[tuple[Path, dict[str, str]]]:
    top = Path(tempfile.mkdtemp(prefix="bench-"))
    try:
        environment = lay_out(top / "project", tasks)
        folder = top / "project"
        if agent is not None:
            (folder / "bin" / "claude").write_text(agent.replace("@FOLDER@", str(folder)), encoding="utf-8")
        yield folder, environment
    finally:
        shutil.rmtree(top, ignore_errors=True)


def first() -> None:
    found = []
    for _ in range(8):
        with project(5, STAMPING) as (folder, environment):
            begun = time.time()
            subprocess.run([*RUN, "--k", "1"], cwd=folder, env=environment, capture_output=True, check=True)
            found.append(float((folder / "first").read_text(encoding="ascii")) - begun)
    print(f"first agent after {statistics.median(found[1:]):.3f} s (least {min(found[1:]):.3f})")


def memory() -> None:
    for k in (4, 80):
        with project(50) as (folder, environment):
            peak = measure([*RUN, "--k", str(k)], folder, environment)["peak_mb"]
            print(f"{50 * k} attempts: peak {peak:.0f} MB")


def waiting() -> None:
    seconds, attempts = 20.0, 16
    with project(attempts, SLEEPING) as (folder, environment):
        command = [*RUN[:-1], str(attempts), "--k", "1", "--timeout", "60"]
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(5)  # until all of them wait
        before = _tree_cpu(process.pid)
        time.sleep(seconds)
        used = _tree_cpu(process.pid) - before
        process.terminate()
        process.wait()
    print(f"waiting: {100 * used / seconds / attempts:.4f} % of a core an attempt ({attempts} at once)")


def _tree_cpu(pid: int) -> float:
    """CPU seconds of a process and all its living descendants."""
    total, ticks = 0.0, os.sysconf("SC_CLK_TCK")
    todo = [pid]
    while todo:
        current = todo.pop()
        try:
            fields = Path(f"/proc/{current}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / ticks
            for task in Path(f"/proc/{current}/task").iterdir():
                todo += [int(child) for child in (task / "children").read_text(encoding="ascii").split()]
        except OSError:
            continue
    return total


def recorder() -> None:
    for tasks, k in ((5, 1), (50, 4)):
        with project(tasks) as (folder, environment):
            environment.pop("CALIPER_RECORDER")
            subprocess.run([*RUN, "--k", str(k)], cwd=folder, env=environment, capture_output=True, check=True)
            ended = time.perf_counter()
            while subprocess.run(["pgrep", "-f", f"recorder --root {folder}"], capture_output=True).returncode == 0:
                time.sleep(0.05)
            late = time.perf_counter() - ended
            print(f"{tasks * k} attempts: Dagster complete {late:.1f} s after the command's end")
        with project(tasks) as (folder, environment):
            subprocess.run([*RUN, "--k", str(k)], cwd=folder, env=environment, capture_output=True, check=True)
            (run,) = (folder / ".caliper" / "runs").iterdir()
            command = [sys.executable, "-m", "caliper_pipeline.defs.recorder", "--root", str(folder), "--run", run.name]
            found = measure(command, folder, environment)
            spent = found["cpu"]
            print(f"{tasks * k} attempts: recorder {spent:.2f} s CPU, allowed {3 + 0.012 * tasks * k:.2f}")


def main() -> None:
    wanted = sys.argv[1:] or ["first", "memory", "waiting", "recorder"]
    for name in wanted:
        {"first": first, "memory": memory, "waiting": waiting, "recorder": recorder}[name]()


if __name__ == "__main__":
    main()
