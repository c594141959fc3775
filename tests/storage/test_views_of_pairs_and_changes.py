"""The views that hold runs against each other: controls, engines, cost, what stopped working, what drifted."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from caliper_pipeline.domain.prices import Price
from caliper_pipeline.domain.records import Outcome, SkillHeader
from caliper_pipeline.domain.statistics import suite_wilson
from caliper_pipeline.storage import history
from caliper_pipeline.storage.records import Acknowledgement, Alert, Records
from caliper_pipeline.storage.runs import RunFolder, RunStore

P, F, T = Outcome.PASS, Outcome.TASK_FAIL, Outcome.TIMEOUT
Ask = Callable[[str], list[tuple[Any, ...]]]
Night = Callable[..., RunFolder]


@pytest.fixture
def night(store: RunStore, given: Any) -> Night:
    """Records a run of the demo spec so many days after the first."""

    def record(day: float, outcomes: Sequence[Sequence[Outcome]], *, arm: str = "", **changes: Any) -> RunFolder:
        engine = changes.get("backend", "scripted")
        header: dict[str, Any] = {
            "started_at": given.NOON + timedelta(days=day),
            "series_key": f"demo/{engine}{'~' + arm if arm else ''}+isolated",
            "ablated": (arm,) if arm else (),
            "simulated": False,
            **changes,
        }
        run: RunFolder = given.whole_run(store, outcomes, **header)
        return run

    return record


@pytest.fixture
def ask(store: RunStore) -> Ask:
    """Publishes all runs and records, and gives the answer."""
    folder = store.root / ".caliper"

    def answer(query: str) -> list[tuple[Any, ...]]:
        history.publish(folder / "history.duckdb", store.runs())
        history.publish_records(folder / "history.duckdb", Records(store.root))
        with contextlib.closing(history.connect(folder / "history.duckdb")) as con:
            return con.execute(query).fetchall()

    return answer


def day(number: float) -> datetime:
    return datetime(2026, 11, 30, 12) + timedelta(days=number)


# -- controls


def test_each_control_stands_beside_the_full_run_before_it(night: Night, ask: Ask) -> None:
    night(0, [[P, P], [P, F]])
    night(1, [[P, F], [F, F]], arm="tides")
    night(2, [[P, P], [P, P]])
    night(3, [[P, P], [P, F]], arm="tides")
    found = ask("SELECT run_utc, full_score, control_score, gap, hours_apart, latest FROM control_gap ORDER BY 1")
    assert found == [(day(1), 0.75, 0.25, 0.5, 24.0, False), (day(3), 1.0, 0.75, 0.25, 24.0, True)]


def test_a_control_without_a_full_run_before_it_stands_beside_the_first_after_it(night: Night, ask: Ask) -> None:
    night(0, [[F, F]], arm="tides")
    night(1, [[P, P]])
    night(2, [[P, F]])
    assert ask("SELECT full_score, control_score, hours_apart FROM control_gap") == [(1.0, 0.0, -24.0)]


def test_a_gap_counts_only_tasks_that_both_measured(night: Night, ask: Ask) -> None:
    night(0, [[P, P], [F, F]])
    night(1, [[F, P], [T, T]], arm="tides")
    found = ask("SELECT tasks, full_score, control_score, full_low, full_high FROM control_gap")
    expected = suite_wilson([(2, 2)])
    assert expected is not None
    assert found == [(1, 1.0, 0.5, pytest.approx(expected.low), 1.0)]


def test_a_gap_has_the_interval_of_newcombe(night: Night, ask: Ask) -> None:
    night(0, [[P, P], [P, P]])
    night(1, [[F, F], [P, T]], arm="tides")
    ((low, gap, high),) = ask("SELECT gap_low, gap, gap_high FROM control_gap")
    full, control = suite_wilson([(2, 2), (2, 2)]), suite_wilson([(0, 2), (1, 1)])
    assert full is not None
    assert control is not None
    assert gap == 0.5
    assert low == pytest.approx(0.5 - ((1 - full.low) ** 2 + (control.high - 0.5) ** 2) ** 0.5)
    assert high == pytest.approx(0.5 + ((full.high - 1) ** 2 + (0.5 - control.low) ** 2) ** 0.5)


def test_a_gap_to_an_edited_spec_says_so(night: Night, ask: Ask) -> None:
    night(0, [[P]], spec_digest="a" * 64)
    night(1, [[F]], arm="tides", spec_digest="b" * 64)
    assert ask("SELECT same_spec FROM control_gap") == [(False,)]


# -- engines


def test_engines_are_compared_over_tasks_with_the_same_texts(night: Night, ask: Ask, given: Any) -> None:
    tasks = (given.task_header(1), given.task_header(2))
    other = replace(tasks[1], prompt="Other.", digests={**tasks[1].digests, "prompt": given.sha256("Other.")})
    night(0, [[P, P], [P, P]], backend="claude-code")
    night(1, [[P, F], [F, F]], backend="codex", tasks=(tasks[0], other))
    found = ask(
        "SELECT engine_a, engine_b, tasks, other_tasks, score_a, score_b, difference FROM engine_comparison ORDER BY 1"
    )
    assert found == [("claude-code", "codex", 1, 1, 1.0, 0.5, -0.5), ("codex", "claude-code", 1, 1, 0.5, 1.0, 0.5)]


def test_the_latest_run_of_each_engine_is_compared(night: Night, ask: Ask) -> None:
    night(0, [[F, F]], backend="claude-code")
    night(1, [[P, P]], backend="claude-code")
    night(2, [[P, F]], backend="codex")
    found = ask("SELECT run_utc_a, run_utc_b, score_a, score_b FROM engine_comparison WHERE engine_b = 'codex'")
    assert found == [(day(1), day(2), 1.0, 0.5)]


def test_engines_are_only_compared_within_an_arm(night: Night, ask: Ask) -> None:
    night(0, [[P]], backend="claude-code")
    night(1, [[F]], backend="codex", arm="tides")
    assert ask("SELECT * FROM engine_comparison") == []


def test_a_comparison_says_whether_skills_and_judge_were_the_same(night: Night, ask: Ask) -> None:
    night(0, [[P]], backend="claude-code", judge_backend="claude-code", judge_model="haiku")
    night(1, [[P]], backend="codex", judge_backend="claude-code", judge_model="sonnet")
    query = "SELECT same_skills, same_judge FROM engine_comparison WHERE engine_a = 'codex'"
    assert ask(query) == [(True, False)]


# -- cost


def test_a_pass_costs_what_all_attempts_took(night: Night, ask: Ask) -> None:
    night(0, [[P, F], [F, F]])
    figures = "successes, graded, total_tokens, tokens_per_pass, agent_seconds, seconds_per_pass"
    assert ask(f"SELECT {figures} FROM cost_per_pass") == [(1, 4, 680, 680.0, 6.0, 6.0)]


def test_without_a_pass_there_is_no_cost_of_one(night: Night, ask: Ask) -> None:
    night(0, [[F, F]])
    assert ask("SELECT tokens_per_pass, seconds_per_pass, usd_per_pass FROM cost_per_pass") == [(None, None, None)]


@pytest.mark.parametrize(
    ("prices", "usd"),
    [
        ({}, None),  # no price, no claim
        ({"other": Price(1.0, 1.0)}, None),
        ({"demo-model": Price(10.0, 50.0, 1.0)}, 2 * (100 * 10 + 20 * 50 + 50 * 1) / 1e6),
        ({"demo-model": Price(10.0, 50.0)}, None),  # tokens read from a cache, and no price of those
        ({"demo-*": Price(1.0, 1.0, 1.0), "demo-model": Price(2.0, 2.0, 2.0)}, 2 * 170 * 2 / 1e6),
        ({"demo-*": Price(1.0, 1.0, 1.0), "d*": Price(2.0, 2.0, 2.0)}, 2 * 170 / 1e6),  # the longest pattern
        ({"scripted:demo-model": Price(3.0, 3.0, 3.0), "demo-model": Price(2.0, 2.0, 2.0)}, 2 * 170 * 3 / 1e6),
        ({"scripted:demo-*": Price(3.0, 3.0, 3.0), "scripted": Price(9.0, 9.0, 9.0)}, 2 * 170 * 3 / 1e6),
        ({"scripted": Price(4.0, 4.0, 4.0)}, 2 * 170 * 4 / 1e6),  # what was asked for: the backend's own model
    ],
)
def test_dollars_are_claimed_where_a_price_was_stated(
    night: Night, ask: Ask, prices: dict[str, Price], usd: float | None
) -> None:
    night(0, [[P, F]], prices=prices)
    assert ask("SELECT cost_usd, usd_per_pass FROM cost_per_pass") == [
        (None, None) if usd is None else (pytest.approx(usd), pytest.approx(usd))
    ]


# -- what stopped working


def test_a_reliable_task_without_a_pass_any_more_stopped_working(night: Night, ask: Ask) -> None:
    for number in range(4):
        night(number, [[P, P, P], [P, P, P]])
    first = night(4, [[F, F, F], [P, P, P]])
    night(5, [[F, T, F], [P, P, P]])
    found = ask(
        "SELECT task_name, since_utc, since_run_id, last_pass_utc, failing_runs, failing_attempts, before_successes, "
        "before_usable, clear FROM stopped_working"
    )
    assert found == [("Task 1", day(4), first.run_id, day(3), 2, 5, 12, 12, True)]


def test_one_failure_after_a_few_passes_is_shown_but_not_clear(night: Night, ask: Ask) -> None:
    night(0, [[P, P]])
    night(1, [[F]])
    assert ask("SELECT failing_attempts, clear FROM stopped_working") == [(1, False)]


@pytest.mark.parametrize(
    "nights",
    [
        [[P, P], [P, F]],  # it still passes
        [[P, F], [F, F]],  # it was never reliable
        [[F, F], [F, F]],  # it never worked
        [[P, P], [T, T]],  # nothing was measured
    ],
)
def test_a_task_that_did_not_stop_is_not_listed(night: Night, ask: Ask, nights: list[list[Outcome]]) -> None:
    for number, outcomes in enumerate(nights):
        night(number, [outcomes])
    assert ask("SELECT * FROM stopped_working") == []


def test_a_task_that_is_no_longer_asked_has_not_stopped_working(night: Night, ask: Ask) -> None:
    night(0, [[P, P], [P, P]])
    night(1, [[P, P], [F, F]])
    night(2, [[P, P]])
    assert ask("SELECT * FROM stopped_working") == []


# -- drift


@pytest.mark.parametrize(
    ("what", "before", "after"),
    [
        ("spec", {"spec_digest": "a" * 64}, {"spec_digest": "b" * 64}),
        ("cli", {"cli_version": "2.1"}, {"cli_version": "2.2"}),
        ("judge prompt", {"judge_prompt_version": "1"}, {"judge_prompt_version": "2"}),
        ("judge cli", {"judge_cli_version": "2.1"}, {"judge_cli_version": "2.2"}),
        ("host", {"host": "one"}, {"host": "two"}),
        ("product", {"product_version": "1"}, {"product_version": "2"}),
    ],
)
def test_what_changed_from_run_to_run_is_logged(
    night: Night, ask: Ask, what: str, before: dict[str, Any], after: dict[str, Any]
) -> None:
    first = night(0, [[P]], **before)
    night(1, [[P]], **after)
    night(2, [[P]], **after)
    found = ask("SELECT run_utc, previous_run_id, what, name, before, after FROM drift_log")
    ((old,), (new,)) = before.values(), after.values()
    assert found == [(day(1), first.run_id, what, None, old, new)]


@pytest.mark.parametrize(
    ("what", "before", "after", "texts"),
    [
        (
            "judge",
            {"judge_backend": "claude-code", "judge_model": "haiku"},
            {"judge_backend": "claude-code", "judge_model": "sonnet"},
            ("claude-code:haiku", "claude-code:sonnet"),
        ),
        ("timeout", {"timeout_seconds": 60.0}, {"timeout_seconds": 90.0}, ("60.0", "90.0")),
        ("servers", {"mcp_servers": ("a", "b")}, {"mcp_servers": ("a",)}, ("a, b", "a")),
        ("servers", {"mcp_servers": ()}, {"mcp_servers": ("a",)}, ("", "a")),
        (
            "customizations",
            {"isolated": False, "loaded_user_customizations": ("skill:x",)},
            {"isolated": False, "loaded_user_customizations": ()},
            ("skill:x", ""),
        ),
    ],
)
def test_what_is_more_than_one_word_is_logged_as_text(
    night: Night, ask: Ask, what: str, before: dict[str, Any], after: dict[str, Any], texts: tuple[str, str]
) -> None:
    night(0, [[P]], **before)
    night(1, [[P]], **after)
    assert ask("SELECT what, before, after FROM drift_log") == [(what, *texts)]


def test_what_was_not_recorded_is_compared_with_the_last_run_that_did(night: Night, ask: Ask) -> None:
    night(0, [[P]], cli_version="2.1")
    night(1, [[P]], cli_version=None)
    night(2, [[P]], cli_version="2.2")
    assert ask("SELECT run_utc, what, before, after FROM drift_log") == [(day(2), "cli", "2.1", "2.2")]


def test_an_edited_skill_is_logged_under_its_name(night: Night, ask: Ask) -> None:
    skill = SkillHeader("tides", "/skills/tides/SKILL.md", "path", "a" * 64, True)
    night(0, [[P]], skills=(skill, replace(skill, name="maps")))
    night(1, [[P]], skills=(replace(skill, digest="b" * 64), replace(skill, name="stars")))
    assert ask("SELECT what, name, before, after FROM drift_log ORDER BY name") == [
        ("skill removed", "maps", "a" * 64, None),
        ("skill added", "stars", None, "a" * 64),
        ("skill", "tides", "a" * 64, "b" * 64),
    ]


def test_an_edited_text_is_logged_under_its_task(night: Night, ask: Ask, given: Any) -> None:
    task = given.task_header(1)
    night(0, [[P]])
    night(1, [[P]], tasks=(replace(task, digests={**task.digests, "assert": given.sha256("x"), "setup": "c" * 64}),))
    assert ask("SELECT what, name, before, after FROM drift_log ORDER BY what") == [
        ("task assert", "Task 1", task.digests["assert"], given.sha256("x")),
        ("task setup", "Task 1", None, "c" * 64),
    ]


def test_series_do_not_drift_into_each_other(night: Night, ask: Ask) -> None:
    night(0, [[P]], cli_version="1")
    night(1, [[P]], backend="codex", cli_version="2")
    night(2, [[P]], cli_version="1")
    assert ask("SELECT * FROM drift_log") == []


# -- alerts


def test_an_alert_shows_the_last_word_on_it(store: RunStore, night: Night, ask: Ask, given: Any) -> None:
    run = night(0, [[P]])
    records = Records(store.root)
    for key in ("a", "b"):
        records.append(Alert(key, "regression", given.NOON, f"{key} fell.", run_id=run.run_id))
    for hour, reason in ((1, "looking"), (2, "meant")):
        moment = given.NOON + timedelta(hours=hour)
        records.append(Acknowledgement("kim", moment, alert_key="a", reason=reason, new_baseline=hour == 2))
    found = ask(
        "SELECT alert_key, spec, engine, arm, state, acknowledged_utc, reason, new_baseline FROM alert_log "
        "ORDER BY alert_key"
    )
    later = datetime(2026, 11, 30, 14)
    assert given.NOON.tzinfo is UTC
    assert found == [
        ("a", "demo", "scripted", "full", "acknowledged", later, "meant", True),
        ("b", "demo", "scripted", "full", "open", None, None, None),
    ]


def test_an_empty_history_has_all_views(tmp_path: Path) -> None:
    from caliper_pipeline.storage.history_views import VIEWS

    store = RunStore(tmp_path)
    history.rebuild(tmp_path / "history.duckdb", store)
    with contextlib.closing(history.connect(tmp_path / "history.duckdb")) as con:
        assert [con.execute(f"FROM {view.name}").fetchall() for view in VIEWS] == [[]] * len(VIEWS)
