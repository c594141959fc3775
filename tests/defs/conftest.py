"""A project, instances of Dagster, and runs that no agent made: their lines are written by hand."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from dagster import DagsterInstance

from caliper_pipeline.evaluation.project import Project, find_project

BETA = ("ignore:Parameter `backfill_policy` of", "ignore:Specifying a partitions_def on an AssetCheckSpec")


def pytest_configure(config: pytest.Config) -> None:
    # What defs/__init__.py says to Python; pytest has filters of its own.
    for line in BETA:
        config.addinivalue_line("filterwarnings", line)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "project"
    (root / ".caliper").mkdir(parents=True)
    monkeypatch.setenv("CALIPER_ROOT", str(root))
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    return root


@pytest.fixture
def project(root: Path) -> Project:
    return find_project(root)


@pytest.fixture
def instance() -> Iterator[DagsterInstance]:
    with DagsterInstance.ephemeral() as instance:
        yield instance
