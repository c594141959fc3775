"""A run can be given away as an eval log of Inspect, whoever made it and whatever is in it."""

import importlib.util
import io
import json
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from caliper_pipeline.domain.errors import BadInput, StorageError
from caliper_pipeline.domain.records import EndRecord, Outcome
from caliper_pipeline.domain.results import parse_results
from caliper_pipeline.domain.transcript import Turn, Usage
from caliper_pipeline.storage.evidence import Evidence
from caliper_pipeline.storage.exports.forms import Names, write_run
from caliper_pipeline.storage.exports.inspect_files import log_name
from caliper_pipeline.storage.exports.inspect_messages import messages_of
from caliper_pipeline.storage.exports.source import ForeignFile, Source, StoredRun, turns_of
from caliper_pipeline.storage.exports.targets import let_write, refuse_existing, write_file
from caliper_pipeline.storage.files import storage_errors
from caliper_pipeline.storage.runs import RunFolder, RunStore

FIXTURES = Path(__file__).parents[1] / "fixtures"
SCHEMA = json.loads((FIXTURES / "inspect-eval-log.schema.json").read_text(encoding="utf-8"))
TURNS = (
    Turn("assistant", "Let me look."),
    Turn("tool_use", tool_name="Bash", tool_input={"command": "date", "limit": None}, call_id="a"),
    Turn("tool_use", tool_name="Read", tool_input={"file_path": "x"}, call_id="b"),
    Turn("tool_result", "no such file", call_id="b", is_error=True),
    Turn("tool_result", "Mon 30 Nov", call_id="a", is_error=False),
    Turn("assistant", "It is Monday."),
)


def exported(source: Source, form: str) -> bytes:
    stream = io.BytesIO()
    write_run(stream, source, form)
    return stream.getvalue()


def log_of(source: Source) -> Any:
    """As one JSON, checked against the format."""
    log = json.loads(exported(source, "inspect-json"))
    jsonschema.Draft202012Validator(SCHEMA).validate(log)
    return log


def run_of(store: RunStore, given: Any, **changes: Any) -> RunFolder:
    run = store.create(given.run_header(tasks=2, k=2, git_commit="ab12", git_dirty=True, **changes))
    outcomes = iter((Outcome.PASS, Outcome.TASK_FAIL, Outcome.TIMEOUT, Outcome.PASS))
    for task in (1, 2):
        for number in (1, 2):
            kept = run.save_evidence(f"Task {task}", number, Evidence(TURNS, "It is Monday."))
            run.append(given.attempt(task, number, output="It is Monday.", evidence=kept))
            outcome = next(outcomes)
            run.append(
                given.verdict(task, number, outcome, activation_passed=True, judge_usage=Usage(10, 5), judge_seconds=1)
            )
    run.append(EndRecord(given.NOON, "completed"))
    return run


def foreign(name: str = "reference-0.21.0.json") -> ForeignFile:
    return ForeignFile.read(FIXTURES / "results" / name)


# -- as Inspect has it


def test_the_accuracy_of_the_log_is_the_success_rate(store: RunStore, given: Any) -> None:
    source = StoredRun.of(run_of(store, given))
    log = log_of(source)
    score = {score["name"]: score for score in log["results"]["scores"]}["success"]
    assert score["metrics"]["accuracy"]["value"] == source.results.aggregate.avg_score == 0.75
    assert (score["scored_samples"], score["unscored_samples"]) == (3, 1)
    assert log["reductions"][0]["samples"] == [
        {"sample_id": "Task 1", "value": 0.5},
        {"sample_id": "Task 2", "value": 1.0},
    ]


