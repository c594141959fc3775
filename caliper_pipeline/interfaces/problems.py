"""Problems and warnings as lines on standard error, for people and for editors that jump to a file and a line."""

import os
import sys
from collections.abc import Iterable
from typing import TextIO

import click

from caliper_pipeline.domain.errors import CaliperError, Problem, SpecError

_IN_ASCII = str.maketrans({"→": "->", "…": "...", "—": "-", "–": "-", "✓": "ok", "✗": "x", "⚠": "!", "·": "-"})


def show_error(error: CaliperError) -> None:
    """The error, one line a problem, and what would be right."""
    if isinstance(error, SpecError):
        for problem in error.problems:
            _line("error:", "red", str(problem))
        if len(error.problems) > 1:
            say(f"{len(error.problems)} problems")
    else:
        _line("error:", "red", error.message)
    if error.hint is not None:
        say(error.hint)


def show_warnings(warnings: Iterable[Problem | str]) -> None:
    """The warnings, a line each."""
    for warning in warnings:
        _line("warning:", "yellow", str(warning))


def say(text: str) -> None:
    """A line for the person at the terminal, on standard error."""
    click.echo(fitting(text, sys.stderr), err=True, color=_colour())


def print_line(text: str, *, fg: str | None = None) -> None:
    """A line of what was asked for, on standard output."""
    click.echo(click.style(fitting(text, sys.stdout), fg=fg) if fg else fitting(text, sys.stdout), color=_colour())


def fitting(text: str, stream: TextIO) -> str:
    """The text in what the stream can show: ASCII forms of our marks, `?` for the rest."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_IN_ASCII).encode(encoding, "replace").decode(encoding)
    return text


def _line(word: str, colour: str, text: str) -> None:
    say(f"{click.style(word, fg=colour, bold=True)} {text}")


def _colour() -> bool | None:
    """`None`: as the terminal can."""
    return False if "NO_COLOR" in os.environ else None
