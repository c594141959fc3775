"""Which files a person means by the paths that were named."""

from pathlib import Path

from caliper_pipeline.evaluation.history_import import files_meant


def lay(top: Path, *names: str) -> None:
    for name in names:
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text("{}")


def meant(top: Path, *paths: str) -> list[str]:
    return [str(file.relative_to(top)) for file in files_meant(top / path for path in paths)]


def test_of_a_project_its_results_are_meant_and_no_other_json(tmp_path: Path) -> None:
    lay(
        tmp_path,
        "package.json",
        "src/results.json",
        ".caliper/results/demo/a.json",
        ".caliper/results/demo/.a.json",
        ".caliper/results/demo/notes.txt",
        ".caliper/runs/x/run.json",
        ".caliper/dagster/y.json",
        ".caliper/cache/z.json",
        ".caliper/records/imported/0a.json",
        ".git/results/c.json",
        "node_modules/results/d.json",
        "deep/er/.caliper/results/b/b.json",
    )
    assert meant(tmp_path, "") == [
        ".caliper/records/imported/0a.json",
        ".caliper/results/demo/a.json",
        "deep/er/.caliper/results/b/b.json",
    ]


def test_a_folder_within_results_is_meant_as_it_is(tmp_path: Path) -> None:
    lay(tmp_path, ".caliper/results/demo/a.json", ".caliper/results/other/b.json")
    assert meant(tmp_path, ".caliper/results/demo") == [".caliper/results/demo/a.json"]
    assert len(meant(tmp_path, ".caliper")) == 2


def test_where_nothing_is_called_results_all_json_is_meant(tmp_path: Path) -> None:
    lay(tmp_path, "old/one.json", "old/two.json", "old/readme.md")
    assert meant(tmp_path, "old") == ["old/one.json", "old/two.json"]


def test_a_folder_without_any_is_given_itself_so_that_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert meant(tmp_path, "empty") == ["empty"]


def test_a_file_is_meant_once_however_often_it_is_named(tmp_path: Path) -> None:
    lay(tmp_path, "a.json")
    (tmp_path / "b.json").symlink_to("a.json")
    assert meant(tmp_path, "a.json", "a.json", "b.json", "gone.json") == ["a.json", "gone.json"]


def test_links_to_folders_are_not_followed(tmp_path: Path) -> None:
    lay(tmp_path, "top/a.json")
    (tmp_path / "top" / "round").symlink_to(tmp_path / "top")
    assert meant(tmp_path, "top") == ["top/a.json"]


def test_a_folder_that_is_called_like_a_file_is_a_folder(tmp_path: Path) -> None:
    lay(tmp_path, "top/odd.json/a.json")
    assert meant(tmp_path, "top/odd.json", "top") == ["top/odd.json/a.json"]
