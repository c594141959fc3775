"""What `caliper run` says on standard error while it runs.

On a terminal a row per task, redrawn in place and gone at the end; elsewhere a line per finished attempt. Attempts
stand at the place of their number, whatever order they finish in. A waiting run must cost next to nothing, so the
screen is redrawn once a second, and sooner, a few times a second at most, when something happened.

The observer is called from many threads and must neither wait nor raise: it notes what it was told under a lock, and
drawing happens elsewhere.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

from caliper_pipeline.domain.records import (
    AbortedRecord,
    AttemptRecord,
    HookFailure,
    Line,
    Outcome,
    RunHeader,
    TaskHeader,
    VerdictRecord,
)
from caliper_pipeline.interfaces.render.text import (
    MOST_MARKS,
    OUTCOME_STYLE,
    WORDS,
    Glyphs,
    glyphs_for,
    one_line,
    plural,
    seconds,
    tally,
)

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from caliper_pipeline.interfaces.render.console import View

NAME_COLUMNS = 40
IDLE_SECONDS = 1.0
ROWS_A_SECOND = 15
"""Drawn when nothing happens: a longer table is drawn less often, so that waiting costs a quarter percent of a core."""
LEAST_SECONDS = 0.1
"""Between two drawings, however much happens."""
REASON_COLUMNS = 120


@dataclass(slots=True)
class TaskProgress:
    """Where one task stands."""

    header: TaskHeader
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    running: set[int] = field(default_factory=set)
    judging: set[int] = field(default_factory=set)
    aborted: bool = False
    first_started: float | None = None
    last_ended: float | None = None

    def done(self, k: int) -> bool:
        return self.aborted or len(self.outcomes) >= k


class Progress:
    """The run as far as it has got; what is drawn and what is printed both follow it."""

    def __init__(self, header: RunHeader, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self.header = header
        self.k = header.k
        self.planned = header.k * len(header.tasks)
        self.tasks = {task.task_id: TaskProgress(task) for task in header.tasks}
        self.glyphs: Glyphs = glyphs_for(getattr(stream, "encoding", None))
        self.lock = threading.Lock()
        self.clock = clock
        self.began = clock()
        self.before = 0
        """Attempts that a resumed run already had: they are counted, not shown."""
        self._stream = stream

    # The observer's four calls, from any thread.

    def opened(self, header: RunHeader, planned: int, done: int) -> None:
        with self.lock:
            self.planned, self.before = planned, done
            self.k = max(self.k, -(-planned // max(len(header.tasks), 1)))
        simulated = f" {self.glyphs.dot} simulated: a script plays the agent" if header.simulated else ""
        left = f", {done} of them already there" if done else ""
        what = f"{header.spec}: {plural(len(header.tasks), 'task')}, {plural(planned, 'attempt')}{left}{simulated}"
        self.say(one_line(what))

    def started(self, task_id: str, attempt: int) -> None:
        with self.lock:
            task = self.tasks.get(task_id)
            if task is not None:
                task.running.add(attempt)
                task.first_started = task.first_started if task.first_started is not None else self.clock()
        self.changed()

    def line(self, line: Line) -> None:
        said: str | None = None
        with self.lock:
            match line:
                case AttemptRecord():
                    self._attempt(line)
                case VerdictRecord():
                    said = self._verdict(line)
                case AbortedRecord():
                    said = self._aborted(line)
                case HookFailure():
                    how = "passed its limit" if line.exit_code is None else f"exited {line.exit_code}"
                    said = f"{self.glyphs.failed} {line.task_name} #{line.attempt}: {line.phase} {how}"
        if said is not None:
            self.say(one_line(said))
        self.changed()

    def note(self, text: str) -> None:
        for each in text.splitlines():
            self.say(one_line(each))

    # What the ways of showing fill in.

    def say(self, text: str) -> None:
        """Print one line. Whatever is wrong with the stream, the run goes on."""
        with suppress(OSError, ValueError), self.lock:
            self._stream.write(text.encode(self._encoding, "replace").decode(self._encoding) + "\n")
            self._stream.flush()

    def changed(self) -> None:
        """Something moved."""

    def verdict_line(self, task: TaskProgress, line: VerdictRecord) -> str | None:
        """What is printed for a verdict: on a plain stream, every one."""
        done = sum(len(each.outcomes) for each in self.tasks.values()) + self.before
        words = WORDS[line.outcome]
        if line.outcome is Outcome.NOT_CHECKED and line.activation_passed is not None:
            words = "activation as asked" if line.activation_passed else "activation not as asked"
        text = f"[{done}/{self.planned}] {self.glyphs.of(line.outcome)} {task.header.name} #{line.attempt}: {words}"
        return text + self._reason(line)

    @property
    def _encoding(self) -> str:
        return getattr(self._stream, "encoding", None) or "utf-8"

    def _attempt(self, line: AttemptRecord) -> None:
        task = self.tasks.get(line.task_id)
        if task is not None:
            task.running.discard(line.attempt)
            task.judging.add(line.attempt)
            task.last_ended = self.clock()

    def _verdict(self, line: VerdictRecord) -> str | None:
        task = self.tasks.get(line.task_id)
        if task is None:
            return None
        task.running.discard(line.attempt)
        task.judging.discard(line.attempt)
        task.outcomes[line.attempt] = line.outcome
        task.last_ended = self.clock()
        return self.verdict_line(task, line)

    def _aborted(self, line: AbortedRecord) -> str | None:
        task = self.tasks.get(line.task_id)
        if task is None:
            return None
        task.aborted = True
        return f"{self.glyphs.lost} {line.task_name}: aborted after attempt {line.after_attempt}"

    def _reason(self, line: VerdictRecord) -> str:
        """Why an attempt was lost, in short."""
        if not line.outcome.noise:
            return ""
        reason = one_line(line.assert_evidence or line.autorater_reasoning or "")
        return f" {self.glyphs.dot} {reason[:REASON_COLUMNS]}" if reason else ""


class LiveProgress(Progress):
    """Redraws a table on a terminal; only what a reader should not miss is printed above it."""

    def __init__(self, header: RunHeader, view: "View", clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(header, view.file if isinstance(view.file, TextIO) else sys.stderr, clock)
        self.glyphs = view.glyphs
        self._view = view
        self._wake = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._draw, daemon=True, name="progress")

    def say(self, text: str) -> None:
        from rich.text import Text

        with suppress(OSError, ValueError):
            self._view.print(Text(text))

    def changed(self) -> None:
        self._wake.set()

    def verdict_line(self, task: TaskProgress, line: VerdictRecord) -> str | None:
        if not line.outcome.noise:
            return None
        mark = self.glyphs.of(line.outcome)
        return f"{mark} {task.header.name} #{line.attempt}: {WORDS[line.outcome]}{self._reason(line)}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._wake.set()
        self._thread.join(timeout=2)

    def _draw(self) -> None:
        from rich.live import Live

        with (
            suppress(OSError, ValueError),
            Live(
                console=self._view, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
            ) as live,
        ):
            while not self._over.is_set():
                live.update(self.table(), refresh=True)
                self._wake.wait(max(IDLE_SECONDS, min(len(self.tasks), self._view.height) / ROWS_A_SECOND))
                self._wake.clear()
                self._over.wait(LEAST_SECONDS)
            live.update("", refresh=True)

    def table(self) -> "Table":
        """The rows that fit the screen, unfinished tasks before finished ones, and a line that sums up."""
        from rich.table import Table
        from rich.text import Text

        from caliper_pipeline.interfaces.render.console import shortened, styled

        now = self.clock()
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True, max_width=NAME_COLUMNS)
        table.add_column(no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
        with self.lock:
            tasks = list(self.tasks.values())
            room = max(self._view.height - 3, 1)
            if len(tasks) > room:
                tasks.sort(key=lambda task: (task.done(self.k), task.first_started is None))
            for task in tasks[:room]:
                name = shortened(styled(task.header.name), NAME_COLUMNS, self.glyphs)
                if task.first_started is None and not task.outcomes:
                    name.stylize("dim")
                end = task.last_ended if task.done(self.k) and task.last_ended is not None else now
                elapsed = seconds(end - task.first_started, self.glyphs) if task.first_started is not None else ""
                table.add_row(name, self._marks(task), Text(elapsed, style="dim"))
            hidden = len(tasks) - room
            if hidden > 0:
                table.add_row(Text(f"and {plural(hidden, 'more task')}", style="dim"), "", "")
            table.add_row(*self._sum(now))
        return table

    def _marks(self, task: TaskProgress) -> "Text":
        """One mark an attempt by its number; of many attempts the number of each kind."""
        from rich.text import Text

        line = Text()
        if self.k > MOST_MARKS:
            for kind, number in tally(list(task.outcomes.values())):
                line.append(f"{self.glyphs.of(kind)}{number} ", style=OUTCOME_STYLE[kind])
            if task.running:
                line.append(f"{self.glyphs.running}{len(task.running)} ", style="cyan")
            if task.judging:
                line.append(f"{self.glyphs.judging}{len(task.judging)} ", style="cyan")
            left = self.k - len(task.outcomes) - len(task.running) - len(task.judging)
            if left > 0 and not task.aborted:
                line.append(f"{self.glyphs.open}{left}", style="dim")
        else:
            for number in range(1, self.k + 1):
                outcome = task.outcomes.get(number)
                if outcome is not None:
                    line.append(self.glyphs.of(outcome), style=OUTCOME_STYLE[outcome])
                elif number in task.running:
                    line.append(self.glyphs.running, style="cyan")
                elif number in task.judging:
                    line.append(self.glyphs.judging, style="cyan")
                else:
                    line.append(self.glyphs.open, style="dim")
        if task.aborted:
            line.append(" aborted", style="yellow")
        return line

    def _sum(self, now: float) -> "tuple[Text, Text, Text]":
        from rich.text import Text

        outcomes = [outcome for task in self.tasks.values() for outcome in task.outcomes.values()]
        line = Text()
        for kind, number in tally(outcomes):
            line.append(f"{self.glyphs.of(kind)}{number} ", style=OUTCOME_STYLE[kind])
        done = f"{len(outcomes) + self.before} of {self.planned} attempts"
        return Text(done, style="bold"), line, Text(seconds(now - self.began, self.glyphs), style="dim")


@contextmanager
def make_progress(header: RunHeader, stream: Any = None) -> Iterator[Progress]:
    """The observer of a run, shown the way standard error (or the stream given) allows."""
    stream = stream if stream is not None else sys.stderr
    if not _is_terminal(stream):
        yield Progress(header, stream)
        return
    from caliper_pipeline.interfaces.render.console import View

    progress = LiveProgress(header, View(stream))
    progress.start()
    try:
        yield progress
    finally:
        progress.stop()


def _is_terminal(stream: Any) -> bool:
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False
