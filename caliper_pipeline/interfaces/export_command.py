"""`caliper export`: runs in the forms that other programs read."""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import BinaryIO

import click

from caliper_pipeline.domain.errors import BadInput, CaliperError
from caliper_pipeline.evaluation.history_export import Chosen, choose_all, choose_one, ids_in_history
from caliper_pipeline.interfaces.problems import say, show_error, show_warnings
from caliper_pipeline.interfaces.render.text import plural
from caliper_pipeline.storage.exports import targets
from caliper_pipeline.storage.exports.forms import Names, Written, write_run
from caliper_pipeline.storage.exports.source import Source
from caliper_pipeline.storage.root import find_root
from caliper_pipeline.storage.runs import RunStore


@click.command()
@click.argument("ref", required=False)
@click.option("--run", "run_id", metavar="ID", help="An older run of the spec, by file or run id.")
@click.option("--all", "everything", is_flag=True, help="Every run, or with REF every run of that spec.")
@click.option(
    "--format", "form", type=click.Choice(["results", "parquet", "inspect"]), default="results", show_default=True
)
@click.option("--table", "tables", multiple=True, metavar="NAME", help="Parquet: this table or view alone. Repeatable.")
@click.option("-o", "--output", metavar="PATH", help="A file, or a folder. Left out: standard output.")
@click.option("--force", is_flag=True, help="Replace files that exist.")
@click.pass_context
def export(
    context: click.Context,
    ref: str | None,
    run_id: str | None,
    everything: bool,
    form: str,
    tables: tuple[str, ...],
    output: str | None,
    force: bool,
) -> None:
    """Write runs in forms that other programs read. REF is a run id, a spec's name (its latest run) or a results file.

    \b
    results   JSON that caliper-eval's report, list and compare read; imported files as they were
    parquet   the tables of the history, a file each
    inspect   eval logs for `inspect view`: .eval, or JSON where the file is called so

    \b
      caliper export inbox-triage -o run.json
      caliper export --all -o ../elsewhere/.caliper/results
      caliper export inbox-triage --all --format inspect -o logs
      caliper export --all --format parquet --table score_trend -o trend.parquet
    """
    if tables and form != "parquet":
        raise click.UsageError("--table is for --format parquet.")
    if everything and run_id is not None:
        raise click.UsageError("--all and --run exclude each other.")
    root = find_root(Path.cwd())
    if root is None:
        raise BadInput("Nothing has been recorded here: there is no .caliper folder.", hint="A run makes it.")
    if ref is None and not everything:
        raise BadInput("Which run?", hint="Name a run or a spec, or give --all. `caliper list` shows what there is.")
    target = None if output is None else Path(output)
    folder = target if target is not None and (target.is_dir() or str(output).endswith(os.sep)) else None
    if form == "parquet":
        ids = None
        if ref is not None:
            ids = ids_in_history(choose_all(root, ref) if everything else [choose_one(root, ref, run_id)])
        _write_tables(root, ids, tables, target, folder, force)
    elif everything or folder is not None:
        if target is None:
            raise BadInput("--all writes a file for each run.", hint="Name the folder: --output FOLDER")
        chosen = choose_all(root, ref) if everything or ref is None else [choose_one(root, ref, run_id)]
        if not _write_many(RunStore(root), chosen, form, target, force):
            context.exit(1)
    else:
        assert ref is not None
        _write_one(RunStore(root), choose_one(root, ref, run_id), form, target, force)


def _write_one(store: RunStore, chosen: Chosen, form: str, target: Path | None, force: bool) -> None:
    source = chosen.source(store)
    if form == "inspect" and (target is None or target.suffix == ".json"):
        form = "inspect-json"
    if target is None:
        _tell_of_pruned([write_run(_standard_output(form), source, form)])
    else:
        _tell([targets.write_file(target, lambda stream: write_run(stream, source, form), force=force)], target)


def _write_many(store: RunStore, chosen: Sequence[Chosen], form: str, folder: Path, force: bool) -> bool:
    """Whether all were written. A run that is damaged is named and keeps no other back."""
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder} is no folder, and there are {plural(len(chosen), 'run')} to write.")
    names, written, there, failed = Names(form), [], [], 0
    for run in chosen:
        try:
            source = run.source(store)
            path = folder / names.of(source.results)
            if not force and os.path.lexists(path):
                there.append(path)
                continue
            written.append(targets.write_file(path, _writing(source, form), force=force))
        except CaliperError as error:
            show_error(error)
            failed += 1
    _tell(written, folder)
    if there:
        left = f"{there[0]} exists already" if len(there) == 1 else f"{len(there)} files exist already ({there[0]}, …)"
        show_error(BadInput(f"{left} and was left as it is.", hint=targets.FORCE_HINT))
    return not failed and not there


def _write_tables(
    root: Path,
    run_ids: Sequence[str] | None,
    tables: Sequence[str],
    target: Path | None,
    folder: Path | None,
    force: bool,
) -> None:
    from caliper_pipeline.storage import history
    from caliper_pipeline.storage.exports.parquet import table_names, view_names, write_parquet

    if target is None and len(tables) != 1:
        raise BadInput(
            "The history has many tables, and standard output has room for one.",
            hint="Name a folder with --output, or a table with --table.",
        )
    with closing(history.open_current(root, lambda text: show_warnings([text]))) as con:
        known = [*table_names(con), *view_names(con)]
        for name in tables:
            if name not in known:
                raise BadInput(f"The history has no table or view {name!r}.", hint=f"It has: {', '.join(known)}.")
        if target is None:
            targets.let_stream(_standard_output("parquet"), partial(write_parquet, con, tables[0], run_ids))
            return
        one = len(tables) == 1 and folder is None and target.suffix == ".parquet"
        names = list(dict.fromkeys(tables or table_names(con)))
        paths = [target] if one else [target / f"{name}.parquet" for name in names]
        if not force:
            targets.refuse_existing(paths)
        for name, path in zip(names, paths, strict=True):
            targets.let_write(path, partial(write_parquet, con, name, run_ids), force=force)
    say(f"Exported {plural(len(names), 'table')} to {target}.")


def _writing(source: Source, form: str) -> Callable[[BinaryIO], Written]:
    return lambda stream: write_run(stream, source, form)


def _standard_output(form: str) -> BinaryIO:
    if form == "parquet" and sys.stdout.isatty():
        raise BadInput("Parquet is no text for a terminal.", hint="Name a file: --output rows.parquet")
    return sys.stdout.buffer


def _tell(written: Sequence[Written], target: Path) -> None:
    if written:
        say(f"Exported {plural(len(written), 'run')} to {target}.")
    _tell_of_pruned(written)


def _tell_of_pruned(written: Sequence[Written]) -> None:
    pruned = [run for run in written if run.pruned]
    if pruned:
        attempts = plural(sum(run.pruned for run in pruned), "attempt")
        runs = pruned[0].run_id if len(pruned) == 1 else plural(len(pruned), "run")
        show_warnings([f"The evidence of {attempts} of {runs} was pruned: exported without their transcripts."])
