"""Making a spec known before it ever ran: what it holds, and the series that its tasks belong to by default."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from caliper_pipeline.domain.engine import parse_engine
from caliper_pipeline.domain.errors import CaliperError
from caliper_pipeline.domain.records import SkillHeader, TaskHeader
from caliper_pipeline.domain.series import Series
from caliper_pipeline.evaluation.discovery import find_specs, spec_name
from caliper_pipeline.evaluation.headers import skill_header, task_headers
from caliper_pipeline.evaluation.prepare import loads_customizations
from caliper_pipeline.evaluation.project import Project
from caliper_pipeline.evaluation.registry import RegisteredSeries, new_series
from caliper_pipeline.evaluation.request import RunRequest
from caliper_pipeline.execution.backends.registry import make_backend
from caliper_pipeline.sources.skill_source import find_git_state, load_skills
from caliper_pipeline.sources.spec_file import load_spec


@dataclass(frozen=True, slots=True)
class DescribedSpec:
    """A spec as it is on disk."""

    spec: str
    spec_path: str
    """Absolute."""
    spec_text: str
    spec_digest: str
    tasks: tuple[TaskHeader, ...]
    """With the keys of the default series."""
    skills: tuple[SkillHeader, ...]
    series: RegisteredSeries
    """The default engine, the full arm."""
    warnings: tuple[str, ...] = ()
    git_commit: str | None = None
    git_dirty: bool | None = None


def describe(project: Project, path: Path) -> DescribedSpec:
    """Read a spec and its skills. Raises `SpecError`; starts no agent."""
    loaded = load_spec(path, project.operator.home)
    skills = load_skills(loaded, project.operator.home)
    engine = parse_engine(project.config.model, flag="caliper.yaml: model")
    isolated = not loads_customizations(project, RunRequest(path), loaded, make_backend(engine.backend))
    series = Series(loaded.name, engine, (), isolated)
    git = find_git_state(loaded.directory)
    return DescribedSpec(
        spec=loaded.name,
        spec_path=str(loaded.path),
        spec_text=loaded.text,
        spec_digest=loaded.digest,
        tasks=tuple(task_headers(loaded, series)),
        skills=tuple(skill_header(skill, ()) for skill in skills),
        series=new_series(series, loaded.path, [task.name for task in loaded.spec.tasks]),
        warnings=tuple(
            [str(problem) for problem in loaded.warnings]
            + [f"{skill.name}: {text}" for skill in skills for text in skill.warnings]
        ),
        git_commit=git.commit if git is not None else None,
        git_dirty=git.dirty if git is not None else None,
    )


@dataclass(frozen=True, slots=True)
class News:
    """What has changed among a project's specs since somebody looked."""

    specs: tuple[DescribedSpec, ...]
    """New or edited, and readable."""
    known: dict[str, str]
    """Path relative to the root → digest of its bytes: what to look again with. Unreadable ones are not in it."""
    unreadable: tuple[str, ...]
    """Why some could not be read: faulty, or half written. They are looked at again the next time."""


def look_for_news(project: Project, known: Mapping[str, str]) -> News:
    """By content, not by time stamps: copies of old files are news, and touched ones are not."""
    found: list[DescribedSpec] = []
    seen: dict[str, str] = {}
    unreadable: list[str] = []
    taken: dict[str, str] = {}
    for path in find_specs(project):
        place = path.relative_to(project.root).as_posix()
        try:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            other = taken.setdefault(spec_name(path), place)
            if other != place:
                unreadable.append(f"{place}: another spec of that name is at {other}.")
            elif known.get(place) == digest:
                seen[place] = digest
            else:
                described = describe(project, path)
                found.append(described)
                seen[place] = described.spec_digest
        except (CaliperError, OSError) as error:
            unreadable.append(str(error))
    return News(tuple(found), seen, tuple(unreadable))
