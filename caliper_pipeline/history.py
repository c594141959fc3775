"""The history in notebooks and scripts.

    from caliper_pipeline import history

    with history.open() as h:                            # of the project one is in
        for point in h.trend("inbox-triage"):            # frozen values, fields as in the view score_trend
            print(point.run_utc, point.score, point.score_low, point.score_high)
        h.trend("inbox-triage").df()                     # the same as a pandas DataFrame; .arrow() as a table of Arrow
        h.sql("SELECT engine, avg(score) AS score FROM latest_runs WHERE spec = $1 GROUP BY engine", ["notes"]).df()

Nothing can be changed from here, and what is shown is the history as it was when it was opened: `reload` shows news.
Rates go from 0 to 1, times are in UTC (aware in values; without a zone in DataFrames and Arrow), and what was not
measured is `None`. docs/history.md describes every view; `History.names` lists them.
"""

import dataclasses
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from caliper_pipeline.domain.errors import BadInput, HistoryUnusable
from caliper_pipeline.storage.history_session import SqlSession
from caliper_pipeline.storage.root import STORE_FOLDER, find_root

if TYPE_CHECKING:
    import pandas
    import pyarrow

__all__ = ["Answer", "Attempt", "History", "Run", "TaskScore", "TrendPoint", "open"]

T = TypeVar("T")
Parameters = Sequence[Any] | Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Run:
    """One run: what went into it in brief, and what it came to."""

    run_id: str
    spec: str
    engine: str
    """Backend and model."""
    arm: str
    """`full`, or what was taken away."""
    series_key: str
    """Spec, engine, arm and setup in one: what is followed over time."""
    started_utc: datetime | None
    """`None`: not recorded (files of other products)."""
    ended_utc: datetime | None
    status: str | None
    """`completed`, `interrupted`, `stopped`; `None`: it was killed."""
    k: int
    """Attempts asked for per task."""
    score: float | None
    """Mean of the tasks' success rates."""
    score_low: float | None
    """Lower end of its 95 % interval."""
    score_high: float | None
    successes: int
    usable: int
    """Attempts in the denominator."""
    unusable: int
    """Attempts lost to the execution or the judge."""
    activation_score: float | None
    activation_low: float | None
    activation_high: float | None
    total_tokens: int | None
    agent_seconds: float
    """All attempts together."""
    judge_seconds: float | None
    reported_model: str | None
    """The model that most attempts name."""
    cli_version: str | None
    git_commit: str | None
    git_dirty: bool | None
    simulated: bool
    """A script played the agent: the figures say nothing about a real one."""


@dataclass(frozen=True, slots=True)
class TrendPoint:
    """One run of a series, beside the one before."""

    series_key: str
    spec: str
    engine: str
    arm: str
    run_id: str
    run_utc: datetime
    """Start of the run, or its end where no start is recorded."""
    score: float | None
    score_low: float | None
    score_high: float | None
    successes: int
    usable: int
    unusable: int
    previous_score: float | None
    """Of the last run before it that measured something."""
    change: float | None
    """`score - previous_score`."""
    spec_changed: bool | None
    simulated: bool


