"""Where runs are kept: the folder that holds `.caliper/`, found from the working directory upwards.

The nearest one wins, but never one above the git repository that the working directory is in: a stray folder
above it belongs to another project. The place of the spec plays no part. `CALIPER_ROOT` decides when it is set.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from caliper_pipeline.domain.errors import StorageError

STORE_FOLDER = ".caliper"
ROOT_VARIABLE = "CALIPER_ROOT"


def find_root(cwd: Path, *, environ: Mapping[str, str] = os.environ) -> Path | None:
    """The folder whose `.caliper/` holds the runs. `None`: there is none yet."""
    given = environ.get(ROOT_VARIABLE)
    if given:
        root = _absolute(cwd, given)
        return root if _is_folder(root / STORE_FOLDER) else None
    for folder in _search_path(cwd):
        if _is_folder(folder / STORE_FOLDER):
            return folder
    return None


def root_for_saving(cwd: Path, *, environ: Mapping[str, str] = os.environ) -> Path:
    """The root to save under; where there is none yet, the repository's top, or else the working directory.

    Makes nothing. Raises `StorageError` when nothing could be saved there, so that nobody pays for a run first.
    """
    root = find_root(cwd, environ=environ)
    if root is None:
        given = environ.get(ROOT_VARIABLE)
        root = _absolute(cwd, given) if given else _default_root(cwd)
    _check_writable(root)
    return root


def _search_path(cwd: Path) -> Iterator[Path]:
    here = Path(os.path.abspath(cwd))  # noqa: PTH100  as typed: a link in the way is not followed upwards
    for folder in (here, *here.parents):
        yield folder
        if _is_repository(folder):
            return


def _default_root(cwd: Path) -> Path:
    folders = list(_search_path(cwd))
    return folders[-1] if _is_repository(folders[-1]) else folders[0]


def _is_repository(folder: Path) -> bool:
    return os.path.exists(folder / ".git")  # noqa: PTH110  a folder, or a file in worktrees; False where it may not look


def _is_folder(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112  unlike Path.is_dir this is False, not an error, where it may not look


def _absolute(cwd: Path, given: str) -> Path:
    return Path(os.path.abspath(cwd / Path(given).expanduser()))  # noqa: PTH100  as typed, like the search


def _check_writable(root: Path) -> None:
    store = root / STORE_FOLDER
    for folder in (root, store, store / "results", store / "runs"):
        try:
            there = os.path.lexists(folder)
            usable = folder.is_dir()
        except OSError as error:
            raise StorageError(f"Cannot save runs: {folder}: {error.strerror}") from error
        if there and not usable:
            raise StorageError(
                f"Cannot save runs: {folder} is not a folder.",
                hint=f"Move it away, or name another root in {ROOT_VARIABLE}.",
            )
        if there and not os.access(folder, os.W_OK | os.X_OK):
            raise StorageError(
                f"Cannot save runs: {folder} may not be written to.",
                hint=f"Name another root in {ROOT_VARIABLE}.",
            )
        if not there and folder == root and not os.access(_nearest_existing(root), os.W_OK | os.X_OK):
            raise StorageError(f"Cannot save runs: {root} does not exist and may not be made.")


def _nearest_existing(folder: Path) -> Path:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder
