"""Two runs side by side as a page: what differs around them, the tasks, activation, and what to keep in mind."""

from collections.abc import Callable, Iterator

from rich.table import Table
from rich.text import Text

from caliper_pipeline.domain.comparison import Comparison, MatchedTask
from caliper_pipeline.domain.results import Results, RunInfo, TaskResult
from caliper_pipeline.domain.statistics import Interval
from caliper_pipeline.interfaces.render.console import View, join, lines, shortened, strip, styled
from caliper_pipeline.interfaces.render.notes import Note, note_list
from caliper_pipeline.interfaces.render.tables import fitting, plain_table
from caliper_pipeline.interfaces.render.text import count, listed, moment, percent, plural, points, range_of, seconds


def show_comparison(view: View, found: Comparison, *, verbose: bool = False) -> None:
    """The whole page."""
    head = join(("caliper", "bold"), " compare  ", styled(found.a.run.spec, "bold"))
    if found.mismatches.spec:
        head.append(f" {view.glyphs.arrow} ").append(styled(found.b.run.spec, "bold"))
    if found.a.simulated or found.b.simulated:
        both = found.a.simulated and found.b.simulated
        which = " simulated " if both else f" {'A' if found.a.simulated else 'B'} simulated "
        head.append("  ").append(which, style="black on yellow")
    view.print()
    view.print(head)
    view.print(_environment(view, found))
    if found.matched:
        view.print()
        view.print(fitting(view, lambda level: _tasks(view, found, marks=level < 1, wide=level < 2)))
        view.print(_legend(view))
    if verbose and found.matched:
        view.print()
        view.print(Text("pass@n: one of n passes. pass^n: all n pass. n: usable attempts. *: unbiased", style="dim"))
        view.print(fitting(view, lambda level: _secondary(view, found, unbiased=level < 1), levels=1))
    _activation(view, found)
    notes = list(_notes(view, found))
    if notes:
        view.print()
        view.print(note_list(notes))
    view.print()


def _labels(found: Comparison) -> tuple[str, str]:
    return found.a_label or "A", found.b_label or "B"


def _environment(view: View, found: Comparison) -> Table:
    """What both ran in; what is the same is said once, what was taken away on purpose is no warning colour."""
    a, b = found.a, found.b
    left, right = _labels(found)
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    table.add_row("", styled(left, "bold"), styled(right, "bold"))
    table.add_row("run", moment(a.run.timestamp), moment(b.run.timestamp))
    facts: list[tuple[str, Callable[[Results], str], str]] = [
        ("engine", lambda r: r.run.engine, ""),
        ("cli", lambda r: r.run.cli_version or "", "yellow"),
        ("judge", _judge, "yellow"),
        ("k", lambda r: str(r.run.k), "yellow"),
        ("skills", lambda r: listed(r.skill_names), "cyan" if found.ablation_pair else "yellow"),
        ("mcp", lambda r: _known(r.run.mcp_servers), "cyan" if found.ablation_pair else "yellow"),
        ("setup", lambda r: _setup(r.run), "yellow"),
        ("boundary", lambda r: r.run.boundary or "none", "yellow"),
    ]
    for name, value, style in facts:
        one, other = value(a), value(b)
        if one == other:
            if one and not (name == "boundary" and one == "none"):
                table.add_row(name, styled(one), Text("same", style="dim"))
        else:
            table.add_row(name, styled(one or "not recorded", style), styled(other or "not recorded", style))
    return table


def _judge(results: Results) -> str:
    if not any(attempt.judge_seconds is not None for task in results.task_results for attempt in task.attempts):
        return ""
    run = results.run
    return f"{run.judge_backend or 'unknown'} ({run.judge_model or 'default model'})"


def _known(names: tuple[str, ...] | None) -> str:
    return "" if names is None else listed(names)


def _setup(run: RunInfo) -> str:
    if not run.user_customizations:
        return "isolated"
    loaded = run.loaded_user_customizations
    return "user customizations: " + ("not known" if loaded is None else listed(loaded))


