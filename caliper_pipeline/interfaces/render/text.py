"""Numbers, times, marks and foreign text as they are shown. Plain strings: what draws them is elsewhere.

What was not measured is a dash, never 0. Text that a spec's author or an agent wrote is cleaned before it is shown:
terminal escapes, control characters and marks that turn the reading direction are taken out, and half characters
become the replacement mark, so that nothing in it can move a cursor, forge a line or end a command.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from caliper_pipeline.domain.records import Outcome
from caliper_pipeline.domain.statistics import Interval


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The marks of one character set. Each is one column wide."""

    passed: str
    failed: str
    cheated: str
    lost: str
    unchecked: str
    open: str
    """Not run."""
    running: str
    judging: str
    dash: str
    to: str
    """Between the ends of a range."""
    arrow: str
    delta: str
    dot: str
    ellipsis: str

    def of(self, outcome: Outcome) -> str:
        match outcome:
            case Outcome.PASS:
                return self.passed
            case Outcome.TASK_FAIL:
                return self.failed
            case Outcome.CHEAT:
                return self.cheated
            case Outcome.NOT_CHECKED:
                return self.unchecked
            case _:
                return self.lost


UNICODE = Glyphs(
    passed="✓",
    failed="✗",
    cheated="⚠",
    lost="⊘",
    unchecked="—",
    open="·",
    running="▸",
    judging="▹",
    dash="—",
    to="–",
    arrow="→",
    delta="Δ",
    dot="·",
    ellipsis="…",
)
ASCII = Glyphs(
    passed="+",
    failed="x",
    cheated="!",
    lost="o",
    unchecked="-",
    open=".",
    running=">",
    judging="?",
    dash="-",
    to="-",
    arrow="->",
    delta="delta",
    dot="|",
    ellipsis="...",
)

OUTCOME_STYLE = {
    Outcome.PASS: "green",
    Outcome.TASK_FAIL: "red",
    Outcome.CHEAT: "bold red",
    Outcome.NOT_CHECKED: "dim",
    Outcome.INFRA_ERROR: "yellow",
    Outcome.TIMEOUT: "yellow",
    Outcome.JUDGE_ERROR: "yellow",
}
WORDS = {
    Outcome.PASS: "pass",
    Outcome.TASK_FAIL: "fail",
    Outcome.CHEAT: "cheat",
    Outcome.NOT_CHECKED: "no check",
    Outcome.INFRA_ERROR: "infra error",
    Outcome.TIMEOUT: "timeout",
    Outcome.JUDGE_ERROR: "judge error",
}
MOST_MARKS = 5
"""Attempts that are shown one by one; more are counted."""

_ESCAPES = (
    "\x1b\\[[0-?]*[ -/]*[@-~]"  # colours, cursor
    "|\x1b[\\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\\\|\x9c)?"  # titles, links, device strings
    "|\x1b[ -/]*[0-~]?"
    "|\x9b[0-?]*[ -/]*[@-~]"
)
_CONTROLS = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]"
_HALVES = "[\ud800-\udfff]"


def clean(text: str) -> str:
    """The text without anything a terminal would act on; line breaks and tabs stay."""
    if text.isprintable():
        return text
    text = re.sub(_HALVES, "\ufffd", text.replace("\r\n", "\n"))
    return re.sub(_CONTROLS, "", re.sub(_ESCAPES, "", text))


def one_line(text: str) -> str:
    """The cleaned text with all white space runs as one blank."""
    return " ".join(clean(text).split())


def encodable(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def glyphs_for(encoding: str | None) -> Glyphs:
    """The marks that a stream of this encoding can show."""
    return UNICODE if encodable("✓✗⚠⊘—·▸▹–→Δ…╭─", encoding or "ascii") else ASCII


def percent(rate: float | None, glyphs: Glyphs) -> str:
    """`66.7%`, `100.0%`; a rate that only rounds to 0 or 100 says so."""
    if rate is None:
        return glyphs.dash
    rounded = round(rate * 100, 1)
    if rounded in (0, 100) and rate not in (0, 1):
        return ">99.9%" if rounded else "<0.1%"
    return f"{rounded:.1f}%"


def range_of(interval: Interval | None, glyphs: Glyphs) -> str:
    """`21–94%`; empty when there is none."""
    if interval is None:
        return ""
    return f"{interval.low * 100:.0f}{glyphs.to}{interval.high * 100:.0f}%"


def points(delta: float | None, glyphs: Glyphs) -> str:
    """A difference of rates in percentage points: `+16.7`, `±0`."""
    if delta is None:
        return glyphs.dash
    rounded = round(delta * 100, 1)
    if rounded == 0:
        return "0"
    text = f"{rounded:+.1f}"
    return text.removesuffix(".0")


def seconds(value: float | None, glyphs: Glyphs) -> str:
    """`0.4s`, `12s`, `2m05s`, `1h02m`."""
    if value is None:
        return glyphs.dash
    if value < 9.95:
        return f"{value:.1f}s"
    whole = round(value)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def count(value: int | None, glyphs: Glyphs) -> str:
    """`812`, `12.3k`, `4.1M`."""
    if value is None:
        return glyphs.dash
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            scaled = value / {"G": 1e9, "M": 1e6, "k": 1e3}[unit]
            return f"{scaled:.1f}{unit}" if abs(scaled) < 100 else f"{scaled:.0f}{unit}"
    return f"{value:,}"


def moment(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def plural(number: int, word: str, many: str | None = None) -> str:
    return f"{number} {word if number == 1 else many or word + 's'}"


def listed(names: Iterable[str], none: str = "none") -> str:
    return ", ".join(one_line(name) for name in names) or none


def tally(outcomes: Sequence[Outcome]) -> list[tuple[Outcome, int]]:
    """How many there are of each kind that has a mark of its own, lost ones together."""
    lost = [outcome for outcome in outcomes if outcome.noise]
    kinds = (Outcome.PASS, Outcome.TASK_FAIL, Outcome.CHEAT, Outcome.NOT_CHECKED)
    counted = [(kind, outcomes.count(kind)) for kind in kinds]
    counted.append((Outcome.INFRA_ERROR, len(lost)))
    return [(kind, number) for kind, number in counted if number]


def tail(text: str, limit: int, glyphs: Glyphs) -> str:
    """The end of a text, marked where it is cut."""
    return text if len(text) <= limit else glyphs.ellipsis + text[-limit:]
