"""One evaluation, from an open run folder to its score: attempts, verdicts, end line, results file, history.

The same `Evaluation` serves a new run, one that is resumed, pieces of a backfill that share a run, and regrading: what
it does is always what the run folder lacks. It may be executed in any process and killed at any moment; only attempts
in flight are lost.
"""

import os
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.errors import CaliperError, CannotRun, StorageError
from caliper_pipeline.domain.planted import PlantedTurn, as_turns
from caliper_pipeline.domain.records import (
    AbortedRecord,
    AttemptRecord,
    EndRecord,
    Outcome,
    ResumeRecord,
    RunHeader,
    TaskHeader,
)
from caliper_pipeline.domain.results import Results
from caliper_pipeline.evaluation.logins import as_error
from caliper_pipeline.evaluation.project import Project
from caliper_pipeline.evaluation.request import Observer, RunSummary, Silent
from caliper_pipeline.evaluation.settings import attempt_settings, gates_of, grading_settings, judge_engine_of
from caliper_pipeline.evaluation.sink import StoreSink
from caliper_pipeline.evaluation.spending import Spending
from caliper_pipeline.evaluation.standing import summarize
from caliper_pipeline.execution.attempt import (
    Attempts,
    AttemptSettings,
    FatalRefusal,
    LiveAttempt,
    Stopped,
)
from caliper_pipeline.execution.attempt_records import internal_error, internal_verdict
from caliper_pipeline.execution.backends.base import Backend, Refusal, Server
from caliper_pipeline.execution.budget import Allowance
from caliper_pipeline.execution.command import StopToken
from caliper_pipeline.execution.grading import Grader
from caliper_pipeline.execution.pool import Job, Pool, Schedule
from caliper_pipeline.execution.process import ProcessLauncher
from caliper_pipeline.execution.workdir import sweep_stale
from caliper_pipeline.storage import history, results
from caliper_pipeline.storage.runs import RunFolder


