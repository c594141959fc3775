"""The shell of `caliper sql`: reads queries until `;`, shows their rows, and never changes the history.

Line editing, completion and a history of lines come from readline, where Python has it.
"""

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from caliper_pipeline.domain.errors import BadInput, CaliperError
from caliper_pipeline.interfaces import sql_command
from caliper_pipeline.interfaces.problems import print_line, say, show_error
from caliper_pipeline.interfaces.render.text import one_line
from caliper_pipeline.storage.root import find_root

if TYPE_CHECKING:
    from caliper_pipeline.interfaces.sql_command import Show
    from caliper_pipeline.storage.history_session import SqlSession

HELP = """\
A query ends with ; and may take several lines. The name of a view or table alone shows all of it.

.tables           the views and tables, with what is in them
.schema [NAME]    the columns of one, with their types and what they mean; of all without NAME
.reload           show what was recorded since: the shell shows the history as it was when it was opened
.format FORMAT    table, csv, json or markdown
.wide             long lines instead of folded ones, and back
.limit N          rows of a table; 0: all of them
.help             this
.quit             leave; so does Ctrl-D. Ctrl-C ends a query, or drops what was typed

caliper sql only reads: INSERT, COPY, ATTACH and the like are refused. docs/history.md explains the views."""
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\$\$.*?\$\$|--[^\n]*|/\*.*?\*/", re.DOTALL)
_OPEN = re.compile(r"['\"]|\$\$|/\*")
_KEPT_LINES = 2_000


class Shell:
    """Asks for queries and shows what they find, until somebody leaves."""

    def __init__(
        self,
        session: "SqlSession",
        reopen: "Callable[[], SqlSession | None]",
        show: "Show",
        *,
        read: Callable[[str], str] = input,
    ) -> None:
        """`read`: gives a line for a prompt, and raises EOFError at the end."""
        self._session, self._reopen, self._show, self._read = session, reopen, show, read
        self._seen = _identity()
        if show.form == "parquet":
            raise BadInput("The shell cannot show Parquet.", hint="caliper sql --format parquet --output FILE QUERY")

    def loop(self) -> None:
        """Until somebody leaves; then the session is closed."""
        say("The history, read-only. It is shown as it is now: .reload shows what was recorded since. .help, .quit")
        try:
            with _line_editing(self._words):
                while self._turn():
                    pass
        finally:
            self._session.close()

    def _turn(self) -> bool:
        """Reads one query or command and does it. False: leave."""
        try:
            text = self._ask()
        except EOFError:
            click.echo()
            return False
        except KeyboardInterrupt:
            click.echo("^C", err=True)
            return True
        if text.startswith("."):
            return self._command(*text[1:].split())
        if text:
            self._answer(text)
        return True

    def _ask(self) -> str:
        if self._seen != _identity():
            self._seen = _identity()
            say("There is news: .reload shows it.")
        text = self._read("caliper> ").strip()
        if not text or text.startswith(".") or text.lower() in self._session.names:
            return text
        while not complete(text):
            text += "\n" + self._read("    ...> ")
        return text

    def _answer(self, text: str) -> None:
        try:
            sql_command.answer(self._session, text, self._show)
        except KeyboardInterrupt:
            say("Cancelled.")
        except BrokenPipeError:
            raise
        except CaliperError as error:
            show_error(error)

    def _command(self, name: str = "", *arguments: str) -> bool:
        """False: leave."""
        match name, arguments:
            case (("quit" | "exit" | "q"), _):
                return False
            case "help", _:
                say(HELP)
            case "tables", _:
                self._list_names()
            case "schema", _:
                self._list_columns(*(name.lower() for name in arguments[:1]))
            case "reload", _:
                self._reload()
            case "wide", _:
                self._show.wide = not self._show.wide
            case "format", (("table" | "csv" | "json" | "markdown") as form,):
                self._show.form = form
            case "limit", (number,) if number.isdecimal():
                self._show.limit = int(number)
            case _:
                say(f"There is no command .{' '.join((name, *arguments))}; .help lists them.")
        return True

    def _list_names(self) -> None:
        width = max(map(len, self._session.names), default=0)
        for kind in ("view", "table"):
            print_line(f"{kind}s", fg="cyan")
            for name in self._session.names.values():
                if name.kind == kind:
                    print_line(f"  {one_line(name.name):{width}}  {one_line(name.about.partition('. Example:')[0])}")

    def _list_columns(self, wanted: str = "") -> None:
        if wanted and wanted not in self._session.names:
            say(f"There is no view or table {wanted!r}; .tables lists them.")
        for name in self._session.names.values():
            if wanted not in ("", name.name):
                continue
            print_line(one_line(f"{name.kind} {name.name}: {name.about}"), fg="cyan")
            widths = [max((len(text) for text in texts), default=0) for texts in zip(*_columns(name), strict=True)]
            for column, kind, about in _columns(name):
                print_line(f"  {column:{widths[0]}}  {kind:{widths[1]}}  {about}".rstrip())

    def _reload(self) -> None:
        try:
            session = self._reopen()
        except CaliperError as error:
            show_error(error)
            return
        if session is not None:
            self._session.close()
            self._session, self._seen = session, _identity()
            ((runs, last),) = session.ask("SELECT count(*), max(started_utc) FROM runs").fetch(1)
            say(f"{runs} runs" + (f", the last of {last:%Y-%m-%d %H:%M} UTC." if last is not None else "."))

    def _words(self) -> Iterator[str]:
        yield from self._session.names
        for name in self._session.names.values():
            yield from (column.name for column in name.columns)
        yield from ("SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "LIMIT", "JOIN")
        yield from (".tables", ".schema", ".reload", ".format", ".wide", ".limit", ".help", ".quit")


def complete(text: str) -> bool:
    """Whether a query is at its end: a `;` outside of quotes and comments, and nothing left open."""
    bare = _QUOTED.sub(" ", text)
    return not _OPEN.search(bare) and bare.rstrip().endswith(";")


def _columns(name: Any) -> list[tuple[str, str, str]]:
    return [(one_line(column.name), one_line(column.type), one_line(column.about)) for column in name.columns]


def _identity() -> tuple[int, int] | None:
    root = find_root(Path.cwd())
    try:
        found = (root / ".caliper" / "history.duckdb").stat() if root is not None else None
    except OSError:
        return None
    return None if found is None else (found.st_ino, found.st_mtime_ns)


@contextlib.contextmanager
def _line_editing(words: Callable[[], Iterator[str]]) -> Iterator[None]:
    try:
        import readline
    except ImportError:  # a Python without it: lines can be typed all the same
        yield
        return
    path = _history_file()
    with contextlib.suppress(OSError):
        readline.read_history_file(path)
    readline.set_history_length(_KEPT_LINES)
    readline.set_completer_delims(" \t\n,()=<>;'\"")
    readline.set_completer(lambda text, n: _nth(sorted({w for w in words() if w.lower().startswith(text.lower())}), n))
    readline.parse_and_bind("bind ^I rl_complete" if "libedit" in (readline.__doc__ or "") else "tab: complete")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(path)
            path.chmod(0o600)


def _nth(words: list[str], number: int) -> str | None:
    return words[number] if number < len(words) else None


def _history_file() -> Path:
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "caliper" / "sql_history"
