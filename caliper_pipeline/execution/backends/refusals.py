"""Why a CLI did not serve a call: from its own words and codes, never from what the agent said.

The order matters and is the same for every backend: a spending cap first (its message may mention the subscription,
which reads like a bad login), then a throttle, then what the backend knows from structure, then a rejected option,
then the backend's words. A status that the CLI reports outweighs numbers in its text: a port or a token count may
look like one.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.errors import CannotRun, CliTooOld, LoginRequired, SpendingCap, UnavailableModel
from caliper_pipeline.execution.backends.base import Refusal

TEXT_CHARS = 300
THROTTLE_STATUSES = (429, 503, 529)

_CAP = re.compile(
    r"spend(?:ing)?[ _-](?:cap|limit)"
    r"|quota (?:exceeded|reached)|exceeded your current quota|insufficient_quota"
    r"|usage[ _]limit"
    r"|credit balance is too low"
    r"|out of extra usage"
    r"|(?:session|weekly) limit"
    r"|you['’]ve (?:hit|reached) your (?:\w+ )?limit",
    re.IGNORECASE,
)
_THROTTLE_WORDS = re.compile(r"rate.?limit|overloaded|too many requests|service unavailable", re.IGNORECASE)
_THROTTLE_NUMBERS = re.compile(r"\b(?:429|503|529)\b")
_REJECTED_OPTION = re.compile(r"error: (?:unknown option|unexpected argument|unrecognized arguments?)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Complaint:
    """All that a CLI said about one call, apart from the agent's words."""

    lines: tuple[str, ...]
    exit_code: int | None
    status: int | None = None
    """HTTP status behind the error, where the CLI names it."""
    code: str | None = None
    """The CLI's own word for the kind of error, where it has one."""

    @classmethod
    def of(
        cls, texts: Iterable[str | None], *, exit_code: int | None, status: int | None = None, code: str | None = None
    ) -> "Complaint":
        found = (line.strip() for text in texts if text for line in text.splitlines())
        return cls(tuple(line for line in found if line), exit_code, status, code)

    @property
    def failed(self) -> bool:
        return self.exit_code != 0

    @property
    def first_line(self) -> str:
        return self.lines[0] if self.lines else ""

    def line_with(self, pattern: re.Pattern[str]) -> str | None:
        return next((line for line in self.lines if pattern.search(line)), None)


@dataclass(frozen=True, slots=True)
class Marker:
    """Words that tell a kind of refusal."""

    kind: str
    pattern: re.Pattern[str]
    only_when_failed: bool = False


def marker(kind: str, *phrases: str, only_when_failed: bool = False) -> Marker:
    """A marker for any of the phrases, whatever their letter case."""
    return Marker(kind, re.compile("|".join(re.escape(phrase) for phrase in phrases), re.IGNORECASE), only_when_failed)


def classify(
    complaint: Complaint, *, structure: Callable[[Complaint], str | None], markers: Sequence[Marker]
) -> Refusal | None:
    """The refusal that the complaint amounts to. `None`: it is none, perhaps a crash or nothing at all.

    `structure` gives the kind that a backend concludes from codes, statuses and shapes.
    """
    return (
        _found("cap", complaint, _CAP)
        or _throttle(complaint)
        or _structural(complaint, structure)
        or (_found("option", complaint, _REJECTED_OPTION) if complaint.failed else None)
        or _marked(complaint, markers)
    )


@dataclass(frozen=True, slots=True)
class Remedies:
    """What a person can do about a refusal, in the words of one backend. `{flag}` stands for --model or
    --judge-model."""

    login: str
    model: str
    option: str | None = None
    """How to update the command."""
    other: str | None = None
    cap: str = "Once the cap is lifted"
    unnamed_model: str = "the default model"


def explained(refusal: Refusal, engine: Engine, remedies: Remedies, *, judge: bool) -> CannotRun:
    """The error that a refusal for good ends the run with, and its remedy."""
    name = engine.backend
    who = f"The {name} {'judge' if judge else 'agent'}"
    flag = "--judge-model" if judge else "--model"
    text = refusal.text.rstrip()
    if refusal.kind == "cap":
        return SpendingCap(
            f"{who} hit a spending or usage cap: {text}",
            hint=f"What is finished is kept. {remedies.cap}, go on with: caliper run --resume",
        )
    if refusal.kind == "login":
        return LoginRequired(
            f"{who} cannot run: Not logged in, or the login was refused: {text}",
            hint=f"{remedies.login.replace('{flag}', flag)} What is finished is kept; go on with: caliper run --resume",
        )
    if refusal.kind == "model":
        return UnavailableModel(
            f"{who} cannot run: {engine.model or remedies.unnamed_model} is not available: {text}",
            hint=remedies.model.replace("{flag}", flag),
        )
    if refusal.kind == "option":
        return CliTooOld(
            f"{who} cannot run: the installed command of {name} rejects an option that is needed: {text}",
            hint=remedies.option,
        )
    return CannotRun(f"{who} cannot run: {text}", hint=remedies.other and remedies.other.replace("{flag}", flag))


def _throttle(complaint: Complaint) -> Refusal | None:
    if complaint.status in THROTTLE_STATUSES:
        return _refusal("throttle", complaint.first_line or f"API error {complaint.status}")
    numbers = _found("throttle", complaint, _THROTTLE_NUMBERS) if complaint.status is None else None
    return _found("throttle", complaint, _THROTTLE_WORDS) or numbers


def _structural(complaint: Complaint, structure: Callable[[Complaint], str | None]) -> Refusal | None:
    kind = structure(complaint)
    return None if kind is None else _refusal(kind, complaint.first_line or f"API error {complaint.status}")


def _marked(complaint: Complaint, markers: Sequence[Marker]) -> Refusal | None:
    for item in markers:
        if complaint.failed or not item.only_when_failed:
            refusal = _found(item.kind, complaint, item.pattern)
            if refusal is not None:
                return refusal
    return None


def _found(kind: str, complaint: Complaint, pattern: re.Pattern[str]) -> Refusal | None:
    line = complaint.line_with(pattern)
    return None if line is None else _refusal(kind, line)


def _refusal(kind: str, line: str) -> Refusal:
    return Refusal(kind, line if len(line) <= TEXT_CHARS else line[: TEXT_CHARS - 1] + "…")
