"""`caliper report` finds the run that is meant and shows it as a page or as data."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from caliper_pipeline.domain.errors import BadInput

Run = Callable[..., Any]


def test_a_spec_name_means_its_latest_run(record: Run, caliper: Run) -> None:
    record("demo", "2026-11-20T10-00-00Z", cli_version="old one")
    record("demo", "2026-11-21T10-00-00Z", cli_version="new one")
    for reference in ("demo", "demo.eval.yaml", "some/where/demo.eval.yaml"):
        found = caliper("report", reference)
        assert found.exit_code == 0
        assert "new one" in found.stdout
        assert "old one" not in found.stdout


def test_an_older_run_and_a_file_can_be_named(record: Run, caliper: Run) -> None:
    path = record("demo", "2026-11-20T10-00-00Z", cli_version="old one")
    record("demo", "2026-11-21T10-00-00Z", cli_version="new one")
    assert "old one" in caliper("report", "demo", "--run", "2026-11-20T10-00-00Z").stdout
    assert "old one" in caliper("report", str(path)).stdout


def test_without_a_name_the_only_spec_is_meant(record: Run, caliper: Run) -> None:
    assert isinstance(caliper("report").exception, BadInput)
    record("demo", "2026-11-20T10-00-00Z")
    assert "demo" in caliper("report").stdout
    record("other", "2026-11-20T10-00-00Z")
    found = caliper("report")
    assert isinstance(found.exception, BadInput)
    assert "demo, other" in str(found.exception)


@pytest.mark.parametrize("arguments", [("nope",), ("nope.json",), ("demo", "--run", "2020-01-01T00-00-00Z")])
def test_what_is_not_there_is_bad_input(record: Run, caliper: Run, arguments: Any) -> None:
    record("demo", "2026-11-20T10-00-00Z")
    found = caliper("report", *arguments)
    assert isinstance(found.exception, BadInput)
    assert found.stdout == ""


def test_a_file_that_is_none_is_named_with_the_key_that_does_not_fit(project: Path, caliper: Run) -> None:
    (project / "r.json").write_text('{"run": {"spec": "x"}}')
    found = caliper("report", "r.json")
    assert "r.json: not a results file" in str(found.exception)


def test_a_page_that_names_evidence_says_when_it_was_pruned(record: Run, caliper: Run, project: Path) -> None:
    run_id = "20261120T100000000Z-abcdef"
    record("demo", "2026-11-20T10-00-00Z", run_id=run_id)
    folder = project / ".caliper" / "runs" / run_id
    folder.mkdir(parents=True)
    (folder / "run.json").touch()
    assert "pruned" not in caliper("report", "demo", "-v").stderr
    (folder / "pruned.json").write_text('{"pruned_at": "2026-11-21T12:00:00Z"}', encoding="ascii")
    assert "2026-11-21 12:00 UTC was pruned" in caliper("report", "demo", "-v").stderr
    assert caliper("report", "demo").stderr == ""


def test_json_is_the_files_object_with_the_totals(record: Run, caliper: Run) -> None:
    path = record("demo", "2026-11-20T10-00-00Z")
    data = json.loads(caliper("report", "demo", "--format", "json").stdout)
    stored = json.loads(path.read_text(encoding="utf-8"))
    assert list(data) == ["run", "skill_snapshots", "task_results", "aggregate", "usage_totals"]
    first, before = data["task_results"][0]["attempts"][0], stored["task_results"][0]["attempts"][0]
    assert {key: first[key] for key in before} == before  # the transcript too
    assert data["usage_totals"]["total_tokens"] == 531
    assert data["usage_totals"]["tokens_per_attempt"] == 59
    assert data["usage_totals"]["judge_per_attempt"] is None
    assert data["task_results"][0]["interval"]["method"] == "wilson"


def test_json_holds_what_the_encoding_cannot(record: Run, caliper: Run) -> None:
    path = record("demo", "2026-11-20T10-00-00Z")
    data = json.loads(path.read_text(encoding="utf-8"))
    data["task_results"][0]["attempts"][0]["output"] = "half \ud83c"
    path.write_text(json.dumps(data))
    found = json.loads(caliper("report", "demo", "--format", "json").stdout)
    assert found["task_results"][0]["attempts"][0]["output"] == "half \ud83c"


def test_the_report_of_a_control_names_the_full_run(record: Run, caliper: Run) -> None:
    record("tides", "2026-11-20T10-00-00Z", ablated=[])
    record("tides", "2026-11-21T10-00-00Z", ablated=["tide-table"], timestamp="2026-11-21T10:00:00Z")
    assert "caliper report tides --run 2026-11-20T10-00-00Z" in caliper("report", "tides").stderr
    assert "control" not in caliper("report", "tides", "--run", "2026-11-20T10-00-00Z").stderr
