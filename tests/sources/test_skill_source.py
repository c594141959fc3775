"""Skills found, named and refused as a spec declares them."""

from pathlib import Path

import pytest

from caliper_pipeline.domain.errors import CannotRun, SpecError
from caliper_pipeline.sources.skill_source import load_skills
from caliper_pipeline.sources.spec_file import load_spec
from tests.sources.tree import skill, write

HOME = Path("/nonexistent")


def spec(*skills: str, extra: str = "") -> str:
    listed = "".join(f"  - {entry}\n" for entry in skills)
    return f"skills:\n{listed}{extra}tasks:\n  - {{name: A, prompt: Go., activates: []}}\n"


def refusal(folder: Path, home: Path = HOME) -> str:
    with pytest.raises(SpecError) as caught:
        load_spec(folder / "case.eval.yaml", home)
    return str(caught.value)


def test_paths_start_from_the_spec_and_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"a/SKILL.md": skill("up"), "home/b/SKILL.md": skill("homely"), "abs/SKILL.md": skill("absolute")})
    write(tmp_path, {"evals/deep/case.eval.yaml": spec("../../a/SKILL.md", "~/b/SKILL.md", f"{tmp_path}/abs/SKILL.md")})
    monkeypatch.chdir(tmp_path / "home")
    loaded = load_spec(Path("../evals/deep/case.eval.yaml"), tmp_path / "home")
    assert [item.name for item in load_skills(loaded, HOME)] == ["up", "homely", "absolute"]
    assert loaded.skills[0].path == str(tmp_path / "a/SKILL.md")


def test_the_skill_is_the_folder_that_holds_the_link(tmp_path: Path) -> None:
    write(tmp_path, {"shared/canonical.md": skill(), "tide/notes.md": "n", "case.eval.yaml": spec("./tide/SKILL.md")})
    (tmp_path / "tide/SKILL.md").symlink_to("../shared/canonical.md")
    (found,) = load_spec(tmp_path / "case.eval.yaml", HOME).skills
    assert [file.path for file in found.files] == ["SKILL.md", "notes.md"]
    assert found.path == str(tmp_path / "tide/SKILL.md")


def test_a_skill_behind_a_linked_folder_is_the_linked_one(tmp_path: Path) -> None:
    """`link/../SKILL.md` is beside the link's target, as the system has it."""
    write(tmp_path, {"far/inner/x": "", "far/SKILL.md": skill("far"), "SKILL.md": skill("near")})
    write(tmp_path, {"case.eval.yaml": spec("./link/../SKILL.md")})
    (tmp_path / "link").symlink_to("far/inner")
    assert load_spec(tmp_path / "case.eval.yaml", HOME).skills[0].name == "far"


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("./none/SKILL.md", "none/SKILL.md does not exist"),
        ("./none.md", "does not exist, and is not called SKILL.md"),
        ("./tide", "tide is a folder: name the file in it"),
        ("./empty", "is a folder without a SKILL.md"),
        ("./tide/notes.md", "is not called SKILL.md"),
        ("./link.md", "is not called SKILL.md"),
        ("./gone/SKILL.md", "leads nowhere"),
        ("./folder/SKILL.md", "is a folder, not a file"),
        ("./latin/SKILL.md", "byte 0xE9 at offset 28"),
        ("./sixteen/SKILL.md", "UTF-16"),
        ("./unnamed/SKILL.md", "holds no `name:`"),
        ("~user/SKILL.md", "does not exist"),
    ],
)
def test_a_source_that_cannot_be_a_skill_is_refused(tmp_path: Path, entry: str, words: str) -> None:
    write(
        tmp_path,
        {
            "tide/SKILL.md": skill(),
            "tide/notes.md": "n",
            "empty/x": "",
            "folder/SKILL.md/x": "",
            "latin/SKILL.md": "---\nname: a\ndescription: caf\u00e9\n---\n".encode("latin-1"),
            "sixteen/SKILL.md": skill().encode("utf-16"),
            "unnamed/SKILL.md": "---\ndescription: x\n---\n",
            "gone/x": "",
            "case.eval.yaml": spec(entry),
        },
    )
    (tmp_path / "gone/SKILL.md").symlink_to("nowhere")
    (tmp_path / "link.md").symlink_to("tide/SKILL.md")
    assert words in refusal(tmp_path)


def test_all_faulty_skills_are_told_together(tmp_path: Path) -> None:
    write(tmp_path, {"a/SKILL.md": "x", "case.eval.yaml": spec("./a/SKILL.md", "./b/SKILL.md", "./c/d")})
    message = refusal(tmp_path)
    assert all(words in message for words in ("no frontmatter", "line 3: skills → ./b/SKILL.md", "c/d does not exist"))


@pytest.mark.parametrize(("first", "second"), [("tides", "tides"), ("Tides", "tides"), ("a.B", "A.b")])
def test_twins_are_refused_with_both_paths(tmp_path: Path, first: str, second: str) -> None:
    write(tmp_path, {"a/SKILL.md": skill(first), "b/SKILL.md": skill(second)})
    write(tmp_path, {"case.eval.yaml": spec("./a/SKILL.md", "./b/SKILL.md")})
    message = refusal(tmp_path)
    assert f"{tmp_path}/a/SKILL.md" in message
    assert f"{tmp_path}/b/SKILL.md" in message
    assert ("letter case" in message) == (first != second)


def test_a_skill_listed_twice_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"a/SKILL.md": skill(), "case.eval.yaml": spec("./a/SKILL.md", "./b/../a/SKILL.md")})
    assert "is listed twice" in refusal(tmp_path)


@pytest.mark.parametrize("pattern", ["SKILL", r"\.md$", r"^\./SKILL\.md$", "canonical"])
def test_a_skill_whose_own_file_would_be_left_out_is_refused(tmp_path: Path, pattern: str) -> None:
    extra = f"sandbox: {{forbidden_files: ['{pattern}']}}\n"
    write(
        tmp_path, {"shared/canonical.md": skill(), "tide/x": "", "case.eval.yaml": spec("./tide/SKILL.md", extra=extra)}
    )
    (tmp_path / "tide/SKILL.md").symlink_to("../shared/canonical.md")
    assert "would not be installed" in refusal(tmp_path)


def test_a_skill_file_of_over_five_mebibytes_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"a/SKILL.md": skill() + "x" * 5 * 1024**2, "case.eval.yaml": spec("./a/SKILL.md")})
    assert "too large" in refusal(tmp_path)


def test_what_is_left_out_of_an_install_is_warned_of(tmp_path: Path) -> None:
    write(tmp_path, {"a/SKILL.md": skill(), "a/assets/tides.bin": bytes(6 * 1024**2), "a/key.md": "k"})
    write(tmp_path, {"case.eval.yaml": spec("./a/SKILL.md", extra="sandbox: {forbidden_files: [key]}\n")})
    (tmp_path / "a/alias.md").symlink_to("key.md")
    (found,) = load_spec(tmp_path / "case.eval.yaml", HOME).skills
    assert any("assets/tides.bin is left out" in text for text in found.warnings)
    assert any("alias.md is left out" in text for text in found.warnings)
    assert not any(text.startswith("key.md") for text in found.warnings)  # as the author asked


def test_git_sources_are_checked_but_not_runnable_yet(tmp_path: Path) -> None:
    write(tmp_path, {"case.eval.yaml": spec("{repo: a/b, ref: main, path: x/SKILL.md}")})
    loaded = load_spec(tmp_path / "case.eval.yaml", HOME)
    with pytest.raises(CannotRun, match="git sources are not runnable yet"):
        load_skills(loaded, HOME)
