"""A process of its own that tells Dagster about runs: beside a `caliper run`, or afterwards (`caliper sync`).

    python -m caliper_pipeline.defs.recorder --root FOLDER --run ID     follow that run until it ends
    python -m caliper_pipeline.defs.recorder --root FOLDER --all        record whatever Dagster lacks

Importing Dagster takes seconds, which here nobody waits for. It executes the `evaluate` job on the persistent
instance. Killing it loses nothing: the run's folder has everything, and `caliper sync` tells the rest.
"""

import argparse
import contextlib
import os
import signal
import sys
from pathlib import Path

BEHIND_THE_RUN = 5
"""How much the recorder yields to the command that it records, in steps of `nice`."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m caliper_pipeline.defs.recorder", description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="the folder that holds .caliper")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--run", metavar="ID", help="follow this run until it ends")
    what.add_argument("--all", action="store_true", help="record whatever Dagster lacks")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--part", type=int, metavar="N", help="only this part of a large run")
    which.add_argument("--beside", action="store_true", help="all parts but the first, which a step of Dagster's tells")
    given = parser.parse_args(arguments)
    root = given.root.resolve()
    os.environ["CALIPER_ROOT"] = str(root)
    if given.run is not None:
        # Ctrl-C in the terminal is for the command; the recorder ends when the run does.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with contextlib.suppress(OSError):
            os.nice(BEHIND_THE_RUN)

    from caliper_pipeline.defs import syncing
    from caliper_pipeline.domain.errors import CaliperError

    try:
        if given.all:
            return syncing.record_all(root, say=lambda text: print(text, flush=True))  # noqa: T201
        return syncing.record_run(root, given.run, part=given.part, beside=given.beside)
    except CaliperError as error:
        print(f"Error: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
