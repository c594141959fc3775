"""A list remembers what it has read, and is never wrong about it."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from caliper_pipeline.domain.results import assemble
from caliper_pipeline.domain.run_brief import RunBrief
from caliper_pipeline.storage import results_index
from caliper_pipeline.storage.results import load_results, saved_runs, write_results
from caliper_pipeline.storage.results_index import briefs
from caliper_pipeline.storage.runs import RunStore

Start = Callable[..., "Popen[bytes]"]
REFERENCE = json.loads((Path(__file__).parents[1] / "fixtures/results/reference-0.21.0.json").read_text("utf-8"))
LONG_AGO = time.time() - 3600


def saved(root: Path, file_id: str, *, spec: str = "demo", settled: bool = True, **run: Any) -> Path:
    path = root / ".caliper/results" / spec / f"{file_id}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**REFERENCE, "run": {**REFERENCE["run"], "spec": spec, **run}}), encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def nothing_is_too_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results_index, "_SETTLED_NS", -1_000_000_000)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were read whole, by name."""
    found: list[str] = []

    def load(path: Path) -> Any:
        found.append(path.stem)
        return load_results(path)

    monkeypatch.setattr(results_index, "load_results", load)
    return found


def index(root: Path, spec: str = "demo") -> Path:
    return root / ".caliper/cache/list" / spec


def ks(root: Path, spec: str = "demo") -> list[int | str]:
    return [brief.k if isinstance(brief, RunBrief) else brief for brief in briefs(root, saved_runs(root, spec))]


@pytest.mark.parametrize("many", [3, 60])
def test_each_file_is_read_once(tmp_path: Path, reads: list[str], many: int) -> None:
    for number in range(many):
        saved(tmp_path, f"2026-11-20T10-00-{number:02d}Z", k=number + 1)
    expected = list(range(1, many + 1))
    assert ks(tmp_path) == expected
    assert len(reads) == many
    assert ks(tmp_path) == expected
    assert len(reads) == many


def test_what_is_remembered_is_what_was_read(tmp_path: Path) -> None:
    saved(tmp_path, "2026-11-20T10-00-00Z", ablated=["mcp:mail", "tide-table"], interrupted=True)
    saved(tmp_path, "2026-11-20T11-00-00Z", run_id="20261120T105900000Z-abcdef", started_at="2026-11-20T10:59:00Z")
    runs = saved_runs(tmp_path, "demo")
    first = briefs(tmp_path, runs)
    assert index(tmp_path).exists()
    assert briefs(tmp_path, runs) == first
    assert isinstance(first[1], RunBrief)
    assert first[1].started_utc == "2026-11-20T10:59:00.000000Z"
    assert (first[1].score, first[1].successes, first[1].usable) == (0.5, 3, 6)


@pytest.mark.parametrize("many", [3, 60])
def test_new_edited_and_removed_files_show_up_as_they_are(tmp_path: Path, reads: list[str], many: int) -> None:
    paths = [saved(tmp_path, f"2026-11-20T10-00-{number:02d}Z", k=1) for number in range(many)]
    ks(tmp_path)
    reads.clear()
    saved(tmp_path, paths[0].stem, k=7)
    paths[1].unlink()
    saved(tmp_path, "2026-11-20T09-00-00Z", k=5)
    assert ks(tmp_path) == [5, 7, *[1] * (many - 2)]
    assert sorted(reads) == ["2026-11-20T09-00-00Z", paths[0].stem]


def test_an_edit_that_keeps_size_and_date_is_seen(tmp_path: Path) -> None:
    path = saved(tmp_path, "2026-11-20T10-00-00Z", k=1)
    os.utime(path, (LONG_AGO, LONG_AGO))
    assert ks(tmp_path) == [1]
    saved(tmp_path, path.stem, k=2)
    os.utime(path, (LONG_AGO, LONG_AGO))
    assert ks(tmp_path) == [2]


def test_a_file_that_was_just_changed_is_not_yet_remembered(
    tmp_path: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results_index, "_SETTLED_NS", 3600 * 1_000_000_000)
    saved(tmp_path, "2026-11-20T10-00-00Z")
    assert ks(tmp_path) == ks(tmp_path) == [3]
    assert len(reads) == 2


def test_an_unreadable_file_is_told_each_time_and_hides_no_other(tmp_path: Path) -> None:
    saved(tmp_path, "2026-11-20T10-00-00Z")
    saved(tmp_path, "2026-11-20T11-00-00Z").write_text("{")
    for _ in range(2):
        good, bad = ks(tmp_path)
        assert good == 3
        assert "2026-11-20T11-00-00Z.json: not a results file" in str(bad)


