"""The run store: `.caliper/runs/<run id>/`, the only truth about what was run.

    run.json         everything that went in, written before anything is paid for
    attempts.jsonl   the lines: attempts, verdicts, the end
    evidence/        what each attempt did
    skills/          the bytes of the installed skills
    lock             held by the processes that work on the run

History, results files and Dagster's log are derived from it. This module puts the parts together; how lines,
evidence, copies and locks work stands in the modules of those names.
"""

import contextlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from caliper_pipeline.domain.errors import BadInput, StorageError
from caliper_pipeline.domain.plain import from_plain, to_plain
from caliper_pipeline.domain.records import (
    AbortedRecord,
    AttemptRecord,
    EndRecord,
    HookFailure,
    Line,
    ResumeRecord,
    RunHeader,
    VerdictRecord,
)
from caliper_pipeline.domain.skills import Skill
from caliper_pipeline.storage import evidence as evidence_files
from caliper_pipeline.storage import run_lock, skill_copies
from caliper_pipeline.storage.evidence import Evidence, StoredEvidence
from caliper_pipeline.storage.files import json_bytes, make_folders, storage_errors, sync_path, write_synced
from caliper_pipeline.storage.root import STORE_FOLDER
from caliper_pipeline.storage.run_log import Follower, RunLog

KEPT_OUTPUT = 500
"""Characters of an answer's end that a `RunState` holds; all of it is in the evidence."""
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}\Z")

Place = tuple[str, int]
"""Task id and number of the attempt."""


def new_run_id(now: datetime) -> str:
    """A name that nobody else has and that sorts by time, as in `20261130T224432123Z-ab12cd`."""
    moment = now.astimezone(UTC)
    return f"{moment:%Y%m%dT%H%M%S}{moment.microsecond // 1000:03d}Z-{os.urandom(3).hex()}"


@dataclass(slots=True)
class RunState:
    """What a run has come to so far. Small: answers are cut to their last `KEPT_OUTPUT` characters."""

    attempts: dict[Place, AttemptRecord] = field(default_factory=dict)
    verdicts: dict[Place, VerdictRecord] = field(default_factory=dict)
    """The latest of each attempt."""
    hook_failures: list[HookFailure] = field(default_factory=list)
    aborted: dict[str, AbortedRecord] = field(default_factory=dict)
    """By task id."""
    resumes: list[ResumeRecord] = field(default_factory=list)
    end: EndRecord | None = None
    """`None`: it still goes on, or was killed."""
    k: int | None = None
    """As the last resumption has it. `None`: as in the header."""
    unreadable_lines: int = 0

    @property
    def ungraded(self) -> list[AttemptRecord]:
        """Attempts that are paid for and have no verdict."""
        return [record for place, record in self.attempts.items() if place not in self.verdicts]

    def add(self, line: Line) -> None:
        match line:
            case AttemptRecord():
                kept = line if len(line.output) <= KEPT_OUTPUT else replace(line, output=line.output[-KEPT_OUTPUT:])
                self.attempts[(line.task_id, line.attempt)] = kept
            case VerdictRecord():
                older = self.verdicts.get((line.task_id, line.attempt))
                if older is None or older.generation <= line.generation:
                    self.verdicts[(line.task_id, line.attempt)] = line
            case HookFailure():
                self.hook_failures.append(line)
            case AbortedRecord():
                self.aborted[line.task_id] = line
            case ResumeRecord():
                self.resumes.append(line)
                self.k, self.end = line.k, None
                self.aborted.clear()
            case EndRecord():
                self.end = line


class RunStore:
    """All runs under one root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = root / STORE_FOLDER / "runs"

    def create(self, header: RunHeader) -> "RunFolder":
        """Opens a new run; its `run.json` is on the disk when this returns. Raises `StorageError`."""
        run = RunFolder(self.path / _checked(header.run_id))
        aside = self.path / f".{header.run_id}.new"
        with storage_errors("make", run.path):
            make_folders(self.path)
            if run.path.exists():
                raise StorageError(f"There is already a run {header.run_id} in {self.path}.")
            aside.mkdir()
            try:
                write_synced(aside / "run.json", json_bytes(to_plain(header), indent=1) + b"\n")
                write_synced(aside / "lock", b"")
                sync_path(aside)
                aside.rename(run.path)
            except BaseException:
                shutil.rmtree(aside, ignore_errors=True)
                raise
            sync_path(self.path)
        return run

    def open(self, run_id: str) -> "RunFolder":
        """Raises `BadInput` when there is no such run."""
        if _RUN_ID.match(run_id):
            run = RunFolder(self.path / run_id)
            if (run.path / "run.json").exists():
                return run
        raise BadInput(f"There is no run {run_id!r} in {self.path}.")

    def run_ids(self) -> list[str]:
        """Oldest first. What has no header is somebody else's folder and passed over."""
        return [name for name in self.names() if os.path.exists(f"{self.path}/{name}/run.json")]  # noqa: PTH110  many

    def names(self) -> list[str]:
        """What is called like a run, oldest first: quicker, and not all of it need be one."""
        try:
            with os.scandir(self.path) as entries:
                return sorted(entry.name for entry in entries if _RUN_ID.match(entry.name))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StorageError(f"Cannot read {self.path}: {error.strerror}") from error

    def runs(self) -> Iterator["RunFolder"]:
        """Oldest first."""
        return (RunFolder(self.path / run_id) for run_id in self.run_ids())


