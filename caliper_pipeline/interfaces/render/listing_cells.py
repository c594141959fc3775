"""The cells of the two lists as pieces of text with a style each, for whatever lays them out."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from caliper_pipeline.domain.plain import utc_time
from caliper_pipeline.domain.run_brief import LOOKS, RunBrief
from caliper_pipeline.domain.statistics import Interval
from caliper_pipeline.interfaces.render.text import Glyphs, listed, moment, one_line, percent, plural, range_of

if TYPE_CHECKING:
    from caliper_pipeline.interfaces.list_command import ListedRun, ListedSpec

Cell = tuple[tuple[str, str], ...]
"""Pieces of one line, with the style of each."""
Row = Sequence[Cell]

SPEC_COLUMNS = ("Spec", "runs", "latest run", "engine", "success")
RUN_COLUMNS = ("Run", "engine", "arm", "k", "tasks", "success")


def spec_rows(specs: Iterable["ListedSpec"], glyphs: Glyphs) -> list[Row]:
    return [_spec_row(spec, glyphs) for spec in specs]


def run_rows(runs: Iterable["ListedRun"], glyphs: Glyphs) -> list[Row]:
    """Runs that look the same, as many of a long list do, share their cells."""
    looks: dict[object, Row] = {}
    rows: list[Row] = []
    for run in runs:
        look = None if run.brief is None else run.brief[LOOKS:]
        cells = looks.get(look)
        if cells is None:
            cells = looks[look] = _run_cells(run.brief, glyphs)
        rows.append((((run.saved.file_id, ""),), *cells))
    return rows


def legend(runs: Iterable["ListedRun"], glyphs: Glyphs) -> str:
    """What the marks in the list mean; empty when there are none."""
    read = [run.brief for run in runs if run.brief is not None]
    said = []
    if any(brief.interrupted for brief in read):
        said.append(f"{glyphs.lost} interrupted")
    if any(brief.score is None for brief in read):
        said.append(f"{glyphs.dash} not measured")
    if any(brief.score is not None for brief in read):
        said.append("the range is Wilson's 95%")
    if any(brief.simulated for brief in read):
        said.append("simulated: a script played the agent")
    return "   ".join(said)


def _spec_row(spec: "ListedSpec", glyphs: Glyphs) -> Row:
    run = spec.latest
    if run is None:
        never = (("never run  ", "yellow"), (one_line(spec.file or ""), "dim"))
        return ((one_line(spec.name), "dim"),), (("0", "dim"),), never, (), ((glyphs.dash, "dim"),)
    when: Cell = ((run.saved.file_id if run.brief is None else moment(utc_time(run.brief.ended_utc)), ""),)
    if run.brief is not None and run.brief.ablated:  # a control does not tell how the skill fares
        when += (("  ", ""), (f"without {listed(run.brief.ablated)}", "cyan"))
    engine, *_, success = _run_cells(run.brief, glyphs)
    return ((one_line(spec.name), ""),), ((str(spec.runs), ""),), when, engine, success


def _run_cells(brief: RunBrief | None, glyphs: Glyphs) -> Row:
    """All columns but the first."""
    if brief is None:
        return (), (), (("?", ""),), (("?", ""),), (("?", "red"),)
    engine: Cell = ((one_line(brief.engine), ""),)
    if brief.simulated:
        engine += ((" simulated", "yellow"),)
    arm = (f"without {listed(brief.ablated)}", "cyan") if brief.ablated else ("full", "dim")
    return engine, (arm,), ((str(brief.k), ""),), ((str(brief.tasks), ""),), _success(brief, glyphs)


def _success(brief: RunBrief, glyphs: Glyphs) -> Cell:
    """The headline with its counts and its range, and a mark where the run was cut short."""
    cut: Cell = ((f"{glyphs.lost} ", "yellow"),) if brief.interrupted else ()
    if brief.score is None:
        words: Cell = (("probes only  ", "dim"),) if brief.probes_only else ()
        return (*cut, *words, (glyphs.dash, "dim"))
    counts = f"{brief.successes}/{brief.usable}" if brief.pooled else f"of {plural(brief.scored_tasks, 'task')}"
    shown = None if brief.score_low is None or brief.score_high is None else Interval(brief.score_low, brief.score_high)
    return (*cut, (f"{percent(brief.score, glyphs)} ", ""), (f"{counts}  {range_of(shown, glyphs)}", "dim"))
