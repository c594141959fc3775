"""Removing the evidence of old runs: what they came to stays, in their lines, results files and the history.

Evidence goes run by run, never in part. Left alone are runs that somebody is at work on, and runs with attempts that
are not judged yet, because what was paid for would be lost. `pruned.json` in the run's folder says when and how much;
it is there before the first byte goes, so that a kill leaves no riddle. (On a full disk a file may have to go first.)
"""

import errno
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from caliper_pipeline.domain.plain import utc_text, utc_time
from caliper_pipeline.domain.records import AttemptRecord, EndRecord, ResumeRecord, VerdictRecord
from caliper_pipeline.storage import run_lock
from caliper_pipeline.storage.evidence import EVIDENCE_FOLDER, PRUNED_NOTE
from caliper_pipeline.storage.files import json_bytes, storage_errors, sync_path, write_whole
from caliper_pipeline.storage.runs import RunFolder, RunStore

_GOING = ".evidence.going"


@dataclass(frozen=True, slots=True)
class StoredSize:
    """What the evidence of one run takes."""

    run_id: str
    bytes: int
    files: int


@dataclass(frozen=True, slots=True)
class Use:
    """When a run was last added to, and whether all of it is judged."""

    last: datetime | None
    """`None`: nothing can be read of it."""
    ungraded: int


def sizes(store: RunStore) -> Iterator[StoredSize]:
    """Of each run that has evidence, oldest first."""
    for run_id in store.names():
        found = size_of(store.path / run_id)
        if found.files:
            yield found


def size_of(run: Path) -> StoredSize:
    total, files = 0, 0
    waiting = [str(run / EVIDENCE_FOLDER), str(run / _GOING)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
                        files += 1
        except OSError:  # nothing there, or gone meanwhile
            continue
    return StoredSize(run.name, total, files)


def use_of(run: RunFolder) -> Use:
    """Raises `StorageError` when the run cannot be read."""
    moments: list[datetime] = []
    judged: set[tuple[str, int]] = set()
    made: set[tuple[str, int]] = set()
    for line in run.lines():
        match line:
            case AttemptRecord():
                made.add((line.task_id, line.attempt))
                moments.append(line.ended_at)
            case VerdictRecord():
                judged.add((line.task_id, line.attempt))
                if line.graded_at is not None:
                    moments.append(line.graded_at)
            case EndRecord():
                moments.append(line.ended_at)
            case ResumeRecord():
                moments.append(line.resumed_at)
    return Use(max(moments, default=None), len(made - judged))


def prune(run: RunFolder, now: datetime) -> StoredSize | None:
    """Removes a run's evidence and gives what it took. `None`: somebody is at work on the run, it is left alone.

    Raises `StorageError`.
    """
    if run.at_work():
        return None
    taken: list[StoredSize] = []
    evidence, going = run.path / EVIDENCE_FOLDER, run.path / _GOING

    def take() -> None:
        found = size_of(run.path)
        note = {"schema": 1, "pruned_at": utc_text(now), "bytes": found.bytes, "files": found.files}
        _write_note(run, json_bytes(note, indent=1) + b"\n")
        shutil.rmtree(going, ignore_errors=True)
        if evidence.exists():
            evidence.rename(going)
            sync_path(run.path)
        taken.append(found)

    with storage_errors("prune", run.path):
        with run_lock.hold(run.path / "lock", take):
            pass
        if not taken:
            return None
        if going.exists():
            shutil.rmtree(going)
    return taken[0]


def _write_note(run: RunFolder, data: bytes) -> None:
    """On a full disk, which is when pruning is wanted most, the first of what goes makes room for the note."""
    while True:
        try:
            write_whole(run.path / PRUNED_NOTE, data)
        except OSError as error:
            folders = (run.path / name for name in (_GOING, EVIDENCE_FOLDER))
            files = (
                path for folder in folders for path in folder.rglob("*") if path.is_file() and not path.is_symlink()
            )
            largest = max(files, key=lambda path: path.stat().st_size, default=None)
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) or largest is None:
                raise
            largest.unlink()
        else:
            return


def pruned_at(run: Path) -> datetime | None:
    """When a run's evidence was removed. `None`: it was not."""
    try:
        return utc_time(json.loads((run / PRUNED_NOTE).read_bytes())["pruned_at"]).astimezone(UTC)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def missing_evidence(store: RunStore, referenced: Iterator[tuple[str, str]]) -> Iterator[str]:
    """Folders of evidence, as run id and place in the run, that are neither there nor pruned."""
    known: dict[str, bool] = {}
    for run_id, relative in referenced:
        if run_id not in known:
            path = store.path / run_id
            known[run_id] = not path.is_dir() or pruned_at(path) is not None
        if not known[run_id]:
            place = f"{store.path}/{run_id}/{relative}/evidence.json"
            if not os.path.exists(place):  # noqa: PTH110  many attempts
                yield place
