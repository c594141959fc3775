"""The command where its output, or its folder, goes away."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CLI = (sys.executable, "-m", "caliper_pipeline.interfaces.cli")


def environment(home: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", "CALIPER_RECORDER": "off"}


def test_a_reader_that_went_away_costs_neither_the_results_nor_their_copy(tmp_path: Path) -> None:
    (tmp_path / "it.eval.yaml").write_text("tasks:\n  - {name: T, prompt: p, assert: assert True}\n", encoding="utf-8")
    (tmp_path / "it.script.yaml").write_text('tasks:\n  "*": [{steps: [{say: Hi.}]}]\n', encoding="utf-8")
    reader, writer = os.pipe()
    os.close(reader)
    arguments = ("run", "it.eval.yaml", "--k", "1", "--model", "scripted", "--output", "copy.json")
    done = subprocess.run(
        [*CLI, *arguments],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdin=subprocess.DEVNULL,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    os.close(writer)
    (saved,) = (tmp_path / ".caliper" / "results" / "it").glob("*.json")
    assert (tmp_path / "copy.json").read_bytes() == saved.read_bytes()
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [("list",), ("report", "x"), ("validate", "x.eval.yaml"), ("run", "x.eval.yaml")])
def test_a_working_directory_that_was_removed_is_named_as_the_trouble(tmp_path: Path, arguments: tuple[str]) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = 'rmdir "$PWD" && exec "$@"'
    done = subprocess.run(
        ["/bin/sh", "-c", command, "sh", *CLI, *arguments],
        cwd=gone,
        env=environment(tmp_path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "working directory no longer exists" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("redirection", "code", "said"),
    [
        (">&-", 0, ""),
        ("<&- >&- 2>&-", 0, ""),
        pytest.param(
            "> /dev/full",
            2,
            "error: No space left on device\n",
            marks=pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux"),
        ),
    ],
)
def test_closed_and_full_streams_make_no_traceback(tmp_path: Path, redirection: str, code: int, said: str) -> None:
    (tmp_path / ".caliper").mkdir()
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {redirection}', "sh", *CLI, "list"],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (code, said)
