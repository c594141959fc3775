"""`caliper_pipeline.history`: what notebooks and scripts use."""

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from example_history import build

from caliper_pipeline import history
from caliper_pipeline.domain.errors import BadInput, HistoryUnusable
from caliper_pipeline.storage.history_views import VIEWS
from caliper_pipeline.storage.runs import RunStore

TREND = Path(__file__).parents[1] / "docs" / "trend.py"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("notebook")
    build(folder)
    return folder


@pytest.fixture(scope="module")
def opened(root: Path) -> Iterator[history.History]:
    with history.open(root) as it:
        yield it


# -- opening


def test_it_opens_the_project_one_is_in(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CALIPER_ROOT", raising=False)
    below = root / "deep" / "down"
    below.mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(below)
    with history.open() as it:
        assert len(it.runs()) == 11


def test_it_opens_a_folder_or_the_file_itself(root: Path, opened: history.History) -> None:
    for place in (root, str(root), root / ".caliper", root / ".caliper" / "history.duckdb"):
        with history.open(place) as it:
            assert len(it.runs()) == 11


def test_a_folder_goes_before_the_environment(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALIPER_ROOT", str(tmp_path))
    with history.open(root) as it:
        assert len(it.runs()) == 11


@pytest.mark.parametrize("name", ["", "nothing.duckdb"])
def test_where_nothing_is_says_so(tmp_path: Path, name: str) -> None:
    with pytest.raises(HistoryUnusable, match="There is no history at"):
        history.open(tmp_path / name)


def test_news_is_shown_after_a_reload(tmp_path: Path) -> None:
    store = build(tmp_path)
    newest = store.path / store.run_ids()[-1]
    away = tmp_path / newest.name
    newest.rename(away)
    with history.open(tmp_path) as it:
        assert len(it.runs()) == 10
        away.rename(newest)
        assert len(it.runs()) == 10
        it.reload()
        assert len(it.runs()) == 11


# -- typed queries


def test_a_trend_has_a_value_for_each_run(opened: history.History) -> None:
    points = opened.trend("inbox-triage", engine="claude-code")
    assert [point.score for point in points] == pytest.approx([1.0, 14 / 15, 14 / 15, 0.6, 8 / 15, 0.6], abs=1e-5)
    assert points[0].run_utc == datetime(2026, 11, 23, 1, tzinfo=UTC)
    assert all(point.score_low <= point.score <= point.score_high for point in points)  # type: ignore[operator]


def test_a_trend_is_of_the_full_arm_unless_another_is_named(opened: history.History) -> None:
    assert {point.arm for point in opened.trend("inbox-triage")} == {"full"}
    assert len(opened.trend("inbox-triage", arm="inbox-triage")) == 2
    assert len(opened.trend("inbox-triage", arm=None)) == 10


def test_a_trend_may_be_of_one_task(opened: history.History) -> None:
    scores = opened.task_trend("inbox-triage", "Drafts a reply", engine="claude-code")
    assert [score.successes for score in scores] == [5, 5, 5, 0, 0, 0]


def test_runs_can_be_narrowed(opened: history.History) -> None:
    assert len(opened.runs("inbox-triage", engine="codex:gpt-large")) == 2
    assert len(opened.runs(arm="inbox-triage")) == 2
    assert [run.started_utc for run in opened.runs()] == sorted(run.started_utc for run in opened.runs())  # type: ignore[type-var]


def test_the_latest_run_of_each_series_is_given(opened: history.History) -> None:
    assert [(run.spec, run.simulated) for run in opened.latest()] == [
        ("inbox-triage", False),
        ("inbox-triage", False),
        ("inbox-triage", False),
        ("release-notes", True),
    ]


def test_a_run_can_be_looked_into(opened: history.History) -> None:
    run = opened.latest("inbox-triage")[0]
    assert opened.scores(run.run_id)[0].task_name == "Flags urgent mail"
    attempts = opened.attempts(run.run_id)
    assert len(attempts) == 15
    assert {attempt.outcome for attempt in attempts} == {"pass", "task_fail", "infra_error"}
    assert attempts[0].activated == ["inbox-triage"]


@pytest.mark.parametrize(
    ("kind", "view"),
    [(history.TrendPoint, "score_trend"), (history.TaskScore, "task_trend"), (history.Attempt, "graded_attempts")],
)
def test_values_have_the_columns_of_their_view(kind: type, view: str) -> None:
    (found,) = (v for v in VIEWS if v.name == view)
    assert [field.name for field in dataclasses.fields(kind)] == list(found.columns)


# -- any query


def test_any_query_gives_dicts(opened: history.History) -> None:
    answer = opened.sql("SELECT spec, count(*) AS n FROM runs WHERE simulated = $1 GROUP BY spec", [True])
    assert answer.rows() == [{"spec": "release-notes", "n": 1}]
    assert opened.sql("SELECT $name AS name", {"name": "x"})[0] == {"name": "x"}
    assert answer.columns == ("spec", "n")
    assert repr(answer) == "<1 rows of spec, n>"


def test_a_whole_view_is_given_by_its_name(opened: history.History) -> None:
    assert len(opened.table("latest_runs")) == 4
    with pytest.raises(BadInput, match="no view or table 'latest_run'"):
        opened.table("latest_run")


def test_names_say_what_there_is(opened: history.History) -> None:
    assert opened.names["runs"].startswith("one row a run")


@pytest.mark.parametrize("query", ["SELECT nothing FROM runs", "DROP TABLE runs", "SELECT 1; SELECT 2", ""])
def test_what_is_no_single_reading_query_is_refused(opened: history.History, query: str) -> None:
    with pytest.raises(BadInput):
        opened.sql(query)


def test_answers_can_be_asked_in_any_order(opened: history.History) -> None:
    first, second = opened.sql("SELECT 1 AS n"), opened.sql("SELECT 2 AS n")
    assert (second.rows(), first.rows(), second.df()["n"].tolist(), first.rows()) == (
        [{"n": 2}],
        [{"n": 1}],
        [2],
        [{"n": 1}],
    )


# -- pandas and Arrow


def test_an_answer_becomes_a_data_frame(opened: history.History) -> None:
    frame = opened.trend("inbox-triage", engine="claude-code").df()
    assert frame.shape == (6, 16)
    assert str(frame.run_utc.dtype).startswith("datetime64")
    assert frame.previous_score.isna().tolist() == [True] + [False] * 5


def test_an_answer_becomes_a_table_of_arrow(opened: history.History) -> None:
    table = opened.sql("SELECT spec, score FROM latest_runs WHERE simulated = $1", [False]).arrow()
    assert table.column_names == ["spec", "score"]
    assert table.num_rows == 3


def test_a_notebook_shows_an_answer_as_a_table(opened: history.History) -> None:
    assert "<table" in opened.latest()._repr_html_()


def test_without_pyarrow_a_table_of_arrow_is_refused_in_words(
    opened: history.History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(BadInput, match="needs pyarrow"):
        opened.latest().arrow()


def test_pandas_and_pyarrow_are_only_imported_when_they_are_asked_for(root: Path) -> None:
    code = (
        "import sys; from caliper_pipeline import history\n"
        "with history.open(sys.argv[1]) as it: it.trend('inbox-triage').rows()\n"
        "print({'pandas', 'pyarrow', 'dagster', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(root)], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


# -- the example in the documents


def test_the_example_script_draws_a_trend(root: Path) -> None:
    command = [sys.executable, str(TREND), "inbox-triage", "--project", str(root), "--engine", "claude-code"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, encoding="utf-8")
    lines = done.stdout.splitlines()
    assert lines[0] == "claude-code"
    assert [line.rpartition("| ")[2] for line in lines[1:7]] == [
        "100.0% of 15",
        " 93.3% of 15",
        " 93.3% of 14 *",
        " 60.0% of 15",
        " 53.3% of 15",
        " 60.0% of 14",
    ]
    assert lines[7] == "* the spec was edited"


def test_the_example_script_draws_a_picture_where_it_can(root: Path, tmp_path: Path) -> None:
    picture = tmp_path / "trend.png"
    command = [sys.executable, str(TREND), "inbox-triage", "--project", str(root), "--output", str(picture)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, encoding="utf-8")
    assert picture.exists() or done.stdout.startswith("matplotlib is not installed; as text:")


def test_the_example_script_says_when_there_is_nothing(root: Path) -> None:
    command = [sys.executable, str(TREND), "nothing", "--project", str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "No run of 'nothing' with the arm 'full'.\n")


def test_an_empty_store_has_an_empty_history(tmp_path: Path) -> None:
    RunStore(tmp_path).path.mkdir(parents=True)
    with history.open(tmp_path) as it:
        assert it.runs().rows() == []
        assert it.latest().df().empty
