"""How often each MCP server was called in a run, as a table. Nothing is scored by it."""

from rich.table import Table
from rich.text import Text

from caliper_pipeline.domain.results import Results
from caliper_pipeline.domain.servers import server_uses
from caliper_pipeline.interfaces.render.console import View, styled
from caliper_pipeline.interfaces.render.tables import plain_table


def servers_table(view: View, results: Results) -> Table | None:
    """`None`: there was no server, or no transcript tells what was called. Servers of the operator's own stand behind
    the declared ones, and only those that were called."""
    run = results.run
    declared = run.mcp_servers or ()
    own = [
        name.removeprefix("mcp:")
        for name in run.loaded_user_customizations or ()
        if name.startswith("mcp:") and "(" not in name
    ]
    attempts = [attempt for task in results.task_results for attempt in task.attempts]
    if not any(attempt.tool_calls for attempt in attempts):
        return None
    uses = server_uses([attempt.tool_calls for attempt in attempts], list(dict.fromkeys((*declared, *own))))
    shown = [use for use in uses if use.server in declared or use.calls]
    if not shown:
        return None
    table = plain_table(view)
    table.add_column("MCP server", ratio=1, min_width=12, overflow="fold")
    table.add_column("attempts that called it", justify="right", overflow="fold")
    table.add_column("calls", justify="right")
    for use in shown:
        name = styled(use.server)
        if use.server not in declared:
            name.append("  your own", style="dim")
        share = Text(str(use.attempts)).append(f" of {len(attempts)}", style="dim")
        table.add_row(name, share, str(use.calls))
    return table
