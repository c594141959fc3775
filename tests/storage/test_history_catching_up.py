"""The history comes up to what lies on disk by itself, whatever became of its file."""

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from subprocess import Popen
from typing import TYPE_CHECKING, Any

import pytest

from caliper_pipeline.domain.errors import HistoryTooNew, HistoryUnusable, StorageError
from caliper_pipeline.domain.records import Outcome
from caliper_pipeline.storage import history, history_filling, history_seen
from caliper_pipeline.storage.records import Acknowledgement, Alert, Label, Records
from caliper_pipeline.storage.runs import RunFolder, RunStore

from .history_tools import ask, everything

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Start = Callable[..., "Popen[bytes]"]


@pytest.fixture
def db(store: RunStore) -> Path:
    return history.history_path(store.root)


@pytest.fixture
def records(store: RunStore) -> Records:
    return Records(store.root)


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each time that all runs were looked at."""
    found: list[int] = []
    real = history_filling._logs

    def looking(store: RunStore) -> dict[str, int]:
        found.append(1)
        return real(store)

    monkeypatch.setattr(history_filling, "_logs", looking)
    return found


@contextlib.contextmanager
def opened(store: RunStore, told: Callable[[str], None] | None = None) -> "Iterator[DuckDBPyConnection]":
    with contextlib.closing(history.open_current(store.root, told)) as con:
        yield con


def runs_in(store: RunStore) -> int:
    with opened(store) as con:
        (count,) = con.execute("SELECT count(*) FROM runs").fetchall()[0]
        return int(count)


def settle(store: RunStore, records: Records) -> None:
    """Makes what lies on disk look as if it had been there for a while."""
    past = time.time_ns() - 10**10 + 17
    for folder in (store.path, records.imported):
        if folder.exists():
            os.utime(folder, ns=(past, past))


# -- without being asked


def test_opening_publishes_what_the_history_lacks(store: RunStore, given: Any) -> None:
    given.whole_run(store)
    assert runs_in(store) == 1
    run = given.whole_run(store)
    assert runs_in(store) == 2
    run.append(given.verdict(1, 1, Outcome.TASK_FAIL, generation=2))
    with opened(store) as con:
        assert con.execute("SELECT score FROM runs WHERE run_id = $1", [run.run_id]).fetchall() == [(0.75,)]


def test_a_project_without_runs_has_an_empty_history(store: RunStore) -> None:
    with pytest.raises(HistoryUnusable, match="no runs under"):
        history.open_current(store.root)
    (store.root / ".caliper").mkdir()
    assert runs_in(store) == 0


def test_where_nothing_is_new_no_run_is_looked_at(
    store: RunStore, records: Records, given: Any, looked_at: list[int]
) -> None:
    given.whole_run(store)
    killed = store.create(given.run_header(tasks=1))
    killed.append(given.attempt())
    records.append(Label(killed.run_id, "task-001", "Task 1", 1, True, "ada", given.NOON))
    settle(store, records)
    assert runs_in(store) == 2
    looked_at.clear()
    assert [runs_in(store) for _ in range(3)] == [2, 2, 2]
    assert looked_at == []


def a_new_run(store: RunStore, records: Records, given: Any) -> None:
    given.whole_run(store)


def more_of_an_old_run(store: RunStore, records: Records, given: Any) -> None:
    run = RunFolder(store.path / store.run_ids()[0])
    with run.hold():
        run.append(given.verdict(1, 1, Outcome.TASK_FAIL, generation=2))


def more_of_a_killed_run(store: RunStore, records: Records, given: Any) -> None:
    # Without giving the folder of runs another time: the killed run is looked at by itself.
    folder = store.path.stat()
    [killed] = [run for run in store.runs() if run.state().end is None]
    killed.append(given.verdict())
    os.utime(store.path, ns=(folder.st_atime_ns, folder.st_mtime_ns))


def a_label(store: RunStore, records: Records, given: Any) -> None:
    records.append(Label("r", "task-001", "Task 1", 1, True, "ada", given.NOON))


def an_imported_file(store: RunStore, records: Records, given: Any) -> None:
    records.keep_imported(
        b'{"run": {"spec": "x", "timestamp": "2026-11-20T10:00:00Z", "k": 1, "backend": "pi"}, "task_results": []}'
    )


@pytest.mark.parametrize("news", [a_new_run, more_of_an_old_run, more_of_a_killed_run, a_label, an_imported_file])
def test_every_sort_of_news_is_noticed(
    store: RunStore, records: Records, given: Any, news: Callable[[RunStore, Records, Any], None]
) -> None:
    given.whole_run(store)
    store.create(given.run_header(tasks=1)).append(given.attempt())
    settle(store, records)
    db = history.history_path(store.root)
    with opened(store):
        before = everything(db)
    news(store, records, given)
    with opened(store):
        after = everything(db)
    assert after != before
    history.rebuild(db, store)
    assert everything(db) == after


def test_a_change_at_the_very_moment_of_looking_is_not_missed(store: RunStore, records: Records, given: Any) -> None:
    given.whole_run(store)
    moment = time.time_ns()
    os.utime(store.path, ns=(moment, moment))
    assert runs_in(store) == 1
    given.whole_run(store)
    os.utime(store.path, ns=(moment, moment))  # as a clock that ticks slowly would have it
    assert runs_in(store) == 2


def test_a_clock_that_was_set_back_hides_nothing(store: RunStore, records: Records, given: Any) -> None:
    given.whole_run(store)
    future = time.time_ns() + 10**14 + 3
    os.utime(store.path, ns=(future, future))
    assert runs_in(store) == 1
    given.whole_run(store, started_at=given.NOON - timedelta(days=1))
    assert runs_in(store) == 2


HOLD = """
import sys
from pathlib import Path
from caliper_pipeline.storage.runs import RunFolder
with RunFolder(Path(sys.argv[1])).hold():
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_a_run_at_work_is_not_shown_half_and_appears_when_it_ends_or_dies(
    store: RunStore, records: Records, given: Any, python: Start
) -> None:
    resumed, fresh = given.whole_run(store), store.create(given.run_header(tasks=1))
    settle(store, records)
    assert runs_in(store) == 1
    owners = [python(HOLD, run.path) for run in (resumed, fresh)]
    for owner in owners:
        assert owner.stdout is not None and owner.stdout.readline() == b"held\n"
    resumed.append(given.verdict(1, 1, Outcome.TASK_FAIL, generation=2))
    fresh.append(given.attempt())
    with opened(store) as con:
        assert con.execute("SELECT run_id, score FROM runs").fetchall() == [(resumed.run_id, 1.0)]
    for owner in owners:
        os.kill(owner.pid, signal.SIGKILL)
        owner.communicate()
    with opened(store) as con:
        found = con.execute("SELECT run_id, score, status FROM runs ORDER BY 1").fetchall()
    assert found == sorted([(resumed.run_id, 0.75, "completed"), (fresh.run_id, None, None)])


