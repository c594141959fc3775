"""The use cases: prepare, run, resume, regrade, publish. Free of Dagster."""
