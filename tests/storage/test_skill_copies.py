import hashlib
import os
from pathlib import Path

import pytest

from caliper_pipeline.domain.errors import CannotRun, StorageError
from caliper_pipeline.domain.skills import Skill, SkillFile
from caliper_pipeline.storage.runs import RunFolder
from caliper_pipeline.storage.skill_copies import copy_is_whole


def skill_of(folder: Path, name: str = "tides") -> Skill:
    files = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        data = path.read_bytes()
        files.append(
            SkillFile(
                path.relative_to(folder).as_posix(),
                str(path),
                "sha256:" + hashlib.sha256(data).hexdigest(),
                len(data),
                os.access(path, os.X_OK) and path.stat().st_mode & 0o100 != 0,
            )
        )
    return Skill(name, None, str(folder / "SKILL.md"), tuple(files))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    (folder / "scripts").mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: tides\n---\n")
    (folder / "scripts/run.sh").write_text("#!/bin/sh\n")
    (folder / "scripts/run.sh").chmod(0o755)
    (folder / "data.bin").write_bytes(bytes(range(256)))
    return folder


def test_the_copy_has_the_same_bytes_and_the_exec_bits(run: RunFolder, source: Path) -> None:
    skill = skill_of(source)
    run.stage_skills((skill,))
    copy = run.skill_folder("tides")
    assert copy == run.path / "skills/tides"
    assert (copy / "data.bin").read_bytes() == bytes(range(256))
    assert (copy / "scripts/run.sh").stat().st_mode & 0o777 == 0o755
    assert (copy / "SKILL.md").stat().st_mode & 0o777 == 0o644
    assert copy_is_whole(run.path, "tides", {item.path: item.hash for item in skill.files})


def test_staging_again_keeps_the_copy_even_when_the_source_was_edited(run: RunFolder, source: Path) -> None:
    skill = skill_of(source)
    run.stage_skills((skill,))
    (source / "SKILL.md").write_text("edited")
    run.stage_skills((skill,))
    assert (run.skill_folder("tides") / "SKILL.md").read_text() == "---\nname: tides\n---\n"


def test_a_damaged_copy_is_made_again(run: RunFolder, source: Path) -> None:
    skill = skill_of(source)
    run.stage_skills((skill,))
    (run.skill_folder("tides") / "SKILL.md").write_bytes(b"")
    run.stage_skills((skill,))
    assert (run.skill_folder("tides") / "SKILL.md").read_text() == "---\nname: tides\n---\n"


def test_a_file_that_changed_since_it_was_loaded_is_refused(run: RunFolder, source: Path) -> None:
    skill = skill_of(source)
    (source / "SKILL.md").write_text("edited")
    with pytest.raises(CannotRun, match=r"tides: SKILL\.md changed"):
        run.stage_skills((skill,))
    assert list((run.path / "skills").iterdir()) == []


def test_a_file_that_went_away_is_refused(run: RunFolder, source: Path) -> None:
    skill = skill_of(source)
    (source / "data.bin").unlink()
    with pytest.raises(CannotRun, match=r"tides: data\.bin cannot be read"):
        run.stage_skills((skill,))


@pytest.mark.parametrize("name", ["", ".", "..", "../../evil", "/abs", "a\0b"])
def test_a_skill_s_name_cannot_climb(run: RunFolder, source: Path, name: str) -> None:
    with pytest.raises(StorageError, match="Not a name"):
        run.stage_skills((skill_of(source, name),))


@pytest.mark.parametrize("path", ["../../evil", "/tmp/evil", "a/../../evil"])
def test_a_skill_s_file_cannot_climb(run: RunFolder, source: Path, path: str) -> None:
    good = skill_of(source).files[0]
    bad = SkillFile(path, good.source, good.hash, good.size_bytes)
    with pytest.raises(StorageError, match="not a path inside the skill"):
        run.stage_skills((Skill("tides", None, "x", (bad,)),))
    assert not list(run.path.parent.rglob("evil*"))


def test_many_files_are_staged(run: RunFolder, tmp_path: Path) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(450):
        (folder / f"{number}.txt").write_text(str(number))
    run.stage_skills((skill_of(folder, "many"),))
    assert sum(1 for _ in run.skill_folder("many").iterdir()) == 450
