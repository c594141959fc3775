"""The assets of what is evaluated: specs, and the skills that they declare."""

from collections.abc import Iterator

from dagster import (
    AssetExecutionContext,
    AssetMaterialization,
    BackfillPolicy,
    asset,
)

from caliper_pipeline.defs import metadata
from caliper_pipeline.defs.partitions import add_keys, spec_partitions
from caliper_pipeline.defs.recording import DATA_VERSION_TAG, SKILL_SOURCES, SPECS, sources_digest
from caliper_pipeline.defs.resources import RunStore
from caliper_pipeline.defs.telling import plain_failures
from caliper_pipeline.domain.series import slug
from caliper_pipeline.evaluation.discovery import find_specs, spec_name
from caliper_pipeline.evaluation.project import Project
from caliper_pipeline.evaluation.registration import DescribedSpec, describe
from caliper_pipeline.evaluation.registry import register


@asset(
    group_name="sources",
    owners=["team:evals"],
    kinds={"yaml"},
    partitions_def=spec_partitions,
    backfill_policy=BackfillPolicy.single_run(),
    output_required=False,
    description="""The spec files (`*.eval.yaml`): tasks, their checks, and the skills to install.

Materializing one reads it again and registers its tasks as partitions under the default engine, so that they can be
chosen below. It runs no agent.""",
)
def specs(context: AssetExecutionContext, run_store: RunStore) -> Iterator[AssetMaterialization]:
    with plain_failures():
        project = run_store.project()
        for key, described in _described(context, project):
            register(project, described.series)
            add_keys(
                context.instance,
                specs=[key],
                series=[described.series.key],
                tasks=described.series.tasks,
                attempts=project.config.k,
            )
            for text in described.warnings:
                context.log.warning(text)
            yield AssetMaterialization(
                SPECS,
                partition=key,
                metadata=metadata.spec_metadata(described),
                tags={DATA_VERSION_TAG: described.spec_digest},
            )


@asset(
    group_name="sources",
    owners=["team:evals"],
    kinds={"markdown", "git"},
    partitions_def=spec_partitions,
    backfill_policy=BackfillPolicy.single_run(),
    output_required=False,
    deps=[specs],
    description="""The skills that each spec declares, exactly as they are installed: files, digests, git commits.

A changed digest under an unchanged name is drift: runs before and after it did not test the same skill.""",
)
def skill_sources(context: AssetExecutionContext, run_store: RunStore) -> Iterator[AssetMaterialization]:
    with plain_failures():
        for key, described in _described(context, run_store.project()):
            yield AssetMaterialization(
                SKILL_SOURCES,
                partition=key,
                metadata=metadata.skill_sources_metadata(described.skills),
                tags={DATA_VERSION_TAG: sources_digest(described.skills)},
            )


def _described(context: AssetExecutionContext, project: Project) -> Iterator[tuple[str, DescribedSpec]]:
    """The chosen specs by their keys. One that is gone is passed over with a warning."""
    found = {slug(spec_name(path)): path for path in find_specs(project)}
    for key in context.partition_keys:
        if key in found:
            yield key, describe(project, found[key])
        else:
            context.log.warning(f"There is no spec {key} under {project.root} any more.")
