"""What Dagster is told of a run, from its lines alone."""

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from dagster import AssetCheckEvaluation, AssetMaterialization, DagsterInstance

from caliper_pipeline.defs.partitions import attempt_numbers, task_partitions
from caliper_pipeline.defs.recording import Event, Recording, parts_of, told_of
from caliper_pipeline.defs.syncing import reap, record_all, record_run
from caliper_pipeline.domain.records import Outcome, ResumeRecord
from caliper_pipeline.evaluation.project import Project
from caliper_pipeline.storage.runs import RunFolder
from tests.defs.handmade import START, all_lines, attempt, end, finished_run, make_run, verdict, write


def events_of(recording: Recording) -> list[Event]:
    return [*recording.opening(), *recording.rest(), *recording.closing()]


def told(events: list[Event]) -> list[tuple[str, str | None]]:
    return [
        (event.asset_key.to_user_string(), event.partition)
        for event in events
        if isinstance(event, AssetMaterialization)
    ]


HOLD = "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_SH); print(flush=True); input()"
SERIES = "inbox-triage/scripted+isolated"


def test_each_attempt_and_verdict_is_told_under_its_partition(
    root: Path, project: Project, instance: DagsterInstance
) -> None:
    folder = finished_run(root, tasks=("One",), k=2)
    events = events_of(Recording(instance, project, folder))
    assert told(events) == [
        ("specs", "inbox-triage"),
        ("skill_sources", "inbox-triage"),
        ("attempts", f"001|{SERIES}/One"),
        ("verdicts", f"001|{SERIES}/One"),
        ("attempts", f"002|{SERIES}/One"),
        ("verdicts", f"002|{SERIES}/One"),
        ("scores", f"{SERIES}/One"),
        ("scoreboard", SERIES),
    ]
    assert [event.passed for event in events if isinstance(event, AssetCheckEvaluation)] == [True]


def test_keys_are_known_before_an_event_names_them(root: Path, project: Project, instance: DagsterInstance) -> None:
    folder = make_run(root, tasks=("One", "a|b, [c]"), k=3)
    next(iter(Recording(instance, project, folder).opening()))
    keys = task_partitions.get_partition_keys(dynamic_partitions_store=instance)
    assert keys[0] == f"{SERIES}/One"
    assert not any("|" in key for key in keys)
    assert attempt_numbers.get_partition_keys(dynamic_partitions_store=instance) == ["001", "002", "003"]


def test_a_line_that_comes_twice_is_told_once(root: Path, project: Project, instance: DagsterInstance) -> None:
    folder = make_run(root)
    recording = Recording(instance, project, folder)
    line = attempt(folder, 0, 1)
    assert len([*recording.line(line), *recording.line(line)]) == 1


def test_a_new_generation_is_told_under_the_same_partition(
    root: Path, project: Project, instance: DagsterInstance
) -> None:
    folder = make_run(root)
    recording = Recording(instance, project, folder)
    first = [*recording.line(verdict(folder, 0, 1))]
    again = [*recording.line(verdict(folder, 0, 1, Outcome.TASK_FAIL, generation=2))]
    assert told(first) == told(again)


def test_an_attempt_that_is_not_chosen_is_left_to_others(
    root: Path, project: Project, instance: DagsterInstance
) -> None:
    folder = finished_run(root)
    events = events_of(Recording(instance, project, folder, only=frozenset({("Two", 1)})))
    assert told(events)[2:] == [
        ("attempts", f"001|{SERIES}/Two"),
        ("verdicts", f"001|{SERIES}/Two"),
        ("scores", f"{SERIES}/Two"),
        ("scoreboard", SERIES),
    ]


def test_a_run_that_covers_some_tasks_moves_their_scores_and_no_headline(
    root: Path, project: Project, instance: DagsterInstance
) -> None:
    folder = make_run(root)
    write(folder, attempt(folder, 0, 1), verdict(folder, 0, 1), end(folder, "interrupted"))
    names = [name for name, _ in told(events_of(Recording(instance, project, folder)))]
    assert names[-1] == "scores"
    assert names.count("scores") == 1


def test_parts_cut_by_task_and_together_tell_everything_once(
    root: Path, project: Project, instance: DagsterInstance
) -> None:
    folder = finished_run(root, tasks=[f"T{n}" for n in range(7)], k=2)
    parts = parts_of(folder.header(), most_events=20)
    assert [len(part.task_ids) for part in parts] == [3, 3, 1]
    pieces = [told(events_of(Recording(instance, project, folder, part))) for part in parts]
    assert all(len(piece) <= 20 for piece in pieces)
    whole = told(events_of(Recording(instance, project, folder)))
    assert sorted(str(item) for piece in pieces for item in piece) == sorted(map(str, whole))


@pytest.mark.parametrize(
    ("tasks", "k", "count"),
    [
        (50, 4, 1),
        (220, 4, 1),
        (222, 4, 2),
        (3, 5000, 3),  # a task is never cut
    ],
)
def test_no_dagster_run_is_larger_than_its_page_bears(root: Path, tasks: int, k: int, count: int) -> None:
    folder = make_run(root, tasks=[f"T{n}" for n in range(tasks)], k=k)
    assert len(parts_of(folder.header())) == count


