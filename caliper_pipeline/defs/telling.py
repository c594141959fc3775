"""A run of ours inside a step of Dagster's: executed there, or followed while a command executes it elsewhere.

Both ways give the same events as they happen and end alike: CANCELED when a person stopped the run, FAILURE when a
condition did or when whoever ran it died, success otherwise (whatever the scores).
"""

import contextlib
import fcntl
import os
import signal
import socket
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import cast

from dagster import AssetExecutionContext, DagsterRunStatus, Failure
from dagster._core.errors import DagsterExecutionInterruptedError

from caliper_pipeline.defs.owner import is_same_process
from caliper_pipeline.defs.recording import RUN_TAG, RUNS_TAG_PREFIX, Event, Part, Recording, parts_of, tags_of
from caliper_pipeline.defs.resources import History
from caliper_pipeline.defs.storage_hold import kept_open
from caliper_pipeline.domain.errors import CaliperError
from caliper_pipeline.domain.records import Line
from caliper_pipeline.evaluation.project import Project
from caliper_pipeline.evaluation.recorder import start_recorder
from caliper_pipeline.evaluation.run import Evaluation
from caliper_pipeline.evaluation.streaming import stream
from caliper_pipeline.execution.command import StopToken
from caliper_pipeline.storage.runs import RunFolder

ASK_SECONDS = 1.0
"""How often a follower looks whether the UI asked to terminate."""
STOPPED = frozenset({DagsterRunStatus.CANCELING, DagsterRunStatus.CANCELED})


@contextmanager
def plain_failures() -> Iterator[None]:
    """What a person can mend fails the step with its message alone, without a stack of calls."""
    try:
        yield
    except CaliperError as error:
        raise Failure(description=str(error), allow_retries=False) from None


def execute(
    context: AssetExecutionContext, project: Project, evaluation: Evaluation, history: History
) -> Iterator[Event]:
    """Execute the evaluation here and tell of it. Terminating the step stops it, and what is finished is still told."""
    evaluation = replace(evaluation, dagster_run_id=context.run.run_id)
    folder, header = evaluation.folder, evaluation.header
    only = evaluation.regrading.only if evaluation.regrading is not None else evaluation.only
    parts: list[Part | None] = [None] if only is not None else [*parts_of(header)]
    first = parts[0]
    recording = Recording(context.instance, project, folder, first, only=only)
    _tag(context, folder, first)
    for text in evaluation.warnings:
        context.log.warning(text)
    stop, told = StopToken(), False
    others = start_recorder(project, header.run_id, "--beside") if len(parts) > 1 else None
    interrupted = False
    with telling(folder), kept_open(context.instance, context.run.run_id):
        try:
            yield from recording.opening()
            try:
                lines = cast(Generator[Line, None, None], stream(history.without_own(evaluation), stop))
                with closing(lines):
                    for line in lines:
                        yield from recording.line(line)
            except DagsterExecutionInterruptedError:
                interrupted = True
            yield from recording.rest()
            yield from recording.closing()
            history.publish(evaluation)
            told = True
        finally:
            stop.close()
            if others is not None:
                others.wait()
            elif not told:
                # Interrupted in the middle of an event: the rest cannot be given any more, so someone else must.
                start_recorder(project, header.run_id)
    _end_like(context, folder, interrupted=interrupted)


def follow(context: AssetExecutionContext, project: Project, folder: RunFolder, part: Part | None) -> Iterator[Event]:
    """Tell of a run that another process executes, or has executed. Terminating the step stops that process."""
    recording = Recording(context.instance, project, folder, part)
    asked = _every(ASK_SECONDS, lambda: _status(context) in STOPPED)
    stopping = False

    def look() -> bool:
        nonlocal stopping
        if not stopping and asked():
            stopping = True
            ask_to_stop(folder)
        return False

    with kept_open(context.instance, context.run.run_id):
        yield from recording.opening()
        yield from _lines_told(folder, recording, look)
        yield from recording.closing()
    _end_like(context, folder, interrupted=stopping)


def _lines_told(folder: RunFolder, recording: Recording, look: Callable[[], bool]) -> Iterator[Event]:
    """A run that is taken up again has an old end in its log, which its new lines may not have followed yet."""
    offset = 0
    while True:
        lines = folder.follow(look, offset=offset)
        for line in lines:
            yield from recording.line(line)
        offset = lines.offset
        if not folder.busy():
            return
        time.sleep(0.1)


def ask_to_stop(folder: RunFolder) -> None:
    """Ask the process that executes the run to come to rest, as Ctrl-C in its terminal would."""
    header, state = folder.header(), folder.state()
    pids = [resume.pid for resume in state.resumes] or [header.pid]
    if header.host == socket.gethostname() and folder.busy():
        for pid in pids[-1:]:
            if pid is not None and pid != os.getpid() and is_same_process(pid, ""):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGTERM)


@contextmanager
def telling(folder: RunFolder, *, alone: bool = False, wait: bool = True) -> Iterator[bool]:
    """Held while somebody tells Dagster about the run. `alone`: nobody else does; gives whether that is so.

    Steps share it, since the pieces of a backfill tell of one run at once, each of its own attempts.
    """
    handle = os.open(folder.path / "telling.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(handle, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)


def _end_like(context: AssetExecutionContext, folder: RunFolder, *, interrupted: bool) -> None:
    end = folder.state().end
    again = f"`caliper run --resume --run-id {folder.run_id}`, or `resume` in the launchpad, makes what is missing."
    if interrupted or (end is not None and end.status == "interrupted"):
        if _status(context) not in STOPPED:
            # Dagster shows CANCELED only for runs that somebody asked to cancel before the step ended.
            run = context.instance.get_run_by_id(context.run.run_id)
            assert run is not None
            context.instance.report_run_canceling(run, message="The run was interrupted where it was started.")
        raise DagsterExecutionInterruptedError(f"Stopped on request; finished attempts are kept. {again}")
    if end is None:
        raise Failure(description=f"Whoever executed the run ended before it was over. {again}", allow_retries=False)
    if end.status != "completed":
        raise Failure(description=f"The run was stopped: {end.reason}\n{again}", allow_retries=False)


def _tag(context: AssetExecutionContext, folder: RunFolder, part: Part | None) -> None:
    tags = tags_of(folder.header(), part)
    known = context.instance.get_run_by_id(context.run.run_id)
    if known is not None and known.tags.get(RUN_TAG, folder.run_id) != folder.run_id:
        tags = {RUNS_TAG_PREFIX + folder.run_id: "true"}
    context.instance.add_run_tags(context.run.run_id, tags)


def _status(context: AssetExecutionContext) -> DagsterRunStatus | None:
    run = context.instance.get_run_by_id(context.run.run_id)
    return None if run is None else run.status


def _every(seconds: float, question: Callable[[], bool]) -> Callable[[], bool]:
    """The question, asked at most that often; in between the answer is no."""
    last = 0.0

    def ask() -> bool:
        nonlocal last
        now = time.monotonic()
        if now - last < seconds:
            return False
        last = now
        return question()

    return ask
