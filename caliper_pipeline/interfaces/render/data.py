"""Data on standard output: JSON and nothing else, whatever the terminal's encoding."""

import json
import sys
from typing import Any

from caliper_pipeline.interfaces.render.text import encodable


def show_json(value: Any) -> None:
    """Print it indented; what the encoding cannot hold is escaped."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    if not encodable(text, sys.stdout.encoding or "ascii"):
        text = json.dumps(value, indent=2)
    sys.stdout.write(text + "\n")
