import json
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from caliper_pipeline.domain.errors import BadInput, StorageError
from caliper_pipeline.domain.records import EndRecord, Outcome, RunHeader
from caliper_pipeline.domain.results import Results, assemble, parse_results, results_dict
from caliper_pipeline.domain.transcript import Turn, Usage
from caliper_pipeline.storage import results as results_module
from caliper_pipeline.storage.evidence import Evidence
from caliper_pipeline.storage.results import (
    latest_of,
    load_results,
    resolve,
    saved_runs,
    write_results,
)
from caliper_pipeline.storage.results_writing import transcript_dict
from caliper_pipeline.storage.runs import RunFolder, RunStore

Start = Callable[..., "Popen[bytes]"]
TURNS = (
    Turn("tool_use", tool_name="Bash", tool_input={"command": "date"}, call_id="a"),
    Turn("tool_result", "Mon 30 Nov", call_id="a", is_error=False),
    Turn("assistant", "It is Monday."),
)


def results_of(run: RunFolder, ended: datetime) -> Results:
    return assemble(run.header(), run.lines(), ended_at=ended)


def run_with_evidence(store: RunStore, given: Any, *, attempts: int = 2, **changes: Any) -> RunFolder:
    run = store.create(given.run_header(tasks=2, k=attempts, **changes))
    for task in (1, 2):
        for number in range(1, attempts + 1):
            kept = run.save_evidence(f"Task {task}", number, Evidence(TURNS, f"answer {task}.{number}"))
            run.append(given.attempt(task, number, output=f"answer {task}.{number}", evidence=kept))
            run.append(given.verdict(task, number))
    return run


def test_a_saved_file_is_what_one_dump_of_everything_would_be(store: RunStore, given: Any) -> None:
    run = run_with_evidence(store, given)
    results = results_of(run, given.NOON)
    path = write_results(store.root, run, results)
    whole = results_dict(results, transcript_of=lambda task, attempt: [transcript_dict(turn) for turn in TURNS])
    assert path.read_text(encoding="utf-8") == json.dumps(whole, indent=2, ensure_ascii=False) + "\n"
    assert load_results(path) == parse_results(json.loads(json.dumps(whole)))


def test_the_file_is_named_for_the_end_and_numbered_within_a_second(store: RunStore, given: Any) -> None:
    ended = datetime(2026, 11, 20, 10, 0, 0, 999999, tzinfo=UTC)
    names = []
    for _ in range(3):
        run = run_with_evidence(store, given, attempts=1)
        names.append(write_results(store.root, run, results_of(run, ended)).name)
    assert names == ["2026-11-20T10-00-00Z.json", "2026-11-20T10-00-00Z-2.json", "2026-11-20T10-00-00Z-3.json"]
    assert sorted(p.name for p in (store.root / ".caliper/results/demo").iterdir()) == sorted(names)


def test_without_links_a_name_is_still_taken_only_once(
    store: RunStore, given: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "links are not permitted")

    monkeypatch.setattr(os, "link", refuse)
    run = run_with_evidence(store, given, attempts=1)
    paths = [write_results(store.root, run, results_of(run, given.NOON)) for _ in range(2)]
    assert len(set(paths)) == 2
    assert all(load_results(path).run.spec == "demo" for path in paths)


def test_saving_a_resumed_run_replaces_its_older_file(store: RunStore, given: Any) -> None:
    run = run_with_evidence(store, given, attempts=1)
    first = write_results(store.root, run, results_of(run, given.NOON))
    run.append(EndRecord(given.NOON, "interrupted", results=str(first.relative_to(store.root))))
    second = write_results(store.root, run, results_of(run, given.NOON + timedelta(hours=1)))
    assert [saved.path for saved in saved_runs(store.root, "demo")] == [second]


def test_another_run_s_file_is_never_removed(store: RunStore, given: Any) -> None:
    other = run_with_evidence(store, given, attempts=1)
    theirs = write_results(store.root, other, results_of(other, given.NOON))
    run = run_with_evidence(store, given, attempts=1)
    run.append(EndRecord(given.NOON, "completed", results=str(theirs.relative_to(store.root))))
    run.append(EndRecord(given.NOON, "completed", results="../../../etc/passwd"))
    write_results(store.root, run, results_of(run, given.NOON))
    assert theirs.exists()


@pytest.mark.parametrize("spec", ["../../evil", "..", ".", "", "/abs", "a/b", ".hidden", "a\\b", "a\0b"])
def test_a_spec_name_that_climbs_is_not_written(store: RunStore, given: Any, spec: str) -> None:
    run = run_with_evidence(store, given, attempts=1)
    results = results_of(run, given.NOON)
    before = sorted(store.root.rglob("*"))
    with pytest.raises(StorageError, match="is not a name for a folder"):
        write_results(store.root, run, replace(results, run=replace(results.run, spec=spec)))
    assert sorted(store.root.rglob("*")) == before


