"""The recorded calls of the hermes CLI, put together as the backend gets them.

A file holds the output, the report (`--usage-file`) and the sessions of one call. Sessions of calls that were not
exported were read from the database instead.
"""

import json
from pathlib import Path
from typing import Any

from caliper_pipeline.execution.command import ProcessResult

RECORDED = Path(__file__).parents[1] / "fixtures" / "hermes"


def recorded(name: str) -> tuple[ProcessResult, bytes | None]:
    """The result of the call, with the export behind its output, and its report."""
    told: dict[str, Any] = json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))
    exported = "".join(json.dumps(session) + "\n" for session in told.get("export", []))
    code = told["exit_code"]
    result = ProcessResult(
        code,
        (told["stdout"] + exported).encode(),
        told["stderr"].encode(),
        timed_out=code == -15,  # the signal that a call is ended with
    )
    return result, json.dumps(told["usage"]).encode() if "usage" in told else None
