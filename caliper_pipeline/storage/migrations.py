"""The tables of the history, as numbered changes that are each applied once; pure text, nothing is opened here.

A change that was published is never edited: a later one mends it. Views hold no data and are made anew after every
change (`history_views`). There are no keys and no indexes: rows of a run are replaced whole, under a lock, and
scans of a column that is sorted by run are fast without them.

Times are TIMESTAMP in UTC and say so in their names (`…_utc`). TIMESTAMPTZ was not taken: it shows and cuts days
in the zone of whoever asks, so two people would see two histories. What was not measured is NULL, never 0.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from caliper_pipeline.storage import schema_1, schema_2


@dataclass(frozen=True, slots=True)
class Change:
    """One numbered change: SQL statements, applied in one transaction."""

    version: int
    name: str
    statements: tuple[str, ...]


LEDGER = (
    "CREATE TABLE schema_changes (version BIGINT NOT NULL, name VARCHAR NOT NULL, applied_utc TIMESTAMP NOT NULL)",
    "COMMENT ON TABLE schema_changes IS 'changes of this database''s schema; the highest version is its own'",
    "COMMENT ON COLUMN schema_changes.version IS 'number, from 1'",
    "COMMENT ON COLUMN schema_changes.name IS 'what it was for'",
    "COMMENT ON COLUMN schema_changes.applied_utc IS 'when it was applied'",
)
"""What a database needs before any change can be applied."""

CURRENT_VERSION = 2


def changes_since(version: int) -> Iterator[Change]:
    """What a database of that version lacks, in order."""
    every = (
        Change(1, "first tables", tuple(_create(schema_1.TABLES))),
        Change(
            2,
            "resumptions, labels, acknowledgements",
            (
                *_add_columns(schema_2.COLUMNS),
                *_create(schema_2.TABLES),
                *schema_2.CHANGES,
                *_comment_anew(schema_2.COMMENTS),
            ),
        ),
    )
    return (change for change in every if change.version > version)


def table_names() -> list[str]:
    """All tables with rows of their own, of the current version."""
    return [*_tables(schema_1.TABLES), *_tables(schema_2.TABLES)]


def comment(kind: str, name: str, text: str) -> str:
    return f"COMMENT ON {kind} {name} IS '{text.replace(chr(39), chr(39) * 2)}'"


def _tables(text: str) -> dict[str, tuple[str, list[tuple[str, str]]]]:
    """What is written there: `table: comment`, then `  column TYPE: comment`. Name → comment and columns."""
    tables: dict[str, tuple[str, list[tuple[str, str]]]] = {}
    for line in text.strip().splitlines():
        head, _, words = line.partition(":")
        if not line.startswith(" "):
            columns: list[tuple[str, str]] = []
            tables[head] = (words.strip(), columns)
        else:
            columns.append((head.strip(), words.strip()))
    return tables


def _create(text: str) -> Iterator[str]:
    for table, (words, columns) in _tables(text).items():
        yield f"CREATE TABLE {table} ({', '.join(column for column, _ in columns)})"
        yield comment("TABLE", table, words)
        yield from _comments(table, columns)


def _add_columns(text: str) -> Iterator[str]:
    for table, (_, columns) in _tables(text).items():
        yield from (f"ALTER TABLE {table} ADD COLUMN {column}" for column, _ in columns)
        yield from _comments(table, columns)


def _comment_anew(text: str) -> Iterator[str]:
    for table, (_, columns) in _tables(text).items():
        yield from _comments(table, columns)


def _comments(table: str, columns: list[tuple[str, str]]) -> Iterator[str]:
    return (comment("COLUMN", f"{table}.{column.split()[0]}", about) for column, about in columns)
