"""One run in one of the forms it can be had in, written to a stream."""

import codecs
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from caliper_pipeline.domain.results import Results, results_dict
from caliper_pipeline.domain.series import slug
from caliper_pipeline.storage.exports.inspect_files import log_name, write_archive, write_json
from caliper_pipeline.storage.exports.source import ForeignFile, Source, StoredRun, file_stem
from caliper_pipeline.storage.files import json_bytes
from caliper_pipeline.storage.results_writing import stream_results

_ODD = set("/\\\0")


@dataclass(frozen=True, slots=True)
class Written:
    run_id: str | None
    pruned: int
    """Attempts whose transcripts are missing because their evidence was pruned."""


def write_run(stream: BinaryIO, source: Source, form: str) -> Written:
    """Writes the run as `results`, `inspect` (an archive) or `inspect-json`."""
    if form == "results":
        pruned = _write_results(stream, source)
    else:
        (write_archive if form == "inspect" else write_json)(stream, source)
        pruned = len(source.pruned) if isinstance(source, StoredRun) else 0
    return Written(source.results.run.run_id, pruned)


class Names:
    """File names for many runs in one folder, each of its own."""

    def __init__(self, form: str) -> None:
        self._name: Callable[[Results], tuple[str, str]] = _log_place if form == "inspect" else _results_place
        self._taken: set[str] = set()

    def of(self, results: Results) -> str:
        stem, ending = self._name(results)
        number = 1
        while (name := f"{stem}{'' if number == 1 else f'-{number}'}{ending}") in self._taken:
            number += 1
        self._taken.add(name)
        return name


def _write_results(stream: BinaryIO, source: Source) -> int:
    if isinstance(source, StoredRun):
        return stream_results(stream, source.folder, source.results)
    assert isinstance(source, ForeignFile)
    if source.of_present_shape:
        stream.write(source.data.removeprefix(codecs.BOM_UTF8))  # other readers trip over the mark
    else:
        kept = source.transcripts()
        plain = results_dict(source.results, transcript_of=lambda task, attempt: kept.get((task, attempt)))
        stream.write(json_bytes(plain, indent=2) + b"\n")
    return 0


def _results_place(results: Results) -> tuple[str, str]:
    """As `.caliper/results` has it, so that a folder of that name can be looked through with `list`."""
    spec = results.run.spec
    plain = spec and not spec.startswith(".") and not set(spec) & _ODD
    return f"{spec if plain else slug(spec)}/{file_stem(results)}", ".json"


def _log_place(results: Results) -> tuple[str, str]:
    return log_name(results).removesuffix(".eval"), ".eval"
