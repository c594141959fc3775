"""How fast the views of the history answer at a million attempts in 20,000 runs.

    python tests/benchmarks/history_store.py FOLDER && (cd FOLDER && caliper history rebuild)
    python tests/benchmarks/history_views.py FOLDER [--rounds 15]

For each view: its documented query (about one spec), and its first 200 rows as `caliper sql VIEW` shows them. Warm:
the file has been read before. Median and least of the rounds and the median of processor time (over all threads), in
milliseconds; on a busy machine the last says most.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from caliper_pipeline.storage.history_session import SqlSession
from caliper_pipeline.storage.history_views import VIEWS

CALIPER = str(Path(sys.executable).parent / "caliper")
MORE = (
    ("trend of one spec", "SELECT run_utc, score, score_low, score_high FROM score_trend WHERE spec = 'spec-07'"),
    ("trend of its tasks", "SELECT run_utc, task_name, score FROM task_trend WHERE spec = 'spec-07'"),
    ("attempts of a run", "SELECT * FROM graded_attempts WHERE run_id = '{run}'"),
    ("lost, by spec", "SELECT spec, outcome, sum(attempts) FROM unusable_breakdown GROUP BY ALL"),
    ("outcomes, all attempts", "SELECT outcome, count(*) FROM graded_attempts GROUP BY outcome"),
)


def measured(work: Callable[[], object], rounds: int) -> str:
    times, used = [], []
    for _ in range(rounds + 1):
        begun, before = time.perf_counter(), processor_time()
        work()
        times.append(1000 * (time.perf_counter() - begun))
        used.append(1000 * (processor_time() - before))
    return f"{statistics.median(times[1:]):7.0f} {min(times[1:]):6.0f} {statistics.median(used[1:]):6.0f}"


def processor_time() -> float:
    """Seconds used by this process and the children that have ended."""
    return sum(os.times()[:4])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()

    def opened() -> None:
        with SqlSession.open(args.folder):
            pass

    def commanded(*arguments: str) -> None:
        subprocess.run([CALIPER, *arguments], cwd=args.folder, capture_output=True, check=True)

    with SqlSession.open(args.folder) as session:
        ((attempts, runs),) = session.ask("SELECT (SELECT count(*) FROM attempts), count(*) FROM runs").fetch(1)
        ((run,),) = session.ask("SELECT run_id FROM runs ORDER BY run_id LIMIT 1 OFFSET 15000").fetch(1)
        size = (args.folder / ".caliper" / "history.duckdb").stat().st_size
        print(f"{attempts:,} attempts in {runs:,} runs, {size / 1e6:.0f} MB; load {os.getloadavg()[0]:.1f}")
        print(f"{'':36} median  least    CPU")

        def asked(query: str) -> int:
            return sum(1 for _ in session.ask(query))

        for view in VIEWS:
            query = view.example.replace("inbox-triage", "spec-07").replace("skill = 'spec-07'", "skill = 'guide'")
            query = query.replace("task_name = 'Drafts a reply'", "task_name LIKE '% 3'")
            print(f"{view.name:36}{measured(lambda q=query: asked(q), args.rounds)}")
            first = f"SELECT * FROM {view.name} LIMIT 201"
            print(f"{'  its first 200 rows':36}{measured(lambda q=first: asked(q), args.rounds)}")
        for about, query in MORE:
            query = query.replace("{run}", run)
            print(f"{about:36}{measured(lambda q=query: asked(q), args.rounds)}")
    print(f"{'opening, read-only':36}{measured(opened, args.rounds)}")
    for arguments in (("sql", "latest_runs"), ("sql", "graded_attempts"), ("history", "--help")):
        print(f"{'caliper ' + ' '.join(arguments):36}{measured(lambda a=arguments: commanded(*a), 5)}")


if __name__ == "__main__":
    main()
