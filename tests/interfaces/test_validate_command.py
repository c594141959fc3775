"""`caliper validate` as a person and a script see it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from caliper_pipeline.interfaces.validate_command import validate
from tests.sources.tree import skill, write

GOOD = "skills: [./s/SKILL.md]\nuser_customizations: false\ntasks:\n  - {name: A, prompt: Go., expect: x}\n"
PROBE = "  - {name: B, prompt: Go., activates: []}\n"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(validate, [str(argument) for argument in arguments])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path, {"s/SKILL.md": skill(), "good.eval.yaml": GOOD + PROBE, "bad.eval.yaml": "tasks: []\n"})


def test_a_valid_spec_is_described(folder: Path) -> None:
    result = run(folder / "good.eval.yaml")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "✓ Spec is valid: good",
        "  skills   tide-table",
        "  tasks    2 (1 asserting activates)",
        "  engine   chosen when it runs (--model, --judge-model)",
        "  user     customizations stay out of attempts (user_customizations: false)",
    ]
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("tasks:\n" + PROBE, "  skills   none: the bare agent"),
        ("skills: [{repo: a/b}]\ntasks:\n" + PROBE, "  skills   1 from git, not fetched: its name is not known here"),
        (
            "skills: [./s/SKILL.md, {repo: a/b}, {repo: a/c}]\ntasks:\n" + PROBE,
            "  skills   tide-table; 2 from git, not fetched: their names are not known here",
        ),
        ("mcp: {mail: {command: x}}\ntasks:\n" + PROBE, "  mcp      mail"),
        ("mcp: {}\ntasks:\n" + PROBE, "  mcp      none: the operator's own servers stay out too"),
        (
            "user_customizations: true\ntasks:\n" + PROBE,
            "  user     customizations load into attempts (user_customizations: true)",
        ),
    ],
)
def test_what_a_spec_declares_is_told(folder: Path, text: str, line: str) -> None:
    write(folder, {"x.eval.yaml": text})
    assert line in run(folder / "x.eval.yaml").stdout.splitlines()


def test_refusals_go_to_standard_error_a_line_each(folder: Path) -> None:
    write(folder, {"x.eval.yaml": "sandbox: {forbiden_files: []}\ntasks:\n  - {name: T, prompt: p, asert: x}\n"})
    result = run(folder / "x.eval.yaml")
    assert result.exit_code == 1
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert [line.startswith(f"error: {folder}/x.eval.yaml, line ") for line in lines] == [True, True, False]
    assert "forbidden_files" in lines[0]
    assert "tasks → T → asert" in lines[1]
    assert lines[2] == "2 problems"


def test_one_bad_spec_among_several_fails_the_command_and_hides_no_other(folder: Path) -> None:
    result = run(folder / "bad.eval.yaml", folder / "good.eval.yaml", folder / "none.eval.yaml")
    assert result.exit_code == 1
    assert "valid: good" in result.stdout
    assert "bad.eval.yaml" in result.stderr
    assert "none.eval.yaml: does not exist" in result.stderr


def test_warnings_are_shown_and_change_nothing(folder: Path) -> None:
    write(folder, {"s/SKILL.md": "---\nname: tide-table\n---\n", "s/big.bin": bytes(6 * 1024**2)})
    write(folder, {"x.eval.yaml": GOOD.replace("Go.", "Use tide-table.")})
    result = run(folder / "x.eval.yaml")
    assert result.exit_code == 0
    assert "no description" in result.stderr
    assert "big.bin is left out" in result.stderr
    assert "names the skill" in result.stderr


def test_an_old_spec_gets_its_new_form_printed(folder: Path) -> None:
    write(folder, {"old.eval.yaml": "skill: {path: ./s/SKILL.md, model: opus}\ntasks:\n" + PROBE})
    result = run(folder / "old.eval.yaml")
    assert result.exit_code == 1
    assert "skills:\n  - ./s/SKILL.md" in result.stderr
    assert "--model opus" in result.stderr


def test_a_terminal_that_shows_only_ascii_gets_ascii(folder: Path) -> None:
    """A real process: only there do stream encodings and the file system's encoding come from the environment."""
    write(folder, {"é/SKILL.md": skill("tides"), "a.eval.yaml": GOOD.replace("./s/", "./é/")})
    write(folder, {"b.eval.yaml": GOOD + "  - {name: '→ 🌊', prompt: '', expect: x}\n"})
    environment = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT") if name in os.environ}
    environment |= {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0", "HOME": "/none"}
    done = subprocess.run(
        [sys.executable, "-m", "caliper_pipeline.interfaces.cli", "validate", "a.eval.yaml", "b.eval.yaml"],
        cwd=folder,
        env=environment,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    output = (done.stdout + done.stderr).decode("ascii")
    assert done.returncode == 1
    assert "Traceback" not in output
    assert "ok Spec is valid: a" in output
    assert "tides" in output
    assert "tasks -> -> ? -> prompt: is blank" in output


def test_the_command_imports_nothing_heavy() -> None:
    """What makes it slow to start: the orchestrator, the data frames, the database, and writers it does not need."""
    code = (
        "import sys, caliper_pipeline.interfaces.validate_command\n"
        "heavy = {'dagster', 'pandas', 'duckdb', 'ruamel', 'rich', 'subprocess'} & set(sys.modules)\n"
        "sys.exit(repr(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.returncode == 0
