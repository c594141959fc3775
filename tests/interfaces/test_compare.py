"""`caliper compare` finds both runs, refuses what means nothing, and exits 0 whatever the figures."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from caliper_pipeline.domain.errors import BadInput

Run = Callable[..., Any]


def test_two_runs_are_shown_side_by_side(record: Run, caliper: Run) -> None:
    record("tides", "2026-11-19T10-00-00Z")
    record("moons", "2026-11-19T10-00-00Z", cli_version="9.9")
    found = caliper("compare", "tides", "moons")
    assert found.exit_code == 0
    assert "tides → moons" in found.stdout
    assert "9.9" in found.stdout
    assert "different specs: tides and moons" in found.stdout
    assert "50.0%  19–81%" in found.stdout


def test_a_drop_is_named_and_the_exit_code_stays_0(record: Run, caliper: Run) -> None:
    before = record("tides", "2026-11-19T10-00-00Z")
    after = record("tides", "2026-11-20T10-00-00Z")
    after.write_text(after.read_text().replace('"pass"', '"task_fail"', 1))
    found = caliper("compare", str(before), str(after))
    assert found.exit_code == 0
    assert "1 task dropped  Happy" in found.stdout
    assert "-33.3" in found.stdout


def test_json_is_data_alone(record: Run, caliper: Run) -> None:
    record("tides", "2026-11-19T10-00-00Z")
    record("moons", "2026-11-19T10-00-00Z")
    data = json.loads(caliper("compare", "tides", "moons", "--format", "json").stdout)
    assert data["spec_mismatch"] is True
    assert data["aggregate_delta"] == 0
    assert len(data["warnings"]) == 1


def test_a_run_is_not_compared_with_itself(project: Path, record: Run, caliper: Run) -> None:
    path = record("tides", "2026-11-19T10-00-00Z")
    (project / "link.json").symlink_to(path)
    for other in ("tides", str(path), "link.json"):
        found = caliper("compare", "tides", other)
        assert isinstance(found.exception, BadInput)
        assert "are the same run" in str(found.exception)
        assert found.stdout == ""


def test_runs_of_different_eras_are_refused(record: Run, caliper: Run) -> None:
    record("tides", "2026-11-19T10-00-00Z")
    record("moons", "2026-11-19T10-00-00Z", era=None)
    found = caliper("compare", "tides", "moons", "--format", "json")
    assert isinstance(found.exception, BadInput)
    assert found.stdout == ""


def test_verbose_adds_the_secondary_scores(record: Run, caliper: Run) -> None:
    record("tides", "2026-11-19T10-00-00Z")
    record("moons", "2026-11-19T10-00-00Z")
    assert "pass@3*" in caliper("compare", "tides", "moons", "-v").stdout
