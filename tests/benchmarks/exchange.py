"""Figures of lists, imports and exports.

    python tests/benchmarks/exchange.py [list|import|export]…

list     seconds of `list`, `list SPEC` and `report SPEC` with 20,000 results files, median of 9
import   seconds and peak MB of `history import` of 1,000 files, of 27 KB and of 1.3 MB each
export   seconds and peak MB of `export --all` of those
"""

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from whole_run import measure

CALIPER = str(Path(sys.executable).parent / "caliper")
REFERENCE = Path(__file__).parents[1] / "fixtures" / "results" / "reference-0.21.0.json"
FIRST = datetime(2024, 1, 1, tzinfo=UTC)


@contextmanager
def project() -> Iterator[Path]:
    top = Path(tempfile.mkdtemp(prefix="bench-"))
    try:
        (top / ".git").mkdir()
        yield top
    finally:
        shutil.rmtree(top, ignore_errors=True)


def lay_out(top: Path, specs: int, runs: int, *, larger: int = 1) -> None:
    """Results files as the reference leaves them; `larger`: with so many times the transcripts."""
    data: Any = json.loads(REFERENCE.read_text(encoding="utf-8"))
    for task in data["task_results"]:
        for attempt in task["attempts"]:
            attempt["transcript"] = (attempt.get("transcript") or []) * larger
    for spec in range(specs):
        folder = top / ".caliper" / "results" / f"spec-{spec:03d}"
        folder.mkdir(parents=True)
        for run in range(runs):
            end = FIRST + timedelta(minutes=30 * run, seconds=spec)
            data["run"].update(
                spec=folder.name,
                timestamp=f"{end:%Y-%m-%dT%H:%M:%SZ}",
                started_at=f"{end - timedelta(minutes=3):%Y-%m-%dT%H:%M:%SZ}",
                k=run % 5 + 1,
            )
            (folder / f"{end:%Y-%m-%dT%H-%M-%SZ}.json").write_text(json.dumps(data, indent=2), encoding="utf-8")


def seconds(folder: Path, *arguments: str, rounds: int = 9) -> tuple[float, float]:
    """Median and least of the rounds, after one that does not count."""
    found = []
    for _ in range(rounds + 1):
        begun = time.perf_counter()
        measure([CALIPER, *arguments], folder, dict(os.environ))
        found.append(time.perf_counter() - begun)
    return statistics.median(found[1:]), min(found[1:])


def lists() -> None:
    for specs, runs in ((1, 20_000), (100, 200), (1, 20)):
        with project() as top:
            lay_out(top, specs, runs)
            begun = time.perf_counter()
            measure([CALIPER, "list", "spec-000"], top, dict(os.environ))
            print(f"{specs} x {runs}: list SPEC for the first time {time.perf_counter() - begun:.2f} s")
            time.sleep(1.1)  # the last files are remembered once they have settled
            for arguments in (("list",), ("list", "spec-000"), ("report", "spec-000")):
                median, least = seconds(top, *arguments)
                print(f"{specs} x {runs}: {' '.join(arguments)} {median:.3f} s (least {least:.3f})")


def imports() -> None:
    for larger in (1, 60):
        with project() as given, project() as top:
            lay_out(given, 10, 100, larger=larger)
            size = sum(path.stat().st_size for path in given.rglob("*.json")) / 1000
            for again in ("", " again"):
                begun = time.perf_counter()
                peak = measure([CALIPER, "history", "import", str(given)], top, dict(os.environ))["peak_mb"]
                print(f"1,000 files of {size / 1000:.0f} KB{again}: {time.perf_counter() - begun:.1f} s, {peak:.0f} MB")


def exports() -> None:
    with project() as given, project() as top:
        lay_out(given, 10, 100)
        measure([CALIPER, "history", "import", str(given)], top, dict(os.environ))
        for form in ("results", "inspect", "parquet"):
            begun = time.perf_counter()
            arguments = ["export", "--all", "--format", form, "--output", f"{top}/{form}/"]
            peak = measure([CALIPER, *arguments], top, dict(os.environ))["peak_mb"]
            print(f"1,000 runs as {form}: {time.perf_counter() - begun:.1f} s, {peak:.0f} MB")


def main() -> None:
    for name in sys.argv[1:] or ["list", "import", "export"]:
        {"list": lists, "import": imports, "export": exports}[name]()


if __name__ == "__main__":
    main()
