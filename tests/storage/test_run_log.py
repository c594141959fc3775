import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest
from hypothesis import given as hypothesis_given
from hypothesis import settings

from caliper_pipeline.domain.errors import StorageError
from caliper_pipeline.domain.records import EndRecord, Line
from caliper_pipeline.storage.run_log import RunLog, decode_line, encode_line
from caliper_pipeline.storage.runs import RunFolder

from .strategies import any_line

Start = Callable[..., "Popen[bytes]"]

APPEND = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from caliper_pipeline.domain.records import AttemptRecord
from caliper_pipeline.storage.runs import RunFolder
run, task = RunFolder(Path(sys.argv[1])), sys.argv[2]
now = datetime.now(UTC)
for number in range(1, int(sys.argv[3]) + 1):
    run.append(AttemptRecord(task, task, number, now, now, 0.5, output="x" * (number * 37 % 3000)))
    print(number, flush=True)
"""


def numbers(run: RunFolder) -> list[int]:
    return [line.attempt for line in run.lines() if not isinstance(line, EndRecord)]  # type: ignore[union-attr]


@settings(max_examples=60, deadline=None)
@hypothesis_given(any_line())
def test_every_line_comes_back_as_it_was(line: Line) -> None:
    assert decode_line(encode_line(line)) == line


def test_text_that_no_encoding_has_is_kept_as_far_as_it_can_be(run: RunFolder, given: Any) -> None:
    run.append(given.attempt(output="half \ud83d, whole \ud83d\ude00, nul \0, line \u2028 end"))
    (line,) = run.lines()
    assert line.output == "half \ufffd, whole 😀, nul \0, line \u2028 end"  # type: ignore[union-attr]


def test_a_torn_end_is_dropped_and_the_next_line_starts_afresh(run: RunFolder, given: Any) -> None:
    run.append(given.attempt(number=1))
    run.close()
    whole = encode_line(given.attempt(number=2))
    with (run.path / "attempts.jsonl").open("ab") as stream:
        stream.write(whole[: len(whole) // 2])
    assert numbers(run) == [1]
    run.append(given.attempt(number=3))
    assert numbers(run) == [1, 3]
    assert run.state().unreadable_lines == 1


def test_a_whole_line_that_only_lacks_its_end_counts_before_and_after_the_next(run: RunFolder, given: Any) -> None:
    (run.path / "attempts.jsonl").write_bytes(encode_line(given.attempt(number=1)).rstrip(b"\n"))
    assert numbers(run) == [1]
    run.append(given.attempt(number=2))
    assert numbers(run) == [1, 2]


def test_every_way_to_tear_the_last_line_loses_that_line_alone(tmp_path: Path, given: Any) -> None:
    first, second = encode_line(given.attempt(number=1)), encode_line(given.attempt(number=2))
    for cut in [*range(0, len(second), 7), len(second) - 1]:
        log = RunLog(tmp_path / f"{cut}.jsonl")
        log.path.write_bytes(first + second[:cut])
        log.append(given.attempt(number=3))
        log.close()
        kept = [line.attempt for line, _ in log.read() if line is not None]  # type: ignore[union-attr]
        assert kept == ([1, 2, 3] if cut == len(second) - 1 else [1, 3])


@pytest.mark.parametrize("garbage", [b"\0\0\0\n", b"null\n", b"[1]\n", b"\xff\xfe\n", b"{}\n", b"[" * 5000 + b"\n"])
def test_garbage_in_the_middle_is_skipped_and_counted(run: RunFolder, given: Any, garbage: bytes) -> None:
    run.append(given.attempt(number=1))
    with (run.path / "attempts.jsonl").open("ab") as stream:
        stream.write(garbage)
    run.append(given.attempt(number=2))
    assert numbers(run) == [1, 2]
    assert run.state().unreadable_lines == 1


def test_several_processes_append_and_nothing_is_lost(run: RunFolder, python: Start) -> None:
    writers = [python(APPEND, run.path, f"writer-{n}", 60) for n in range(4)]
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0
    found = sorted((line.task_id, line.attempt) for line in run.lines())  # type: ignore[union-attr]
    assert found == sorted((f"writer-{n}", number) for n in range(4) for number in range(1, 61))
    assert run.state().unreadable_lines == 0


def test_a_kill_while_appending_loses_no_line_that_was_acknowledged(run: RunFolder, python: Start) -> None:
    chance = random.Random(7)
    for turn in range(4):
        writer = python(APPEND, run.path, f"writer-{turn}", 100_000)
        assert writer.stdout is not None
        acknowledged = 0
        for _ in range(chance.randrange(1, 60)):
            acknowledged = int(writer.stdout.readline())
        os.kill(writer.pid, signal.SIGKILL)
        acknowledged = max([acknowledged, *map(int, writer.communicate()[0].split(b"\n")[:-1])])
        kept = [line.attempt for line in run.lines() if line.task_id == f"writer-{turn}"]  # type: ignore[union-attr]
        assert kept[:acknowledged] == list(range(1, acknowledged + 1))
        assert len(kept) <= acknowledged + 1


def test_following_gives_lines_as_they_come_until_the_end_line(run: RunFolder, python: Start, given: Any) -> None:
    writer = python(
        APPEND + "\nfrom caliper_pipeline.domain.records import EndRecord\nrun.append(EndRecord(now, 'completed'))",
        run.path,
        "t",
        20,
    )
    with run.hold():
        lines = list(run.follow(lambda: False, 0.005))
    writer.communicate()
    assert [getattr(line, "attempt", None) for line in lines] == [*range(1, 21), None]


def test_following_ends_when_the_writer_died(run: RunFolder, given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("caliper_pipeline.storage.run_log._DEAD_AFTER_SECONDS", 0.05)
    run.append(given.attempt())
    assert len(list(run.follow(lambda: False, 0.01))) == 1


def test_following_ends_when_told_to_with_all_that_was_there(run: RunFolder, given: Any) -> None:
    for number in range(1, 300):
        run.append(given.attempt(number=number))
    with run.hold():
        assert len(list(run.follow(lambda: True))) == 299


def test_following_can_be_taken_up_where_it_ended(run: RunFolder, given: Any) -> None:
    run.append(given.attempt(number=1))
    first = run.follow(lambda: True)
    assert [line.attempt for line in first] == [1]  # type: ignore[union-attr]
    run.append(given.attempt(number=2))
    run.append(EndRecord(given.NOON, "completed"))
    second = run.follow(lambda: False, offset=first.offset)
    assert [line.type for line in second] == ["attempt", "end"]
    assert second.offset == (run.path / "attempts.jsonl").stat().st_size


def test_an_end_line_that_was_resumed_from_is_not_the_end(run: RunFolder, given: Any) -> None:
    for line in (EndRecord(given.NOON, "interrupted"), given.attempt(), EndRecord(given.NOON, "completed")):
        run.append(line)
    assert [line.type for line in run.follow(lambda: False)] == ["end", "attempt", "end"]


FULL = """
import resource, signal, sys
from datetime import UTC, datetime
from pathlib import Path
from caliper_pipeline.domain.errors import StorageError
from caliper_pipeline.domain.records import AttemptRecord
from caliper_pipeline.storage.runs import RunFolder
run = RunFolder(Path(sys.argv[1]))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, resource.RLIM_INFINITY))
now = datetime.now(UTC)
for number in range(1, 30):
    try:
        run.append(AttemptRecord("t", "t", number, now, now, 0.5, output="x" * 500))
    except StorageError as error:
        print(number, str(error))
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        run.append(AttemptRecord("t", "t", 100, now, now, 0.5))
        break
"""


def test_a_full_disk_is_told_with_the_path(given: Any) -> None:
    log = RunLog(Path("/dev/full"))
    with pytest.raises(StorageError, match="Cannot write /dev/full: No space left on device"):
        log.append(given.attempt())
    log.close()


def test_a_line_that_found_no_room_leaves_no_trace(run: RunFolder, python: Start) -> None:
    told = python(FULL, run.path).communicate()[0].decode()
    failed, _, message = told.partition(" ")
    assert "Cannot write" in message and "attempts.jsonl" in message
    assert numbers(run) == [*range(1, int(failed)), 100]
    assert run.state().unreadable_lines == 0
