"""The assets that sum up: the score of each task, and the headline of each series, both of its latest run."""

from collections.abc import Iterator

from dagster import (
    AllPartitionMapping,
    AssetCheckExecutionContext,
    AssetCheckResult,
    AssetCheckSeverity,
    AssetDep,
    AssetExecutionContext,
    AssetMaterialization,
    BackfillPolicy,
    Failure,
    MaterializeResult,
    asset,
    asset_check,
)

from caliper_pipeline.defs import metadata
from caliper_pipeline.defs.partitions import series_partitions, task_partitions
from caliper_pipeline.defs.recording import FROM_VERDICTS, SCORES, rests_on
from caliper_pipeline.defs.resources import RunStore
from caliper_pipeline.defs.telling import plain_failures
from caliper_pipeline.evaluation.registry import by_series
from caliper_pipeline.evaluation.standing import enough_usable, latest_run, summarize


@asset(
    group_name="scores",
    owners=["team:evals"],
    kinds={"python"},
    partitions_def=task_partitions,
    backfill_policy=BackfillPolicy.single_run(),
    output_required=False,
    deps=[AssetDep("verdicts", partition_mapping=AllPartitionMapping())],
    description="""How often each task succeeds: the success rate over usable attempts of the latest run of its series.

`success_low` and `success_high` are the ends of the 95 % Wilson interval; with few attempts it is wide, and a smaller
difference than that says nothing. Runs yield this by themselves; materializing it only sums up again.""",
)
def scores(context: AssetExecutionContext, run_store: RunStore) -> Iterator[AssetMaterialization]:
    with plain_failures():
        project = run_store.project()
        for key in context.partition_keys:
            [(series, chosen)] = by_series(project, [(key, 1)])
            name = next(iter(chosen))[0]
            folder = latest_run(project.store, series.key, task_name=name)
            if folder is None:
                context.log.warning(f"No run has a verdict on {key} yet.")
                continue
            header, state = folder.header(), folder.state()
            task = next(item for item in summarize(header, state).task_results if item.task_name == name)
            entries = metadata.score_metadata(header, task, rests_on(state)[task.task_id])
            yield AssetMaterialization(SCORES, partition=key, metadata=entries, tags=FROM_VERDICTS)


@asset(
    group_name="scores",
    owners=["team:evals"],
    kinds={"dashboard"},
    partitions_def=series_partitions,
    deps=[AssetDep("scores", partition_mapping=AllPartitionMapping())],
    description="""The headline of each series (spec, engine, arm, setup): its latest run that covers every task.

`success_rate` is the mean of the tasks' rates; `success_low` and `success_high` are the ends of its 95 % interval for
these tasks. Activation is scored apart: whether the skill came into play exactly where the spec wants it.""",
)
def scoreboard(context: AssetExecutionContext, run_store: RunStore) -> MaterializeResult:  # type: ignore[type-arg]
    with plain_failures():
        project = run_store.project()
        folder = latest_run(project.store, context.partition_key)
        if folder is None:
            raise Failure(f"No run of {context.partition_key} covers every task yet.", allow_retries=False)
        header, state = folder.header(), folder.state()
        path = None if state.end is None or state.end.results is None else project.root / state.end.results
        entries = metadata.scoreboard_metadata(header, summarize(header, state), path, rests_on(state).total())
        return MaterializeResult(metadata=entries)


@asset_check(
    asset=scoreboard,
    partitions_def=series_partitions,
    description="""Measures whether at least half of each task's attempts could be used.

A rate over what is left of mostly lost attempts says little, and losses are rarely random. Timeouts and infrastructure
errors are fixed in the environment or with a larger `timeout_seconds`, judge errors at the judge; the verdicts of the
attempts tell which it was.""",
)
def usable_attempts(context: AssetCheckExecutionContext, run_store: RunStore) -> AssetCheckResult:
    project = run_store.project()
    folder = latest_run(project.store, context.partition_key)
    if folder is None:
        return AssetCheckResult(passed=False, severity=AssetCheckSeverity.WARN, description="No run to look at.")
    passed, why = enough_usable(summarize(folder.header(), folder.state()))
    entries = metadata.origin_metadata(folder.header())
    return AssetCheckResult(passed=passed, severity=AssetCheckSeverity.WARN, description=why, metadata=entries)
