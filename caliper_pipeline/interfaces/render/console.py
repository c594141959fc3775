"""The console all views draw on: its width, its character set, and what happens when its reader goes away.

Nothing a person or an agent wrote is ever read as markup: views hand over `Text`, made here from cleaned strings.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TextIO

from rich.console import Console
from rich.text import Text

from caliper_pipeline.domain.records import Outcome
from caliper_pipeline.interfaces.render.text import (
    MOST_MARKS,
    OUTCOME_STYLE,
    Glyphs,
    clean,
    glyphs_for,
    one_line,
    tally,
)

PIPE_WIDTH = 100
"""Columns where nothing tells how wide the reader is."""
WIDEST = 240


class View(Console):
    """A console that knows its marks."""

    def __init__(self, stream: TextIO | None = None, *, environ: Mapping[str, str] = os.environ) -> None:
        stream = stream if stream is not None else sys.stdout
        super().__init__(file=stream, markup=False, highlight=False, emoji=False, soft_wrap=False, _environ=environ)
        self.glyphs: Glyphs = glyphs_for(self.encoding)
        if not self.is_terminal and not environ.get("COLUMNS", "").isdigit():
            self.width = PIPE_WIDTH
        elif self.width > WIDEST:
            self.width = WIDEST

    def on_broken_pipe(self) -> None:
        """The reader has gone: whoever called the command says what that means."""
        raise BrokenPipeError


def styled(text: str, style: str = "") -> Text:
    """Foreign text on one line."""
    return Text(one_line(text), style=style)


def block(text: str, style: str = "") -> Text:
    """Foreign text with its line breaks."""
    return Text(clean(text).strip("\n"), style=style)


def join(*parts: Text | str | tuple[str, str]) -> Text:
    """Our own words, styled or not, in one line."""
    line = Text()
    for part in parts:
        if isinstance(part, tuple):
            line.append(part[0], style=part[1])
        else:
            line.append(part)
    return line


def shortened(text: Text, columns: int, glyphs: Glyphs) -> Text:
    """At most that many columns, with a mark where it is cut."""
    if text.cell_len <= columns:
        return text
    cut = text.copy()
    cut.truncate(max(columns - len(glyphs.ellipsis), 1), overflow="crop")
    cut.append(glyphs.ellipsis)
    return cut


def strip(outcomes: Mapping[int, Outcome], planned: int, glyphs: Glyphs, *, most: int = MOST_MARKS) -> Text:
    """One mark an attempt, at the place of its number; with many attempts the number of each kind."""
    last = max([planned, *outcomes])
    if last > most:
        counted = tally(list(outcomes.values()))
        parts = [Text(f"{glyphs.of(kind)}{number}", style=OUTCOME_STYLE[kind]) for kind, number in counted]
        missing = last - len(outcomes)
        if missing > 0:
            parts.append(Text(f"{glyphs.open}{missing}", style="dim"))
        return Text(" ").join(parts)
    line = Text()
    for number in range(1, last + 1):
        outcome = outcomes.get(number)
        if outcome is None:
            line.append(glyphs.open, style="dim")
        else:
            line.append(glyphs.of(outcome), style=OUTCOME_STYLE[outcome])
    return line


def lines(parts: Sequence[Text]) -> Text:
    return Text("\n").join(parts)
