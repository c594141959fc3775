"""The jobs: one evaluation by configuration, and reading specs again."""

from dagster import AssetSelection, define_asset_job

EVALUATE = "evaluate"
"""Not called like its asset: an asset's step takes a name in the same space."""

evaluate_job = define_asset_job(
    EVALUATE,
    selection=AssetSelection.assets("eval_runs"),
    description="Evaluate one spec: choose it, the engine and the number of attempts in the launchpad.",
)
register_specs_job = define_asset_job(
    "register_specs",
    selection=AssetSelection.assets("specs", "skill_sources"),
    description="Read specs and their skills again, and register their tasks. Runs no agent.",
)
