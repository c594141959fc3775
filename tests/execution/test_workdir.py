import fcntl
import os
import shutil
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from caliper_pipeline.domain.errors import BadInput, CannotRun
from caliper_pipeline.execution.environment import temp_folder
from caliper_pipeline.execution.removal import remove_tree
from caliper_pipeline.execution.workdir import find_temp_root, install_skill, make_attempt_folder, sweep_stale

REPOSITORY = Path(__file__).parents[2]
HEAD = f"import os, signal, sys; from pathlib import Path; sys.path.insert(0, {str(REPOSITORY)!r})\n"


def as_nobody(script: str, folder: Path) -> None:
    """Run a script in that folder as a user who is bound by file modes; with superuser rights modes mean nothing."""
    demote = "os.umask(0)\nif os.getuid() == 0: os.chown('.', 65534, 65534); os.setgid(65534); os.setuid(65534)\n"
    imports = "from caliper_pipeline.execution.removal import remove_tree\n"  # before its files are out of reach
    command = [sys.executable, "-c", HEAD + imports + demote + script]
    ended = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_new_attempt_has_an_empty_workdir_beside_its_home(tmp_path: Path) -> None:
    with make_attempt_folder(tmp_path) as folder:
        assert list(folder.workdir.iterdir()) == []
        assert folder.home not in folder.workdir.parents
        assert folder.workdir not in folder.home.parents
        assert temp_folder(folder.home).is_dir()
        for made in (folder.top, folder.home, folder.workdir, folder.private):
            assert stat.S_IMODE(made.stat().st_mode) == 0o700
        assert folder.top not in folder.private.parents


def test_the_folders_names_give_nothing_away(tmp_path: Path) -> None:
    with make_attempt_folder(tmp_path) as folder:
        shown = [path.relative_to(tmp_path) for path in (folder.home, folder.workdir, folder.private)]
        assert not [word for word in ("caliper", "eval", "test", "spec", "judge") if word in str(shown)]


@pytest.mark.parametrize("damage", ["removed", "all removed", "a file", "a link", "a dead link", "locked"])
def test_a_workdir_that_its_agent_ruined_is_a_folder_again_and_removed_at_the_end(tmp_path: Path, damage: str) -> None:
    temp, elsewhere = tmp_path / "temp", tmp_path / "elsewhere"
    temp.mkdir()
    elsewhere.mkdir()
    with make_attempt_folder(temp) as folder:
        if damage == "locked":
            folder.workdir.chmod(0)
        elif damage == "all removed":
            shutil.rmtree(folder.top)
        else:
            folder.workdir.rmdir()
        if damage == "a file":
            folder.workdir.write_text("x")
        elif damage.endswith("link"):
            folder.workdir.symlink_to(elsewhere if damage == "a link" else tmp_path / "nowhere")
        folder.mend_workdir()
        assert stat.S_ISDIR(folder.workdir.lstat().st_mode)
        assert folder.workdir.stat().st_mode & 0o700 == 0o700
    assert list(temp.iterdir()) == []
    assert elsewhere.is_dir()


def test_nothing_stays_of_an_attempt(tmp_path: Path) -> None:
    with make_attempt_folder(tmp_path) as folder:
        (folder.home / "login").write_text("secret")
        (folder.private / "check.py").write_text("x")
    assert list(tmp_path.iterdir()) == []
    assert folder.remove() is None


def test_links_out_of_an_attempt_are_removed_but_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    temp = tmp_path / "temp"
    temp.mkdir()
    with make_attempt_folder(temp) as folder:
        (folder.workdir / "folder").symlink_to(outside)
        (folder.workdir / "file").symlink_to(outside / "kept")
        (folder.workdir / "loop").symlink_to("loop")
        folder.home.rename(folder.top / "moved")
        (folder.top / "home").symlink_to(outside)
    assert (outside / "kept").read_text() == "x"
    assert list(temp.iterdir()) == []


