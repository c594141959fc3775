"""A project in a temporary folder, evaluated with the scripted agent."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.evaluation.prepare import prepare
from caliper_pipeline.evaluation.project import Project, find_project
from caliper_pipeline.evaluation.request import RunRequest
from caliper_pipeline.evaluation.run import Evaluation

SKILL = "---\nname: tides\ndescription: Reads tide tables. Use for tides.\n---\n\nRead the table.\n"


class Bench:
    """Writes specs and scripts, prepares evaluations of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / ".caliper").mkdir()
        (folder / "tides").mkdir()
        (folder / "tides" / "SKILL.md").write_text(SKILL, encoding="utf-8")
        (folder / "home").mkdir()

    @property
    def project(self) -> Project:
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.folder / "home"), "CALIPER_ROOT": str(self.folder)}
        return find_project(self.folder, environ)

    def write(self, tasks: str, script: str, *, skills: str = "[./tides/SKILL.md]") -> Path:
        spec = self.folder / "it.eval.yaml"
        spec.write_text(f"skills: {skills}\ntasks:\n{tasks}", encoding="utf-8")
        (self.folder / "it.script.yaml").write_text(script, encoding="utf-8")
        return spec

    def prepare(
        self, spec: Path, *, k: int = 2, ablate: tuple[str, ...] = (), fail_fast: int | None = None
    ) -> Evaluation:
        request = RunRequest(
            spec_path=spec, engine=Engine("scripted"), k=k, ablate=ablate, fail_fast=fail_fast, workers=2
        )
        return prepare(self.project, request)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


BenchMaker = Callable[[Path], Bench]
