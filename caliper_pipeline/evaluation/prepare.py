"""Everything that is checked and gathered before the first attempt: what is refused here has cost nothing.

The result is an `Evaluation` whose run folder is open: `run.json` says all that went in.
"""

from collections.abc import Iterable
from dataclasses import replace

from caliper_pipeline.domain.engine import Engine, parse_engine
from caliper_pipeline.domain.errors import BadInput, CaliperError, CannotRun
from caliper_pipeline.domain.prices import price_of
from caliper_pipeline.domain.project import MOST_ATTEMPTS, MOST_DOLLARS, MOST_SECONDS, MOST_TOKENS, MOST_WORKERS
from caliper_pipeline.domain.series import Series
from caliper_pipeline.domain.skills import Skill, resolve_ablation
from caliper_pipeline.evaluation.headers import run_header, task_headers
from caliper_pipeline.evaluation.logins import as_error
from caliper_pipeline.evaluation.project import Project
from caliper_pipeline.evaluation.request import RunRequest
from caliper_pipeline.evaluation.run import Evaluation, planned_k
from caliper_pipeline.evaluation.settings import BUDGETS, allowance_of, limits_of
from caliper_pipeline.execution.backends.base import Backend, BackendInfo, Capabilities, Invocation, Server
from caliper_pipeline.execution.backends.registry import make_backend
from caliper_pipeline.execution.command import StopToken
from caliper_pipeline.execution.environment import login_values
from caliper_pipeline.execution.judge.autorater import probe_judge, prompt_version
from caliper_pipeline.execution.preflight import check_servers
from caliper_pipeline.execution.process import ProcessLauncher
from caliper_pipeline.execution.servers import resolve_servers, secret_values
from caliper_pipeline.execution.workdir import make_attempt_folder
from caliper_pipeline.sources.skill_source import load_skills
from caliper_pipeline.sources.spec_file import LoadedSpec, load_spec
from caliper_pipeline.storage.runs import RunFolder

Backends = dict[str, Backend]


