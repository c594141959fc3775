"""What a run's header and its project say, in the forms that attempts and graders take."""

import re
from pathlib import Path

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.records import RunHeader
from caliper_pipeline.evaluation.project import Project
from caliper_pipeline.evaluation.request import RunRequest
from caliper_pipeline.execution.attempt import AttemptSettings
from caliper_pipeline.execution.backends.base import Backend
from caliper_pipeline.execution.budget import Allowance
from caliper_pipeline.execution.grading import GradingSettings
from caliper_pipeline.execution.throttle import Backoff, Gates
from caliper_pipeline.storage.runs import RunFolder

BUDGETS = ("max_tokens", "max_cost_usd", "max_tokens_per_attempt")
"""Names of a run's budgets, in a request and among a header's limits."""


def judge_engine_of(header: RunHeader) -> Engine | None:
    """`None`: nothing is judged by a model."""
    return None if header.judge_backend is None else Engine(header.judge_backend, header.judge_model)


def attempt_settings(
    project: Project, folder: RunFolder, backend: Backend, extra_path: tuple[str, ...]
) -> AttemptSettings:
    header = folder.header()
    limits = _limits(project, header)
    return AttemptSettings(
        engine=Engine(header.backend, header.model),
        backend=backend,
        operator=project.operator,
        timeout_seconds=header.timeout_seconds,
        setup_seconds=limits["setup_seconds"],
        cleanup_seconds=limits["cleanup_seconds"],
        stream_bytes=int(limits["stream_bytes"]),
        snapshot_bytes=int(limits["snapshot_bytes"]),
        retries=int(limits["retries"]),
        skills={skill.name: folder.skill_folder(skill.name) for skill in header.skills if skill.installed},
        isolated=header.isolated,
        extra_path=extra_path,
        ablated=header.ablated,
        spec_path=Path(header.spec_path),
    )


def grading_settings(project: Project, folder: RunFolder, judge_backend: Backend | None) -> GradingSettings:
    header = folder.header()
    limits = _limits(project, header)
    return GradingSettings(
        backend=header.backend,
        operator=project.operator,
        spec_path=Path(header.spec_path),
        installed_skills=tuple(skill.name for skill in header.skills if skill.installed),
        ablated=header.ablated,
        skills_ablated=any(not skill.installed for skill in header.skills),
        forbidden_files=_forbidden(header),
        judge_backend=judge_backend,
        judge_engine=judge_engine_of(header),
        assert_seconds=limits["assert_seconds"],
        judge_seconds=limits["judge_seconds"],
        retries=int(limits["retries"]),
    )


def limits_of(project: Project) -> dict[str, float]:
    return {name: float(value) for name, value in project.config.limits.model_dump().items()}


def allowance_of(header: RunHeader, request: RunRequest | None = None) -> Allowance:
    """What the run may use: as it began, unless it is taken up with other limits."""
    given = {name: getattr(request, name, None) for name in BUDGETS}
    stated = {name: header.limits.get(name) if given[name] is None else given[name] for name in BUDGETS}
    tokens, each = stated["max_tokens"], stated["max_tokens_per_attempt"]
    return Allowance(
        max_tokens=None if tokens is None else int(tokens),
        max_cost_usd=stated["max_cost_usd"],
        max_tokens_per_attempt=None if each is None else int(each),
    )


def gates_of(project: Project, header: RunHeader, workers: int) -> Gates:
    """The gates of the run's engines: for the agents the workers, and as many calls of the judge."""
    limits = _limits(project, header)
    engines = [Engine(header.backend, header.model)]
    judge = judge_engine_of(header)
    if judge is not None:
        engines.append(judge)
    return Gates(
        [(str(engine), project.config.engine_settings(engine).workers or workers) for engine in engines],
        Backoff(limits["backoff_seconds"], limits["backoff_most_seconds"], int(limits["throttled_attempts"])),
    )


def _limits(project: Project, header: RunHeader) -> dict[str, float]:
    """As the run began; a limit that an older version did not know is the project's."""
    return {**limits_of(project), **header.limits}


def _forbidden(header: RunHeader) -> tuple[str, ...]:
    """The patterns of the spec, and where the spec really lies when it was opened through a link."""
    path = Path(header.spec_path)
    real = path.resolve()
    return header.forbidden_files if real == path else (*header.forbidden_files, re.escape(str(real)))
