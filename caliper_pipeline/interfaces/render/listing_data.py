"""The two lists as data: JSON, or CSV with a head."""

import csv
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from caliper_pipeline.domain.run_brief import RunBrief
from caliper_pipeline.interfaces.render.data import show_json

if TYPE_CHECKING:
    from caliper_pipeline.interfaces.list_command import ListedRun, ListedSpec


_RUN = ["file_id", "file", *RunBrief._fields, "error"]


def print_runs(runs: Sequence["ListedRun"], form: str) -> None:
    """One spec's runs, oldest first."""
    _print([_run(run) for run in runs], ["spec", *_RUN], form)


def print_specs(specs: Sequence["ListedSpec"], form: str) -> None:
    """All specs, each with its latest run."""
    if form == "json":
        latest = [None if spec.latest is None else _run(spec.latest) for spec in specs]
        told = zip(specs, latest, strict=True)
        show_json([{"spec": s.name, "runs": s.runs, "spec_file": s.file, "latest": run} for s, run in told])
        return
    rows = []
    for spec in specs:
        run = {} if spec.latest is None else _run(spec.latest)
        rows.append({**run, "spec": spec.name, "runs": spec.runs, "spec_file": spec.file})
    _print(rows, ["spec", "runs", "spec_file", *_RUN], form)


def _run(run: "ListedRun") -> dict[str, Any]:
    told = dict.fromkeys(RunBrief._fields) if run.brief is None else run.brief._asdict()
    return {
        "spec": run.saved.spec,
        "file_id": run.saved.file_id,
        "file": str(run.saved.path),
        **told,
        "error": run.error,
    }


def _print(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], form: str) -> None:
    if form == "json":
        show_json(list(rows))
        return
    writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({**row, "ablated": "+".join(row.get("ablated") or ())} for row in rows)
