"""The look that all tables share."""

from collections.abc import Callable

from rich import box
from rich.table import Table

from caliper_pipeline.interfaces.render.console import View
from caliper_pipeline.interfaces.render.text import UNICODE

_LINES = box.Box("    \n    \n ── \n    \n ── \n    \n    \n    \n")
"""A line under the head and one before each section."""
_ASCII_LINES = box.Box("    \n    \n -- \n    \n -- \n    \n    \n    \n", ascii=True)
WIDEST_TABLE = 150
"""Lines longer than this are hard to follow with the eye."""


def plain_table(view: View) -> Table:
    """A table as wide as its contents need."""
    return Table(
        box=_LINES if view.glyphs is UNICODE else _ASCII_LINES,
        header_style="bold",
        pad_edge=False,
        show_edge=False,
        collapse_padding=False,
        padding=(0, 1),
    )


def fitting(view: View, make: Callable[[int], Table], levels: int = 2) -> Table:
    """The widest form of a table that fits the view: `make(0)` is the widest one, `make(levels)` the narrowest."""
    unlimited = view.options.update(width=10_000)
    for level in range(levels):
        table = make(level)
        if view.measure(table, options=unlimited).maximum <= view.width:
            return table
    return make(levels)


def page_width(view: View) -> int:
    return min(view.width, WIDEST_TABLE)
