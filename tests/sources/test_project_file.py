"""Where a project is, and what its caliper.yaml says."""

from pathlib import Path

import pytest

from caliper_pipeline.domain.errors import SpecError
from caliper_pipeline.domain.project import ProjectConfig
from caliper_pipeline.sources.project_file import find_project_root, load_project
from tests.sources.tree import write


@pytest.mark.parametrize("text", [None, "", "# nothing\n"])
def test_a_project_without_configuration_has_defaults(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        write(tmp_path, {"caliper.yaml": text})
    assert load_project(tmp_path) == ProjectConfig()


def test_the_configuration_is_read(tmp_path: Path) -> None:
    write(tmp_path, {"caliper.yaml": b"\xef\xbb\xbfk: 5\r\nmodel: codex\r\nlimits:\r\n  assert_seconds: 5\r\n"})
    config = load_project(tmp_path)
    assert (config.k, config.model, config.limits.assert_seconds, config.workers) == (5, "codex", 5.0, 4)


def test_everything_wrong_is_told_with_line_and_key(tmp_path: Path) -> None:
    write(tmp_path, {"caliper.yaml": "k: 0\nworker: 2\nenvironment:\n  agent:\n    - OK\n    - '*'\n"})
    with pytest.raises(SpecError) as caught:
        load_project(tmp_path)
    assert [(problem.line, problem.key) for problem in caught.value.problems] == [
        (1, "k"),
        (2, "worker"),
        (6, "environment → agent → #2"),
    ]
    assert "Did you mean `workers`?" in str(caught.value)


@pytest.mark.parametrize("text", ["- a", "k: 1\nk: 2", "k: [", "x: !!python/name:os.system"])
def test_a_file_that_holds_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    write(tmp_path, {"caliper.yaml": text})
    with pytest.raises(SpecError, match=r"caliper\.yaml"):
        load_project(tmp_path)


def test_a_misnamed_file_is_not_ignored_in_silence(tmp_path: Path) -> None:
    write(tmp_path, {"caliper.yml": "k: 5\n"})
    with pytest.raises(SpecError, match=r"call it caliper\.yaml"):
        load_project(tmp_path)


@pytest.mark.parametrize(
    ("files", "start", "root"),
    [
        ({"caliper.yaml": ""}, "a/b", "."),
        ({".caliper/x": ""}, "a/b", "."),
        ({"caliper.yaml": "", "a/.caliper/x": ""}, "a/b", "a"),  # the nearest wins, whichever it is
        ({".caliper/x": "", "a/caliper.yaml": ""}, "a/b", "a"),
        ({"caliper.yaml": "", "a/.git/HEAD": ""}, "a/b", "a"),  # never above the repository
        ({"caliper.yaml": "", "a/.git": "gitdir: elsewhere"}, "a/b", "a"),  # a worktree has a file there
        ({".git/HEAD": "", "a/caliper.yaml": ""}, "a/b", "a"),
        ({".git/HEAD": "", "caliper.yaml": ""}, "a/b", "."),
        ({".git/HEAD": ""}, "a/b", "."),
        ({".git/HEAD": "", "a/.caliper": "a file"}, "a/b", "."),
        ({}, "a/b", "a/b"),  # outside any repository: where one is
    ],
)
def test_the_project_is_found_upwards_inside_the_repository(
    tmp_path: Path, files: dict[str, str], start: str, root: str
) -> None:
    write(tmp_path, dict(files))
    (tmp_path / start).mkdir(parents=True, exist_ok=True)
    if not files:
        for folder in (tmp_path, *tmp_path.parents):
            if any((folder / name).exists() for name in (".git", ".caliper", "caliper.yaml")):
                pytest.skip("the tests' own folder lies in a project")
    assert find_project_root(tmp_path / start) == tmp_path / root
