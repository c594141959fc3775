import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from subprocess import Popen
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import given as hypothesis_given
from hypothesis import strategies as st

from caliper_pipeline.domain.errors import HistoryTooNew, HistoryUnusable, StorageError
from caliper_pipeline.domain.prices import Price
from caliper_pipeline.domain.records import (
    AbortedRecord,
    AttemptRecord,
    EndRecord,
    HookFailure,
    Line,
    Outcome,
    ResumeRecord,
    RunHeader,
    SkillHeader,
    VerdictRecord,
)
from caliper_pipeline.domain.skills import files_digest
from caliper_pipeline.storage import history, history_open
from caliper_pipeline.storage.history_views import VIEWS
from caliper_pipeline.storage.runs import RunFolder, RunStore

from .history_tools import ask, everything
from .strategies import any_of

Start = Callable[..., "Popen[bytes]"]


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / ".caliper" / "history.duckdb"


# -- what is kept


def test_a_run_is_in_the_history_with_its_scores(store: RunStore, db: Path, given: Any) -> None:
    run = given.whole_run(store, [[Outcome.PASS, Outcome.TASK_FAIL], [Outcome.TIMEOUT, Outcome.PASS]])
    assert history.publish(db, [run]) == 1
    assert ask(db, "SELECT run_id, score, successes, usable, unusable, status FROM runs") == [
        (run.run_id, 0.75, 2, 3, 1, "completed")
    ]
    assert ask(db, "SELECT task_name, score, timeouts FROM scores ORDER BY 1") == [
        ("Task 1", 0.5, 0),
        ("Task 2", 1.0, 1),
    ]
    low, high = ask(db, "SELECT score_low, score_high FROM runs")[0]
    assert 0 < low < 0.75 < high < 1
    assert ask(db, "SELECT count(*) FROM verdicts WHERE is_latest") == [(4,)]


def test_what_was_not_measured_is_null_and_not_zero(store: RunStore, db: Path, given: Any) -> None:
    history.publish(db, [given.whole_run(store, [[Outcome.TIMEOUT, Outcome.INFRA_ERROR]])])
    assert ask(db, "SELECT score, score_low, score_high, activation_score FROM runs") == [(None,) * 4]
    assert ask(db, "SELECT score, score_low, score_high FROM scores") == [(None,) * 3]


def test_every_generation_of_verdicts_is_kept(store: RunStore, db: Path, given: Any) -> None:
    run = given.whole_run(store, [[Outcome.PASS]])
    run.append(given.verdict(1, 1, Outcome.TASK_FAIL, generation=2))
    history.publish(db, [run])
    found = ask(db, "SELECT generation, outcome, is_latest FROM verdicts ORDER BY 1")
    assert found == [(1, "pass", False), (2, "task_fail", True)]
    assert ask(db, "SELECT score FROM runs") == [(0.0,)]


def test_an_attempt_that_awaits_its_verdict_is_there(store: RunStore, db: Path, given: Any) -> None:
    run = store.create(given.run_header(tasks=1))
    run.append(given.attempt())
    history.publish(db, [run])
    assert ask(db, "SELECT attempt_count, graded, status, ended_utc FROM runs") == [(1, 0, None, None)]
    assert ask(db, "SELECT outcome FROM graded_attempts") == [(None,)]


def test_each_time_a_run_was_taken_up_and_by_what_is_there(store: RunStore, db: Path, given: Any) -> None:
    run = given.whole_run(store, dagster_run_id="d-1")
    for number, dagster_run in enumerate(("d-1", None, "d-2"), 3):
        run.append(ResumeRecord(given.NOON + timedelta(hours=number), number, 40 + number, dagster_run))
    run.append(EndRecord(given.NOON, "completed"))
    history.publish(db, [run])
    assert ask(db, "SELECT dagster_run_ids, resumes, k FROM runs") == [(["d-1", "d-2"], 3, 5)]
    assert ask(db, "SELECT place, k, pid, dagster_run_id, hour(resumed_utc) FROM resumes ORDER BY 1") == [
        (1, 3, 43, "d-1", 15),
        (2, 4, 44, None, 16),
        (3, 5, 45, "d-2", 17),
    ]


def test_a_regraded_run_stays_as_completed_as_it_was(store: RunStore, db: Path, given: Any) -> None:
    run = given.whole_run(store)
    run.append(given.verdict(1, 1, Outcome.TASK_FAIL, generation=2))
    history.publish(db, [run])
    assert ask(db, "SELECT status, score FROM runs") == [("completed", 0.75)]


