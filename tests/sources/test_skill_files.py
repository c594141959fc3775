"""What of a skill's folder is installed."""

import hashlib
import os
import socket
from pathlib import Path

import pytest

from caliper_pipeline.sources.skill_files import LARGEST_FILE, Exclusions, Listing, Unreadable, list_files
from tests.sources.tree import write


def names(listing: Listing) -> list[str]:
    return [file.path for file in listing.files]


def left_out(listing: Listing) -> dict[str, str]:
    return {item.path: item.reason for item in listing.left_out}


def test_every_file_is_listed_with_hash_size_and_mode(tmp_path: Path) -> None:
    write(tmp_path, {"SKILL.md": "x", "docs/b.md": "bb", "docs/a.md": b"\xff\x00", "run.sh": "#!/bin/sh\n"})
    (tmp_path / "run.sh").chmod(0o755)
    found = list_files(tmp_path, Exclusions())
    assert names(found) == ["SKILL.md", "docs/a.md", "docs/b.md", "run.sh"]
    assert [file.executable for file in found.files] == [False, False, False, True]
    assert found.files[1].hash == f"sha256:{hashlib.sha256(bytes([255, 0])).hexdigest()}"
    assert [file.size_bytes for file in found.files] == [1, 2, 2, 10]
    assert found.files[2].source == str(tmp_path.resolve() / "docs/b.md")


@pytest.mark.parametrize(
    "path",
    [
        ".git/HEAD",
        "sub/.git/HEAD",
        ".caliper/results/x.json",
        "node_modules/a/index.js",
        "a/b/node_modules/c",
        ".venv/pyvenv.cfg",
        "x/__pycache__/a.pyc",
        ".GIT/HEAD",  # the same folder where letter case does not count
        ".git",  # of a work tree: a file that names the repository
        "sub/.git",
        ".hg/store/data",
        "sub/.svn/entries",
        "tools/env/pyvenv.cfg",  # makes its folder a virtual environment, whatever that is called
        "case.eval.yaml",
        "a/case.eval.yml",
        "CASE.EVAL.YAML",
        "case.script.yaml",
        "case.script.yml",
    ],
)
def test_what_is_never_part_of_a_skill_stays_out(tmp_path: Path, path: str) -> None:
    write(tmp_path, {"SKILL.md": "x", path: "y"})
    assert names(list_files(tmp_path, Exclusions())) == ["SKILL.md"]


def test_nothing_of_a_virtual_environment_is_installed_and_no_link_to_one_is_a_warning(tmp_path: Path) -> None:
    write(tmp_path, {"SKILL.md": "x", "env/pyvenv.cfg": "home", "env/lib/site.py": "s", "lib/a.py": "a"})
    (tmp_path / ".venv").symlink_to("env")
    found = list_files(tmp_path, Exclusions())
    assert (names(found), left_out(found)) == (["SKILL.md", "lib/a.py"], {})


@pytest.mark.parametrize("path", [".github/x.yml", ".env.example", "eval.yaml", "a.evals.yaml", "git/HEAD", "venv/x"])
def test_what_only_looks_similar_is_installed(tmp_path: Path, path: str) -> None:
    write(tmp_path, {"SKILL.md": "x", path: "y"})
    assert path in names(list_files(tmp_path, Exclusions()))


@pytest.mark.parametrize(
    ("pattern", "kept"),
    [
        ("answers/", ["SKILL.md", "my-answers.md", "n.txt"]),
        ("answers", ["SKILL.md", "n.txt"]),
        ("^answers/", ["SKILL.md", "my-answers.md", "n.txt"]),
        (r"^\./answers/", ["SKILL.md", "my-answers.md", "n.txt"]),  # paths are matched with ./ in front too
        (r"\.txt$", ["SKILL.md", "answers/key.md", "my-answers.md"]),
    ],
)
def test_patterns_of_the_author_keep_files_out(tmp_path: Path, pattern: str, kept: list[str]) -> None:
    write(tmp_path, {"SKILL.md": "x", "answers/key.md": "k", "n.txt": "n", "my-answers.md": "m"})
    assert names(list_files(tmp_path, Exclusions((pattern,)))) == kept


