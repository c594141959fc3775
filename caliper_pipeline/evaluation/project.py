"""The project a command works in: root, configuration, run store, history, and the operator's machine."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from caliper_pipeline.domain.project import ProjectConfig
from caliper_pipeline.execution.backends.base import Operator
from caliper_pipeline.execution.environment import operator_from
from caliper_pipeline.sources.project_file import find_project_root, load_project
from caliper_pipeline.storage.root import root_for_saving
from caliper_pipeline.storage.runs import RunStore


@dataclass(frozen=True, slots=True)
class Project:
    root: Path
    """The folder that holds `.caliper/` (and `caliper.yaml`, when there is one)."""
    config: ProjectConfig
    store: RunStore
    operator: Operator

    @property
    def folder(self) -> Path:
        return self.root / ".caliper"

    @property
    def history_path(self) -> Path:
        return self.folder / "history.duckdb"


def find_project(start: Path, environ: Mapping[str, str] | None = None) -> Project:
    """The project that a folder belongs to. Raises `SpecError` for a faulty caliper.yaml, `StorageError` where
    nothing can be saved. `CALIPER_ROOT` names the root outright."""
    environ = os.environ if environ is None else environ
    named = environ.get("CALIPER_ROOT")
    root = Path(named).resolve() if named else root_for_saving(find_project_root(start))
    config = load_project(root)
    rules = config.environment
    return Project(root, config, RunStore(root), operator_from(environ, rules.everywhere, rules.agent))
