"""`caliper report`: one run, as a page or as data."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from caliper_pipeline.domain.errors import BadInput
from caliper_pipeline.domain.run_brief import RunBrief
from caliper_pipeline.storage.results import SavedRun, load_results, resolve, saved_runs
from caliper_pipeline.storage.results_index import briefs
from caliper_pipeline.storage.root import find_root

LOOKED_AT = 20
"""Runs that are looked at to find the full one beside a control."""


@click.command()
@click.argument("ref", required=False)
@click.option("--run", "run_id", metavar="ID", help="An older run of the spec, by file or run id.")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("-v", "--verbose", is_flag=True, help="Show pass@k and pass^k, and every attempt of every task.")
def report(ref: str | None, run_id: str | None, form: str, verbose: bool) -> None:
    """Show one run: REF is a spec's name or file (its latest run) or a results file.

    Without REF: the latest run of the only spec on record.
    """
    root = find_root(Path.cwd())
    path = resolve(root, ref if ref is not None else _only_spec(root), run_id)
    results = load_results(path)
    if form == "json":
        from caliper_pipeline.domain.results import results_dict, usage_totals, usage_totals_dict
        from caliper_pipeline.interfaces.render.data import show_json

        transcripts = _transcripts(path)
        plain = results_dict(results, transcript_of=lambda task, attempt: transcripts.get((task, attempt)))
        show_json({**plain, "usage_totals": usage_totals_dict(usage_totals(results))})
        return
    from caliper_pipeline.interfaces.render.run import show_run

    show_run(results, verbose=verbose)
    if verbose and root is not None and results.run.run_id is not None:
        _say_if_pruned(root, results.run.run_id)
    if results.run.ablated and run_id is None and root is not None and (full := _latest_full(root, path)) is not None:
        click.echo(
            f"This is a control. The latest run with every skill: caliper report {full.spec} --run {full.file_id}",
            err=True,
        )


def _say_if_pruned(root: Path, run_id: str) -> None:
    """The page names folders of evidence, which may be there no more."""
    from caliper_pipeline.storage.pruning import pruned_at
    from caliper_pipeline.storage.runs import RunStore

    with suppress(BadInput):  # of a run that was made elsewhere
        gone = pruned_at(RunStore(root).open(run_id).path)
        if gone is not None:
            click.echo(f"Its evidence up to {gone:%Y-%m-%d %H:%M} UTC was pruned: those folders are gone.", err=True)


def _latest_full(root: Path, control: Path) -> SavedRun | None:
    """Among the last runs beside a control's, the newest of the full arm."""
    runs = saved_runs(root, control.parent.name)[-LOOKED_AT:] if control.is_relative_to(root) else []
    for saved, brief in reversed(list(zip(runs, briefs(root, runs), strict=True))):
        if isinstance(brief, RunBrief) and not brief.ablated:
            return saved
    return None


def _only_spec(root: Path | None) -> str:
    specs = sorted({saved.spec for saved in saved_runs(root)})
    if len(specs) == 1:
        return specs[0]
    if not specs:
        raise BadInput("No run has been saved here yet.", hint="`caliper run SPEC` makes one.")
    raise BadInput("Which run? Several specs have some.", hint=f"Name one of: {', '.join(specs[:10])}.")


def _transcripts(path: Path) -> dict[tuple[str, int], list[Any]]:
    """The transcripts in the file, by task id and attempt. The file has been found readable before."""
    data = json.loads(path.read_bytes().decode("utf-8-sig"), parse_constant=lambda name: None)
    return {
        (task["task_id"], int(attempt["attempt"])): attempt["transcript"]
        for task in data["task_results"]
        for attempt in task["attempts"]
        if isinstance(attempt.get("transcript"), list)
    }
