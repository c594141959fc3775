"""The table of MCP servers in a report."""

import io
from dataclasses import replace

from domain.factories import START, attempt_record, run_header, verdict_record

from caliper_pipeline.domain.results import Results, assemble
from caliper_pipeline.interfaces.render.console import View
from caliper_pipeline.interfaces.render.servers import servers_table

CALLS = [{"mcp__mail__read": 2, "mcp__own__look": 1, "Bash": 4}, {"mcp__mail__send": 1}, {}]


def results(calls: list[dict[str, int]], **header: object) -> Results:
    lines = [line for n in (1, 2, 3) for line in (attempt_record(n), verdict_record(attempt=n))]
    found = assemble(run_header(**header), lines, ended_at=START)
    (task,) = found.task_results
    attempts = tuple(replace(attempt, tool_calls=by) for attempt, by in zip(task.attempts, calls, strict=True))
    return replace(found, task_results=(replace(task, attempts=attempts),))


def shown(given: Results) -> list[list[str]]:
    """The rows; none: there is no table."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    view = View(stream, environ={"COLUMNS": "100", "TERM": "xterm"})
    table = servers_table(view, given)
    if table is None:
        return []
    return [[str(cell) for cell in row] for row in zip(*(column.cells for column in table.columns), strict=True)]


def test_declared_servers_come_with_their_calls_also_when_there_were_none() -> None:
    given = results(CALLS, mcp_servers=("mail", "notes"))
    assert shown(given) == [["mail", "2 of 3", "3"], ["notes", "0 of 3", "0"]]


def test_ones_own_servers_follow_when_they_were_called() -> None:
    layer = ("mcp:(not listed)", "mcp:idle", "mcp:own", "skill:x")
    given = results(CALLS, mcp_servers=("mail",), isolated=False, loaded_user_customizations=layer)
    assert shown(given) == [["mail", "2 of 3", "3"], ["own  your own", "1 of 3", "1"]]


def test_nothing_is_claimed_without_transcripts_or_servers() -> None:
    assert shown(results([{}, {}, {}], mcp_servers=("mail",))) == []
    assert shown(results(CALLS)) == []
