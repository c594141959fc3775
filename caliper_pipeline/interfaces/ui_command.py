"""`caliper ui`: Dagster's web UI and daemon, with the home and the code location of this project."""

import os
import sys
from pathlib import Path

import click

from caliper_pipeline.evaluation.project import find_project


@click.command()
@click.option("--port", type=click.IntRange(1, 65535), default=3000, show_default=True, help="Port of the web page.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at. There is no login.")
def ui(port: int, host: str) -> None:
    """Start the web UI and the daemon (schedules, sensors, backfills) until Ctrl-C."""
    project = find_project(Path.cwd())
    arguments = ["--root", str(project.root), "--host", host, "--port", str(port)]
    # This process becomes the server's, so that signals reach it as they are sent.
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "caliper_pipeline.defs.server", *arguments])
