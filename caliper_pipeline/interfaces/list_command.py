"""`caliper list`: the specs of the project and their runs."""

import os
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import click

from caliper_pipeline.domain.errors import BadInput, StorageError
from caliper_pipeline.domain.results import Results
from caliper_pipeline.storage.results import SavedRun, latest_of, load_results, saved_runs
from caliper_pipeline.storage.root import find_root, root_for_saving

MOST_FOLDERS = 2_000
"""Folders that are looked into for specs that never ran; a project with more is not searched to its end."""
_SKIPPED = frozenset({"node_modules", "__pycache__", "venv", "env", "site-packages", "build", "dist", "target"})
_ENDINGS = (".eval.yaml", ".eval.yml")


@dataclass(frozen=True, slots=True)
class ListedRun:
    """One results file; without results it could not be read."""

    saved: SavedRun
    results: Results | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ListedSpec:
    """One spec: its latest run and how many there are, or the file of one that never ran."""

    name: str
    runs: int
    latest: ListedRun | None
    file: str | None = None


@click.command(name="list")
@click.argument("spec", required=False)
def list_runs(spec: str | None) -> None:
    """List the specs on record, and those that never ran; with SPEC, its runs, oldest first."""
    from caliper_pipeline.interfaces.render.listing import show_runs, show_specs

    cwd = Path.cwd()
    root = find_root(cwd)
    if spec is not None:
        show_runs(_name_of(spec), _runs_of(root, _name_of(spec)))
        return
    recorded = _recorded(root)
    base = root if root is not None else _base(cwd)
    files, complete = find_specs(base)
    known = {entry.name for entry in recorded}
    new = [ListedSpec(name, 0, None, file) for name, file in sorted(files.items()) if name not in known]
    show_specs(sorted([*recorded, *new], key=lambda entry: entry.name), root=base, complete=complete)


def _recorded(root: Path | None) -> list[ListedSpec]:
    by_spec: dict[str, list[SavedRun]] = {}
    for saved in saved_runs(root):
        by_spec.setdefault(saved.spec, []).append(saved)
    return [ListedSpec(name, len(runs), load(latest_of(runs))) for name, runs in by_spec.items()]


def _runs_of(root: Path | None, name: str) -> list[ListedRun]:
    runs = saved_runs(root, name)
    if not runs:
        known = sorted({saved.spec for saved in saved_runs(root)})
        where = f"under {root}" if root is not None else "here"
        hint = f"On record: {', '.join(known[:10])}." if known else "Nothing has been recorded yet."
        raise BadInput(f"No run of {name!r} is on record {where}.", hint=hint)
    return [load(saved) for saved in runs]


def load(saved: SavedRun) -> ListedRun:
    """The run of a results file, or why it cannot be read: one bad file hides no other."""
    try:
        return ListedRun(saved, load_results(saved.path))
    except BadInput as error:
        return ListedRun(saved, None, error.message)


def _name_of(reference: str) -> str:
    name = Path(reference).name
    for ending in _ENDINGS:
        if name.endswith(ending) and name != ending:
            return name.removesuffix(ending)
    return reference


def _base(cwd: Path) -> Path:
    try:
        return root_for_saving(cwd)
    except StorageError:
        return cwd


def find_specs(base: Path) -> tuple[dict[str, str], bool]:
    """Spec name → file below the base, nearest first, and whether all of the project was looked at.

    Hidden folders, linked folders and those that hold other people's code are passed over.
    """
    found: dict[str, str] = {}
    waiting = deque([str(base)])
    looked = 0
    while waiting:
        if looked >= MOST_FOLDERS:
            return found, False
        looked += 1
        folder = waiting.popleft()
        try:
            with os.scandir(folder) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in listed:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in _SKIPPED:
                    waiting.append(entry.path)
            elif entry.name.endswith(_ENDINGS) and (name := _name_of(entry.name)) not in found:
                found[name] = os.path.relpath(entry.path, base)
    return found, True
