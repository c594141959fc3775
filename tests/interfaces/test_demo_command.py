"""`caliper demo`: the example that a newcomer meets first."""

import os
import signal
import subprocess
import sys
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


def test_a_folder_that_cannot_be_made_is_named() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "caliper_pipeline.interfaces.cli", "demo", "/dev/null/demo"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: The example cannot be written to /dev/null/demo")
    assert "Traceback" not in done.stderr


def test_ctrl_c_in_the_first_run_ends_the_demo(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "caliper_pipeline.interfaces.cli", "demo", "--workers", "1", "--k", "300"],
        cwd=tmp_path,
        env={**os.environ, "CALIPER_RECORDER": "off"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    while not process.stderr.readline().startswith("[1/"):
        pass
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "the control" not in out
