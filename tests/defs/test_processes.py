"""Commands, recorders and steps as real processes, and what Dagster shows of them when they are stopped or killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from dagster import DagsterInstance, DagsterRun, DagsterRunStatus

from caliper_pipeline.defs.home import open_instance
from caliper_pipeline.defs.recording import told_of
from caliper_pipeline.storage.runs import RunStore
from tests.defs.scripted import GATED, lay_out

T = TypeVar("T")
CALIPER = [sys.executable, "-m", "caliper_pipeline.interfaces.cli"]
HOOKS = """\
skills: [./SKILL.md]
tasks:
  - name: One
    prompt: Go.
    assert: open("flag").read()
  - name: Two
    prompt: Go.
    assert: open("flag").read()
    cleanup: echo cleaned >> "$CALIPER_SPEC_DIR/cleaned"
"""
STEP = """\
from dagster import DagsterInstance, RunConfig, materialize
from caliper_pipeline.defs.eval_runs import EvalRunConfig, eval_runs
from caliper_pipeline.defs.home import open_instance
from caliper_pipeline.defs.resources import default_resources
import pathlib, sys
config = EvalRunConfig(spec="mail", engine="scripted", k=1)
with open_instance(pathlib.Path(sys.argv[1])) as instance:
    materialize([eval_runs], instance=instance, resources=default_resources(), raise_on_error=False,
                run_config=RunConfig(ops={"eval_runs": config}))
"""


def wait_for(what: Callable[[], T | None], *, seconds: float = 60) -> T:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found = what()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("it did not come")


@pytest.fixture
def home(root: Path) -> Path:
    return root / ".caliper" / "dagster"


@contextmanager
def dagster(home: Path) -> Iterator[DagsterInstance]:
    with open_instance(home) as instance:
        yield instance
    os.environ.pop("DAGSTER_HOME", None)


def runs_in(home: Path) -> list[DagsterRun]:
    with dagster(home) as instance:
        return list(reversed(instance.get_runs()))


def start_run(root: Path, *flags: str) -> subprocess.Popen[bytes]:
    arguments = ["run", "mail.eval.yaml", "--model", "scripted", "--k", "1", *flags]
    return subprocess.Popen(
        [*CALIPER, *arguments], cwd=root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def verdicts_told(home: Path, root: Path) -> int:
    [run_id] = RunStore(root).run_ids()
    with dagster(home) as instance:
        return sum(asset == "verdicts" for asset, _, _ in told_of(instance, run_id))


def one_told(home: Path, root: Path) -> DagsterRun | None:
    """The Dagster run, once it goes on and has the first verdict."""
    if not RunStore(root).run_ids() or not (home / "dagster.yaml").exists():
        return None
    [*runs] = runs_in(home)
    going = runs and runs[0].status is DagsterRunStatus.STARTED and verdicts_told(home, root) == 1
    return runs[0] if going else None


def test_a_command_is_recorded_before_it_returns_when_it_waits(root: Path, home: Path) -> None:
    lay_out(root)
    with start_run(root, "--wait") as command:
        command.communicate()
    assert command.returncode == 0
    [run] = runs_in(home)
    assert (run.status, run.job_name) == (DagsterRunStatus.SUCCESS, "evaluate")
    assert {name: value for name, value in run.tags.items() if name.startswith("caliper/")} == {
        "caliper/run": RunStore(root).run_ids()[0],
        "caliper/spec": "mail",
        "caliper/engine": "scripted",
        "caliper/arm": "full",
    }
    assert run.run_config["ops"]["eval_runs"]["config"]["spec"] == "mail.eval.yaml"


def test_ctrl_c_in_the_terminal_is_shown_as_canceled(root: Path, home: Path) -> None:
    lay_out(root, spec=HOOKS, script=GATED)
    with start_run(root) as command:
        wait_for(lambda: one_told(home, root))
        command.send_signal(signal.SIGINT)
        command.communicate()
    assert command.returncode == 130
    wait_for(lambda: runs_in(home)[0].status is DagsterRunStatus.CANCELED)
    assert verdicts_told(home, root) == 1
    assert (root / "cleaned").read_text() == "cleaned\n"


def test_terminating_it_in_the_ui_stops_the_command(root: Path, home: Path) -> None:
    lay_out(root, spec=HOOKS, script=GATED)
    with start_run(root) as command:
        run = wait_for(lambda: one_told(home, root))
        with dagster(home) as instance:
            assert instance.run_launcher.terminate(run.run_id)
        command.communicate(timeout=30)
    assert command.returncode == 130
    wait_for(lambda: runs_in(home)[0].status is DagsterRunStatus.CANCELED)
    assert (root / "cleaned").read_text() == "cleaned\n"


def test_what_a_killed_recorder_left_is_told_by_sync(root: Path, home: Path) -> None:
    lay_out(root, script=GATED)
    with start_run(root) as command:
        run = wait_for(lambda: one_told(home, root))
        os.kill(int(run.tags[".dagster/caliper_pid"]), signal.SIGKILL)
        (root / "gate").touch()
        command.communicate()
    assert command.returncode == 0
    assert runs_in(home)[0].status is DagsterRunStatus.STARTED
    done = subprocess.run([*CALIPER, "sync"], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.endswith("Recorded 1 run.\nMarked 1 run whose process had died.\n")
    assert [run.status.value for run in runs_in(home)] == ["FAILURE", "SUCCESS"]
    assert verdicts_told(home, root) == 2


def test_a_terminated_step_ends_agents_runs_cleanups_and_keeps_what_is_finished(root: Path, home: Path) -> None:
    lay_out(root, spec=HOOKS, script=GATED)
    with subprocess.Popen(
        [sys.executable, "-c", STEP, str(home)], cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as step:
        run = wait_for(lambda: one_told(home, root))
        with dagster(home) as instance:
            instance.report_run_canceling(run)
        step.send_signal(signal.SIGINT)
        step.wait(30)
    assert runs_in(home)[0].status is DagsterRunStatus.CANCELED
    assert verdicts_told(home, root) == 1
    assert (root / "cleaned").read_text() == "cleaned\n"
    [folder] = RunStore(root).runs()
    end = folder.state().end
    assert end is not None
    assert end.status == "interrupted"