def prepare(
    project: Project, request: RunRequest, *, backends: Backends | None = None, probe: bool = True
) -> Evaluation:
    """The evaluation that was asked for, ready to execute.

    `backends` replaces the built-in ones by name (Dagster hands in its resources); `probe`: see that the declared
    servers live, and ask the judge a trivial question, before any attempt is paid for. Raises `BadInput`, `CannotRun`
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
    _refuse_unpriced(project, request, [engine, *([judge_engine] if judge_engine is not None else [])])
    existing = _existing(project, request.run_id)
    series = Series(loaded.name, engine, ablated, isolated)
    k = request.k or config.k
    limits = limits_of(project) | {name: float(v) for name in BUDGETS if (v := getattr(request, name)) is not None}
    info = backend.check(operator, tuple(spec.sandbox.extra_path), engine, loaded.path)
    _refuse_beyond_backend(loaded, request, engine, info.capabilities or backend.capabilities)
    # A script needs no server, and neither does grading what was done.
    starting = not engine.simulated and (existing is None or (probe and _lacks_attempts(existing, request.only, k)))
    granted = {name: server for name, server in spec.mcp.items() if f"mcp:{name}" not in ablated} if starting else {}
    servers = resolve_servers(granted, operator.environment, loaded.directory, str(loaded.path))
    judge_info = (
        _check_judge(judge_backend, judge_engine, project, loaded) if judge_backend and judge_engine else BackendInfo()
    )
    if existing is not None:
        _joinable(existing, series, loaded)
    if not engine.simulated:
        _rehearse(
            backend,
            engine,
            project,
            loaded,
            isolated=isolated,
            skills=tuple(skill.name for skill in skills if skill.name not in ablated),
            ablated=ablated,
            servers=servers,
        )
    secrets = secret_values(granted, operator.environment) | login_values(operator)
    if probe:
        check_servers(
            servers,
            operator=operator,
            extra_path=spec.sandbox.extra_path,
            shown=str(loaded.path),
            secrets=secrets,
            seconds=limits["mcp_seconds"],
        )
    if judge_backend is not None and judge_engine is not None and probe:
        _probe_judge(judge_backend, judge_engine, project, loaded, limits["judge_seconds"])
    if existing is not None:
        folder = existing
    else:
        header = run_header(project, request, loaded, skills, series, k, limits)
        header = replace(
            header,
            judge_backend=judge_engine.backend if judge_engine else None,
            simulated=engine.simulated or (judge_engine is not None and judge_engine.simulated),
            judge_model=judge_engine.model if judge_engine else None,
            judge_prompt_version=prompt_version() if judge_engine else None,
            cli_version=info.version,
            judge_cli_version=judge_info.version,
            loaded_user_customizations=None if isolated else _user_layer(project, loaded, skills, backend),
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
        workers=request.workers or config.engine_settings(engine).workers or config.workers,
        allowance=allowance_of(folder.header(), request),
        servers=servers,
        secrets=secrets,
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
        ("max_tokens", request.max_tokens, MOST_TOKENS),
        ("max_tokens_per_attempt", request.max_tokens_per_attempt, MOST_TOKENS),
        ("max_cost_usd", request.max_cost_usd, MOST_DOLLARS),
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
        raise _of_judge(error, backend, project) from error


def _of_judge(error: CannotRun, backend: Backend, project: Project) -> CaliperError:
    named = type(error)(f"The {backend.name} judge cannot run: {error.message}", hint=error.hint)
    return as_error(named, backend, project.operator)


def _probe_judge(backend: Backend, engine: Engine, project: Project, loaded: LoadedSpec, limit_seconds: float) -> None:
    """One small question, so that a judge that cannot work costs no attempt."""
    if engine.simulated:
        return
    stop = StopToken()
    try:
        with ProcessLauncher() as launcher:
            found = probe_judge(
                launcher,
                stop,
                backend=backend,
                engine=engine,
                operator=project.operator,
                limit_seconds=limit_seconds,
                spec_path=loaded.path,
            )
    except CannotRun as error:
        raise _of_judge(error, backend, project) from error
    finally:
        stop.close()
    if isinstance(found, str):
        raise CannotRun(f"The {engine.backend} judge cannot run: {found}", hint="Use --judge-model for another one.")
    if found is not None:
        raise as_error(backend.explain(found, engine, judge=True), backend, project.operator)


def _rehearse(
    backend: Backend,
    engine: Engine,
    project: Project,
    loaded: LoadedSpec,
    *,
    isolated: bool,
    skills: tuple[str, ...],
    ablated: tuple[str, ...],
    servers: tuple[Server, ...],
) -> None:
    """Makes a home ready as for an attempt and throws it away: what cannot be made ready is refused here, before any
    `setup`. Raises `CannotRun`."""
    with make_attempt_folder() as folder:
        backend.prepare(
            Invocation(
                engine=engine,
                prompt="",
                home=folder.home,
                workdir=folder.workdir,
                operator=project.operator,
                timeout_seconds=project.config.timeout_seconds,
                isolated=isolated,
                extra_path=tuple(loaded.spec.sandbox.extra_path),
                skills=skills,
                ablated=ablated,
                spec_path=loaded.path,
                servers=servers,
                declared_servers=tuple(loaded.spec.mcp) if loaded.spec.mcp_declared else None,
            )
        )


def _refuse_beyond_backend(loaded: LoadedSpec, request: RunRequest, engine: Engine, can: Capabilities) -> None:
    """What this backend, as installed, cannot honour: refused before anything is paid for."""
    if loaded.spec.mcp and not can.mcp:
        raise CannotRun(
            f"{loaded.path}: mcp: the backend {engine.backend} cannot be given servers."
            + (f" {can.why_not['mcp']}" if "mcp" in can.why_not else ""),
            hint="Choose another engine with --model, or remove `mcp:` to run the tasks without servers.",
        )
    if request.max_tokens_per_attempt is not None and not (can.limits_tokens or can.token_counter):
        raise CannotRun(
            f"--max-tokens-per-attempt: {engine.backend} tells of its tokens only when it has ended.",
            hint="Use --max-tokens, which is looked at before each attempt, or --timeout.",
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


def _refuse_unpriced(project: Project, request: RunRequest, engines: Iterable[Engine]) -> None:
    """A budget in dollars needs a price for whatever may be paid for."""
    if request.max_cost_usd is None:
        return
    prices = project.config.price_table()
    missing = [
        str(engine)
        for engine in engines
        if not engine.simulated and price_of(prices, backend=engine.backend, model=engine.model) is None
    ]
    if missing:
        raise BadInput(
            f"--max-cost: there is no price for {', '.join(dict.fromkeys(missing))}.",
            hint="State it in caliper.yaml, in dollars for a million tokens: "
            f"prices: {{'{missing[0]}': {{input: 3, output: 15, cache_read: 0.3, cache_creation: 3.75}}}}",
        )


def _user_layer(
    project: Project, loaded: LoadedSpec, skills: Iterable[Skill], backend: Backend
) -> tuple[str, ...] | None:
    """What the attempts will load of the operator's. An empty `mcp:` keeps all servers out."""
    names = backend.user_layer(project.operator, tuple(skill.name for skill in skills), tuple(loaded.spec.mcp))
    if names is None or not loaded.spec.mcp_declared or loaded.spec.mcp:
        return names
    return tuple(name for name in names if not name.startswith("mcp:"))


def _lacks_attempts(folder: RunFolder, only: frozenset[tuple[str, int]] | None, k: int) -> bool:
    """Whether the run still has agents to start."""
    header, state = folder.header(), folder.state()
    ids = {task.name: task.task_id for task in header.tasks}
    wanted = only or {(name, n) for name in ids for n in range(1, max(k, planned_k(folder)) + 1)}
    return any((ids.get(name), n) not in state.attempts for name, n in wanted)


def _existing(project: Project, run_id: str | None) -> RunFolder | None:
    return project.store.open(run_id) if run_id is not None and run_id in project.store.run_ids() else None


def _joinable(folder: RunFolder, series: Series, loaded: LoadedSpec) -> None:
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
