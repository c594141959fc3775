"""Engines: a backend and a model, chosen when a run starts, and how `--model` names them."""

from dataclasses import dataclass

from caliper_pipeline.domain.errors import UnknownBackend

BACKENDS = ("claude-code", "codex", "pi", "hermes", "claude-api", "openai-api", "scripted")
DEFAULT_BACKEND = "claude-code"
ALIASES = {
    "claude": "claude-code",
    "claude_code": "claude-code",
    "anthropic": "claude-api",
    "claude_api": "claude-api",
    "openai": "openai-api",
    "openai_api": "openai-api",
}


@dataclass(frozen=True, slots=True)
class Engine:
    backend: str
    model: str | None = None
    """As asked for. `None`: whatever the backend uses by itself."""

    def __str__(self) -> str:
        return self.backend if self.model is None else f"{self.backend}:{self.model}"

    @property
    def simulated(self) -> bool:
        """No model answers: figures of such a run say nothing about a real agent."""
        return self.backend == "scripted"


def parse_engine(value: str, *, flag: str = "--model") -> Engine:
    """The engine that a flag's value names: `backend`, `backend:model`, or a bare model of the default backend.

    A value that holds `:` is split at the first one, so a model id with a colon needs its backend in front.
    Raises `UnknownBackend`.
    """
    text = value.strip()
    head, colon, model = text.partition(":")
    backend = ALIASES.get(head.lower(), head.lower())
    model = model.strip()
    if (model if colon else text).startswith("-"):
        raise UnknownBackend(
            f"{flag} {value}: a model's name does not begin with a dash.",
            hint=f"Write {flag} BACKEND, {flag} BACKEND:MODEL or {flag} MODEL, and other options behind it.",
        )
    if colon:
        if backend not in BACKENDS:
            raise UnknownBackend(
                f"{flag} {value}: there is no backend called {head!r}.",
                hint=f"Known backends: {', '.join(BACKENDS)}. "
                f"A model id that holds a colon needs its backend in front: {DEFAULT_BACKEND}:{value}",
            )
        if not model:
            raise UnknownBackend(
                f"{flag} {value}: no model after the colon.", hint=f"Write {head} alone, or {head}:MODEL."
            )
        return Engine(backend, model)
    if not text:
        raise UnknownBackend(f"{flag}: an empty engine.", hint=f"Known backends: {', '.join(BACKENDS)}.")
    return Engine(backend) if backend in BACKENDS else Engine(DEFAULT_BACKEND, text)
