"""Dagster, and only Dagster: the assets, resources, jobs and the recorder."""
