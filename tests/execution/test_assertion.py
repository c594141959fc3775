"""What the exit of an assert script is taken for."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from caliper_pipeline.execution.command import StopToken
from caliper_pipeline.execution.judge.assertion import AssertResult, run_assert
from caliper_pipeline.execution.process import ProcessLauncher


@dataclass(frozen=True)
class Folder:
    workdir: Path
    private: Path


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / "work", tmp_path / "private")
    made.workdir.mkdir()
    made.private.mkdir()
    return made


@pytest.fixture(scope="module")
def launcher() -> Iterator[ProcessLauncher]:
    with ProcessLauncher() as made:
        yield made


def run(launcher: ProcessLauncher, folder: Folder, script: str, **facts: Any) -> AssertResult:
    stop = facts.pop("stop", None) or StopToken()
    env = {"PATH": os.environ["PATH"], **facts.pop("env", {})}
    path = facts.pop("script_path", None)
    return run_assert(launcher, stop, script=script, script_path=path, folder=folder, env=env, **facts)


def test_exit_code_0_is_true_and_needs_no_evidence(launcher: ProcessLauncher, folder: Folder) -> None:
    (folder.workdir / "out.txt").write_text("grüße\n", encoding="utf-8")
    script = "print('noise')\nassert open('out.txt').read() == 'grüße\\n'"
    assert run(launcher, folder, script) == AssertResult(passed=True)


def test_a_failed_assertion_is_false_and_its_last_lines_are_the_evidence(
    launcher: ProcessLauncher, folder: Folder
) -> None:
    result = run(launcher, folder, "assert 1 == 2, 'the harbour is missing ä'")
    assert result.passed is False
    assert result.evidence is not None
    assert result.evidence.endswith("AssertionError: the harbour is missing ä")


def test_a_flood_of_output_keeps_its_end(launcher: ProcessLauncher, folder: Folder) -> None:
    result = run(launcher, folder, "print('noise ' * 1_000_000)\nassert False, 'the harbour is missing'")
    assert result.passed is False
    assert result.evidence is not None
    assert "the harbour is missing" in result.evidence
    assert len(result.evidence) <= 500


def test_a_silent_failure_tells_its_exit_code(launcher: ProcessLauncher, folder: Folder) -> None:
    assert run(launcher, folder, "raise SystemExit(3)") == AssertResult(False, "assert exited 3")


def test_exit_is_there(launcher: ProcessLauncher, folder: Folder) -> None:
    assert run(launcher, folder, "exit(0)").passed is True


@pytest.mark.parametrize(
    ("script", "evidence"),
    [
        ("import time\ntime.sleep(60)", "assert timed out after 0.3s"),
        ("assert (", "assert is not valid Python: "),
        ("if True:\npass", "assert is not valid Python: "),
    ],
)
def test_a_script_that_gave_no_answer_is_no_verdict(
    launcher: ProcessLauncher, folder: Folder, script: str, evidence: str
) -> None:
    limit = 0.3 if "sleep" in script else 30.0
    result = run(launcher, folder, script, limit_seconds=limit)
    assert result.passed is None
    assert result.evidence is not None
    assert result.evidence.startswith(evidence)


def test_a_syntax_error_elsewhere_is_a_failure(launcher: ProcessLauncher, folder: Folder) -> None:
    result = run(launcher, folder, "compile('assert (', 'theirs.py', 'exec')")
    assert result.passed is False


def test_a_check_that_cannot_start_is_no_verdict(launcher: ProcessLauncher, folder: Folder) -> None:
    folder.workdir.rmdir()
    result = run(launcher, folder, "assert True")
    assert result.passed is None
    assert result.evidence is not None
    assert result.evidence.startswith("assert could not be started: ")


def test_a_stopped_run_leaves_no_verdict(launcher: ProcessLauncher, folder: Folder) -> None:
    stop = StopToken()
    stop.set()
    assert run(launcher, folder, "assert True", stop=stop) == AssertResult(cancelled=True)


def test_assertions_are_not_optimised_away(launcher: ProcessLauncher, folder: Folder) -> None:
    assert run(launcher, folder, "assert 1 == 2", env={"PYTHONOPTIMIZE": "2"}).passed is False


def test_yaml_is_there_and_the_agents_files_shadow_nothing(launcher: ProcessLauncher, folder: Folder) -> None:
    for name in ("yaml", "json"):
        (folder.workdir / f"{name}.py").write_text("raise SystemExit(9)", encoding="utf-8")
    assert run(launcher, folder, "import yaml, json\nassert yaml.safe_load('[1]') == [1]").passed is True


def test_siblings_of_the_scripts_file_can_be_imported_and_stay_as_they_are(
    launcher: ProcessLauncher, folder: Folder, tmp_path: Path
) -> None:
    beside = tmp_path / "checks"
    beside.mkdir()
    (beside / "helper.py").write_text("LIMIT = 3", encoding="utf-8")
    script = "import helper\nassert helper.LIMIT == 3"
    assert run(launcher, folder, script, script_path=beside / "check_it.py").passed is True
    assert [path.name for path in beside.iterdir()] == ["helper.py"]
    assert run(launcher, folder, script).passed is False


def test_the_script_is_nowhere_the_agent_looks_and_gone_afterwards(launcher: ProcessLauncher, folder: Folder) -> None:
    script = "import os, sys\nassert os.listdir('.') == [], os.listdir('.')\nassert sys.stdin.read() == ''"
    assert run(launcher, folder, script).passed is True
    assert list(folder.private.iterdir()) == []


def test_any_locale_will_do(launcher: ProcessLauncher, folder: Folder) -> None:
    script = "open('ä.txt', 'w').write('ß')\nprint('ß')\nassert open('ä.txt').read() == 'ß'"
    assert run(launcher, folder, script, env={"LANG": "C", "LC_ALL": "POSIX"}).passed is True


@pytest.mark.parametrize(
    "script",
    [
        "import os\nassert os.environ['HERE'] == 'ä' and 'LANGUAGE' not in os.environ",
        "import sys\nassert sys.argv[0].endswith('check.py') and __name__ == '__main__' and not sys.stdin.read()",
        "import sys, os\nassert os.listdir('/proc/self/fd') and max(map(int, os.listdir('/proc/self/fd'))) < 5",
        "import yaml, json\nassert yaml.safe_load('a: 1') == json.loads('{\"a\": 1}')",
        "import threading, pathlib\nthreading.Timer(0.05, lambda: pathlib.Path('late').touch()).start()",
        "import atexit, pathlib\natexit.register(lambda: pathlib.Path('late').touch())",
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import yaml'], check=True)",
        "import sys\nsys.stdout.write('a' * 100_000)\nexit()",
        "import signal\nassert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL",
        "import random, time\nassert time.time() > 0 and random.random() < 1",
        "import __main__\nassert __main__.answer == 42 if hasattr(__main__, 'answer') else True\nanswer = 42",
        "import multiprocessing as m\np = m.get_context('fork').Process()\np.start(); p.join()\nassert not p.exitcode",
    ],
)
def test_a_script_runs_as_in_an_interpreter_of_its_own(launcher: ProcessLauncher, folder: Folder, script: str) -> None:
    stop = StopToken()
    env = {"PATH": os.environ["PATH"], "HERE": "ä"}
    result = run_assert(launcher, stop, script=script, script_path=None, folder=folder, env=env, limit_seconds=30.0)
    stop.close()
    assert (result.passed, result.evidence) == (True, None)


def test_a_script_that_crashes_is_a_failed_check(launcher: ProcessLauncher, folder: Folder) -> None:
    result = run(launcher, folder, "import os\nos.kill(os.getpid(), 9)")
    assert (result.passed, result.evidence) == (False, "assert was ended by signal 9")


def test_scripts_share_nothing(launcher: ProcessLauncher, folder: Folder) -> None:
    assert run(launcher, folder, "import builtins, os\nbuiltins.left = 1\nos.environ['LEFT'] = '1'").passed
    assert run(launcher, folder, "import builtins, os\nassert not hasattr(builtins, 'left')").passed
    assert run(launcher, folder, "import os\nassert 'LEFT' not in os.environ").passed


def test_a_traceback_shows_the_scripts_own_frames_alone(launcher: ProcessLauncher, folder: Folder) -> None:
    evidence = run(launcher, folder, "def check():\n    assert 1 == 2, 'sums'\ncheck()").evidence
    assert evidence is not None
    assert evidence.startswith("Traceback (most recent call last):")
    assert evidence.count("File ") == 2
    assert evidence.endswith("AssertionError: sums")
