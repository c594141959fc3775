"""One run as a page for the terminal: its head, the tasks, the skills, notes, and what went wrong where.

Each rate stands with the counts behind it and its 95 % interval. Narrow terminals get the same facts on more lines.
"""

from collections.abc import Iterator, Mapping

from rich.table import Table
from rich.text import Text

from caliper_pipeline.domain.records import Outcome
from caliper_pipeline.domain.results import Results, RunInfo, TaskResult, usage_totals
from caliper_pipeline.domain.scoring import fired_counts
from caliper_pipeline.domain.statistics import Interval, wilson
from caliper_pipeline.interfaces.render.console import View, join, lines, shortened, strip, styled
from caliper_pipeline.interfaces.render.notes import note_list, notes
from caliper_pipeline.interfaces.render.panels import failure_panels
from caliper_pipeline.interfaces.render.servers import servers_table
from caliper_pipeline.interfaces.render.tables import fitting, plain_table
from caliper_pipeline.interfaces.render.text import count, listed, moment, percent, plural, range_of, seconds

NAME_COLUMNS = 40
POOL_TOLERANCE = 0.0005
"""The pooled count stands beside the mean of rates only where the two agree."""


def show_results(view: View, results: Results, *, verbose: bool = False, panels: bool = True) -> None:
    """The whole page; without `panels`, no word of what went wrong in single attempts."""
    view.print()
    view.print(title(view, results.run, "run"))
    view.print(_head(view, results))
    view.print()
    view.print(fitting(view, lambda level: _tasks(view, results, level), levels=3))
    view.print(_legend(view, results))
    if verbose:
        view.print()
        view.print(Text("pass@k: one of k passes. pass^k: all k pass. n: usable attempts. *: unbiased", style="dim"))
        view.print(_secondary(view, results))
    skills = _skills(view, results)
    if skills is not None:
        view.print()
        view.print(Text(skills[0], style="dim"))
        view.print(skills[1])
    servers = servers_table(view, results)
    if servers is not None:
        view.print()
        view.print(servers)
    found = list(notes(view.glyphs, results))
    if found:
        view.print()
        view.print(note_list(found))
    for panel in failure_panels(view, results, everything=verbose) if panels else ():
        view.print()
        for part in panel:
            view.print(part)


def title(view: View, run: RunInfo, what: str) -> Text:
    dot = f" {view.glyphs.dot} "
    line = join(("caliper", "bold"), f" {what}  ", styled(run.spec, "bold"))
    line.append(f"  k={run.k}{dot}{moment(run.timestamp)}", style="dim")
    if run.simulated:
        line.append("  ").append(" simulated ", style="black on yellow")
    return line


def _head(view: View, results: Results) -> Table:
    """What was run, row by row; only what there is to say."""
    run = results.run
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _facts(view, results):
        table.add_row(name, value)
    for state in _status(view, results):
        table.add_row("status", state)
    if run.simulated:
        table.add_row(
            "simulated", Text("a script played the agent: the figures say nothing about a real one", "yellow")
        )
    return table


def _facts(view: View, results: Results) -> Iterator[tuple[str, Text]]:
    run = results.run
    engine = styled(run.engine)
    if run.reported_model is not None and run.reported_model != run.model:
        engine.append(f"  answered by {run.reported_model}", style="dim")
    yield "engine", engine
    if run.cli_version is not None:
        yield "cli", styled(run.cli_version)
    if any(attempt.judge_seconds is not None for task in results.task_results for attempt in task.attempts):
        same = (run.judge_backend, run.judge_model) == (run.backend, run.model)
        judge = run.judge_backend if run.judge_model is None else f"{run.judge_backend}:{run.judge_model}"
        yield "judge", styled("same as engine" if same else judge or "not recorded")
        if run.judge_cli_version not in (None, run.cli_version):
            yield "judge cli", styled(run.judge_cli_version or "")
    yield "skills", _installed(results)
    servers = [name.removeprefix("mcp:") for name in run.ablated if name.startswith("mcp:")]
    if run.mcp_servers or servers:
        line = styled(listed(run.mcp_servers or (), none=""))
        for name in servers:
            line.append(", " if line.plain else "").append(styled(name, "strike dim")).append(" removed", style="dim")
        yield "mcp", line
    yield "setup", Text(_setup(run))
    if run.boundary not in (None, "none"):
        yield "boundary", styled(run.boundary or "")


def _installed(results: Results) -> Text:
    line = styled(listed(results.skill_names, none=""))
    for name in results.run.ablated_skills:
        line.append(", " if line.plain else "").append(styled(name, "strike dim")).append(" removed", style="dim")
    return line if line.plain else Text("none", style="dim")


def _setup(run: RunInfo) -> str:
    if not run.user_customizations:
        return "isolated: without user customizations"
    loaded = run.loaded_user_customizations
    if loaded is None:
        return "with user customizations (which ones is not known)"
    return f"with user customizations: {listed(loaded, none='none found')}"


