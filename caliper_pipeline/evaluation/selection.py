"""Evaluations for a set of chosen attempts, whatever series they belong to: what a choice of partitions asks for."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.errors import BadInput
from caliper_pipeline.evaluation.prepare import Backends, prepare
from caliper_pipeline.evaluation.project import Project
from caliper_pipeline.evaluation.registry import by_series, shared_run
from caliper_pipeline.evaluation.request import RunRequest
from caliper_pipeline.evaluation.resume import regrade
from caliper_pipeline.evaluation.run import Evaluation
from caliper_pipeline.evaluation.standing import runs_holding
from caliper_pipeline.execution.budget import Allowance


@dataclass(frozen=True, slots=True)
class Options:
    """What a choice of attempts does not say by itself. `None`: as the series last had it, or caliper.yaml says."""

    judge: Engine | None = None
    workers: int | None = None
    timeout_seconds: float | None = None
    fail_fast: int | None = None
    allowance: Allowance = field(default_factory=Allowance)
    """For the run of each series."""
    dagster_run_id: str | None = None
    purpose: str | None = None
    """Processes that name the same purpose add to one run a series. `None`: a run of its own."""


def run_chosen(
    project: Project, wanted: Sequence[tuple[str, int]], options: Options, *, backends: Backends | None = None
) -> Iterator[Evaluation]:
    """For (task key, attempt) pairs one evaluation a series, each prepared when the one before it is done with.

    Raises `BadInput` for keys that stand for nothing, before anything is prepared.
    """
    for entry, chosen in by_series(project, wanted):
        request = RunRequest(
            spec_path=Path(entry.spec_path),
            engine=entry.engine,
            judge_engine=options.judge or entry.judge,
            k=max(attempt for _, attempt in chosen),
            workers=options.workers,
            timeout_seconds=options.timeout_seconds,
            fail_fast=options.fail_fast,
            ablate=entry.ablate,
            user_customizations=not entry.isolated,
            only=chosen,
            max_tokens=options.allowance.max_tokens,
            max_cost_usd=options.allowance.max_cost_usd,
            max_tokens_per_attempt=options.allowance.max_tokens_per_attempt,
            origin="dagster",
            dagster_run_id=options.dagster_run_id,
        )
        if options.purpose is None:
            yield prepare(project, request, backends=backends)
        else:
            with shared_run(project, options.purpose, entry.key) as run_id:
                evaluation = prepare(project, replace(request, run_id=run_id), backends=backends)
            yield evaluation


def regrade_chosen(
    project: Project, wanted: Sequence[tuple[str, int]], *, backends: Backends | None = None
) -> Iterator[Evaluation]:
    """For (task key, attempt) pairs regradings of the latest run that has each. Raises `BadInput` when none has."""
    for entry, chosen in by_series(project, wanted):
        shares = runs_holding(project.store, entry.key, chosen)
        lacking = sorted(chosen - {pair for share in shares.values() for pair in share})
        if lacking:
            name, attempt = lacking[0]
            raise BadInput(
                f"{len(lacking)} of the chosen attempts of {entry.key} never ran, so there is nothing to grade: "
                f"{name}, attempt {attempt}{' and others' if lacking[1:] else ''}.",
                hint="Materialize `attempts` and `verdicts` together to run them.",
            )
        for run_id, share in shares.items():
            yield regrade(project, run_id, share, backends=backends)
