"""Dagster, and only Dagster: assets, resources, jobs, and the processes that tell it about runs. No business logic."""

import warnings

# Both are marked as unfinished by this version of Dagster; that is for us to watch, not for those who run this.
warnings.filterwarnings("ignore", message="Parameter `backfill_policy` of")
warnings.filterwarnings("ignore", message="Specifying a partitions_def on an AssetCheckSpec")
