"""What a run would do, without doing it: nothing is started and nothing of it stays on disk.

It is found out by really making ready the first attempt of each task, in folders that are removed again: what is shown
is what would happen, not a description of it.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.records import RunHeader, SkillHeader, TaskHeader
from caliper_pipeline.evaluation.prepare import Backends, prepare
from caliper_pipeline.evaluation.project import Project
from caliper_pipeline.evaluation.request import RunRequest
from caliper_pipeline.evaluation.run import Evaluation
from caliper_pipeline.evaluation.settings import judge_engine_of
from caliper_pipeline.execution.attempt import spawned
from caliper_pipeline.execution.backends.base import JudgeInvocation
from caliper_pipeline.execution.budget import Allowance
from caliper_pipeline.execution.command import Command
from caliper_pipeline.execution.workdir import AttemptFolder, make_attempt_folder
from caliper_pipeline.storage.runs import RunStore

HOME, WORKDIR, PROMPT = "<home>", "<workdir>", "<prompt>"


@dataclass(frozen=True, slots=True)
class PlannedTask:
    task: TaskHeader
    argv: tuple[str, ...]
    """Of the agent, with `<home>`, `<workdir>` and `<prompt>` in place of what differs between attempts."""
    stdin_bytes: int
    """What it would read from standard input."""
    home_files: tuple[str, ...]
    """Files of the attempt's home when the agent starts, skills left out, relative to it."""
    environment: tuple[str, ...]
    """Names of the variables that the agent would see."""


@dataclass(frozen=True, slots=True)
class PlannedRun:
    header: RunHeader
    attempts: int
    workers: int
    tasks: tuple[PlannedTask, ...]
    skills: Mapping[str, str]
    """Installed skill → where, relative to the attempt's home."""
    servers: Mapping[str, str]
    """Granted server → how it is reached, without what may be secret."""
    judge_argv: tuple[str, ...] | None
    """`None`: nothing is judged by a model."""
    allowance: Allowance
    warnings: tuple[str, ...]

    @property
    def left_out(self) -> tuple[SkillHeader, ...]:
        return tuple(skill for skill in self.header.skills if not skill.installed)


def dry_run(project: Project, request: RunRequest, *, backends: Backends | None = None) -> PlannedRun:
    """The run that was asked for, as it would go. Raises what `prepare` raises; servers and the judge are not tried."""
    with tempfile.TemporaryDirectory(prefix="plan-") as place:
        aside = replace(project, store=RunStore(Path(place)))
        evaluation = prepare(aside, request, backends=backends, probe=False)
        header, root = evaluation.header, ""
        with make_attempt_folder() as folder:
            root = _relative(evaluation.backend.skills_root(folder.home), folder)
        return PlannedRun(
            header=header,
            attempts=len(evaluation.planned()),
            workers=evaluation.workers,
            tasks=tuple(_task(evaluation, task, root) for task in header.tasks),
            skills={skill.name: f"{root}/{skill.name}" for skill in header.skills if skill.installed},
            servers={
                server.name: server.url.split("?")[0] if server.url else " ".join([server.command, *server.args])
                for server in evaluation.servers
            },
            judge_argv=_judge(evaluation, header),
            allowance=evaluation.allowance,
            warnings=evaluation.warnings,
        )


def _task(evaluation: Evaluation, task: TaskHeader, skills_root: str) -> PlannedTask:
    with make_attempt_folder() as folder:
        _, command = spawned(evaluation.attempt_settings(), task, 1, 0, folder)
        files = (_relative(path, folder) for path in sorted(folder.home.rglob("*")) if path.is_file())
        return PlannedTask(
            task=task,
            argv=_shown(command, task.prompt, folder),
            stdin_bytes=len(command.stdin or b""),
            home_files=tuple(name for name in files if not name.startswith(f"{skills_root}/")),
            environment=tuple(sorted(command.env)),
        )


def _judge(evaluation: Evaluation, header: RunHeader) -> tuple[str, ...] | None:
    engine: Engine | None = judge_engine_of(header)
    if engine is None or evaluation.judge_backend is None:
        return None
    if engine.simulated:
        return (str(engine),)
    with make_attempt_folder() as folder:
        invocation = JudgeInvocation(
            engine=engine,
            prompt=PROMPT,
            home=folder.home,
            workdir=folder.workdir,
            operator=evaluation.project.operator,
            timeout_seconds=1.0,
        )
        evaluation.judge_backend.prepare_judge(invocation)
        return _shown(evaluation.judge_backend.judge_command(invocation), PROMPT, folder)


def _relative(path: Path, folder: AttemptFolder) -> str:
    return path.relative_to(folder.home).as_posix()


def _shown(command: Command, prompt: str, folder: AttemptFolder) -> tuple[str, ...]:
    places = {str(folder.workdir): WORKDIR, str(folder.home): HOME}
    shown = []
    for word in command.argv:
        word = PROMPT if word == prompt else word
        for place, name in places.items():
            word = word.replace(place, name)
        shown.append(word)
    return tuple(shown)
