"""What goes out of here is read by the reference product itself, which finds the numbers that we find.

It is run as it is, in an environment of its own, and never looked into. `tests/run.sh` installs it.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from storage.conftest import Given

from caliper_pipeline.domain.records import EndRecord, HookFailure, Outcome
from caliper_pipeline.domain.transcript import Turn, Usage
from caliper_pipeline.storage.evidence import Evidence
from caliper_pipeline.storage.runs import RunStore

pytestmark = pytest.mark.reference

FIXTURES = Path(__file__).parents[1] / "fixtures"
PAIRS = sorted((FIXTURES / "comparisons").glob("*.json"))
PLACE = Path(__file__).parents[1] / "real_cli" / ".reference" / "bin" / "caliper"
Run = Callable[..., Any]


class Cli:
    """A command in a project's folder."""

    def __init__(self, folder: Path, argv: list[str]) -> None:
        self._folder, self._argv = folder, argv
        private = ("CALIPER", "COLUMNS")
        self._environment = {k: v for k, v in os.environ.items() if not k.startswith(private)} | {"COLUMNS": "240"}

    def __call__(self, *arguments: object, code: int = 0) -> str:
        done = subprocess.run(
            [*self._argv, *map(str, arguments)],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def json(self, *arguments: object) -> Any:
        return json.loads(self(*arguments, "--format", "json"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "here" / ".git").mkdir(parents=True)
    return tmp_path / "here"


@pytest.fixture
def ours(project: Path) -> Cli:
    return Cli(project, [sys.executable, "-m", "caliper_pipeline.interfaces.cli"])


@pytest.fixture
def reference(tmp_path: Path) -> Cli:
    """In a project of its own, beside ours."""
    binary = Path(os.environ.get("CALIPER_TEST_REFERENCE", PLACE))
    if not binary.exists():
        pytest.fail(f"there is no {binary}: run `bash tests/run.sh`, or name one in CALIPER_TEST_REFERENCE")
    (tmp_path / "there" / ".git").mkdir(parents=True)
    return Cli(tmp_path / "there", [str(binary.absolute())])


def agree(theirs: Any, found: Any, where: str = "") -> None:
    """Every figure that both have is the same. Sentences are each side's own, and so is how a time is written."""
    if isinstance(theirs, dict):
        for key, value in theirs.items():
            assert key in found, f"{where}.{key}"
            if key not in ("warnings", "timestamp", "a_ref", "b_ref"):
                agree(value, found[key], f"{where}.{key}")
    elif isinstance(theirs, list):
        assert len(theirs) == len(found), where
        for index, (one, other) in enumerate(zip(theirs, found, strict=True)):
            agree(one, other, f"{where}[{index}]")
    elif isinstance(theirs, float):
        assert found == pytest.approx(theirs), where
    else:
        assert theirs == found, where


def test_its_own_runs_go_in_and_out_and_nothing_changes(
    ours: Cli, reference: Cli, project: Path, tmp_path: Path
) -> None:
    given = tmp_path / "given"
    given.mkdir()
    for path in PAIRS:
        pair = json.loads(path.read_text(encoding="utf-8"))
        for side in ("a", "b"):
            (given / f"{path.stem}-{side}.json").write_text(json.dumps(pair[side]), encoding="utf-8")
    for path in (FIXTURES / "results").iterdir():
        (given / path.name).write_bytes(path.read_bytes())
    ours("history", "import", given)
    ours("export", "--all", "--output", tmp_path / "there" / ".caliper" / "results")
    exported = sorted((tmp_path / "there" / ".caliper" / "results").rglob("*.json"))
    originals = {path.read_bytes(): path for path in given.iterdir()}
    assert len(exported) == len(originals) == 2 * len(PAIRS) + 2
    found = {originals[data].stem: path for path in exported if (data := path.read_bytes()) in originals}
    (rewritten,) = {*exported} - {*found.values()}
    for path in PAIRS[:3]:
        told = json.loads(path.read_text(encoding="utf-8"))["reference"]
        again = reference.json("compare", found[f"{path.stem}-a"], found[f"{path.stem}-b"])
        assert again == told
    specs = {path.parent.name for path in exported}
    listed = reference("list")
    assert all(spec in listed for spec in specs)
    for path in (found["reference-0.21.0"], rewritten):
        agree(reference.json("report", path), ours.json("report", path))
    assert (
        ours.json("report", rewritten)["aggregate"] == ours.json("report", given / "reference-0.4.0.json")["aggregate"]
    )


def lay_down(project: Path) -> tuple[str, str]:
    """Two runs with a little of everything, full and ablated; their ids."""
    store, ids = RunStore(project), []
    for minutes, ablated in ((0, ()), (10, ("tides",))):
        started = Given.NOON + timedelta(minutes=minutes)
        header = Given.run_header(tasks=3, k=4, started_at=started, ablated=ablated, judge_backend="scripted")
        skills = tuple(replace(skill, installed=not ablated) for skill in header.skills)
        tasks = (
            replace(header.tasks[0], name="caf\u00e9 \U0001f30a [/bold]", activates=("tides",)),
            header.tasks[1],
            replace(header.tasks[2], assert_script=None, activates=()),
        )
        run = store.create(replace(header, skills=skills, tasks=tasks))
        outcomes = iter(
            [Outcome.PASS, Outcome.TASK_FAIL, Outcome.TIMEOUT, Outcome.CHEAT]
            + [Outcome.PASS, Outcome.JUDGE_ERROR, Outcome.INFRA_ERROR, Outcome.TASK_FAIL if ablated else Outcome.PASS]
            + [Outcome.NOT_CHECKED] * 4
        )
        for place, task in enumerate(tasks, 1):
            for number in range(1, 5):
                kept = run.save_evidence(task.name, number, Evidence(odd_turns(), "Done." * 200))
                run.append(
                    Given.attempt(place, number, output="Done.", task_name=task.name, evidence=kept, retries=number % 2)
                )
                outcome = next(outcomes)
                run.append(
                    Given.verdict(
                        place,
                        number,
                        outcome,
                        task_name=task.name,
                        activated=("tides",) if place == 1 and not ablated else (),
                        activation_passed=None if ablated or place == 2 else True,
                        cheat_evidence=("cat answers.txt",) if outcome is Outcome.CHEAT else (),
                        judge_seconds=1.25 if place == 2 else None,
                        judge_usage=Usage(5, 6) if place == 2 else None,
                        assert_passed=None if place == 3 else outcome is Outcome.PASS,
                    )
                )
        run.append(HookFailure("task-001", tasks[0].name, 2, "cleanup", None, "too slow"))
        run.append(HookFailure("task-002", tasks[1].name, 1, "setup", 3, "no"))
        run.append(EndRecord(started + timedelta(minutes=5), "completed"))
        ids.append(run.run_id)
    return ids[0], ids[1]


def odd_turns() -> list[Turn]:
    return [
        Turn("user", "Go."),
        Turn("tool_use", tool_name="Bash", tool_input={"a": None, "b": [1.5, {"c": "\ud800"}]}, call_id="1"),
        Turn("tool_result", "", call_id="1", is_error=True),
        Turn("tool_use", "", tool_name="Read", tool_input=None),
        Turn("tool_result", "\x00\x1b[31m", parent_call_id="1"),
        Turn("tool_use", tool_input={}),
        Turn("assistant", "Done."),
    ]


def test_it_reads_our_runs_and_finds_our_numbers(ours: Cli, reference: Cli, project: Path, tmp_path: Path) -> None:
    full, cut = lay_down(project)
    there = tmp_path / "there" / ".caliper" / "results"
    ours("export", "--all", "-o", there)
    first, second = sorted((there / "demo").iterdir())
    agree(reference.json("report", "demo"), ours.json("report", second))
    agree(reference.json("report", first), ours.json("report", first))
    theirs, found = reference.json("compare", first, second), ours.json("compare", first, second)
    agree(theirs, found)
    assert theirs["b_label"] == found["b_label"] == "without any skills or servers"
    assert len(theirs["warnings"]) == len(found["warnings"])
    table = reference("list", "demo")
    assert first.stem in table
    assert second.stem in table
    assert json.loads(first.read_text(encoding="utf-8"))["run"]["run_id"] == full
    assert json.loads(ours("export", cut))["task_results"] == json.loads(second.read_text("utf-8"))["task_results"]


def test_what_was_imported_from_us_elsewhere_is_read_too(
    ours: Cli, reference: Cli, project: Path, tmp_path: Path
) -> None:
    lay_down(project)
    ours("export", "--all", "-o", tmp_path / "sent")
    (tmp_path / "third" / ".git").mkdir(parents=True)
    third = Cli(tmp_path / "third", [sys.executable, "-m", "caliper_pipeline.interfaces.cli"])
    third("history", "import", tmp_path / "sent")
    received = third("export", "demo", "-o", tmp_path / "received.json")
    assert received == ""
    agree(reference.json("report", tmp_path / "received.json"), ours.json("report", tmp_path / "received.json"))