def test_a_run_without_a_line_is_not_there(store: RunStore, db: Path, run: RunFolder) -> None:
    assert history.publish(db, [run]) == 0
    assert ask(db, "SELECT count(*) FROM runs") == [(0,)]


def test_who_may_read_the_history_stays_as_its_owner_said(store: RunStore, db: Path, given: Any) -> None:
    history.publish(db, [given.whole_run(store)])
    db.chmod(0o600)
    history.publish(db, [given.whole_run(store)])
    assert db.stat().st_mode & 0o777 == 0o600


def test_publishing_again_changes_nothing_until_the_run_has_grown(store: RunStore, db: Path, given: Any) -> None:
    run = given.whole_run(store)
    history.publish(db, [run])
    before = db.stat()
    assert history.publish(db, [run]) == 0
    assert db.stat().st_ino == before.st_ino
    run.append(ResumeRecord(given.NOON, 3))
    run.append(given.attempt(1, 3))
    run.append(given.verdict(1, 3))
    run.append(EndRecord(given.NOON, "completed"))
    assert history.publish(db, [run]) == 1
    assert ask(db, "SELECT k, attempt_count, resumes FROM runs") == [(3, 5, 1)]
    assert ask(db, "SELECT count(*), count(DISTINCT attempt) FROM attempts WHERE task_name = 'Task 1'") == [(3, 3)]


def test_texts_and_skill_files_are_kept_once(store: RunStore, db: Path, given: Any) -> None:
    for _ in range(3):
        history.publish(db, [given.whole_run(store)])
    assert ask(db, "SELECT count(*) FROM runs") == [(3,)]
    assert ask(db, "SELECT count(*), count(DISTINCT digest) FROM texts") == [(4, 4)]
    assert ask(db, "SELECT path FROM skill_files") == [("SKILL.md",)]
    query = "SELECT DISTINCT text FROM tasks JOIN texts ON digest = prompt_digest ORDER BY 1"
    assert ask(db, query) == [("Do thing 1.",), ("Do thing 2.",)]


