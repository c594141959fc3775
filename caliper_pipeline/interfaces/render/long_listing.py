"""The two lists at length: plain lines in columns, written as fast as they can be read.

The tables of the other views take 0.1 ms a cell to lay out, a minute and more for the runs of some years. These have
no styles and no folding: a line that is too long for the terminal is the terminal's to break.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from caliper_pipeline.interfaces.render.listing_cells import RUN_COLUMNS, SPEC_COLUMNS, Row, legend, run_rows, spec_rows
from caliper_pipeline.interfaces.render.text import glyphs_for, one_line, plural

if TYPE_CHECKING:
    from caliper_pipeline.interfaces.list_command import ListedRun, ListedSpec

_GAP = "   "
_RIGHT = ("runs", "k", "tasks", "success")


def print_many_runs(spec: str, runs: Sequence["ListedRun"]) -> None:
    """One spec's runs, oldest first."""
    glyphs = glyphs_for(sys.stdout.encoding)
    _write(["", f"caliper list  {one_line(spec)}  {plural(len(runs), 'run')}", ""])
    _write(_laid_out(RUN_COLUMNS, run_rows(runs, glyphs)))
    _write(_below(runs, legend(runs, glyphs)))


def print_many_specs(specs: Sequence["ListedSpec"], *, complete: bool) -> None:
    """All specs with their latest run, then those that never ran."""
    glyphs = glyphs_for(sys.stdout.encoding)
    latest = [spec.latest for spec in specs if spec.latest is not None]
    _write(["", *_laid_out(SPEC_COLUMNS, spec_rows(specs, glyphs))])
    _write(_below(latest, legend(latest, glyphs)))
    if not complete:
        _write(["The project is large: not every folder was searched for specs that never ran."])


def _laid_out(columns: Sequence[str], rows: Sequence[Row]) -> Iterator[str]:
    """The head and the lines. The first column is a name, new in each; what comes often is put together once."""
    texts = [_padded([columns[0], *(row[0][0][0] for row in rows)], columns[0])]
    for name, column in zip(columns[1:], list(zip(*rows, strict=True))[1:], strict=True):
        cells = list(set(column))
        head, *padded = _padded([name, *("".join([piece for piece, _ in cell]) for cell in cells)], name)
        text_of = dict(zip(cells, padded, strict=True))
        texts.append([head, *map(text_of.__getitem__, column)])
    return map(_GAP.join, zip(*texts, strict=True))


def _padded(texts: list[str], column: str) -> list[str]:
    width = max(map(_columns, texts))
    if column in _RIGHT:
        return [" " * (width - _columns(text)) + text for text in texts]
    return [text + " " * (width - _columns(text)) for text in texts]


def _columns(text: str) -> int:
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # characters that are two columns wide

    return cell_len(text)


def _below(runs: Iterable["ListedRun"], said: str) -> list[str]:
    return [*([said] if said else []), *(f"? {one_line(run.error)}" for run in runs if run.error is not None)]


def _write(lines: Iterable[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
