"""Asking the history anything in SQL, and nothing else: whatever a query says, it can only read the history.

Three walls, each enough for most attacks: the file is attached read-only; DuckDB may touch no file, load no extension
and change no setting (`enable_external_access`, `lock_configuration`), nor look at this program's variables; and only
statements that read are let through. What is not held off is a query that takes long or much memory: it may use half
of the machine's memory and no disk, and whoever asked can cancel it.
"""

import re
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from caliper_pipeline.domain.errors import BadInput
from caliper_pipeline.storage import history
from caliper_pipeline.storage.sql_errors import explained

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, Statement

T = TypeVar("T")

_SETTINGS = (
    "TimeZone = 'UTC'",
    "python_enable_replacements = false",
    "memory_limit = '50%'",
    "temp_directory = ''",
)
_LAST_SETTINGS = ("enable_external_access = false", "lock_configuration = true")
_QUERIES = frozenset({"SELECT", "WITH", "FROM", "PIVOT", "UNPIVOT", "("})
_READING: dict[str, frozenset[str] | None] = {
    "SELECT": None,
    "EXPLAIN": None,
    "PRAGMA": frozenset({"PRAGMA"}),
    "MULTI": _QUERIES,  # a PIVOT, which DuckDB makes two statements of; but copying a database is such a pair as well
}
"""Kinds of statements that are let through → how they begin; `None`: however they do."""
_BEGINNING = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*(\w+|\S)", re.DOTALL)
_ROWS_AT_ONCE = 1_000

_UNBEGUN_LOOKS = 20
"""Tenths of a second in which a thread that was being started begins, if it does."""


@dataclass(frozen=True, slots=True)
class Name:
    """A table or view of the history."""

    name: str
    kind: str
    """`table` or `view`."""
    about: str
    columns: tuple["Column", ...]


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str
    about: str


class Answer:
    """The rows of a query, read as they are wanted; the next query ends them."""

    def __init__(self, session: "SqlSession", columns: Sequence[tuple[str, str]]) -> None:
        self._session = session
        self.columns = tuple(name for name, _ in columns)
        self.types = tuple(kind for _, kind in columns)
        """As DuckDB names them: `DOUBLE`, `VARCHAR[]`."""

    def fetch(self, most: int) -> list[tuple[Any, ...]]:
        """The next rows, at most so many. Times are naive and in UTC."""
        return self._session.fetch(most)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        while rows := self.fetch(_ROWS_AT_ONCE):
            yield from rows


