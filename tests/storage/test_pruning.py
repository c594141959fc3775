"""Evidence goes run by run, and everything else stays."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from caliper_pipeline.domain.errors import StorageError
from caliper_pipeline.domain.records import EndRecord, ResumeRecord
from caliper_pipeline.storage import pruning
from caliper_pipeline.storage.evidence import Evidence
from caliper_pipeline.storage.runs import RunFolder, RunStore

NOW = datetime(2027, 6, 1, tzinfo=UTC)


@pytest.fixture
def kept(run: RunFolder, given: Any) -> RunFolder:
    """A run of one attempt with evidence."""
    folder = run.save_evidence("Task 1", 1, Evidence(final_answer="done", raw_stdout=b"x" * 1000))
    run.append(given.attempt(evidence=folder))
    run.append(given.verdict())
    run.append(EndRecord(given.NOON + timedelta(minutes=5), "completed"))
    return run


def test_the_size_is_that_of_all_its_files(kept: RunFolder) -> None:
    files = [path for path in (kept.path / "evidence").rglob("*") if path.is_file()]
    found = pruning.size_of(kept.path)
    assert (found.files, found.bytes) == (len(files), sum(path.stat().st_size for path in files))


def test_runs_without_evidence_have_no_size(store: RunStore, kept: RunFolder, given: Any) -> None:
    store.create(given.run_header())
    assert [size.run_id for size in pruning.sizes(store)] == [kept.run_id]


def test_pruning_removes_the_evidence_and_notes_it(kept: RunFolder) -> None:
    before = pruning.size_of(kept.path)
    lines = kept.log.path.read_bytes()
    assert pruning.prune(kept, NOW) == before
    assert sorted(path.name for path in kept.path.iterdir()) == ["attempts.jsonl", "lock", "pruned.json", "run.json"]
    assert kept.log.path.read_bytes() == lines
    assert pruning.pruned_at(kept.path) == NOW


def test_what_needs_the_evidence_says_that_it_was_pruned(kept: RunFolder) -> None:
    (attempt, *_) = kept.lines()
    pruning.prune(kept, NOW)
    with pytest.raises(StorageError, match="was pruned"):
        kept.read_evidence(attempt.evidence)  # type: ignore[union-attr]


def test_evidence_that_is_just_missing_was_not_pruned(kept: RunFolder) -> None:
    (attempt, *_) = kept.lines()
    (kept.path / attempt.evidence / "evidence.json").unlink()  # type: ignore[union-attr]
    with pytest.raises(StorageError, match="No such file"):
        kept.read_evidence(attempt.evidence)  # type: ignore[union-attr]


def test_a_run_that_this_process_works_on_is_left_alone(kept: RunFolder) -> None:
    with kept.hold():
        assert pruning.prune(kept, NOW) is None
    assert pruning.size_of(kept.path).files
    assert pruning.pruned_at(kept.path) is None


def test_a_run_that_another_process_works_on_is_left_alone(
    kept: RunFolder, python: Callable[..., "Popen[bytes]"]
) -> None:
    code = """
import sys
from pathlib import Path
from caliper_pipeline.storage.runs import RunFolder
with RunFolder(Path(sys.argv[1])).hold():
    print("at work", flush=True)
    sys.stdin.read()
"""
    with python(code, kept.path) as other:
        assert other.stdout.readline() == b"at work\n"  # type: ignore[union-attr]
        assert pruning.prune(kept, NOW) is None
        other.stdin.close()  # type: ignore[union-attr]
    assert pruning.prune(kept, NOW) is not None


def test_a_kill_in_the_middle_leaves_nothing_open(kept: RunFolder) -> None:
    """The note is there, the folder is aside, and only some of it is gone: what is left still counts and goes."""
    pruning.prune(kept, NOW)
    aside = kept.path / ".evidence.going" / "task-1" / "001"
    aside.mkdir(parents=True)
    (aside / "stream.jsonl").write_bytes(b"x" * 10)
    assert pruning.size_of(kept.path).bytes == 10
    assert pruning.prune(kept, NOW) is not None
    assert not (kept.path / ".evidence.going").exists()


def test_evidence_that_came_after_pruning_can_be_read_and_pruned(kept: RunFolder) -> None:
    pruning.prune(kept, NOW)
    folder = kept.save_evidence("Task 1", 2, Evidence(final_answer="again"))
    assert kept.read_evidence(folder).final_answer == "again"
    pruning.prune(kept, NOW + timedelta(days=1))
    assert pruning.pruned_at(kept.path) == NOW + timedelta(days=1)


def test_a_run_was_last_used_when_something_was_added_to_it(kept: RunFolder, given: Any) -> None:
    later = given.NOON + timedelta(days=9)
    assert pruning.use_of(kept).last == given.NOON + timedelta(minutes=5)
    kept.append(ResumeRecord(later, 3))
    assert pruning.use_of(kept).last == later


def test_attempts_that_are_not_judged_are_counted(kept: RunFolder, given: Any) -> None:
    assert pruning.use_of(kept).ungraded == 0
    kept.append(given.attempt(number=2))
    assert pruning.use_of(kept).ungraded == 1


def test_missing_evidence_is_named_unless_it_was_pruned(store: RunStore, kept: RunFolder) -> None:
    (attempt, *_) = kept.lines()
    there = (kept.run_id, attempt.evidence)  # type: ignore[union-attr]
    gone = (kept.run_id, "evidence/task-1/002")
    elsewhere = ("20200101T000000000Z-abcdef", "evidence/task-1/001")
    asked = [there, gone, elsewhere]
    expected = str(Path(kept.path) / "evidence/task-1/002/evidence.json")
    assert list(pruning.missing_evidence(store, iter(asked))) == [expected]
    pruning.prune(kept, NOW)
    assert list(pruning.missing_evidence(store, iter(asked))) == []
