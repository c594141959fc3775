"""Regular expressions that authors write, to be let loose on text that a stranger chooses.

`forbidden_files` patterns meet paths and commands that an agent makes up, and Python's matcher backtracks: on the
wrong text `(a+)+$` runs for ever, and nothing can stop it from outside. `automaton` matches in linear time where our
own code does the matching; still such a pattern is refused before anything is paid for (`backtracking` weighs it),
because its author meant something else, and because other tools read the same spec.
"""

import re
import warnings

from caliper_pipeline.domain.automaton import Matcher
from caliper_pipeline.domain.backtracking import backtracking_fault

LONGEST = 1000
"""Characters in a pattern. Longer ones come from a program, and nobody has read them."""
_REDUNDANT_START = re.compile(r"\A(?:\.\*\??)+(?![?+*{])(?=.)", re.DOTALL)
"""A leading `.*` finds nothing more than the rest does, and is too common to be held against a pattern."""


def pattern_fault(text: str) -> str | None:
    """Why a pattern is refused. `None`: it compiles, means something, and is quick on any text."""
    if not text.strip():
        return "is blank"
    if len(text) > LONGEST:
        return f"is {len(text):,} characters long; at most {LONGEST:,} are accepted"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pattern = re.compile(text if "|" in text else _REDUNDANT_START.sub("", text))
    except re.error as error:
        place = "" if error.pos is None else f" at character {error.pos + 1}"
        return f"{text!r} is not a regular expression: {error.msg}{place}"
    except (RecursionError, OverflowError, ValueError) as error:
        return f"{text!r} is not a usable regular expression: {error}"
    if sum(text.count(mark) for mark in "*+{?|") > 1:
        fault = backtracking_fault(pattern)
        if fault is None and not Matcher(text).bounded:
            fault = "looks around or back, or repeats possessively, in a way that cannot be matched in bounded time"
        if fault is not None:
            return f"{text!r} {fault}. Let no two parts match the same text: [^/]* instead of .*, no loop in a loop"
    if pattern.search("") is not None:
        return f"{text!r} matches every text, so every attempt would count as cheating"
    return None