def test_a_run_whose_folder_is_removed_keeps_its_rows(store: RunStore, given: Any) -> None:

    run = given.whole_run(store)
    given.whole_run(store)
    assert runs_in(store) == 2
    shutil.rmtree(run.path)
    assert runs_in(store) == 2


# -- what has no other home


def test_labels_alerts_and_acknowledgements_are_tables(store: RunStore, db: Path, records: Records, given: Any) -> None:
    run = given.whole_run(store)
    records.append(Label(run.run_id, "task-001", "Task 1", 1, False, "ada", given.NOON, "it's wrong; 'é' 🌊"))
    records.append(Alert("k", "drift", given.NOON, "It changed.", run_id=run.run_id, details={"nan": float("nan")}))
    records.append(Alert("k", "drift", given.NOON, "Again."))
    records.append(Acknowledgement("ada", given.NOON, "k", reason="meant", new_baseline=True))
    with opened(store) as con:
        labels = con.execute("SELECT passed, labelled_by, note FROM labels JOIN runs USING (run_id)").fetchall()
        alerts = con.execute(
            "SELECT message, reason, new_baseline FROM alerts JOIN acknowledgements USING (alert_key)"
        ).fetchall()
    assert labels == [(False, "ada", "it's wrong; 'é' 🌊")]
    assert alerts == [("It changed.", "meant", True)]
    assert history.publish_records(db, records) == 0
    records.append(Alert("k", "drift", given.NOON, "Once more."))
    records.append(Alert("l", "watch", given.NOON, "Another."))
    history.publish_records(db, records)
    assert ask(db, "SELECT alert_key, message FROM alerts ORDER BY 1") == [("k", "It changed."), ("l", "Another.")]
    caught_up = everything(db)
    db.unlink()
    with opened(store):
        assert everything(db) == caught_up


def test_a_file_of_records_that_was_put_back_to_an_older_state_is_read_anew(
    store: RunStore, db: Path, records: Records, given: Any
) -> None:
    (store.root / ".caliper").mkdir()
    for number in (1, 2, 3):
        records.append(Label("r", "task-001", "Task 1", number, True, "ada", given.NOON))
    history.catch_up(db, store)
    path = records.file_of(Label)
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    with opened(store) as con:
        assert con.execute("SELECT attempt FROM labels").fetchall() == [(1,)]


# -- whatever became of the file


def test_who_waits_for_many_runs_is_told_so(store: RunStore, given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_filling, "_MANY", 1)
    for _ in range(2):
        given.whole_run(store)
    told: list[str] = []
    with opened(store, told.append):
        pass
    assert told == ["The history is made from 2 runs; a hundred take about a second."]


def test_a_missing_history_is_made_of_all_there_is(store: RunStore, db: Path, records: Records, given: Any) -> None:
    given.whole_run(store)
    records.append(Label("r", "task-001", "Task 1", 1, True, "ada", given.NOON))
    an_imported_file(store, records, given)
    with opened(store):
        before = everything(db)
    assert len(before["runs"]) == 2
    for path in db.parent.glob("*history*"):
        path.unlink()
    with opened(store):
        assert everything(db) == before


