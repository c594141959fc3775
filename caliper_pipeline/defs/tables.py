"""Markdown for the UI: tables of tasks, attempts and skills, and texts as blocks. Strangers' words stay words in it."""

from collections.abc import Sequence

from caliper_pipeline.domain.records import Outcome, TaskHeader
from caliper_pipeline.domain.results import AttemptResult, Results
from caliper_pipeline.domain.statistics import Interval

MARKS = {
    Outcome.PASS: "✓",
    Outcome.TASK_FAIL: "✗",
    Outcome.CHEAT: "⚠",
    Outcome.NOT_CHECKED: "—",
    Outcome.INFRA_ERROR: "⊘",
    Outcome.TIMEOUT: "⊘",
    Outcome.JUDGE_ERROR: "⊘",
}


def tasks_table(results: Results) -> str:
    """The tasks of a run as a Markdown table, with a mark for each attempt."""
    rows = [
        [
            task.task_name,
            "".join(MARKS[attempt.outcome] for attempt in task.attempts[:40]) + ("…" if task.attempts[40:] else ""),
            "probe" if task.scored.trigger_only else rate_text(task.scored.score, task.scored.interval),
            f"{task.scored.successes}/{task.scored.usable}" if task.scored.usable else "—",
            str(task.scored.unusable) if task.scored.unusable else "",
            "—"
            if task.scored.activation_expected is None
            else rate_text(task.scored.activation_score, task.scored.activation_interval),
        ]
        for task in results.task_results
    ]
    return table(["task", "attempts", "success", "passed", "unusable", "activation"], rows)


def attempts_table(attempts: Sequence[AttemptResult]) -> str:
    rows = [
        [
            str(item.attempt),
            f"{MARKS[item.outcome]} {item.outcome}",
            f"{item.duration_seconds:.1f}",
            str(item.usage.total_tokens) if item.usage is not None and item.usage.total_tokens is not None else "—",
            "—" if item.activated is None else ", ".join(item.activated) or "nothing",
            _why(item),
        ]
        for item in attempts
    ]
    return table(["attempt", "outcome", "seconds", "tokens", "activated", "why"], rows)


def _why(attempt: AttemptResult) -> str:
    """The first reason that somebody gave for the outcome."""
    for text in (*attempt.cheat_evidence[:1], attempt.assert_evidence, attempt.autorater_reasoning):
        if text:
            lines = text.strip().splitlines()
            return lines[-1] if text == attempt.assert_evidence else lines[0]
    return ""


def skills_table(results: Results) -> str:
    rows = [
        [
            row.skill,
            f"{row.hits}/{row.expected}" if row.expected else "—",
            f"{row.unwanted}/{row.opportunities}" if row.opportunities else "—",
        ]
        for row in results.aggregate.per_skill
    ]
    return table(["skill", "fired when wanted", "fired when not wanted"], rows)


def spec_table(tasks: Sequence[TaskHeader]) -> str:
    rows = [
        [
            task.name,
            " + ".join(
                name
                for name, present in (
                    ("assert", task.assert_script is not None),
                    ("expect", task.expect is not None),
                    ("activates", task.activates is not None),
                )
                if present
            ),
            _first_line(task.prompt),
        ]
        for task in tasks
    ]
    return table(["task", "checks", "prompt"], rows)


def rate_text(rate: float | None, interval: Interval | None) -> str:
    if rate is None:
        return "not measured"
    if interval is None:
        return f"{rate:.0%}"
    return f"{rate:.0%} ({interval.low:.0%} to {interval.high:.0%})"


def _first_line(text: str) -> str:
    line = text.strip().splitlines()[0] if text.strip() else ""
    return line if len(line) <= 100 else line[:99] + "…"


def fenced(text: str, language: str) -> str:
    """As a code block that the text cannot close."""
    ticks = "```"
    while ticks in text:
        ticks += "`"
    return f"{ticks}{language}\n{text}\n{ticks}"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *([_cell(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(text: str) -> str:
    """Text as text, whatever Markdown or HTML it resembles; on one line, at most 300 characters."""
    flat = " ".join(text.split())
    flat = flat if len(flat) <= 300 else flat[:299] + "…"
    escaped = "".join("\\" + char if char in "\\`*_{}[]()#+!|~" else char for char in flat)
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
