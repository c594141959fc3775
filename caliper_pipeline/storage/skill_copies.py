"""The bytes of a run's skills, copied into the run's folder once, before the first attempt.

Attempts install from these copies, so an edit while a run goes on changes nothing, and what was measured can be
looked at later. The copies are checked against the hashes that the skill was loaded with.
"""

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from caliper_pipeline.domain.errors import CannotRun, StorageError
from caliper_pipeline.domain.skills import Skill
from caliper_pipeline.storage.files import storage_errors, sync_all, sync_path

SKILLS_FOLDER = "skills"


def stage_skills(run: Path, skills: Sequence[Skill]) -> None:
    """Copies what is not there yet. Raises `CannotRun` when a file is no longer what was loaded."""
    top = run / SKILLS_FOLDER
    with storage_errors("write", top):
        top.mkdir(exist_ok=True)
        for skill in skills:
            target = skill_folder(run, skill.name)
            if target.is_dir() and copy_is_whole(run, skill.name, {item.path: item.hash for item in skill.files}):
                continue
            aside = top / f".{os.urandom(6).hex()}.new"
            try:
                aside.mkdir()
                _copy(skill, aside)
                shutil.rmtree(target, ignore_errors=True)
                aside.rename(target)
            except BaseException:
                shutil.rmtree(aside, ignore_errors=True)
                raise
        sync_path(top)
        sync_path(run)


def skill_folder(run: Path, name: str) -> Path:
    """Where the copy of that skill is."""
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise StorageError(f"Not a name for a skill's folder: {name!r}")
    return run / SKILLS_FOLDER / name


def copy_is_whole(run: Path, name: str, hashes: Mapping[str, str]) -> bool:
    """Whether the copy holds exactly these files (path → `sha256:…`)."""
    folder = skill_folder(run, name)
    found = {}
    for place, _, names in os.walk(folder):
        for file in names:
            path = Path(place, file)
            found[path.relative_to(folder).as_posix()] = _hash(path.read_bytes())
    return found == dict(hashes)


def _copy(skill: Skill, target: Path) -> None:
    handles: list[int] = []
    try:
        for item in skill.files:
            place = PurePosixPath(item.path)
            if place.is_absolute() or ".." in place.parts:
                raise StorageError(f"{skill.name}: not a path inside the skill: {item.path!r}")
            data = _read(skill.name, item.path, Path(item.source))
            if _hash(data) != item.hash:
                raise CannotRun(
                    f"{skill.name}: {item.path} changed while the run was being prepared.",
                    hint="Start the run again.",
                )
            path = target / place
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            handles.append(handle)
            with os.fdopen(handle, "wb", closefd=False) as stream:
                stream.write(data)
            os.fchmod(handle, 0o755 if item.executable else 0o644)
            if len(handles) >= 200:
                _sync_and_close(handles)
        _sync_and_close(handles)
    finally:
        for handle in handles:
            os.close(handle)
    for folder, _, _ in os.walk(target, topdown=False):
        sync_path(Path(folder))


def _sync_and_close(handles: list[int]) -> None:
    sync_all(handles)
    while handles:
        os.close(handles.pop())


def _read(skill: str, path: str, source: Path) -> bytes:
    try:
        return source.read_bytes()
    except OSError as error:
        raise CannotRun(f"{skill}: {path} cannot be read: {error.strerror}", hint="Start the run again.") from error


def _hash(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()
