"""Finding the specs of a project: the files that caliper.yaml's `specs` patterns name, under the project's root."""

import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from caliper_pipeline.domain.errors import BadInput
from caliper_pipeline.evaluation.project import Project

PASSED_OVER = frozenset({"node_modules", "__pycache__", "site-packages"})
"""Folders nobody keeps specs in and that take long to walk, like those whose name begins with a dot."""


def find_specs(project: Project) -> list[Path]:
    """All spec files, sorted, as absolute paths."""
    return sorted(_matching(project.root, project.config.specs))


def find_spec(project: Project, given: str) -> Path:
    """The spec that a path (absolute, or relative to the root) or a name stands for. Raises `BadInput`."""
    path = project.root / Path(given).expanduser()
    if path.suffix in (".yaml", ".yml") or path.is_file():
        return path
    found = [spec for spec in find_specs(project) if spec_name(spec) == given]
    if len(found) == 1:
        return found[0]
    if found:
        listed = ", ".join(str(spec.relative_to(project.root)) for spec in found)
        raise BadInput(f"Several specs are called {given!r}: {listed}.", hint="Name the file.")
    patterns = ", ".join(project.config.specs)
    raise BadInput(f"There is no spec called {given!r} under {project.root} ({patterns}).", hint="Name the file.")


def spec_name(path: Path) -> str:
    """`inbox-triage` for inbox-triage.eval.yaml."""
    return path.stem.removesuffix(".eval")


def _matching(root: Path, patterns: tuple[str, ...]) -> Iterator[Path]:
    wanted = [_regex(pattern) for pattern in patterns]
    for folder, names, files in os.walk(root):
        names[:] = [name for name in names if not name.startswith(".") and name not in PASSED_OVER]
        for file in files:
            path = Path(folder, file)
            relative = path.relative_to(root).as_posix()
            if any(pattern.fullmatch(relative) for pattern in wanted):
                yield path


@cache
def _regex(pattern: str) -> re.Pattern[str]:
    """`**/` stands for any folders or none, `*` and `?` for parts of one name."""
    pieces = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    return re.compile("".join(pieces.get(part, re.escape(part)) for part in parts), re.DOTALL)
