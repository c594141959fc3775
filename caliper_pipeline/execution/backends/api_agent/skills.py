"""Installed skills: what the model is told of them, and what it gets when it loads one.

    <root>/<name>/SKILL.md      the folder is the skill's name; its frontmatter says when to use it

Only name and description are told beforehand. Frontmatter is read as leniently as it is written: where it is no YAML,
the line of a key counts.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FENCE = re.compile(r"---[ \t]*\Z")
_LINE_END = re.compile(r"\r\n|\r|\n")
DESCRIPTION_CHARS = 1_500
_TYPED = re.compile(r"/([A-Za-z0-9_.-]+)(?:\s+(.*))?\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Skill:
    name: str
    description: str
    folder: Path
    hidden: bool = False
    """Its author keeps it for people who name it: the model is not told of it."""


def find_skills(root: Path, names: list[str]) -> list[Skill]:
    """The skills of these names that are installed, sorted by name."""
    found = []
    for name in sorted(names):
        try:
            header, _ = split(_text(root / name))
        except OSError:
            continue
        facts = _facts(header)
        description = " ".join(str(facts.get("description") or "").split())[:DESCRIPTION_CHARS]
        hidden = str(facts.get("disable-model-invocation", "")).strip().lower() == "true"
        found.append(Skill(name, description, root / name, hidden))
    return found


def loaded(skill: Skill) -> str:
    """What brings the skill into a conversation. Raises `OSError`."""
    _, body = split(_text(skill.folder))
    return f"Base directory of this skill: {skill.folder}\n\n{body.strip()}\n"


def expanded(text: str, skills: list[Skill]) -> str:
    """What a user typed; when all of it is `/name` or `/name arguments` of an installed skill, with that skill."""
    typed = _TYPED.match(text.strip())
    skill = next((one for one in skills if typed and one.name == typed[1]), None)
    if skill is None:
        return text
    try:
        return f"{text.strip()}\n\n{loaded(skill)}"
    except OSError:
        return text


def split(text: str) -> tuple[str, str]:
    """Frontmatter and body; without fences all of it is body."""
    lines = _LINE_END.split(text)
    if _FENCE.match(lines[0]):
        for number, line in enumerate(lines[1:], 1):
            if _FENCE.match(line):
                return "\n".join(lines[1:number]), "\n".join(lines[number + 1 :])
    return "", text


def _text(folder: Path) -> str:
    return (folder / "SKILL.md").read_bytes().decode("utf-8-sig", "replace")


def _facts(header: str) -> dict[str, Any]:
    try:
        import yaml

        found = yaml.load(header, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except Exception:  # whatever a stranger's YAML makes a parser do, the lines can still be read
        found = None
    if isinstance(found, dict):
        return found
    lines = re.findall(r"(?m)^([\w-]+)[ \t]*:[ \t]*(.*)$", header)
    return {key: value.strip().strip("'\"") for key, value in reversed(lines)}
