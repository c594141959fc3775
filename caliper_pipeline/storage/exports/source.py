"""A run that is to be given away: what it came to, and each attempt whole, one at a time.

It is a run of the store, whose transcripts are in its evidence, or a results file that somebody else wrote, whose
bytes are all there is.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from caliper_pipeline.domain.errors import BadInput, StorageError
from caliper_pipeline.domain.records import AttemptRecord, EndRecord, Line, RunHeader, VerdictRecord
from caliper_pipeline.domain.results import AttemptResult, Results, TaskResult, assemble, parse_results
from caliper_pipeline.domain.transcript import Turn
from caliper_pipeline.storage.results import FILE_TIME
from caliper_pipeline.storage.results_bytes import plain_data, read_bytes
from caliper_pipeline.storage.results_writing import attempt_with_turns
from caliper_pipeline.storage.runs import KEPT_OUTPUT, RunFolder


@dataclass(frozen=True, slots=True)
class WholeAttempt:
    attempt: AttemptResult
    """With all of its answer, as far as it is kept."""
    turns: tuple[Turn, ...] | None
    """`None`: there is no transcript, or no longer."""


class Source(Protocol):
    """One run."""

    @property
    def results(self) -> Results:
        """Without transcripts."""

    def attempts(self, task: TaskResult) -> Iterator[WholeAttempt]:
        """In their order."""


@dataclass(frozen=True)
class StoredRun:
    """A run of the store. What was pruned of its evidence is counted as attempts are read."""

    folder: RunFolder
    results: Results
    pruned: list[tuple[str, int]] = field(default_factory=list)
    """Task id and number of attempts whose evidence is gone."""

    @classmethod
    def of(cls, folder: RunFolder) -> "StoredRun":
        """Raises `BadInput` when nothing of it has ended yet, `StorageError` when it is damaged."""
        header, lines = folder.header(), list(folder.lines())
        if not lines:
            raise BadInput(f"The run {folder.run_id} has nothing to export: no attempt of it has ended yet.")
        ended_at = _end(header, lines)
        return cls(folder, assemble(header, lines, ended_at=ended_at, output_limit=KEPT_OUTPUT))

    def attempts(self, task: TaskResult) -> Iterator[WholeAttempt]:
        for attempt in task.attempts:
            whole, turns = attempt_with_turns(self.folder, attempt)
            if turns is None and attempt.evidence:
                self.pruned.append((task.task_id, attempt.attempt))
            yield WholeAttempt(whole, turns)


@dataclass(frozen=True)
class ForeignFile:
    """A results file, of another product or of another machine."""

    path: Path
    data: bytes
    content: Mapping[str, Any]
    results: Results

    @classmethod
    def read(cls, path: Path) -> "ForeignFile":
        """Raises `BadInput` when it is no results file, `StorageError` when it cannot be read."""
        try:
            data = read_bytes(path)
        except OSError as error:
            raise StorageError(f"Cannot read {path}: {error.strerror}") from error
        except ValueError as error:
            raise StorageError(f"Cannot read {path}: {error}") from error
        try:
            content = plain_data(data)
            return cls(path, data, content, parse_results(content))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            raise BadInput(f"{path}: not a results file: {error}.") from error

    def attempts(self, task: TaskResult) -> Iterator[WholeAttempt]:
        transcripts = self.transcripts()
        for attempt in task.attempts:
            yield WholeAttempt(attempt, turns_of(transcripts.get((task.task_id, attempt.attempt))))

    def transcripts(self) -> dict[tuple[str, int], Any]:
        """By task id and number, as the file has them."""
        return {
            (task["task_id"], int(attempt["attempt"])): attempt["transcript"]
            for task in self.content["task_results"]
            for attempt in task["attempts"]
            if isinstance(attempt.get("transcript"), list)
        }

    @property
    def of_present_shape(self) -> bool:
        """Releases of the reference since 0.5 read it; the file of 0.4 not even the reference reads any more."""
        aggregate = self.content.get("aggregate")
        return isinstance(aggregate, dict) and {"avg_score", "per_task"} <= aggregate.keys()


def _end(header: RunHeader, lines: Sequence[Line]) -> datetime:
    """When the run ended last; of one that was killed, its last sign of life."""
    told = [line.ended_at for line in lines if isinstance(line, EndRecord)]
    signs = [line.ended_at for line in lines if isinstance(line, AttemptRecord)]
    signs += [line.graded_at for line in lines if isinstance(line, VerdictRecord) and line.graded_at is not None]
    return told[-1] if told else max([header.started_at, *signs])


def file_stem(results: Results) -> str:
    """The name that a results file of the run bears: when it ended."""
    return results.run.timestamp.astimezone(UTC).strftime(FILE_TIME)


def moment_text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat()


def turns_of(transcript: object) -> tuple[Turn, ...] | None:
    """The turns in a file's transcript. What is no turn is left out."""
    if not isinstance(transcript, list):
        return None
    return tuple(_turn(entry) for entry in transcript if isinstance(entry, dict) and isinstance(entry.get("role"), str))


def _turn(entry: Mapping[str, Any]) -> Turn:
    given, result = entry.get("tool_input"), entry.get("tool_output")
    content = entry.get("content")
    if entry["role"] == "tool_result" and isinstance(result, str):
        content = result
    return Turn(
        role=entry["role"],
        content=content if isinstance(content, str) else "" if content is None else json.dumps(content),
        tool_name=_text(entry.get("tool_name")),
        tool_input=given if isinstance(given, dict) else None,
        call_id=_text(entry.get("call_id")),
        is_error=entry["is_error"] if isinstance(entry.get("is_error"), bool) else None,
        parent_call_id=_text(entry.get("parent_call_id")),
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
