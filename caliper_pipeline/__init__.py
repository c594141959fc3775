"""Caliper: measures whether an AI agent's skill works.

Importing this package imports neither Dagster nor DuckDB nor pandas, so that every command starts fast.
"""

__version__ = "0.1.0"
