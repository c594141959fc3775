"""`caliper sync`: tells the history and Dagster about every run on disk that they do not have yet."""

import subprocess
import sys
from pathlib import Path

import click

from caliper_pipeline.evaluation.project import find_project
from caliper_pipeline.storage import history


@click.command()
def sync() -> None:
    """Record in the history and in Dagster whatever they lack of the runs on disk; end runs whose process is dead.

    Runs record themselves; this is for what was left out: with CALIPER_RECORDER=off, after a crash, or when Dagster's
    home was deleted. Doing it twice records nothing twice.
    """
    project = find_project(Path.cwd())
    if project.store.run_ids():
        published = history.catch_up(project.history_path, project.store)
        if published:
            click.echo(f"Published {published} {'run' if published == 1 else 'runs'} to the history.")
    # Not imported but started: Dagster takes seconds, and no command imports it.
    done = subprocess.run(
        [sys.executable, "-m", "caliper_pipeline.defs.recorder", "--root", str(project.root), "--all"],
        stdin=subprocess.DEVNULL,
        check=False,
    )
    sys.exit(done.returncode)
