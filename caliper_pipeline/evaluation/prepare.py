"""Everything that is checked and gathered before the first attempt: what is refused here has cost nothing.

The result is an `Evaluation` whose run folder is open: `run.json` says all that went in.
"""

import hashlib
import os
import platform
import socket
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

from caliper_pipeline import __version__
from caliper_pipeline.domain.engine import Engine, parse_engine
from caliper_pipeline.domain.errors import BadInput, CannotRun
from caliper_pipeline.domain.project import MOST_ATTEMPTS, MOST_SECONDS, MOST_WORKERS
from caliper_pipeline.domain.records import RunHeader, SkillHeader, TaskHeader
from caliper_pipeline.domain.series import Series
from caliper_pipeline.domain.skills import Skill, resolve_ablation
from caliper_pipeline.evaluation.project import Project
from caliper_pipeline.evaluation.request import RunRequest
from caliper_pipeline.evaluation.run import Evaluation, planned_k
from caliper_pipeline.evaluation.settings import limits_of
from caliper_pipeline.execution.backends.base import Backend, BackendInfo, Capabilities
from caliper_pipeline.execution.backends.registry import make_backend
from caliper_pipeline.execution.judge.autorater import prompt_version
from caliper_pipeline.execution.servers import resolve_servers
from caliper_pipeline.sources.skill_source import find_git_state, load_skills
from caliper_pipeline.sources.spec_file import LoadedSpec, load_spec
from caliper_pipeline.storage.runs import RunFolder, new_run_id

Backends = dict[str, Backend]


def prepare(project: Project, request: RunRequest, *, backends: Backends | None = None) -> Evaluation:
    """The evaluation that was asked for, ready to execute.

    `backends` replaces the built-in ones by name (Dagster hands in its resources). Raises `BadInput`, `CannotRun`
    or `StorageError`; then nothing was started and, for a new run, no folder was made.
    """
    _refuse_beyond(request)
    config, operator = project.config, project.operator
    loaded = load_spec(request.spec_path, operator.home)
    spec = loaded.spec
    skills = load_skills(loaded, operator.home)
    engine = request.engine or parse_engine(config.model, flag="caliper.yaml: model")
    judge_engine = _judge_engine(project, request, loaded, engine)
    ablated = resolve_ablation(request.ablate, skills=[skill.name for skill in skills], servers=list(spec.mcp))
    backend = _backend(engine, backends)
    isolated = not loads_customizations(project, request, loaded, backend)
    judge_backend = _backend(judge_engine, backends) if judge_engine is not None else None
    existing = _existing(project, request.run_id)
    series = Series(loaded.name, engine, ablated, isolated)
    k = request.k or config.k
    limits = limits_of(project)
    info = backend.check(operator, tuple(spec.sandbox.extra_path), engine, loaded.path)
    _refuse_beyond_backend(loaded, engine, info.capabilities or backend.capabilities)
    servers = resolve_servers(
        {name: server for name, server in spec.mcp.items() if f"mcp:{name}" not in ablated},
        operator.environment,
        loaded.directory,
        str(loaded.path),
    )
    judge_info = (
        _check_judge(judge_backend, judge_engine, project, loaded) if judge_backend and judge_engine else BackendInfo()
    )
    if existing is not None:
        folder = _joinable(existing, series, loaded)
    else:
        header = _header(project, request, loaded, skills, series, k, limits)
        header = replace(
            header,
            judge_backend=judge_engine.backend if judge_engine else None,
            simulated=engine.simulated or (judge_engine is not None and judge_engine.simulated),
            judge_model=judge_engine.model if judge_engine else None,
            judge_prompt_version=prompt_version() if judge_engine else None,
            cli_version=info.version,
            judge_cli_version=judge_info.version,
            loaded_user_customizations=None
            if isolated
            else backend.user_layer(operator, tuple(skill.name for skill in skills), tuple(spec.mcp)),
        )
        folder = project.store.create(header)
        folder.stage_skills(tuple(skill for skill in skills if skill.name not in ablated))
    warnings = [str(problem) for problem in loaded.warnings]
    warnings += [f"{skill.name}: {text}" for skill in skills for text in skill.warnings]
    return Evaluation(
        project=project,
        folder=folder,
        backend=backend,
        judge_backend=judge_backend,
        extra_path=tuple(spec.sandbox.extra_path),
        only=request.only,
        warnings=tuple(warnings),
        workers=request.workers or config.workers,
        servers=servers,
        declared_servers=tuple(spec.mcp) if spec.mcp_declared else None,
        histories={task_id: planted.turns for task_id, planted in loaded.histories.items()},
        resumed_k=max(k, planned_k(folder)) if existing is not None else None,
    )


