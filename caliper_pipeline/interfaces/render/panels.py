"""What happened in the attempts of tasks that fell short: a heading a task, and its attempts below."""

import re
from collections.abc import Callable, Iterator, Sequence

from rich.console import RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from caliper_pipeline.domain.records import Outcome
from caliper_pipeline.domain.results import AttemptResult, Results, TaskResult
from caliper_pipeline.interfaces.render.console import View, block, join, strip, styled
from caliper_pipeline.interfaces.render.tables import page_width
from caliper_pipeline.interfaces.render.text import (
    OUTCOME_STYLE,
    UNICODE,
    WORDS,
    count,
    listed,
    percent,
    plural,
    range_of,
    seconds,
    tail,
)

OUTPUT_CHARS = 500
MOST_EVIDENCE = 3
MOST_ATTEMPTS = 5
"""Ways in which attempts of one task fell short; -v shows every attempt."""
_PATH = re.compile(r"/[^\s\"']*/")


def failure_panels(view: View, results: Results, *, everything: bool) -> Iterator[Sequence[RenderableType]]:
    """One group of renderables a task."""
    run_folder = f".caliper/runs/{results.run.run_id}/" if results.run.run_id else ""
    for task in results.task_results:
        if (everything or _fell_short(task)) and task.attempts:
            yield _panel(view, task, results.run.k, everything=everything, run_folder=run_folder)


def _fell_short(task: TaskResult) -> bool:
    score = task.scored
    lacking = score.score is not None and score.score < 1
    silent = score.activation_score is not None and score.activation_score < 1
    return lacking or silent or score.unusable > 0 or any(attempt.hook_failures for attempt in task.attempts)


def _panel(view: View, task: TaskResult, k: int, *, everything: bool, run_folder: str) -> Sequence[RenderableType]:
    glyphs, score = view.glyphs, task.scored
    head = join(styled(task.task_name, "bold"), "  ")
    if score.trigger_only:
        head.append("probe  ", style="dim").append(f"activation {percent(score.activation_score, glyphs)}")
    else:
        head.append(f"{percent(score.score, glyphs)} ").append(range_of(score.interval, glyphs), style="dim")
        head.append("  ").append(strip({attempt.attempt: attempt.outcome for attempt in task.attempts}, k, glyphs))
    rule = Rule(head, align="left", characters="─" if glyphs is UNICODE else "-", style="dim")
    table = Table.grid(padding=(0, 1, 0, 0))
    table.width = page_width(view)
    table.add_column(width=1, no_wrap=True)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    if task.activation_expected is not None:
        table.add_row("", "should activate", styled(listed(task.activation_expected, none="nothing (silence)")))
    if everything and task.expect:
        table.add_row("", "expect", block(task.expect))
    groups = [[attempt] for attempt in task.attempts] if everything else _alike(_telling(task))
    for group in groups[:MOST_ATTEMPTS] if not everything else groups:
        for row in _attempt(view, group, everything=everything, run_folder=run_folder):
            table.add_row(*row)
    left = len(task.attempts) - sum(len(group) for group in groups[: None if everything else MOST_ATTEMPTS])
    if left:
        table.add_row("", glyphs.ellipsis, Text(f"{left} more, shown with -v", style="dim"))
    return [rule, table]


def _telling(task: TaskResult) -> Sequence[AttemptResult]:
    """The attempts that fell short; passes only where nothing else is there."""
    bad = [a for a in task.attempts if not a.passed or a.activation_passed is False or a.hook_failures]
    if task.scored.trigger_only:
        bad = [a for a in task.attempts if a.activation_passed is False or a.outcome.noise or a.hook_failures]
    return bad


def _alike(attempts: Sequence[AttemptResult]) -> list[list[AttemptResult]]:
    """Attempts that went the same way together; folders of their own do not tell them apart."""
    groups: dict[object, list[AttemptResult]] = {}
    for attempt in attempts:
        texts = (attempt.output, attempt.assert_evidence, attempt.autorater_reasoning, *attempt.cheat_evidence)
        hooks = tuple(
            (failure.phase, failure.exit_code, _PATH.sub("/", failure.output)) for failure in attempt.hook_failures
        )
        way = (attempt.outcome, attempt.activated, attempt.builtin_activated, hooks)
        groups.setdefault((way, tuple(_PATH.sub("/", text or "") for text in texts)), []).append(attempt)
    return list(groups.values())


