"""What a view of the history is made of, and the columns that most of them begin with. Text only."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class View:
    """A question that people ask, ready to read."""

    name: str
    about: str
    """What one row is."""
    columns: Mapping[str, str]
    """Name → comment, for all columns, in order."""
    select: str
    example: str
    """A query to start from."""


SERIES_COLUMNS = {
    "series_key": "what is followed over time: spec, engine, arm and setup",
    "spec": "name of the spec",
    "engine": "backend and model",
    "arm": "'full', or what was taken away",
}
RUN_COLUMNS = {
    **SERIES_COLUMNS,
    "run_id": "the run",
    "run_utc": "start of the run, or its end where no start is recorded",
}
SIMULATED = {"simulated": "a script played the agent: the figures say nothing about a real one"}

RUN_UTC = "coalesce(r.started_utc, r.ended_utc)"
SERIES_PARTITION = "r.spec, r.engine, r.arm, r.series_key"
"""Spec, engine and arm follow from the series; named here, a filter on them is applied before the window is made."""
