"""`caliper history import` takes results files in, names what it refuses, and can be done again."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from storage.conftest import Given

from caliper_pipeline.domain.results import assemble
from caliper_pipeline.storage import history
from caliper_pipeline.storage.results import write_results
from caliper_pipeline.storage.runs import RunStore

Run = Callable[..., Any]
REFERENCE = Path(__file__).parents[1] / "fixtures" / "results"


@pytest.fixture
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Somebody else's project."""
    folder = tmp_path_factory.mktemp("elsewhere")
    results = folder / ".caliper" / "results" / "multi"
    results.mkdir(parents=True)
    for version in ("0.4.0", "0.21.0"):
        (results / f"{version}.json").write_bytes((REFERENCE / f"reference-{version}.json").read_bytes())
    (folder / "package.json").write_text("{}")
    return folder


def runs(project: Path) -> list[Any]:
    return list(history.history_json(history.history_path(project))["runs"])


def test_a_project_is_taken_in_and_once_only(project: Path, caliper: Run, elsewhere: Path) -> None:
    done = caliper("history", "import", str(elsewhere))
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "Recorded 2 runs, already there 0, refused 0.\n"
    assert [(run["spec"], run["avg_score"]) for run in runs(project)] == [("multi", 0.5), ("a", 0.5)]
    done = caliper("history", "import", str(elsewhere), str(elsewhere / ".caliper/results/multi/0.4.0.json"))
    assert done.stderr == "Recorded 0 runs, already there 2, refused 0.\n"
    assert len(runs(project)) == 2


def test_what_is_refused_is_named_and_the_rest_recorded(project: Path, caliper: Run, elsewhere: Path) -> None:
    bad = elsewhere / ".caliper/results/multi/bad.json"
    bad.write_text('{"run": {"spec": "x"}}')
    done = caliper("history", "import", str(elsewhere), "gone.json")
    assert done.exit_code == 1
    assert f"error: {bad}: not a results file: task_results: is missing" in done.stderr
    assert "error: gone.json: cannot be read: there is no such file" in done.stderr
    assert done.stderr.endswith("Recorded 2 runs, already there 0, refused 2.\n")
    assert len(runs(project)) == 2


def test_a_dry_run_only_says(project: Path, caliper: Run, elsewhere: Path) -> None:
    done = caliper("history", "import", "--dry-run", str(elsewhere))
    assert done.stderr == "Would record 2 runs, already there 0, refused 0.\n"
    assert not (project / ".caliper").exists()


def test_files_of_runs_that_are_in_the_store_are_recognised(project: Path, caliper: Run) -> None:
    store = RunStore(project)
    run = Given.whole_run(store)
    path = write_results(project, run, assemble(run.header(), run.lines(), ended_at=Given.NOON))
    moved = project / "moved.json"
    moved.write_text(json.dumps(json.loads(path.read_text()), indent=9))  # longer, and not known by its bytes
    done = caliper("history", "import", ".caliper/results", "moved.json")
    assert done.stderr == "Recorded 0 runs, already there 2, refused 0.\n"
    assert [found["run_id"] for found in runs(project)] == [run.run_id]
    assert not (project / ".caliper/records").exists()


def test_what_was_imported_survives_the_loss_of_the_database(project: Path, caliper: Run, elsewhere: Path) -> None:
    caliper("history", "import", str(elsewhere))
    before = runs(project)
    history.history_path(project).unlink()
    assert history.catch_up(history.history_path(project), RunStore(project)) == 2
    assert runs(project) == before


def test_a_path_is_needed(project: Path, caliper: Run) -> None:
    assert caliper("history", "import").exit_code == 2
