import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from subprocess import Popen
from typing import Any

import pytest

from caliper_pipeline.domain.errors import BadInput, StorageError
from caliper_pipeline.domain.records import AbortedRecord, EndRecord, HookFailure, ResumeRecord
from caliper_pipeline.storage.runs import RunFolder, RunStore, new_run_id

Start = Callable[..., "Popen[bytes]"]

HOLD = """
import sys
from pathlib import Path
from caliper_pipeline.storage.runs import RunFolder
with RunFolder(Path(sys.argv[1])).hold():
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_run_ids_sort_by_time_and_never_repeat() -> None:
    first = new_run_id(datetime(2026, 11, 30, 22, 44, 32, 123456, tzinfo=UTC))
    assert first.startswith("20261130T224432123Z-")
    assert new_run_id(datetime(2026, 11, 30, 22, 44, 32, 124000, tzinfo=UTC)) > first
    assert len({new_run_id(datetime.now(UTC)) for _ in range(100)}) == 100


def test_a_header_comes_back_as_it_was(store: RunStore, given: Any) -> None:
    header = given.run_header(spec_text="a \ud83d\ude00 ü\u2028\n", ablated=("mcp:x", "tides"), limits={"a": 1.5})
    store.create(header)
    assert store.open(header.run_id).header() == replace(header, spec_text="a 😀 ü\u2028\n")


def test_two_runs_never_share_a_folder(store: RunStore, given: Any) -> None:
    header = given.run_header()
    store.create(header)
    with pytest.raises(StorageError, match="already a run"):
        store.create(header)


def test_a_run_killed_before_its_header_was_whole_is_not_there(store: RunStore, run: RunFolder) -> None:
    (store.path / ".20261130T000000000Z-aaaaaa.new").mkdir()
    (store.path / "20261130T000000000Z-bbbbbb").mkdir()
    (store.path / "notes.txt").write_text("somebody else's")
    assert store.run_ids() == [run.run_id]


@pytest.mark.parametrize("name", ["", "..", "../runs", "/etc", "a/b", "nothing", "x\0"])
def test_only_runs_can_be_opened(store: RunStore, run: RunFolder, name: str) -> None:
    with pytest.raises(BadInput, match="There is no run"):
        store.open(name)


def test_a_damaged_header_is_named(store: RunStore, run: RunFolder) -> None:
    (run.path / "run.json").write_text("{")
    with pytest.raises(StorageError, match=r"run\.json: it is damaged"):
        run.header()


def test_the_state_is_what_the_lines_come_to(run: RunFolder, given: Any) -> None:
    lines = [
        given.attempt(1, 1, output="x" * 2000 + "end"),
        given.verdict(1, 1),
        given.attempt(2, 1),
        HookFailure("task-002", "Task 2", 1, "cleanup", 3, "oh"),
        AbortedRecord("task-002", "Task 2", 1),
        given.verdict(1, 1, assert_passed=False, generation=2),
        EndRecord(given.NOON, "interrupted"),
    ]
    for line in lines:
        run.append(line)
    state = run.state()
    assert list(state.attempts) == [("task-001", 1), ("task-002", 1)]
    assert state.attempts[("task-001", 1)].output == "x" * 497 + "end"
    assert state.verdicts[("task-001", 1)].generation == 2
    assert [record.task_id for record in state.ungraded] == ["task-002"]
    assert [failure.phase for failure in state.hook_failures] == ["cleanup"]
    assert state.aborted["task-002"].after_attempt == 1
    assert state.end is not None and state.end.status == "interrupted"


def test_a_resumed_run_goes_on_and_has_not_given_up(run: RunFolder, given: Any) -> None:
    run.append(AbortedRecord("task-002", "Task 2", 1))
    run.append(EndRecord(given.NOON, "completed"))
    run.append(ResumeRecord(given.NOON, 7))
    state = run.state()
    assert (state.k, state.end, state.aborted) == (7, None, {})


def test_a_newer_version_s_additions_are_passed_over(run: RunFolder, given: Any) -> None:
    run.append(given.attempt())
    plain = json.loads((run.path / "attempts.jsonl").read_text())
    lines = [{**plain, "attempt": 2, "colour": "red"}, {"type": "telepathy", "of": 3}]
    with (run.path / "attempts.jsonl").open("a") as stream:
        stream.writelines(json.dumps(line) + "\n" for line in lines)
    state = run.state()
    assert [place[1] for place in state.attempts] == [1, 2]
    assert state.unreadable_lines == 1


def test_another_process_at_work_is_seen_and_its_kill_too(run: RunFolder, python: Start) -> None:
    assert not run.busy()
    with run.hold():
        assert not run.busy()
    other = python(HOLD, run.path)
    assert other.stdout is not None and other.stdout.readline() == b"held\n"
    assert run.busy()
    with run.hold(), run.hold():
        assert run.busy()
    assert run.busy()
    os.kill(other.pid, signal.SIGKILL)
    other.wait()
    other.communicate()
    assert not run.busy()


def test_a_hold_ends_with_its_block(run: RunFolder, python: Start) -> None:
    code = "import sys; from pathlib import Path; from caliper_pipeline.storage.runs import RunFolder"
    ask = code + "; print(RunFolder(Path(sys.argv[1])).busy())"
    with run.hold():
        with run.hold():
            pass
        assert python(ask, run.path).communicate()[0] == b"True\n"
    assert python(ask, run.path).communicate()[0] == b"False\n"


def test_what_a_crash_left_half_written_goes_when_the_run_is_taken_up(run: RunFolder, python: Start) -> None:
    leftover = run.path / "evidence/task/.001.abcd.new"
    leftover.mkdir(parents=True)
    (leftover / "stream.jsonl").write_text("x")
    other = python(HOLD, run.path)  # it clears, being alone; then somebody begins to write
    assert other.stdout is not None and other.stdout.readline() == b"held\n"
    assert not leftover.exists()
    leftover.mkdir()
    with run.hold():
        assert leftover.exists()
    other.communicate()
    with run.hold():
        assert not leftover.exists()
