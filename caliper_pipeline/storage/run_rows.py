"""The rows of one run, by table, on their way into the history."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]


@dataclass(slots=True)
class RunRows:
    """All rows of one run, by table."""

    run_id: str
    source: str
    """`run_store` or `file`."""
    source_bytes: int
    source_digest: str | None = None
    id_from_content: bool = False
    """The file bore no id, and has one that follows from what is in it."""
    tables: dict[str, list[Row | Callable[[], Row]]] = field(default_factory=dict)
    """A row, or what makes it: of those that a run has by the thousand only a few exist at a time."""
    texts: dict[str, str] = field(default_factory=dict)
    """sha256 → text."""
    skill_files: dict[str, dict[str, str]] = field(default_factory=dict)
    """A skill's digest → path → hash."""

    def add(self, table: str, row: Row) -> None:
        self.tables.setdefault(table, []).append({"run_id": self.run_id, **row})

    def add_later(self, table: str, make: Callable[[], Row]) -> None:
        self.tables.setdefault(table, []).append(lambda: {"run_id": self.run_id, **make()})

    def add_text(self, text: str | None, digest: str | None) -> str | None:
        """Keeps the text and gives its digest; without a text the digest as it is."""
        if text is None:
            return digest
        digest = digest or hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        self.texts[digest] = text
        return digest
