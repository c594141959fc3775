"""Starts the process that tells Dagster about a run. Dagster takes seconds to import, so nothing else waits for it."""

import subprocess
import sys

from caliper_pipeline.evaluation.project import Project


def start_recorder(project: Project, run_id: str, *flags: str) -> subprocess.Popen[bytes]:
    """A recorder of the run, in a session of its own: of all of it, or of what the flags leave to it."""
    log = project.store.open(run_id).path / "recorder.log"
    command = [sys.executable, "-m", "caliper_pipeline.defs.recorder", "--root", str(project.root), "--run", run_id]
    with log.open("ab") as sink:
        return subprocess.Popen(
            [*command, *flags], stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True
        )