def test_a_task_is_a_sample_and_an_attempt_an_epoch(store: RunStore, given: Any) -> None:
    run = run_of(store, given)
    log = log_of(StoredRun.of(run))
    assert [(sample["id"], sample["epoch"]) for sample in log["samples"]] == [
        ("Task 1", 1),
        ("Task 1", 2),
        ("Task 2", 1),
        ("Task 2", 2),
    ]
    assert log["eval"]["run_id"] == run.run_id
    assert log["eval"]["dataset"]["sample_ids"] == ["Task 1", "Task 2"]
    assert log["eval"]["revision"] == {"type": "git", "origin": "", "commit": "ab12", "dirty": True}
    assert log["samples"][0]["total_time"] == 2.0
    assert log["samples"][0]["working_time"] == 1.5
    assert log["stats"]["model_usage"]["scripted/demo-model"]["total_tokens"] == 4 * 170
    assert log["stats"]["role_usage"]["grader"]["total_tokens"] == 4 * 15


def test_a_lost_attempt_has_an_error_and_no_score_of_success(store: RunStore, given: Any) -> None:
    log = log_of(StoredRun.of(run_of(store, given)))
    good, failed, lost, _ = log["samples"]
    assert [sample["scores"].get("success", {}).get("value") for sample in log["samples"]] == ["C", "I", None, "C"]
    assert "error" not in good
    assert "error" not in failed
    assert lost["error"]["message"].startswith("timeout: ")
    assert (lost["limit"]["type"], lost["limit"]["limit"]) == ("time", 120.0)


