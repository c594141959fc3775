"""`caliper list`: the specs of the project and their runs."""

import gc
import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import click

from caliper_pipeline.domain.errors import BadInput, StorageError
from caliper_pipeline.domain.run_brief import RunBrief
from caliper_pipeline.storage.results import SavedRun, latest_of, saved_runs
from caliper_pipeline.storage.results_index import briefs
from caliper_pipeline.storage.root import find_root, root_for_saving

MOST_FOLDERS = 2_000
"""Folders that are looked into for specs that never ran; a project with more is not searched to its end."""
MANY = 500
"""Rows beyond which a table is laid out in a plainer and much faster way."""
_SKIPPED = frozenset({"node_modules", "__pycache__", "venv", "env", "site-packages", "build", "dist", "target"})
_ENDINGS = (".eval.yaml", ".eval.yml")


class ListedRun(NamedTuple):
    """One results file; without a brief it could not be read."""

    saved: SavedRun
    brief: RunBrief | None
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
@click.option("--format", "form", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True)
def list_runs(spec: str | None, form: str) -> None:
    """List the specs on record, and those that never ran; with SPEC, its runs, oldest first."""
    with _without_collecting():
        _list(spec, form)


def _list(spec: str | None, form: str) -> None:
    cwd = Path.cwd()
    root = find_root(cwd)
    if spec is not None:
        _show_runs(_name_of(spec), _runs_of(root, _name_of(spec)), form)
        return
    recorded = list(_recorded(root))
    base = root if root is not None else _base(cwd)
    files, complete = find_specs(base)
    known = {entry.name for entry in recorded}
    new = [ListedSpec(name, 0, None, file) for name, file in sorted(files.items()) if name not in known]
    _show_specs(sorted([*recorded, *new], key=lambda entry: entry.name), base, complete, form)


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Looking for garbage among many small values, all of them in use, would take longer than the list."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _show_runs(spec: str, runs: list[ListedRun], form: str) -> None:
    if form != "table":
        from caliper_pipeline.interfaces.render.listing_data import print_runs

        print_runs(runs, form)
    elif len(runs) > MANY:
        from caliper_pipeline.interfaces.render.long_listing import print_many_runs

        print_many_runs(spec, runs)
    else:
        from caliper_pipeline.interfaces.render.listing import show_runs

        show_runs(spec, runs)


def _show_specs(specs: list[ListedSpec], base: Path, complete: bool, form: str) -> None:
    if form != "table":
        from caliper_pipeline.interfaces.render.listing_data import print_specs

        print_specs(specs, form)
    elif len(specs) > MANY:
        from caliper_pipeline.interfaces.render.long_listing import print_many_specs

        print_many_specs(specs, complete=complete)
    else:
        from caliper_pipeline.interfaces.render.listing import show_specs

        show_specs(specs, root=base, complete=complete)


def _recorded(root: Path | None) -> Iterator[ListedSpec]:
    if root is not None:
        for name, of_spec in groupby(saved_runs(root), key=lambda saved: saved.spec):
            runs = list(of_spec)
            yield ListedSpec(name, len(runs), _listed(root, [latest_of(runs)])[0])


def _runs_of(root: Path | None, name: str) -> list[ListedRun]:
    runs = saved_runs(root, name)
    if root is None or not runs:
        known = sorted({saved.spec for saved in saved_runs(root)})
        where = f"under {root}" if root is not None else "here"
        hint = f"On record: {', '.join(known[:10])}." if known else "Nothing has been recorded yet."
        raise BadInput(f"No run of {name!r} is on record {where}.", hint=hint)
    return _listed(root, runs)


def _listed(root: Path, runs: list[SavedRun]) -> list[ListedRun]:
    """Each run with what is to be shown, or why it cannot be read: one bad file hides no other."""
    return [
        ListedRun(saved, None, brief) if isinstance(brief, str) else ListedRun(saved, brief)
        for saved, brief in zip(runs, briefs(root, runs), strict=True)
    ]


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
