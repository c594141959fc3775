"""What a list shows of each results file, remembered in `.caliper/cache/list/<spec>`, a line a file.

A results file holds all transcripts and is read whole to be believed: 20,000 of them take minutes. Here a file that
has been read is known by its size and its times, and one that has changed in any way is read again; so new, edited,
removed and foreign files show up as they are, and the cache may be deleted at any moment. It is only ever appended
to, or replaced whole, so that several commands may use it at once; what cannot be read in it is made anew.
"""

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from caliper_pipeline import __version__
from caliper_pipeline.domain.errors import BadInput
from caliper_pipeline.domain.run_brief import LOOKS, RunBrief, brief_of
from caliper_pipeline.storage.files import aside_name, utf8
from caliper_pipeline.storage.results import SavedRun, load_results
from caliper_pipeline.storage.root import STORE_FOLDER

if TYPE_CHECKING:
    from caliper_pipeline.domain.results import Results

_FORM = f"1/{__version__}"
"""Of a line: another form, or another version's figures, is not taken over. Its number grows when briefs change."""
_FEW = 20
"""So many runs are looked up one by one; for more the whole index is read."""
_SPARE_LINES = 200
"""Lines of files that are gone or have changed, beyond as many as there are files: then it is written anew."""
_SETTLED_NS = 1_000_000_000
"""A file that was changed less than this ago may change once more without showing it in its times."""

_ABLATED = RunBrief._fields.index("ablated") - LOOKS

Known = dict[str, list[str]]
"""File id → the fields of its last line: form, id, stamp, what tells the run apart, how it looks (as JSON)."""


def briefs(root: Path, runs: Sequence[SavedRun]) -> list[RunBrief | str]:
    """Of each of one spec's runs what a list shows; of a file that cannot be read what is wrong with it."""
    if not runs:
        return []
    path = _index(root, runs[0].spec)
    stamps = _stamps(runs)
    known, lines = _few(path, runs) if len(runs) <= _FEW else _all(path)
    looks = _Looks()
    found: list[RunBrief | str] = []
    fresh: list[str] = []
    settled = time.time_ns() - _SETTLED_NS
    for run in runs:
        stamp, entry = stamps.get(run.file_id), known.get(run.file_id)
        if entry is not None and entry[2] == stamp and (look := looks[entry[6]]) is not None:
            found.append(RunBrief._make((entry[3], entry[4] or None, entry[5] or None, *look)))
            continue
        try:
            brief = brief_of(load_results(run.path))
        except BadInput as error:
            found.append(error.message)
            continue
        found.append(brief)
        if stamp is not None and max(map(int, stamp.split()[1:])) < settled:
            fresh += _lines(run.file_id, stamp, brief)
    if lines > 2 * len(runs) + _SPARE_LINES:
        _rewrite(path, runs, stamps, known)
    _append(path, fresh)
    return found


def remember(root: Path, path: Path, results: "Results") -> None:
    """Takes note of a results file that was just written, so that nobody needs to read it for a list."""
    with suppress(OSError):
        _append(_index(root, path.parent.name), _lines(path.stem, _stamp(path.stat()), brief_of(results)))


def _index(root: Path, spec: str) -> Path:
    return root / STORE_FOLDER / "cache" / "list" / spec


def _stamps(runs: Sequence[SavedRun]) -> dict[str, str]:
    """By file id: size, and the times of the last change of the contents and of anything. Without those just gone."""
    found = {}
    if len(runs) <= _FEW:
        for run in runs:
            with suppress(OSError):
                found[run.file_id] = _stamp(run.path.stat())
        return found
    with suppress(OSError), _opened(runs[0].folder) as folder, os.scandir(folder) as entries:
        for entry in entries:  # from an open folder: a fifth faster than by path
            try:
                found[entry.name[:-5]] = _stamp(entry.stat())
            except OSError:
                continue
    return found


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        os.close(handle)


def _stamp(status: os.stat_result) -> str:
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


# -- the file


class _Looks(dict[str, list[Any] | None]):
    """How runs look, from JSON; read once of all that look the same. `None`: it cannot be read."""

    def __missing__(self, text: str) -> list[Any] | None:
        look = None
        with suppress(ValueError, RecursionError, TypeError, IndexError):
            read = json.loads(text)
            if isinstance(read, list) and len(read) == len(RunBrief._fields) - LOOKS:
                read[_ABLATED] = tuple(read[_ABLATED])
                look = read
        self[text] = look
        return look


def _lines(file_id: str, stamp: str, brief: RunBrief) -> list[str]:
    """One, or none for a name with marks that part fields and lines."""
    told = [_FORM, file_id, stamp, brief.ended_utc, brief.started_utc or "", brief.run_id or ""]
    if not all(text.isprintable() for text in told):
        return []
    return ["\t".join([*told, json.dumps(brief[LOOKS:], separators=(",", ":"))])]


def _few(path: Path, runs: Sequence[SavedRun]) -> tuple[Known, int]:
    """The last line of each of these runs, and 0: the lines are not counted."""
    found: Known = {}
    text = _text(path)
    for run in runs:
        start = text.rfind(f"\n{_FORM}\t{run.file_id}\t")
        if start >= 0:
            found.update(_read([text[start + 1 : text.index("\n", start + 1)]]))
    return found, 0


def _all(path: Path) -> tuple[Known, int]:
    """The last line of every run, and how many lines there are."""
    lines = _text(path).split("\n")
    return _read(lines), len(lines)


def _text(path: Path) -> str:
    """Whole lines only."""
    with suppress(OSError, ValueError):
        text = path.read_bytes().decode()
        return text[: text.rfind("\n") + 1]
    return ""


def _read(lines: Iterable[str]) -> Known:
    found = {}
    for line in lines:
        fields = line.split("\t")
        if len(fields) == 7 and fields[0] == _FORM:
            found[fields[1]] = fields
    return found


def _append(path: Path, lines: Sequence[str]) -> None:
    """In one go, on a line of its own whatever stands before. A list that cannot remember is only slower."""
    if not lines:
        return
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.write(handle, _joined(lines))
        finally:
            os.close(handle)


def _rewrite(path: Path, runs: Sequence[SavedRun], stamps: Mapping[str, str], known: Known) -> None:
    """Only what is true of the runs that there are."""
    entries = [known[run.file_id] for run in runs if run.file_id in known]
    aside = aside_name(path)
    with suppress(OSError):
        try:
            aside.write_bytes(_joined(["\t".join(entry) for entry in entries if entry[2] == stamps.get(entry[1])]))
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)


def _joined(lines: Sequence[str]) -> bytes:
    return utf8("\n" + "\n".join(lines) + "\n")