# -- on the persistent instance


def record(root: Path, folder: RunFolder) -> int:
    return record_run(root, folder.run_id)


def sync(root: Path) -> str:
    said: list[str] = []
    assert record_all(root, say=said.append) == 0
    return "\n".join(said)


def counts(root: Path, run_id: str) -> dict[str, int]:
    with DagsterInstance.from_config(str(root / ".caliper" / "dagster")) as instance:
        found = told_of(instance, run_id)
    return {name: sum(item[0] == name for item in found) for name in ("attempts", "verdicts", "scores", "scoreboard")}


def statuses(root: Path) -> list[str]:
    with DagsterInstance.from_config(str(root / ".caliper" / "dagster")) as instance:
        return [run.status.value for run in reversed(instance.get_runs())]


def test_a_run_is_recorded_once_however_often_it_is_asked_for(root: Path) -> None:
    folder = finished_run(root)
    assert record(root, folder) == 0
    assert sync(root) == "Nothing to record.\nDagster had 1 run already."
    (folder.path / "recorded.json").unlink()
    assert sync(root) == "Nothing to record.\nDagster had 1 run already."
    assert counts(root, folder.run_id) == {"attempts": 4, "verdicts": 4, "scores": 2, "scoreboard": 1}
    assert statuses(root) == ["SUCCESS"]


def test_what_a_resumed_run_adds_is_added(root: Path) -> None:
    folder = make_run(root)
    write(folder, attempt(folder, 0, 1), verdict(folder, 0, 1), end(folder, "interrupted"))
    record(root, folder)
    write(folder, ResumeRecord(START + timedelta(hours=1), 2))
    write(folder, *list(all_lines(folder))[2:])
    sync(root)
    assert counts(root, folder.run_id) == {"attempts": 4, "verdicts": 4, "scores": 3, "scoreboard": 1}
    assert statuses(root) == ["CANCELED", "SUCCESS"]


@pytest.mark.parametrize(("status", "shown"), [("interrupted", "CANCELED"), ("stopped", "FAILURE")])
def test_a_run_cut_short_is_shown_as_what_happened_and_keeps_its_attempts(root: Path, status: str, shown: str) -> None:
    folder = make_run(root)
    write(folder, attempt(folder, 0, 1), verdict(folder, 0, 1), end(folder, status, "the cap is reached"))
    record(root, folder)
    assert statuses(root) == [shown]
    assert counts(root, folder.run_id) == {"attempts": 1, "verdicts": 1, "scores": 1, "scoreboard": 0}


def test_a_run_whose_command_was_killed_is_shown_as_failed_with_what_it_left(root: Path) -> None:
    folder = make_run(root)
    write(folder, attempt(folder, 0, 1), verdict(folder, 0, 1), attempt(folder, 1, 1))
    assert record(root, folder) == 0
    assert statuses(root) == ["FAILURE"]
    assert counts(root, folder.run_id)["attempts"] == 2


def test_an_older_run_recorded_late_does_not_become_the_latest(root: Path) -> None:
    later = finished_run(root, started=START + timedelta(days=1))
    record(root, later)
    older = finished_run(root)
    sync(root)
    assert counts(root, older.run_id) == {"attempts": 4, "verdicts": 4, "scores": 0, "scoreboard": 0}


def test_nights_that_dagster_lost_come_back_in_their_order(root: Path) -> None:
    nights = [finished_run(root, started=START + timedelta(days=n)) for n in range(3)]
    assert sync(root) == "Recorded 3 runs."
    assert all(counts(root, night.run_id)["scoreboard"] == 1 for night in nights)


def test_a_large_run_becomes_several_dagster_runs_of_one_run(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("caliper_pipeline.defs.recording.MOST_EVENTS", 14)
    folder = finished_run(root, tasks=[f"T{n}" for n in range(5)])
    assert record(root, folder) == 0
    assert statuses(root) == ["SUCCESS"] * 3
    assert counts(root, folder.run_id) == {"attempts": 10, "verdicts": 10, "scores": 5, "scoreboard": 1}
    assert record_run(root, folder.run_id, part=2) == 0
    assert counts(root, folder.run_id)["attempts"] == 10


def test_a_run_somebody_still_works_on_is_left_to_its_recorder(root: Path) -> None:
    folder = make_run(root)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, folder.path / "lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert "Left out 1 run still going on" in sync(root)
        holder.communicate(b"\n")


def test_a_dagster_run_whose_process_is_dead_is_ended(root: Path, instance: DagsterInstance) -> None:
    from dagster import DagsterRunStatus, job, op

    from caliper_pipeline.defs.owner import owner_tags

    @op
    def nothing() -> None: ...

    @job
    def idle() -> None:
        nothing()

    own = owner_tags()
    dead = {**own, ".dagster/caliper_pid_started": "1"}
    gone, here = (
        instance.create_run_for_job(idle, tags=tags, status=DagsterRunStatus.STARTED).run_id for tags in (dead, own)
    )
    assert reap(instance) == 1
    assert [instance.get_run_by_id(run).status.value for run in (gone, here)] == ["FAILURE", "STARTED"]  # type: ignore[union-attr]
