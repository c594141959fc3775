"""What the history costs at 20,000 runs and 1,000,000 attempts: publishing, room, opening, importing, making anew.

    python tests/benchmarks/history_figures.py [--folder PATH] [publish|grow|open|import|rebuild]…

The store is made in the folder if it is not there (2 minutes, 3 GB) and kept, so that a second call is quick.

publish   milliseconds to publish a run of 200 attempts, median of 15
grow      bytes an attempt, after 500 more runs were published one by one
open      milliseconds to open read-only: the file as it is, with a look at what is new, and with news
import    peak MB of a process that imports 1,000 results files of 50 attempts, and its seconds
rebuild   seconds to make the history anew, and the peak MB of that process
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from history_store import make_store, write_run
from whole_run import measure

from caliper_pipeline.domain.results import assemble
from caliper_pipeline.storage import history
from caliper_pipeline.storage.results import write_results
from caliper_pipeline.storage.runs import RunFolder, RunStore

RUNS, TASKS, K = 20_000, 10, 5
IMPORT = """
import sys
from pathlib import Path
from caliper_pipeline.storage import history
found = history.import_results(Path(sys.argv[1]), sorted(Path(sys.argv[2]).glob("*.json")))
assert not [error for _, error in found if error is not None]
"""
REBUILD = """
import sys
from pathlib import Path
from caliper_pipeline.storage import history
from caliper_pipeline.storage.runs import RunStore
root = Path(sys.argv[1])
history.rebuild(history.history_path(root), RunStore(root))
"""


def milliseconds(work: Callable[[], Any], times: int) -> dict[str, float]:
    took, spent = [], []
    for _ in range(times):
        begun, before = time.perf_counter(), time.process_time()
        work()
        took.append(1000 * (time.perf_counter() - begun))
        spent.append(1000 * (time.process_time() - before))
    return {
        "median_ms": round(statistics.median(took), 1),
        "longest_ms": round(max(took), 1),
        "cpu_ms": round(statistics.median(spent), 1),
    }


def publish(root: Path) -> dict[str, Any]:
    store, db = RunStore(root), history.history_path(root)
    history.warm_up()
    fresh = iter([RunFolder(store.path / write_run(store.path, 10**6 + n, 20, 10)) for n in range(17)])
    for _ in range(2):  # the first two may copy the file, later ones bring the spare up to date
        history.publish(db, [next(fresh)])
    found = milliseconds(lambda: history.publish(db, [next(fresh)]), 15)
    _forget(root, 10**6, 17)
    return found


def grow(root: Path) -> dict[str, Any]:
    store, db = RunStore(root), history.history_path(root)
    for number in range(500):
        history.publish(db, [RunFolder(store.path / write_run(store.path, 2 * 10**6 + number, TASKS, K))])
    with contextlib.closing(history.connect(db)) as con:
        ((attempts,),) = con.execute("SELECT count(*) FROM attempts").fetchall()
    grown = db.stat().st_size
    _, compact = history.compact(db)
    _forget(root, 2 * 10**6, 500)
    return {"attempts": attempts, "bytes_an_attempt": grown / attempts, "when_compacted": compact / attempts}


def opening(root: Path) -> dict[str, Any]:
    db = history.history_path(root)
    history.warm_up()
    history.open_current(root).close()
    time.sleep(0.1)
    history.open_current(root).close()
    as_it_is = milliseconds(lambda: history.connect(db).close(), 15)
    current = milliseconds(lambda: history.open_current(root).close(), 15)
    store = RunStore(root)
    write_run(store.path, 3 * 10**6, TASKS, K)
    news = milliseconds(lambda: history.open_current(root).close(), 1)
    _forget(root, 3 * 10**6, 1)
    return {"as_it_is": as_it_is, "nothing_new": current, "one_new_run": news}


def importing(_: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="history-") as folder:
        top = Path(folder)
        make_store(top / "from", runs=1000, tasks=TASKS, k=K)
        store = RunStore(top / "from")
        for run in store.runs():
            header, lines = run.header(), list(run.lines())
            write_results(store.root, run, assemble(header, lines, ended_at=header.started_at))
        files = top / "files"
        files.mkdir()
        for number, path in enumerate(sorted((top / "from/.caliper/results").rglob("*.json"))):
            path.rename(files / f"{number:04d}.json")
        (top / "to/.caliper").mkdir(parents=True)
        size = sum(path.stat().st_size for path in files.iterdir())
        found = _apart(IMPORT, history.history_path(top / "to"), files)
        return {"files": len(list(files.iterdir())), "megabytes": round(size / 1e6), **found}


def rebuild(root: Path) -> dict[str, Any]:
    found = _apart(REBUILD, root)
    size = history.history_path(root).stat().st_size
    return {**found, "bytes_an_attempt": size / (RUNS * TASKS * K)}


def _apart(code: str, *arguments: Path) -> dict[str, float]:
    """In a process of its own: seconds, CPU, and the most memory it had."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    found = measure(command, Path.cwd(), dict(os.environ))
    return {"seconds": round(found["wall"], 1), "cpu": round(found["cpu"], 1), "peak_mb": round(found["peak_mb"])}


def _forget(root: Path, first: int, count: int) -> None:
    """Takes added runs away again, from the store and from the history."""
    import duckdb
    from history_store import header_of

    ids = [header_of(number, 1, 1).run_id for number in range(first, first + count)]
    for run_id in ids:
        shutil.rmtree(root / ".caliper" / "runs" / run_id)
    with contextlib.closing(duckdb.connect(str(history.history_path(root)))) as con:
        for table in ("runs", "tasks", "attempts", "verdicts", "scores", "skills", "skill_scores", "resumes"):
            con.execute(f"DELETE FROM {table} WHERE run_id IN (SELECT unnest($1::VARCHAR[]))", [ids])
    history.compact(history.history_path(root))


PARTS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "rebuild": rebuild,
    "publish": publish,
    "grow": grow,
    "open": opening,
    "import": importing,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join(PARTS))
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "history-of-years")
    args = parser.parse_args()
    root = args.folder.resolve()
    if not (root / ".caliper").exists():
        make_store(root, runs=RUNS, tasks=TASKS, k=K)
    for name in args.parts or PARTS:
        if name not in ("rebuild", "import") and not history.history_path(root).exists():
            history.open_current(root).close()
        print(name, json.dumps(PARTS[name](root)), flush=True)


if __name__ == "__main__":
    main()