READ_ONLY = """
top = Path("top")
deep = top / "a" / "b"
deep.mkdir(parents=True)
(deep / "file").write_text("x")
(top / "blind").mkdir()
(top / "blind" / "file").write_text("x")
for path, mode in ((deep / "file", 0), (deep, 0o555), (top / "a", 0o500), (top / "blind", 0), (top, 0o111)):
    path.chmod(mode)
sys.exit(remove_tree(top) or top.exists())
"""


def test_read_only_trees_are_removed(tmp_path: Path) -> None:
    as_nobody(READ_ONLY, tmp_path)


@pytest.mark.skipif(os.getuid() != 0, reason="needs files of another user")
def test_what_cannot_be_removed_is_told(tmp_path: Path) -> None:
    (tmp_path / "top" / "a").mkdir(parents=True)
    (tmp_path / "top" / "a" / "theirs").write_text("x")
    as_nobody("sys.exit('Permission denied' not in str(remove_tree(Path('top'))))", tmp_path)
    assert (tmp_path / "top" / "a" / "theirs").exists()


def test_what_is_not_there_need_not_be_removed(tmp_path: Path) -> None:
    assert remove_tree(tmp_path / "never") is None
    assert remove_tree(tmp_path / "no" / "such") is None


def test_a_tree_deeper_than_any_path_is_removed(tmp_path: Path) -> None:
    top = tmp_path / "deep"
    top.mkdir()
    fd = os.open(top, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("folder-name", dir_fd=fd)
        below = os.open("folder-name", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)
    assert remove_tree(top) is None
    assert not top.exists()


OWNER = """
from caliper_pipeline.execution.workdir import make_attempt_folder
for _ in range(3):
    folder = make_attempt_folder(Path(sys.argv[1]))
    (folder.home / "login").write_text("secret")
    (folder.private / "tar").write_text("x")
os.kill(os.getpid(), signal.SIGKILL)
"""


def leave_stale(temp: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", HEAD + OWNER, str(temp)], stdin=subprocess.DEVNULL)
    assert ended.returncode == -signal.SIGKILL
    assert len(list(temp.iterdir())) == 6


def test_homes_left_by_a_killed_process_are_swept(tmp_path: Path) -> None:
    leave_stale(tmp_path)
    with make_attempt_folder(tmp_path) as live:
        assert sweep_stale(tmp_path) == 3
        assert {live.top, live.private} == set(tmp_path.iterdir())
        assert live.workdir.is_dir()


def test_many_may_sweep_at_once(tmp_path: Path) -> None:
    leave_stale(tmp_path)
    with ThreadPoolExecutor(4) as pool:
        swept = list(pool.map(lambda _: sweep_stale(tmp_path), range(8)))
    assert sum(swept) == 3
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_leaves_alone_what_is_not_ours(tmp_path: Path) -> None:
    """Anybody may put folders and marks of any content into a shared temporary folder."""
    victim = tmp_path / "victim"
    victim.mkdir()
    cases = {
        "w-aaaaaaaaaaaa": "../victim\n",
        "w-bbbbbbbbbbbb": "victim\n",
        "w-cccccccccccc": f"{victim}\n",
        "w-dddddddddddd": "",
        "w-eeeeeeeeeeee": "w-aaaaaaaaaaaa/../victim\n",
    }
    for name, content in cases.items():
        (tmp_path / name).mkdir(mode=0o700)
        (tmp_path / name / "mark").write_text(content)
    (tmp_path / "w-ffffffffffff").mkdir(mode=0o755)
    (tmp_path / "w-ffffffffffff" / "mark").write_text("w-aaaaaaaaaaaa\n")
    (tmp_path / "w-gggggggggggg").symlink_to(victim)
    (tmp_path / "w-hhhhhhhhhhhh").write_text("x")
    (tmp_path / "w-iiiiiiiiiiii").mkdir(mode=0o700)
    (tmp_path / "w-iiiiiiiiiiii" / "mark").symlink_to(victim)
    (tmp_path / "w-jjjjjjjjjjjj").mkdir(mode=0o700)  # without a mark, and young
    (tmp_path / "other").mkdir()
    before = sorted(tmp_path.rglob("*"))
    assert sweep_stale(tmp_path) == 0
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_that_was_never_marked_is_swept_when_old(tmp_path: Path) -> None:
    folder = tmp_path / "w-aaaaaaaaaaaa"
    folder.mkdir(mode=0o700)
    (folder / "mark.new").write_text("")
    os.utime(folder, (1, 1))
    full = tmp_path / "w-bbbbbbbbbbbb"
    full.mkdir(mode=0o700)
    (full / "work").mkdir()
    os.utime(full, (1, 1))
    sweep_stale(tmp_path)
    assert list(tmp_path.iterdir()) == [full]


def test_a_removal_that_was_cut_short_is_finished(tmp_path: Path) -> None:
    folder = make_attempt_folder(tmp_path)
    remove_tree(folder.top)
    fcntl.flock(folder.lock, fcntl.LOCK_UN)
    assert sweep_stale(tmp_path) == 1
    assert list(tmp_path.iterdir()) == []


def test_temporary_folders_below_instructions_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "project" / "tmp"
    inside.mkdir(parents=True)
    monkeypatch.setenv("TMPDIR", str(inside))
    assert find_temp_root() == inside.resolve()
    (tmp_path / "project" / "CLAUDE.md").write_text("Speak like a pirate.")
    assert find_temp_root() != inside.resolve()


def test_every_temporary_folder_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_stale(tmp_path)
    (tmp_path / "CLAUDE.md").write_text("It appeared after the attempts were made.")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert sweep_stale() >= 3
    assert [path.name for path in tmp_path.iterdir()] == ["CLAUDE.md"]


def test_no_room_for_an_attempt_is_said(tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match="No folder for an attempt"):
        make_attempt_folder(tmp_path / "missing")


def test_a_skill_is_installed_byte_for_byte(tmp_path: Path) -> None:
    source = tmp_path / "staged"
    (source / "scripts" / "deep").mkdir(parents=True)
    (source / "SKILL.md").write_bytes(b"---\r\nname: x\n---\n")
    (source / "scripts" / "go.sh").write_text("#!/bin/sh\n")
    (source / "scripts" / "go.sh").chmod(0o755)
    (source / "scripts" / "deep" / "data.bin").write_bytes(os.urandom(3_000_000))
    (source / "empty").touch(mode=0o444)
    install_skill(source, tmp_path / "home" / ".claude" / "skills", "tide-table")
    installed = tmp_path / "home" / ".claude" / "skills" / "tide-table"
    for path in source.rglob("*"):
        copy = installed / path.relative_to(source)
        if path.is_file():
            assert copy.read_bytes() == path.read_bytes()
            assert bool(copy.stat().st_mode & 0o111) == (path.name == "go.sh")
            assert copy.stat().st_ino != path.stat().st_ino
            with copy.open("a") as file:  # an agent may write into its copy
                file.write("x")
    assert (source / "empty").read_bytes() == b""


def test_an_installed_skill_replaces_what_had_its_name(tmp_path: Path) -> None:
    source = tmp_path / "staged"
    source.mkdir()
    (source / "SKILL.md").write_text("new")
    root = tmp_path / "skills"
    (root / "x" / "sub").mkdir(parents=True)
    (root / "x" / "old.md").write_text("old")
    install_skill(source, root, "x")
    assert [path.name for path in (root / "x").iterdir()] == ["SKILL.md"]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "/abs", "a\0b"])
def test_a_skills_name_cannot_lead_elsewhere(tmp_path: Path, name: str) -> None:
    (tmp_path / "staged").mkdir()
    with pytest.raises(BadInput, match="plain folder name"):
        install_skill(tmp_path / "staged", tmp_path / "skills", name)


def test_a_staged_skill_with_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "staged").mkdir()
    (tmp_path / "staged" / "notes.md").symlink_to("/etc/passwd")
    with pytest.raises(CannotRun, match="only files and folders"):
        install_skill(tmp_path / "staged", tmp_path / "skills", "x")
