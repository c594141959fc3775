"""What the cases under `shared/cases` call: the product's own functions behind the fixed commands of their README.

    cases_adapter.py history-import FILES...     records results files in the database at $HISTORY_DB
    cases_adapter.py history-json                prints that database as JSON

Exit status: 0 all well; 1 some input refused, the rest done; 2 the database (or whatever is asked) cannot be used.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path


def history_import(files: Sequence[str]) -> int:
    from caliper_pipeline.storage import history

    refused = 0
    for path, error in history.import_results(_database(), [Path(name) for name in files]):
        if error is not None:
            refused = 1
            sys.stderr.write(f"{path}: {error}\n")
    return refused


def history_json(_: Sequence[str]) -> int:
    from caliper_pipeline.storage import history

    json.dump(history.history_json(_database()), sys.stdout, indent=1)
    sys.stdout.write("\n")
    return 0


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "history-import": history_import,
    "history-json": history_json,
}


def main(arguments: Sequence[str]) -> int:
    from caliper_pipeline.domain.errors import CaliperError

    command = COMMANDS.get(arguments[0]) if arguments else None
    if command is None:
        sys.stderr.write(f"usage: cases_adapter.py {'|'.join(COMMANDS)} ...\n")
        return 2
    try:
        return command(arguments[1:])
    except CaliperError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code


def _database() -> Path:
    return Path(os.path.abspath(os.environ["HISTORY_DB"]))  # noqa: PTH100


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
