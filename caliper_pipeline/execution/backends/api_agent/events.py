"""The stream on standard output: one JSON object a line, written at once, so that a kill leaves what has happened."""

import json
import os
from typing import Any

DEEPEST = 60


class Events:
    """Writes to a private copy of standard output. What libraries print there goes to standard error instead."""

    def __init__(self, fd: int | None = None) -> None:
        self._fd = self._take_over() if fd is None else fd

    @staticmethod
    def _take_over() -> int:
        own = os.dup(1)
        os.dup2(2, 1)
        return own

    def tell(self, event: str, **facts: Any) -> None:
        line = json.dumps({"event": event, **facts}, ensure_ascii=False, default=str)
        view = memoryview(f"{line}\n".encode("utf-8", "replace"))
        while view:
            view = view[os.write(self._fd, view) :]


def clean(value: Any, depth: int = 0) -> Any:
    """What a model or a server gave, fit to be sent and stored: half a surrogate pair cannot be written as UTF-8.
    Raises `ValueError` for what is nested too deeply to be walked."""
    if depth > DEEPEST:
        raise ValueError(f"nested more than {DEEPEST} levels deep")
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {clean(key): clean(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [clean(item, depth + 1) for item in value]
    return value
