"""What a reader of a run should know besides its figures, the worst first."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from caliper_pipeline.domain.records import Outcome
from caliper_pipeline.domain.results import Results, usage_totals
from caliper_pipeline.interfaces.render.console import styled
from caliper_pipeline.interfaces.render.text import WORDS, Glyphs, count, listed, plural, seconds

MOST_NAMED = 5
"""Things of one kind that are named one by one; of more only the number is told."""


@dataclass(frozen=True, slots=True)
class Note:
    mark: Text
    text: Text


def notes(glyphs: Glyphs, results: Results) -> Iterator[Note]:
    """Red, then yellow, then dim."""
    yield from _hook_failures(glyphs, results)
    yield from _cheats(glyphs, results)
    yield from _unusable(glyphs, results)
    yield from _unfinished(glyphs, results)
    yield from _attempt_warnings(glyphs, results)
    yield from _retries(glyphs, results)
    yield from _skills(glyphs, results)
    yield from _costs(glyphs, results)


def note_list(found: Sequence[Note]) -> Table:
    """The notes below each other, their marks in a column of their own."""
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for note in found:
        table.add_row(note.mark, note.text)
    return table


def _note(mark: str, style: str, head: str, *rest: Text | str) -> Note:
    text = Text().append(head, style=style)
    for part in rest:
        text.append("  ").append(part if isinstance(part, Text) else Text(part, style="dim"))
    return Note(Text(mark, style=style), text)


def _hook_failures(glyphs: Glyphs, results: Results) -> Iterator[Note]:
    failures = results.run.hook_failures
    for failure in failures[:MOST_NAMED]:
        how = "passed its limit" if failure.exit_code is None else f"exited {failure.exit_code}"
        task = styled(failure.task_name or failure.task_id)
        yield _note(glyphs.failed, "red", f"{failure.phase} {how}", task.append(f", attempt {failure.attempt}"))
    if len(failures) > MOST_NAMED:
        yield _note(glyphs.failed, "red", f"{len(failures) - MOST_NAMED} more hooks failed")


def _cheats(glyphs: Glyphs, results: Results) -> Iterator[Note]:
    where = [
        (task.task_name, attempt.attempt)
        for task in results.task_results
        for attempt in task.attempts
        if attempt.outcome is Outcome.CHEAT
    ]
    if where:
        named = listed(f"{name} #{number}" for name, number in where[:MOST_NAMED])
        more = f" and {len(where) - MOST_NAMED} more" if len(where) > MOST_NAMED else ""
        yield _note(glyphs.cheated, "red", plural(len(where), "attempt") + " named a forbidden path", named + more)


def _unusable(glyphs: Glyphs, results: Results) -> Iterator[Note]:
    totals = usage_totals(results)
    if not totals.unusable_attempts:
        return
    kinds = Counter(a.outcome for task in results.task_results for a in task.attempts if a.outcome.noise)
    broken = ", ".join(f"{number} {WORDS[kind]}" for kind, number in sorted(kinds.items()))
    spent = f"excluded from the score {glyphs.dot} cost {seconds(totals.unusable_wall_seconds, glyphs)}"
    if totals.unusable_tokens:
        spent += f", {count(totals.unusable_tokens, glyphs)} tokens"
    yield _note(glyphs.lost, "yellow", f"{totals.unusable_attempts} unusable", broken, spent)


def _unfinished(glyphs: Glyphs, results: Results) -> Iterator[Note]:
    aborted = [task.task_name for task in results.task_results if task.aborted]
    if aborted:
        yield _note(glyphs.lost, "yellow", f"{plural(len(aborted), 'task')} aborted by --fail-fast", listed(aborted))
    ungraded = sum(task.ungraded for task in results.task_results)
    if ungraded:
        yield _note(glyphs.lost, "yellow", f"{plural(ungraded, 'attempt')} stored but not judged yet")


def _attempt_warnings(glyphs: Glyphs, results: Results) -> Iterator[Note]:
    said = Counter(text for task in results.task_results for attempt in task.attempts for text in attempt.warnings)
    for text, number in said.most_common(MOST_NAMED):
        yield _note(glyphs.cheated, "yellow", plural(number, "attempt"), styled(text))


def _retries(glyphs: Glyphs, results: Results) -> Iterator[Note]:
    totals = usage_totals(results)
    if totals.retries:
        tried = plural(totals.retries, "retry", "retries")
        yield _note(glyphs.dot, "yellow", f"throttled: {tried} in {plural(totals.retried_attempts, 'attempt')}")


def _skills(glyphs: Glyphs, results: Results) -> Iterator[Note]:
    builtin = Counter(
        name for task in results.task_results for attempt in task.attempts for name in attempt.builtin_activated or ()
    )
    if builtin:
        named = listed(f"{name} ({number})" for name, number in sorted(builtin.items()))
        yield _note(glyphs.dot, "dim", "built-in skills that fired, never scored", named)
    if not results.run.ablated_skills:
        dormant = [row.skill for row in results.aggregate.per_skill if row.total and not row.expected and not row.fired]
        if dormant:
            yield _note(glyphs.dot, "dim", "never wanted and never fired", listed(dormant))


def _costs(glyphs: Glyphs, results: Results) -> Iterator[Note]:
    totals = usage_totals(results)
    if totals.tokens_reported:
        split = f"{count(totals.prompt_tokens, glyphs)} in, {count(totals.output_tokens, glyphs)} out"
        yield _note(glyphs.dot, "dim", "tokens", f"{split}, {count(totals.tokens_per_attempt, glyphs)} an attempt")
    if totals.judged_attempts:
        each = seconds(totals.judge_per_attempt, glyphs)
        whole = f"{seconds(totals.judge_seconds, glyphs)} in all, {each} an attempt"
        yield _note(glyphs.dot, "dim", "judge", whole)
