"""The rows of a query as a table that fits the terminal.

Nothing is ever cut: text that is too wide is folded over several lines, and where even that does not fit, each row is
shown as a block of its own, one line a column. NULL is a dash.
"""

from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from caliper_pipeline.interfaces.render.cells import decimals, is_moment, is_number, readable
from caliper_pipeline.interfaces.render.console import View
from caliper_pipeline.interfaces.render.tables import plain_table
from caliper_pipeline.interfaces.render.text import one_line

_GAP = 3
_NARROWEST = 12
"""Columns of text are folded no further than this, or than their longest word when it is shorter."""
_LONGEST_WORD = 28
"""A run's id is never folded."""
_NO_LIMIT = 1_000_000


def show_rows(
    columns: Sequence[str], types: Sequence[str], rows: Sequence[tuple[Any, ...]], *, wide: bool = False
) -> None:
    """`wide`: lines as long as they get."""
    view = View()
    if wide:
        view.width = _NO_LIMIT
    names = [one_line(name) for name in columns]
    numbers = [is_number(kind) for kind in types]
    cells = _cells(rows, numbers, view.glyphs.dash)
    whole = [is_number(kind) or is_moment(kind) for kind in types]
    widths = _widths(names, whole, cells, view.width)
    if widths is None:
        _show_blocks(view, names, cells)
        return
    table = _table(view, names, numbers, widths)
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    view.print(table)


def _cells(rows: Sequence[tuple[Any, ...]], numbers: Sequence[bool], dash: str) -> list[list[str]]:
    columns = list(zip(*rows, strict=True)) if rows else []
    places = [decimals(column) if number else None for column, number in zip(columns, numbers, strict=False)]
    return [
        [readable(value, null=dash, places=place) for value, place in zip(row, places, strict=True)] for row in rows
    ]


def _table(view: View, names: Sequence[str], numbers: Sequence[bool], widths: Sequence[int]) -> Table:
    table = plain_table(view)
    for name, number, width in zip(names, numbers, widths, strict=True):
        table.add_column(Text(name), justify="right" if number else "left", width=width, overflow="fold")
    return table


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
    room -= _GAP * (len(names) - 1)
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


def _show_blocks(view: View, names: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    label = max((cell_len(name) for name in names), default=0)
    for number, row in enumerate(cells, 1):
        view.print(Text(f"row {number}", style="bold"))
        table = Table.grid(padding=(0, 2))
        table.add_column(width=label)
        table.add_column(overflow="fold")
        for name, cell in zip(names, row, strict=True):
            table.add_row(Text(name), Text(cell))
        view.print(table)
        view.print()
