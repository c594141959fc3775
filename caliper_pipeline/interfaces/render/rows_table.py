"""The rows of a query as a table that fits the terminal.

Nothing is ever cut: text that is too wide is folded over several lines, and where even that does not fit, each row is
shown as a block of its own, one line a column. NULL is a dash. Drawn here and not by rich, which takes ten times as
long for a few thousand cells.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import click
from rich.cells import cell_len, chop_cells

from caliper_pipeline.interfaces.problems import print_line
from caliper_pipeline.interfaces.render.cells import decimals, is_moment, is_number, readable
from caliper_pipeline.interfaces.render.console import View
from caliper_pipeline.interfaces.render.text import UNICODE, one_line

_GAP = "   "
_NARROWEST = 12
"""Columns of text are folded no further than this, or than their longest word when it is longer."""
_LONGEST_WORD = 28
"""A run's id is never folded."""
_NO_LIMIT = 1_000_000


def show_rows(
    columns: Sequence[str], types: Sequence[str], rows: Sequence[tuple[Any, ...]], *, wide: bool = False
) -> None:
    """`wide`: lines as long as they get."""
    view = View()
    names = [one_line(name) for name in columns]
    numbers = [is_number(kind) for kind in types]
    whole = [is_number(kind) or is_moment(kind) for kind in types]
    cells = _cells(rows, numbers, view.glyphs.dash)
    room = _NO_LIMIT if wide else view.width
    widths = _widths(names, whole, cells, room)
    if widths is None:
        _show_blocks(names, cells, room)
        return
    print_line(click.style(_line(names, numbers, widths), bold=True))
    print_line(("─" if view.glyphs is UNICODE else "-") * (sum(widths) + len(_GAP) * (len(widths) - 1)))
    for row in cells:
        folded = [fold(cell, width) for cell, width in zip(row, widths, strict=True)]
        for place in range(max(map(len, folded))):
            print_line(_line([lines[place] if place < len(lines) else "" for lines in folded], numbers, widths))


def fold(text: str, width: int) -> list[str]:
    """The text in lines of at most so many columns, between words where it can be; nothing is left out but blanks
    at the ends of lines."""
    lines: list[str] = []
    for line in text.split("\n"):
        if cell_len(line) <= width:
            lines.append(line)
            continue
        kept = ""
        for word in line.split():
            if kept and cell_len(kept) + 1 + cell_len(word) > width:
                lines.append(kept)
                kept = ""
            *full, kept = chop_cells(f"{kept} {word}" if kept else word, width)
            lines += full
        lines.append(kept)
    return lines


def _line(cells: Sequence[str], numbers: Sequence[bool], widths: Sequence[int]) -> str:
    padded = []
    for cell, number, width in zip(cells, numbers, widths, strict=True):
        blanks = " " * (width - cell_len(cell))
        padded.append(blanks + cell if number else cell + blanks)
    return _GAP.join(padded).rstrip()


def _cells(rows: Sequence[tuple[Any, ...]], numbers: Sequence[bool], dash: str) -> list[list[str]]:
    columns = list(zip(*rows, strict=True)) if rows else []
    places = [decimals(column) if number else None for column, number in zip(columns, numbers, strict=False)]
    return [
        [readable(value, null=dash, places=place) for value, place in zip(row, places, strict=True)] for row in rows
    ]


def _widths(names: Sequence[str], whole: Sequence[bool], cells: Sequence[Sequence[str]], room: int) -> list[int] | None:
    """The width of each column; `None`: they do not fit side by side, however they are folded.

    `whole`: columns that are never folded.
    """
    wanted = [cell_len(name) for name in names]
    least = list(wanted)
    for row in cells:
        for place, cell in enumerate(row):
            wanted[place] = max(wanted[place], *(cell_len(line) for line in cell.split("\n")))
            words = max((cell_len(word) for word in cell.split()), default=0)
            least[place] = max(least[place], cell_len(cell) if whole[place] else min(words, _LONGEST_WORD))
    least = [max(low, min(full, _NARROWEST)) for low, full in zip(least, wanted, strict=True)]
    room -= len(_GAP) * (len(names) - 1)
    if sum(least) > room:
        return None
    while sum(wanted) > room:  # the widest give way first
        widest = max((w for w, low in zip(wanted, least, strict=True) if w > low), default=0)
        place = next(n for n, w in enumerate(wanted) if w == widest and w > least[n])
        others = [w for n, w in enumerate(wanted) if w < widest and wanted[n] > least[n]]
        wanted[place] = max(least[place], max(others, default=0), widest - (sum(wanted) - room))
        if wanted[place] == widest:
            wanted[place] -= 1
    return wanted


def _show_blocks(names: Sequence[str], cells: Sequence[Sequence[str]], room: int) -> None:
    label = max((cell_len(name) for name in names), default=0)
    for number, row in enumerate(cells, 1):
        print_line(click.style(f"row {number}", bold=True))
        for name, cell in zip(names, row, strict=True):
            for line in _labelled(name, fold(cell, max(_NARROWEST, room - label - 2)), label):
                print_line(line)
        print_line("")


def _labelled(name: str, lines: Sequence[str], label: int) -> Iterator[str]:
    for place, line in enumerate(lines):
        head = name + " " * (label - cell_len(name)) if place == 0 else " " * label
        yield f"{head}  {line}".rstrip()
