"""`caliper export` writes runs for other programs, replaces nothing unasked, and keeps standard output to data."""

import importlib
import io
import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import pytest
from storage.conftest import Given

from caliper_pipeline.domain.errors import BadInput
from caliper_pipeline.domain.results import assemble
from caliper_pipeline.storage import history
from caliper_pipeline.storage.evidence import Evidence
from caliper_pipeline.storage.results import load_results, write_results
from caliper_pipeline.storage.runs import RunFolder, RunStore

Run = Callable[..., Any]
REFERENCE = Path(__file__).parents[1] / "fixtures" / "results" / "reference-0.21.0.json"
NOON = Given.NOON


def stored(project: Path, *, minutes: int = 0, spec: str = "demo", publish: bool = True) -> RunFolder:
    """A run as `caliper run` leaves it."""
    from datetime import timedelta

    started = NOON + timedelta(minutes=minutes)
    store = RunStore(project)
    run = store.create(Given.run_header(tasks=1, started_at=started, spec=spec, series_key=f"{spec}/scripted+isolated"))
    for number in (1, 2):
        kept = run.save_evidence("Task 1", number, Evidence(final_answer="done"))
        run.append(Given.attempt(1, number, evidence=kept))
        run.append(Given.verdict(1, number))
    if publish:
        write_results(project, run, assemble(run.header(), run.lines(), ended_at=started + timedelta(minutes=1)))
    return run


def imported(project: Path) -> bytes:
    path = project / "elsewhere.json"
    path.write_bytes(REFERENCE.read_bytes())
    history.import_results(history.history_path(project), [path])
    data = path.read_bytes()
    path.unlink()
    return data


def test_a_run_goes_to_standard_output_and_nothing_else_does(project: Path, caliper: Run) -> None:
    run = stored(project)
    done = caliper("export", "demo")
    assert (done.exit_code, done.stderr) == (0, "")
    assert json.loads(done.stdout)["run"]["run_id"] == run.run_id
    log = json.loads(caliper("export", "demo", "--format", "inspect").stdout)
    assert (log["version"], log["eval"]["run_id"]) == (2, run.run_id)


def test_what_is_exported_is_what_was_published(project: Path, caliper: Run) -> None:
    run = stored(project)
    (published,) = (project / ".caliper/results/demo").iterdir()
    told = json.loads(published.read_text())
    again = json.loads(caliper("export", run.run_id).stdout)
    for data in (told, again):
        data["run"].pop("timestamp")
    assert again == told


def test_a_spec_means_its_latest_run_and_older_ones_have_ids(project: Path, caliper: Run) -> None:
    older, newer = stored(project), stored(project, minutes=5)
    for arguments, run in (
        (("demo",), newer),
        (("demo.eval.yaml",), newer),
        (("demo", "--run", older.run_id), older),
        (("demo", "--run", "2026-11-30T12-01-00Z"), older),
        ((older.run_id,), older),
        ((".caliper/results/demo/2026-11-30T12-01-00Z.json",), older),
    ):
        assert json.loads(caliper("export", *arguments).stdout)["run"]["run_id"] == run.run_id


def test_a_killed_run_is_exported_as_far_as_it_came(project: Path, caliper: Run) -> None:
    run = stored(project, publish=False)
    told = json.loads(caliper("export", "demo", "--run", run.run_id).stdout)
    assert len(told["task_results"][0]["attempts"]) == 2
    assert told["run"]["timestamp"].startswith("2026-11-30T12:00:23")


def test_an_imported_file_comes_back_as_it_was(project: Path, caliper: Run) -> None:
    data = imported(project)
    assert caliper("export", "multi").stdout.encode() == data
    run_id = history.history_json(history.history_path(project))["runs"][0]["run_id"]
    assert caliper("export", run_id).stdout.encode() == data


def test_what_was_imported_is_named_where_a_name_is_not_found(project: Path, caliper: Run) -> None:
    imported(project)
    wrong = caliper("export", "mutli").exception
    assert isinstance(wrong, BadInput)
    assert wrong.hint == "Imported are runs of: multi."


