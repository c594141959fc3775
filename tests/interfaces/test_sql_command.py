"""`caliper sql` on a project of a few nights: what it answers, in which form, and what it refuses."""

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from example_history import build

from caliper_pipeline.domain.errors import BadInput
from caliper_pipeline.interfaces.cli import caliper as group
from caliper_pipeline.storage import history

Sql = Callable[..., Result]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("recorded")
    build(root)
    history.open_current(root).close()
    return root


@pytest.fixture
def sql(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> Sql:
    """Runs `caliper sql` in the project; `given` is its standard input."""
    monkeypatch.chdir(recorded)
    monkeypatch.delenv("CALIPER_ROOT", raising=False)
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments: str, given: str | bytes | None = None) -> Result:
        return CliRunner().invoke(group, ["sql", *arguments], input=given)

    return run


# -- what is asked


def test_a_query_is_answered_with_a_table(sql: Sql) -> None:
    done = sql("SELECT spec, score, usable FROM latest_runs WHERE NOT simulated AND engine LIKE 'codex%'")
    assert done.exit_code == 0
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    assert (lines[0], lines[2]) == ("spec            score   usable", "inbox-triage   0.8667       14")


def test_a_bare_name_stands_for_all_of_a_view(sql: Sql) -> None:
    done = sql("--format", "csv", "latest_runs")
    assert len(done.stdout.splitlines()) == 5


def test_a_bare_name_may_be_in_any_case(sql: Sql) -> None:
    assert len(json.loads(sql("--format", "json", "Latest_RUNS;").stdout)) == 4


def test_a_bare_name_may_be_a_table(sql: Sql) -> None:
    assert len(json.loads(sql("--format", "json", "labels").stdout)) == 2


def test_a_query_may_come_on_standard_input(sql: Sql) -> None:
    assert json.loads(sql("--format", "json", "-", given="SELECT 1 AS one").stdout) == [{"one": 1}]


def test_queries_are_read_when_nothing_is_asked_and_there_is_no_terminal(sql: Sql) -> None:
    done = sql(given="SELECT 1 AS one;\nSELECT 2 AS two -- the last\n")
    assert [line.strip() for line in done.stdout.splitlines() if line[:1].isalpha()] == ["one", "two"]


@pytest.mark.parametrize("given", ["argument", "stdin"])
def test_a_query_is_utf_8_in_every_locale(recorded: Path, given: str) -> None:
    query = "SELECT 'é🌊' AS word"
    done = subprocess.run(
        [sys.executable, "-m", "caliper_pipeline.interfaces.cli", "sql", "--format", "csv"]
        + ([query] if given == "argument" else []),
        input=query.encode(),
        capture_output=True,
        cwd=recorded,
        env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"},
        check=False,
    )
    assert (done.returncode, done.stdout.decode(), done.stderr) == (0, "word\né🌊\n", b"")


@pytest.mark.parametrize("given", ["argument", "stdin"])
def test_a_query_that_is_not_utf_8_is_refused(sql: Sql, given: str) -> None:
    query = b"SELECT '\xff'"
    done = sql(query.decode("utf-8", "surrogateescape")) if given == "argument" else sql(given=query)
    assert isinstance(done.exception, BadInput)
    assert "UTF-8" in str(done.exception)


def test_a_file_of_sql_may_begin_with_a_byte_order_mark(sql: Sql) -> None:
    assert json.loads(sql("--format", "json", "-", given="\ufeffSELECT 1 AS one").stdout) == [{"one": 1}]


def test_several_queries_are_too_many_for_data(sql: Sql) -> None:
    done = sql("--format", "json", "SELECT 1; SELECT 2")
    assert (done.exit_code, done.stdout) == (1, "")


def test_no_query_at_all_is_refused(sql: Sql) -> None:
    assert sql("  -- nothing\n").exit_code == 1


# -- forms


def test_json_has_numbers_lists_and_times_with_their_zone(sql: Sql) -> None:
    done = sql(
        "--format", "json", "SELECT 2.5 AS x, [1, NULL] AS list, TIMESTAMP '2026-01-02 03:04:05' AS t, NULL AS n"
    )
    assert json.loads(done.stdout) == [{"x": 2.5, "list": [1, None], "t": "2026-01-02T03:04:05Z", "n": None}]


