"""Results files: one JSON file a run under `.caliper/results/<spec>/`, in the reference product's schema.

They are made from the run store, so that tools which read such files go on working, and they are what `list`,
`report` and `compare` read. A file's name is the end of its run, to the second, with `-2`, `-3`… where a second is
taken; "latest" goes by when a run started, as far as the file says so.
"""

import os
import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from caliper_pipeline.domain.errors import BadInput, StorageError
from caliper_pipeline.domain.plain import utc_time
from caliper_pipeline.storage.files import aside_name, finish, make_folders, storage_errors, sync_path
from caliper_pipeline.storage.root import STORE_FOLDER

if TYPE_CHECKING:  # a list that remembers its runs needs neither of these
    from caliper_pipeline.domain.results import Results
    from caliper_pipeline.storage.runs import RunFolder

_FILE_ID = re.compile(r"(\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ)(?:-(\d+))?\Z")
_ALL_PLAIN = re.compile(r"(?:\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ(?:\n|\Z))+\Z")
_OUR_ID = re.compile(r"(\d{4})(\d\d)(\d\dT\d\d)(\d\d)(\d\d)\d{3}Z-")
"""The start of a run stands in front in its id."""
_SPEC_FILE = re.compile(r"(.+)\.eval\.ya?ml\Z")
_STARTED_AT = re.compile(rb'"started_at"\s*:\s*"([^"\\]+)"')
_RUN_ID = re.compile(rb'"run_id"\s*:\s*"([^"\\]+)"')
_HEAD_BYTES = 8 * 1024
_LONGEST_HEAD_BYTES = 1024 * 1024
"""`run` comes first in a file, and our keys last in it, behind hook failures with their output."""
_ONE_SECOND = timedelta(seconds=1)
"""File names leave fractions out."""
FILE_TIME = "%Y-%m-%dT%H-%M-%SZ"
"""What results files are called: when the run ended."""
_TIME_LENGTH = len("2026-11-20T10-00-00Z")


class SavedRun(NamedTuple):
    """A tuple, as there may be tens of thousands."""

    spec: str
    file_id: str
    """The file's name without `.json`."""
    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / f"{self.file_id}.json"


# -- writing


def write_results(root: Path, run: "RunFolder", results: "Results") -> Path:
    """Saves the run's results file and gives its path; an older file of the same run goes.

    Raises `StorageError`.
    """
    folder = results_folder(root, results.run.spec)
    with storage_errors("save results in", folder):
        make_folders(folder)
        aside = aside_name(folder / "results")
        try:
            with aside.open("xb") as stream:
                _stream(stream, run, results)
                finish(stream)
            path = _place(aside, folder, results.run.timestamp.astimezone(UTC).strftime(FILE_TIME))
        finally:
            aside.unlink(missing_ok=True)
        sync_path(folder)
        _remove_older(root, run, keep=path)
    from caliper_pipeline.storage.results_index import remember

    remember(root, path, results)
    return path


def results_folder(root: Path, spec: str) -> Path:
    """Where results of that spec are kept. Raises `StorageError` for a name that would lead elsewhere."""
    if not spec or spec.startswith(".") or "/" in spec or "\\" in spec or "\0" in spec:
        raise StorageError(f"Cannot save results: {spec!r} is not a name for a folder.")
    return root / STORE_FOLDER / "results" / spec


def _stream(stream: BinaryIO, run: "RunFolder", results: "Results") -> None:
    from caliper_pipeline.storage.results_writing import stream_results  # `list` and `report` start without it

    stream_results(stream, run, results)


def _place(aside: Path, folder: Path, stem: str) -> Path:
    number = 1
    while True:
        path = folder / (f"{stem}.json" if number == 1 else f"{stem}-{number}.json")
        try:
            os.link(aside, path)  # unlike a rename, this never replaces anything
            return path
        except FileExistsError:
            number += 1
        except OSError:  # a file system without links: claim the name, then fill it
            try:
                path.open("xb").close()
            except FileExistsError:
                number += 1
                continue
            aside.replace(path)
            return path


def _remove_older(root: Path, run: "RunFolder", *, keep: Path) -> None:
    from caliper_pipeline.domain.records import EndRecord

    named = [line.results for line in run.lines() if isinstance(line, EndRecord) and line.results]
    for relative in named:
        older = root / relative
        if older.parent == keep.parent and older != keep and _head(older, _RUN_ID) == run.run_id:
            with suppress(OSError):
                older.unlink()


# -- reading


def load_results(path: Path) -> "Results":
    """Raises `BadInput` when the file is not there, or no results file."""
    from caliper_pipeline.domain.results import parse_results
    from caliper_pipeline.storage.results_bytes import plain_data, read_bytes

    try:
        data = read_bytes(path)
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise BadInput(f"{path}: cannot be read: {error}.") from error
    try:
        return parse_results(plain_data(data))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise BadInput(f"{path}: not a results file: {error}.") from error


def saved_runs(root: Path | None, spec: str | None = None) -> list[SavedRun]:
    """What is saved under the root, by spec and then oldest first. Opens no file."""
    if root is None:
        return []
    top = root / STORE_FOLDER / "results"
    found = []
    for name in [spec] if spec is not None else sorted(_names(top)):
        if not name or "/" in name or name in (".", ".."):
            continue
        folder = top / name
        ids = [entry[:-5] for entry in _names(folder) if entry.endswith(".json")]
        found += [SavedRun(name, file_id, folder) for file_id in _in_order(ids)]
    return found


