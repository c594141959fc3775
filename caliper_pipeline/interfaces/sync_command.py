"""`caliper sync`: tells Dagster about every run on disk that it does not have yet."""

import subprocess
import sys
from pathlib import Path

import click

from caliper_pipeline.evaluation.project import find_project


@click.command()
def sync() -> None:
    """Record in Dagster whatever it lacks of the runs on disk, and end runs whose process is dead.

    Runs record themselves; this is for what was left out: with CALIPER_RECORDER=off, after a crash, or when Dagster's
    home was deleted. Doing it twice records nothing twice.
    """
    project = find_project(Path.cwd())
    # Not imported but started: Dagster takes seconds, and no command imports it.
    done = subprocess.run(
        [sys.executable, "-m", "caliper_pipeline.defs.recorder", "--root", str(project.root), "--all"],
        stdin=subprocess.DEVNULL,
        check=False,
    )
    sys.exit(done.returncode)
