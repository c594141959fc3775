"""Whatever is asked, the history is only read, and nothing else of the machine is touched."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from example_history import build

from caliper_pipeline.domain.errors import BadInput
from caliper_pipeline.storage import history
from caliper_pipeline.storage.history_session import SqlSession


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("asked")
    build(folder)
    history.open_current(folder).close()
    (folder / "secret.csv").write_text("a,b\n1,2\n", encoding="ascii")
    (folder / "other.duckdb").write_bytes((folder / ".caliper" / "history.duckdb").read_bytes())
    return folder


@pytest.fixture(scope="module")
def session(root: Path) -> Iterator[SqlSession]:
    with SqlSession.open(root) as opened:
        yield opened


def everything(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


ATTACKS = [
    # writing into the history
    "INSERT INTO labels SELECT * FROM labels",
    "UPDATE runs SET score = 1",
    "DELETE FROM runs",
    "DROP TABLE runs",
    "ALTER TABLE runs ADD COLUMN x INT",
    "TRUNCATE runs",
    "CREATE TABLE x AS SELECT 1",
    "CREATE TEMP TABLE x AS SELECT 1",
    "CREATE OR REPLACE VIEW latest_runs AS SELECT 1",
    "CREATE OR REPLACE MACRO wilson_low(a, b) AS 1",
    "CREATE TABLE memory.main.x (a INT)",
    "COMMENT ON TABLE runs IS 'x'",
    "MERGE INTO runs USING runs r ON true WHEN MATCHED THEN DELETE",
    "WITH gone AS (DELETE FROM runs RETURNING *) SELECT * FROM gone",
    "EXPLAIN ANALYZE DELETE FROM runs",
    "VACUUM",
    "CHECKPOINT",
    "BEGIN",
    # writing files
    "COPY runs TO '{root}/out.csv'",
    "COPY (SELECT 1) TO '{root}/out.parquet' (FORMAT parquet)",
    "COPY (SELECT 1) TO '/dev/stdout'",
    "EXPORT DATABASE '{root}/out'",
    "ATTACH '{root}/new.duckdb' AS n",
    "ATTACH '{root}/other.duckdb' AS n",
    "ATTACH ':memory:' AS n",
    "COPY FROM DATABASE history TO memory",
    "PRAGMA enable_profiling('json')",
    "PRAGMA profiling_output='{root}/profile.json'",
    "PRAGMA log_query_path='{root}/queries.log'",
    "CALL enable_logging(storage_path = '{root}/log')",
    # reading files
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM '{root}/secret.csv'",
    "SELECT * FROM read_text('{root}/secret.csv')",
    "SELECT * FROM read_blob('/etc/passwd')",
    "SELECT * FROM read_json('/etc/passwd')",
    "SELECT * FROM read_parquet('{root}/x.parquet')",
    "SELECT * FROM sniff_csv('/etc/passwd')",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM parquet_metadata('/etc/passwd')",
    "SELECT * FROM query('SELECT * FROM read_text(''/etc/passwd'')')",
    "SELECT * FROM read_csv('http://127.0.0.1:1/x.csv')",
    "COPY labels FROM '{root}/secret.csv'",
    "IMPORT DATABASE '{root}'",
    # the machine, the settings, this program
    "INSTALL httpfs",
    "LOAD httpfs",
    "LOAD '{root}/x.duckdb_extension'",
    "UPDATE EXTENSIONS",
    "CREATE SECRET s (TYPE s3)",
    "SET enable_external_access = true",
    "SET GLOBAL enable_external_access = true",
    "PRAGMA enable_external_access = true",
    "RESET enable_external_access",
    "SET lock_configuration = false",
    "SET allowed_directories = ['/']",
    "SET temp_directory = '{root}/tmp'",
    "SET python_enable_replacements = true",
    "PRAGMA threads = 64",
    "USE memory",
    "DETACH history",
    "SET VARIABLE x = 1",
    "PREPARE p AS SELECT 1",
    "SELECT getenv('HOME')",
    "SELECT * FROM frame",
    "SELECT * FROM rows",
    # two at once
    "SELECT 1; DROP TABLE runs",
    "SELECT 1; COPY runs TO '{root}/out.csv'",
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_query_can_do_nothing_but_read(session: SqlSession, root: Path, attack: str) -> None:
    import pandas

    frame = pandas.DataFrame({"a": [1]})  # what DuckDB would otherwise find by its name
    rows = frame
    before = everything(root)
    with pytest.raises(BadInput):
        for statement in session.statements(attack.format(root=root)):
            session.ask(statement).fetch(1)
    assert everything(root) == before
    assert len(rows) == 1


@pytest.mark.parametrize("name", ["x') TO '/dev/null' --", "1) TO '{root}/out.csv'; --", "1 -- a comment"])
def test_a_query_for_parquet_cannot_leave_its_brackets(session: SqlSession, root: Path, name: str) -> None:
    before = everything(root)
    with contextlib.suppress(BadInput):
        session.parquet(f"SELECT {name}".format(root=root))
    assert everything(root) == before


@pytest.mark.parametrize(
    "query",
    [
        "FROM runs",
        "SHOW TABLES",
        "DESCRIBE latest_runs",
        "SUMMARIZE runs",
        "EXPLAIN SELECT 1",
        "PIVOT scores ON task_name USING sum(successes) GROUP BY run_id",
        "WITH a AS (FROM runs) SELECT count(*) FROM a",
        "VALUES (1)",
        "SELECT wilson_low(1, 2)",
        "SELECT now()",
    ],
)
def test_whatever_reads_is_answered(session: SqlSession, query: str) -> None:
    (statement,) = session.statements(query)
    assert session.ask(statement).fetch(1)


def test_all_views_and_tables_are_known_with_their_columns(session: SqlSession) -> None:
    assert session.names["latest_runs"].kind == "view"
    assert session.names["runs"].kind == "table"
    assert all(name.about and name.columns and all(c.about for c in name.columns) for name in session.names.values())


def test_times_are_given_in_utc(session: SqlSession, monkeypatch: pytest.MonkeyPatch) -> None:
    ((text,),) = session.ask("SELECT (TIMESTAMPTZ '2026-01-01 00:00:00+02')::VARCHAR").fetch(1)
    assert text == "2025-12-31 22:00:00+00"


def test_a_session_shows_the_history_as_it_was_when_it_was_opened(tmp_path: Path) -> None:
    store = build(tmp_path)
    with SqlSession.open(tmp_path) as opened:
        newest = store.path / store.run_ids()[-1]
        newest.rename(newest.with_name("20270101T000000000Z-abcdef"))
        history.rebuild(history.history_path(tmp_path), store)
        ((runs,),) = opened.ask("SELECT count(*) FROM runs WHERE run_id LIKE '2027%'").fetch(1)
        assert runs == 0


def test_a_query_that_takes_long_is_cancelled_by_ctrl_c(root: Path) -> None:
    code = """
import sys
from pathlib import Path
from caliper_pipeline.storage.history_session import SqlSession
with SqlSession.open(Path(sys.argv[1])) as session:
    try:
        print("asking", flush=True)
        session.ask("SELECT count(*) FROM range(100000000) a, range(100000) b WHERE (a.range*b.range)%7 = 3").fetch(1)
    except KeyboardInterrupt:
        print(session.ask("SELECT 42").fetch(1))
"""
    with subprocess.Popen(
        [sys.executable, "-c", code, str(root)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=_hearing,
    ) as process:
        assert process.stdout is not None
        guard = threading.Timer(60, process.kill)
        guard.start()
        try:
            assert process.stdout.readline() == "asking\n"
            os.kill(process.pid, signal.SIGINT)
            assert process.stdout.read() == "[(42,)]\n"
        finally:
            guard.cancel()


def _hearing() -> None:
    """A job in the background of a script is born deaf to Ctrl-C, a child of a thread that blocks it too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