def test_a_link_to_a_file_is_installed_as_the_bytes_of_its_target(tmp_path: Path) -> None:
    write(tmp_path, {"skill/SKILL.md": "x", "shared/notes.txt": "shared"})
    (tmp_path / "skill/notes.md").symlink_to("../shared/notes.txt")
    found = list_files(tmp_path / "skill", Exclusions())
    assert names(found) == ["SKILL.md", "notes.md"]
    assert found.files[1].source == str((tmp_path / "shared/notes.txt").resolve())
    assert found.files[1].size_bytes == 6


@pytest.mark.parametrize(
    ("target", "pattern"),
    [
        ("answers/key.md", "answers/"),
        ("answers/key.md", "^answers/"),
        ("../hidden/key.md", "hidden/"),  # outside: matched by its absolute path
        ("../hidden/key.md", r"^\.\./hidden/"),
        ("../hidden/key.md", "^hidden/"),  # outside: matched by its way from the spec
        ("second", "answers/"),  # over another link
        (".git/config", "zzz"),
        ("case.eval.yaml", "zzz"),
    ],
)
def test_a_link_does_not_bring_in_what_is_excluded(tmp_path: Path, target: str, pattern: str) -> None:
    write(
        tmp_path,
        {"skill/SKILL.md": "x", "skill/answers/key.md": "k", "hidden/key.md": "h", "skill/.git/config": "g"}
        | {"skill/case.eval.yaml": "e"},
    )
    (tmp_path / "skill/second").symlink_to("answers/key.md")
    (tmp_path / "skill/innocent.md").symlink_to(target)
    found = list_files(tmp_path / "skill", Exclusions((pattern,), spec_folder=tmp_path))
    assert "innocent.md" not in names(found)
    assert "link" in found.excluded["innocent.md"]


def test_a_second_name_of_an_excluded_file_does_not_bring_it_in(tmp_path: Path) -> None:
    write(tmp_path, {"SKILL.md": "x", "answers/key.md": "k"})
    os.link(tmp_path / "answers/key.md", tmp_path / "notes.md")
    assert names(list_files(tmp_path, Exclusions(("answers/",)))) == ["SKILL.md"]


def test_the_spec_itself_is_never_installed_whatever_it_is_called(tmp_path: Path) -> None:
    write(tmp_path, {"SKILL.md": "x", "case.yaml": "e"})
    status = (tmp_path / "case.yaml").stat()
    (tmp_path / "alias.yaml").symlink_to("case.yaml")
    assert names(list_files(tmp_path, Exclusions(spec_identity=(status.st_dev, status.st_ino)))) == ["SKILL.md"]


def test_what_cannot_be_installed_is_named_and_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"SKILL.md": "x", "sub/a.md": "a"})
    with (tmp_path / "big.bin").open("wb") as file:
        file.truncate(LARGEST_FILE + 1)
    with (tmp_path / "fits.bin").open("wb") as file:
        file.truncate(LARGEST_FILE)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to-pipe").symlink_to("pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "gone").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "folder").symlink_to("sub")
    monkeypatch.chdir(tmp_path)  # a socket's path has room for a hundred characters only
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("sock")
    found = list_files(tmp_path, Exclusions())
    assert names(found) == ["SKILL.md", "fits.bin", "sub/a.md"]
    reasons = left_out(found)
    assert set(reasons) == {"big.bin", "device", "folder", "gone", "loop", "pipe", "sock", "to-pipe"}
    assert "5,242,881 bytes" in reasons["big.bin"]
    assert "folder" in reasons["folder"]
    assert "nowhere" in reasons["gone"]
    assert "no plain file" in reasons["device"]


def test_a_name_that_is_not_utf8_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, {"SKILL.md": "x"})
    try:
        (tmp_path / os.fsdecode(b"bad\xff.md")).touch()
    except OSError:
        pytest.skip("this file system takes no such names")
    found = list_files(tmp_path, Exclusions())
    assert names(found) == ["SKILL.md"]
    assert "not UTF-8" in next(iter(left_out(found).values()))


def test_what_may_not_be_read_is_an_error_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"SKILL.md": "x", "secret.md": "s"})
    opened = os.open

    def refuse(path: str, flags: int, *rest: int) -> int:
        if str(path).endswith("secret.md"):
            raise PermissionError(13, "Permission denied")
        return opened(path, flags, *rest)

    monkeypatch.setattr(os, "open", refuse)  # root may read everything, so permissions alone would not do
    with pytest.raises(Unreadable, match=r"secret\.md: Permission denied"):
        list_files(tmp_path, Exclusions())
