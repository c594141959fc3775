"""A results file from a run, attempt by attempt: the transcripts come from the evidence one at a time, so memory
does not grow with their number.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from caliper_pipeline.domain.errors import StorageError
from caliper_pipeline.domain.results import (
    AttemptResult,
    Results,
    SkillSnapshot,
    SnapshotFile,
    TaskResult,
    attempt_dict,
    results_dict,
    task_dict,
)
from caliper_pipeline.domain.transcript import Turn
from caliper_pipeline.storage.files import json_bytes
from caliper_pipeline.storage.runs import RunFolder

LARGEST_TEXT = 1024 * 1024
"""Skill files beyond this many bytes are named with their hash and not embedded."""


def stream_results(stream: BinaryIO, run: RunFolder, results: Results) -> int:
    """Writes the file's text, indented by two, in the order of keys that the schema has.

    Gives how many transcripts are missing because they were pruned.
    """
    pruned = 0
    snapshots = tuple(_with_contents(snapshot, run) for snapshot in results.skill_snapshots)
    outer = results_dict(replace(results, task_results=(), skill_snapshots=snapshots))
    for start, key, value in _entries(outer, 1):
        stream.write(start)
        if key == "task_results":
            pruned = _write_tasks(stream, run, results)
        else:
            stream.write(_indented(value, 1))
    stream.write(b"\n}\n")
    return pruned


def transcript_dict(turn: Turn) -> dict[str, Any]:
    """One turn as the schema has it: what a tool gave stands in two places."""
    content = turn.content
    if turn.role == "tool_use" and not content:
        content = f"[tool: {turn.tool_name}]"
    plain: dict[str, Any] = {
        "role": turn.role,
        "content": content,
        "tool_name": turn.tool_name,
        "tool_input": turn.tool_input,
        "tool_output": turn.content if turn.role == "tool_result" else None,
    }
    ours = {"call_id": turn.call_id, "is_error": turn.is_error, "parent_call_id": turn.parent_call_id}
    plain.update({key: value for key, value in ours.items() if value is not None})
    return plain


def _write_tasks(stream: BinaryIO, run: RunFolder, results: Results) -> int:
    if not results.task_results:
        stream.write(b"[]")
        return 0
    stream.write(b"[")
    pruned = 0
    for number, task in enumerate(results.task_results):
        stream.write(b",\n    " if number else b"\n    ")
        for start, key, value in _entries(task_dict(replace(task, attempts=()), k=results.run.k), 3):
            stream.write(start)
            if key == "attempts":
                pruned += _write_attempts(stream, run, task)
            else:
                stream.write(_indented(value, 3))
        stream.write(b"\n    }")
    stream.write(b"\n  ]")
    return pruned


def _write_attempts(stream: BinaryIO, run: RunFolder, task: TaskResult) -> int:
    if not task.attempts:
        stream.write(b"[]")
        return 0
    stream.write(b"[")
    pruned = 0
    for number, short in enumerate(task.attempts):
        stream.write(b",\n        " if number else b"\n        ")
        attempt, turns = attempt_with_turns(run, short)
        pruned += turns is None and bool(attempt.evidence)
        transcript = None if turns is None else [transcript_dict(turn) for turn in turns]
        stream.write(_indented(attempt_dict(attempt, transcript=transcript), 4))
    stream.write(b"\n      ]")
    return pruned


def attempt_with_turns(run: RunFolder, attempt: AttemptResult) -> tuple[AttemptResult, tuple[Turn, ...] | None]:
    """The attempt with its whole answer, and its transcript. `None`: there is none, or it was pruned."""
    if not attempt.evidence:
        return attempt, None
    try:
        kept = run.read_evidence(attempt.evidence)
    except StorageError:
        return attempt, None
    if attempt.output and attempt.output in kept.final_answer:  # the line holds a part of a long answer
        attempt = replace(attempt, output=kept.final_answer)
    return attempt, kept.turns


def _with_contents(snapshot: SkillSnapshot, run: RunFolder) -> SkillSnapshot:
    try:
        folder = run.skill_folder(snapshot.name)
    except StorageError:
        return snapshot
    files = {path: SnapshotFile(file.hash, _text(folder / path)) for path, file in snapshot.files.items()}
    return replace(snapshot, files=files)


def _text(path: Path) -> str | None:
    try:
        if path.stat().st_size > LARGEST_TEXT:
            return None
        data = path.read_bytes()
        return None if b"\0" in data else data.decode()
    except (OSError, UnicodeDecodeError):
        return None


def _entries(value: Mapping[str, Any], depth: int) -> Iterator[tuple[bytes, str, Any]]:
    """What stands before each value of an object at that depth; then its key and the value."""
    pad = "  " * depth
    for number, (key, item) in enumerate(value.items()):
        yield (("," if number else "{") + f"\n{pad}{json.dumps(key)}: ").encode(), key, item


def _indented(value: Any, depth: int) -> bytes:
    return json_bytes(value, indent=2).replace(b"\n", b"\n" + b"  " * depth)
