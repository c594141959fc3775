"""Where Dagster keeps its own things for a project, and the instance that lives there. Needs no Dagster until asked.

`DAGSTER_HOME` decides when it is set; else it is `.caliper/dagster` under the project's root. A home that we make gets
a `dagster.yaml` without telemetry and without the sign-up that would cover the first page; one that exists is left as
its owner has it.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from caliper_pipeline.storage.files import exclusive_lock, make_folders, storage_errors, write_whole

if TYPE_CHECKING:
    from dagster import DagsterInstance

VARIABLE = "DAGSTER_HOME"
LOCK = ".caliper.lock"
CONFIG = """\
# Written by caliper when it made this folder; change it as you like.
telemetry:
  enabled: false
nux:
  enabled: false

# Lets the UI terminate runs that a `caliper run` recorded, and the daemon find those whose process is gone.
run_launcher:
  module: caliper_pipeline.defs.launcher
  class: CaliperRunLauncher
run_monitoring:
  enabled: true
  poll_interval_seconds: 60
  cancel_timeout_seconds: 900

# Each run starts several agents at once (its workers), so few runs at once.
concurrency:
  runs:
    max_concurrent_runs: 4
"""


def dagster_home(root: Path, environ: Mapping[str, str] | None = None) -> Path:
    """The home for the project with that root. May not exist yet."""
    given = (os.environ if environ is None else environ).get(VARIABLE)
    return Path(given).expanduser().absolute() if given else root / ".caliper" / "dagster"


def prepare_home(home: Path) -> None:
    """Make the home when it is not there, with a `dagster.yaml`; several processes may ask at once."""
    with storage_errors("make", home):
        make_folders(home)
        if {entry.name for entry in home.iterdir()} - {LOCK}:
            return
        with exclusive_lock(home / LOCK):
            if not (home / "dagster.yaml").exists():
                write_whole(home / "dagster.yaml", CONFIG.encode())


def open_instance(home: Path) -> "DagsterInstance":
    """The persistent instance, with its storage made by one process at a time (Dagster itself would race)."""
    from dagster import DagsterInstance

    prepare_home(home)
    os.environ[VARIABLE] = str(home)
    with storage_errors("open", home), exclusive_lock(home / LOCK):
        return DagsterInstance.from_config(str(home))
