"""`caliper migrate` on files."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from caliper_pipeline.interfaces.migrate_command import migrate
from caliper_pipeline.sources.spec_file import load_spec
from tests.sources.tree import skill, write

TASKS = "tasks:\n  - {name: A, prompt: Go., expect: x}  # é\n"
OLD = f"skill:\n  path: ./s/SKILL.md  # mine\n  model: opus\n{TASKS}"
NEW = f"# Engines are chosen when it runs: --model opus\nskills:\n  - ./s/SKILL.md  # mine\n{TASKS}"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(migrate, [str(argument) for argument in arguments])


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    write(tmp_path, {"s/SKILL.md": skill(), "case.eval.yaml": OLD})
    return tmp_path / "case.eval.yaml"


def test_a_spec_is_rewritten_in_place_and_then_valid(spec: Path) -> None:
    spec.chmod(0o640)
    result = run(spec)
    assert result.exit_code == 0
    assert spec.read_text(encoding="utf-8") == NEW
    assert spec.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in spec.parent.iterdir()) == ["case.eval.yaml", "s"]
    assert load_spec(spec, Path("/none")).name == "case"
    assert f"caliper run {spec} --model opus" in result.stderr


def test_byte_order_mark_and_line_ends_stay(spec: Path) -> None:
    spec.write_bytes(b"\xef\xbb\xbf" + OLD.replace("\n", "\r\n").encode())
    assert run(spec).exit_code == 0
    assert spec.read_bytes() == b"\xef\xbb\xbf" + NEW.replace("\n", "\r\n").encode()


def test_check_tells_and_writes_nothing(spec: Path) -> None:
    assert run("--check", spec).exit_code == 1
    assert spec.read_text(encoding="utf-8") == OLD
    run(spec)
    assert run("--check", spec).exit_code == 0


def test_stdout_prints_and_writes_nothing(spec: Path) -> None:
    result = run("--stdout", spec)
    assert (result.exit_code, result.stdout) == (0, NEW)
    assert spec.read_text(encoding="utf-8") == OLD


def test_a_spec_in_the_present_form_is_left_alone(spec: Path) -> None:
    spec.write_text(NEW, encoding="utf-8")
    before = spec.stat().st_ino
    result = run(spec)
    assert result.exit_code == 0
    assert "nothing to do" in result.stderr
    assert spec.stat().st_ino == before


def test_what_would_not_be_valid_is_not_written(spec: Path) -> None:
    spec.write_text(OLD.replace("expect", "expct"), encoding="utf-8")
    result = run(spec)
    assert result.exit_code == 1
    assert "Did you mean `expect`?" in result.stderr
    assert "Nothing was written" in result.stderr
    assert "skill:" in spec.read_text(encoding="utf-8")


def test_a_link_stays_a_link(spec: Path, tmp_path: Path) -> None:
    (tmp_path / "link.eval.yaml").symlink_to(spec.name)
    assert run(tmp_path / "link.eval.yaml").exit_code == 0
    assert (tmp_path / "link.eval.yaml").is_symlink()
    assert spec.read_text(encoding="utf-8") == NEW


def test_several_specs_are_rewritten_and_a_bad_one_holds_up_none(spec: Path, tmp_path: Path) -> None:
    write(tmp_path, {"other.eval.yaml": OLD, "bad.eval.yaml": "skill: [\n"})
    result = run(tmp_path / "bad.eval.yaml", spec, tmp_path / "other.eval.yaml", tmp_path / "none.eval.yaml")
    assert result.exit_code == 1
    assert spec.read_text(encoding="utf-8") == NEW
    assert (tmp_path / "other.eval.yaml").read_text(encoding="utf-8") == NEW


def test_check_and_stdout_exclude_each_other(spec: Path) -> None:
    assert run("--check", "--stdout", spec).exit_code == 2