def test_json_has_null_for_what_is_no_number(sql: Sql) -> None:
    done = sql("--format", "json", "SELECT 'nan'::DOUBLE AS a, 'inf'::DOUBLE AS b, ['nan'::DOUBLE] AS c")
    assert json.loads(done.stdout) == [{"a": None, "b": None, "c": [None]}]


def test_json_keeps_both_of_two_columns_with_one_name(sql: Sql) -> None:
    assert json.loads(sql("--format", "json", "SELECT 1 AS n, 2 AS n").stdout) == [{"n": 1, "n_2": 2}]


def test_json_opens_what_is_stored_as_json(sql: Sql) -> None:
    (row,) = json.loads(sql("--format", "json", "SELECT prices FROM runs WHERE prices IS NOT NULL LIMIT 1").stdout)
    assert row["prices"]["sonnet-*"]["input_usd"] == 3.0


def test_json_of_no_rows_is_an_empty_list(sql: Sql) -> None:
    assert json.loads(sql("--format", "json", "SELECT 1 WHERE false").stdout) == []


def test_csv_is_exact_and_quotes_what_needs_it(sql: Sql) -> None:
    done = sql(
        "--format", "csv", "SELECT 1/3 AS third, 'a,\"b\"\nc' AS text, NULL AS nothing, TRUE AS yes, [1, 2] AS list"
    )
    assert list(csv.reader(io.StringIO(done.stdout))) == [
        ["third", "text", "nothing", "yes", "list"],
        [repr(1 / 3), 'a,"b"\nc', "", "true", "[1, 2]"],
    ]


def test_markdown_escapes_pipes_and_line_breaks(sql: Sql) -> None:
    done = sql("--format", "markdown", "SELECT 'a|b\nc' AS text, 1 AS n, NULL::VARCHAR AS nothing")
    assert done.stdout == "| text | n | nothing |\n| --- | ---: | --- |\n| a\\|b c | 1 |  |\n"


def test_parquet_goes_to_a_pipe(sql: Sql) -> None:
    assert sql("--format", "parquet", "latest_runs").stdout_bytes.startswith(b"PAR1")


@pytest.mark.parametrize(
    ("name", "begins"), [("x.csv", b"series_key,"), ("x.json", b"[\n{"), ("x.md", b"| series"), ("x.parquet", b"PAR1")]
)
def test_a_file_gets_the_form_its_name_says(sql: Sql, tmp_path: Path, name: str, begins: bytes) -> None:
    done = sql("--output", str(tmp_path / name), "latest_runs")
    assert (done.exit_code, done.stdout) == (0, "")
    assert (tmp_path / name).read_bytes().startswith(begins)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_file_stays_as_it_was_when_the_query_fails(sql: Sql, tmp_path: Path) -> None:
    target = tmp_path / "x.csv"
    target.write_text("old", encoding="ascii")
    assert sql("--output", str(target), "SELECT nothing FROM runs").exit_code == 1
    assert target.read_text(encoding="ascii") == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_link_stays_a_link(sql: Sql, tmp_path: Path) -> None:
    (tmp_path / "link.csv").symlink_to(tmp_path / "real.csv")
    sql("--output", str(tmp_path / "link.csv"), "SELECT 1 AS one")
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real.csv").read_text(encoding="ascii") == "one\n1\n"


def test_a_device_is_written_to_and_not_replaced(sql: Sql) -> None:
    assert sql("--format", "csv", "--output", "/dev/null", "runs").exit_code == 0
    assert Path("/dev/null").is_char_device()


def test_a_table_is_not_for_a_file(sql: Sql, tmp_path: Path) -> None:
    assert sql("--output", str(tmp_path / "x"), "runs").exit_code == 1


def test_data_is_alone_on_standard_output(sql: Sql) -> None:
    done = sql("--format", "csv", "SELECT simulated FROM latest_runs WHERE simulated")
    assert (done.stdout, done.stderr) == ("simulated\ntrue\n", "")


# -- the table