def test_long_answers_come_whole_from_the_evidence(store: RunStore, given: Any) -> None:
    run = store.create(given.run_header(tasks=1))
    answer = "word " * 1000
    kept = run.save_evidence("Task 1", 1, Evidence(final_answer=answer))
    run.append(given.attempt(output=answer[-500:], evidence=kept))
    run.append(given.verdict())
    path = write_results(store.root, run, results_of(run, given.NOON))
    assert load_results(path).task_results[0].attempts[0].output == answer


def test_pruned_evidence_leaves_a_file_without_that_transcript(store: RunStore, given: Any) -> None:
    run = run_with_evidence(store, given, attempts=1)
    for path in (run.path / "evidence").rglob("evidence.json"):
        path.unlink()
    path = write_results(store.root, run, results_of(run, given.NOON))
    attempt = json.loads(path.read_text(encoding="utf-8"))["task_results"][0]["attempts"][0]
    assert (attempt["transcript"], attempt["output"]) == (None, "answer 1.1")


def test_skill_texts_are_embedded_and_other_bytes_named(store: RunStore, given: Any) -> None:
    header: RunHeader = given.run_header(tasks=1)
    skill = replace(header.skills[0], files={"SKILL.md": "sha256:01", "a.bin": "sha256:02", "gone": "sha256:03"})
    run = store.create(replace(header, skills=(skill,)))
    folder = run.skill_folder("tides")
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("tidé", encoding="utf-8")
    (folder / "a.bin").write_bytes(b"\0\1")
    run.append(given.attempt())
    run.append(given.verdict())
    (snapshot,) = load_results(write_results(store.root, run, results_of(run, given.NOON))).skill_snapshots
    assert {name: file.content for name, file in snapshot.files.items()} == {
        "SKILL.md": "tidé",
        "a.bin": None,
        "gone": None,
    }


def test_odd_text_does_not_keep_a_file_from_being_saved(store: RunStore, given: Any) -> None:
    run = store.create(given.run_header(tasks=1))
    turns = [Turn("tool_use", tool_name="x", tool_input={"n": float("nan"), "s": "\ud800"})]
    kept = run.save_evidence("Task 1", 1, Evidence(turns, "half \ud83d"))
    run.append(given.attempt(output="half \ud83d", evidence=kept))
    run.append(given.verdict(assert_evidence="\udfff"))
    path = write_results(store.root, run, results_of(run, given.NOON))
    assert load_results(path).task_results[0].attempts[0].output == "half \ufffd"


