"""What a spec may say and yet hardly means: found once it is known to hold up, told as warnings."""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from caliper_pipeline.domain.authored import Finding
from caliper_pipeline.domain.errors import Problem
from caliper_pipeline.domain.planted import PlantedTurn
from caliper_pipeline.domain.skills import Skill
from caliper_pipeline.domain.spec import EvalSpec
from caliper_pipeline.sources.placing import Placer

NamedFile = tuple[tuple[str | int, ...], Path]
"""A file that a spec names, and where it does so."""


def lint(spec: EvalSpec, skills: Sequence[Skill], named: Sequence[NamedFile], placer: Placer) -> list[Problem]:
    """The warnings about a spec whose declared skills are these, and which names these scripts and histories."""
    findings = [*spec.remarks(), *_named_skills(spec, skills), *_odd_names(spec), *_answer_keys(named, skills)]
    return placer.problems(findings)


def lint_history(turns: Sequence[PlantedTurn], skills: Sequence[Skill], placer: Placer) -> list[Problem]:
    """The warnings about a planted history, which has a file of its own."""
    declared = [skill.name for skill in skills]
    return placer.problems(
        Finding((place, "user"), f"/{turn.slash_command} is no declared skill, so the agent gets it as plain text")
        for place, turn in enumerate(turns)
        if turn.slash_command is not None and turn.slash_command not in declared
    )


def _named_skills(spec: EvalSpec, skills: Sequence[Skill]) -> Iterator[Finding]:
    for place, task in enumerate(spec.tasks):
        for skill in skills:
            if _names(task.prompt, skill.name):
                yield Finding(
                    ("tasks", place, "prompt"),
                    f"names the skill {skill.name!r}, so whether its description makes it fire is not measured",
                )


def _names(prompt: str, skill: str) -> bool:
    """Whether a prompt means the skill. A name that is a plain word counts only where it is marked as a name."""
    name = re.escape(skill)
    if re.search(r"[._-]|\d", skill):
        return re.search(rf"(?i)(?<![\w.-]){name}(?![\w-]|\.\w)", prompt) is not None
    marked = rf"(?<![\w./-])/{name}(?![\w./-])|[`'\"]{name}[`'\"]|\b{name}[ -]skill\b|\bskill[ :]+{name}\b"
    return re.search(f"(?i){marked}", prompt) is not None


def _odd_names(spec: EvalSpec) -> Iterator[Finding]:
    for place, task in enumerate(spec.tasks):
        if any(not character.isprintable() and not character.isspace() for character in task.name):
            yield Finding(("tasks", place, "name"), f"holds what cannot be seen: {task.name!a}")
        elif task.name != task.name.strip():
            yield Finding(("tasks", place, "name"), "begins or ends with a blank, which is part of the name")


def _answer_keys(named: Sequence[NamedFile], skills: Sequence[Skill]) -> Iterator[Finding]:
    """Scripts and histories that would be installed with a skill, where the agent can read them."""
    for path, file in named:
        for skill in skills:
            if any(item.source == os.path.realpath(file) for item in skill.files):
                message = (
                    f"lies in the folder of the skill {skill.name!r} and is installed with it, so the agent can read "
                    "it; if it is not part of the skill, add it to `forbidden_files:`"
                )
                yield Finding(path, message)
