"""`caliper update-cli`: the agents' commands, which version is in use, which is the newest, and the update."""

import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence

import click

from caliper_pipeline.domain.errors import BadInput, CannotRun
from caliper_pipeline.evaluation.agent_clis import CLIS, CliState, look
from caliper_pipeline.evaluation.logins import this_operator
from caliper_pipeline.interfaces.problems import print_line, say

_HEADINGS = ("COMMAND", "STATUS", "IN USE", "NEWEST", "WHERE")
_COLOURS = {"behind": "yellow", "broken": "red", "current": "green"}


@click.command("update-cli")
@click.argument("name", type=click.Choice([cli.name for cli in CLIS]), required=False)
@click.option("--check", is_flag=True, help="Only show; change nothing.")
@click.option("--yes", is_flag=True, help="Update without asking.")
def update_cli(name: str | None, check: bool, yes: bool) -> None:
    """Show which agent commands are installed, in which version, and bring those that are behind up to date.

    An update is the one that fits how the command was installed (npm, brew, pip, its own updater), and is run only
    after you agreed. Nothing is ever run as another user.

    \b
    STATUS is one of
      current        the newest version
      behind         there is a newer one
      unknown        the registry could not be asked, or the command does not tell
      broken         it is there and does not start
      not installed
    With --check the exit code is 0 whatever is found: an older version is a fact, not a failure.
    """
    operator = this_operator()
    states = look(operator, [name] if name else ())
    for line, status in _table(states):
        print_line(line, fg=_COLOURS.get(status))
    if check:
        return
    due = [state for state in states if state.status in ("behind", "broken") or (name and state.status == "unknown")]
    failed = [state.cli.name for state in due if not _update(state, yes=yes)]
    if failed:
        raise CannotRun(f"Not updated: {', '.join(failed)}.", hint="What the update said stands above.")


def _update(state: CliState, *, yes: bool) -> bool:
    """False: it was tried and failed."""
    install = state.installation
    if install is None or install.update is None:
        say(f"{state.cli.name}: {install.by_hand if install else state.cli.install}")
        return True
    command = shlex.join(install.update)
    if not yes:
        if not sys.stdin.isatty():
            raise BadInput(
                f"There is nobody to ask whether to run: {command}",
                hint="Add --yes to update without being asked, or --check to only look.",
            )
        if not click.confirm(f"Run `{command}` now?", default=False, err=True):
            return True
    try:
        code = subprocess.call(install.update)
    except OSError as error:
        say(f"{install.update[0]}: {error.strerror}")
        return False
    if code == 0:
        # Looked at by another process: this one remembers what the command said before.
        subprocess.call(
            [sys.executable, "-m", "caliper_pipeline.interfaces.cli", "update-cli", state.cli.name, "--check"]
        )
    return code == 0


def _table(states: Sequence[CliState]) -> Iterator[tuple[str, str]]:
    """The lines, each with the status that colours it."""
    rows = [_HEADINGS, *(_cells(state) for state in states)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS) - 1)]
    notes = [[], *(_notes(state) for state in states)]
    statuses = ["", *(state.status for state in states)]
    indent = " " * (widths[0] + 2)
    for row, more, status in zip(rows, notes, statuses, strict=True):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        yield "  ".join([*cells, row[-1]]).rstrip(), status
        for note in more:
            yield indent + note, ""


def _cells(state: CliState) -> tuple[str, str, str, str, str]:
    where = f"{state.binary} ({state.installation.way})" if state.installation else ""
    return state.cli.name, state.status, state.version or "-", state.newest or "-", where


def _notes(state: CliState) -> list[str]:
    notes = [f"also on PATH, not used: {place}" for place in state.others]
    if state.trouble:
        notes.append(state.trouble)
    if state.binary is None:
        notes.append(f"to install it: {state.cli.install}")
    elif state.status == "behind" and state.installation is not None:
        update = state.installation.update
        notes.append(f"to update it: {shlex.join(update) if update else state.installation.by_hand}")
    return notes
