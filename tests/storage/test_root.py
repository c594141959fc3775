import os
from pathlib import Path

import pytest

from caliper_pipeline.domain.errors import StorageError
from caliper_pipeline.storage.root import find_root, root_for_saving

NOTHING: dict[str, str] = {}


def folders(top: Path, *names: str) -> None:
    for name in names:
        (top / name).mkdir(parents=True, exist_ok=True)


def test_the_nearest_folder_with_a_store_is_the_root(tmp_path: Path) -> None:
    folders(tmp_path, ".git", ".caliper", "a/.caliper", "a/b/c")
    assert find_root(tmp_path / "a/b/c", environ=NOTHING) == tmp_path / "a"


def test_a_store_above_the_repository_is_not_adopted(tmp_path: Path) -> None:
    folders(tmp_path, ".caliper", "repo/.git", "repo/a")
    assert find_root(tmp_path / "repo/a", environ=NOTHING) is None
    assert root_for_saving(tmp_path / "repo/a", environ=NOTHING) == tmp_path / "repo"


def test_the_inner_of_two_repositories_bounds_the_search(tmp_path: Path) -> None:
    folders(tmp_path, ".git", ".caliper", "inner/.git", "inner/a")
    assert find_root(tmp_path / "inner/a", environ=NOTHING) is None


def test_a_repository_whose_git_is_a_file_bounds_the_search(tmp_path: Path) -> None:
    folders(tmp_path, ".caliper", "worktree/a")
    (tmp_path / "worktree/.git").write_text("gitdir: elsewhere")
    assert find_root(tmp_path / "worktree/a", environ=NOTHING) is None


def test_outside_a_repository_a_store_further_up_is_found(tmp_path: Path) -> None:
    folders(tmp_path, ".caliper", "a/b")
    assert find_root(tmp_path / "a/b", environ=NOTHING) == tmp_path


def test_the_first_save_outside_a_repository_goes_to_the_working_directory(tmp_path: Path) -> None:
    folders(tmp_path, "a/b")
    assert root_for_saving(tmp_path / "a/b", environ=NOTHING) == tmp_path / "a/b"
    assert list((tmp_path / "a/b").iterdir()) == []


def test_the_variable_decides_when_it_is_set(tmp_path: Path) -> None:
    folders(tmp_path, ".caliper", "a", "other")
    environ = {"CALIPER_ROOT": "../other"}
    assert find_root(tmp_path / "a", environ=environ) is None
    assert root_for_saving(tmp_path / "a", environ=environ) == tmp_path / "other"
    folders(tmp_path, "other/.caliper")
    assert find_root(tmp_path / "a", environ=environ) == tmp_path / "other"


@pytest.mark.parametrize("name", [".caliper", ".caliper/results", ".caliper/runs"])
def test_a_file_where_a_folder_must_be_is_refused_before_anything_is_paid(tmp_path: Path, name: str) -> None:
    folders(tmp_path, str(Path(name).parent))
    (tmp_path / name).write_text("not a folder")
    with pytest.raises(StorageError, match=r"Cannot save runs: .*is not a folder"):
        root_for_saving(tmp_path, environ=NOTHING)


def test_a_dangling_link_for_the_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".caliper").symlink_to(tmp_path / "gone")
    with pytest.raises(StorageError, match="Cannot save runs"):
        root_for_saving(tmp_path, environ=NOTHING)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(StorageError, match="may not be written"):
            root_for_saving(tmp_path, environ=NOTHING)
    finally:
        tmp_path.chmod(0o755)