def cut(at: float) -> Callable[[bytearray], None]:
    def damage(content: bytearray) -> None:
        del content[int(len(content) * at) :]

    return damage


def zeroed(start: float, end: float) -> Callable[[bytearray], None]:
    def damage(content: bytearray) -> None:
        first, last = int(len(content) * start), int(len(content) * end)
        content[first:last] = bytes(last - first)

    return damage


@pytest.mark.parametrize(
    "damage", [cut(0.001), cut(0.5), cut(0.9), zeroed(0, 0.0001), zeroed(0, 0.1), zeroed(0, 1), zeroed(0.0008, 0.01)]
)
def test_a_history_that_a_crash_of_the_machine_damaged_is_set_aside_and_made_anew(
    store: RunStore, db: Path, given: Any, damage: Callable[[bytearray], None]
) -> None:
    given.whole_run(store)
    with opened(store):
        before = everything(db)
    content = bytearray(db.read_bytes())
    damage(content)
    db.write_bytes(content)
    told: list[str] = []
    with opened(store, told.append):
        assert everything(db) == before
    [message] = told
    assert "history.duckdb.damaged" in message and "made anew" in message
    assert (db.parent / "history.duckdb.damaged").read_bytes() == content


def test_nothing_that_was_set_aside_before_is_lost(store: RunStore, db: Path, given: Any) -> None:
    given.whole_run(store)
    assert runs_in(store) == 1
    for name in ("history.duckdb.damaged", "history.duckdb.damaged-2"):
        content = db.read_bytes()[:100_000]
        db.write_bytes(content)
        assert runs_in(store) == 1
        assert (db.parent / name).read_bytes() == content


def test_damage_in_the_middle_of_the_data_is_found_by_the_check(store: RunStore, db: Path, given: Any) -> None:
    given.whole_run(store)
    assert runs_in(store) == 1
    assert history.check(db) == []
    content = bytearray(db.read_bytes())
    block = 3 * 4096
    content[block + 1000 : block + 5000] = b"z" * 4000
    db.write_bytes(content)
    assert any("checksum" in problem for problem in history.check(db))


def test_a_history_that_something_else_lies_in_place_of_is_refused(store: RunStore, db: Path, given: Any) -> None:
    given.whole_run(store)
    db.write_text("my notes, by hand")
    with pytest.raises(HistoryUnusable, match="not a DuckDB file"):
        history.open_current(store.root)
    assert db.read_text() == "my notes, by hand"


def test_a_newer_history_is_neither_shown_nor_made_anew(store: RunStore, db: Path, given: Any) -> None:
    import duckdb

    given.whole_run(store)
    assert runs_in(store) == 1
    with contextlib.closing(duckdb.connect(str(db))) as con:
        con.execute("INSERT INTO schema_changes VALUES (999, 'from the future', now()::TIMESTAMP)")
    before = db.read_bytes()
    for use in (lambda: history.open_current(store.root), lambda: history.rebuild(db, store)):
        with pytest.raises(HistoryTooNew, match="written by a newer version"):
            use()
    assert db.read_bytes() == before


def test_where_nothing_can_be_written_the_history_is_shown_as_it_was(
    store: RunStore, db: Path, given: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    given.whole_run(store)
    assert runs_in(store) == 1
    given.whole_run(store)

    def read_only(*_: object) -> None:
        raise StorageError("Cannot write: Read-only file system")

    monkeypatch.setattr(history_filling, "published", read_only)
    told: list[str] = []
    with opened(store, told.append) as con:
        assert con.execute("SELECT count(*) FROM runs").fetchall() == [(1,)]
    assert told == ["The history is shown as it was, without what is new: Cannot write: Read-only file system"]


def test_the_note_of_what_was_seen_is_a_help_and_no_more(store: RunStore, db: Path, given: Any) -> None:
    given.whole_run(store)
    settle(store, Records(store.root))
    assert runs_in(store) == 1
    note = history_seen.seen_of(db)
    for content in (b"", b"{", b"[]", b"null", b'{"db": 1}', note.read_bytes()[:-5]):
        note.write_bytes(content)
        assert runs_in(store) == 1
    note.unlink()
    note.mkdir()
    assert runs_in(store) == 1


def test_a_linked_folder_and_a_linked_file_stay_links(store: RunStore, db: Path, given: Any, tmp_path: Path) -> None:
    real = tmp_path / "elsewhere"
    real.mkdir()
    (store.root / ".caliper").symlink_to(real)
    given.whole_run(store)
    assert runs_in(store) == 1
    target = tmp_path / "big-disk.duckdb"
    db.rename(target)
    db.symlink_to(target)
    given.whole_run(store)
    assert runs_in(store) == 2
    assert db.is_symlink()
    assert ask(target, "SELECT count(*) FROM runs") == [(2,)]