Row = tuple[Text | str, Text | str, Text | str]


def _attempt(view: View, group: Sequence[AttemptResult], *, everything: bool, run_folder: str) -> Iterator[Row]:
    """The rows of one attempt, or of several that went the same way."""
    attempt = group[0]
    glyphs, outcome = view.glyphs, attempt.outcome
    facts = [] if outcome in (Outcome.PASS, Outcome.TASK_FAIL, Outcome.NOT_CHECKED) else [WORDS[outcome]]
    facts.append(_span([one.duration_seconds for one in group], lambda value: seconds(value, glyphs), glyphs.to))
    used = [one.usage.total_tokens for one in group if one.usage is not None and one.usage.total_tokens is not None]
    if used:
        facts.append(_span(used, lambda value: count(int(value), glyphs), glyphs.to) + " tokens")
    retries = sum(one.retries for one in group)
    if retries:
        facts.append(plural(retries, "retry", "retries"))
    mark = Text(glyphs.of(outcome), style=OUTCOME_STYLE[outcome])
    if outcome is Outcome.NOT_CHECKED and attempt.activation_passed is not None:
        right = attempt.activation_passed
        mark = Text(glyphs.passed if right else glyphs.failed, style="green" if right else "red")
    numbers = ", ".join(str(one.attempt) for one in group)
    name = Text(f"attempt {numbers}" if len(group) == 1 else f"{len(group)} attempts", style="default")
    if len(group) > 1:
        facts.insert(0, f"#{numbers}")
    yield mark, name, f" {glyphs.dot} ".join(facts)
    for evidence in attempt.cheat_evidence[:MOST_EVIDENCE]:
        yield "", "forbidden", block(tail(evidence, OUTPUT_CHARS, glyphs), "red")
    if len(attempt.cheat_evidence) > MOST_EVIDENCE:
        yield "", "", Text(f"and {len(attempt.cheat_evidence) - MOST_EVIDENCE} more", style="red")
    for failure in attempt.hook_failures:
        how = "passed its limit" if failure.exit_code is None else f"exited {failure.exit_code}"
        yield "", failure.phase, join((how, "red"), "\n" if failure.output.strip() else "", block(failure.output))
    if attempt.activated is not None and (everything or attempt.activation_passed is False):
        yield "", "activated", styled(listed(attempt.activated, none="nothing"))
    if attempt.builtin_activated:
        yield "", "built-in", styled(listed(attempt.builtin_activated))
    answer = block(tail(attempt.output, OUTPUT_CHARS, glyphs))
    yield "", "output", answer if answer.plain.strip() else Text("nothing", style="dim")
    yield from _reasons(view, attempt, everything=everything, run_folder=run_folder)


def _span(values: Sequence[float], shown: Callable[[float], str], to: str) -> str:
    least, most = shown(min(values)), shown(max(values))
    return least if least == most else f"{least}{to}{most}"


def _reasons(view: View, attempt: AttemptResult, *, everything: bool, run_folder: str) -> Iterator[Row]:
    """Why the attempt came out as it did."""
    glyphs = view.glyphs
    if attempt.assert_evidence and attempt.assert_passed is not True:
        name = "assert" if attempt.assert_passed is False or not attempt.outcome.noise else "error"
        yield "", name, block(tail(attempt.assert_evidence, OUTPUT_CHARS, glyphs))
    elif attempt.assert_passed is not None and everything:
        yield "", "assert", Text("passed" if attempt.assert_passed else "failed")
    if attempt.autorater_reasoning and (everything or attempt.autorater_passed is not True):
        yield "", "judge", block(tail(attempt.autorater_reasoning, OUTPUT_CHARS, glyphs))
    if everything and attempt.autorater_script:
        yield "", "judge script", block(attempt.autorater_script)
    if everything:
        for warning in attempt.warnings:
            yield "", "warning", styled(warning, "yellow")
    if everything and attempt.evidence:
        yield "", "evidence", styled(f"{run_folder}{attempt.evidence}", "dim")
