"""The order of steps of one attempt: setup, agent, evidence, then (elsewhere, later) checks, verdict, cleanup.

Two halves meet here, so that an attempt waiting for its judge holds no agent slot: `Attempts.run_agent` ends when the
evidence is durable, `Attempts.grade` ends when the verdict is and the attempt's folder is gone. What can happen to an
attempt is a value; only what makes the whole run pointless is raised, and whatever was paid for is stored first.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.planted import PlantedTurn
from caliper_pipeline.domain.records import AttemptRecord, Line, TaskHeader, VerdictRecord
from caliper_pipeline.domain.transcript import Turn, Usage
from caliper_pipeline.execution.attempt_records import AgentCalls, attempt_record, hook_failure, joined, setup_error
from caliper_pipeline.execution.backends.base import Backend, Invocation, Operator, Refusal, Server
from caliper_pipeline.execution.command import Command, Launcher, ProcessResult, StopToken
from caliper_pipeline.execution.environment import step_environment
from caliper_pipeline.execution.grading import Grader, GradingInput
from caliper_pipeline.execution.snapshot import restore_workdir, snapshot_workdir
from caliper_pipeline.execution.throttle import Gate
from caliper_pipeline.execution.workdir import AttemptFolder, install_skill, make_attempt_folder


class Sink(Protocol):
    """Where evidence and lines go; every call returns only when what it was given is durable."""

    def save_evidence(
        self,
        task: TaskHeader,
        attempt: int,
        *,
        turns: tuple[Turn, ...],
        final_answer: str,
        usage: Usage | None,
        stdout: bytes,
        stderr: bytes,
        facts: Mapping[str, Any],
        workdir_tar: Path | None,
    ) -> str:
        """The folder of the evidence, relative to the run's."""
        ...

    def save_judgement(self, evidence: str, generation: int, asked: str, answered: tuple[str, ...]) -> None: ...

    def append(self, line: Line) -> None: ...


@dataclass(frozen=True, slots=True)
class AttemptSettings:
    """What all attempts of a run share."""

    engine: Engine
    backend: Backend
    operator: Operator
    timeout_seconds: float
    setup_seconds: float
    cleanup_seconds: float
    stream_bytes: int
    snapshot_bytes: int
    retries: int
    skills: Mapping[str, Path]
    """Installed skills: name → the folder to install from."""
    isolated: bool
    extra_path: tuple[str, ...]
    ablated: tuple[str, ...]
    spec_path: Path
    servers: tuple[Server, ...] = ()
    declared_servers: tuple[str, ...] | None = None
    """As in `Invocation`."""
    histories: Mapping[str, tuple[PlantedTurn, ...]] = field(default_factory=dict)
    """Planted conversations, by task id."""
    max_tokens: int | None = None
    """For one invocation. `None`: no limit."""


