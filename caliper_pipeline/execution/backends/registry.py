"""From a backend's name to the backend. Each is imported when it is asked for, since most commands need none."""

from importlib import import_module

from caliper_pipeline.domain.errors import UnknownBackend
from caliper_pipeline.execution.backends.base import Backend

_CLASSES = {
    "claude-api": ("claude_api", "ClaudeApi"),
    "claude-code": ("claude_code", "ClaudeCode"),
    "codex": ("codex", "Codex"),
    "hermes": ("hermes", "Hermes"),
    "openai-api": ("openai_api", "OpenaiApi"),
    "pi": ("pi", "Pi"),
    "scripted": ("scripted", "Scripted"),
}
"""Name → module beside this one, class in it."""
AVAILABLE = tuple(_CLASSES)


def make_backend(name: str) -> Backend:
    """The backend of that name. Raises `UnknownBackend`."""
    if name not in _CLASSES:
        raise UnknownBackend(
            f"The backend {name} is not available in this version.",
            hint=f"Available: {', '.join(AVAILABLE)}.",
        )
    module, kind = _CLASSES[name]
    backend: Backend = getattr(import_module(f"{__package__}.{module}"), kind)()
    return backend
