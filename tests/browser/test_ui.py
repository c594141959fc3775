"""What a person sees and does in the web UI after a `caliper run`."""

import re
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from caliper_pipeline.storage.runs import RunStore
from tests.browser.conftest import Ui

SERIES, CONTROL = "mail/scripted+isolated", "mail/scripted~triage+isolated"


def go(page: Page, ui: Ui, path: str) -> None:
    page.goto(ui.server.url + path)


def go_to_partition(page: Page, ui: Ui, asset: str, partition: str) -> None:
    go(page, ui, f"/assets/{asset}?view=partitions&partition={quote(partition, safe='')}")


def expect_entry(page: Page, name: str, value: str | re.Pattern[str]) -> None:
    row = page.get_by_role("row").filter(has=page.get_by_text(name, exact=True)).first
    expect(row).to_contain_text(value)


def test_the_assets_are_listed_with_what_they_are(page: Page, ui: Ui) -> None:
    go(page, ui, "/assets")
    for name in ("specs", "skill_sources", "eval_runs", "attempts", "verdicts", "scores", "scoreboard"):
        expect(page.get_by_text(name, exact=True).first).to_be_visible()


def test_no_sign_up_covers_the_first_page(page: Page, ui: Ui) -> None:
    go(page, ui, "/overview")
    page.wait_for_load_state("networkidle")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_every_attempt_of_both_arms_is_a_partition(page: Page, ui: Ui) -> None:
    go(page, ui, "/assets/attempts?view=partitions")
    expect(page.get_by_text("Materialized (12)")).to_be_visible()
    for attempt in ("001", "002", "003"):
        expect(page.get_by_text(attempt, exact=True).first).to_be_visible()


def test_a_verdict_tells_why(page: Page, ui: Ui) -> None:
    go_to_partition(page, ui, "verdicts", f"001|{SERIES}/One")
    expect_entry(page, "outcome", "pass")
    expect_entry(page, "activated", "triage")
    expect_entry(page, "judge_passed", "true")
    expect_entry(page, "judge_reasoning", "It names both mails.")
    expect_entry(page, "evidence", "/evidence/")
    expect_entry(page, "run", RunStore(ui.root).run_ids()[0])
    expect_entry(page, "simulated", "true")


def test_a_failed_check_tells_what_it_missed(page: Page, ui: Ui) -> None:
    go_to_partition(page, ui, "verdicts", f"001|{SERIES}/Two")
    expect_entry(page, "outcome", "task_fail")
    expect_entry(page, "assert_evidence", "No such file or directory: 'flag'")


def test_an_attempt_tells_what_it_cost(page: Page, ui: Ui) -> None:
    go_to_partition(page, ui, "attempts", f"002|{SERIES}/One")
    expect_entry(page, "answer", "Flagged.")
    expect_entry(page, "tokens", "77")
    expect_entry(page, "seconds", re.compile(r"\d+\.\d+"))


@pytest.mark.parametrize(("series", "rate"), [(SERIES, "0.5"), (CONTROL, "1")])
def test_the_scoreboard_has_the_headline_and_the_tasks(page: Page, ui: Ui, series: str, rate: str) -> None:
    go_to_partition(page, ui, "scoreboard", series)
    expect_entry(page, "success_rate", rate)
    expect_entry(page, "success", re.compile(r"% \(\d+% to \d+%\)"))
    expect(page.get_by_role("table").filter(has_text="unusable").first).to_contain_text("One")
    expect(page.get_by_text("Unsynced")).to_have_count(0)


def test_a_spec_is_shown_whole(page: Page, ui: Ui) -> None:
    go_to_partition(page, ui, "specs", "mail")
    expect_entry(page, "task_table", "assert + expect + activates")
    expect(page.get_by_text("It flags the mail.").first).to_be_visible()


def test_runs_are_told_apart_by_their_tags(page: Page, ui: Ui) -> None:
    go(page, ui, "/runs")
    for tag in ("caliper/spec: mail", "caliper/arm: full", "caliper/arm: triage", "caliper/engine: scripted"):
        expect(page.get_by_text(tag).first).to_be_visible()
    expect(page.get_by_text("caliper_pid")).to_have_count(0)


def test_the_check_says_what_it_measures(page: Page, ui: Ui) -> None:
    go(page, ui, "/assets/scoreboard?view=checks")
    expect(page.get_by_text("usable_attempts").first).to_be_visible()
    expect(page.get_by_text("Measures whether at least half of each task's attempts could be used.")).to_be_visible()


def test_the_launchpad_says_what_is_missing(page: Page, ui: Ui) -> None:
    go(page, ui, "/locations/caliper/jobs/evaluate/playground")
    expect(page.get_by_text('Missing required config entry "spec"')).to_be_visible()


def test_a_run_of_the_ui_goes_on_in_sight_and_is_terminated_with_a_click(page: Page, ui: Ui) -> None:
    run_id = ui.server.evaluate(spec="gated", k=1)
    ui.server.wait_for_run(run_id, "STARTED", materializations=2)
    go(page, ui, f"/runs/{run_id}")
    expect(page.get_by_text("verdicts").first).to_be_visible()
    page.get_by_role("button", name="Terminate").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name=re.compile("Terminate|Yes")).last.click()
    ui.server.wait_for_run(run_id, "CANCELED", materializations=2)
    page.reload()
    expect(page.get_by_text("Canceled").first).to_be_visible()
    [folder] = [run for run in RunStore(ui.root).runs() if run.header().spec == "gated"]
    end = folder.state().end
    assert end is not None
    assert end.status == "interrupted"


def test_a_backfill_runs_exactly_its_partitions_under_one_run(page: Page, ui: Ui) -> None:
    chosen = [f"{number}|{SERIES}/{task}" for number in ("001", "002") for task in ("One", "Two")]
    runs = ui.server.wait_for_backfill(ui.server.backfill(chosen))
    ids = {tag["value"] for run in runs for tag in run["tags"] if tag["key"] == "caliper/run"}
    assert len(ids) == 1
    folder = RunStore(ui.root).open(ids.pop())
    assert len(folder.state().verdicts) == 4
    go_to_partition(page, ui, "verdicts", chosen[0])
    expect_entry(page, "run", folder.run_id)