def test_times_are_utc_whatever_the_zone_of_who_asks(
    store: RunStore, db: Path, given: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    started = datetime.fromisoformat("2026-11-20T18:30:00.123456+09:00")
    history.publish(db, [given.whole_run(store, started_at=started)])
    query = "SELECT started_utc, started_utc::VARCHAR FROM runs"
    assert ask(db, query) == [(datetime(2026, 11, 20, 9, 30, 0, 123456), "2026-11-20 09:30:00.123456")]


# -- nothing is lost on the way


def test_every_input_of_a_run_has_its_column(store: RunStore, db: Path, given: Any) -> None:
    """Fails when a header gains a field that the history does not keep."""
    header: RunHeader = given.run_header(
        tasks=2,
        model="a/b:c",
        ablated=("mcp:mail", "tides"),
        isolated=False,
        fail_fast=2,
        judge_backend="claude-code",
        judge_model="m",
        judge_prompt_version="123456789abc",
        mcp_servers=("files",),
        forbidden_files=("*.eval.yaml",),
        loaded_user_customizations=("skill:x",),
        cli_version="2.1",
        judge_cli_version="2.2",
        product_version="0.1.0",
        python_version="3.11.7",
        host="box",
        platform="Linux",
        cpu_count=2,
        git_commit="abc",
        git_dirty=True,
        origin="dagster",
        dagster_run_id="d-1",
        pid=42,
        limits={"setup_seconds": 600.0, "retries": 2.0},
        prices={"a/b:c": Price(3.0, 15.0, 0.3), "*": Price(1.0, 2.0)},
    )
    texts = {"expect": "yes", "setup": "true", "cleanup": "false", "history": "[]"}
    digests = {key: given.sha256(text) for key, text in texts.items()}
    task = replace(
        header.tasks[0],
        **texts,
        assert_path="check.py",
        activates=("tides",),
        digests={**header.tasks[0].digests, **digests, "activates": given.sha256("tides")},
    )
    files = {"SKILL.md": "sha256:1", "a/b.py": "sha256:2"}
    skill = SkillHeader("tides", "/s/SKILL.md", "git", files_digest(files), False, "words", "repo", "sha", True, files)
    header = replace(header, tasks=(task, header.tasks[1]), skills=(skill, replace(skill, name="moon", installed=True)))
    for value in (header, task, skill):
        for field in fields(value):
            assert getattr(value, field.name) not in (None, "", (), {}), f"{field.name} should be tried with a value"
    run = store.create(header)
    run.append(given.attempt())
    history.publish(db, [run])
    with contextlib.closing(history.connect(db)) as con:
        assert history.read_header(con, header.run_id) == header


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@hypothesis_given(
    st.lists(any_of(AttemptRecord) | any_of(VerdictRecord) | any_of(HookFailure), min_size=1, max_size=12),
    st.lists(any_of(ResumeRecord), max_size=2),
)
def test_every_record_comes_back_from_the_database_as_it_was(
    tmp_path_factory: Any, given: Any, lines: list[Line], resumes: list[ResumeRecord]
) -> None:
    root = tmp_path_factory.mktemp("root")
    store, db = RunStore(root), root / "history.duckdb"
    unique = {(line.type, line.task_id, line.attempt, getattr(line, "generation", 0)): line for line in lines}  # type: ignore[union-attr]
    records = [to_the_millisecond(line) for line in unique.values() if not isinstance(line, HookFailure)]
    failures = [line for line in lines if isinstance(line, HookFailure)]
    run = store.create(given.run_header(tasks=1))
    for line in [*resumes, *records, *failures, AbortedRecord("task-001", "Task 1", 1)]:
        run.append(line)
    history.publish(db, [run])
    with contextlib.closing(history.connect(db)) as con:
        found = history.read_lines(con, run.run_id)
    expected = [line for kind in (AttemptRecord, VerdictRecord) for line in records if isinstance(line, kind)]
    assert found == [*expected, *failures, AbortedRecord("task-001", "Task 1", 1), *resumes]


def to_the_millisecond(line: Line) -> Line:
    names = ("agent_seconds", "setup_seconds", "judge_seconds")
    found = {name: getattr(line, name) for name in names if getattr(line, name, None) is not None}
    return replace(line, **{name: round(value, 3) for name, value in found.items()})


def test_numbers_and_texts_beyond_all_measure_do_not_stop_a_run(store: RunStore, db: Path, given: Any) -> None:
    run = store.create(given.run_header(tasks=1))
    usage = replace(given.attempt().usage, input_tokens=10**40)
    run.append(given.attempt(usage=usage, output="x" * 40_000 + "end"))
    run.append(given.verdict(outcome=Outcome.TASK_FAIL, assert_evidence='{"a": "\\ud800"} \0'))
    history.publish(db, [run])
    assert ask(db, "SELECT input_tokens, length(output), right(output, 3) FROM attempts") == [(2**63 - 1, 60, "end")]


def test_long_texts_stay_in_the_evidence_except_why_an_attempt_did_not_pass(
    store: RunStore, db: Path, given: Any
) -> None:
    run = store.create(given.run_header(tasks=4))
    for task in range(1, 5):
        run.append(given.attempt(task, output="a" * 500 if task < 4 else "Done."))
    long = {"assert_evidence": "e" * 500, "autorater_reasoning": "r" * 500}
    run.append(given.verdict(1, **{**long, "assert_evidence": None}))
    run.append(given.verdict(2, outcome=Outcome.TASK_FAIL, **long))
    run.append(given.verdict(3, outcome=Outcome.JUDGE_ERROR, **{**long, "assert_evidence": None}))
    run.append(given.verdict(4, autorater_reasoning="It is there."))
    history.publish(db, [run])
    found = ask(
        db,
        "SELECT output, assert_evidence, autorater_reasoning FROM attempts JOIN verdicts "
        "USING (run_id, task_id, attempt) ORDER BY task_id",
    )
    assert found == [
        (None, None, None),
        ("a" * 60, "e" * 120, None),
        ("a" * 60, None, "r" * 120),
        ("Done.", None, "It is there."),
    ]


def test_a_pipe_is_refused_without_being_opened(db: Path) -> None:
    db.parent.mkdir(exist_ok=True)
    os.mkfifo(db)
    with pytest.raises(HistoryUnusable, match="no plain file"):
        history.connect(db)


# -- documented in the database itself


def test_every_table_column_view_and_macro_explains_itself(store: RunStore, db: Path, run: RunFolder) -> None:
    history.publish(db, [run])
    with contextlib.closing(history.connect(db)) as con:
        silent = con.execute(
            "SELECT table_name FROM duckdb_tables() WHERE NOT internal AND comment IS NULL UNION ALL "
            "SELECT view_name FROM duckdb_views() WHERE NOT internal AND comment IS NULL UNION ALL "
            "SELECT table_name || '.' || column_name FROM duckdb_columns() WHERE NOT internal AND comment IS NULL "
            "UNION ALL SELECT function_name FROM duckdb_functions() WHERE NOT internal AND comment IS NULL"
        ).fetchall()
        names = {
            name for (name,) in con.execute("SELECT table_name FROM duckdb_tables() WHERE NOT internal").fetchall()
        }
    assert silent == []
    assert {"runs", "attempts", "verdicts", "scores", "skills", "alerts"} <= names


def test_the_example_of_every_view_works(store: RunStore, db: Path, given: Any) -> None:
    history.publish(db, [given.whole_run(store)])
    for view in VIEWS:
        ask(db, view.example)
        assert ask(db, f"SELECT comment FROM duckdb_views() WHERE view_name = '{view.name}'")[0][0].endswith(
            view.example
        )


# -- one file, many programs


def test_a_reader_s_connection_is_read_only(store: RunStore, db: Path, given: Any) -> None:
    history.publish(db, [given.whole_run(store)])
    with contextlib.closing(history.connect(db)) as con, pytest.raises(duckdb.Error, match="read-only"):
        con.execute("DELETE FROM runs")


def test_an_open_reader_keeps_what_it_saw_and_a_new_one_sees_news(store: RunStore, db: Path, given: Any) -> None:
    history.publish(db, [given.whole_run(store)])
    with contextlib.closing(history.connect(db)) as old:
        assert old.execute("SELECT count(*) FROM runs").fetchall() == [(1,)]
        history.publish(db, [given.whole_run(store)])
        assert old.execute("SELECT count(*) FROM runs").fetchall() == [(1,)]
        assert ask(db, "SELECT count(*) FROM runs") == [(2,)]


HOLD_LIVE_FILE = """
import duckdb, sys
con = duckdb.connect(sys.argv[1])
con.execute("CREATE TABLE mine AS SELECT 7 AS n")
print("held", flush=True)
sys.stdin.readline()
con.execute("INSERT INTO mine VALUES (8)")
print("written", flush=True)
sys.stdin.readline()
"""


def test_a_program_that_writes_into_the_live_file_stops_nobody(
    store: RunStore, db: Path, given: Any, python: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_open, "PATIENCE_SECONDS", 0.1)
    history.publish(db, [given.whole_run(store)])
    other = python(HOLD_LIVE_FILE, db)
    assert other.stdin is not None and other.stdout is not None and other.stdout.readline() == b"held\n"
    assert ask(db, "SELECT count(*), (SELECT n FROM mine) FROM runs") == [(1, 7)]
    assert history.publish(db, [given.whole_run(store)]) == 1
    assert ask(db, "SELECT count(*), (SELECT n FROM mine) FROM runs") == [(2, 7)]
    # What it writes now goes to the file it has open, which nobody else sees any more.
    other.stdin.write(b"\n")
    other.stdin.flush()
    assert other.stdout.readline() == b"written\n"
    assert ask(db, "SELECT count(*) FROM runs") == [(2,)]
    assert history.publish(db, [given.whole_run(store)]) == 1
    os.kill(other.pid, signal.SIGKILL)
    other.communicate()
    assert ask(db, "SELECT count(*) FROM runs") == [(3,)]
    assert history.publish(db, [given.whole_run(store)]) == 1


PUBLISH = """
import sys
sys.path.insert(0, sys.argv[4])
from datetime import UTC, datetime
from pathlib import Path
from storage.conftest import whole_run
from caliper_pipeline.storage import history
from caliper_pipeline.storage.runs import RunStore
store = RunStore(Path(sys.argv[1]))
for number in range(int(sys.argv[3])):
    run = whole_run(store, started_at=datetime.now(UTC))
    history.publish(Path(sys.argv[2]), [run])
    print(run.run_id, flush=True)
"""
TESTS = Path(__file__).parents[1]


def test_a_kill_while_publishing_leaves_each_run_whole_or_absent(
    store: RunStore, db: Path, given: Any, python: Start
) -> None:
    history.publish(db, [given.whole_run(store)])
    for lines in (0, 1, 2, 3):
        writer = python(PUBLISH, store.root, db, 1000, TESTS)
        assert writer.stdout is not None
        for _ in range(lines + 1):
            writer.stdout.readline()
        os.kill(writer.pid, signal.SIGKILL)
        writer.communicate()
        assert ask(
            db, "SELECT count(*) FROM runs r WHERE 4 <> (SELECT count(*) FROM attempts a WHERE a.run_id = r.run_id)"
        ) == [(0,)]
        assert ask(db, "SELECT count(*) FROM runs")[0][0] >= lines + 1
    history.catch_up(db, store)
    finished = {run.run_id for run in store.runs() if run.state().end is not None}
    assert finished <= {run_id for (run_id,) in ask(db, "SELECT run_id FROM runs")}
    caught_up = everything(db)
    history.rebuild(db, store)
    assert everything(db) == caught_up
    assert sorted(path.name for path in db.parent.iterdir() if "duckdb" in path.name) == [
        ".history.duckdb.seen",
        "history.duckdb",
        "history.duckdb.lock",
    ]


# -- a file that is something else


@pytest.mark.parametrize("content", [b"my notes, by hand", b"SQLite format 3\0" + b"\0" * 84, b"PK\3\4"])
def test_a_foreign_file_is_refused_and_left_as_it_is(
    store: RunStore, tmp_path: Path, given: Any, content: bytes
) -> None:
    db = tmp_path / "notes.duckdb"
    db.write_bytes(content)
    for use in (
        lambda: history.publish(db, [given.whole_run(store)]),
        lambda: history.connect(db),
        lambda: history.rebuild(db, store),
    ):
        with pytest.raises(HistoryUnusable, match=r"notes\.duckdb is not a history"):
            use()
    assert db.read_bytes() == content


def test_a_folder_is_refused_and_an_empty_file_taken_over(store: RunStore, tmp_path: Path, given: Any) -> None:
    folder, empty = tmp_path / "d.duckdb", tmp_path / "e.duckdb"
    folder.mkdir()
    empty.touch()
    with pytest.raises(HistoryUnusable, match=r"d\.duckdb cannot be used as a history: Is a directory"):
        history.publish(folder, [given.whole_run(store)])
    assert history.publish(empty, [given.whole_run(store)]) == 1


def test_a_database_of_something_else_is_refused(store: RunStore, tmp_path: Path, given: Any) -> None:
    db = tmp_path / "shop.duckdb"
    with contextlib.closing(duckdb.connect(str(db))) as con:
        con.execute("CREATE TABLE orders (n INTEGER)")
    before = db.read_bytes()
    for use in (lambda: history.publish(db, [given.whole_run(store)]), lambda: history.connect(db)):
        with pytest.raises(HistoryUnusable, match=r"shop\.duckdb cannot be used: it is a database of something else"):
            use()
    assert db.read_bytes() == before


def test_a_history_of_a_newer_version_is_refused(store: RunStore, db: Path, given: Any) -> None:
    history.publish(db, [given.whole_run(store)])
    with contextlib.closing(duckdb.connect(str(db))) as con:
        con.execute("INSERT INTO schema_changes VALUES (999, 'from the future', now()::TIMESTAMP)")
    before = db.read_bytes()
    for use in (lambda: history.publish(db, [given.whole_run(store)]), lambda: history.connect(db)):
        with pytest.raises(HistoryTooNew, match="written by a newer version"):
            use()
    assert db.read_bytes() == before


def test_no_history_yet_is_said(db: Path) -> None:
    with pytest.raises(HistoryUnusable, match="There is no history at"):
        history.connect(db)
    assert history.history_json(db) == {"run_count": 0, "attempt_count": 0, "runs": []}


def test_a_damaged_history_is_told_and_made_anew(store: RunStore, db: Path, given: Any) -> None:
    history.publish(db, [given.whole_run(store)])
    damaged = bytearray(db.read_bytes())
    damaged[4096:] = b"z" * (len(damaged) - 4096)
    db.write_bytes(damaged)
    with pytest.raises(HistoryUnusable, match=r"history\.duckdb cannot be read"):
        history.connect(db)
    with pytest.raises(StorageError, match=r"history\.duckdb cannot be read"):
        history.publish(db, [given.whole_run(store)])
    assert history.catch_up(db, store) == 2
    assert ask(db, "SELECT count(*) FROM runs") == [(2,)]
    assert (db.parent / "history.duckdb.damaged").read_bytes() == damaged


def test_a_history_that_cannot_be_written_names_it(store: RunStore, tmp_path: Path, given: Any) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"history\.duckdb"):
        history.publish(tmp_path / "file" / "history.duckdb", [given.whole_run(store)])


