"""Files of an attempt's home: written so that nobody else can read them, copied so that nothing leads out or back."""

import os
import shutil
from pathlib import Path

from caliper_pipeline.domain.errors import CannotRun
from caliper_pipeline.execution.backends.base import Operator


def named_folder(operator: Operator, variable: str) -> Path | None:
    """The folder that a variable of the operator's names. `None`: it is not set. Raises `CannotRun`."""
    named = operator.environment.get(variable)
    if not named:
        return None
    folder = operator.home / named[2:] if named.startswith("~/") else Path(named).expanduser()
    if not folder.is_dir():
        raise CannotRun(f"{variable} is {named}, which is no folder.", hint="Point it at a folder, or unset it.")
    return folder


def write_private(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)


def copy_folder(source: Path, target: Path) -> None:
    """Copy a folder of a person's, links followed; version control, sockets, pipes and links that lead back up stay."""
    shutil.copytree(source, target, ignore=_not_copied, dirs_exist_ok=True)


def _not_copied(place: str, names: list[str]) -> set[str]:
    here = Path(os.path.realpath(place))
    left = {".git"}
    for name in names:
        path = Path(place, name)
        back = path.is_symlink() and here.is_relative_to(os.path.realpath(path))
        if back or not (path.is_file() or path.is_dir()):
            left.add(name)
    return left