@pytest.mark.parametrize("many", [2, 60])
@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"\xff\xfe",
        b"\n",
        b"nonsense",
        b"\n1/0.1.0\tx\n[1,2",
        b"\n9/9.9\t2026-11-20T10-00-00Z\t1 2 3\t\t\t\t[]\n",
    ],
)
def test_a_damaged_index_is_made_anew(tmp_path: Path, damage: bytes, many: int) -> None:
    for number in range(many):
        saved(tmp_path, f"2026-11-20T10-00-{number:02d}Z")
    ks(tmp_path)
    data = index(tmp_path).read_bytes()
    for content in (damage, damage + data, data + damage, data.replace(b"[", b"{"), data[: len(data) // 2]):
        index(tmp_path).write_bytes(content)
        assert ks(tmp_path) == [3] * many
        assert ks(tmp_path) == [3] * many


def test_figures_of_another_version_are_not_taken_over(
    tmp_path: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path, "2026-11-20T10-00-00Z")
    ks(tmp_path)
    monkeypatch.setattr(results_index, "_FORM", "1/9.9.9")
    assert ks(tmp_path) == [3]
    assert len(reads) == 2


def test_lines_of_files_that_are_gone_do_not_gather(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results_index, "_FEW", 0)
    monkeypatch.setattr(results_index, "_SPARE_LINES", 10)
    for number in range(1, 41):
        saved(tmp_path, "2026-11-20T10-00-00Z", k=number)
        assert ks(tmp_path) == [number]
    assert len(index(tmp_path).read_text().split()) < 20 * 8


def test_a_name_with_odd_marks_is_read_each_time(tmp_path: Path, reads: list[str]) -> None:
    saved(tmp_path, "a\tb\nc")
    assert ks(tmp_path) == ks(tmp_path) == [3]
    assert len(reads) == 2


def test_where_nothing_can_be_remembered_the_list_is_right_all_the_same(tmp_path: Path) -> None:
    saved(tmp_path, "2026-11-20T10-00-00Z")
    (tmp_path / ".caliper/cache").write_text("in the way")
    assert ks(tmp_path) == [3]


def test_a_run_that_we_save_is_remembered_at_once(store: RunStore, given: Any, reads: list[str]) -> None:
    run = given.whole_run(store)
    results = assemble(run.header(), run.lines(), ended_at=given.NOON)
    write_results(store.root, run, results)
    (brief,) = briefs(store.root, saved_runs(store.root, "demo"))
    assert reads == []
    index(store.root).unlink()
    assert briefs(store.root, saved_runs(store.root, "demo")) == [brief]


def test_a_run_in_a_folder_whose_name_is_odd_is_saved_all_the_same(store: RunStore, given: Any) -> None:
    run = given.whole_run(store)
    results = assemble(run.header(), run.lines(), ended_at=given.NOON)
    odd = "a\nb" + "x" * 250
    path = write_results(store.root, run, replace(results, run=replace(results.run, spec=odd[:200])))
    assert briefs(store.root, saved_runs(store.root, path.parent.name)) != []


MANY_AT_ONCE = """
import sys
from pathlib import Path
from caliper_pipeline.storage import results_index
from caliper_pipeline.storage.results import saved_runs
root = Path(sys.argv[1])
results_index._SETTLED_NS = -1_000_000_000
for _ in range(20):
    assert {brief.k for brief in results_index.briefs(root, saved_runs(root, "demo"))} == {3}
    (root / ".caliper/cache/list/demo").unlink(missing_ok=True)
"""


def test_several_lists_at_once_do_not_disturb_one_another(tmp_path: Path, python: Start) -> None:
    for number in range(30):
        saved(tmp_path, f"2026-11-20T10-00-{number:02d}Z")
    listing = [python(MANY_AT_ONCE, tmp_path) for _ in range(3)]
    for process in listing:
        process.communicate()
    assert [process.returncode for process in listing] == [0] * 3
    assert ks(tmp_path) == [3] * 30


def test_the_list_loads_neither_the_results_nor_what_draws_small_tables(tmp_path: Path, python: Start) -> None:
    for number in range(30):
        saved(tmp_path, f"2026-11-20T10-00-{number:02d}Z")
    ks(tmp_path)
    code = """
import sys
from pathlib import Path
from caliper_pipeline.storage.results import saved_runs
from caliper_pipeline.storage.results_index import briefs
from caliper_pipeline.interfaces.render import long_listing
briefs(Path(sys.argv[1]), saved_runs(Path(sys.argv[1]), "demo"))
print(sorted({"rich", "caliper_pipeline.domain.results", "pydantic"} & set(sys.modules)))
"""
    assert python(code, tmp_path).communicate()[0] == b"[]\n"
