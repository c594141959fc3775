"""Taking in results files: which files a person means, and what becomes of each."""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from caliper_pipeline.storage import history
from caliper_pipeline.storage.history_import import Imported, import_files
from caliper_pipeline.storage.records import Records
from caliper_pipeline.storage.runs import RunStore

_RESULTS_FOLDERS = frozenset({"results", "imported"})
"""Where results files are kept: `.caliper/results` and `.caliper/records/imported`."""
_NOT_RESULTS = frozenset({"runs", "cache", "dagster"})
"""Folders of a `.caliper` that hold JSON of other kinds."""
_SKIPPED = frozenset({"node_modules", "__pycache__", "venv", "site-packages"})


def import_into(
    root: Path, paths: Iterable[Path], *, dry_run: bool = False, told: Callable[[str], None] | None = None
) -> Iterator[Imported]:
    """Takes the files into the history of the project, which has them all when the last outcome was given.

    Raises `StorageError` when nothing can be taken in.
    """
    db, store = history.history_path(root), RunStore(root)
    if not dry_run:
        history.catch_up(db, store, told)  # of runs that it lacks a file would be taken for all there is
    yield from import_files(db, paths, records=Records(root), own=frozenset(store.run_ids()), dry_run=dry_run)


def files_meant(paths: Iterable[Path]) -> Iterator[Path]:
    """The files named, and those in the folders named, each once. A folder without any is given itself."""
    seen: set[Path] = set()
    for path in paths:
        for file in _in_folder(path) if path.is_dir() else [path]:
            place = Path(os.path.realpath(file))
            if place not in seen:
                seen.add(place)
                yield file


def _in_folder(top: Path) -> list[Path]:
    """The JSON files below folders called `results`; where there are none, all JSON files."""
    every, results = [], []
    for folder, names, files in os.walk(top):
        here = Path(folder)
        names[:] = sorted(name for name in names if _worth_a_look(here, name))
        found = [here / name for name in sorted(files) if name.endswith(".json") and not name.startswith(".")]
        every += found
        if _RESULTS_FOLDERS & set(Path(os.path.abspath(here)).parts):  # noqa: PTH100  as typed: links are not followed
            results += found
    return results or every or [top]


def _worth_a_look(folder: Path, name: str) -> bool:
    if folder.name == ".caliper":
        return name not in _NOT_RESULTS and not name.startswith(".")
    return name not in _SKIPPED and (not name.startswith(".") or name == ".caliper")
