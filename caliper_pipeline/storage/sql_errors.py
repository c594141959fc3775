"""What DuckDB has against a query, as one message with the place and what was perhaps meant."""

import contextlib
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING

from caliper_pipeline.domain.errors import BadInput, HistoryUnusable

if TYPE_CHECKING:
    from caliper_pipeline.storage.history_session import Name

_KIND = re.compile(r"\A[A-Z][A-Za-z]+(?: [A-Z][A-Za-z]+)* Error: ")
_PLACE = re.compile(r"^LINE (\d+): (.*)\n( *)(\^+)", re.MULTILINE)
_MEANT = re.compile(r"^(?:Did you mean|Candidate bindings:?)\s*:?\s*(.*)$", re.MULTILINE)
_NO_TABLE = re.compile(r"\ATable with name (\S+) does not exist")
_NO_COLUMN = re.compile(
    r"\A(?:Referenced column \"([^\"]+)\" not found|.+ \"[^\"]+\" does not have a column named \"([^\"]+)\")"
)
_CUT = "..."


@contextlib.contextmanager
def explained(names: "Mapping[str, Name]", query: str) -> Iterator[None]:
    """Turns an error of DuckDB about the query into `BadInput`, and one about the file into `HistoryUnusable`."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        from caliper_pipeline.storage.history import is_damage

        if is_damage(error):
            raise HistoryUnusable(f"The history cannot be read: {str(error).partition(chr(10))[0]}") from error
        message, hint = sentence(str(error), names, query)
        raise BadInput(message, hint=hint) from error


def sentence(text: str, names: "Mapping[str, Name]", query: str) -> tuple[str, str | None]:
    """The message and the hint. A value of the data may be quoted in it, so nothing in it can act on a terminal."""
    text = "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text.replace("\t", " "))
    place = _PLACE.search(text)
    about = _KIND.sub("", text[: place.start()] if place else text).strip()
    meant = _MEANT.search(about)
    if meant:
        about = about[: meant.start()].strip()
    lines = [line.rstrip() for line in about.splitlines() if line.strip()]
    what = lines[0].strip() if lines else "DuckDB cannot run this"
    candidates = [line.strip() for line in lines[1:] if line.strip()]
    hint = _hint(what, query, [part.strip(' "?') for part in meant.group(1).split(",")] if meant else [], names)
    if hint is None and candidates:
        hint = "\n".join(candidates)
    where = f"SQL, {_where(place)}: " if place else ""
    shown = f"\n  {place.group(2).rstrip()}\n  {' ' * _offset(place)}{place.group(4)}" if place else ""
    return f"{where}{what.rstrip('!.')}{shown}", hint


def _where(place: re.Match[str]) -> str:
    line, snippet = place.group(1), place.group(2)
    # DuckDB cuts long lines; then nobody knows the column.
    return f"line {line}" if snippet.startswith(_CUT) else f"line {line}, column {_offset(place) + 1}"


def _offset(place: re.Match[str]) -> int:
    return max(0, len(place.group(3)) - len(f"LINE {place.group(1)}: "))


def _hint(what: str, query: str, offered: list[str], names: "Mapping[str, Name]") -> str | None:
    if found := _NO_TABLE.match(what):
        return no_such_name(found.group(1), names)
    if found := _NO_COLUMN.match(what):
        words = set(re.findall(r"\w+", query.lower()))
        return _no_such_column(found.group(1) or found.group(2), names, [name for name in names if name in words])
    return f"Did you mean {offered[0]}?" if offered and offered[0] else None


def _no_such_column(wanted: str, names: "Mapping[str, Name]", asked: list[str]) -> str | None:
    """Looks in the tables that the query names, then in all."""
    for among in (asked, list(names)):
        owners: dict[str, list[str]] = {}
        for name in among:
            for column in names[name].columns:
                owners.setdefault(column.name, []).append(name)
        near = get_close_matches(wanted.lower(), owners, n=3)
        if near:
            return f"Did you mean {' or '.join(f'{column} (in {_few(owners[column])})' for column in near)}?"
    return None


def no_such_name(wanted: str, names: "Mapping[str, Name]") -> str:
    """What to say of a table or view that does not exist."""
    near = get_close_matches(wanted.lower(), names, n=3, cutoff=0.5)
    if near:
        return f"Did you mean {' or '.join(near)}?"
    return f"There are: {', '.join(names)}."


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (" and others" if len(names) > 3 else "")
