"""A project on disk with some recorded runs, and a way to run a command in it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

FIXTURES = Path(__file__).parents[1] / "fixtures" / "results"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project that the command runs in."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CALIPER_ROOT", raising=False)
    monkeypatch.setenv("COLUMNS", "240")
    return tmp_path


@pytest.fixture
def record(project: Path) -> Callable[..., Path]:
    """Puts a results file on record; keywords change its `run`."""

    def put(spec: str, file_id: str, **run: Any) -> Path:
        data = json.loads((FIXTURES / "reference-0.21.0.json").read_text(encoding="utf-8"))
        data["run"].update({"spec": spec, **run})
        path = project / ".caliper" / "results" / spec / f"{file_id}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(data), encoding="utf-8")
        return path

    return put


@pytest.fixture
def caliper(project: Path) -> Callable[..., Result]:
    """Runs `caliper` with the arguments, as the command line does."""
    from caliper_pipeline.interfaces.cli import caliper as group

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(group, list(arguments), catch_exceptions=True)

    return run