class RunFolder:
    """One run. May be used by many threads, and by several processes at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run_id = path.name
        self.log = RunLog(path / "attempts.jsonl")
        self._announced = False

    def header(self) -> RunHeader:
        path = self.path / "run.json"
        with storage_errors("read", path):
            raw = path.read_bytes()
        try:
            return from_plain(RunHeader, json.loads(raw))
        except (ValueError, TypeError, RecursionError) as error:
            raise StorageError(f"Cannot read {path}: it is damaged ({error})") from error

    def hold(self) -> AbstractContextManager[None]:
        """Marks this process as at work on the run while the block runs."""
        self._announced = False
        return run_lock.hold(self.path / "lock", self.clear_leftovers)

    def busy(self) -> bool:
        """Whether another process is at work on it."""
        return run_lock.held_elsewhere(self.path / "lock")

    def at_work(self) -> bool:
        """Whether any process is at work on it, this one included."""
        return run_lock.held_here(self.path / "lock") or self.busy()

    def append(self, line: Line) -> None:
        """Adds the line; it is on the disk when this returns. Raises `StorageError`."""
        self._announce()
        self.log.append(line)

    def _announce(self) -> None:
        """Gives the folder of runs a new time, so that others need not look at every run to see that one grows.

        Once while this process holds the run: as long as it is held, others look at it anyway.
        """
        if not self._announced:
            with contextlib.suppress(OSError):
                now = time.time_ns()
                os.utime(self.path.parent, ns=(now, now))
            self._announced = run_lock.held_here(self.path / "lock")

    def lines(self) -> Iterator[Line]:
        """All that can be read, in the order of writing. A torn end and unreadable lines are left out."""
        return (line for line, _ in self.log.read() if line is not None)

    def state(self) -> RunState:
        state = RunState()
        for line, _ in self.log.read():
            if line is None:
                state.unreadable_lines += 1
            else:
                state.add(line)
        return state

    def follow(self, stop: Callable[[], bool], interval: float = 0.1, *, offset: int = 0) -> Follower:
        """The lines as they come. Ends after the end line, when nobody works on the run any more (a second without
        a line and without a holder), or when `stop` says so; what is already there is given first.
        """
        lock = self.path / "lock"

        def alive() -> bool:
            return run_lock.held_here(lock) or run_lock.held_elsewhere(lock)

        return self.log.follow(stop, alive, interval=interval, offset=offset)

    def save_evidence(self, task_name: str, attempt: int, evidence: Evidence) -> str:
        """Keeps the evidence; it is on the disk when this returns. Gives its folder, relative to the run's."""
        return evidence_files.save_evidence(self.path, task_name, attempt, evidence)

    def read_evidence(self, relative: str) -> StoredEvidence:
        """Raises `StorageError` when it is gone or damaged."""
        return evidence_files.read_evidence(self.path, relative)

    def save_judgement(self, relative: str, generation: int, asked: str, answered: Sequence[str]) -> None:
        evidence_files.save_judgement(self.path, relative, generation, asked, answered)

    def read_judgement(self, relative: str, generation: int) -> tuple[str, tuple[str, ...]] | None:
        return evidence_files.read_judgement(self.path, relative, generation)

    def stage_skills(self, skills: Sequence[Skill]) -> None:
        """Copies the skills into the run, once. Raises `CannotRun` when a file changed since it was loaded."""
        skill_copies.stage_skills(self.path, skills)

    def skill_folder(self, name: str) -> Path:
        return skill_copies.skill_folder(self.path, name)

    def clear_leftovers(self) -> None:
        """Removes evidence that a crash left half written. Only for a process that alone works on the run."""
        for leftover in self.path.glob("evidence/*/.*"):
            shutil.rmtree(leftover, ignore_errors=True)

    def close(self) -> None:
        self.log.close()


def _checked(run_id: str) -> str:
    if not _RUN_ID.match(run_id):
        raise StorageError(f"Not a run id: {run_id!r}")
    return run_id
