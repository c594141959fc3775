"""`caliper history prune`: removes the evidence of old runs."""

import re
import sys
from datetime import UTC, datetime, timedelta

import click

from caliper_pipeline.domain.errors import BadInput
from caliper_pipeline.interfaces.history_command import Progress, root_with_history
from caliper_pipeline.interfaces.problems import print_line, say, show_warnings
from caliper_pipeline.interfaces.render.sizes import size_text
from caliper_pipeline.interfaces.render.text import plural

_AGE = re.compile(r"(\d+)\s*(h|d|w)\Z")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMGT]?)i?B?\Z", re.IGNORECASE)
_HOURS = {"h": 1, "d": 24, "w": 168}
_FACTORS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_SHOWN = 10


@click.command()
@click.option("--older-than", metavar="AGE", help="Of runs last added to longer ago, as 90d, 12w or 36h.")
@click.option(
    "--keep-bytes", metavar="SIZE", help="Of the oldest runs, until no more evidence than this is left: 10GB."
)
@click.option("--labelled", is_flag=True, help="Also of runs that people have labelled.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def prune(older_than: str | None, keep_bytes: str | None, labelled: bool, dry_run: bool, yes: bool) -> None:
    """Remove the evidence of old runs: transcripts, streams, workdirs and what judges were asked.

    Verdicts, scores and all other rows stay. What is gone cannot be judged again or looked at. Runs that are at work,
    that hold attempts not judged yet or that people have labelled are left alone. With both AGE and SIZE, only runs
    older than AGE go, and only until SIZE is reached.
    """
    age, size = _age(older_than), _size(keep_bytes)
    if age is None and size is None:
        raise BadInput("What may go? Nothing was named.", hint="caliper history prune --older-than 90d --dry-run")
    from caliper_pipeline.evaluation import history_care

    root = root_with_history()
    if root is None:
        return
    now = datetime.now(UTC)
    plan = history_care.plan_pruning(root, now, older_than=age, keep_bytes=size, labelled=labelled)
    for kept in plan.kept[:_SHOWN]:
        show_warnings([f"{kept.run_id} stays: {kept.why}"])
    if len(plan.kept) > _SHOWN:
        show_warnings([f"{len(plan.kept) - _SHOWN} more runs stay for such reasons"])
    if not plan.going:
        print_line(f"Nothing to remove. All evidence takes {size_text(plan.total_bytes)}.")
        return
    runs, freed = plural(len(plan.going), "run"), size_text(plan.freed_bytes)
    if dry_run:
        for stored in plan.going:
            print_line(f"{stored.run_id}  {size_text(stored.bytes):>9}")
        print_line(f"Would free {freed} of {size_text(plan.total_bytes)}: the evidence of {runs}.")
        return
    if not yes:
        if not sys.stdin.isatty():
            raise BadInput(f"This would remove the evidence of {runs} ({freed}) for good.", hint="--yes does it.")
        click.confirm(f"Remove the evidence of {runs} ({freed}) for good?", abort=True, err=True)
    progress, done = Progress(), 0

    def seen(_: object) -> None:
        nonlocal done
        done += 1
        progress.seen(done, len(plan.going))

    total, stayed = history_care.prune(root, plan.going, now, seen)
    progress.done()
    for kept in stayed:
        show_warnings([f"{kept.run_id} stays: {kept.why}"])
    print_line(f"Freed {size_text(total)}: the evidence of {plural(done, 'run')}. Its figures stay in the history.")
    if stayed:
        say("Ask again when those runs are over.")


def _age(text: str | None) -> timedelta | None:
    if text is None:
        return None
    found = _AGE.match(text.strip())
    if not found or int(found.group(1)) > 1_000_000:
        raise BadInput(f"--older-than {text}: not an age.", hint="A number and h, d or w: 36h, 90d, 12w.")
    return timedelta(hours=int(found.group(1)) * _HOURS[found.group(2)])


def _size(text: str | None) -> int | None:
    if text is None:
        return None
    found = _SIZE.match(text.strip())
    if not found:
        raise BadInput(f"--keep-bytes {text}: not a size.", hint="A number of bytes, or with a unit: 500MB, 10GB.")
    return int(float(found.group(1)) * 1000 ** _FACTORS[found.group(2).upper()])
