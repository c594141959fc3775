import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest
from hypothesis import given as hypothesis_given
from hypothesis import settings

from caliper_pipeline.domain.errors import StorageError
from caliper_pipeline.storage.records import RECORD_TYPES, Acknowledgement, Alert, Label, Record, Records

from .strategies import any_of

Start = Callable[..., "Popen[bytes]"]
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def label(number: int = 1, **changes: Any) -> Label:
    values = {"run_id": "r1", "task_id": "task-001", "task_name": "Says 'hi'", "attempt": number, "passed": True}
    return Label(**{**values, "labelled_by": "ada", "labelled_at": NOON, **changes})


def alert(key: str = "k", message: str = "It fell.") -> Alert:
    return Alert(key, "regression", NOON, message, series_key="demo/scripted", details={"from": 0.9, "to": None})


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(tmp_path)


def test_there_is_nothing_before_the_first_record(records: Records) -> None:
    assert [records.read(kind) for kind in RECORD_TYPES] == [(), (), ()]
    assert records.imported_files() == []
    assert not records.path.exists()


@pytest.mark.parametrize(
    "record", [label(note="é 🌊 \0 \u2028"), alert(), Acknowledgement("ada", NOON, "k", reason="meant")]
)
def test_a_record_comes_back_as_it_was(records: Records, record: Record) -> None:
    records.append(record)
    assert records.read(type(record)) == (record,)


@settings(max_examples=40, deadline=None)
@hypothesis_given(any_of(Label) | any_of(Acknowledgement))
def test_every_record_survives_its_line(tmp_path_factory: Any, record: Label | Acknowledgement) -> None:
    records = Records(tmp_path_factory.mktemp("root"))
    records.append(record)
    assert records.read(type(record)) == (record,)


def test_a_torn_end_is_left_out_and_the_next_record_stands_on_a_line_of_its_own(records: Records) -> None:
    records.append(label(1))
    with records.file_of(Label).open("ab") as stream:
        stream.write(b'{"run_id": "r1", "task')
    assert records.read(Label) == (label(1),)
    records.append(label(2))
    assert records.read(Label) == (label(1), label(2))


def test_reading_goes_on_where_it_stopped(records: Records) -> None:
    records.append(label(1))
    [(_, offset)] = records.read_from(Label, 0)
    records.append(label(2))
    assert [found for found, _ in records.read_from(Label, offset)] == [label(2)]


def test_of_two_alerts_with_one_key_the_first_counts(records: Records) -> None:
    records.append(alert("a"))
    records.append(alert("b"))
    records.append(alert("a", "Again."))
    assert records.read(Alert) == (alert("a"), alert("b"))
    assert not records.raise_once(alert("b", "Again."))
    assert records.raise_once(alert("c"))


RAISE = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from storage.test_records import Records, alert
records = Records(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
print(sum(records.raise_once(alert(str(n))) for n in range(25)))
"""
APPEND = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from storage.test_records import Records, label
records = Records(Path(sys.argv[1]))
for n in range(int(sys.argv[3])):
    records.append(label(n, note="x" * 5000))
    print(n, flush=True)
"""
TESTS = Path(__file__).parents[1]


def test_of_several_processes_that_raise_one_alert_one_does(records: Records, python: Start, tmp_path: Path) -> None:
    raisers = [python(RAISE, tmp_path, TESTS) for _ in range(3)]
    for raiser in raisers:
        assert raiser.stdout is not None and raiser.stdout.readline() == b"ready\n"
    for raiser in raisers:
        assert raiser.stdin is not None
        raiser.stdin.write(b"\n")
        raiser.stdin.flush()
    assert sum(int(raiser.communicate()[0]) for raiser in raisers) == 25
    assert len(records.file_of(Alert).read_bytes().splitlines()) == 25


def test_several_processes_lose_nothing_and_a_kill_only_what_was_not_told(
    records: Records, python: Start, tmp_path: Path
) -> None:
    writers = [python(APPEND, tmp_path, TESTS, 30) for _ in range(2)]
    victim = python(APPEND, tmp_path, TESTS, 10_000)
    assert victim.stdout is not None
    for _ in range(20):
        victim.stdout.readline()
    os.kill(victim.pid, signal.SIGKILL)
    told = 20 + len(victim.communicate()[0].split(b"\n")) - 1
    for writer in writers:
        writer.communicate()
    found = records.read(Label)
    assert told + 60 <= len(found) <= told + 61
    assert all(len(record.note or "") == 5000 for record in found)


def test_an_imported_file_is_kept_once_under_its_digest(records: Records) -> None:
    path = records.keep_imported(b"{}")
    assert records.keep_imported(b"{}") == path
    assert [item.read_bytes() for item in records.imported_files()] == [b"{}"]


def test_a_place_that_cannot_be_written_is_named(records: Records) -> None:
    records.path.parent.mkdir()
    records.path.write_text("in the way")
    for use in (lambda: records.append(label()), lambda: records.raise_once(alert()), lambda: records.read(Label)):
        with pytest.raises(StorageError, match="records"):
            use()
