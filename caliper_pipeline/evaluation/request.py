"""What someone asks to be evaluated, and what came of it: the values between the use cases and their callers."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.errors import CaliperError
from caliper_pipeline.domain.records import HookFailure, Line, RunHeader
from caliper_pipeline.domain.results import Results


@dataclass(frozen=True, slots=True)
class RunRequest:
    """`None` everywhere: what caliper.yaml says, else the product's default."""

    spec_path: Path
    engine: Engine | None = None
    judge_engine: Engine | None = None
    """`None`: the engine itself judges."""
    k: int | None = None
    workers: int | None = None
    timeout_seconds: float | None = None
    fail_fast: int | None = None
    ablate: tuple[str, ...] = ()
    user_customizations: bool | None = None
    max_tokens: int | None = None
    """For the whole run, judge included."""
    max_cost_usd: float | None = None
    max_tokens_per_attempt: int | None = None
    """For one invocation of an agent."""
    only: frozenset[tuple[str, int]] | None = None
    """(task name, attempt): just these. `None`: every task, attempts 1 to k."""
    run_id: str | None = None
    """Chosen by the caller. When a run of this id exists, it is joined: what it has is not made again."""
    origin: str = "cli"
    dagster_run_id: str | None = None


class Observer(Protocol):
    """Told what happens, from many threads, as it happens; must return at once and never raise."""

    def opened(self, header: RunHeader, planned: int, done: int) -> None:
        """The run folder stands; nothing is paid for yet. `done`: attempts that a resumed run already has."""
        ...

    def started(self, task_id: str, attempt: int) -> None: ...

    def line(self, line: Line) -> None:
        """A line that is now durable."""
        ...

    def note(self, text: str) -> None:
        """Something a person should read, such as a warning."""
        ...


class Silent:
    """An observer that looks away."""

    def opened(self, header: RunHeader, planned: int, done: int) -> None: ...

    def started(self, task_id: str, attempt: int) -> None: ...

    def line(self, line: Line) -> None: ...

    def note(self, text: str) -> None: ...


@dataclass(frozen=True, slots=True)
class RunSummary:
    """How an evaluation ended. The exit code of a command follows from it."""

    header: RunHeader
    results: Results
    """Without transcripts."""
    results_path: Path | None
    """`None`: nothing was recorded, or saving failed (`save_error`)."""
    save_error: str | None = None
    history_error: str | None = None
    fatal: CaliperError | None = None
    """Why the run was stopped before its end."""
    interrupted: bool = False
    """A person stopped it."""
    hook_failures: tuple[HookFailure, ...] = field(default=())
    recorded: int = 0
    """Attempts on record, ungraded ones included."""
    ungraded: int = 0
