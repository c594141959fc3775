"""Runs in other forms: results files, Parquet, and the logs that Inspect reads."""