def test_all_runs_go_to_a_folder_that_is_laid_out_as_a_results_folder(project: Path, caliper: Run) -> None:
    stored(project)
    stored(project, minutes=5, spec="other")
    data = imported(project)
    foreign = project / ".caliper/results/multi/2026-11-30T22-57-08Z.json"
    foreign.parent.mkdir()
    foreign.write_bytes(data.replace(b'"spec": "multi"', b'"spec": "multi" '))  # another file, of a run of its own
    done = caliper("export", "--all", "--output", "out")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "Exported 4 runs to out." in done.stderr
    names = sorted(str(path.relative_to(project / "out")) for path in (project / "out").rglob("*.json"))
    assert names == [
        "demo/2026-11-30T12-00-23Z.json",
        "multi/2026-11-30T22-57-08Z-2.json",
        "multi/2026-11-30T22-57-08Z.json",
        "other/2026-11-30T12-05-00Z.json",
    ]
    assert caliper("export", "other", "--all", "--format", "inspect", "-o", "logs").exit_code == 0
    assert len(list((project / "logs").iterdir())) == 1


def test_a_file_that_was_imported_and_still_lies_there_is_one_run(project: Path, caliper: Run) -> None:
    foreign = project / ".caliper/results/multi/2026-11-30T22-57-08Z.json"
    foreign.parent.mkdir(parents=True)
    foreign.write_bytes(REFERENCE.read_bytes())
    history.import_results(history.history_path(project), [foreign])
    assert "Exported 1 run " in caliper("export", "--all", "-o", "out").stderr


@pytest.mark.parametrize(
    ("name", "first"), [("run.eval", b"PK"), ("run.json", b"{"), ("deep/er/run.eval", b"PK"), ("run", b"PK")]
)
def test_a_log_has_the_form_that_its_name_says(project: Path, caliper: Run, name: str, first: bytes) -> None:
    stored(project)
    assert caliper("export", "demo", "--format", "inspect", "-o", name).exit_code == 0
    assert (project / name).read_bytes().startswith(first)


def test_into_a_folder_one_run_gets_its_own_name(project: Path, caliper: Run) -> None:
    run = stored(project)
    (project / "there").mkdir()
    caliper("export", "demo", "--format", "inspect", "-o", "there")
    caliper("export", "demo", "-o", "new/")
    assert [path.name for path in (project / "there").iterdir()] == [
        f"2026-11-30T12-00-00+00-00_demo_{run.run_id}.eval"
    ]
    assert (project / "new/demo/2026-11-30T12-00-23Z.json").exists()


def test_existing_files_are_left_unless_forced(project: Path, caliper: Run) -> None:
    stored(project)
    (project / "mine.json").write_text("mine")
    done = caliper("export", "demo", "-o", "mine.json")
    assert isinstance(done.exception, BadInput)
    assert "mine.json exists already" in str(done.exception)
    assert (project / "mine.json").read_text() == "mine"
    assert caliper("export", "demo", "-o", "mine.json", "--force").exit_code == 0
    assert load_results(project / "mine.json").run.spec == "demo"


def test_of_many_files_those_that_exist_are_named_and_the_others_written(project: Path, caliper: Run) -> None:
    stored(project)
    assert caliper("export", "--all", "-o", "out").exit_code == 0
    stored(project, minutes=5)
    done = caliper("export", "--all", "-o", "out")
    assert done.exit_code == 1
    assert "Exported 1 run to out." in done.stderr
    assert "12-00-23Z.json exists already and was left as it is" in done.stderr.replace("\n", " ")
    assert caliper("export", "--all", "-o", "out", "--force").exit_code == 0


def test_a_damaged_run_is_named_and_keeps_no_other_back(project: Path, caliper: Run) -> None:
    bad = stored(project)
    stored(project, minutes=5)
    history.catch_up(history.history_path(project), RunStore(project))
    (bad.path / "run.json").write_text("{")
    done = caliper("export", "--all", "-o", "out")
    assert done.exit_code == 1
    assert "run.json: it is damaged" in done.stderr
    assert "Exported 1 run to out." in done.stderr


def test_what_was_pruned_is_said(project: Path, caliper: Run) -> None:
    run = stored(project)
    for path in (run.path / "evidence").rglob("evidence.json"):
        path.unlink()
    done = caliper("export", "demo")
    assert json.loads(done.stdout)["task_results"][0]["attempts"][0]["transcript"] is None
    assert f"The evidence of 2 attempts of {run.run_id} was pruned" in done.stderr


# -- tables