def _refuse_beyond(request: RunRequest) -> None:
    """The bounds of caliper.yaml hold for every caller, or a run's own header could not be read again."""
    limits: tuple[tuple[str, float | None, float], ...] = (
        ("k", request.k, MOST_ATTEMPTS),
        ("workers", request.workers, MOST_WORKERS),
        ("timeout_seconds", request.timeout_seconds, MOST_SECONDS),
    )
    for name, value, most in limits:
        if value is not None and not 0 < value <= most:
            raise BadInput(f"{name} {value:g}: must be above 0 and at most {most:g}.")


def _backend(engine: Engine, backends: Backends | None) -> Backend:
    given = (backends or {}).get(engine.backend)
    return given if given is not None else make_backend(engine.backend)


def _judge_engine(project: Project, request: RunRequest, loaded: LoadedSpec, engine: Engine) -> Engine | None:
    """`None` when nothing is to be judged by a model. A wrong name is refused all the same."""
    wanted = request.judge_engine
    if wanted is None and project.config.judge_model is not None:
        wanted = parse_engine(project.config.judge_model, flag="caliper.yaml: judge_model")
    if not any(task.expect is not None for task in loaded.spec.tasks):
        return None
    return wanted or engine


def _check_judge(backend: Backend, engine: Engine, project: Project, loaded: LoadedSpec) -> BackendInfo:
    if not backend.capabilities.judge:
        raise CannotRun(f"The {engine.backend} judge cannot run: it does not judge.", hint="Use --judge-model.")
    try:
        return backend.check(project.operator, (), engine, loaded.path)
    except CannotRun as error:
        raise type(error)(f"The {engine.backend} judge cannot run: {error.message}", hint=error.hint) from error


def _refuse_beyond_backend(loaded: LoadedSpec, engine: Engine, can: Capabilities) -> None:
    """What this backend, as installed, cannot honour: refused before anything is paid for."""
    if loaded.spec.mcp and not can.mcp:
        raise CannotRun(
            f"{loaded.path}: mcp: the backend {engine.backend} cannot be given servers."
            + (f" {can.why_not['mcp']}" if "mcp" in can.why_not else ""),
            hint="Choose another engine with --model, or remove `mcp:` to run the tasks without servers.",
        )
    planted = [task.name for task in loaded.spec.tasks if task.history is not None]
    if planted and not can.history:
        raise CannotRun(
            f"{loaded.path}: history: the backend {engine.backend} cannot take up a planted conversation "
            f"({', '.join(planted)})." + (f" {can.why_not['history']}" if "history" in can.why_not else ""),
            hint="Choose another engine with --model, or remove `history:` from these tasks.",
        )


def loads_customizations(project: Project, request: RunRequest, loaded: LoadedSpec, backend: Backend) -> bool:
    """The flag, else the spec, else caliper.yaml, else yes where the backend can."""
    for wish in (
        request.user_customizations,
        loaded.spec.user_customizations,
        project.config.user_customizations,
    ):
        if wish is not None:
            return wish and backend.capabilities.user_customizations
    return backend.capabilities.user_customizations


def _existing(project: Project, run_id: str | None) -> RunFolder | None:
    return project.store.open(run_id) if run_id is not None and run_id in project.store.run_ids() else None


