"""The list of specs, and the list of one spec's runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from caliper_pipeline.interfaces.render.console import View, join, styled
from caliper_pipeline.interfaces.render.listing_cells import RUN_COLUMNS, SPEC_COLUMNS, Row, legend, run_rows, spec_rows
from caliper_pipeline.interfaces.render.tables import fitting, plain_table
from caliper_pipeline.interfaces.render.text import plural

if TYPE_CHECKING:
    from caliper_pipeline.interfaces.list_command import ListedRun, ListedSpec

_RIGHT = ("runs", "k", "tasks", "success")
_NARROWEST = {"Spec": 12, "Run": 20}


def show_specs(specs: Sequence["ListedSpec"], *, root: Path, complete: bool) -> None:
    """All specs with their latest run, then those that never ran."""
    view = View()
    if not any(spec.runs for spec in specs):
        view.print(join("Nothing is recorded yet under ", styled(str(root)), "."))
    if specs:
        rows = spec_rows(specs, view.glyphs)
        view.print()
        view.print(fitting(view, lambda level: _table(view, SPEC_COLUMNS, rows, engine=level < 1), levels=1))
        _below(view, [spec.latest for spec in specs if spec.latest is not None])
    else:
        view.print("No spec file (*.eval.yaml) was found there either.")
    if not complete:
        view.print(Text("The project is large: not every folder was searched for specs that never ran.", "dim"))


def show_runs(spec: str, runs: Sequence["ListedRun"]) -> None:
    """One spec's runs, oldest first."""
    view = View()
    rows = run_rows(runs, view.glyphs)
    view.print()
    view.print(join(("caliper", "bold"), " list  ", styled(spec, "bold"), f"  {plural(len(runs), 'run')}"))
    view.print()
    view.print(fitting(view, lambda level: _table(view, RUN_COLUMNS, rows, engine=level < 1), levels=1))
    _below(view, runs)


def _table(view: View, columns: Sequence[str], rows: Sequence[Row], *, engine: bool) -> Table:
    """`engine`: with that column, as long as there is room."""
    table = plain_table(view)
    shown = [place for place, name in enumerate(columns) if engine or name != "engine"]
    for name in (columns[place] for place in shown):
        table.add_column(
            name,
            justify="right" if name in _RIGHT else "left",
            min_width=_NARROWEST.get(name),
            no_wrap=name == "success" and engine,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(join(*row[place]) for place in shown))
    return table


def _below(view: View, runs: Sequence["ListedRun"]) -> None:
    said = legend(runs, view.glyphs)
    if said:
        view.print(Text(said, style="dim"))
    for run in runs:
        if run.error is not None:
            view.print(join(("? ", "red"), styled(run.error, "red")))