class SqlSession:
    """An open history that can be asked. Shows it as it was when it was opened."""

    def __init__(self, con: "DuckDBPyConnection") -> None:
        """Takes the connection over."""
        self.con = con
        self._folder = tempfile.TemporaryDirectory(prefix="history-")
        try:
            allowed = self._folder.name.replace("'", "''")
            for setting in (*_SETTINGS, f"allowed_directories = ['{allowed}']", *_LAST_SETTINGS):
                con.execute(f"SET {setting}")
            self.names = {name.name: name for name in _names(con)}
        except BaseException:
            self.close()
            raise

    @classmethod
    def open(cls, root: Path, told: Callable[[str], None] | None = None) -> "SqlSession":
        """The history of a project, with all that lies on disk. Raises as `history.open_current`."""
        return cls(history.open_current(root, told))

    @classmethod
    def open_file(cls, db: Path) -> "SqlSession":
        """A database file as it is. Raises as `history.connect`."""
        return cls(history.connect(db))

    def close(self) -> None:
        self.con.close()
        self._folder.cleanup()

    def __enter__(self) -> "SqlSession":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def statements(self, text: str) -> list[str]:
        """The statements in a text, in order. Raises `BadInput` for what is no SQL or would not only read."""
        text = _as_utf8(text)
        with explained(self.names, text):
            found = self.con.extract_statements(text)
        for statement in found:
            if not _only_reads(statement):
                raise BadInput(
                    f"This only reads the history: {_beginning(statement)} is not possible.",
                    hint="Rows can be taken elsewhere: --output FILE writes them as CSV, JSON or Parquet.",
                )
        return [statement.query.strip().rstrip(";").rstrip() for statement in found]

    def ask(self, statement: str, parameters: object = None) -> Answer:
        """Asks one statement of `statements`, or one written here. Raises `BadInput`."""
        with explained(self.names, statement):
            self._cancellable(lambda: self.con.execute(statement, parameters))
        return Answer(self, [(column[0], str(column[1])) for column in self.con.description or ()])

    def fetch(self, most: int) -> list[tuple[Any, ...]]:
        """The next rows of the last question."""
        return self.take(lambda con: con.fetchmany(most))

    def take(self, rows: "Callable[[DuckDBPyConnection], T]") -> T:
        """What the function makes of the last question's rows. Raises `BadInput` when they cannot all be made."""
        with explained(self.names, ""):
            return self._cancellable(lambda: rows(self.con))

    def parquet(self, statement: str) -> Path:
        """The rows as a Parquet file, which is gone when the session is closed. Raises `BadInput`."""
        path = Path(self._folder.name) / "rows.parquet"
        with explained(self.names, statement):
            query = f"COPY (\n{statement}\n) TO '{str(path).replace(chr(39), chr(39) * 2)}' (FORMAT parquet)"
            self._cancellable(lambda: self.con.execute(query))
        return path

    def _cancellable(self, work: Callable[[], T]) -> T:
        """Does it in a thread of its own: DuckDB looks for no signal while it works, so that Ctrl-C would wait."""
        done: list[T] = []
        failed: list[BaseException] = []
        over = threading.Event()  # a join that Ctrl-C interrupts takes the thread for ended
        unwanted = threading.Event()

        def run() -> None:
            try:
                if not unwanted.is_set():
                    done.append(work())
            except BaseException as error:
                failed.append(error)
            finally:
                over.set()

        thread = threading.Thread(target=run, daemon=True)
        try:
            thread.start()
            while not over.wait(1):
                pass
        except KeyboardInterrupt:
            unwanted.set()
            unbegun = 0  # interrupted while it was being started, it may begin yet, or never
            while not over.wait(0.1) and unbegun < _UNBEGUN_LOOKS:
                self.con.interrupt()
                unbegun += thread.ident is None
            raise
        if failed:
            raise failed[0]
        return done[0]


def _as_utf8(text: str) -> str:
    """What came by way of an ASCII locale, which hides each byte beyond ASCII in a surrogate. Raises `BadInput`."""
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeError:
        raise BadInput("The query is not in UTF-8.") from None


def _only_reads(statement: "Statement") -> bool:
    try:
        kind = statement.type.name
    except ValueError:  # a kind that this version of the library has no name for
        return False
    beginnings = _READING.get(kind, frozenset())
    return beginnings is None or _beginning(statement) in beginnings


def _beginning(statement: "Statement") -> str:
    found = _BEGINNING.match(statement.query)
    return found.group(1).upper() if found else ""


def _names(con: "DuckDBPyConnection") -> Iterator[Name]:
    columns: dict[str, list[Column]] = {}
    for table, name, kind, about in con.execute(
        "SELECT table_name, column_name, data_type, comment FROM duckdb_columns() "
        "WHERE database_name = 'history' AND NOT internal ORDER BY table_name, column_index"
    ).fetchall():
        columns.setdefault(table, []).append(Column(name, kind, about or ""))
    for kind in ("view", "table"):
        for name, about in con.execute(
            f"SELECT {kind}_name, comment FROM duckdb_{kind}s() WHERE database_name = 'history' AND NOT internal "
            f"ORDER BY {kind}_name"
        ).fetchall():
            yield Name(name, kind, about or "", tuple(columns.get(name, ())))
