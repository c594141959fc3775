"""Which commit a folder is at, and whether something in it is not committed: one call of git, which may be missing."""

import os
from dataclasses import dataclass
from pathlib import Path

LONGEST_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class GitState:
    commit: str | None
    """`None`: a repository without a commit."""
    dirty: bool


def find_git_state(directory: Path) -> GitState | None:
    """The state of the repository around a folder, dirty as far as the folder goes. `None`: none, or no usable git."""
    import subprocess  # here: validate reads this module and must not pay for it

    # Neither a hook's variables nor the repository's own settings may lead elsewhere or start a program.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment.update(GIT_TERMINAL_PROMPT="0", GIT_OPTIONAL_LOCKS="0", LC_ALL="C")
    command = ["git", "-c", "core.fsmonitor=false", "-C", str(directory), "status", "--porcelain=v2", "--branch"]
    try:
        done = subprocess.run(
            [*command, "--ignore-submodules=all", "--", "."],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LONGEST_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    if done.returncode != 0:
        return None
    commit = None
    dirty = False
    for line in done.stdout.split(b"\n"):
        if line.startswith(b"# branch.oid "):
            name = line.split()[-1].decode("ascii", "replace")
            commit = None if name == "(initial)" else name
        elif line and not line.startswith(b"#"):
            dirty = True
    return GitState(commit, dirty)