class FatalRefusal(Exception):
    """The CLI refused in a way that every further attempt would meet."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal


class Stopped(Exception):
    """The run was stopped while this attempt was in flight: it leaves no record."""


@dataclass(slots=True)
class LiveAttempt:
    """An attempt whose evidence is durable and whose folder still stands."""

    task: TaskHeader
    record: AttemptRecord
    turns: tuple[Turn, ...]
    builtin_skills: tuple[str, ...] | None
    folder: AttemptFolder
    generation: int = 1
    run_cleanup: bool = True


def spawned(
    settings: AttemptSettings, task: TaskHeader, attempt: int, retry: int, folder: AttemptFolder
) -> tuple[Invocation, Command]:
    """What is to be started, with the home made ready for it: login, skills, servers, planted conversation."""
    backend = settings.backend
    invocation = Invocation(
        engine=settings.engine,
        prompt=task.prompt,
        home=folder.home,
        workdir=folder.workdir,
        operator=settings.operator,
        timeout_seconds=settings.timeout_seconds,
        isolated=settings.isolated,
        extra_path=settings.extra_path,
        skills=tuple(settings.skills),
        task_name=task.name,
        attempt=attempt,
        retry=retry,
        ablated=settings.ablated,
        spec_path=settings.spec_path,
        group=folder.group,
        servers=settings.servers,
        declared_servers=settings.declared_servers,
        history=settings.histories.get(task.task_id, ()),
        max_tokens=settings.max_tokens,
    )
    if retry == 0:
        backend.prepare(invocation)
        root = backend.skills_root(folder.home)
        for name, source in settings.skills.items():
            install_skill(source, root, name)
    if invocation.history:
        invocation = replace(invocation, session=backend.plant(invocation))
    command = replace(backend.command(invocation), keep_bytes=settings.stream_bytes, watch=_watch(settings))
    return invocation, command


def _watch(settings: AttemptSettings) -> Callable[[bytes], str | None] | None:
    """Ends an agent that used more tokens than one attempt may, where its stream tells of them as it works."""
    count, most = settings.backend.capabilities.token_counter, settings.max_tokens
    if count is None or most is None:
        return None

    def watch(stdout: bytes) -> str | None:
        used = count(stdout)
        return (
            f"the agent used {used:,} tokens, and may use {most:,} (--max-tokens-per-attempt)" if used > most else None
        )

    return watch


class Attempts:
    """Runs and grades attempts; called from many threads at once."""

    def __init__(
        self, settings: AttemptSettings, grader: Grader, launcher: Launcher, sink: Sink, stop: StopToken, gate: Gate
    ):
        self._settings = settings
        self._grader = grader
        self._launcher = launcher
        self._sink = sink
        self._stop = stop
        self._gate = gate
        self._never = StopToken()

    def run_agent(self, task: TaskHeader, attempt: int) -> LiveAttempt:
        """One attempt up to its durable evidence. Raises `Stopped` or `FatalRefusal`; both leave nothing behind."""
        folder = make_attempt_folder()
        try:
            return self._run_agent(task, attempt, folder)
        except BaseException:
            self._leave(task, attempt, folder, run_cleanup=True)
            raise

    def _run_agent(self, task: TaskHeader, attempt: int, folder: AttemptFolder) -> LiveAttempt:
        started = datetime.now(UTC)
        setup_seconds: float | None = None
        if task.setup is not None:
            hook = self._hook(task, attempt, "setup", task.setup, folder, self._settings.setup_seconds, self._stop)
            if hook.cancelled or self._stop.is_set:
                raise Stopped
            setup_seconds = hook.wall_seconds
            if not hook.ok:
                record = AttemptRecord(
                    task_id=task.task_id,
                    task_name=task.name,
                    attempt=attempt,
                    started_at=started,
                    ended_at=datetime.now(UTC),
                    agent_seconds=0.0,
                    setup_seconds=setup_seconds,
                    setup_error=setup_error(hook, self._settings.setup_seconds),
                    spoke=False,
                )
                live = self._keep(task, record, AgentCalls(), folder)
                self._sink.append(hook_failure(task, attempt, "setup", hook))
                return live
        calls = self._call_agent(task, attempt, folder)
        if self._stop.is_set and calls.results and calls.results[-1].cancelled:
            raise Stopped
        engine = self._settings.engine
        record = attempt_record(
            task,
            attempt,
            calls,
            started=started,
            setup_seconds=setup_seconds,
            asked_model=None if engine.simulated else engine.model,
            stream_bytes=self._settings.stream_bytes,
        )
        return self._keep(task, record, calls, folder)

    def _call_agent(self, task: TaskHeader, attempt: int, folder: AttemptFolder) -> AgentCalls:
        settings = self._settings
        calls = AgentCalls()
        for retry in range(settings.retries + 1):
            invocation, command = spawned(settings, task, attempt, retry, folder)
            if not self._gate.enter(self._stop, returning=retry > 0):
                raise Stopped
            refusal: Refusal | None = None
            try:
                result = self._recovered(invocation, self._launcher.run(command, self._stop))
                reply = settings.backend.read(result, invocation)
                # A run that passed its limit was cut by us: whatever its output says of limits is no refusal.
                if not (result.timed_out or result.cancelled or result.ended_because):
                    refusal = settings.backend.refusal(result, reply)
            finally:
                throttled = refusal is not None and not refusal.fatal
                self._gate.leave(throttled=throttled, retry_after=refusal.retry_after_seconds if refusal else None)
            calls.results.append(result)
            calls.replies.append(reply)
            calls.refusal = refusal
            if not throttled:
                break
        calls.hopeless = throttled and self._gate.lost()
        return calls

    def _recovered(self, invocation: Invocation, result: ProcessResult) -> ProcessResult:
        """With what the CLI can still tell of a spawn that was cut off."""
        rescue = None if result.cancelled else self._settings.backend.recovery(invocation, result)
        if rescue is None:
            return result
        # Also of a run that is being stopped: what the agent did has been paid for.
        told = self._launcher.run(replace(rescue, keep_bytes=self._settings.stream_bytes), self._never)
        return replace(result, stdout=joined((result.stdout, told.stdout)))

    def _keep(self, task: TaskHeader, record: AttemptRecord, calls: AgentCalls, folder: AttemptFolder) -> LiveAttempt:
        """Evidence first, then the line that says it is there."""
        turns = tuple(turn for reply in calls.replies for turn in reply.turns)
        folder.mend_workdir()
        tar = folder.private / "workdir.tar"
        kept = snapshot_workdir(folder.workdir, tar, self._settings.snapshot_bytes)
        evidence = self._sink.save_evidence(
            task,
            record.attempt,
            turns=turns,
            final_answer=calls.replies[-1].final_answer if calls.replies else "",
            usage=record.usage,
            stdout=joined(result.stdout for result in calls.results),
            stderr=joined(result.stderr for result in calls.results),
            facts={
                "exit_codes": [result.exit_code for result in calls.results],
                "invocation_seconds": [result.wall_seconds for result in calls.results],
                "stream_cut": any(result.cut for result in calls.results),
                "unreadable_lines": sum(reply.unreadable_lines for reply in calls.replies),
                "session_ids": [reply.session_id for reply in calls.replies],
                "cli_error": calls.replies[-1].cli_error if calls.replies else None,
                "refusal": calls.refusal.kind if calls.refusal else None,
            },
            workdir_tar=tar if tar.exists() else None,
        )
        if calls.refusal is not None and (calls.refusal.fatal or calls.hopeless):
            # The evidence stays, but no line: a resumed run makes this attempt again once the cause is mended.
            raise FatalRefusal(calls.refusal)
        record = replace(record, evidence=evidence, snapshot_files=kept.files, snapshot_left_out=kept.left_out)
        self._sink.append(record)
        builtin = calls.replies[-1].builtin_skills if calls.replies else None
        return LiveAttempt(task, record, turns, builtin, folder)

    def reopen(
        self,
        task: TaskHeader,
        record: AttemptRecord,
        turns: tuple[Turn, ...],
        builtin_skills: tuple[str, ...] | None,
        workdir_tar: Path | None,
        generation: int,
    ) -> LiveAttempt:
        """A stored attempt in a new folder, with its workdir as the agent left it, to be graded (again)."""
        folder = make_attempt_folder()
        try:
            if workdir_tar is not None:
                restore_workdir(workdir_tar, folder.workdir)
        except BaseException:
            folder.remove()
            raise
        return LiveAttempt(task, record, turns, builtin_skills, folder, generation, run_cleanup=False)

    def grade(self, live: LiveAttempt) -> VerdictRecord | None:
        """The verdict, stored; the cleanup done; the folder gone. `None`: stopped before there was one.

        Raises `FatalRefusal` when the judge refuses for good; the attempt then stays ungraded and is not lost.
        """
        try:
            graded = self._grader.grade(
                GradingInput(
                    task=live.task,
                    record=live.record,
                    turns=live.turns,
                    builtin_skills=live.builtin_skills,
                    folder=live.folder,
                    generation=live.generation,
                ),
                self._launcher,
                self._stop,
            )
            if graded.asked is not None:
                self._sink.save_judgement(live.record.evidence, live.generation, graded.asked, graded.answered)
            if graded.refusal is not None:
                raise FatalRefusal(graded.refusal)
            if graded.verdict is None:
                return None
            self._sink.append(graded.verdict)
            return graded.verdict
        finally:
            self._leave(live.task, live.record.attempt, live.folder, run_cleanup=live.run_cleanup)

    def put_off(self, live: LiveAttempt) -> None:
        """Leaves the attempt ungraded, to be taken up later; its cleanup is done and its folder gone."""
        self._leave(live.task, live.record.attempt, live.folder, run_cleanup=live.run_cleanup)

    def _leave(self, task: TaskHeader, attempt: int, folder: AttemptFolder, *, run_cleanup: bool) -> None:
        """The cleanup hook (a stopped run does not spare it), then every process and file of the attempt."""
        try:
            if run_cleanup and task.cleanup is not None:
                limit = self._settings.cleanup_seconds
                hook = self._hook(task, attempt, "cleanup", task.cleanup, folder, limit, self._never)
                if not hook.ok:
                    self._sink.append(hook_failure(task, attempt, "cleanup", hook))
        finally:
            self._launcher.end_group(folder.group)
            folder.remove()

    def _hook(
        self,
        task: TaskHeader,
        attempt: int,
        phase: str,
        script: str,
        folder: AttemptFolder,
        limit: float,
        stop: StopToken,
    ) -> ProcessResult:
        environment = step_environment(self._settings.operator, folder.workdir, self._settings.spec_path.parent)
        command = Command(
            argv=("/bin/sh", "-c", script),
            env=environment,
            cwd=folder.workdir,
            timeout_seconds=limit,
            merge_output=True,
            keep_bytes=16_000,
            keep_tail=True,
            linger=True,
            group=folder.group,
        )
        return self._launcher.run(command, stop)

    def close(self) -> None:
        self._never.close()
