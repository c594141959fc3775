"""`caliper demo`: the example that a newcomer meets first."""

import tomllib
from pathlib import Path

from caliper_pipeline.interfaces.demo_command import EXAMPLES, bundled_examples, lay_out

CHECKOUT = Path(__file__).parents[2]


def test_a_wheel_brings_the_examples_along() -> None:
    pyproject = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = pyproject["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["force-include"] == {"skills/examples": "caliper_pipeline/examples"}


def test_every_example_is_bundled() -> None:
    assert {path.name for path in bundled_examples().iterdir()} == set(EXAMPLES)


def test_the_example_is_laid_out_and_what_was_changed_there_stays(tmp_path: Path) -> None:
    spec = lay_out(tmp_path)
    spec.write_text("mine", encoding="utf-8")
    assert lay_out(tmp_path).read_text(encoding="utf-8") == "mine"
    assert (tmp_path / "meeting-minutes" / "SKILL.md").is_file()
