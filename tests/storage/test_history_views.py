import contextlib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from caliper_pipeline.domain.records import Outcome
from caliper_pipeline.domain.statistics import wilson
from caliper_pipeline.storage import history, history_writer
from caliper_pipeline.storage.history_views import VIEWS
from caliper_pipeline.storage.migrations import CURRENT_VERSION, Change, changes_since
from caliper_pipeline.storage.runs import RunStore

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

P, F, T, J = Outcome.PASS, Outcome.TASK_FAIL, Outcome.TIMEOUT, Outcome.JUDGE_ERROR
FULL, CONTROL = "demo/scripted+isolated", "demo/scripted~tides+isolated"


@pytest.fixture
def con(store: RunStore, given: Any) -> Iterator["DuckDBPyConnection"]:
    """Three nights of a series, and one control."""
    skills = given.run_header().skills
    nights = [
        (0, FULL, (), [[P, P], [P, F]], {"spec_digest": "a" * 64}),
        (1, FULL, (), [[P, P], [F, T]], {"spec_digest": "b" * 64}),
        (2, FULL, (), [[P, P], [P, P]], {"spec_digest": "b" * 64}),
        (3, CONTROL, ("tides",), [[F, F], [P, J]], {"spec_digest": "b" * 64}),
    ]
    runs = []
    for night, key, ablated, outcomes, more in nights:
        header: dict[str, Any] = {"started_at": given.NOON + timedelta(days=night), "series_key": key, **more}
        header["ablated"] = ablated
        header["skills"] = () if ablated else skills
        runs.append(given.whole_run(store, outcomes, **header))
    db = store.root / "history.duckdb"
    history.publish(db, reversed(runs))
    with contextlib.closing(history.connect(db)) as con:
        yield con


def test_the_intervals_in_sql_are_those_of_the_product(con: "DuckDBPyConnection") -> None:
    for trials in range(1, 12):
        for successes in range(trials + 1):
            low, high = con.execute("SELECT wilson_low($1, $2), wilson_high($1, $2)", [successes, trials]).fetchall()[0]
            expected = wilson(successes, trials)
            assert (low, high) == (pytest.approx(expected.low, abs=1e-12), pytest.approx(expected.high, abs=1e-12))
    assert con.execute("SELECT wilson_low(0, 0), wilson_high(0, 0)").fetchall() == [(None, None)]


def test_the_latest_run_of_each_series_is_shown(con: "DuckDBPyConnection") -> None:
    found = con.execute("SELECT series_key, arm, score, unusable FROM latest_runs ORDER BY arm").fetchall()
    assert found == [(FULL, "full", 1.0, 0), (CONTROL, "tides", 0.5, 1)]


def test_a_trend_shows_each_run_beside_the_one_before(con: "DuckDBPyConnection") -> None:
    query = "SELECT score, previous_score, change, spec_changed FROM score_trend WHERE arm = 'full' ORDER BY run_utc"
    assert con.execute(query).fetchall() == [
        (0.75, None, None, None),
        (0.5, 0.75, -0.25, True),
        (1.0, 0.5, 0.5, False),
    ]
    inside = "SELECT bool_and(score_low <= score AND score <= score_high) FROM score_trend"
    assert con.execute(inside).fetchall() == [(True,)]


def test_a_task_that_sometimes_passes_is_flaky(con: "DuckDBPyConnection") -> None:
    query = "SELECT arm, task_name, runs, mixed_runs, successes, usable, rate FROM flaky_tasks"
    assert con.execute(query).fetchall() == [("full", "Task 2", 3, 1, 3, 5, 0.6)]


def test_what_was_lost_is_told_by_kind(con: "DuckDBPyConnection") -> None:
    query = "SELECT arm, outcome, attempts, share, agent_seconds, total_tokens FROM unusable_breakdown ORDER BY arm"
    assert con.execute(query).fetchall() == [
        ("full", "timeout", 1, 0.25, 1.5, 170),
        ("tides", "judge_error", 1, 0.25, 1.5, 170),
    ]


def test_the_matrix_shows_what_fired_where(con: "DuckDBPyConnection") -> None:
    query = "SELECT task_name, skill, expected, fired, observed, rate FROM activation_matrix ORDER BY 1"
    assert con.execute(query).fetchall() == [("Task 1", "tides", None, 2, 2, 1.0), ("Task 2", "tides", None, 2, 2, 1.0)]


def test_every_view_says_what_it_is_and_what_its_columns_are(con: "DuckDBPyConnection") -> None:
    for view in VIEWS:
        ((about,),) = con.execute("SELECT comment FROM duckdb_views() WHERE view_name = $1", [view.name]).fetchall()
        assert about.startswith("one row ")
        columns = con.execute(
            "SELECT column_name, comment FROM duckdb_columns() WHERE table_name = $1 ORDER BY column_index",
            [view.name],
        ).fetchall()
        assert columns == list(view.columns.items())


def test_every_view_marks_what_a_script_played(con: "DuckDBPyConnection") -> None:
    for view in VIEWS:
        found = con.execute(f"SELECT DISTINCT simulated FROM {view.name}").fetchall()
        assert found in ([], [(True,)])


def test_every_example_of_a_view_runs(con: "DuckDBPyConnection") -> None:
    for view in VIEWS:
        con.execute(view.example).fetchall()


def test_every_rate_of_a_view_lies_between_its_bounds(con: "DuckDBPyConnection") -> None:
    for view in VIEWS:
        for low in (name for name in view.columns if name.endswith("_low")):
            stem = low.removesuffix("_low")
            of = next((c for c in (stem, f"{stem}_score", f"{stem}_rate") if c in view.columns), None)
            if of is not None and f"{stem}_high" in view.columns:
                bad = f"SELECT count(*) FROM {view.name} WHERE NOT ({low} <= {of} AND {of} <= {stem}_high)"
                assert con.execute(bad).fetchall() == [(0,)], (view.name, low)


def test_an_older_database_is_brought_up_to_date_by_whoever_opens_it(
    store: RunStore, given: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = tmp_path / "h.duckdb"
    history.publish(db, [given.whole_run(store)])
    newer = CURRENT_VERSION + 1
    one_more = Change(
        newer, "a colour", ("ALTER TABLE runs ADD COLUMN colour VARCHAR", "COMMENT ON COLUMN runs.colour IS 'x'")
    )

    def changes(version: int) -> Iterator[Change]:
        yield from changes_since(version)
        if version < newer:
            yield one_more

    monkeypatch.setattr(history_writer, "CURRENT_VERSION", newer)
    monkeypatch.setattr(history_writer, "changes_since", changes)
    with contextlib.closing(history.connect(db)) as con:
        assert con.execute("SELECT colour, score FROM runs").fetchall() == [(None, 1.0)]
        assert con.execute("SELECT version FROM schema_changes ORDER BY 1").fetchall() == [
            (n,) for n in range(1, newer + 1)
        ]
    history.publish(db, [given.whole_run(store)])
    with contextlib.closing(history.connect(db)) as con:
        assert con.execute("SELECT count(*) FROM latest_runs").fetchall() == [(1,)]
