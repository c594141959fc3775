"""Choosing the runs that are to be exported, wherever they are: the run store, results files, imported files."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from caliper_pipeline.domain.errors import BadInput
from caliper_pipeline.domain.run_brief import RunBrief
from caliper_pipeline.storage import history
from caliper_pipeline.storage.exports.source import ForeignFile, Source, StoredRun
from caliper_pipeline.storage.records import Records
from caliper_pipeline.storage.results import SavedRun, resolve, run_id_in, saved_runs, spec_name
from caliper_pipeline.storage.results_index import briefs
from caliper_pipeline.storage.runs import RunStore

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


@dataclass(frozen=True, slots=True)
class Chosen:
    """A run that is to be exported."""

    run_id: str | None
    """`None`: a file of another product that was not imported."""
    spec: str
    file: Path | None = None
    """`None`: it is in the run store."""
    in_history: bool = True

    def source(self, store: RunStore) -> Source:
        """Raises `BadInput` or `StorageError`."""
        if self.file is not None:
            return ForeignFile.read(self.file)
        assert self.run_id is not None
        return StoredRun.of(store.open(self.run_id))


def choose_one(root: Path, reference: str, run: str | None) -> Chosen:
    """The run that is meant: a run id, a results file, or of a spec the latest run or the one that `run` names.

    Raises `BadInput`.
    """
    store = RunStore(root)
    if run is None and not reference.endswith(".json") and _stored(store, reference) is not None:
        return Chosen(reference, store.open(reference).header().spec)
    try:
        path = resolve(root, reference, run)
    except BadInput as error:
        return _unpublished(store, reference, run) or _imported(root, reference, run, error)
    run_id = run_id_in(path)
    if run_id is not None and _stored(store, run_id) is not None and not reference.endswith(".json"):
        return Chosen(run_id, path.parent.name)
    return Chosen(run_id, path.parent.name, path, in_history=False)


def choose_all(root: Path, reference: str | None) -> list[Chosen]:
    """All runs there are, or all of one spec; the oldest first. Raises `BadInput` when there are none."""
    spec = None if reference is None else spec_name(reference)
    with closing(history.open_current(root)) as con:
        found = [run for run in _in_history(con, Records(root)) if spec in (None, run.spec)]
        digests = {digest for (digest,) in con.execute("SELECT source_digest FROM runs").fetchall()}
    found += _only_files(root, spec, {run.run_id for run in found}, digests)
    if not found:
        raise BadInput(f"No run {'is' if spec is None else f'of {spec!r} is'} on record under {root}.")
    return found


def _in_history(con: "DuckDBPyConnection", records: Records) -> list[Chosen]:
    query = "SELECT run_id, spec, source, source_digest FROM runs ORDER BY coalesce(started_utc, ended_utc), run_id"
    return [
        Chosen(run_id, spec, None if source == "run_store" else records.imported / f"{digest}.json")
        for run_id, spec, source, digest in con.execute(query).fetchall()
    ]


def _only_files(root: Path, spec: str | None, known: set[str | None], digests: set[str]) -> Iterator[Chosen]:
    """Results files of runs that the history does not have."""
    by_spec: dict[str, list[SavedRun]] = {}
    for saved in saved_runs(root, spec):
        by_spec.setdefault(saved.spec, []).append(saved)
    for name, runs in by_spec.items():
        for saved, brief in zip(runs, briefs(root, runs), strict=True):
            run_id = brief.run_id if isinstance(brief, RunBrief) else None
            if run_id is None or run_id not in known:
                with suppress(OSError):
                    if run_id is None and hashlib.sha256(saved.path.read_bytes()).hexdigest() in digests:
                        continue
                yield Chosen(run_id, name, saved.path, in_history=False)


def _stored(store: RunStore, run_id: str) -> str | None:
    with suppress(BadInput):
        return store.open(run_id).run_id
    return None


def _unpublished(store: RunStore, reference: str, run: str | None) -> Chosen | None:
    """A run of the store whose results file is gone, or was never made because the run was killed."""
    if run is None or _stored(store, run) is None:
        return None
    spec = store.open(run).header().spec
    return Chosen(run, spec) if spec == spec_name(reference) else None


def _imported(root: Path, reference: str, run: str | None, otherwise: BadInput) -> Chosen:
    """By run id, or of a spec the latest that the history knows. Raises what was wrong with looking elsewhere."""
    if not history.history_path(root).exists():
        raise otherwise
    with closing(history.open_current(root)) as con:
        found = _in_history(con, Records(root))
    by_id = [chosen for chosen in found if chosen.run_id == (run if run is not None else reference)]
    of_spec = [chosen for chosen in found if run is None and chosen.spec == spec_name(reference)]
    for chosen in (*by_id, *reversed(of_spec)):
        return chosen
    specs = sorted({chosen.spec for chosen in found if chosen.file is not None})
    if not specs or run is not None or reference.endswith(".json"):
        raise otherwise
    listed = ", ".join(specs[:10]) + (", …" if len(specs) > 10 else "")
    raise BadInput(f"No run of {reference!r} is on record under {root}.", hint=f"Imported are runs of: {listed}.")


def ids_in_history(chosen: Sequence[Chosen]) -> list[str]:
    """The ids of the runs that the history has. Raises `BadInput` when it lacks one."""
    lacking = [run for run in chosen if not run.in_history and run.run_id is None]
    if lacking:
        raise BadInput(
            f"{lacking[0].file} is not in the history, which Parquet is made from.",
            hint=f"`caliper history import {lacking[0].file}` puts it there.",
        )
    return [run.run_id for run in chosen if run.run_id is not None]
