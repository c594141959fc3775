"""Which attempt is next, and when a task is given up."""

import threading

import pytest

from caliper_pipeline.domain.errors import CannotRun
from caliper_pipeline.execution.command import StopToken
from caliper_pipeline.execution.pool import Job, Pool, Schedule


def jobs(tasks: int, k: int) -> list[Job]:
    return [Job(f"t{task}", attempt) for task in range(tasks) for attempt in range(1, k + 1)]


def drain(schedule: Schedule) -> list[Job]:
    taken = []
    while (job := schedule.take()) is not None:
        taken.append(job)
        schedule.ended(job.task_id, False)
    return taken


def test_every_task_gets_its_first_attempt_before_any_gets_its_second() -> None:
    taken = drain(Schedule(jobs(3, 2), None))
    assert [(job.task_id, job.attempt) for job in taken] == [
        ("t0", 1),
        ("t1", 1),
        ("t2", 1),
        ("t0", 2),
        ("t1", 2),
        ("t2", 2),
    ]


def test_a_resumed_run_first_makes_the_lowest_missing_attempts() -> None:
    taken = drain(Schedule([Job("t0", 3), Job("t1", 1), Job("t1", 2)], None))
    assert [(job.task_id, job.attempt) for job in taken] == [("t1", 1), ("t1", 2), ("t0", 3)]


def test_a_task_that_always_fails_costs_exactly_the_allowed_attempts() -> None:
    schedule = Schedule(jobs(1, 10), 3)
    in_flight = [schedule.take(), schedule.take(), schedule.take()]
    ended = [schedule.ended(job.task_id, True) for job in in_flight if job is not None]
    assert ended == [None, None, 3]
    assert schedule.take() is None


def test_no_more_attempts_are_in_flight_than_could_all_be_lost() -> None:
    schedule = Schedule(jobs(1, 10), 2)
    assert schedule.take() == Job("t0", 1)
    schedule.ended("t0", True)
    assert schedule.take() == Job("t0", 2)
    waiting = threading.Thread(target=schedule.take)
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive()
    schedule.ended("t0", False)
    waiting.join(5)
    assert not waiting.is_alive()


@pytest.mark.parametrize("between", [False, None])
def test_only_an_attempt_that_was_not_lost_resets_the_streak(between: bool | None) -> None:
    schedule = Schedule(jobs(1, 10), 2)
    for lost in (True, between):
        assert schedule.take() is not None
        assert schedule.ended("t0", lost) is None
    assert schedule.take() is not None
    gave_up = schedule.ended("t0", True)
    assert gave_up == (3 if between is None else None)


def test_everything_that_worked_is_graded_once() -> None:
    stop = StopToken()
    schedule = Schedule(jobs(5, 4), None)
    graded: list[Job] = []

    def work(job: Job) -> Job:
        return job

    def grade(job: Job) -> None:
        graded.append(job)
        schedule.ended(job.task_id, False)

    pool: Pool[Job] = Pool(schedule, workers=3, graders=2, stop=stop)
    pool.run(work, grade, ungraded=[Job("t0", 99)])
    assert sorted((job.task_id, job.attempt) for job in graded) == sorted(
        [("t0", 99), *((job.task_id, job.attempt) for job in jobs(5, 4))]
    )
    stop.close()


def test_an_error_stops_the_pool_and_is_raised() -> None:
    stop = StopToken()
    schedule = Schedule(jobs(5, 4), None)

    def work(job: Job) -> Job:
        raise ZeroDivisionError

    pool: Pool[Job] = Pool(schedule, workers=3, graders=2, stop=stop)
    with pytest.raises(ZeroDivisionError):
        pool.run(work, lambda job: None)
    assert stop.is_set
    stop.close()


def test_a_stopped_pool_starts_nothing_more() -> None:
    stop = StopToken()
    schedule = Schedule(jobs(5, 4), None)
    begun: list[Job] = []

    def work(job: Job) -> Job | None:
        begun.append(job)
        stop.set()
        schedule.ended(job.task_id, None)
        return None

    pool: Pool[Job] = Pool(schedule, workers=1, graders=1, stop=stop)
    pool.run(work, lambda job: None)
    assert begun == [Job("t0", 1)]
    stop.close()


@pytest.mark.parametrize("allowed", [0, 1, 2, 3, 4, 5])
def test_few_threads_do_the_work_or_the_pool_says_why(monkeypatch: pytest.MonkeyPatch, allowed: int) -> None:
    """Where the system allows only so many threads: watcher, feeder, agents and graders, in this order."""
    start, started = threading.Thread.start, []

    def limited(thread: threading.Thread) -> None:
        if len(started) >= allowed:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    stop = StopToken()
    schedule = Schedule(jobs(2, 2), None)
    graded: list[Job] = []
    pool: Pool[Job] = Pool(schedule, workers=2, graders=2, stop=stop)
    if allowed < 3:
        with pytest.raises(CannotRun):
            pool.run(lambda job: job, graded.append)
    else:
        pool.run(lambda job: job, graded.append)
        assert len(graded) == 4
    stop.close()