def _joinable(folder: RunFolder, series: Series, loaded: LoadedSpec) -> RunFolder:
    header = folder.header()
    if header.series_key != series.key:
        raise BadInput(
            f"Run {header.run_id} is of the series {header.series_key}, not of {series.key}.",
            hint="Take it up with the same spec, engine, --ablate and customizations, or start a new run.",
        )
    if header.spec_digest != loaded.digest:
        raise BadInput(
            f"{loaded.path} has changed since run {header.run_id} began.",
            hint="The finished attempts answer the old text: start a new run, or restore the spec.",
        )
    then = {task.task_id: task.digests for task in header.tasks}
    for task in task_headers(loaded, series):
        changed = [name for name, digest in task.digests.items() if then.get(task.task_id, {}).get(name) != digest]
        if changed:
            raise BadInput(
                f"{loaded.path}: {task.name}: the file of `{changed[0]}:` has changed since run {header.run_id} began.",
                hint="The finished attempts answer the old text: start a new run, or restore the file.",
            )
    return folder


def _header(
    project: Project,
    request: RunRequest,
    loaded: LoadedSpec,
    skills: Iterable[Skill],
    series: Series,
    k: int,
    limits: dict[str, float],
) -> RunHeader:
    config = project.config
    git = find_git_state(loaded.directory)
    now = datetime.now(UTC)
    engine = series.engine
    return RunHeader(
        run_id=request.run_id or new_run_id(now),
        spec=loaded.name,
        spec_path=str(loaded.path),
        spec_text=loaded.text,
        spec_digest=loaded.digest,
        backend=engine.backend,
        model=engine.model,
        ablated=series.ablated,
        isolated=series.isolated,
        series_key=series.key,
        k=k,
        workers=request.workers or config.workers,
        timeout_seconds=request.timeout_seconds or config.timeout_seconds,
        fail_fast=request.fail_fast,
        started_at=now,
        tasks=tuple(task_headers(loaded, series)),
        skills=tuple(skill_header(skill, series.ablated) for skill in skills),
        mcp_servers=tuple(name for name in loaded.spec.mcp if f"mcp:{name}" not in series.ablated),
        forbidden_files=tuple(loaded.spec.sandbox.forbidden_files),
        product_version=__version__,
        python_version=platform.python_version(),
        host=socket.gethostname(),
        platform=f"{platform.system()} {platform.machine()}",
        cpu_count=os.cpu_count(),
        git_commit=git.commit if git is not None else None,
        git_dirty=git.dirty if git is not None else None,
        origin=request.origin,
        dagster_run_id=request.dagster_run_id,
        pid=os.getpid(),
        limits=limits,
    )


def task_headers(loaded: LoadedSpec, series: Series) -> Iterable[TaskHeader]:
    for task in loaded.spec.tasks:
        script = loaded.asserts.get(task.id)
        history = loaded.histories.get(task.id)
        activates = None if task.activates is None else tuple(sorted(set(task.activates)))
        texts = {
            "prompt": task.prompt,
            "expect": task.expect,
            "assert": script.text if script is not None else None,
            "setup": task.setup,
            "cleanup": task.cleanup,
            "history": history.text if history is not None else None,
            "activates": None if activates is None else "\n".join(activates),
        }
        yield TaskHeader(
            task_id=task.id,
            name=task.name,
            key=series.task_key(task.name),
            prompt=task.prompt,
            expect=task.expect,
            assert_script=script.text if script is not None else None,
            assert_path=str(script.path) if script is not None and script.path is not None else None,
            activates=activates,
            setup=task.setup,
            cleanup=task.cleanup,
            history=history.text if history is not None else None,
            digests={name: _digest(text) for name, text in texts.items() if text is not None},
        )


def skill_header(skill: Skill, ablated: tuple[str, ...]) -> SkillHeader:
    return SkillHeader(
        name=skill.name,
        path=skill.path,
        source_kind=skill.source_kind,
        digest=skill.digest,
        installed=skill.name not in ablated,
        description=skill.description,
        git_repo=skill.git_repo,
        git_sha=skill.git_sha,
        git_dirty=skill.git_dirty,
        files={item.path: item.hash for item in skill.files},
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
