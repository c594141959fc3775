"""What people read beside a materialization."""

from pathlib import Path

import pytest
from dagster import MetadataValue

from caliper_pipeline.defs import metadata, tables
from caliper_pipeline.domain.records import Outcome
from caliper_pipeline.evaluation.standing import summarize
from tests.defs.handmade import attempt, end, make_run, verdict, write


def plain(entries: metadata.Metadata) -> dict[str, object]:
    return {name: value.value for name, value in entries.items()}


def test_what_is_not_known_has_no_entry(root: Path) -> None:
    folder = make_run(root)
    told = plain(metadata.verdict_metadata(folder.header(), folder.path, verdict(folder, 0, 1), None))
    assert told == {
        "outcome": "pass",
        "passed": 1,
        "assert_passed": True,
        "generation": 1,
        "run": folder.run_id,
        "engine": "scripted",
        "arm": "full",
        "isolated": True,
        "simulated": True,
    }


def test_a_lost_attempt_is_neither_a_pass_nor_a_failure(root: Path) -> None:
    folder = make_run(root)
    told = metadata.verdict_metadata(folder.header(), folder.path, verdict(folder, 0, 1, Outcome.TIMEOUT), None)
    assert "passed" not in told


def test_an_answer_is_shown_as_text_and_cut(root: Path) -> None:
    folder = make_run(root)
    record = attempt(folder, 0, 1, output="# <script>" + "x" * 5000)
    told = metadata.attempt_metadata(folder.header(), folder.path, record)["answer"]
    assert isinstance(told, type(MetadataValue.text("")))
    assert str(told.value).startswith("# <script>xxx")
    assert len(str(told.value)) < 2000


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a|b", "a\\|b"),
        ("<img src=x>", "&lt;img src=x&gt;"),
        ("[click](javascript:x)", "\\[click\\]\\(javascript:x\\)"),
        ("two\nlines", "two lines"),
        ("`code`", "\\`code\\`"),
    ],
)
def test_names_in_tables_are_text_whatever_they_resemble(root: Path, text: str, shown: str) -> None:
    folder = make_run(root, tasks=[text], k=1)
    write(folder, attempt(folder, 0, 1), verdict(folder, 0, 1), end(folder))
    assert f"| {shown} |" in tables.tasks_table(summarize(folder.header(), folder.state()))


def test_a_spec_cannot_close_the_block_it_is_shown_in(root: Path) -> None:
    folder = make_run(root, spec_text="a: |\n  ```\n  # big\n  ```\n")
    text = str(metadata.spec_metadata(folder.header())["spec"].value)
    assert text.startswith("````yaml\n")
    assert text.endswith("\n````")


def test_the_headline_has_its_interval_and_every_task(root: Path) -> None:
    folder = make_run(root)
    lines = [attempt(folder, 0, 1), verdict(folder, 0, 1), attempt(folder, 1, 1)]
    write(folder, *lines, verdict(folder, 1, 1, Outcome.TASK_FAIL), end(folder))
    results = summarize(folder.header(), folder.state())
    told = plain(metadata.scoreboard_metadata(folder.header(), results, None, 2))
    assert (told["success_rate"], told["usable"], told["unusable"], told["tokens"]) == (0.5, 2, 0, 30)
    assert str(told["success"]).startswith("50% (")
    assert "One" in str(told["tasks"]) and "Two" in str(told["tasks"])
