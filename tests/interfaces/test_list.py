"""`caliper list` tells what is on record and what never ran."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from caliper_pipeline.domain.errors import BadInput
from caliper_pipeline.interfaces import list_command
from caliper_pipeline.interfaces.list_command import MOST_FOLDERS, find_specs

Run = Callable[..., Any]


def rows(output: str) -> list[list[str]]:
    return [line.split() for line in output.splitlines() if line.strip()]


def test_specs_are_listed_by_name_with_their_latest_run(record: Run, caliper: Run) -> None:
    record("tides", "2026-11-20T10-00-00Z", interrupted=True)
    record("moons", "2026-11-20T10-00-00Z")
    record("moons", "2026-11-21T10-00-00Z", simulated=True, backend="scripted")
    found = caliper("list")
    assert found.exit_code == 0
    table = rows(found.stdout)
    assert [row[:2] for row in table[2:4]] == [["moons", "2"], ["tides", "1"]]
    assert "50.0% 3/6  19–81%" in found.stdout
    assert "simulated" in found.stdout
    assert "⊘ interrupted" in found.stdout


def test_a_latest_run_that_was_a_control_is_called_one(record: Run, caliper: Run) -> None:
    record("tides", "2026-11-20T10-00-00Z", ablated=["tide-table"])
    assert "UTC  without tide-table" in caliper("list").stdout


def test_specs_that_never_ran_are_named_with_their_file(project: Path, record: Run, caliper: Run) -> None:
    record("tides", "2026-11-20T10-00-00Z")
    for path in ("tides.eval.yaml", "skills/new/new.eval.yaml", "node_modules/x/x.eval.yaml", ".venv/y.eval.yml"):
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text("tasks: []")
    found = caliper("list").stdout
    assert "never run  skills/new/new.eval.yaml" in found
    assert "node_modules" not in found
    assert ".venv" not in found
    assert found.count("tides") == 1


def test_when_nothing_is_recorded_it_says_so(project: Path, caliper: Run) -> None:
    found = caliper("list")
    assert found.exit_code == 0
    assert "Nothing is recorded yet" in found.stdout
    (project / "new.eval.yaml").write_text("tasks: []")
    found = caliper("list")
    assert "Nothing is recorded yet" in found.stdout
    assert "never run" in found.stdout


def test_one_specs_runs_are_listed_oldest_first(record: Run, caliper: Run) -> None:
    for number in ("", "-2", "-9", "-10"):
        record("tides", f"2026-11-20T10-00-00Z{number}")
    record("tides", "2026-11-19T10-00-00Z", ablated=["tide-table"])
    found = caliper("list", "tides.eval.yaml")
    ids = [row[0] for row in rows(found.stdout) if row[0].startswith("2026")]
    assert ids == ["2026-11-19T10-00-00Z", *(f"2026-11-20T10-00-00Z{n}" for n in ("", "-2", "-9", "-10"))]
    assert "without tide-table" in found.stdout


def test_an_unreadable_file_is_named_and_hides_nothing(record: Run, caliper: Run) -> None:
    record("tides", "2026-11-19T10-00-00Z")
    record("tides", "2026-11-20T10-00-00Z").write_text("{}")
    found = caliper("list", "tides").stdout
    assert "50.0% 3/6" in found
    assert "2026-11-20T10-00-00Z.json: not a results file" in found
    assert caliper("list").exit_code == 0


def test_a_run_that_measured_nothing_is_a_dash(record: Run, caliper: Run) -> None:
    path = record("tides", "2026-11-19T10-00-00Z")
    path.write_text(path.read_text().replace('"pass"', '"timeout"').replace('"task_fail"', '"timeout"'))
    found = caliper("list", "tides").stdout
    assert "0%" not in found
    assert "— not measured" in found


def test_an_unknown_spec_is_bad_input(record: Run, caliper: Run) -> None:
    record("tides", "2026-11-19T10-00-00Z")
    found = caliper("list", "tiides")
    assert isinstance(found.exception, BadInput)
    assert "On record: tides." in str(found.exception)


def test_the_search_for_specs_has_an_end(tmp_path: Path) -> None:
    for number in range(MOST_FOLDERS + 5):
        (tmp_path / f"d{number:05d}").mkdir()
    (tmp_path / f"d{MOST_FOLDERS + 4:05d}" / "late.eval.yaml").write_text("")
    (tmp_path / "near.eval.yaml").write_text("")
    found, complete = find_specs(tmp_path)
    assert found == {"near": "near.eval.yaml"}
    assert not complete


def test_a_folder_that_links_to_its_parent_is_no_trap(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "a" / "x.eval.yml").write_text("")
    assert find_specs(tmp_path) == ({"x": "a/x.eval.yml"}, True)


def test_a_long_list_says_the_same_as_a_short_one(
    project: Path, record: Run, caliper: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    record("tides", "2026-11-19T10-00-00Z", ablated=["tide-table"], model="mod\u00e8le-\u6f6e")
    record("tides", "2026-11-20T10-00-00Z", interrupted=True, simulated=True)
    record("tides", "2026-11-21T10-00-00Z").write_text("{}")
    record("moons", "2026-11-21T10-00-00Z", k=12)
    (project / "new.eval.yaml").write_text("tasks: []")
    short = [rows(caliper("list", *spec).stdout) for spec in ((), ("tides",), ("moons",))]
    monkeypatch.setattr(list_command, "MANY", 0)
    long = [rows(caliper("list", *spec).stdout) for spec in ((), ("tides",), ("moons",))]
    assert long == [[row for row in table if set("".join(row)) != {"\u2500"}] for table in short]


def test_the_columns_of_a_long_list_are_straight(record: Run, caliper: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_command, "MANY", 0)
    record("tides", "2026-11-19T10-00-00Z", model="ab")
    record("tides", "2026-11-20T10-00-00Z", model="\u6f6e")  # as wide as two letters
    first, second = (line for line in caliper("list", "tides").stdout.splitlines() if line.startswith("2026"))
    assert second.replace("\u6f6e", "ab").replace("20T", "19T") == first


def test_runs_can_be_had_as_data(record: Run, caliper: Run) -> None:
    record("tides", "2026-11-19T10-00-00Z", ablated=["a", "mcp:b"])
    bad = record("tides", "2026-11-20T10-00-00Z")
    bad.write_text("{}")
    first, second = json.loads(caliper("list", "tides", "--format", "json").stdout)
    assert (first["file_id"], first["backend"], first["ablated"]) == (
        "2026-11-19T10-00-00Z",
        "claude-code",
        ["a", "mcp:b"],
    )
    assert (first["score"], first["successes"], first["usable"], first["error"]) == (0.5, 3, 6, None)
    assert (second["file"], second["k"]) == (str(bad), None)
    assert "not a results file" in second["error"]
    table = list(csv.DictReader(io.StringIO(caliper("list", "tides", "--format", "csv").stdout)))
    assert [row["ablated"] for row in table] == ["a+mcp:b", ""]
    assert (table[0]["score"], table[1]["k"]) == ("0.5", "")


def test_specs_can_be_had_as_data(project: Path, record: Run, caliper: Run) -> None:
    record("tides", "2026-11-19T10-00-00Z")
    (project / "new.eval.yaml").write_text("tasks: []")
    new, tides = json.loads(caliper("list", "--format", "json").stdout)
    assert (new["spec"], new["runs"], new["spec_file"], new["latest"]) == ("new", 0, "new.eval.yaml", None)
    assert (tides["runs"], tides["latest"]["file_id"]) == (1, "2026-11-19T10-00-00Z")
    table = list(csv.DictReader(io.StringIO(caliper("list", "--format", "csv").stdout)))
    assert [(row["spec"], row["file_id"], row["score"]) for row in table] == [
        ("new", "", ""),
        ("tides", "2026-11-19T10-00-00Z", "0.5"),
    ]


def test_nothing_on_record_is_empty_data(caliper: Run) -> None:
    assert caliper("list", "--format", "json").stdout == "[]\n"
    assert caliper("list", "--format", "csv").stdout.startswith("spec,runs,spec_file,")
