"""`caliper history`: what there is, whether it is whole, and removing old evidence."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest
from click.testing import Result
from storage.conftest import attempt, run_header, verdict

from caliper_pipeline.domain.errors import BadInput, HistoryUnusable
from caliper_pipeline.domain.records import EndRecord
from caliper_pipeline.storage import history
from caliper_pipeline.storage.evidence import Evidence
from caliper_pipeline.storage.records import Alert, Label, Records
from caliper_pipeline.storage.runs import RunFolder, RunStore

Run = Callable[..., Result]
NOW = datetime.now(UTC)


@pytest.fixture
def store(project: Path) -> RunStore:
    return RunStore(project)


def record(store: RunStore, days_ago: float, *, judged: bool = True) -> RunFolder:
    """A run of one attempt with a good kilobyte of evidence."""
    started = NOW - timedelta(days=days_ago)
    run = store.create(run_header(tasks=1, started_at=started, simulated=False))
    with run.hold():
        folder = run.save_evidence("Task 1", 1, Evidence(final_answer="done", raw_stdout=b"x" * 1000))
        run.append(attempt(started_at=started, ended_at=started, evidence=folder))
        if judged:
            run.append(verdict(graded_at=started))
        run.append(EndRecord(started, "completed"))
    return run


def db_of(store: RunStore) -> Path:
    return history.history_path(store.root)


# -- what there is


def test_an_empty_project_has_no_history(caliper: Run, project: Path) -> None:
    for command in ("", "check", "compact", "rebuild"):
        done = caliper("history", *command.split())
        assert (done.exit_code, done.stdout) == (0, "")
        assert "There is no history here yet" in done.stderr
    assert not (project / ".caliper").exists()


def test_it_says_what_it_holds(caliper: Run, store: RunStore) -> None:
    first, last = record(store, 3), record(store, 1)
    records = Records(store.root)
    records.append(Label(first.run_id, "task-001", "Task 1", 1, True, "kim", NOW))
    records.append(Alert("a", "drift", NOW, "It changed."))
    done = caliper("history")
    facts = dict(re.findall(r"^(from, to|\S+) +(.*)$", done.stdout, re.MULTILINE))
    assert facts["file"].startswith(str(db_of(store)))
    assert facts["runs"] == "2; 1 spec, 1 series"
    assert facts["attempts"] == "2; 2 verdicts"
    assert (
        facts["from, to"]
        == f"{NOW - timedelta(days=3):%Y-%m-%d %H:%M} UTC, {NOW - timedelta(days=1):%Y-%m-%d %H:%M} UTC"
    )
    assert facts["labels"] == "1"
    assert facts["alerts"] == "1, 1 open; 0 acknowledgements"
    assert facts["evidence"].endswith("of 2 runs")
    assert last.run_id not in done.stdout


def test_it_names_runs_that_are_not_in_it(caliper: Run, store: RunStore) -> None:
    record(store, 3)
    begun = store.create(run_header())
    done = caliper("history")
    assert f"not in it  {begun.run_id}" in done.stdout


def test_simulated_runs_are_marked(caliper: Run, store: RunStore) -> None:
    run = record(store, 3)
    header = json.loads((run.path / "run.json").read_bytes())
    (run.path / "run.json").write_text(json.dumps({**header, "simulated": True}), encoding="utf-8")
    assert "1, 1 of them simulated" in caliper("history").stdout


# -- is it whole


def test_a_whole_history_is_found_whole(caliper: Run, store: RunStore) -> None:
    record(store, 3)
    caliper("history")
    for arguments in ((), ("--deep",)):
        done = caliper("history", "check", *arguments)
        assert (done.exit_code, done.stderr) == (0, "")
        assert "is whole" in done.stdout


def test_a_check_says_what_is_wrong_and_fails(caliper: Run, store: RunStore) -> None:
    lost, damaged = record(store, 3), record(store, 2)
    gone = record(store, 1)
    (damaged.path / "run.json").write_text("{", encoding="ascii")
    caliper("history")
    shutil.rmtree(lost.path / "evidence")
    shutil.rmtree(gone.path)
    with closing(duckdb.connect(str(db_of(store)))) as con:
        con.execute("INSERT INTO alerts (alert_key, raised_utc, kind, message) VALUES ('a', now(), 'drift', 'x')")
    done = caliper("history", "check")
    assert done.exit_code == 1
    for about in (
        f"1 run is not in it as it is on disk: {damaged.run_id}.",
        f"1 run is no longer on disk: {gone.run_id}.",
        f"1 folder of evidence is missing, and was not pruned: {lost.path}/evidence/",
        "alerts: 0 in ",
    ):
        assert about in done.stdout


def test_what_the_history_takes_in_by_itself_is_nothing_wrong(caliper: Run, store: RunStore) -> None:
    run = record(store, 3)
    caliper("history")
    run.append(verdict(generation=2))
    record(store, 2)
    Records(store.root).append(Alert("a", "drift", NOW, "It changed."))
    assert caliper("history", "check").exit_code == 0


def test_a_file_among_the_runs_is_nobody_s_run(caliper: Run, store: RunStore) -> None:
    record(store, 3)
    (store.path / "notes").touch()
    for command in ((), ("check",), ("check", "--deep"), ("rebuild",), ("prune", "--keep-bytes", "1GB")):
        assert caliper("history", *command).exit_code == 0


def test_a_deep_check_reads_every_line(caliper: Run, store: RunStore) -> None:
    run = record(store, 3)
    log = run.path / "attempts.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"verdict"', b'"verdict'))
    history.rebuild(db_of(store), store)
    assert caliper("history", "check").exit_code == 0
    done = caliper("history", "check", "--deep")
    assert done.exit_code == 1
    assert f"1 lines of {log} cannot be read." in done.stdout


def test_a_check_finds_rows_that_belong_to_nothing(caliper: Run, store: RunStore) -> None:
    record(store, 3)
    caliper("history")
    with closing(duckdb.connect(str(db_of(store)))) as con:
        con.execute("UPDATE attempts SET run_id = 'nobody'")
    done = caliper("history", "check")
    assert done.exit_code == 1
    assert "attempts without a run" in done.stdout


def test_a_damaged_file_is_found_and_rebuilding_mends_it(caliper: Run, store: RunStore) -> None:
    record(store, 3)
    caliper("history")
    data = db_of(store).read_bytes()
    db_of(store).write_bytes(data[: len(data) // 2])
    assert caliper("history", "check").exit_code == 1
    done = caliper("history", "rebuild")
    assert done.stdout == "The history was made anew: 1 run.\n"
    assert caliper("history", "check").exit_code == 0


@pytest.mark.parametrize("fault", ["folder gone", "header damaged"])
def test_rows_that_nothing_else_holds_are_not_lost_unasked(caliper: Run, store: RunStore, fault: str) -> None:
    record(store, 3)
    gone = record(store, 2)
    caliper("history")
    if fault == "folder gone":
        shutil.rmtree(gone.path)
    else:
        (gone.path / "run.json").write_text("{}", encoding="ascii")
    done = caliper("history", "rebuild")
    assert isinstance(done.exception, BadInput)
    assert gone.run_id in done.exception.message
    assert caliper("history", "rebuild", "--yes").stdout == "The history was made anew: 1 run.\n"


def test_what_rebuilding_does_not_touch_is_not_called_mendable_by_it(caliper: Run, store: RunStore) -> None:
    record(store, 3)
    db_of(store).write_text("my notes", encoding="ascii")
    for command in ("check", "rebuild"):
        done = caliper("history", command)
        assert isinstance(done.exception, HistoryUnusable)
        assert "Move it away" in str(done.exception)
        assert "rebuild makes anew" not in done.output


def test_compacting_keeps_every_row(caliper: Run, store: RunStore) -> None:
    record(store, 3)
    caliper("history")
    before = history.history_json(db_of(store))
    assert re.match(r"[\d.]+ [kM]B before, [\d.]+ [kM]B now\.\n", caliper("history", "compact").stdout)
    assert history.history_json(db_of(store)) == before


# -- pruning


def has_evidence(run: RunFolder) -> bool:
    return (run.path / "evidence").exists()


def test_evidence_goes_by_age_and_the_rows_stay(caliper: Run, store: RunStore) -> None:
    old, new = record(store, 100), record(store, 10)
    caliper("history")
    before = history.history_json(db_of(store))
    done = caliper("history", "prune", "--older-than", "90d", "--yes")
    assert re.match(r"Freed [\d.]+ kB: the evidence of 1 run\.", done.stdout)
    assert (has_evidence(old), has_evidence(new)) == (False, True)
    assert history.history_json(db_of(store)) == before
    assert caliper("history", "check").exit_code == 0
    assert "; pruned of 1 run" in caliper("history").stdout


def test_evidence_goes_by_size_the_oldest_first(caliper: Run, store: RunStore) -> None:
    runs = [record(store, days) for days in (30, 20, 10)]
    caliper("history", "prune", "--keep-bytes", "3kB", "--yes")
    assert [has_evidence(run) for run in runs] == [False, True, True]


def test_age_and_size_together_both_hold(caliper: Run, store: RunStore) -> None:
    runs = [record(store, days) for days in (30, 20, 10)]
    caliper("history", "prune", "--keep-bytes", "0", "--older-than", "15d", "--yes")
    assert [has_evidence(run) for run in runs] == [False, False, True]


def test_a_dry_run_says_what_it_would_free_and_frees_nothing(caliper: Run, store: RunStore) -> None:
    run = record(store, 30)
    done = caliper("history", "prune", "--older-than", "2w", "--dry-run")
    assert done.stdout.startswith(run.run_id)
    assert re.search(r"Would free [\d.]+ kB of [\d.]+ kB: the evidence of 1 run\.", done.stdout)
    assert has_evidence(run)


def test_nothing_goes_without_a_yes(caliper: Run, store: RunStore) -> None:
    run = record(store, 30)
    assert caliper("history", "prune", "--older-than", "1d").exit_code == 1
    assert has_evidence(run)


def test_a_run_with_attempts_that_are_not_judged_stays(caliper: Run, store: RunStore) -> None:
    run = record(store, 30, judged=False)
    done = caliper("history", "prune", "--older-than", "1d", "--yes")
    assert f"{run.run_id} stays: 1 of its attempts are not judged yet" in done.stderr
    assert has_evidence(run)


def test_a_run_that_is_at_work_stays(caliper: Run, store: RunStore) -> None:
    run = record(store, 30)
    with run.hold():
        done = caliper("history", "prune", "--older-than", "1d", "--yes")
    assert f"{run.run_id} stays: somebody is at work on it" in done.stderr
    assert has_evidence(run)


def test_a_labelled_run_stays_unless_it_is_meant(caliper: Run, store: RunStore) -> None:
    run = record(store, 30)
    Records(store.root).append(Label(run.run_id, "task-001", "Task 1", 1, True, "kim", NOW))
    assert "people have labelled it" in caliper("history", "prune", "--older-than", "1d", "--yes").stderr
    assert has_evidence(run)
    caliper("history", "prune", "--older-than", "1d", "--yes", "--labelled")
    assert not has_evidence(run)


def test_a_damaged_run_keeps_no_other(caliper: Run, store: RunStore) -> None:
    damaged, run = record(store, 40), record(store, 30)
    (damaged.path / "attempts.jsonl").unlink()
    (damaged.path / "attempts.jsonl").mkdir()
    done = caliper("history", "prune", "--older-than", "1d", "--yes")
    assert f"{damaged.run_id} stays: it cannot be read" in done.stderr
    assert not has_evidence(run)


@pytest.mark.parametrize(
    "arguments",
    [(), ("--older-than", "soon"), ("--older-than", "90"), ("--keep-bytes", "much"), ("--keep-bytes", "-1GB")],
)
def test_what_may_go_must_be_said_clearly(caliper: Run, store: RunStore, arguments: tuple[str, ...]) -> None:
    run = record(store, 30)
    assert caliper("history", "prune", *arguments, "--yes").exit_code in (1, 2)
    assert has_evidence(run)


# -- starting fast


@pytest.mark.parametrize(
    "arguments", [("--help",), ("sql", "--help"), ("history", "--help"), ("history", "prune", "--help")]
)
def test_help_costs_no_heavy_import(arguments: tuple[str, ...]) -> None:
    heavy = ("duckdb", "pandas", "dagster", "pydantic", "yaml", "rich")
    assert imported_by(*arguments, of=heavy) == []


def test_a_query_imports_no_more_than_it_needs(caliper: Run, store: RunStore) -> None:
    record(store, 3)
    heavy = ("pandas", "numpy", "pyarrow", "dagster", "pydantic", "yaml", "duckdb")
    assert imported_by("sql", "--format", "csv", "latest_runs", of=heavy) == ["duckdb"]


def imported_by(*arguments: str, of: tuple[str, ...]) -> list[str]:
    code = (
        "import sys\nfrom caliper_pipeline.interfaces.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print(*[name for name in {of!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return done.stderr.split()
