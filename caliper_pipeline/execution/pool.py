"""Many attempts at once: which one is next, on how many threads, and when to stop.

Order is round robin (every task's first attempt, then every second), so that a run that ends early thins every task
instead of dropping some. Agents and graders have threads of their own: an attempt waiting for its judge holds no agent
slot. Nothing here knows what an attempt is; the caller's functions do the work.
"""

import select
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from caliper_pipeline.domain.errors import CannotRun
from caliper_pipeline.execution.command import StopToken

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Job:
    task_id: str
    attempt: int


@dataclass(slots=True)
class _Chain:
    """One task's attempts still to start, in order, and how its last ones ended."""

    waiting: deque[int]
    running: int = 0
    streak: int = 0
    """Attempts in a row that were lost to the execution (not to the agent)."""
    given_up: bool = False
    last: int = field(default=0)


class Schedule:
    """Hands out jobs; the only shared state of the threads, behind one lock.

    With `fail_fast` N, a task is given up after N lost attempts in a row. At most N minus that streak of its attempts
    are in flight at a time, so a task that always fails costs exactly N attempts, however many workers there are.
    """

    def __init__(self, jobs: Iterable[Job], fail_fast: int | None) -> None:
        self._chains: dict[str, _Chain] = {}
        for job in sorted(jobs, key=lambda job: job.attempt):
            self._chains.setdefault(job.task_id, _Chain(deque())).waiting.append(job.attempt)
        self._fail_fast = fail_fast
        self._turns: deque[str] = deque(self._chains)
        self._changed = threading.Condition()
        self._closed = False

    def take(self) -> Job | None:
        """The next job; waits while only blocked ones are left. `None`: nothing will come any more."""
        with self._changed:
            while True:
                if self._closed:
                    return None
                job = self._next()
                if job is not None:
                    return job
                if not any(chain.waiting and not chain.given_up for chain in self._chains.values()):
                    return None
                self._changed.wait()

    def _next(self) -> Job | None:
        """The job with the lowest attempt number among the tasks that may start one; ties in turn."""
        best: str | None = None
        for task_id in self._turns:
            chain = self._chains[task_id]
            if not chain.waiting or chain.given_up or self._full(chain):
                continue
            if best is None or chain.waiting[0] < self._chains[best].waiting[0]:
                best = task_id
        if best is None:
            return None
        chain = self._chains[best]
        chain.running += 1
        chain.last = chain.waiting.popleft()
        return Job(best, chain.last)

    def _full(self, chain: _Chain) -> bool:
        return self._fail_fast is not None and chain.running >= max(1, self._fail_fast - chain.streak)

    def ended(self, task_id: str, lost: bool | None) -> int | None:
        """Record how a job ended; `lost` is `None` when it says nothing about the task.

        Returns the number of the last attempt started when this one made the task be given up with attempts to go.
        """
        with self._changed:
            chain = self._chains[task_id]
            chain.running -= 1
            if lost is not None:
                chain.streak = chain.streak + 1 if lost else 0
            gave_up = (
                self._fail_fast is not None
                and chain.streak >= self._fail_fast
                and not chain.given_up
                and bool(chain.waiting)
            )
            if gave_up:
                chain.given_up = True
            self._changed.notify_all()
            return chain.last if gave_up else None

    def close(self) -> None:
        """Hand out nothing more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class Pool(Generic[T]):
    """Runs jobs through `work` on agent threads and what it gives through `grade` on grading threads."""

    def __init__(
        self,
        schedule: Schedule,
        *,
        workers: int,
        graders: int,
        stop: StopToken,
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_stop` is called once the stop token is set, in a thread of its own."""
        self._schedule = schedule
        self._workers = workers
        self._graders = graders
        self._stop = stop
        self._on_stop = on_stop
        self._ready: deque[T] = deque()
        self._changed = threading.Condition()
        self._agents_left = workers
        self._room = 8 * workers
        self._error: BaseException | None = None

    def run(
        self,
        work: Callable[[Job], T | None],
        grade: Callable[[T], None],
        *,
        ungraded: Iterable[T] = (),
    ) -> None:
        """Returns when every job is done or the stop token is set and what was in flight has come to rest.

        `work` and `grade` handle their own errors; what they raise all the same stops the pool and is raised here.
        `ungraded` is graded besides (lazily, one by one).
        """
        agents = [
            threading.Thread(target=self._agent_loop, args=(work,), name=f"agent-{n}") for n in range(self._workers)
        ]
        graders = [
            threading.Thread(target=self._grade_loop, args=(grade,), name=f"grader-{n}") for n in range(self._graders)
        ]
        feeder = threading.Thread(target=self._feed, args=(ungraded,), name="feeder")
        # The stop token wakes everything that waits outside this class; the schedule must be told.
        done = StopToken()
        watcher = threading.Thread(target=self._watch, args=(done,), name="stop-watcher")
        with self._changed:
            self._agents_left += 1
        if len(started := _start([watcher, feeder])) < 2:
            self._fail(CannotRun("No threads can be started.", hint="Raise the limit of processes (ulimit -u)."))
        working = _start(agents) if self._error is None else []
        for _ in range(len(agents) - len(working) + (feeder not in started)):
            self._agent_left()
        if not working and self._error is None:
            self._fail(CannotRun("No thread for an agent can be started.", hint="Raise the limit of processes."))
        grading = _start(graders)
        if not grading:
            self._grade_loop(grade)
        for thread in [*working, *grading, *(thread for thread in started if thread is not watcher)]:
            thread.join()
        done.set()
        if watcher in started:
            watcher.join()
        done.close()
        if self._error is not None:
            raise self._error

    def _watch(self, done: StopToken) -> None:
        poll = select.poll()
        poll.register(self._stop.fileno(), select.POLLIN)
        poll.register(done.fileno(), select.POLLIN)
        poll.poll()
        if self._stop.is_set:
            self._on_stop()
            self._schedule.close()
            with self._changed:
                self._changed.notify_all()

    def _feed(self, ungraded: Iterable[T]) -> None:
        try:
            for item in ungraded:
                if self._stop.is_set:
                    break
                self._hand_over(item)
        except BaseException as error:
            self._fail(error)
        finally:
            self._agent_left()

    def _agent_loop(self, work: Callable[[Job], T | None]) -> None:
        try:
            while not self._stop.is_set and (job := self._schedule.take()) is not None:
                item = work(job)
                if item is not None:
                    self._hand_over(item)
        except BaseException as error:
            self._fail(error)
        finally:
            self._agent_left()

    def _hand_over(self, item: T) -> None:
        with self._changed:
            while len(self._ready) >= self._room:
                self._changed.wait()
            self._ready.append(item)
            self._changed.notify_all()

    def _agent_left(self) -> None:
        with self._changed:
            self._agents_left -= 1
            self._changed.notify_all()

    def _grade_loop(self, grade: Callable[[T], None]) -> None:
        while True:
            with self._changed:
                while not self._ready and self._agents_left:
                    self._changed.wait()
                if not self._ready:
                    return
                item = self._ready.popleft()
                self._changed.notify_all()
            try:
                grade(item)
            except BaseException as error:
                self._fail(error)

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            if self._error is None:
                self._error = error
            self._changed.notify_all()
        self._schedule.close()
        self._stop.set()


def _start(threads: list[threading.Thread]) -> list[threading.Thread]:
    """Those that could be started: where the system allows no more threads, fewer do the work."""
    started = []
    for thread in threads:
        try:
            thread.start()
        except RuntimeError:
            break
        started.append(thread)
    return started