def test_calls_of_tools_are_in_the_message_that_makes_them(store: RunStore, given: Any) -> None:
    messages = log_of(StoredRun.of(run_of(store, given)))["samples"][0]["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "assistant"]
    assert [(call["id"], call["function"]) for call in messages[1]["tool_calls"]] == [("a", "Bash"), ("b", "Read")]
    assert messages[1]["tool_calls"][0]["arguments"] == {"command": "date", "limit": None}
    assert (messages[2]["tool_call_id"], messages[2]["error"]["message"]) == ("b", "no such file")
    assert "error" not in messages[3]
    assert len({message["id"] for message in messages}) == 5


def test_results_without_ids_are_paired_with_the_first_open_call_of_their_tool() -> None:
    turns = [
        Turn("tool_use", tool_name="Bash"),
        Turn("tool_use", tool_name="Read"),
        Turn("tool_result", "r", tool_name="Read"),
        Turn("tool_result", "b"),
        Turn("tool_result", "stray"),
    ]
    messages = messages_of(None, turns, model="m", name="x")
    calls = {call["function"]: call["id"] for call in messages[0]["tool_calls"]}
    assert [message["tool_call_id"] for message in messages[1:]] == [calls["Read"], calls["Bash"], "x-result-4"]


def test_turns_of_a_sub_agent_tell_whose_they_are() -> None:
    turns = [
        Turn("tool_use", tool_name="Task", call_id="t"),
        Turn("tool_use", tool_name="Bash", call_id="u", parent_call_id="t"),
        Turn("tool_result", "x", call_id="u", parent_call_id="t"),
    ]
    first, second, third = messages_of(None, turns, model="m", name="x")
    assert "metadata" not in first
    assert second["metadata"] == third["metadata"] == {"parent_call_id": "t"}


@pytest.mark.parametrize(
    ("changes", "status"), [({}, "success"), ({"interrupted": True}, "cancelled"), ({"stop_reason": "cap"}, "error")]
)
def test_the_status_tells_how_the_run_ended(changes: dict[str, Any], status: str) -> None:
    file = foreign()
    source = replace(file, results=replace(file.results, run=replace(file.results.run, **changes)))
    assert log_of(source)["status"] == status


@pytest.mark.parametrize("name", ["reference-0.21.0.json", "reference-0.4.0.json"])
def test_files_of_the_reference_can_be_looked_at_too(name: str) -> None:
    file = foreign(name)
    log = log_of(file)
    assert len(log["samples"]) == sum(len(task.attempts) for task in file.results.task_results)
    success = [score for score in log["results"]["scores"] if score["name"] == "success"]
    assert success[0]["metrics"]["accuracy"]["value"] == pytest.approx(file.results.aggregate.avg_score)


def test_a_run_without_any_verdict_has_no_scores(store: RunStore, given: Any) -> None:
    run = store.create(given.run_header(tasks=1))
    run.append(given.attempt())
    assert log_of(StoredRun.of(run))["results"]["scores"] == []


@pytest.mark.parametrize(
    "name", ["../../evil", "a/b", "a\\b", "..", "", "x\ny", "x" * 300, "caf\u00e9 \U0001f30a", "\ud800"]
)
def test_odd_task_names_make_no_odd_files(store: RunStore, given: Any, name: str) -> None:
    header = given.run_header(tasks=2)
    tasks = (replace(header.tasks[0], name=name), replace(header.tasks[1], name=name))
    run = store.create(replace(header, tasks=tasks))
    run.append(given.attempt(1))
    run.append(given.verdict(1))
    run.append(given.attempt(2))
    run.append(given.verdict(2))
    source = StoredRun.of(run)
    names = zipfile.ZipFile(io.BytesIO(exported(source, "inspect"))).namelist()
    samples = [member for member in names if member.startswith("samples/")]
    assert len(set(samples)) == 2
    assert all(member.count("/") == 1 and ".." not in member and len(member) < 150 for member in samples)
    log_of(source)


def test_the_archive_holds_what_the_json_holds(store: RunStore, given: Any) -> None:
    source = StoredRun.of(run_of(store, given))
    log = log_of(source)
    archive = zipfile.ZipFile(io.BytesIO(exported(source, "inspect")))
    read = {name: json.loads(archive.read(name)) for name in archive.namelist()}
    assert read["header.json"] == {key: value for key, value in log.items() if key not in ("samples", "reductions")}
    assert [read[f"samples/{s['id']}_epoch_{s['epoch']}.json"] for s in log["samples"]] == log["samples"]
    assert read["reductions.json"] == log["reductions"]
    assert [(entry["id"], entry["epoch"]) for entry in read["summaries.json"]] == [
        (sample["id"], sample["epoch"]) for sample in log["samples"]
    ]
    assert read["_journal/start.json"]["eval"] == log["eval"]


def test_a_log_is_named_so_that_the_viewer_can_tell_it(store: RunStore, given: Any) -> None:
    run = run_of(store, given)
    assert log_name(StoredRun.of(run).results) == f"2026-11-30T12-00-00+00-00_demo_{run.run_id}.eval"


READ = """
import json, sys
from inspect_ai.log import read_eval_log, read_eval_log_sample, read_eval_log_sample_summaries
for path in sys.argv[1:]:
    log, head = read_eval_log(path), read_eval_log(path, header_only=True)
    (success,) = [score for score in head.results.scores if score.name == "success"]
    one = read_eval_log_sample(path, id="Task 2", epoch=2)
    print(json.dumps([
        log.version, log.status, len(log.samples), len(read_eval_log_sample_summaries(path)),
        success.metrics["accuracy"].value, one.scores["success"].value, one.messages[1].tool_calls[0].function,
    ]))
"""


@pytest.mark.skipif(importlib.util.find_spec("inspect_ai") is None, reason="300 MB of a package; the schema is held")
def test_inspect_itself_reads_our_logs(store: RunStore, given: Any, tmp_path: Path) -> None:
    source = StoredRun.of(run_of(store, given))
    paths = [tmp_path / "run.eval", tmp_path / "run.json"]
    for path, form in zip(paths, ("inspect", "inspect-json"), strict=True):
        path.write_bytes(exported(source, form))
    done = subprocess.run([sys.executable, "-c", READ, *paths], capture_output=True, check=True)
    assert [json.loads(line) for line in done.stdout.splitlines()] == [[2, "success", 4, 4, 0.75, "C", "Bash"]] * 2


# -- where the runs are


def test_a_run_of_the_store_is_read_with_the_time_of_its_end(store: RunStore, given: Any) -> None:
    run = store.create(given.run_header(tasks=1))
    with pytest.raises(BadInput, match="nothing to export"):
        StoredRun.of(run)
    run.append(given.attempt(1, 2))
    run.append(given.verdict(1, 2))
    assert StoredRun.of(run).results.run.timestamp == given.verdict(1, 2).graded_at
    run.append(EndRecord(given.NOON.replace(hour=20), "completed"))
    assert StoredRun.of(run).results.run.timestamp == given.NOON.replace(hour=20)


@pytest.mark.parametrize("form", ["results", "inspect", "inspect-json"])
def test_pruned_evidence_is_counted_and_left_out(store: RunStore, given: Any, form: str) -> None:
    run = run_of(store, given)
    (next((run.path / "evidence").iterdir()) / "001" / "evidence.json").unlink()
    assert write_run(io.BytesIO(), StoredRun.of(run), form).pruned == 1


def test_a_file_of_another_product_is_given_away_as_it_is() -> None:
    file = foreign()
    assert exported(file, "results") == file.path.read_bytes()


def test_a_file_of_0_4_is_given_away_in_the_present_shape() -> None:
    file = foreign("reference-0.4.0.json")
    again = json.loads(exported(file, "results"))
    assert (again["aggregate"]["avg_score"], again["aggregate"]["scored_tasks"]) == (0.5, 2)
    assert again["skill_snapshots"][0]["files"] == file.content["skill_snapshot"]["files"]
    assert parse_results(again) == file.results


def test_a_mark_at_the_start_of_a_file_stays_behind(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(b"\xef\xbb\xbf" + foreign().data)
    assert exported(ForeignFile.read(path), "results") == foreign().data


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(BadInput, match=r"bad\.json: not a results file"):
        ForeignFile.read(tmp_path / "bad.json")
    with pytest.raises(StorageError, match=r"gone\.json"):
        ForeignFile.read(tmp_path / "gone.json")


def test_odd_transcripts_give_what_can_be_read_of_them() -> None:
    assert turns_of("words") is None
    odd = [None, 3, {"role": 1}, {"role": "tool_use", "tool_name": 7, "tool_input": [1]}, {"role": "x", "content": [1]}]
    assert turns_of(odd) == (Turn("tool_use"), Turn("x", "[1]"))


def test_each_run_gets_a_file_of_its_own() -> None:
    results = foreign().results
    names = Names("results")
    assert [names.of(results) for _ in range(2)] == [
        "multi/2026-11-30T22-57-08Z.json",
        "multi/2026-11-30T22-57-08Z-2.json",
    ]
    odd = replace(results, run=replace(results.run, spec="../../evil"))
    assert names.of(odd).startswith("evil-")


# -- where they go


def test_nothing_is_replaced_unasked(tmp_path: Path) -> None:
    path = tmp_path / "some" / "where" / "x"
    assert write_file(path, lambda stream: stream.write(b"one")) == 3
    for write in (
        lambda: write_file(path, lambda stream: stream.write(b"two")),
        lambda: let_write(path, lambda aside: aside.write_bytes(b"two") and None),
        lambda: refuse_existing([path]),
    ):
        with pytest.raises(BadInput, match="exists already") as caught:
            write()
        assert "--force" in str(caught.value.hint)
    assert path.read_bytes() == b"one"
    write_file(path, lambda stream: stream.write(b"three"), force=True)
    assert path.read_bytes() == b"three"
    assert [item.name for item in path.parent.iterdir()] == ["x"]


def test_what_fails_half_way_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("before")

    def fail(stream: Any) -> None:
        stream.write(b"half")
        raise ValueError

    with pytest.raises(ValueError):
        write_file(path, fail, force=True)
    assert path.read_text() == "before"
    assert [item.name for item in tmp_path.iterdir()] == ["x"]


def test_a_folder_or_a_file_in_the_way_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is a folder"):
        write_file(tmp_path, lambda stream: None, force=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="Cannot write"):
        write_file(tmp_path / "file" / "below", lambda stream: None)


def test_a_name_that_the_locale_cannot_write_is_told_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="locale") as told, storage_errors("write", tmp_path):
        "é".encode("ascii")  # as every call of the system does in such a locale
    assert told.value.hint == "Set LC_ALL=C.UTF-8."
