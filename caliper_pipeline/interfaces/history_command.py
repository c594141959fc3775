"""`caliper history`: what the history holds, whether it is whole, and looking after it."""

import sys
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING

import click

from caliper_pipeline.domain.errors import BadInput
from caliper_pipeline.interfaces.lazy_group import LazyGroup
from caliper_pipeline.interfaces.problems import print_line, say, show_warnings
from caliper_pipeline.interfaces.sql_command import holds_runs
from caliper_pipeline.storage.root import find_root

if TYPE_CHECKING:
    from caliper_pipeline.evaluation.history_care import EvidenceTotal, HistoryStatus

_NAMED = 5
"""Runs that are named one by one."""
SUBCOMMANDS = {
    "check": ("history_command:check", "Check that it is whole, and agrees with the runs on disk."),
    "compact": ("history_command:compact", "Write its file anew, without gaps."),
    "rebuild": ("history_command:rebuild", "Make it anew from the runs, imported files and records."),
    "prune": ("prune_command:prune", "Remove the evidence of old runs; all figures stay."),
    "import": ("import_command:import_files", "Take in results files, of this product or of caliper-eval."),
    "export": ("export_command:export", "Write runs or tables for other programs; the same as caliper export."),
}


@click.group(cls=LazyGroup, lazy=SUBCOMMANDS, invoke_without_command=True)
@click.option("--all-evidence", is_flag=True, help="Count all evidence, however long that takes.")
@click.pass_context
def history(context: click.Context, all_evidence: bool) -> None:
    """Say what the history holds: the database that caliper sql, the notebooks and the UI read.

    It is derived: everything in it can be made anew from .caliper/runs and .caliper/records.
    """
    if context.invoked_subcommand is not None:
        return
    from caliper_pipeline.evaluation.history_care import COUNTING_SECONDS, count_evidence, status

    root = root_with_history()
    if root is None:
        return
    found = status(root, lambda text: show_warnings([text]))
    show_status(found, count_evidence(root, seconds=None if all_evidence else COUNTING_SECONDS))


@click.command()
@click.option("--deep", is_flag=True, help="Also read every line of every run, which may take minutes.")
def check(deep: bool) -> None:
    """Check that the history is whole, that it agrees with the runs on disk, and that their evidence is there.

    Exit code 1 when something is wrong.
    """
    from caliper_pipeline.evaluation.history_care import problems

    root = root_with_history()
    if root is None:
        return
    found = 0
    for problem in problems(root, deep=deep):
        print_line(problem)
        found += 1
    if found:
        say("What is wrong with the history itself, caliper history rebuild makes anew from the runs.")
        sys.exit(1)
    print_line("The history is whole, and agrees with the runs on disk.")


@click.command()
def compact() -> None:
    """Write the history's file anew, without gaps and with its rows in order. Nobody has to wait for it."""
    from caliper_pipeline.interfaces.render.sizes import size_text
    from caliper_pipeline.storage.history import compact as compacted
    from caliper_pipeline.storage.history import history_path

    root = root_with_history()
    if root is None:
        return
    before, after = compacted(history_path(root))
    print_line(f"{size_text(before)} before, {size_text(after)} now.")


@click.command()
@click.option("--yes", is_flag=True, help="Do not ask, though rows of runs that are no longer on disk go.")
def rebuild(yes: bool) -> None:
    """Make the history anew from the runs, imported files and records. The old one stays in use until it is done.

    Rows of runs that are no longer on disk are in no new history.
    """
    from caliper_pipeline.evaluation import history_care
    from caliper_pipeline.interfaces.render.text import plural

    root = root_with_history()
    if root is None:
        return
    lost = history_care.lost_by_rebuilding(root)
    if lost and not yes:
        runs = plural(len(lost), "run")
        named = ", ".join(lost[:_NAMED]) + (" …" if len(lost) > _NAMED else "")
        if not sys.stdin.isatty():
            raise BadInput(f"This would lose {runs} that only the history still knows: {named}.", hint="--yes does it.")
        click.confirm(f"Lose {runs} that only the history still knows ({named})?", abort=True, err=True)
    progress = Progress()
    made = history_care.rebuild(root, progress.seen)
    progress.done()
    print_line(f"The history was made anew: {plural(made, 'run')}.")


class Progress:
    """Runs done, on one line of standard error; silent where that is no terminal."""

    def __init__(self) -> None:
        self._shown = -1
        self._live = sys.stderr.isatty()

    def seen(self, number: int, total: int) -> None:
        percent = number * 100 // max(total, 1)
        if self._live and percent != self._shown:
            self._shown = percent
            click.echo(f"\r{number} of {total} runs ({percent} %)", err=True, nl=False)

    def done(self) -> None:
        if self._live and self._shown >= 0:
            click.echo(err=True)


def root_with_history() -> Path | None:
    """The project one is in. `None`, having said so: nothing was ever recorded there."""
    root = find_root(Path.cwd())
    if root is None or not holds_runs(root):
        say("There is no history here yet: the first run makes it (caliper run, or caliper demo).")
        return None
    return root


def show_status(status: "HistoryStatus", evidence: "EvidenceTotal") -> None:
    """One line a fact."""
    from caliper_pipeline.interfaces.render.sizes import size_text
    from caliper_pipeline.interfaces.render.text import moment, plural

    def line(name: str, text: str) -> None:
        print_line(f"{name:11}{text}")

    spare = f", and {size_text(status.spare_bytes)} beside it for the next publication" if status.spare_bytes else ""
    line("file", f"{status.file}, {size_text(status.bytes)}{spare}; schema {status.schema_version}")
    made_up = f", {status.simulated} of them simulated" if status.simulated else ""
    line("runs", f"{status.runs:,}{made_up}; {plural(status.specs, 'spec')}, {status.series:,} series")
    line("attempts", f"{status.attempts:,}; {status.verdicts:,} verdicts")
    if status.first is not None and status.last is not None:
        first, last = (time.replace(tzinfo=UTC) for time in (status.first, status.last))
        line("from, to", f"{moment(first)}, {moment(last)}")
    if status.imported:
        line("imported", f"{plural(status.imported, 'run')} from results files")
    if status.labels:
        line("labels", f"{status.labels:,}")
    if status.alerts or status.acknowledgements:
        line("alerts", f"{status.alerts:,}, {status.open_alerts:,} open; {status.acknowledgements:,} acknowledgements")
    at_least = "" if evidence.complete else "at least "
    pruned = f"; pruned of {plural(evidence.pruned, 'run')}" if evidence.pruned else ""
    line("evidence", f"{at_least}{size_text(evidence.bytes)} of {plural(evidence.runs, 'run')}{pruned}")
    if not evidence.complete:
        line("", "(counting took too long: caliper history --all-evidence counts to the end)")
    if status.missing:
        line("not in it", f"{', '.join(status.missing[:5])}{' …' if len(status.missing) > 5 else ''}")
        line("", "(somebody is at work on it, or nothing of it ended; caliper history check names damaged ones)")
    for path in status.set_aside:
        line("set aside", f"{path}: damaged, kept for whoever wants to look")