@dataclass(frozen=True, slots=True)
class Regrading:
    """Make new verdicts on stored attempts instead of new attempts. `only`: as in a request."""

    only: frozenset[tuple[str, int]] | None = None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A run folder and what is to be added to it."""

    project: Project
    folder: RunFolder
    backend: Backend
    judge_backend: Backend | None
    extra_path: tuple[str, ...] = ()
    only: frozenset[tuple[str, int]] | None = None
    warnings: tuple[str, ...] = ()
    workers: int = 4
    resumed_k: int | None = None
    """The run existed before and is taken up with this k."""
    regrading: Regrading | None = None
    dagster_run_id: str | None = None
    """The Dagster run that executes it. `None`: none does."""
    publish_history: bool = True
    servers: tuple[Server, ...] = ()
    """Declared servers that were not ablated, ready to use."""
    secrets: frozenset[str] = frozenset()
    """What is not to be stored, wherever an agent may print it."""
    declared_servers: tuple[str, ...] | None = None
    """All that the spec declares. `None`: it says nothing of servers."""
    histories: Mapping[str, tuple[PlantedTurn, ...]] = field(default_factory=dict)
    """Planted conversations, by task id."""
    allowance: Allowance = field(default_factory=Allowance)

    @property
    def header(self) -> RunHeader:
        return self.folder.header()

    def planned(self) -> list[tuple[TaskHeader, int]]:
        """The attempts this evaluation is for, whether or not they exist already."""
        header, k = self.header, max(planned_k(self.folder), self.resumed_k or 0)
        if self.only is None:
            return [(task, index) for index in range(1, k + 1) for task in header.tasks]
        by_name = {task.name: task for task in header.tasks}
        return [(by_name[name], index) for name, index in sorted(self.only, key=lambda pair: (pair[1], pair[0]))]

    def attempt_settings(self) -> AttemptSettings:
        return replace(
            attempt_settings(self.project, self.folder, self.backend, self.extra_path),
            servers=self.servers,
            declared_servers=self.declared_servers,
            histories=self.histories,
            max_tokens=self.allowance.max_tokens_per_attempt,
        )

    def execute(self, observer: Observer | None = None, stop: StopToken | None = None) -> RunSummary:
        """Do what is missing. Raises only what made even storing impossible."""
        own_stop = stop is None
        stop = stop if stop is not None else StopToken()
        try:
            with self.folder.hold():
                return _Execution(self, observer if observer is not None else Silent(), stop).run()
        finally:
            if own_stop:
                stop.close()


def planned_k(folder: RunFolder) -> int:
    """Attempts a task that the run is meant to have: as it began, or as it was topped up."""
    return max(folder.header().k, folder.state().k or 0)


class _Execution:
    """The moving parts of one `Evaluation.execute`."""

    def __init__(self, evaluation: Evaluation, observer: Observer, stop: StopToken) -> None:
        self._evaluation = evaluation
        self._project = evaluation.project
        self._folder = evaluation.folder
        self._header = evaluation.header
        self._observer = observer
        self._stop = stop
        self._fatal: CaliperError | None = None
        self._interrupted = False
        self._judging = True
        """False: the judge refused for good, so what is not graded yet is left for later."""
        self._schedule = Schedule((), None)
        self._tasks = {task.task_id: task for task in self._header.tasks}
        self._sink = StoreSink(self._folder, observer, evaluation.secrets)
        self._gates = gates_of(evaluation.project, self._header, evaluation.workers)

    def run(self) -> RunSummary:
        evaluation = self._evaluation
        state = self._folder.state()
        planned = evaluation.planned()
        if evaluation.regrading is None:
            jobs = [Job(task.task_id, n) for task, n in planned if (task.task_id, n) not in state.attempts]
            # Pieces of a backfill run side by side in one run: what another one is just grading is not ours.
            mine = {(task.task_id, n) for task, n in planned}
            pending = [r for key, r in state.attempts.items() if key not in state.verdicts and key in mine]
            if evaluation.resumed_k is not None:
                self._sink.append(
                    ResumeRecord(datetime.now(UTC), evaluation.resumed_k, os.getpid(), evaluation.dagster_run_id)
                )
        else:
            jobs = []
            wanted = evaluation.regrading.only
            pending = [
                record
                for record in state.attempts.values()
                if wanted is None or (record.task_name, record.attempt) in wanted
            ]
        self._spending = Spending(self._header, evaluation.allowance, state)
        generations = {key: verdict.generation for key, verdict in state.verdicts.items()}
        self._observer.opened(self._header, len(planned), len(planned) - len(jobs))
        for text in evaluation.warnings:
            self._observer.note(text)
        sweep_stale()
        launcher = ProcessLauncher()
        settings = evaluation.attempt_settings()
        judge_engine = judge_engine_of(self._header)
        grader = Grader(
            replace(
                grading_settings(self._project, self._folder, evaluation.judge_backend),
                prior_turns={task_id: as_turns(turns) for task_id, turns in evaluation.histories.items()},
                asserts_at_once=evaluation.workers,
            ),
            None if judge_engine is None else self._gates[str(judge_engine)],
        )
        attempts = Attempts(settings, grader, launcher, self._sink, self._stop, self._gates[str(settings.engine)])
        schedule = self._schedule = Schedule(jobs, self._header.fail_fast)
        job_keys = {(job.task_id, job.attempt) for job in jobs}

        def work(job: Job) -> LiveAttempt | None:
            return self._work(attempts, schedule, job)

        def grade(live: LiveAttempt) -> None:
            key = (live.task.task_id, live.record.attempt)
            self._grade(attempts, schedule if key in job_keys else None, live)

        warm = threading.Thread(target=history.warm_up, daemon=True, name="history-warm-up")
        warm.start()
        try:
            workers = max(1, min(evaluation.workers, len(jobs) + len(pending)))
            # Graders that wait for a throttled judge do not keep the others from their asserts.
            graders = workers if judge_engine is None else 4 * workers
            pool: Pool[LiveAttempt] = Pool(
                schedule, workers=workers, graders=graders, stop=self._stop, on_stop=self._wake
            )
            pool.run(work, grade, ungraded=self._reopened(attempts, pending, generations))
        except (StorageError, CannotRun) as error:
            self._fatal = self._fatal or error
        finally:
            attempts.close()
            launcher.close()
        warm.join()
        self._interrupted = self._stop.is_set and self._fatal is None
        return self._finish()

    # -- attempts

    def _work(self, attempts: Attempts, schedule: Schedule, job: Job) -> LiveAttempt | None:
        task = self._tasks[job.task_id]
        if not self._spending.budget.admit():
            if not self._stop.is_set:
                self._wind_down(self._spending.over())
            schedule.ended(job.task_id, None)
            return None
        started = datetime.now(UTC)
        counts = False
        self._observer.started(job.task_id, job.attempt)
        try:
            live = attempts.run_agent(task, job.attempt)
            self._spending.book(live.record.usage, live.record.model, judge=False)
            counts = True
            return live
        except Stopped:
            schedule.ended(job.task_id, None)
        except FatalRefusal as error:
            self._give_up(error.refusal, judge=False)
            schedule.ended(job.task_id, None)
        except CannotRun as error:
            # It could not even be started, as when a login expired that all of them share.
            self._wind_down(error)
            schedule.ended(job.task_id, None)
        except CaliperError as error:
            self._stop_for(error)
            schedule.ended(job.task_id, None)
        except Exception as error:
            # The seam that keeps one attempt's surprise from costing the run: it is recorded as lost, with its place.
            record = internal_error(task, job.attempt, started, error)
            self._sink.append(record)
            self._sink.append(internal_verdict(record))
            self._ended(schedule, job.task_id, True)
        finally:
            self._spending.budget.ended(counts=counts)
        return None

    def _grade(self, attempts: Attempts, schedule: Schedule | None, live: LiveAttempt) -> None:
        task_id, lost = live.task.task_id, None
        try:
            if not self._judging and live.task.expect is not None:
                attempts.put_off(live)
                return
            verdict = attempts.grade(live)
            if verdict is not None:
                self._spending.book(verdict.judge_usage, verdict.judge_model, judge=True)
            if verdict is not None and verdict.outcome is not Outcome.JUDGE_ERROR:
                lost = verdict.outcome in (Outcome.INFRA_ERROR, Outcome.TIMEOUT)
        except FatalRefusal as error:
            self._give_up(error.refusal, judge=True)
        except CannotRun as error:
            self._judging = False
            self._wind_down(error)
        except CaliperError as error:
            self._stop_for(error)
        except Exception as error:
            # As above. The attempt stays ungraded: a resumed run judges it again without paying for the agent.
            self._observer.note(
                f"{live.task.name}, attempt {live.record.attempt}: grading failed and can be taken up with --resume "
                f"(internal error: {type(error).__name__}: {error})"
            )
        finally:
            if schedule is not None:
                self._ended(schedule, task_id, lost)

    def _ended(self, schedule: Schedule, task_id: str, lost: bool | None) -> None:
        last = schedule.ended(task_id, lost)
        if last is not None:
            self._sink.append(AbortedRecord(task_id, self._tasks[task_id].name, last))

    def _reopened(
        self, attempts: Attempts, pending: Iterable[AttemptRecord], generations: dict[tuple[str, int], int]
    ) -> Iterator[LiveAttempt]:
        for record in pending:
            stored = self._folder.read_evidence(record.evidence)
            generation = generations.get((record.task_id, record.attempt), 0) + 1
            yield attempts.reopen(
                self._tasks[record.task_id], record, stored.turns, None, stored.workdir_tar, generation
            )

    def _give_up(self, refusal: Refusal, *, judge: bool) -> None:
        """Going on would meet the same again. What is under way has been paid for and goes to its end."""
        backend = self._evaluation.judge_backend if judge else self._evaluation.backend
        engine = judge_engine_of(self._header) if judge else Engine(self._header.backend, self._header.model)
        assert backend is not None
        assert engine is not None
        if judge:
            self._judging = False
        if refusal.fatal:
            explained = backend.explain(refusal, engine, judge=judge)
            self._wind_down(as_error(explained, backend, self._project.operator, self._evaluation.extra_path))
        else:
            self._gates[str(engine)].shut()
            self._wind_down(_rate_limited(refusal, engine, judge=judge))

    def _wind_down(self, error: CaliperError) -> None:
        """Starts nothing more, and lets what is under way finish."""
        if self._fatal is None and not self._stop.is_set:
            self._fatal = error
            self._observer.note(f"{error.message} No further attempt is started; those under way are finished.")
        self._schedule.close()
        self._spending.budget.close()

    def _stop_for(self, error: CaliperError) -> None:
        """Ends everything at once: what is done could not even be stored."""
        if self._fatal is None and not self._stop.is_set:
            self._fatal = error
        self._stop.set()

    def _wake(self) -> None:
        self._gates.wake()
        self._spending.budget.close()

    # -- the end

    def _finish(self) -> RunSummary:
        ended = datetime.now(UTC)
        status = "stopped" if self._fatal is not None else "interrupted" if self._interrupted else "completed"
        path: Path | None = None
        save_error: str | None = None
        history_error: str | None = None
        end = EndRecord(ended, status, str(self._fatal) if self._fatal is not None else None)
        state = self._folder.state()
        state.end = end
        summary = summarize(self._header, state)
        hooks, recorded = tuple(state.hook_failures), len(state.attempts)
        ungraded = sum(1 for key in state.attempts if key not in state.verdicts)
        del state  # publishing reads the lines once more: not twice the memory for that moment
        if recorded or hooks:
            path, save_error = self._save(summary)
        if path is not None and save_error is None:
            end = replace(end, results=str(path.relative_to(self._project.root)))
        self._sink.append(end)
        if self._evaluation.publish_history and (recorded or hooks):
            try:
                history.publish_run(self._project.root, self._folder)
            except StorageError as error:
                history_error = str(error)
        return RunSummary(
            header=self._header,
            results=summary,
            results_path=path,
            save_error=save_error,
            history_error=history_error,
            fatal=self._fatal,
            interrupted=self._interrupted,
            hook_failures=hooks,
            recorded=recorded,
            ungraded=ungraded,
        )

    def _save(self, summary: Results) -> tuple[Path | None, str | None]:
        try:
            return results.write_results(self._project.root, self._folder, summary), None
        except StorageError as error:
            # The last resort, so that what was measured is at least somewhere a person can find it.
            root = Path(tempfile.mkdtemp(prefix=f"{self._header.spec}-"))
            try:
                return results.write_results(root, self._folder, summary), str(error)
            except StorageError:
                return None, str(error)


def _rate_limited(refusal: Refusal, engine: Engine, *, judge: bool) -> CannotRun:
    who = f"The {engine.backend} {'judge' if judge else 'agent'}"
    return CannotRun(
        f"{who} was rate limited again and again, with nothing served between: {refusal.text}",
        hint="What is finished is kept. Wait, then take the run up again, with fewer --workers if need be.",
    )