@dataclass(frozen=True, slots=True)
class TaskScore:
    """One task of one run."""

    series_key: str
    spec: str
    engine: str
    arm: str
    run_id: str
    run_utc: datetime
    task_id: str
    task_name: str
    score: float | None
    """`successes / usable`."""
    score_low: float | None
    score_high: float | None
    successes: int
    usable: int
    unusable: int
    activation_score: float | None
    activation_low: float | None
    activation_high: float | None
    simulated: bool


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt with its latest verdict."""

    series_key: str
    spec: str
    engine: str
    arm: str
    run_id: str
    run_utc: datetime
    task_id: str
    task_name: str
    attempt: int
    """Counted from 1."""
    outcome: str | None
    """`None`: not graded yet."""
    usable: bool | None
    agent_seconds: float
    total_tokens: int | None
    activated: list[str] | None
    """Skills that fired; `None`: could not be seen."""
    activation_passed: bool | None
    reason: str | None
    """What the assert, the judge or the failure had to say."""
    output: str | None
    """End of the final answer."""
    evidence: str | None
    """Folder of the evidence, below `.caliper/runs/<run_id>`."""
    simulated: bool


class Answer(Sequence[T], Generic[T]):
    """The rows of a query: a sequence of values, or a DataFrame, or a table of Arrow."""

    def __init__(
        self,
        session: SqlSession,
        query: str,
        parameters: Parameters,
        make: Callable[[Sequence[str], tuple[Any, ...]], T],
    ) -> None:
        self._session, self._query, self._parameters, self._make = session, query, parameters, make
        self._rows: list[T] | None = None
        self.columns: tuple[str, ...] = session.ask(query, parameters).columns

    def rows(self) -> list[T]:
        """All rows, in order."""
        if self._rows is None:
            found = self._session.ask(self._query, self._parameters)
            self._rows = [self._make(self.columns, row) for row in found]
        return self._rows

    def df(self) -> "pandas.DataFrame":
        """The rows as a pandas DataFrame; times without a zone, in UTC."""
        self._session.ask(self._query, self._parameters)
        return self._session.take(lambda con: con.df())

    def arrow(self) -> "pyarrow.Table":
        """The rows as a table of Arrow; needs pyarrow. Raises `BadInput` where that is not installed."""
        try:
            import pyarrow  # noqa: F401
        except ImportError:
            raise BadInput(
                "A table of Arrow needs pyarrow, which is not installed.", hint="pip install pyarrow"
            ) from None

        def take(con: Any) -> Any:
            cursor = con.cursor()  # beside the rows that the columns were learned from
            cursor.execute("USE history")
            return cursor.sql(self._query, params=self._parameters).to_arrow_table()

        return self._session.take(take)

    def __iter__(self) -> Iterator[T]:
        return iter(self.rows())

    def __len__(self) -> int:
        return len(self.rows())

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> list[T]: ...
    def __getitem__(self, place: int | slice) -> T | list[T]:
        return self.rows()[place]

    def __repr__(self) -> str:
        return f"<{len(self)} rows of {', '.join(self.columns)}>"

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        return str(self.df().to_html(max_rows=20))


class History:
    """An open history. Close it, or use it in a `with` block."""

    def __init__(self, reopen: Callable[[], SqlSession]) -> None:
        self._reopen = reopen
        self._session = reopen()

    def sql(self, query: str, parameters: Parameters = None) -> Answer[dict[str, Any]]:
        """The rows of any query that reads, each a dict by column. `parameters` fill `$1` or `$name` in it.

        Raises `BadInput`, which says what is wrong with the query and where.
        """
        statements = self._session.statements(query)
        if len(statements) != 1:
            raise BadInput(f"One query is needed, and these are {len(statements)}.")
        return Answer(self._session, statements[0], parameters, _dict)

    def table(self, name: str) -> Answer[dict[str, Any]]:
        """All of a view or table. Raises `BadInput` when there is none of that name."""
        from caliper_pipeline.storage.sql_errors import no_such_name

        if name not in self._session.names:
            raise BadInput(f"There is no view or table {name!r}.", hint=no_such_name(name, self._session.names))
        return self.sql(f'SELECT * FROM "{name}"')

    def runs(self, spec: str | None = None, *, engine: str | None = None, arm: str | None = None) -> Answer[Run]:
        """Runs, the oldest first; of one spec, engine or arm where they are named."""
        return self._typed(Run, "runs", "coalesce(started_utc, ended_utc), run_id", spec=spec, engine=engine, arm=arm)

    def latest(self, spec: str | None = None) -> Answer[Run]:
        """The last run of each series."""
        source = "(FROM runs SEMI JOIN latest_runs USING (run_id))"
        return self._typed(Run, source, "spec, engine, arm, series_key", spec=spec)

    def trend(self, spec: str, *, engine: str | None = None, arm: str | None = "full") -> Answer[TrendPoint]:
        """The runs of a spec in time, with intervals; `arm=None`: of all arms."""
        return self._typed(TrendPoint, "score_trend", "run_utc, run_id", spec=spec, engine=engine, arm=arm)

    def task_trend(
        self, spec: str, task: str | None = None, *, engine: str | None = None, arm: str | None = "full"
    ) -> Answer[TaskScore]:
        """The tasks of a spec in time, with intervals; of one task where it is named."""
        order = "run_utc, run_id, task_id"
        return self._typed(TaskScore, "task_trend", order, spec=spec, engine=engine, arm=arm, task_name=task)

    def scores(self, run_id: str) -> Answer[TaskScore]:
        """The tasks of one run."""
        return self._typed(TaskScore, "task_trend", "task_id", run_id=run_id)

    def attempts(self, run_id: str) -> Answer[Attempt]:
        """The attempts of one run."""
        return self._typed(Attempt, "graded_attempts", "task_id, attempt", run_id=run_id)

    @property
    def names(self) -> dict[str, str]:
        """The views and tables, each with what one row of it is."""
        return {name.name: name.about for name in self._session.names.values()}

    def reload(self) -> None:
        """Shows what was recorded since. Answers from before keep their rows only if they were read."""
        session = self._reopen()
        self._session.close()
        self._session = session

    def close(self) -> None:
        self._session.close()

    def __enter__(self) -> "History":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _typed(self, kind: type[T], source: str, order: str, **wanted: str | None) -> Answer[T]:
        fields = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
        given = {name: value for name, value in wanted.items() if value is not None}
        where = " AND ".join(f"{name} = ${name}" for name in given) or "true"
        query = f"SELECT {', '.join(fields)} FROM {source} WHERE {where} ORDER BY {order}"
        return Answer(self._session, query, given or None, lambda columns, row: kind(*map(_aware, row)))


def open(place: "str | Path | None" = None) -> History:  # noqa: A001
    """The history of a project, or a database file.

    `place`: a folder in the project, or the file. `None`: the project one is in, which `CALIPER_ROOT` may name. A
    project's history is first brought up to what lies on disk. Raises `HistoryUnusable` when there is none.
    """
    if place is None:
        here, root = Path.cwd(), find_root(Path.cwd())
    else:
        here = Path(place).expanduser()
        if not here.is_dir():
            return History(lambda: SqlSession.open_file(here))
        root = find_root(here.parent if here.name == STORE_FOLDER else here, environ={})
    if root is None:
        raise HistoryUnusable(
            f"There is no history at {here}: no {STORE_FOLDER} folder there or above.", hint="The first run makes it."
        )
    return History(lambda: SqlSession.open(root, _warn))


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=2)


def _dict(columns: Sequence[str], row: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(columns, row, strict=True))


def _aware(value: Any) -> Any:
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value
