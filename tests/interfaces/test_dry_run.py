"""`caliper run --dry-run`."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

SPEC = """skills: [./tides/SKILL.md]
user_customizations: false
tasks:
  - {name: High water, prompt: When is high water?, assert: pass, activates: [tides]}
  - {name: Low water, prompt: And low water?, setup: touch seen, assert: pass}
"""
SCRIPT = "tasks:\n  '*': {steps: [{say: At noon.}]}\n"


@pytest.fixture
def spec(project: Path) -> str:
    (project / "tides").mkdir()
    (project / "tides" / "SKILL.md").write_text(
        "---\nname: tides\ndescription: Tides.\n---\n\nRead.\n", encoding="utf-8"
    )
    (project / "it.eval.yaml").write_text(SPEC, encoding="utf-8")
    (project / "it.script.yaml").write_text(SCRIPT, encoding="utf-8")
    return "it.eval.yaml"


def test_the_plan_says_how_many_attempts_what_is_installed_and_what_is_checked(
    spec: str, caliper: Callable[..., Result]
) -> None:
    result = caliper("run", spec, "--model", "scripted", "--k", "4", "--dry-run", "--max-tokens", "9000")
    assert result.exit_code == 0, result.output
    shown = result.output
    assert "2 tasks × 4 = 8 attempts" in shown
    assert "tides → <home>/.agent/skills/tides (1 file" in shown
    assert "budget   --max-tokens 9,000" in shown
    assert "setup    touch seen" in shown
    assert "checks   assert, activates tides" in shown


def test_what_is_the_same_for_all_tasks_is_said_once(spec: str, caliper: Callable[..., Result]) -> None:
    assert caliper("run", spec, "--model", "scripted", "--dry-run").output.count("sees     ") == 1


def test_a_dry_run_leaves_nothing_behind(spec: str, project: Path, caliper: Callable[..., Result]) -> None:
    before = sorted(project.rglob("*"))
    caliper("run", spec, "--model", "scripted", "--dry-run")
    assert sorted(project.rglob("*")) == before


def test_a_dry_run_of_a_resumed_run_is_refused(spec: str, caliper: Callable[..., Result]) -> None:
    result = caliper("run", spec, "--resume", "--dry-run")
    assert "--dry-run shows a new run" in str(result.exception)