def _status(view: View, results: Results) -> Iterator[Text]:
    run = results.run
    if run.ablated:
        line = join(("without ", ""), styled(listed(run.ablated), "cyan"))
        if run.ablated_skills:
            line.append(f" {view.glyphs.dot} activation observed, not scored", style="dim")
        yield line
    if results.probes_only:
        yield Text("probes only: activation is all that is asked", style="dim")
    if run.interrupted:
        ran = sum(len(task.attempts) for task in results.task_results)
        planned = run.k * len(results.task_results)
        line = Text(f"interrupted: {ran} of {planned} attempts", style="yellow")
        if run.stop_reason:
            line.append(f" {view.glyphs.dot} ").append(styled(run.stop_reason, "yellow"))
        yield line
    if run.hook_failures:
        yield Text(f"{plural(len(run.hook_failures), 'hook')} failed, see the notes", style="red")


def _tasks(view: View, results: Results, level: int) -> Table:
    """The tasks, in four forms: with costs and whole names, with costs, without, and ranges below the rates."""
    costs, wide = level < 2, level < 3
    name_columns = NAME_COLUMNS if level in (0, 2) else max(view.width // 3, 12)
    glyphs = view.glyphs
    asserted = results.aggregate.activation_asserted > 0
    table = plain_table(view)
    table.add_column("Task", ratio=1, min_width=12, overflow="fold")
    _rate_columns(table, "success", wide)
    table.add_column("attempts", no_wrap=costs, overflow="fold")
    if asserted:
        _rate_columns(table, "activation", wide)
    if costs:
        table.add_column("tokens", justify="right", no_wrap=True)
        table.add_column("time", justify="right", no_wrap=True)
    for task in results.task_results:
        score = task.scored
        row: list[Text | str] = [shortened(styled(task.task_name), name_columns, glyphs)]
        row += _rate(view, score.score, score.successes, score.usable, score.interval, wide)
        row.append(_marks(view, task, results.run))
        if asserted:
            row += _rate(
                view,
                score.activation_score,
                score.activation_successes,
                score.activation_usable,
                score.activation_interval,
                wide,
            )
        if costs:
            row += _cost(view, task)
        table.add_row(*row)
    table.add_section()
    total = results.aggregate
    row = [Text("All tasks", style="bold")]
    row += _rate(view, total.avg_score, *_pool(total.avg_score, total.successes, total.usable), total.interval, wide)
    row.append(_denominator(view, results))
    if asserted:
        pool = _pool(total.avg_activation_score, total.activation_successes, total.activation_usable)
        row += _rate(view, total.avg_activation_score, *pool, total.activation_interval, wide)
    if costs:
        usage = usage_totals(results)
        row.append(count(usage.total_tokens if usage.tokens_reported else None, glyphs))
        row.append(seconds(usage.wall_seconds, glyphs))
        table.add_row(*row)
        row = [Text("per attempt", style="dim"), *[""] * (len(row) - 3)]
        row += [count(usage.tokens_per_attempt, glyphs), seconds(usage.wall_per_attempt, glyphs)]
    table.add_row(*row)
    return table


def _rate_columns(table: Table, name: str, wide: bool) -> None:
    table.add_column(name, justify="right", no_wrap=True)
    if wide:
        table.add_column("95% range", justify="left", style="dim", no_wrap=True)


def _rate(
    view: View, rate: float | None, successes: int | None, of: int | None, interval: Interval | None, wide: bool
) -> list[Text | str]:
    """The cells of one rate: `66.7%  2/3` and `21–94%`, beside or below each other."""
    if rate is None:
        return [Text(view.glyphs.dash, style="dim"), ""] if wide else [Text(view.glyphs.dash, style="dim")]
    style = "green" if rate == 1 else "red" if rate == 0 else "yellow"
    line = Text(percent(rate, view.glyphs), style=style)
    if of is not None:
        line.append(f" {successes}/{of}", style="dim")
    shown = range_of(interval, view.glyphs)
    return [line, shown] if wide else [lines([line, Text(shown, style="dim")])]


def _pool(mean: float | None, successes: int, of: int) -> tuple[int | None, int | None]:
    """The pooled counts, where they say the same as the mean."""
    agrees = mean is not None and of > 0 and abs(successes / of - mean) <= POOL_TOLERANCE
    return (successes, of) if agrees else (None, None)


def _denominator(view: View, results: Results) -> Text:
    total = results.aggregate
    if total.avg_score is not None:
        return Text(f"mean of {plural(total.scored_tasks, 'task')}", style="dim")
    if results.probes_only:
        return Text("nothing asked but activation", style="dim")
    return Text("not measured", style="yellow")


def _marks(view: View, task: TaskResult, run: RunInfo) -> Text:
    """The attempts, and in words what made some of them count for nothing."""
    glyphs = view.glyphs
    if task.scored.trigger_only:
        line = Text("probe", style="dim")
    else:
        line = strip({attempt.attempt: attempt.outcome for attempt in task.attempts}, run.k, glyphs)
    said = []
    if task.scored.unusable:
        said.append((f"{task.scored.unusable} unusable", "yellow"))
    if task.aborted:
        said.append(("aborted", "yellow"))
    if task.ungraded:
        said.append((f"{task.ungraded} not judged", "yellow"))
    if any(attempt.hook_failures for attempt in task.attempts):
        said.append(("hook failed", "red"))
    for text, style in said:
        line.append(" ").append(text, style=style)
    return line


def _cost(view: View, task: TaskResult) -> list[Text | str]:
    told = [attempt.usage.total_tokens for attempt in task.attempts if attempt.usage is not None]
    known = [tokens for tokens in told if tokens is not None]
    wall = sum(attempt.duration_seconds for attempt in task.attempts)
    return [
        count(sum(known) if known else None, view.glyphs),
        seconds(wall if task.attempts else None, view.glyphs),
    ]


def _legend(view: View, results: Results) -> Text:
    """The marks that occur, and what the ranges are."""
    glyphs = view.glyphs
    seen = {attempt.outcome for task in results.task_results for attempt in task.attempts}
    words = {
        glyphs.passed: ("pass", {Outcome.PASS}),
        glyphs.failed: ("fail", {Outcome.TASK_FAIL}),
        glyphs.cheated: ("cheat (a usable failure)", {Outcome.CHEAT}),
        glyphs.lost: ("unusable, not in the score", {Outcome.INFRA_ERROR, Outcome.TIMEOUT, Outcome.JUDGE_ERROR}),
    }
    parts = [f"{mark} {text}" for mark, (text, kinds) in words.items() if kinds & seen]
    run = results.run
    if any(len(task.attempts) < run.k for task in results.task_results):
        parts.append(f"{glyphs.open} not run")
    if any(task.scored.interval or task.scored.activation_interval for task in results.task_results):
        parts.append("95% range: Wilson; of all tasks: how reliable on these tasks")
    return Text("   ".join(parts), style="dim")


def _secondary(view: View, results: Results) -> Table:
    """pass@k and pass^k: with the observed rate put in, and without bias for K = k."""
    glyphs, k = view.glyphs, results.run.k
    table = plain_table(view)
    table.add_column("Task", ratio=1, min_width=12, overflow="fold")
    for name in ("n", "pass@n", "pass^n", f"pass@{k}*", f"pass^{k}*"):
        table.add_column(name, justify="right", overflow="fold")
    for task in results.task_results:
        score = task.scored
        table.add_row(
            shortened(styled(task.task_name), max(view.width // 3, 12), glyphs),
            str(score.usable),
            percent(score.pass_at_k, glyphs),
            percent(score.pass_hat_k, glyphs),
            percent(score.unbiased_pass_at(k), glyphs),
            percent(score.unbiased_pass_hat(k), glyphs),
        )
    return table


def _skills(view: View, results: Results) -> tuple[str, Table] | None:
    """How each skill fired: judged where something is asserted, counted on a run that had a skill taken away."""
    if results.run.ablated_skills:
        return "Skills, observed only: with a skill taken away nothing is expected to fire", _observed(view, results)
    rows = [row for row in results.aggregate.per_skill if row.expected or row.fired]
    if not rows:
        return None
    table = plain_table(view)
    table.add_column("Skill", ratio=1, min_width=12, overflow="fold")
    for name in ("wanted", "fires when wanted", "fires when not wanted"):
        table.add_column(name, justify="right", overflow="fold")
    for row in sorted(rows, key=lambda row: (row.recall if row.recall is not None else 1.0, -(row.unwanted_rate or 0))):
        right = _share(view, row.recall, row.hits, row.expected, row.recall_interval, good=1.0)
        wrong = _share(view, row.unwanted_rate, row.unwanted, row.opportunities, row.unwanted_interval, good=0.0)
        table.add_row(styled(row.skill), f"{row.expected} of {row.total}", right, wrong)
    return "Skills, worst first", table


def _observed(view: View, results: Results) -> Table:
    attempts = [attempt for task in results.task_results for attempt in task.attempts]
    counts: Mapping[str, tuple[int, int]] = fired_counts(attempts, results.skill_names)
    table = plain_table(view)
    table.add_column("Skill", ratio=1, min_width=12, overflow="fold")
    table.add_column("fired", justify="right")
    for name, (fired, seen) in counts.items():
        rate = fired / seen if seen else None
        table.add_row(styled(name), _share(view, rate, fired, seen, wilson(fired, seen) if seen else None))
    for name in results.run.ablated_skills:
        table.add_row(styled(name, "strike dim"), Text("removed", style="dim"))
    return table


def _share(
    view: View, rate: float | None, hits: int, of: int, interval: Interval | None, good: float | None = None
) -> Text:
    if rate is None:
        return Text(view.glyphs.dash, style="dim")
    style = "" if good is None else "green" if rate == good else "red" if rate == 1 - good else "yellow"
    line = Text(percent(rate, view.glyphs), style=style)
    line.append(f" {hits}/{of}  {range_of(interval, view.glyphs)}", style="dim")
    return line
