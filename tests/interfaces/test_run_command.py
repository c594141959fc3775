"""`caliper run` as a person meets it: exit codes, signals, what is said where."""

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TASK = "tasks:\n  - name: T\n    prompt: Say hi.\n    assert: assert True\n"
GOOD = 'tasks:\n  "*": [{steps: [{say: Hi.}]}]\n'


class Place:
    """A project folder and a command line in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in (".caliper", "home", "tmp"):
            (folder / name).mkdir()
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder / "home"),
            "TMPDIR": str(folder / "tmp"),
            "LANG": "C.UTF-8",
            "COLUMNS": "120",
            "CALIPER_RECORDER": "off",
        }

    def write(self, spec: str, script: str) -> None:
        (self.folder / "it.eval.yaml").write_text(spec, encoding="utf-8")
        (self.folder / "it.script.yaml").write_text(script, encoding="utf-8")

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "caliper_pipeline.interfaces.cli", *arguments],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> tuple[int, str, str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def results(self) -> dict[str, object]:
        (path,) = (self.folder / ".caliper" / "results").glob("*/*.json")
        found: dict[str, object] = json.loads(path.read_text(encoding="utf-8"))
        return found


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_the_last_line_of_standard_output_names_the_results(place: Place) -> None:
    place.write(TASK, GOOD)
    code, out, err = place.run("run", "it.eval.yaml", "--model", "scripted", "--k", "2")
    assert code == 0, err
    last = out.rstrip().splitlines()[-1]
    assert last.startswith("Results saved to ")
    assert Path(last.removeprefix("Results saved to ")).is_file()
    assert "simulated" in out


def test_a_copy_of_the_results_goes_where_output_says(place: Place) -> None:
    place.write(TASK, GOOD)
    code, _, err = place.run("run", "it.eval.yaml", "--model", "scripted", "--k", "1", "--output", "deep/er/out.json")
    assert code == 0, err
    assert json.loads((place.folder / "deep/er/out.json").read_text(encoding="utf-8")) == place.results()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--k", "0"), 1, "--k 0"),
        (("--workers", "0"), 1, "--workers 0"),
        (("--timeout", "0.5"), 1, "--timeout 0.5"),
        (("--timeout", "nan"), 1, "--timeout nan"),
        (("--fail-fast", "-1"), 1, "--fail-fast -1"),
        (("--model", "nosuch:thing"), 2, "nosuch"),
        (("--judge-model", "nosuch:thing"), 2, "nosuch"),
        (("--ablate", "nothing"), 1, "nothing"),
        (("--run-id", "x"), 1, "--resume"),
        (("--resume", "--model", "scripted"), 1, "--model"),
        (("--no-such-flag",), 2, "--no-such-flag"),
    ],
)
def test_a_wrong_flag_gets_one_error_and_nothing_is_run(
    place: Place, arguments: tuple[str, ...], code: int, words: str
) -> None:
    place.write(TASK, GOOD)
    found, out, err = place.run("run", "it.eval.yaml", *arguments)
    assert found == code
    assert words in err
    assert out == ""
    assert not (place.folder / ".caliper" / "runs").exists()


def test_a_missing_spec_is_named(place: Place) -> None:
    code, _, err = place.run("run", "nowhere.eval.yaml")
    assert code == 1
    assert "nowhere.eval.yaml" in err


def test_a_run_that_measured_nothing_ends_with_two(place: Place) -> None:
    place.write(TASK, 'tasks:\n  "*": [{fail: crash}]\n')
    code, out, _ = place.run("run", "it.eval.yaml", "--model", "scripted", "--k", "2")
    assert code == 2
    assert "0.0%" not in out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_agents_runs_cleanups_and_keeps_what_is_finished(place: Place, number: signal.Signals) -> None:
    mark, cleaned = place.folder / "fifo", place.folder / "cleaned"
    os.mkfifo(mark)
    spec = (
        f"tasks:\n  - name: Quick\n    prompt: Hi.\n    assert: assert True\n"
        f"  - name: Slow\n    prompt: Hi.\n    assert: assert True\n    cleanup: echo yes >> {cleaned}\n"
    )
    script = (
        "tasks:\n  Quick: [{steps: [{say: Hi.}]}]\n"
        f'  Slow: [{{steps: [{{run: "echo on > {mark}"}}, {{wait: 60}}, {{say: Hi.}}]}}]\n'
    )
    place.write(spec, script)
    process = place.start("run", "it.eval.yaml", "--model", "scripted", "--k", "1", "--workers", "1")
    with mark.open(encoding="utf-8") as begun:  # opens once the slow agent writes: the quick one is done by then
        assert begun.read() == "on\n"
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert cleaned.read_text(encoding="utf-8") == "yes\n"
    assert list((place.folder / "tmp").iterdir()) == []
    assert place.results()["run"]["interrupted"] is True  # type: ignore[index]
    assert "--resume" in err
    assert "Traceback" not in out + err


def test_a_second_signal_quits_at_once_and_no_agent_outlives_it(place: Place) -> None:
    mark = place.folder / "fifo"
    os.mkfifo(mark)
    spec = "tasks:\n  - name: T\n    prompt: Hi.\n    assert: assert True\n    cleanup: sleep 300\n"
    place.write(spec, f'tasks:\n  T: [{{steps: [{{run: "echo $$ > {mark}; exec sleep 301"}}]}}]\n')
    process = place.start("run", "it.eval.yaml", "--model", "scripted", "--k", "1")
    with mark.open(encoding="utf-8") as begun:
        agent = int(begun.read())
    watched = os.pidfd_open(agent)
    process.send_signal(signal.SIGINT)
    poll = select.poll()
    poll.register(watched, select.POLLIN)
    assert poll.poll(20_000), "the first signal did not end the agent"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 130
    os.close(watched)


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        *(("--k", "0"), ("--k", "99999999999999999999"), ("--workers", "100000")),
        *(("--timeout", "inf"), ("--timeout", "nan"), ("--timeout", "0.5")),
    ],
)
def test_a_number_that_cannot_be_meant_is_refused_before_anything_is_made(place: Place, flag: str, value: str) -> None:
    place.write(TASK, GOOD)
    code, _, err = place.run("run", "it.eval.yaml", "--model", "scripted", flag, value)
    assert code == 1
    assert err.startswith(f"error: {flag} ")
    assert not (place.folder / ".caliper" / "runs").exists()


def test_an_unknown_run_is_answered_with_those_that_there_are(place: Place) -> None:
    place.write(TASK, GOOD)
    assert place.run("run", "it.eval.yaml", "--model", "scripted", "--k", "1")[0] == 0
    (run_id,) = (folder.name for folder in (place.folder / ".caliper" / "runs").iterdir())
    code, _, err = place.run("run", "--resume", "--run-id", "nope")
    assert code == 1
    assert run_id in err
