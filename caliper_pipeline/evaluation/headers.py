"""What goes into a run, as its `run.json` says it."""

import hashlib
import os
import platform
import socket
from collections.abc import Iterable
from datetime import UTC, datetime

from caliper_pipeline import __version__
from caliper_pipeline.domain.records import RunHeader, SkillHeader, TaskHeader
from caliper_pipeline.domain.series import Series
from caliper_pipeline.domain.skills import Skill
from caliper_pipeline.evaluation.project import Project
from caliper_pipeline.evaluation.request import RunRequest
from caliper_pipeline.sources.skill_source import find_git_state
from caliper_pipeline.sources.spec_file import LoadedSpec
from caliper_pipeline.storage.runs import new_run_id


def run_header(
    project: Project,
    request: RunRequest,
    loaded: LoadedSpec,
    skills: Iterable[Skill],
    series: Series,
    k: int,
    limits: dict[str, float],
) -> RunHeader:
    config = project.config
    git = find_git_state(loaded.directory)
    now = datetime.now(UTC)
    engine = series.engine
    return RunHeader(
        run_id=request.run_id or new_run_id(now),
        spec=loaded.name,
        spec_path=str(loaded.path),
        spec_text=loaded.text,
        spec_digest=loaded.digest,
        backend=engine.backend,
        model=engine.model,
        ablated=series.ablated,
        isolated=series.isolated,
        series_key=series.key,
        k=k,
        workers=request.workers or config.engine_settings(engine).workers or config.workers,
        timeout_seconds=(
            request.timeout_seconds or config.engine_settings(engine).timeout_seconds or config.timeout_seconds
        ),
        fail_fast=request.fail_fast,
        started_at=now,
        tasks=tuple(task_headers(loaded, series)),
        skills=tuple(skill_header(skill, series.ablated) for skill in skills),
        mcp_servers=tuple(name for name in loaded.spec.mcp if f"mcp:{name}" not in series.ablated),
        forbidden_files=tuple(loaded.spec.sandbox.forbidden_files),
        product_version=__version__,
        python_version=platform.python_version(),
        host=socket.gethostname(),
        platform=f"{platform.system()} {platform.machine()}",
        cpu_count=os.cpu_count(),
        git_commit=git.commit if git is not None else None,
        git_dirty=git.dirty if git is not None else None,
        origin=request.origin,
        dagster_run_id=request.dagster_run_id,
        pid=os.getpid(),
        limits=limits,
        prices=config.price_table(),
    )


def task_headers(loaded: LoadedSpec, series: Series) -> Iterable[TaskHeader]:
    for task in loaded.spec.tasks:
        script = loaded.asserts.get(task.id)
        history = loaded.histories.get(task.id)
        activates = None if task.activates is None else tuple(sorted(set(task.activates)))
        texts = {
            "prompt": task.prompt,
            "expect": task.expect,
            "assert": script.text if script is not None else None,
            "setup": task.setup,
            "cleanup": task.cleanup,
            "history": history.text if history is not None else None,
            "activates": None if activates is None else "\n".join(activates),
        }
        yield TaskHeader(
            task_id=task.id,
            name=task.name,
            key=series.task_key(task.name),
            prompt=task.prompt,
            expect=task.expect,
            assert_script=script.text if script is not None else None,
            assert_path=str(script.path) if script is not None and script.path is not None else None,
            activates=activates,
            setup=task.setup,
            cleanup=task.cleanup,
            history=history.text if history is not None else None,
            digests={name: _digest(text) for name, text in texts.items() if text is not None},
        )


def skill_header(skill: Skill, ablated: tuple[str, ...]) -> SkillHeader:
    return SkillHeader(
        name=skill.name,
        path=skill.path,
        source_kind=skill.source_kind,
        digest=skill.digest,
        installed=skill.name not in ablated,
        description=skill.description,
        git_repo=skill.git_repo,
        git_sha=skill.git_sha,
        git_dirty=skill.git_dirty,
        files={item.path: item.hash for item in skill.files},
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
