"""The asset that runs one evaluation by configuration: what the command line, schedules and the launchpad use.

A Dagster run carries one partition or one rectangle of them. This asset has none, so it can make any set, and yields
a materialization of `attempts`, `verdicts`, `scores` and `scoreboard` for each as it comes.
"""

from collections.abc import Iterator
from pathlib import Path

from dagster import AssetCheckEvaluation, AssetExecutionContext, AssetMaterialization, Config, MaterializeResult, asset
from pydantic import Field

from caliper_pipeline.defs import metadata
from caliper_pipeline.defs.recording import RUN_TAG, parts_of
from caliper_pipeline.defs.resources import BackendResource, History, Judge, RunStore, backends_by_name
from caliper_pipeline.defs.telling import execute, follow, plain_failures
from caliper_pipeline.domain.engine import Engine, parse_engine
from caliper_pipeline.domain.records import RunHeader
from caliper_pipeline.evaluation.discovery import find_spec
from caliper_pipeline.evaluation.prepare import Backends, prepare
from caliper_pipeline.evaluation.project import Project
from caliper_pipeline.evaluation.request import RunRequest
from caliper_pipeline.evaluation.resume import resume
from caliper_pipeline.evaluation.run import Evaluation
from caliper_pipeline.evaluation.standing import summarize
from caliper_pipeline.execution.budget import Allowance


class EvalRunConfig(Config):
    """What to evaluate. Left empty or 0: as caliper.yaml says, and where that is silent, the default named."""

    spec: str = Field(
        description="The spec file (absolute, or relative to the project's folder), or the name of a spec: "
        "`inbox-triage` for inbox-triage.eval.yaml."
    )
    engine: str = Field(
        default="",
        description="The agent: BACKEND, BACKEND:MODEL, or a model of claude-code. Default: claude-code. `scripted` "
        "costs nothing and measures nothing real.",
    )
    judge: str = Field(
        default="",
        description="Engine that judges `expect`. Default: the judge resource, else `judge_model` of caliper.yaml, "
        "else the engine itself.",
    )
    ablate: list[str] = Field(
        default=[],
        description="Declared skills to leave out: a control run, kept as a series of its own. `skill:NAME` or "
        "`mcp:NAME` where a name stands for both.",
    )
    k: int = Field(default=0, ge=0, description="Attempts a task. Default: 3.")
    workers: int = Field(default=0, ge=0, description="Attempts at once. Default: 4.")
    timeout_seconds: float = Field(default=0.0, ge=0, description="Time limit of one attempt's agent. Default: 120.")
    fail_fast: int = Field(
        default=0, ge=0, description="Give a task up after so many lost attempts in a row. 0 never gives it up."
    )
    max_tokens: int = Field(
        default=0, ge=0, description="Start no attempt that may take the run above so many tokens. 0: no limit."
    )
    max_cost_usd: float = Field(
        default=0.0, ge=0, description="The same in dollars, by the prices in caliper.yaml. 0: no limit."
    )
    max_tokens_per_attempt: int = Field(
        default=0, ge=0, description="End an agent that used more tokens than this. 0: no limit."
    )
    isolated: bool | None = Field(
        default=None,
        description="Keep the operator's own rules, skills and servers out of the attempts. Default: as the spec says.",
    )
    tasks: list[str] = Field(default=[], description="Names of the tasks to run. Default: all of them.")
    resume: str | None = Field(
        default=None,
        description="Id of a stopped, crashed or short run to complete: only what is missing is made. A larger `k` "
        "tops it up. Everything but `workers` and the budgets stays as it was.",
    )
    record: str | None = Field(
        default=None,
        description="Set by the recorder of `caliper run`: id of a run that is executed elsewhere. It is followed and "
        "shown; nothing is run. Leave it out.",
    )
    part: int | None = Field(
        default=None,
        ge=1,
        description="Beside `record`: which part of a large run this Dagster run shows. Default: all of it.",
    )


