"""One back-off for all calls of one engine, and how many of them may run at once.

Every worker that is throttled tells the same gate, so that the engine is left alone by all of them: calls at once are
halved, and nobody starts one before the wait is over. Each call that is served lets a little more through again, up to
where it began (additive increase, multiplicative decrease, as TCP has it). What the service asked for in `Retry-After`
outweighs our own wait.

A gate is held only while a call runs. Who waits before it holds no place, and those who wait with an attempt already
begun go first, since their workdirs are alive.
"""

import random
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from caliper_pipeline.execution.command import StopToken


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to leave a throttled engine alone."""

    first_seconds: float = 2.0
    """After the first throttle in a row; doubled with each further one."""
    most_seconds: float = 60.0
    lost_attempts: int = 5
    """Attempts in a row that may be lost to throttling before the run is stopped: going on would only lose more."""


class Gate:
    """What the workers of one engine share. `places`: calls at once when nothing is throttled."""

    def __init__(
        self, places: int, backoff: Backoff | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.places = places
        self.backoff = backoff if backoff is not None else Backoff()
        self._clock = clock
        self._limit = float(places)
        self._running = 0
        self._streak = 0
        self._lost = 0
        self._open_at = 0.0
        self._returning = 0
        self._shut = False
        self._changed = threading.Condition()

    @property
    def limit(self) -> int:
        """Calls at once, as of now."""
        return max(1, int(self._limit))

    @property
    def wait_seconds(self) -> float:
        """Until the next call may start."""
        return max(0.0, self._open_at - self._clock())

    def enter(self, stop: StopToken, *, returning: bool = False) -> bool:
        """Waits for a place. False: stopped or shut meanwhile. `returning`: a call that was throttled.

        Only `wake` makes it notice the stop.
        """
        with self._changed:
            self._returning += returning
            try:
                while not stop.is_set and not self._shut:
                    wait = self.wait_seconds
                    first = returning or not self._returning
                    if wait == 0 and self._running < self.limit and first:
                        self._running += 1
                        return True
                    self._changed.wait(wait or None)
                return False
            finally:
                self._returning -= returning

    def leave(self, *, throttled: bool = False, retry_after: float | None = None) -> None:
        """Gives the place back and says how the call went."""
        with self._changed:
            now = self._clock()
            self._running -= 1
            if throttled:
                # Calls that were under way together are told off together: that is one sign, not many.
                if now >= self._open_at:
                    self._limit = max(1.0, self._limit / 2)
                    self._streak += 1
                own = min(self.backoff.most_seconds, self.backoff.first_seconds * 2 ** (self._streak - 1))
                wait = max(own * (1 + random.random() / 4), retry_after or 0.0)
                self._open_at = max(self._open_at, now + wait)
            else:
                self._streak = self._lost = 0
                self._limit = min(float(self.places), self._limit + 1 / self._limit)
            self._changed.notify_all()

    def lost(self) -> bool:
        """An attempt was given up as throttled. True: too many in a row, with nothing served between."""
        with self._changed:
            self._lost += 1
            return self._lost >= self.backoff.lost_attempts

    def shut(self) -> None:
        """Nobody gets in any more; calls under way go on."""
        with self._changed:
            self._shut = True
            self._changed.notify_all()

    def wake(self) -> None:
        """After the stop token was set: whoever waits looks at it at once."""
        with self._changed:
            self._changed.notify_all()


class Gates:
    """The gates of a run, one an engine: where agent and judge are the same engine, they share one."""

    def __init__(self, wanted: Iterable[tuple[str, int]], backoff: Backoff) -> None:
        """`wanted`: engine and calls at once, once for each use of it."""
        places: dict[str, int] = {}
        for engine, count in wanted:
            places[engine] = places.get(engine, 0) + count
        self._gates = {engine: Gate(count, backoff) for engine, count in places.items()}

    def __getitem__(self, engine: str) -> Gate:
        return self._gates[engine]

    def wake(self) -> None:
        for gate in self._gates.values():
            gate.wake()