def test_the_tables_are_read_by_pandas(project: Path, caliper: Run) -> None:
    stored(project)
    stored(project, minutes=5, spec="other")
    done = caliper("export", "--all", "--format", "parquet", "-o", "tables")
    assert (done.exit_code, done.stdout) == (0, "")
    frames = {path.stem: pandas.read_parquet(path) for path in (project / "tables").iterdir()}
    assert {"runs", "attempts", "verdicts", "scores", "skills", "tasks", "texts", "alerts"} <= set(frames)
    assert not {"about", "schema_changes", "record_files"} & set(frames)
    assert len(frames["attempts"]) == 4
    assert str(frames["runs"]["started_utc"].dtype).startswith("datetime64")
    assert frames["runs"]["score"].tolist() == [1.0, 1.0]


def test_of_chosen_runs_only_their_rows_are_written(project: Path, caliper: Run) -> None:
    stored(project)
    run = stored(project, minutes=5, spec="other")
    caliper("export", "other", "--format", "parquet", "-o", "tables")
    frames = {path.stem: pandas.read_parquet(path) for path in (project / "tables").iterdir()}
    assert frames["attempts"]["run_id"].unique().tolist() == [run.run_id]
    assert set(frames["texts"]["text"]) == {"tasks: []\n", "Do thing 1.", "assert True"}
    assert len(frames["skill_files"]) == 1


def test_one_table_or_view_is_one_file_or_a_stream(project: Path, caliper: Run) -> None:
    stored(project)
    assert caliper("export", "--all", "--format", "parquet", "--table", "latest_runs", "-o", "l.parquet").exit_code == 0
    assert pandas.read_parquet(project / "l.parquet")["spec"].tolist() == ["demo"]
    data = caliper("export", "demo", "--format", "parquet", "--table", "scores").stdout_bytes
    assert pandas.read_parquet(io.BytesIO(data))["score"].tolist() == [1.0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Which run?"),
        (["nope"], "No run of 'nope'"),
        (["demo", "--run", "nope"], "demo has no run 'nope'"),
        (["--all"], "--all writes a file for each run"),
        (["--all", "-o", "file"], "file is no folder"),
        (["nope", "--all", "-o", "x"], "No run of 'nope' is on record"),
        (["--all", "--format", "parquet"], "has many tables"),
        (["--all", "--format", "parquet", "--table", "nope", "-o", "x"], "no table or view 'nope'"),
        (["gone.json"], "there is no such results file"),
    ],
)
def test_what_cannot_be_done_is_told(project: Path, caliper: Run, arguments: list[str], words: str) -> None:
    stored(project)
    (project / "file").write_text("")
    done = caliper("export", *arguments)
    assert isinstance(done.exception, BadInput), done.output
    assert words in str(done.exception)
    assert done.stdout == ""


@pytest.mark.parametrize(
    "arguments", [["demo", "--table", "runs"], ["demo", "--all", "--run", "x"], ["demo", "--format", "csv"]]
)
def test_flags_that_do_not_go_together_are_refused(project: Path, caliper: Run, arguments: list[str]) -> None:
    assert caliper("export", *arguments).exit_code == 2


def test_without_a_project_it_says_so(project: Path, caliper: Run) -> None:
    assert "there is no .caliper folder" in str(caliper("export", "demo").exception)


def test_a_results_file_that_was_never_imported_has_no_rows(project: Path, caliper: Run, record: Run) -> None:
    record("tides", "2026-11-20T10-00-00Z")
    done = caliper("export", "tides", "--format", "parquet", "-o", "t")
    assert "is not in the history" in str(done.exception)
    assert "caliper history import" in str(done.exception.hint)


def test_the_archive_is_whole(project: Path, caliper: Run) -> None:
    stored(project)
    caliper("export", "demo", "--format", "inspect", "-o", "x.eval")
    assert zipfile.ZipFile(project / "x.eval").testzip() is None


@pytest.mark.parametrize("path", ["export_command:export", "import_command:import_files"])
def test_every_option_is_described_and_every_one_described_exists(path: str) -> None:
    module, _, name = path.partition(":")
    command = getattr(importlib.import_module(f"caliper_pipeline.interfaces.{module}"), name)
    page = (Path(__file__).parents[2] / "docs" / "import-export.md").read_text(encoding="utf-8")
    part = page.partition("## Exporting")[0 if command.name == "import" else 2]
    own = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
    others = {"--log-dir"}  # of inspect
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", part)) - others == own
