"""A large history is not copied for each run: the file before it is brought up to date and takes its place."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import Popen
from typing import Any

import duckdb
import pytest

from caliper_pipeline.domain.errors import StorageError
from caliper_pipeline.domain.records import Outcome
from caliper_pipeline.storage import history, history_file, history_publish
from caliper_pipeline.storage.records import Alert, Label, Records
from caliper_pipeline.storage.runs import RunStore

from .history_tools import ask, everything

Start = Callable[..., "Popen[bytes]"]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells whether a file is open elsewhere")


@pytest.fixture
def db(store: RunStore) -> Path:
    return history.history_path(store.root)


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """Every copy that is made; a spare is kept however small the history is."""
    made: list[Path] = []
    real = history_file.copy

    def copying(db: Path, target: Path, *, with_wal: bool) -> None:
        made.append(target)
        real(db, target, with_wal=with_wal)

    monkeypatch.setattr(history_file, "copy", copying)
    monkeypatch.setattr(history_file, "WORTH_A_SPARE", 0)
    yield made


def publish(store: RunStore, db: Path, given: Any, **changes: Any) -> None:
    assert history.publish(db, [given.whole_run(store, **changes)]) == 1


def test_only_the_first_publishings_copy_the_file(store: RunStore, db: Path, given: Any, copies: list[Path]) -> None:
    for _ in range(6):
        publish(store, db, given)
    assert len(copies) == 1  # the first makes the file, the second copies it, and then there is a spare
    assert ask(db, "SELECT count(*), count(DISTINCT run_id) FROM runs") == [(6, 6)]
    kept = everything(db)
    history.rebuild(db, store)
    assert everything(db) == kept


def test_publishing_what_is_there_already_costs_no_spare(
    store: RunStore, db: Path, given: Any, copies: list[Path]
) -> None:
    for _ in range(3):
        publish(store, db, given)
    before = db.stat()
    for run in store.runs():
        assert history.publish(db, [run]) == 0
    assert db.stat().st_ino == before.st_ino
    publish(store, db, given)
    assert len(copies) == 1


def test_every_sort_of_change_is_carried_over(store: RunStore, db: Path, given: Any, copies: list[Path]) -> None:
    records = Records(store.root)
    changed = given.whole_run(store)
    history.publish(db, [changed])
    publish(store, db, given)
    records.append(Label("r", "task-001", "Task 1", 1, True, "ada", given.NOON))
    records.append(Alert("k", "drift", given.NOON, "It changed."))
    publish(store, db, given, spec_text="another", spec_digest=given.sha256("another"))
    changed.append(given.verdict(1, 1, Outcome.TASK_FAIL, generation=2))
    history.publish(db, [changed])
    publish(store, db, given)
    publish(store, db, given)
    assert len(copies) == 1
    kept = everything(db)
    history.rebuild(db, store)
    assert everything(db) == kept
    assert len(kept["labels"]) == len(kept["alerts"]) == 1


def test_whoever_still_reads_the_older_file_keeps_what_he_sees(
    store: RunStore, db: Path, given: Any, copies: list[Path]
) -> None:
    for _ in range(3):
        publish(store, db, given)
    copies.clear()
    count = "SELECT count(*), sum(hash(t)) FROM attempts t"
    with contextlib.closing(history.connect(db)) as reader:
        before = reader.execute(count).fetchall()
        for _ in range(3):
            publish(store, db, given)
        assert reader.execute(count).fetchall() == before
    assert copies  # the spare was still open
    assert ask(db, "SELECT count(*) FROM runs") == [(6,)]


OPEN_SHELL = """
import duckdb, sys
con = duckdb.connect(sys.argv[1], read_only=True)
print(con.execute("SELECT count(*) FROM attempts").fetchone()[0], flush=True)
sys.stdin.readline()
print(con.execute("SELECT count(*), sum(hash(t)) IS NOT NULL FROM attempts t").fetchone(), flush=True)
"""


def test_a_shell_of_somebody_else_keeps_what_it_sees(
    store: RunStore, db: Path, given: Any, copies: list[Path], python: Start
) -> None:
    publish(store, db, given)
    shell = python(OPEN_SHELL, db)
    assert shell.stdout is not None and shell.stdout.readline() == b"4\n"
    for _ in range(4):
        publish(store, db, given)
    assert shell.communicate(b"\n")[0] == b"(4, True)\n"
    assert ask(db, "SELECT count(*) FROM runs") == [(5,)]


def a_table_by_hand(db: Path) -> None:
    with contextlib.closing(duckdb.connect(str(db))) as con:
        con.execute("CREATE TABLE mine AS SELECT 7 AS n")


def a_row_by_hand(db: Path) -> None:
    with contextlib.closing(duckdb.connect(str(db))) as con:
        con.execute("INSERT INTO texts VALUES ('by hand', 'kept')")


def another_time(db: Path) -> None:
    os.utime(db, ns=(1, 1))


def a_spoilt_spare(db: Path) -> None:
    spare = history_file.spare_of(db)
    content, found = spare.read_bytes(), spare.stat()
    spare.write_bytes(content[:8192] + b"z" * (len(content) - 8192))
    os.utime(spare, ns=(found.st_atime_ns, found.st_mtime_ns))  # so that it looks as it was


def no_spare(db: Path) -> None:
    history_file.spare_of(db).unlink()


def no_note(db: Path) -> None:
    history_file.lock_of(db).write_bytes(b"")


@pytest.mark.parametrize(
    "event", [a_table_by_hand, a_row_by_hand, another_time, a_spoilt_spare, no_spare, no_note], ids=lambda f: f.__name__
)
def test_a_spare_that_cannot_be_trusted_is_not_used(
    store: RunStore, db: Path, given: Any, copies: list[Path], event: Callable[[Path], None]
) -> None:
    for _ in range(3):
        publish(store, db, given)
    with contextlib.closing(duckdb.connect(str(db), read_only=True)) as con:
        tables = {name for (name,) in con.execute("SHOW TABLES").fetchall()}
    copies.clear()
    event(db)
    with contextlib.closing(duckdb.connect(str(db), read_only=True)) as con:
        tables |= {name for (name,) in con.execute("SHOW TABLES").fetchall()}
        texts = con.execute("SELECT count(*) FROM texts").fetchall()
    publish(store, db, given)
    publish(store, db, given)
    assert copies
    assert ask(db, "SELECT count(*) FROM runs") == [(5,)]
    assert ask(db, "SELECT count(*) FROM texts") == texts
    assert {name for (name,) in ask(db, "SHOW TABLES")} == tables
    assert history.check(db) == []


def test_a_full_disk_costs_the_spare_before_it_costs_a_run(
    store: RunStore, db: Path, given: Any, copies: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        publish(store, db, given)
    real, asked = history_publish._published, []

    def full_at_first(db: Path, change: Any) -> int:
        asked.append(history_file.spare_of(db).exists())
        if asked == [True]:
            raise StorageError("No space left on device")
        return real(db, change)

    monkeypatch.setattr(history_publish, "_published", full_at_first)
    publish(store, db, given)
    assert asked == [True, False]


def test_compacting_keeps_every_row_and_gives_room_back(store: RunStore, db: Path, given: Any) -> None:
    for _ in range(3):
        publish(store, db, given)
    with contextlib.closing(duckdb.connect(str(db))) as con:
        con.execute("CREATE TABLE mine AS SELECT 7 AS n")
        con.execute("CREATE VIEW my_view AS SELECT n + 1 AS m FROM mine")
    kept = everything(db)
    before, after = history.compact(db)
    assert after <= before
    assert everything(db) == kept
    assert ask(db, "SELECT m FROM my_view") == [(8,)]
    publish(store, db, given)
    assert history.check(db) == []
