"""The commit that a folder is at."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from caliper_pipeline.sources.git_state import GitState, find_git_state
from tests.sources.tree import write

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="no git here")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    write(tmp_path, {"a/x": "x", "b/y": "y"})
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "-c", "user.name=n", "-c", "user.email=e@x", "-c", "commit.gpgsign=false", "commit", "-qm", "first")
    return tmp_path


def git(folder: Path, *words: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(
        ["git", "-C", str(folder), *words],
        check=True,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env=environment,
    )
    return done.stdout.strip()


def test_a_clean_folder_has_its_commit(repository: Path) -> None:
    assert find_git_state(repository / "a") == GitState(git(repository, "rev-parse", "HEAD"), dirty=False)


@pytest.mark.parametrize(("file", "dirty"), [("a/x", True), ("a/new", True), ("b/y", False)])
def test_only_changes_in_the_folder_make_it_dirty(repository: Path, file: str, dirty: bool) -> None:
    write(repository, {file: "changed"})
    state = find_git_state(repository / "a")
    assert state is not None
    assert state.dirty is dirty


def test_a_repository_without_a_commit_has_none(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert find_git_state(tmp_path) == GitState(None, dirty=False)


def test_outside_a_repository_and_in_a_broken_one_there_is_no_state(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    write(tmp_path, {".git/HEAD": "nonsense"})
    assert find_git_state(tmp_path) is None
    assert find_git_state(tmp_path / "none") is None


def test_without_git_there_is_no_state(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(repository))
    assert find_git_state(repository) is None


def test_variables_of_a_git_hook_do_not_lead_elsewhere(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", str(repository / "nowhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(repository / "none"))
    assert find_git_state(repository) == GitState(git(repository, "rev-parse", "HEAD"), dirty=False)


def test_the_repository_cannot_start_a_program(repository: Path) -> None:
    git(repository, "config", "core.fsmonitor", f"touch {repository}/started; false")
    find_git_state(repository)
    assert not (repository / "started").exists()
