"""What crosses from the operator's environment into the steps of an attempt: an allow-list, never a copy.

    every step      PATH, LANG, LC_*, TERM, TMPDIR, TZ and what caliper.yaml lets through everywhere
    hooks, asserts  besides: the operator's HOME (git's settings are there), CALIPER_WORKDIR, CALIPER_SPEC_DIR
    agents, judges  besides: what caliper.yaml lets through to agents (logins by key, cloud providers), and their own
                    HOME and TMPDIR

Nothing that we put into an agent's environment names this product or an evaluation, neither as a name nor in a path.
What the operator lets through keeps its value, since a changed path to a certificate is of no use.
"""

import os
import pwd
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from caliper_pipeline.execution.backends.base import Operator

BASE = ("PATH", "LANG", "LC_*", "TERM", "TMPDIR", "TZ")
SHORTEST_KEY = 16
"""A shorter one is none: local servers take any word, and hiding that word would spoil what is told."""
_SECRET_NAME = re.compile(r"(?:^|_)(?:API)?(?:KEY|TOKEN|SECRET|PASS[A-Z]*)(?:_|$)", re.IGNORECASE)


def operator_from(environ: Mapping[str, str], everywhere: Sequence[str], agent: Sequence[str]) -> Operator:
    """The operator with that environment. `everywhere` and `agent`: names or globs of variables to let through."""
    home = environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
    return Operator(
        environment=dict(environ),
        allowed=_matching(environ, (*BASE, *everywhere)),
        agent_allowed=_matching(environ, agent),
        home=Path(home),
    )


def login_values(operator: Operator) -> frozenset[str]:
    """The keys and passwords among the variables that attempts see, by the variables' names: an agent can print its
    environment, and they are told to nobody. A path is none."""
    return frozenset(
        value
        for name, value in {**operator.allowed, **operator.agent_allowed}.items()
        if _SECRET_NAME.search(name) and len(value) >= SHORTEST_KEY and not value.startswith("/")
    )


def step_environment(operator: Operator, workdir: Path, spec_dir: Path) -> dict[str, str]:
    """The environment of hooks and asserts."""
    return {
        **operator.allowed,
        "HOME": str(operator.home),
        "CALIPER_WORKDIR": str(workdir),
        "CALIPER_SPEC_DIR": str(spec_dir),
    }


def agent_environment(
    operator: Operator, home: Path, *, extra_path: Iterable[str] = (), path_prefixes: Iterable[str] = ()
) -> dict[str, str]:
    """The environment of an agent or a judge with that home. `extra_path` comes first on its PATH, then the
    backend's `path_prefixes`, then what is left of the operator's."""
    allowed = {**operator.allowed, **operator.agent_allowed}
    own = operator.allowed.get("PATH") or os.defpath
    path = dict.fromkeys([*extra_path, *path_prefixes, *own.split(os.pathsep)])
    return {
        **{name: value for name, value in allowed.items() if not name.upper().startswith("CALIPER")},
        "HOME": str(home),
        "PATH": os.pathsep.join(path),
        "TMPDIR": str(temp_folder(home)),
    }


def temp_folder(home: Path) -> Path:
    """Where an agent with that home puts temporary files, so that they vanish with it."""
    return home / ".cache" / "tmp"


def _matching(environ: Mapping[str, str], patterns: Sequence[str]) -> dict[str, str]:
    """The variables that a name or glob fits; never `HOME`, which every step gets on purpose."""
    return {
        name: value
        for name, value in environ.items()
        if name != "HOME" and any(fnmatchcase(name, pattern) for pattern in patterns)
    }