# -- catching up


def test_catching_up_takes_what_is_missing_or_has_grown(store: RunStore, db: Path, given: Any) -> None:
    first, second = given.whole_run(store), given.whole_run(store)
    assert history.catch_up(db, store) == 2
    assert history.catch_up(db, store) == 0
    second.append(given.verdict(1, 1, Outcome.TASK_FAIL, generation=2))
    third = given.whole_run(store)
    assert history.catch_up(db, store) == 2
    assert sorted(ask(db, "SELECT run_id, score FROM runs")) == sorted(
        [(first.run_id, 1.0), (second.run_id, 0.75), (third.run_id, 1.0)]
    )


HOLD = """
import sys
from pathlib import Path
from caliper_pipeline.storage.runs import RunFolder
with RunFolder(Path(sys.argv[1])).hold():
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_a_run_that_is_at_work_publishes_itself_and_a_killed_one_is_taken(
    store: RunStore, db: Path, given: Any, python: Start
) -> None:
    run = store.create(given.run_header(tasks=1))
    run.append(given.attempt())
    owner = python(HOLD, run.path)
    assert owner.stdout is not None and owner.stdout.readline() == b"held\n"
    assert history.catch_up(db, store) == 0
    os.kill(owner.pid, signal.SIGKILL)
    owner.communicate()
    assert history.catch_up(db, store) == 1
    assert ask(db, "SELECT status, attempt_count FROM runs") == [(None, 1)]


def test_a_damaged_run_costs_only_itself(store: RunStore, db: Path, given: Any) -> None:
    bad, good = given.whole_run(store), given.whole_run(store)
    (bad.path / "run.json").write_text("{")
    assert history.catch_up(db, store) == 1
    assert history.rebuild(db, store) == 1
    assert ask(db, "SELECT run_id FROM runs") == [(good.run_id,)]


def test_the_history_in_brief_is_sorted_by_instant(store: RunStore, db: Path, given: Any) -> None:
    for hours in (2, 1, 3):
        history.publish(db, [given.whole_run(store, [[Outcome.PASS]], started_at=given.NOON + timedelta(hours=hours))])
    brief = json.loads(json.dumps(history.history_json(db)))
    assert (brief["run_count"], brief["attempt_count"]) == (3, 3)
    assert [run["timestamp_utc"] for run in brief["runs"]] == [f"2026-11-30T{13 + n}:05:00Z" for n in range(3)]
    assert brief["runs"][0]["tasks"][0]["attempts"][0]["usage"]["total_tokens"] == 170
    assert datetime.fromisoformat(brief["runs"][0]["timestamp_utc"]).tzinfo is UTC


FULL_DISK = """
import resource, signal, sys
sys.path.insert(0, sys.argv[4])
from pathlib import Path
from storage.conftest import whole_run
from caliper_pipeline.domain.errors import StorageError
from caliper_pipeline.storage import history
from caliper_pipeline.storage.runs import RunStore
run = whole_run(RunStore(Path(sys.argv[1])))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
history.warm_up()
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY))
try:
    history.publish(Path(sys.argv[2]), [run])
