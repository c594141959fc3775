"""`caliper sql`: asks the history in SQL. It can only be read: see `storage.history_session`."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from caliper_pipeline.domain.errors import BadInput
from caliper_pipeline.interfaces.problems import say, show_warnings
from caliper_pipeline.storage.root import find_root

if TYPE_CHECKING:
    from caliper_pipeline.storage.history_session import SqlSession

FORMATS = ("table", "csv", "json", "markdown", "parquet")
_ENDINGS = {".csv": "csv", ".json": "json", ".md": "markdown", ".parquet": "parquet"}
SHOWN_ROWS = 200
"""Rows of a table, when nobody says how many."""


@click.command()
@click.argument("query", required=False)
@click.option(
    "--format", "form", type=click.Choice(FORMATS), help="As --output ends, else table.", metavar="|".join(FORMATS)
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=SHOWN_ROWS,
    show_default=True,
    help="Rows of a table; 0: all of them.",
)
@click.option("--wide", is_flag=True, help="Lines of a table as long as they get, instead of folded to the terminal.")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file.")
def sql(query: str | None, form: str | None, limit: int, wide: bool, output: Path | None) -> None:
    """Ask the history in SQL (DuckDB's): QUERY is a query, the name of a view or table, or - for standard input.

    Without QUERY: a shell, or what comes on standard input when that is no terminal. Nothing can be changed from here.

    \b
      caliper sql latest_runs
      caliper sql "SELECT spec, score, score_low, score_high FROM latest_runs ORDER BY score"
      caliper sql --output trend.csv score_trend
    """
    shell = query is None and sys.stdin.isatty()
    form = form or _form_of(output)
    if form == "parquet" and output is None and not shell and sys.stdout.isatty():
        raise BadInput("Parquet is no text for a terminal.", hint="Name a file: --output rows.parquet")
    if form == "table" and output is not None:
        raise BadInput("A table is for the terminal.", hint=f"For a file: --format {', '.join(FORMATS[1:])}.")
    if shell and output is not None:
        raise BadInput("--output needs a query.", hint="caliper sql --output FILE QUERY")
    session = open_history()
    if session is None:
        if form == "json":
            click.echo("[]")
        return
    with session:
        if shell:
            from caliper_pipeline.interfaces.sql_shell import Shell

            Shell(session, open_history, Show(form, limit, wide)).loop()
            return
        if query is None or query == "-":
            query = sys.stdin.buffer.read().decode("utf-8-sig", "surrogateescape")
        answer(session, query, Show(form, limit, wide), output)


def _form_of(output: Path | None) -> str:
    return _ENDINGS.get(output.suffix.lower(), "table") if output is not None else "table"


def open_history() -> "SqlSession | None":
    """The history of the project one is in. `None`, having said so: there is none yet."""
    from caliper_pipeline.storage.history_session import SqlSession

    root = find_root(Path.cwd())
    if root is None or not holds_runs(root):
        say("There is no history here yet: the first run makes it (caliper run, or caliper demo).")
        return None
    return SqlSession.open(root, lambda text: show_warnings([text]))


def holds_runs(root: Path) -> bool:
    """Whether there is anything that a history could be made of, or one already."""
    folder = root / ".caliper"
    if (folder / "history.duckdb").exists():
        return True
    return any((folder / name).is_dir() and any((folder / name).iterdir()) for name in ("runs", "records"))


class Show:
    """How answers are shown."""

    def __init__(self, form: str, limit: int, wide: bool) -> None:
        self.form, self.limit, self.wide = form, limit, wide


def answer(session: "SqlSession", query: str, show: Show, output: Path | None = None) -> None:
    """Asks a query, or what a name stands for, and shows the rows. Raises `BadInput`."""
    statements = session.statements(as_query(session, query))
    if not statements:
        raise BadInput("There is no query.", hint="caliper sql --help shows how to ask.")
    if len(statements) > 1 and (show.form not in ("table", "markdown") or output is not None):
        raise BadInput(f"These are {len(statements)} queries; {show.form} has room for one.", hint="Ask one by one.")
    with _writer(output) as write:
        for place, statement in enumerate(statements):
            if place:
                click.echo()
            _show(session, statement, show, write)
    if output is not None:
        say(f"Written: {output}")


def as_query(session: "SqlSession", text: str) -> str:
    """A bare name, in any case, stands for all of that view or table. Raises `BadInput` for one that does not exist."""
    name = text.strip().rstrip(";").strip()
    if name.lower() in session.names:
        return f'SELECT * FROM "{name.lower()}"'
    if name.isidentifier():
        from caliper_pipeline.storage.sql_errors import no_such_name

        raise BadInput(f"There is no view or table {name!r}.", hint=no_such_name(name, session.names))
    return text


def _show(session: "SqlSession", statement: str, show: Show, write: Callable[[bytes], Any] | None) -> None:
    if show.form == "parquet":
        with session.parquet(statement).open("rb") as stream:
            while block := stream.read(1 << 20):
                (write or sys.stdout.buffer.write)(block)
        return
    from caliper_pipeline.interfaces.render import rows_data

    rows = session.ask(statement)
    if show.form == "table":
        _show_table(rows, show)
        return
    match show.form:
        case "csv":
            parts = rows_data.as_csv(rows.columns, rows)
        case "json":
            parts = rows_data.as_json(rows.columns, rows.types, rows)
        case _:
            parts = rows_data.as_markdown(rows.columns, rows.types, rows)
    for part in parts:
        _put(part, write)


def _show_table(rows: Any, show: Show) -> None:
    from caliper_pipeline.interfaces.render.rows_table import show_rows

    found = rows.fetch(show.limit + 1 if show.limit else sys.maxsize)
    shown = found[: show.limit] if show.limit else found
    show_rows(rows.columns, rows.types, shown, wide=show.wide)
    if not found:
        say("No rows.")
    elif len(found) > len(shown):
        say(f"The first {len(shown)} rows; --limit 0 shows all.")
    if "simulated" in rows.columns and any(row[rows.columns.index("simulated")] for row in shown):
        say("simulated: a script played the agent; these figures say nothing about a real one.")


def _put(text: str, write: Callable[[bytes], Any] | None) -> None:
    """Data is UTF-8 whatever the locale; on a terminal nothing in it may act."""
    if write is None and sys.stdout.isatty():
        from caliper_pipeline.interfaces.render.text import clean

        click.echo(clean(text), nl=False)
    else:
        (write or sys.stdout.buffer.write)(text.encode("utf-8", "replace"))


@contextmanager
def _writer(output: Path | None) -> Iterator[Callable[[bytes], Any] | None]:
    """Writes to a file that is whole or not there; a link stays a link, and a device or pipe is written to."""
    if output is None:
        yield None
        return
    target = Path(os.path.realpath(output))
    plain = target.is_file() or not target.exists()
    aside = target.with_name(f".{target.name}.{os.getpid()}.new") if plain else target
    try:
        stream: IO[bytes]
        with aside.open("wb") as stream:
            yield stream.write
        if plain:
            aside.replace(target)
    except OSError as error:
        raise BadInput(f"Cannot write {output}: {error.strerror}.") from error
    finally:
        if plain:
            aside.unlink(missing_ok=True)
