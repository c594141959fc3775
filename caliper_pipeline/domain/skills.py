"""Skills as they are installed: the neighbourhood of a spec, each skill's identity, and the arm of a run."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from caliper_pipeline.domain.errors import BadInput


@dataclass(frozen=True, slots=True)
class SkillFile:
    """One file of a skill as it would be installed."""

    path: str
    """Relative to the skill's folder, with forward slashes."""
    source: str
    """Absolute path of the bytes; links followed."""
    hash: str
    """`sha256:` and the hexadecimal digest of the bytes."""
    size_bytes: int
    executable: bool = False


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file that the author may expect in the install and that is not there."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Skill:
    """A declared skill: its name is its identity and the name of its install folder."""

    name: str
    description: str | None
    path: str
    """The `SKILL.md`, absolute, links not followed."""
    files: tuple[SkillFile, ...]
    """Exactly what is installed, sorted by path."""
    left_out: tuple[LeftOut, ...] = ()
    source_kind: str = "path"
    """`path` or `git`."""
    git_repo: str | None = None
    git_sha: str | None = None
    git_dirty: bool | None = None
    """Whether the skill's folder held uncommitted changes. `None`: not in a repository, or not known."""
    warnings: tuple[str, ...] = field(default=(), compare=False)

    @property
    def digest(self) -> str:
        """Hexadecimal sha256 over the sorted `path:hash` lines: changes when any installed byte does."""
        return files_digest({item.path: item.hash for item in self.files})


def files_digest(hashes: dict[str, str]) -> str:
    """The digest of an install, from path → `sha256:…` of each file."""
    lines = "\n".join(f"{path}:{hashes[path]}" for path in sorted(hashes))
    return hashlib.sha256(lines.encode()).hexdigest()


def resolve_ablation(wanted: Iterable[str], *, skills: Sequence[str], servers: Sequence[str]) -> tuple[str, ...]:
    """The names an `--ablate` removes: a skill bare, a server as `mcp:<name>`; sorted, each once.

    A bare name stands for the one kind that declares it; `skill:X` and `mcp:X` say which. Raises `BadInput`.
    """
    found: set[str] = set()
    declared = [*skills, *(f"mcp:{name}" for name in servers)]
    for value in wanted:
        kind, colon, name = value.partition(":")
        if not colon or kind not in ("skill", "mcp"):
            kind, name = "", value
        is_skill = kind != "mcp" and name in skills
        is_server = kind != "skill" and name in servers
        if is_skill and is_server:
            raise BadInput(
                f"--ablate {value}: both a skill and a server are called {name!r}.",
                hint=f"Say which: --ablate skill:{name} or --ablate mcp:{name}.",
            )
        if not is_skill and not is_server:
            listed = ", ".join(declared) if declared else "nothing"
            raise BadInput(
                f"--ablate {value}: the spec declares no skill or server of that name.",
                hint=f"It declares: {listed}.",
            )
        found.add(name if is_skill else f"mcp:{name}")
    return tuple(sorted(found))