def test_an_id_is_never_cut_however_narrow_the_terminal(sql: Sql, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    shown = sql("SELECT run_id, series_key, spec, engine, arm, status FROM latest_runs LIMIT 1").stdout
    assert json.loads(sql("--format", "json", "SELECT run_id FROM latest_runs LIMIT 1").stdout)[0]["run_id"] in shown


def test_text_that_is_too_wide_is_folded(sql: Sql) -> None:
    words = " ".join(["word"] * 60)
    lines = sql(f"SELECT 1 AS n, '{words}' AS text").stdout.splitlines()
    assert max(map(len, lines)) <= 100
    assert sum(line.count("word") for line in lines) == 60


def test_what_does_not_fit_side_by_side_becomes_blocks(sql: Sql) -> None:
    lines = sql("SELECT * FROM runs LIMIT 2").stdout.splitlines()
    assert [line for line in lines if line.startswith("row ")] == ["row 1", "row 2"]
    assert max(map(len, lines)) <= 100


def test_wide_lines_are_not_folded(sql: Sql) -> None:
    text = "x" * 300
    assert text in sql("--wide", f"SELECT '{text}' AS text").stdout


def test_terminal_escapes_in_the_data_do_nothing(sql: Sql) -> None:
    shown = sql("SELECT 'a' || chr(27) || '[2Jb' || chr(7) || chr(13) || 'c' AS text, 1 AS n").stdout
    assert not any(mark in shown for mark in ("\x1b", "\x07", "\r"))
    assert "abc" in shown


def test_nothing_measured_is_a_dash_in_a_table(sql: Sql) -> None:
    assert sql("SELECT NULL::DOUBLE AS a, NULL::VARCHAR AS b").stdout.splitlines()[2].split() == ["—", "—"]


def test_a_table_says_when_there_is_more(sql: Sql) -> None:
    done = sql("--limit", "2", "runs")
    assert "The first 2 rows" in done.stderr
    assert "The first" not in sql("--limit", "0", "SELECT * FROM range(300)").stderr


def test_a_table_says_that_there_is_nothing(sql: Sql) -> None:
    assert "No rows." in sql("SELECT spec FROM runs WHERE false").stderr


def test_simulated_rows_are_explained(sql: Sql) -> None:
    assert "a script played the agent" in sql("SELECT spec, simulated FROM latest_runs").stderr
    assert sql("SELECT spec, simulated FROM latest_runs WHERE NOT simulated").stderr == ""


# -- mistakes


@pytest.mark.parametrize(
    ("query", "message", "hint"),
    [
        ("SELECT * FROM latest_run", "line 1, column 15: Table with name latest_run does not exist", "latest_runs"),
        ("SELECT skore\nFROM runs", "line 1, column 8: Referenced column", "score (in runs)"),
        ("SELECT 1,\n  spek FROM latest_runs", "line 2, column 3", "spec (in latest_runs)"),
        ("SELEKT 1", "line 1, column 1: syntax error", ""),
        ("latest_run", "There is no view or table 'latest_run'", "latest_runs"),
        ("SELECT wilson(1, 2)", "wilson", "wilson"),
        ("SELECT $1", "parameters", ""),
    ],
)
def test_a_mistake_is_one_message_with_its_place(sql: Sql, query: str, message: str, hint: str) -> None:
    from caliper_pipeline.domain.errors import BadInput

    done = sql(query)
    assert isinstance(done.exception, BadInput)
    assert message in done.exception.message
    assert hint in (done.exception.hint or "")


def test_a_message_that_quotes_the_data_acts_on_no_terminal(sql: Sql) -> None:
    from caliper_pipeline.domain.errors import BadInput

    done = sql("SELECT (chr(27) || '[2J' || chr(8238))::INT FROM runs")
    assert isinstance(done.exception, BadInput)
    assert "Could not convert" in done.exception.message
    assert not {"\x1b", "\u202e"} & set(done.exception.message)


def test_an_empty_project_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CALIPER_ROOT", str(tmp_path))
    for form, output in (("table", ""), ("json", "[]\n"), ("csv", "")):
        done = CliRunner().invoke(group, ["sql", "--format", form, "latest_runs"])
        assert (done.exit_code, done.stdout) == (0, output)
        assert "There is no history here yet" in done.stderr
    assert list(tmp_path.iterdir()) == []