def latest_of(runs: Sequence[SavedRun]) -> SavedRun:
    """Of one spec's runs, oldest first, the one that started last. A file that does not tell goes by its name."""
    best, best_started = runs[-1], _started(runs[-1])
    for run in reversed(runs[:-1]):
        ended = _end(run)
        if ended is not None and best_started is not None and ended + _ONE_SECOND < best_started:
            break  # it ended, so it also started, before the best one began; so did all that are older
        started = _started(run)
        if started is not None and best_started is not None and started > best_started:
            best, best_started = run, started
    return best


def resolve(root: Path | None, reference: str, run: str | None = None) -> Path:
    """The results file that a person means: a path that ends in `.json`, a spec's file, or its name; of a spec the
    latest run, or the one whose file id or run id is `run`. Raises `BadInput`.
    """
    if reference.endswith(".json"):
        path = Path(reference)
        if run is not None:
            raise BadInput(f"--run {run}: {reference} is one run already.", hint="Give a spec's name with --run.")
        if not path.is_file():
            raise BadInput(f"{reference}: there is no such results file.")
        return path
    spec = spec_name(reference)
    runs = saved_runs(root, spec)
    if not runs:
        raise _nothing_saved(root, spec)
    if run is None:
        return latest_of(runs).path
    wanted = run.removesuffix(".json")
    for saved in runs:
        if saved.file_id == wanted:
            return saved.path
    for saved in _likely_first(runs, run):
        if _head(saved.path, _RUN_ID) == run:
            return saved.path
    raise BadInput(f"{spec} has no run {run!r} under {root}.", hint=f"`caliper list {spec}` shows its runs.")


def spec_name(reference: str) -> str:
    """The spec that a person means by its name or by its file."""
    as_file = _SPEC_FILE.match(Path(reference).name)
    return as_file.group(1) if as_file else reference


def run_id_in(path: Path) -> str | None:
    """The id of the run that a results file is of. `None`: it does not say."""
    return _head(path, _RUN_ID)


def _nothing_saved(root: Path | None, spec: str) -> BadInput:
    if root is None:
        return BadInput(f"No run of {spec!r}: nothing has been saved here, there is no {STORE_FOLDER} folder yet.")
    known = sorted({saved.spec for saved in saved_runs(root)})
    if not known:
        return BadInput(f"No run of {spec!r}: nothing has been saved under {root} yet.")
    from difflib import get_close_matches

    close = get_close_matches(spec, known, n=1)
    listed = ", ".join(known[:10]) + (", …" if len(known) > 10 else "")
    hint = f"Did you mean {close[0]}?" if close else f"Saved there: {listed}."
    return BadInput(f"No run of {spec!r} is saved under {root}.", hint=hint)


def _likely_first(runs: Sequence[SavedRun], run_id: str) -> Iterable[SavedRun]:
    """One spec's runs with those in front that ended soonest after the start which the id tells."""
    told = _OUR_ID.match(run_id)
    start = bisect_left(runs, "-".join(told.groups()), key=_started_by) if told else len(runs)
    return [*runs[start:], *reversed(runs[:start])]


def _started_by(run: SavedRun) -> str:
    return run.file_id if _FILE_ID.match(run.file_id) else ""


def _names(folder: Path) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if not name.startswith(".")]  # noqa: PTH208  there may be many
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise StorageError(f"Cannot read {folder}: {error.strerror}") from error


def _in_order(file_ids: Iterable[str]) -> list[str]:
    """By time and then the number behind it; names that are no times first, so that they are never the latest."""
    file_ids = list(file_ids)
    if _ALL_PLAIN.match("\n".join(file_ids)):  # as nearly always, and then three times as fast
        return sorted(file_ids)
    times: list[str] = []
    others: list[str] = []
    for file_id in file_ids:
        (times if _FILE_ID.match(file_id) else others).append(file_id)
    return sorted(others) + sorted(times, key=_sortable)


def _sortable(file_id: str) -> str:
    return file_id if len(file_id) == _TIME_LENGTH else file_id[:_TIME_LENGTH] + file_id[_TIME_LENGTH + 1 :].zfill(250)


def _end(run: SavedRun) -> datetime | None:
    match = _FILE_ID.match(run.file_id)
    try:
        return datetime.strptime(match.group(1), FILE_TIME).replace(tzinfo=UTC) if match else None
    except ValueError:
        return None


def _started(run: SavedRun) -> datetime | None:
    text = _head(run.path, _STARTED_AT)
    with suppress(ValueError):
        if text is not None:
            return utc_time(text)
    return _end(run)


def _head(path: Path, pattern: re.Pattern[bytes]) -> str | None:
    """What the pattern finds in the file's `run` object, without reading the rest."""
    with suppress(OSError), path.open("rb") as stream:
        head = stream.read(_HEAD_BYTES)
        while b'"skill_snapshots"' not in head and len(head) < _LONGEST_HEAD_BYTES and (more := stream.read(1 << 18)):
            head += more
        match = pattern.search(head.partition(b'"skill_snapshots"')[0])
        return match.group(1).decode("utf-8", "replace") if match else None
    return None
