"""Series (spec × engine × arm × setup) and the partition keys that stand for them in Dagster.

A partition is a slice of data that is replaced when it is made again, so its key must name the whole series:
`<spec>/<backend>[.<model>][~<ablated>…][+isolated]`, and below it `/<task>`. Identity → key is pure and free of
collisions; the way back is looked up where the series was recorded, because a slug cannot be undone.
"""

import hashlib
import re
from dataclasses import dataclass

from caliper_pipeline.domain.engine import Engine

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}\Z")
_LOOKS_HASHED = re.compile(r"-[0-9a-f]{8}\Z")
FULL_ARM = "full"


@dataclass(frozen=True, slots=True)
class Series:
    """What one follows from night to night."""

    spec: str
    engine: Engine
    ablated: tuple[str, ...] = ()
    """Sorted; servers as `mcp:<name>`. Empty: the full arm."""
    isolated: bool = False
    """Attempts ran without the operator's own customizations."""

    @property
    def arm(self) -> str:
        return FULL_ARM if not self.ablated else "+".join(self.ablated)

    @property
    def key(self) -> str:
        """The partition key of the series."""
        engine = slug(self.engine.backend)
        if self.engine.model is not None:
            engine += "." + slug(self.engine.model)
        arm = "".join("~" + slug(name) for name in self.ablated)
        return f"{slug(self.spec)}/{engine}{arm}{'+isolated' if self.isolated else ''}"

    def task_key(self, task_name: str) -> str:
        """The partition key of one of its tasks."""
        return f"{self.key}/{slug(task_name)}"


def slug(text: str) -> str:
    """The text itself when a key may hold it, else what is left of it plus eight digits of its sha256.

    A text that only looks like such a slug gets digits too, so two texts never share a key.
    """
    if _PLAIN.match(text) and ".." not in text and not _LOOKS_HASHED.search(text):
        return text
    kept = re.sub(r"[^A-Za-z0-9_]+", "-", text).strip("-")[:40].rstrip("-")
    digits = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{kept}-{digits}" if kept else f"x-{digits}"


def folder_name(text: str) -> str:
    """Like `slug`, and safe where file names ignore letter case."""
    if text == text.lower():
        return slug(text)
    kept = re.sub(r"[^A-Za-z0-9_]+", "-", text).strip("-")[:40].rstrip("-").lower()
    digits = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{kept or 'x'}-{digits}"


def attempt_key(index: int) -> str:
    """The partition key of an attempt: `001` for the first."""
    return f"{index:03d}"
