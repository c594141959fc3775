"""Eval logs of Inspect as files: a zip archive (`.eval`), or one JSON text. Samples are written one at a time."""

import zipfile
from collections.abc import Iterator
from datetime import datetime
from typing import Any, BinaryIO

from caliper_pipeline.domain.results import Results
from caliper_pipeline.domain.series import slug
from caliper_pipeline.storage.exports.inspect_log import (
    Plain,
    eval_id,
    header_of,
    sample_of,
    start_of,
    summary_of,
)
from caliper_pipeline.storage.exports.inspect_scores import reductions_of, sample_ids
from caliper_pipeline.storage.exports.source import Source
from caliper_pipeline.storage.files import json_bytes


def log_name(results: Results) -> str:
    """The name Inspect's own logs would have: time, task and id, so that its viewer shows all three."""
    began: datetime = results.run.started_at or results.run.timestamp
    return f"{began:%Y-%m-%dT%H-%M-%S+00-00}_{slug(results.run.spec)}_{slug(eval_id(results))}.eval"


def write_archive(stream: BinaryIO, source: Source) -> None:
    results = source.results
    summaries = []
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("_journal/start.json", _text(start_of(results)))
        for sample in _samples(source):
            archive.writestr(f"samples/{sample['id']}_epoch_{sample['epoch']}.json", _text(sample))
            summaries.append(summary_of(sample))
        archive.writestr("summaries.json", _text(summaries))
        archive.writestr("reductions.json", _text(reductions_of(results)))
        archive.writestr("header.json", _text(header_of(results)))


def write_json(stream: BinaryIO, source: Source) -> None:
    header = _text(header_of(source.results))
    stream.write(header[:-1])
    stream.write(b',\n"samples": [')
    for number, sample in enumerate(_samples(source)):
        stream.write(b",\n" if number else b"\n")
        stream.write(_text(sample))
    stream.write(b'\n],\n"reductions": ')
    stream.write(_text(reductions_of(source.results)))
    stream.write(b"\n}\n")


def _samples(source: Source) -> Iterator[Plain]:
    results = source.results
    for sample_id, task in zip(sample_ids(results), results.task_results, strict=True):
        for whole in source.attempts(task):
            yield sample_of(results, task, whole, sample_id)


def _text(value: Any) -> bytes:
    return json_bytes(value)
