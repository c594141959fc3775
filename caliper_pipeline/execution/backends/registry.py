"""From a backend's name to the backend. Each is imported when it is asked for, since most commands need none."""

from caliper_pipeline.domain.errors import UnknownBackend
from caliper_pipeline.execution.backends.base import Backend

AVAILABLE = ("claude-code", "scripted")


def make_backend(name: str) -> Backend:
    """The backend of that name. Raises `UnknownBackend`."""
    if name == "claude-code":
        from caliper_pipeline.execution.backends.claude_code import ClaudeCode

        return ClaudeCode()
    if name == "scripted":
        from caliper_pipeline.execution.backends.scripted import Scripted

        return Scripted()
    raise UnknownBackend(
        f"The backend {name} is not available in this version.",
        hint=f"Available: {', '.join(AVAILABLE)}.",
    )
