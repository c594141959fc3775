"""The rows of a query as data: CSV, JSON or a Markdown table, in UTF-8, row by row as they come."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from caliper_pipeline.interfaces.render.cells import is_number, plain, readable, text_of

Rows = Iterable[tuple[Any, ...]]


def as_csv(columns: Sequence[str], rows: Rows) -> Iterator[str]:
    """With a header line; NULL is empty, lists are JSON, times `2026-11-30T12:00:00Z`."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([text_of(value) for value in row])
        if buffer.tell() > 1 << 16:
            yield buffer.getvalue()
            buffer.seek(0)
            buffer.truncate()
    yield buffer.getvalue()


def as_json(columns: Sequence[str], types: Sequence[str], rows: Rows) -> Iterator[str]:
    """A list of objects, one on each line."""
    names, first = _unique(columns), True
    for row in rows:
        item = {name: plain(value, kind) for name, value, kind in zip(names, row, types, strict=True)}
        yield ("[\n" if first else ",\n") + json.dumps(item, ensure_ascii=False, allow_nan=False)
        first = False
    yield "[]\n" if first else "\n]\n"


def as_markdown(columns: Sequence[str], types: Sequence[str], rows: Rows) -> Iterator[str]:
    """A table with pipes, numbers to the right."""
    yield f"| {' | '.join(_cell(name) for name in columns)} |\n"
    yield f"| {' | '.join('---:' if is_number(kind) else '---' for kind in types)} |\n"
    for row in rows:
        yield f"| {' | '.join(_cell(readable(value, null='')) for value in row)} |\n"


def _cell(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
    return " ".join(escaped.split())


def _unique(columns: Sequence[str]) -> list[str]:
    """Names that an object can hold: a second `n` becomes `n_2`."""
    names: list[str] = []
    for column in columns:
        name, number = column, 2
        while name in names:
            name, number = f"{column}_{number}", number + 1
        names.append(name)
    return names
