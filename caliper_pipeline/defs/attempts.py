"""The assets of attempts and verdicts, made by partitions: from the UI's partition dialog and by backfills."""

from collections.abc import Iterator

from dagster import (
    AllPartitionMapping,
    AssetCheckEvaluation,
    AssetDep,
    AssetExecutionContext,
    AssetMaterialization,
    AssetSpec,
    BackfillPolicy,
    Config,
    Failure,
    multi_asset,
)
from pydantic import Field

from caliper_pipeline.defs.partitions import attempt_partitions, read_attempt_partition
from caliper_pipeline.defs.recording import VERDICTS
from caliper_pipeline.defs.resources import BackendResource, History, Judge, RunStore, backends_by_name
from caliper_pipeline.defs.telling import execute, plain_failures
from caliper_pipeline.evaluation.selection import Options, regrade_chosen, run_chosen
from caliper_pipeline.execution.budget import Allowance

BACKFILL_TAG = "dagster/backfill"


class AttemptsConfig(Config):
    """How to run the chosen attempts; spec, engine and arm are in their partitions. What is left empty or 0 is as
    caliper.yaml says, and where that is silent, the default named."""

    judge: str = Field(default="", description="Engine that judges `expect`. Default: as the series last had it.")
    workers: int = Field(default=0, ge=0, description="Attempts at once. Default: 4.")
    timeout_seconds: float = Field(default=0.0, ge=0, description="Time limit of one attempt's agent. Default: 120.")
    fail_fast: int = Field(
        default=0, ge=0, description="Give a task up after so many lost attempts in a row. 0 never gives it up."
    )
    max_tokens: int = Field(
        default=0,
        ge=0,
        description="Start no attempt that may take the run of a series above so many tokens.",
    )
    max_cost_usd: float = Field(
        default=0.0, ge=0, description="The same in dollars, by the prices in caliper.yaml. 0: no limit."
    )
    max_tokens_per_attempt: int = Field(
        default=0, ge=0, description="End an agent that used more tokens than this. 0: no limit."
    )


@multi_asset(
    name="attempts_and_verdicts",
    group_name="runs",
    can_subset=True,
    partitions_def=attempt_partitions,
    backfill_policy=BackfillPolicy.single_run(),
    specs=[
        AssetSpec(
            "attempts",
            skippable=True,
            owners=["team:evals"],
            kinds={"python", "json"},
            deps=[
                AssetDep("specs", partition_mapping=AllPartitionMapping()),
                AssetDep("skill_sources", partition_mapping=AllPartitionMapping()),
            ],
            description="""What an agent did with a task, in a fresh folder and home: one partition an attempt.

The partition names the series, `<spec>/<engine>[~<ablated>][+isolated]/<task>`, and the attempt. Materialize any of
them, with `verdicts` or alone: an attempt is graded in its live folder, so it always brings its verdict along.
`evidence` is the folder with transcript, raw stream and a snapshot of the workdir.""",
        ),
        AssetSpec(
            "verdicts",
            skippable=True,
            owners=["team:evals"],
            kinds={"python", "json"},
            deps=["attempts"],
            description="""The judgement on each attempt: outcome, checks, the judge's reasons, and the skills used.

Outcomes: `pass`, `task_fail` and `cheat` count in success rates; `infra_error`, `timeout` and `judge_error` were lost
to the execution and do not; `not_checked` is a probe of activation. Materialize `verdicts` alone to grade stored
attempts again: the workdir is restored from its snapshot and no agent is paid for. `generation` counts gradings.""",
        ),
    ],
)
def attempts_and_verdicts(
    context: AssetExecutionContext,
    config: AttemptsConfig,
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
) -> Iterator[AssetMaterialization | AssetCheckEvaluation]:
    with plain_failures():
        project = run_store.project()
        backends = backends_by_name([claude_code, codex, pi, hermes, claude_api, openai_api, scripted])
        wanted = [read_attempt_partition(key) for key in context.partition_keys]
        if not wanted:
            raise Failure("The chosen range holds no partition: its start lies behind its end.", allow_retries=False)
        if context.selected_asset_keys == {VERDICTS}:
            evaluations = regrade_chosen(project, wanted, backends=backends)
        else:
            options = Options(
                judge=judge.choose(config.judge),
                workers=config.workers or None,
                timeout_seconds=config.timeout_seconds or None,
                fail_fast=config.fail_fast or None,
                allowance=Allowance(
                    config.max_tokens or None, config.max_cost_usd or None, config.max_tokens_per_attempt or None
                ),
                dagster_run_id=context.run.run_id,
                purpose=context.run.tags.get(BACKFILL_TAG),
            )
            evaluations = run_chosen(project, wanted, options, backends=backends)
        for evaluation in evaluations:
            yield from execute(context, project, evaluation, history)