except StorageError as error:
    print(error)
"""


@pytest.mark.parametrize("room", [5_000, 200_000, 700_000])
def test_a_full_disk_is_told_and_leaves_the_history_as_it_was(
    store: RunStore, db: Path, given: Any, python: Start, room: int
) -> None:
    for _ in range(2):
        told = python(FULL_DISK, store.root, db, room, TESTS).communicate()[0].decode()
        assert "history.duckdb" in told and "Traceback" not in told
        assert not db.exists()
    history.catch_up(db, store)
    before = db.read_bytes()
    told = python(FULL_DISK, store.root, db, len(before) + room, TESTS).communicate()[0].decode()
    if told:
        assert "history.duckdb" in told
        assert db.read_bytes() == before
    assert history.catch_up(db, store) in (0, 1)
    assert ask(db, "SELECT count(*) FROM runs") == [(3,)]
    assert not [path for path in db.parent.iterdir() if ".new" in path.name]


@pytest.mark.skipif(sys.platform != "linux", reason="limits the size of files as a full disk does")
def test_a_history_that_cannot_be_written_is_not_called_damaged(tmp_path: Path) -> None:
    program = (
        "import pathlib, resource, signal, sys\n"
        "from caliper_pipeline.storage import history\n"
        "from caliper_pipeline.storage.runs import RunStore\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "import duckdb\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "root = pathlib.Path(sys.argv[1])\n"
        "history.rebuild(root / 'history.duckdb', RunStore(root))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert "StorageError" in done.stderr
    assert "cannot be written" in done.stderr
    assert "Move it away" not in done.stderr