def _tasks(view: View, found: Comparison, *, marks: bool, wide: bool) -> Table:
    glyphs = view.glyphs
    left, right = ("A", "B") if not found.ablation_pair else ("with", "without")
    if found.ablation_pair and found.b_label is not None and found.b_label.startswith("with "):
        left, right = right, left
    table = plain_table(view)
    table.add_column("Task", min_width=12, overflow="fold")
    for name in (left, right):
        table.add_column(name, justify="right", no_wrap=wide, overflow="fold")
        if marks:
            table.add_column("", no_wrap=True)
    table.add_column(f"{glyphs.delta} points", justify="right", no_wrap=True)
    for task in found.matched:
        row = [shortened(styled(task.task_name), max(view.width // 3, 12), glyphs)]
        for side, results in ((task.a, found.a), (task.b, found.b)):
            row.append(_side(view, task, side, wide=wide))
            if marks:
                row.append(_marks(view, side, results.run.k))
        row.append(_delta(view, task.delta))
        table.add_row(*row)
    table.add_section()
    table.add_row(*_total(view, found, marks=marks, wide=wide))
    for name, cells in (("Tokens", _tokens(view, found)), ("Time", _time(view, found))):
        one, other, delta = cells
        gap = [Text("")] * marks
        table.add_row(Text(name, style="dim"), one, *gap, other, *gap, delta)
    return table


def _marks(view: View, side: TaskResult, k: int) -> Text:
    if side.scored.trigger_only:
        return Text("")
    return strip({attempt.attempt: attempt.outcome for attempt in side.attempts}, k, view.glyphs)


def _side(view: View, task: MatchedTask, side: TaskResult, *, wide: bool) -> Text:
    score = side.scored
    if score.trigger_only:
        return Text("probe", style="dim")
    return _rate(view, score.score, score.successes, score.usable, score.interval, wide=wide)


def _rate(
    view: View, rate: float | None, passes: int | None, of: int | None, interval: Interval | None, *, wide: bool
) -> Text:
    if rate is None:
        return Text(view.glyphs.dash, style="dim")
    first = Text(percent(rate, view.glyphs))
    if of is not None:
        first.append(f" {passes}/{of}", style="dim")
    rest = Text(range_of(interval, view.glyphs), style="dim")
    return Text("  ").join([first, rest]) if wide else lines([first, rest])


def _total(view: View, found: Comparison, *, marks: bool, wide: bool) -> list[Text]:
    """The headline: means over the tasks that both sides measured."""
    row = [Text("All tasks", style="bold")]
    for average, interval in ((found.a_matched_avg, found.a_interval), (found.b_matched_avg, found.b_interval)):
        row.append(_rate(view, average, None, None, interval, wide=wide))
        row += [Text("")] * marks
    row.append(_delta(view, found.aggregate_delta))
    return row


def _delta(view: View, delta: float | None) -> Text:
    style = "dim" if not delta else "green" if delta > 0 else "red"
    return Text(points(delta, view.glyphs), style=style)


def _tokens(view: View, found: Comparison) -> tuple[Text, Text, Text]:
    a, b = found.a_usage, found.b_usage
    one = Text(count(a.total_tokens if a.tokens_reported else None, view.glyphs), style="dim")
    other = Text(count(b.total_tokens if b.tokens_reported else None, view.glyphs), style="dim")
    both = a.tokens_reported and b.tokens_reported
    return one, other, _relative(view, a.total_tokens, found.tokens_delta, str) if both else Text(view.glyphs.dash)


def _time(view: View, found: Comparison) -> tuple[Text, Text, Text]:
    a, b = found.a_usage.wall_seconds, found.b_usage.wall_seconds
    one, other = Text(seconds(a, view.glyphs), style="dim"), Text(seconds(b, view.glyphs), style="dim")
    return one, other, _relative(view, a, found.wall_delta, lambda value: seconds(value, view.glyphs))


def _relative(view: View, before: float, delta: float, absolute: Callable[[int], str]) -> Text:
    """A cost's change in percent; from zero there is only the absolute one. Dearer is never a drop."""
    if not delta:
        return Text("0%", style="dim")
    if not before:
        return Text(f"+{absolute(round(delta))}", style="dim")
    return Text(f"{delta / before:+.0%}", style="green" if delta < 0 else "dim")


def _legend(view: View) -> Text:
    text = f"{view.glyphs.delta} is right minus left, in points; small beside the ranges (Wilson 95%) it may be noise"
    return Text(text, style="dim")


def _secondary(view: View, found: Comparison, *, unbiased: bool) -> Table:
    glyphs, k = view.glyphs, min(found.a.run.k, found.b.run.k)
    table = plain_table(view)
    table.add_column("Task", min_width=12, overflow="fold")
    for label in ["pass@n", "pass^n", *([f"pass@{k}*", f"pass^{k}*"] if unbiased else [])]:
        table.add_column(f"{label} A", justify="right")
        table.add_column("B", justify="right")
    for task in found.matched:
        a, b = task.a.scored, task.b.scored
        rates = [a.pass_at_k, b.pass_at_k, a.pass_hat_k, b.pass_hat_k]
        if unbiased:
            rates += [a.unbiased_pass_at(k), b.unbiased_pass_at(k), a.unbiased_pass_hat(k), b.unbiased_pass_hat(k)]
        name = shortened(styled(task.task_name), max(view.width // 3, 12), glyphs)
        table.add_row(name, *(percent(rate, glyphs) for rate in rates))
    return table


def _activation(view: View, found: Comparison) -> None:
    """The tasks whose activation moved; one line when none did."""
    both = [task for task in found.matched if task.activation_delta is not None]
    if not both:
        return
    view.print()
    moved = [task for task in both if task.activation_delta]
    if not moved:
        average = percent(found.a_matched_activation_avg, view.glyphs)
        view.print(join("Activation  ", (f"unchanged in {plural(len(both), 'task')}: {average}", "dim")))
        return
    still = len(both) - len(moved)
    view.print(join("Activation", (f"  unchanged in {plural(still, 'task')}" if still else "", "dim")))
    view.print(fitting(view, lambda level: _moved(view, found, moved, wide=level < 1), levels=1))


def _moved(view: View, found: Comparison, moved: list[MatchedTask], *, wide: bool) -> Table:
    table = plain_table(view)
    table.add_column("Task", min_width=12, overflow="fold")
    for name in ("A", "B"):
        table.add_column(name, justify="right", no_wrap=wide, overflow="fold")
    table.add_column(f"{view.glyphs.delta} points", justify="right", no_wrap=True)
    for task in moved:
        row = [styled(task.task_name)]
        for score in (task.a.scored, task.b.scored):
            of, passes = score.activation_usable, score.activation_successes
            row.append(_rate(view, score.activation_score, passes, of, score.activation_interval, wide=wide))
        table.add_row(*row, _delta(view, task.activation_delta))
    table.add_section()
    sides = (
        (found.a_matched_activation_avg, found.a_activation_interval),
        (found.b_matched_activation_avg, found.b_activation_interval),
    )
    cells = [_rate(view, average, None, None, interval, wide=wide) for average, interval in sides]
    table.add_row(Text("All tasks", style="bold"), *cells, _delta(view, found.aggregate_activation_delta))
    return table


def _notes(view: View, found: Comparison) -> Iterator[Note]:
    """Drops, warnings, edits, and what could not be compared, in this order."""
    glyphs = view.glyphs

    def note(mark: str, style: str, head: str, names: str = "") -> Note:
        text = Text(head, style=style)
        return Note(Text(mark, style=style), text.append("  ").append(names, style="dim") if names else text)

    if not found.matched:
        yield note(glyphs.lost, "yellow", "No task has the same name in both runs: there is nothing to compare.")
    elif not found.measured_tasks and not all(task.probe for task in found.matched):
        yield note(glyphs.lost, "yellow", "No task was measured in both runs: there is no success rate to compare.")
    if found.drops:
        yield note(glyphs.failed, "red", f"{plural(len(found.drops), 'task')} dropped", listed(found.drops))
    if found.activation_drops:
        many = plural(len(found.activation_drops), "task")
        yield note(glyphs.failed, "red", f"activation dropped in {many}", listed(found.activation_drops))
    for warning in found.warnings:
        yield note(glyphs.cheated, "yellow", styled(warning).plain)
    for skill in found.skill_drift:
        if skill.source_kind != "git":
            refs = f"{skill.a_ref} {glyphs.arrow} {skill.b_ref}"
            yield note(glyphs.dot, "dim", f"{styled(skill.name).plain} edited", refs)
    if found.unmeasured:
        yield note(glyphs.dot, "dim", "not measured on both sides", listed(found.unmeasured))
    if found.unmatched_a:
        yield note(glyphs.dot, "dim", "only in A", listed(found.unmatched_a))
    if found.unmatched_b:
        yield note(glyphs.dot, "dim", "only in B", listed(found.unmatched_b))
