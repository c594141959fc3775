"""The list of specs, and the list of one spec's runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from caliper_pipeline.domain.results import Results
from caliper_pipeline.interfaces.render.console import View, join, styled
from caliper_pipeline.interfaces.render.tables import fitting, plain_table
from caliper_pipeline.interfaces.render.text import listed, moment, percent, plural, range_of

if TYPE_CHECKING:
    from caliper_pipeline.interfaces.list_command import ListedRun, ListedSpec


def show_specs(specs: Sequence["ListedSpec"], *, root: Path, complete: bool) -> None:
    """All specs with their latest run, then those that never ran."""
    view = View()
    if not any(spec.runs for spec in specs):
        view.print(join("Nothing is recorded yet under ", styled(str(root)), "."))
    if specs:
        view.print()
        view.print(fitting(view, lambda level: _specs(view, specs, engine=level < 1), levels=1))
        _legend(view, [spec.latest for spec in specs if spec.latest is not None])
    else:
        view.print("No spec file (*.eval.yaml) was found there either.")
    if not complete:
        view.print(Text("The project is large: not every folder was searched for specs that never ran.", "dim"))


def _specs(view: View, specs: Sequence["ListedSpec"], *, engine: bool) -> Table:
    glyphs = view.glyphs
    table = plain_table(view)
    table.add_column("Spec", min_width=12, overflow="fold")
    table.add_column("runs", justify="right")
    table.add_column("latest run", overflow="fold")
    if engine:
        table.add_column("engine", overflow="fold")
    table.add_column("success", justify="right", no_wrap=engine, overflow="fold")
    for spec in specs:
        if spec.latest is None:
            never = Text("never run  ", style="yellow").append(styled(spec.file or "", "dim"))
            row = [styled(spec.name, "dim"), Text("0", style="dim"), never]
            row += [Text("")] * engine + [Text(glyphs.dash, style="dim")]
        else:
            run = spec.latest
            when = moment(run.results.run.timestamp) if run.results is not None else run.saved.file_id
            row = [styled(spec.name), Text(str(spec.runs)), styled(when).append_text(_control(run))]
            row += [_engine(run)] * engine + [_score(view, run)]
        table.add_row(*row)
    return table


def show_runs(spec: str, runs: Sequence["ListedRun"]) -> None:
    """One spec's runs, oldest first."""
    view = View()
    view.print()
    view.print(join(("caliper", "bold"), " list  ", styled(spec, "bold"), f"  {plural(len(runs), 'run')}"))
    view.print()
    view.print(fitting(view, lambda level: _runs(view, runs, arms=level < 1), levels=1))
    _legend(view, runs)


def _runs(view: View, runs: Sequence["ListedRun"], *, arms: bool) -> Table:
    table = plain_table(view)
    table.add_column("Run", overflow="fold", min_width=20)
    if arms:
        table.add_column("engine", overflow="fold")
    table.add_column("arm", overflow="fold")
    table.add_column("k", justify="right")
    table.add_column("tasks", justify="right")
    table.add_column("success", justify="right", no_wrap=arms, overflow="fold")
    for run in runs:
        row = [Text(run.saved.file_id)]
        if arms:
            row.append(_engine(run))
        if run.results is None:
            row += [Text(""), Text("?"), Text("?"), Text("?", style="red")]
        else:
            ablated = run.results.run.ablated
            arm = styled(f"without {listed(ablated)}", "cyan") if ablated else Text("full", style="dim")
            row += [arm, Text(str(run.results.run.k)), Text(str(len(run.results.task_results))), _score(view, run)]
        table.add_row(*row)
    return table


def _control(run: "ListedRun") -> Text:
    """That the figures are of a control, which is not how the skill fares; nothing of a full run."""
    ablated = run.results.run.ablated if run.results is not None else ()
    return Text("  ").append_text(styled(f"without {listed(ablated)}", "cyan")) if ablated else Text("")


def _engine(run: "ListedRun") -> Text:
    if run.results is None:
        return Text("")
    line = styled(run.results.run.engine)
    return line.append(" simulated", style="yellow") if run.results.simulated else line


def _score(view: View, run: "ListedRun") -> Text:
    """The headline with its counts and its range, and a mark where the run was cut short."""
    glyphs, results = view.glyphs, run.results
    if results is None:
        return Text("?", style="red")
    score = results.aggregate
    if score.avg_score is None:
        line = Text(glyphs.dash, style="dim")
        if results.probes_only:
            line = Text("probes only  ", style="dim").append(glyphs.dash)
    else:
        line = Text(f"{percent(score.avg_score, glyphs)} ")
        line.append(f"{_counts(results)}{range_of(score.interval, glyphs)}", style="dim")
    if results.run.interrupted:
        line = Text(f"{glyphs.lost} ", style="yellow").append(line)
    return line


def _counts(results: Results) -> str:
    score = results.aggregate
    pooled = score.successes / score.usable if score.usable else None
    agrees = pooled is not None and score.avg_score is not None and abs(pooled - score.avg_score) <= 0.0005
    return f"{score.successes}/{score.usable}  " if agrees else f"of {plural(score.scored_tasks, 'task')}  "


def _legend(view: View, runs: Sequence["ListedRun"]) -> None:
    glyphs = view.glyphs
    read = [run.results for run in runs if run.results is not None]
    said = []
    if any(results.run.interrupted for results in read):
        said.append(f"{glyphs.lost} interrupted")
    if any(results.aggregate.avg_score is None for results in read):
        said.append(f"{glyphs.dash} not measured")
    if any(results.aggregate.avg_score is not None for results in read):
        said.append("the range is Wilson's 95%")
    if any(results.simulated for results in read):
        said.append("simulated: a script played the agent")
    if said:
        view.print(Text("   ".join(said), style="dim"))
    for run in runs:
        if run.error is not None:
            view.print(join(("? ", "red"), styled(run.error, "red")))
