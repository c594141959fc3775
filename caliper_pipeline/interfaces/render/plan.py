"""What `caliper run --dry-run` prints."""

import shlex
from collections.abc import Iterator

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.evaluation.dry_run import PlannedRun, PlannedTask
from caliper_pipeline.interfaces.render.text import plural

_WIDEST = 160


def plan_lines(plan: PlannedRun) -> Iterator[str]:
    """The plan line by line, nothing in colour, so that it can be kept and compared."""
    header = plan.header
    yield (
        f"{header.spec}: {plural(len(header.tasks), 'task')} × {header.k} = {plural(plan.attempts, 'attempt')}, "
        f"{plan.workers} at once, {header.timeout_seconds:g} s each at most"
    )
    yield f"series   {header.series_key}"
    yield f"engine   {Engine(header.backend, header.model)} ({header.cli_version or 'version unknown'})"
    if plan.judge_argv is not None:
        yield f"judge    {Engine(header.judge_backend or '', header.judge_model)}: {_command(plan.judge_argv)}"
    loaded = header.loaded_user_customizations
    yield "setup    isolated" if header.isolated else f"setup    your own: {', '.join(loaded or ()) or 'nothing found'}"
    for name, text in _budgets(plan):
        yield f"budget   {name} {text}"
    for skill in header.skills:
        if skill.installed:
            files = plural(len(skill.files), "file")
            yield f"skill    {skill.name} → <home>/{plan.skills[skill.name]} ({files}, {skill.digest[:14]})"
        else:
            yield f"skill    {skill.name} is left out"
    for name, reached in plan.servers.items():
        yield f"server   {name}: {_cut(reached)}"
    shared = [
        lines for lines in _agent_lines(plan.tasks[0]) if all(lines in _agent_lines(other) for other in plan.tasks)
    ]
    yield from shared
    for planned in plan.tasks:
        yield ""
        yield from _task_lines(planned, shared)
    for text in plan.warnings:
        yield ""
        yield f"warning: {text}"
    yield ""
    yield "Nothing was started, and nothing was paid for."


def _agent_lines(planned: PlannedTask) -> list[str]:
    given = f" < {planned.stdin_bytes:,} bytes" if planned.stdin_bytes else ""
    return [
        f"agent    {_command(planned.argv)}{given}",
        f"home     {', '.join(planned.home_files) or 'empty'}",
        f"sees     {', '.join(planned.environment)}",
    ]


def _task_lines(planned: PlannedTask, shared: list[str]) -> Iterator[str]:
    task = planned.task
    yield f"task     {task.name}"
    if task.history is not None:
        yield "history  planted before the prompt"
    if task.setup is not None:
        yield f"setup    {_cut(task.setup)}"
    yield from (line for line in _agent_lines(planned) if line not in shared)
    checks = [
        text
        for text, there in (
            ("assert", task.assert_script is not None),
            ("judge", task.expect is not None),
            (f"activates {', '.join(task.activates or ()) or 'nothing'}", task.activates is not None),
        )
        if there
    ]
    yield f"checks   {', '.join(checks) or 'none'}"
    if task.cleanup is not None:
        yield f"cleanup  {_cut(task.cleanup)}"


def _budgets(plan: PlannedRun) -> Iterator[tuple[str, str]]:
    allowance = plan.allowance
    if allowance.max_tokens is not None:
        yield "--max-tokens", f"{allowance.max_tokens:,}"
    if allowance.max_cost_usd is not None:
        yield "--max-cost", f"${allowance.max_cost_usd:g}"
    if allowance.max_tokens_per_attempt is not None:
        yield "--max-tokens-per-attempt", f"{allowance.max_tokens_per_attempt:,}"


def _command(argv: tuple[str, ...]) -> str:
    # What stands for something that differs between attempts needs no quotes.
    return " ".join(word if word.startswith("<") else _cut(shlex.quote(word)) for word in argv)


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _WIDEST else line[: _WIDEST - 1] + "…"
