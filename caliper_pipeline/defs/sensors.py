"""The sensor that finds specs: new ones and edited ones become partitions, and are read. It never runs an agent."""

import json

from dagster import (
    AssetRecordsFilter,
    DagsterInstance,
    DefaultSensorStatus,
    RunRequest,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
    sensor,
)

from caliper_pipeline.defs.jobs import register_specs_job
from caliper_pipeline.defs.partitions import attempt_numbers, series_partitions, spec_partitions, task_partitions
from caliper_pipeline.defs.recording import DATA_VERSION_TAG, SPECS
from caliper_pipeline.defs.resources import RunStore
from caliper_pipeline.domain.series import attempt_key, slug
from caliper_pipeline.evaluation.registration import DescribedSpec, look_for_news
from caliper_pipeline.evaluation.registry import register

SECONDS = 30


@sensor(
    job=register_specs_job,
    minimum_interval_seconds=SECONDS,
    default_status=DefaultSensorStatus.RUNNING,
    description="""Finds new and edited specs by their content and registers their tasks as partitions.

A spec that cannot be read (faulty, or half written) is looked at again at the next tick and holds nobody up. It runs
no agent.""",
)
def new_and_edited_specs(context: SensorEvaluationContext, run_store: RunStore) -> SensorResult:
    project = run_store.project()
    news = look_for_news(project, json.loads(context.cursor) if context.cursor else {})
    for text in news.unreadable:
        context.log.warning(text)
    for described in news.specs:
        register(project, described.series)
    fresh = [item for item in news.specs if not _is_shown(context.instance, item)]
    return SensorResult(
        run_requests=[
            RunRequest(run_key=f"{slug(item.spec)}:{item.spec_digest}", partition_key=slug(item.spec)) for item in fresh
        ],
        dynamic_partitions_requests=[
            spec_partitions.build_add_request([slug(item.spec) for item in fresh]),
            series_partitions.build_add_request([item.series.key for item in fresh]),
            task_partitions.build_add_request([key for item in fresh for key in item.series.tasks]),
            attempt_numbers.build_add_request([attempt_key(n) for n in range(1, project.config.k + 1)]),
        ]
        if fresh
        else [],
        cursor=json.dumps(news.known),
        skip_reason=None if fresh else SkipReason("No spec is new or edited."),
    )


def _is_shown(instance: DagsterInstance, described: DescribedSpec) -> bool:
    """A run of it told Dagster already."""
    wanted = AssetRecordsFilter(SPECS, asset_partitions=[slug(described.spec)])
    for record in instance.fetch_materializations(wanted, limit=1).records:
        shown = record.asset_materialization
        return shown is not None and (shown.tags or {}).get(DATA_VERSION_TAG) == described.spec_digest
    return False