MANY = """
import resource, sys
from datetime import UTC, datetime
from pathlib import Path
from caliper_pipeline.domain.results import assemble
from caliper_pipeline.storage.results import write_results
from caliper_pipeline.storage.runs import RunStore
store = RunStore(Path(sys.argv[1]))
run = store.open(store.run_ids()[0])
results = assemble(run.header(), run.lines(), ended_at=datetime.now(UTC))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
write_results(store.root, run, results)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(not Path("/proc").exists(), reason="ru_maxrss is in bytes elsewhere")
def test_writing_holds_one_transcript_at_a_time(store: RunStore, given: Any, python: Start) -> None:
    run = store.create(given.run_header(tasks=1, k=40))
    turns = [Turn("assistant", "x" * 500_000)]
    for number in range(1, 41):
        kept = run.save_evidence("Task 1", number, Evidence(turns))
        run.append(given.attempt(1, number, evidence=kept))
        run.append(given.verdict(1, number))
    grown_kib = int(python(MANY, store.root).communicate()[0])
    assert grown_kib < 8 * 1024  # all transcripts together are 20 MB


# -- finding


def saved(root: Path, spec: str, file_id: str, **run: Any) -> Path:
    path = root / ".caliper/results" / spec / f"{file_id}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"run": {"spec": spec, **run}, "skill_snapshots": [], "task_results": []}))
    return path


def test_runs_are_in_the_order_of_time_and_then_of_their_number(tmp_path: Path) -> None:
    for number in ("", "-2", "-9", "-10", "-11"):
        saved(tmp_path, "demo", f"2026-11-20T10-00-00Z{number}")
    saved(tmp_path, "demo", "2026-11-19T10-00-00Z-3")
    saved(tmp_path, "demo", "my-notes")
    ids = [run.file_id for run in saved_runs(tmp_path, "demo")]
    second = "2026-11-20T10-00-00Z"
    tail = [second, f"{second}-2", f"{second}-9", f"{second}-10", f"{second}-11"]
    assert ids == ["my-notes", "2026-11-19T10-00-00Z-3", *tail]
    assert resolve(tmp_path, "demo").stem == "2026-11-20T10-00-00Z-11"


def test_the_latest_run_is_the_one_that_started_last(tmp_path: Path) -> None:
    saved(tmp_path, "demo", "2026-11-20T09-00-00Z", started_at="2026-11-20T08:00:00Z")
    newest = saved(tmp_path, "demo", "2026-11-20T10-00-00Z", started_at="2026-11-20T09:59:00Z")
    long_one = {
        "hook_failures": [{"output": 'x"started_at": "2027-01-01"' * 2000}],
        "started_at": "2026-11-20T07:00:00Z",
    }
    saved(tmp_path, "demo", "2026-11-20T11-00-00Z", **long_one)
    assert latest_of(saved_runs(tmp_path, "demo")).path == newest
    assert resolve(tmp_path, "demo") == newest


def test_a_file_that_does_not_tell_its_start_goes_by_its_name(tmp_path: Path) -> None:
    saved(tmp_path, "demo", "2026-11-20T10-00-00Z", started_at="2026-11-20T09:59:00Z")
    foreign = saved(tmp_path, "demo", "2026-11-20T11-00-00Z")
    assert resolve(tmp_path, "demo") == foreign


def test_one_run_is_named_by_its_file_or_by_its_id(tmp_path: Path) -> None:
    path = saved(tmp_path, "demo", "2026-11-20T10-00-00Z", run_id="20261120T095900000Z-abcdef")
    saved(tmp_path, "demo", "2026-11-20T11-00-00Z", run_id="20261120T105900000Z-abcdef")
    assert resolve(tmp_path, "demo", "2026-11-20T10-00-00Z") == path
    assert resolve(tmp_path, "demo", "20261120T095900000Z-abcdef") == path
    assert resolve(tmp_path, "some/where/demo.eval.yaml", "2026-11-20T10-00-00Z.json") == path
    with pytest.raises(BadInput, match="demo has no run 'nope' under"):
        resolve(tmp_path, "demo", "nope")


def test_a_run_id_is_found_without_looking_into_every_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for hour in range(24):
        saved(tmp_path, "demo", f"2026-11-20T{hour:02d}-30-00Z", run_id=f"20261120T{hour:02d}1500000Z-abcdef")
    opened = []
    head = results_module._head
    monkeypatch.setattr(results_module, "_head", lambda path, pattern: opened.append(path) or head(path, pattern))
    assert resolve(tmp_path, "demo", "20261120T031500000Z-abcdef").stem == "2026-11-20T03-30-00Z"
    assert resolve(tmp_path, "demo").stem == "2026-11-20T23-30-00Z"
    assert len(opened) <= 3


def test_a_path_is_a_path(tmp_path: Path) -> None:
    path = saved(tmp_path, "demo", "2026-11-20T10-00-00Z")
    assert resolve(None, str(path)) == path
    with pytest.raises(BadInput, match="there is no such results file"):
        resolve(tmp_path, str(tmp_path / "gone.json"))
    with pytest.raises(BadInput, match="is one run already"):
        resolve(tmp_path, str(path), "x")


def test_what_is_not_found_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"nothing has been saved here, there is no \.caliper folder"):
        resolve(None, "demo")
    with pytest.raises(BadInput, match=f"nothing has been saved under {tmp_path} yet"):
        resolve(tmp_path, "demo")
    saved(tmp_path, "demo", "2026-11-20T10-00-00Z")
    with pytest.raises(BadInput, match=f"No run of 'dmo' is saved under {tmp_path}") as caught:
        resolve(tmp_path, "dmo")
    assert caught.value.hint == "Did you mean demo?"
    for climbing in ("../demo", "..", ".", "", "a/b"):
        with pytest.raises(BadInput, match="No run of"):
            resolve(tmp_path, climbing)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON in UTF-8"),
        (b"[]", "not a results file"),
        (b'{"run": {}}', "not a results file"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_what_is_no_results_file_is_named(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=words) as caught:
        load_results(path)
    assert str(path) in str(caught.value)
    with pytest.raises(BadInput, match="there is no such file"):
        load_results(tmp_path / "gone.json")
    with pytest.raises(BadInput, match="cannot be read"):
        load_results(tmp_path)


def test_a_mark_at_the_start_of_the_file_is_no_obstacle(store: RunStore, given: Any) -> None:
    run = run_with_evidence(store, given, attempts=1)
    path = write_results(store.root, run, results_of(run, given.NOON))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert load_results(path).run.spec == "demo"


def test_usage_survives(store: RunStore, given: Any) -> None:
    run = store.create(given.run_header(tasks=1))
    run.append(given.attempt(usage=Usage(1, None, 3, 4)))
    run.append(given.verdict())
    loaded = load_results(write_results(store.root, run, results_of(run, given.NOON)))
    assert loaded.task_results[0].attempts[0].usage == Usage(1, None, 3, 4)
    assert loaded.task_results[0].attempts[0].outcome is Outcome.PASS
