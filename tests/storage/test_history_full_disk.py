"""A disk that is full, or may not be written: whatever step meets it, it is told, and nothing is lost."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from caliper_pipeline.domain.errors import StorageError
from caliper_pipeline.domain.records import EndRecord
from caliper_pipeline.storage import history, pruning
from caliper_pipeline.storage.evidence import Evidence
from caliper_pipeline.storage.exports import targets
from caliper_pipeline.storage.exports.parquet import write_parquet
from caliper_pipeline.storage.records import Label, Records
from caliper_pipeline.storage.runs import RunStore

from .conftest import NOON, attempt, run_header, verdict, whole_run

SIZE = 24 * 1024 * 1024


def mount(folder: Path, *options: str) -> bool:
    command = ["mount", *options, str(folder)]
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A tiny disk of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if not mount(folder, "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs"):
        pytest.skip("a disk can only be mounted by root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], stdin=subprocess.DEVNULL, capture_output=True, check=True)


@contextlib.contextmanager
def only(disk: Path, free: int) -> Iterator[None]:
    """Leaves only so many bytes free."""
    filler = disk / "filler"
    found = os.statvfs(disk)
    with filler.open("wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, max(1, found.f_bavail * found.f_frsize - free))
    try:
        yield
    finally:
        filler.unlink()


def runs_in(disk: Path) -> int:
    with contextlib.closing(history.connect(history.history_path(disk))) as con:
        (count,) = con.execute("SELECT count(*) FROM runs").fetchall()[0]
        return int(count)


def leftovers(disk: Path) -> list[str]:
    return [path.name for path in (disk / ".caliper").iterdir() if ".new" in path.name or ".wal" in path.name]


@pytest.mark.parametrize("free", [0, 8_192, 300_000, 2_000_000])
def test_publishing_on_a_full_disk_is_told_and_made_up_for_later(disk: Path, free: int) -> None:
    store, db = RunStore(disk), history.history_path(disk)
    history.publish_run(disk, whole_run(store))
    run = whole_run(store)
    lines = list(run.lines())
    before = db.read_bytes()
    with only(disk, free), pytest.raises(StorageError, match=r"history\.duckdb.*(No space left|Could not|disk)"):
        history.publish_run(disk, run)
    assert db.read_bytes() == before
    assert leftovers(disk) == []
    assert list(run.lines()) == lines
    assert runs_in(disk) == 1
    with contextlib.closing(history.open_current(disk)) as con:
        assert con.execute("SELECT count(*) FROM runs").fetchall() == [(2,)]
    assert history.check(db) == []


@pytest.mark.parametrize("free", [0, 1_000_000])
def test_a_history_that_cannot_be_made_is_told_and_made_later(disk: Path, free: int) -> None:
    store = RunStore(disk)
    whole_run(store)
    with only(disk, free), pytest.raises(StorageError, match=r"history\.duckdb"):
        history.open_current(disk)
    assert leftovers(disk) == []
    history.open_current(disk).close()
    assert runs_in(disk) == 1


def test_a_reader_on_a_full_disk_sees_what_there_was(disk: Path) -> None:
    store, told = RunStore(disk), list[str]()
    history.publish_run(disk, whole_run(store))
    whole_run(store)
    with only(disk, 0), contextlib.closing(history.open_current(disk, told.append)) as con:
        assert con.execute("SELECT count(*) FROM runs").fetchall() == [(1,)]
    [message] = told
    assert "shown as it was" in message


def test_a_line_that_finds_no_room_is_told_and_leaves_no_half_of_it(disk: Path) -> None:
    store = RunStore(disk)
    run = store.create(run_header(tasks=1))
    run.append(attempt())
    before = run.log.path.read_bytes()
    long = verdict(autorater_reasoning="x" * 20_000)
    with only(disk, 0), pytest.raises(StorageError, match=r"No space left|no room"):
        run.append(long)
    assert run.log.path.read_bytes() == before
    run.append(long)
    assert len(list(run.lines())) == 2


def test_a_label_that_finds_no_room_is_told_and_leaves_no_half_of_it(disk: Path) -> None:
    records = Records(disk)
    label = Label("r", "task-001", "T", 1, True, "ada", NOON, "x" * 20_000)
    records.append(label)
    with only(disk, 0), pytest.raises(StorageError, match=r"No space left|no room"):
        records.append(label)
    records.append(label)
    assert records.read(Label) == (label, label)


def test_an_import_that_finds_no_room_is_told_and_can_be_made_again(disk: Path, tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    file.write_text(
        '{"run": {"spec": "x", "timestamp": "2026-11-20T10:00:00Z", "k": 1, "backend": "pi"}, "task_results": []}',
        encoding="utf-8",
    )
    (disk / ".caliper").mkdir()
    db = history.history_path(disk)
    with only(disk, 0), pytest.raises(StorageError):
        history.import_results(db, [file])
    assert history.import_results(db, [file]) == [(file, None)]
    assert runs_in(disk) == 1


def test_a_table_that_finds_no_room_is_told_and_leaves_nothing(disk: Path, tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    whole_run(store)
    target = disk / "runs.parquet"
    with (
        contextlib.closing(history.open_current(tmp_path)) as con,
        only(disk, 0),
        pytest.raises(StorageError, match=r"No space left on device$"),
    ):
        targets.let_write(target, lambda path: write_parquet(con, "runs", None, path))
    assert list(disk.iterdir()) == []


def test_pruning_gives_room_back_where_there_is_none(disk: Path) -> None:
    store = RunStore(disk)
    run = store.create(run_header(tasks=1))
    folder = run.save_evidence("Task 1", 1, Evidence(final_answer="done", raw_stdout=b"x" * 100_000))
    for line in (attempt(evidence=folder), verdict(), EndRecord(NOON, "completed")):
        run.append(line)
    with only(disk, 0):
        assert pruning.prune(run, NOON) is not None
    assert pruning.pruned_at(run.path) == NOON
    assert not pruning.size_of(run.path).files


def test_what_may_only_be_read_is_read(disk: Path) -> None:
    store, told = RunStore(disk), list[str]()
    first, run = whole_run(store), whole_run(store)
    history.publish(history.history_path(disk), [first])
    first.close()
    run.close()
    if not mount(disk, "-o", "remount,ro"):
        pytest.skip("the disk cannot be made read-only")
    with contextlib.closing(history.open_current(disk, told.append)) as con:
        assert con.execute("SELECT count(*) FROM runs").fetchall() == [(1,)]
    assert "Read-only file system" in told[0]
    with pytest.raises(StorageError, match="Read-only file system"):
        history.publish_run(disk, run)


def end_in_zeros(path: Path) -> None:
    with path.open("ab") as stream:
        stream.write(bytes(5000))


def lose_the_end(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 40)


def become_zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


@pytest.mark.parametrize("damage", [end_in_zeros, lose_the_end, become_zeros], ids=lambda function: function.__name__)
@pytest.mark.parametrize("name", ["attempts.jsonl", "run.json"])
def test_what_a_loss_of_power_may_do_to_a_run_costs_only_that(tmp_path: Path, damage: Any, name: str) -> None:
    store = RunStore(tmp_path)
    whole_run(store)
    victim = whole_run(store)
    damage(victim.path / name)
    with contextlib.closing(history.open_current(tmp_path)) as con:
        found = dict(con.execute("SELECT run_id, attempt_count FROM runs").fetchall())
    db = history.history_path(tmp_path)
    assert len(found) >= 1 and all(count == 4 for run_id, count in found.items() if run_id != victim.run_id)
    assert history.check(db) == []
    if name == "attempts.jsonl":
        victim.append(verdict(1, 1, generation=2))
        with contextlib.closing(history.open_current(tmp_path)) as con:
            query = "SELECT count(*) FROM verdicts WHERE run_id = $1 AND generation = 2"
            assert con.execute(query, [victim.run_id]).fetchall() == [(1,)]
