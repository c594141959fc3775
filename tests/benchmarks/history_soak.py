"""The history under load: processes that record, read and hold it open, and processes that are killed.

    python tests/benchmarks/history_soak.py [soak|kills] [--seconds 60] [--kills 100] [--folder PATH]

soak    4 writers and 2 readers beside an open shell of DuckDB's own; then what is there is counted
kills   a recorder is killed at random moments; after each the history is opened and checked, and in the end it is held,
        row by row, against one that is made anew

Both say what they measured, as one line of JSON, and fail when anything was lost or anybody met an error.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from history_store import header_of, lines_of

from caliper_pipeline.storage import history
from caliper_pipeline.storage.migrations import table_names
from caliper_pipeline.storage.runs import RunStore

TASKS, K = 5, 4
SHELL = """
import duckdb, sys, time
con = duckdb.connect(sys.argv[1], read_only=True)
query = "SELECT count(*), sum(hash(a)) FROM attempts a"
first = con.execute(query).fetchall()
print("open", flush=True)
while time.time() < float(sys.argv[2]):
    assert con.execute(query).fetchall() == first
    time.sleep(0.1)
"""


# -- what the processes do


def record(store: RunStore, number: int) -> tuple[str, float]:
    """One run, as a real one leaves it: opened, held, its lines forced to the disk one by one, published.

    Gives its id and the seconds that publishing took.
    """
    header = header_of(number, TASKS, K)
    run = store.create(header)
    with run.hold():
        for line in lines_of(header, random.Random(number)):
            run.append(line)
        begun = time.perf_counter()
        history.publish_run(store.root, run)
        took = time.perf_counter() - begun
    run.close()
    return run.run_id, took


def write(root: Path, first: int, until: float) -> dict[str, Any]:
    store, made = RunStore(root), []
    history.warm_up()
    while time.time() < until:
        made.append(record(store, first + len(made)))
    return {"ids": [run_id for run_id, _ in made], "took": [took for _, took in made]}


def read(root: Path, _: int, until: float) -> dict[str, Any]:
    seen, took = 0, []
    while time.time() < until:
        begun = time.perf_counter()
        with contextlib.closing(history.open_current(root)) as con:
            took.append(time.perf_counter() - begun)
            query = (
                "SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM attempts), (SELECT count(*) FROM verdicts)"
            )
            runs, attempts, verdicts = con.execute(query).fetchall()[0]
        assert runs >= seen and attempts == verdicts == TASKS * K * runs, (runs, seen, attempts, verdicts)
        seen = runs
        time.sleep(0.02)
    return {"took": took, "seen": seen}


def kill_me(root: Path, first: int, _: float) -> dict[str, Any]:
    store = RunStore(root)
    history.warm_up()
    print("recording", flush=True)
    number = first
    while True:
        record(store, number)
        number += 1


# -- what is measured


def soak(root: Path, seconds: float, *, writers: int = 4, readers: int = 2) -> dict[str, Any]:
    until = time.time() + seconds
    record(RunStore(root), 0)
    shell = subprocess.Popen(
        [sys.executable, "-c", SHELL, str(history.history_path(root)), str(until)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert shell.stdout is not None and shell.stdout.readline() == b"open\n"
    working = [_start("write", root, 100_000 * (n + 1), until) for n in range(writers)]
    reading = [_start("read", root, 0, until) for _ in range(readers)]
    written, have_read = [_finish(p) for p in working], [_finish(p) for p in reading]
    _, complaint = shell.communicate()
    assert shell.returncode == 0, complaint.decode()
    ids = {run_id for found in written for run_id in found["ids"]}
    db = history.history_path(root)
    with contextlib.closing(history.connect(db)) as con:
        there = {run_id for (run_id,) in con.execute("SELECT run_id FROM runs").fetchall()}
        counts = con.execute(
            "SELECT min(n), max(n) FROM (SELECT count(*) AS n FROM attempts GROUP BY run_id)"
        ).fetchall()
    assert there == {*RunStore(root).run_ids()} >= ids, f"{len(ids - there)} runs were lost"
    assert counts == [(TASKS * K, TASKS * K)], counts
    assert history.check(db) == []
    assert leftovers(db) == []
    published = [took for found in written for took in found["took"]]
    opened = [took for found in have_read for took in found["took"]]
    return {
        "seconds": seconds,
        "runs": len(ids) + 1,
        "publish_median_ms": _ms(statistics.median(published)),
        "publish_longest_ms": _ms(max(published)),
        "reads": len(opened),
        "open_median_ms": _ms(statistics.median(opened)),
        "open_longest_ms": _ms(max(opened)),
        "errors": 0,
    }


def kills(root: Path, times: int, *, seed: int | None = None) -> dict[str, Any]:
    chance, store, db = random.Random(seed), RunStore(root), history.history_path(root)
    record(store, 0)
    told: list[str] = []
    for number in range(times):
        child = _start("kill_me", root, 1_000 * (number + 1), 0.0)
        assert child.stdout is not None and child.stdout.readline() == b"recording\n"
        time.sleep(chance.uniform(0.0, 0.5))
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        with contextlib.closing(history.open_current(root, told.append)) as con:
            broken = con.execute(
                "SELECT run_id FROM runs r WHERE attempt_count <> (SELECT count(*) FROM attempts a "
                "WHERE a.run_id = r.run_id) OR (status IS NOT NULL AND attempt_count <> $1)",
                [TASKS * K],
            ).fetchall()
        assert broken == [], f"after {number + 1} kills: {broken}"
        assert history.check(db) == []
    assert told == [], told
    record(store, 1)
    assert leftovers(db) == []
    caught_up = everything(db)
    history.rebuild(db, store)
    anew = everything(db)
    for table in table_names():
        assert caught_up[table] == anew[table], f"{table} is not as it is when made anew"
    unfinished = sum(run.state().end is None for run in store.runs())
    return {
        "kills": times,
        "runs": len(caught_up["runs"]),
        "killed_in_the_middle": unfinished,
        "rows_compared": sum(map(len, anew.values())),
    }


def everything(db: Path) -> dict[str, list[Any]]:
    with contextlib.closing(history.connect(db)) as con:
        found = {}
        for table in table_names():
            what = "* EXCLUDE (published_utc)" if table == "runs" else "*"
            found[table] = sorted(con.execute(f"SELECT {what} FROM {table}").fetchall(), key=repr)
        return found


def leftovers(db: Path) -> list[str]:
    return [path.name for path in db.parent.iterdir() if ".new" in path.name or path.name.endswith(".wal")]


def _start(what: str, root: Path, first: int, until: float) -> "subprocess.Popen[bytes]":
    command = [sys.executable, __file__, "--be", what, str(root), str(first), str(until)]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )


def _finish(process: "subprocess.Popen[bytes]") -> dict[str, Any]:
    told, complaint = process.communicate()
    assert process.returncode == 0 and not complaint, complaint.decode()
    found: dict[str, Any] = json.loads(told)
    return found


def _ms(seconds: float) -> int:
    return round(1000 * seconds)


PARTS: dict[str, Callable[[Path, int, float], dict[str, Any]]] = {"write": write, "read": read, "kill_me": kill_me}


def main() -> None:
    if sys.argv[1:2] == ["--be"]:
        what, root, first, until = sys.argv[2:]
        print(json.dumps(PARTS[what](Path(root), int(first), float(until))))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("soak", "kills"))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--folder", type=Path, help="an existing project to work in; default: a fresh one")
    args = parser.parse_args()
    for what in (args.what,) if args.what else ("soak", "kills"):
        with tempfile.TemporaryDirectory(prefix="history-") as fresh:
            root = args.folder or Path(fresh)
            found = soak(root, args.seconds) if what == "soak" else kills(root, args.kills)
        print(what, json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