@asset(
    group_name="runs",
    owners=["team:evals"],
    kinds={"python"},
    description="""One evaluation by configuration: a spec, an engine, an arm, k attempts a task.

Materialize it and say in the launchpad what to run; only `spec` is needed. It runs the attempts in a pool of its own
and, **while they end**, materializes the partitions of `attempts` and `verdicts`, then `scores` and `scoreboard`.
Terminate it to stop: running agents end, cleanups run, finished attempts are kept, and `resume` takes it up again.

`caliper run` appears here too, followed as it goes.""",
)
def eval_runs(
    context: AssetExecutionContext,
    config: EvalRunConfig,
    claude_code: BackendResource,
    codex: BackendResource,
    pi: BackendResource,
    hermes: BackendResource,
    claude_api: BackendResource,
    openai_api: BackendResource,
    scripted: BackendResource,
    judge: Judge,
    run_store: RunStore,
    history: History,
) -> Iterator[AssetMaterialization | AssetCheckEvaluation | MaterializeResult]:  # type: ignore[type-arg]
    with plain_failures():
        project = run_store.project()
        if config.record:
            folder = project.store.open(config.record)
            part = parts_of(folder.header())[config.part - 1] if config.part else None
            yield from follow(context, project, folder, part)
        else:
            backends = backends_by_name([claude_code, codex, pi, hermes, claude_api, openai_api, scripted])
            evaluation = _evaluation(project, config, judge, backends, context)
            folder = evaluation.folder
            yield from execute(context, project, evaluation, history)
        header = folder.header()
        yield MaterializeResult(metadata=metadata.eval_run_metadata(header, summarize(header, folder.state())))


def _evaluation(
    project: Project, config: EvalRunConfig, judge: Judge, backends: Backends, context: AssetExecutionContext
) -> Evaluation:
    if run_id := config.resume or _failed_before(context):
        return resume(
            project,
            run_id=run_id,
            k=config.k or None,
            workers=config.workers or None,
            allowance=Allowance(
                config.max_tokens or None, config.max_cost_usd or None, config.max_tokens_per_attempt or None
            ),
            backends=backends,
        )
    k = config.k or project.config.k
    request = RunRequest(
        spec_path=find_spec(project, config.spec),
        engine=parse_engine(config.engine, flag="engine") if config.engine else None,
        judge_engine=judge.choose(config.judge),
        k=k,
        workers=config.workers or None,
        timeout_seconds=config.timeout_seconds or None,
        fail_fast=config.fail_fast or None,
        max_tokens=config.max_tokens or None,
        max_cost_usd=config.max_cost_usd or None,
        max_tokens_per_attempt=config.max_tokens_per_attempt or None,
        ablate=tuple(config.ablate),
        user_customizations=None if config.isolated is None else not config.isolated,
        only=frozenset((name, n) for name in config.tasks for n in range(1, k + 1)) if config.tasks else None,
        origin="dagster",
        dagster_run_id=context.run.run_id,
    )
    return prepare(project, request, backends=backends)


def _failed_before(context: AssetExecutionContext) -> str | None:
    """The run of ours behind "re-execute from failure": it is completed and not begun anew."""
    tags = context.run.tags
    parent = context.instance.get_run_by_id(tags.get("dagster/parent_run_id", ""))
    wanted = parent is not None and tags.get("dagster/is_resume_retry") == "true"
    return parent.tags.get(RUN_TAG) if parent is not None and wanted else None


def recording_config(header: RunHeader, root: Path, part: int | None) -> dict[str, object]:
    """The configuration under which a run of the command line appears: what would run it again, and `record`."""
    path = Path(header.spec_path)
    judge = None if header.judge_backend is None else Engine(header.judge_backend, header.judge_model)
    return {
        "spec": str(path.relative_to(root)) if path.is_relative_to(root) else str(path),
        "engine": metadata.engine_of(header),
        "judge": "" if judge is None else str(judge),
        "ablate": list(header.ablated),
        "k": header.k,
        "workers": header.workers,
        "timeout_seconds": header.timeout_seconds,
        "isolated": header.isolated,
        "fail_fast": header.fail_fast or 0,
        "record": header.run_id,
        **({} if part is None else {"part": part}),
    }
