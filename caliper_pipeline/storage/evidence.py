"""The evidence of one attempt: a folder that is whole or not there.

    evidence.json    prompt, turns, final answer, usage and whatever else the attempt wants kept
    stream.jsonl     the agent's standard output as it came
    stderr.txt       its standard error, when it wrote any
    workdir.tar      the snapshot of the workdir, when there is one
    judge-<n>.json   what the judge of generation n was asked and what it answered

It is written under a hidden name, forced to the disk and renamed; the line in the run log comes after, so a folder
without a line stems from a crash and gives way when the attempt is made again.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from caliper_pipeline.domain.errors import StorageError
from caliper_pipeline.domain.plain import from_plain, to_plain
from caliper_pipeline.domain.series import attempt_key, folder_name
from caliper_pipeline.domain.transcript import Turn, Usage
from caliper_pipeline.storage.files import (
    json_bytes,
    make_folders,
    storage_errors,
    sync_path,
    write_whole,
)

EVIDENCE_FOLDER = "evidence"
PRUNED_NOTE = "pruned.json"
"""In a run's folder: when its evidence was removed."""
_TURN_FIELDS = ("tool_name", "tool_input", "call_id", "is_error", "parent_call_id")


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is kept of an attempt."""

    turns: Sequence[Turn] = ()
    final_answer: str = ""
    prompt: str = ""
    raw_stdout: bytes = b""
    raw_stderr: bytes = b""
    usage: Usage | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Plain data: timings, the model, what the backend said."""
    workdir_tar: Path | None = None
    """A finished archive, which moves into the evidence."""


@dataclass(frozen=True, slots=True)
class StoredEvidence:
    """What was kept. Large things are given as files; `None`: not kept, or pruned."""

    folder: Path
    turns: tuple[Turn, ...]
    final_answer: str
    prompt: str
    usage: Usage | None
    extra: Mapping[str, Any]
    stream: Path | None
    stderr: Path | None
    workdir_tar: Path | None


def save_evidence(run: Path, task_name: str, attempt: int, evidence: Evidence) -> str:
    """Keeps the evidence; it is on the disk when this returns. Gives its folder, relative to the run's."""
    relative = f"{EVIDENCE_FOLDER}/{folder_name(task_name)}/{attempt_key(attempt)}"
    target = run / relative
    aside = target.with_name(f".{target.name}.{os.urandom(4).hex()}.new")
    with storage_errors("write", target):
        make_folders(target.parent)
        aside.mkdir()
        try:
            # All bytes are written before the first is forced down: one commit of the journal then carries them all.
            (aside / "evidence.json").write_bytes(_evidence_json(task_name, attempt, evidence))
            (aside / "stream.jsonl").write_bytes(evidence.raw_stdout)
            if evidence.raw_stderr:
                (aside / "stderr.txt").write_bytes(evidence.raw_stderr)
            if evidence.workdir_tar is not None:
                _move(evidence.workdir_tar, aside / "workdir.tar")
            for name in os.listdir(aside):  # noqa: PTH208  names are all that is needed
                sync_path(aside / name)
            sync_path(aside)
            _put_in_place(aside, target)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
    return relative


def read_evidence(run: Path, relative: str) -> StoredEvidence:
    """The evidence that an attempt's line points to. Raises `StorageError` when it is gone or damaged."""
    folder = evidence_folder(run, relative)
    path = folder / "evidence.json"
    if not path.exists():
        refuse_pruned(run)
    with storage_errors("read", path):
        raw = path.read_bytes()
    try:
        data = json.loads(raw)
        usage = data.get("usage")
        return StoredEvidence(
            folder=folder,
            turns=tuple(from_plain(Turn, turn) for turn in data["turns"]),
            final_answer=data["final_answer"],
            prompt=data["prompt"],
            usage=None if usage is None else from_plain(Usage, usage),
            extra=data.get("extra") or {},
            stream=_if_there(folder / "stream.jsonl"),
            stderr=_if_there(folder / "stderr.txt"),
            workdir_tar=_if_there(folder / "workdir.tar"),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise StorageError(f"Cannot read {path}: it is damaged ({error})") from error


def refuse_pruned(run: Path) -> None:
    """Raises `StorageError` when the run's evidence was removed and none has come since."""
    if (run / PRUNED_NOTE).exists() and not (run / EVIDENCE_FOLDER).exists():
        raise StorageError(
            f"The evidence of run {run.name} was pruned: transcript, answer and workdir of its attempts are gone.",
            hint="Its verdicts and figures are kept. To judge again, run it anew.",
        )


def save_judgement(run: Path, relative: str, generation: int, asked: str, answered: Sequence[str]) -> None:
    """Keeps what the judge was asked and every answer it gave, beside the attempt's evidence."""
    path = evidence_folder(run, relative) / f"judge-{generation}.json"
    with storage_errors("write", path):
        write_whole(path, json_bytes({"asked": asked, "answered": list(answered)}, indent=1))


def read_judgement(run: Path, relative: str, generation: int) -> tuple[str, tuple[str, ...]] | None:
    """The question and the answers of that generation. `None`: the judge was not asked."""
    path = evidence_folder(run, relative) / f"judge-{generation}.json"
    try:
        with storage_errors("read", path):
            data = json.loads(path.read_bytes()) if path.exists() else None
        return None if data is None else (data["asked"], tuple(data["answered"]))
    except (ValueError, TypeError, KeyError) as error:
        raise StorageError(f"Cannot read {path}: it is damaged ({error})") from error


def evidence_folder(run: Path, relative: str) -> Path:
    """The folder that the line names; lines may come from elsewhere, so it must lie inside the run's."""
    parts = relative.split("/")
    if len(parts) != 3 or parts[0] != EVIDENCE_FOLDER or any(p in ("", ".", "..") or "\0" in p for p in parts):
        raise StorageError(f"Not a folder of evidence: {relative!r} in {run}")
    return run / relative


def turn_dict(turn: Turn) -> dict[str, Any]:
    plain: dict[str, Any] = {"role": turn.role, "content": turn.content}
    for name in _TURN_FIELDS:
        value = getattr(turn, name)
        if value is not None:
            plain[name] = value
    return plain


def _evidence_json(task_name: str, attempt: int, evidence: Evidence) -> bytes:
    return json_bytes(
        {
            "schema": 1,
            "task_name": task_name,
            "attempt": attempt,
            "prompt": evidence.prompt,
            "final_answer": evidence.final_answer,
            "usage": None if evidence.usage is None else to_plain(evidence.usage),
            "extra": dict(evidence.extra),
            "turns": [turn_dict(turn) for turn in evidence.turns],
        }
    )


def _put_in_place(aside: Path, target: Path) -> None:
    try:
        aside.rename(target)
    except OSError:
        if not target.exists():
            raise
        older = target.with_name(f".{target.name}.{os.urandom(4).hex()}.old")
        target.rename(older)
        aside.rename(target)
        shutil.rmtree(older, ignore_errors=True)
    sync_path(target.parent)


def _move(source: Path, target: Path) -> None:
    try:
        source.rename(target)
    except OSError:  # on another file system
        shutil.copyfile(source, target)
        with contextlib.suppress(OSError):
            source.unlink()


def _if_there(path: Path) -> Path | None:
    return path if path.exists() else None
