"""What a run may use: tokens and dollars, asked before each attempt and told after each call.

An attempt is let in when what was used, and what the attempts under way and it itself are likely to use, stay within
the budget; likely is the mean of the attempts that ended. Before the first one ended nothing is known of what an
attempt takes, so the first ones are let in up to the number of workers, unless each has a limit of its own.
"""

import threading
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Allowance:
    """`None`: no limit."""

    max_tokens: int | None = None
    max_cost_usd: float | None = None
    max_tokens_per_attempt: int | None = None

    @property
    def limited(self) -> bool:
        return self.max_tokens is not None or self.max_cost_usd is not None


class Budget:
    """Shared by all workers of a run."""

    def __init__(self, allowance: Allowance) -> None:
        self.allowance = allowance
        self.tokens = 0
        self.cost_usd = 0.0
        self._ended = 0
        self._running = 0
        self._changed = threading.Condition()
        self._closed = False

    def admit(self) -> bool:
        """Whether one more attempt may start; waits while that hangs on those under way. False: it may not, nor may
        any later one."""
        with self._changed:
            while not self._closed:
                if not self.allowance.limited or self._fits(self._running + 1):
                    self._running += 1
                    return True
                if not self._running or self._used_up:
                    return False
                self._changed.wait()
            return False

    def book(self, tokens: int | None, cost_usd: float | None) -> None:
        """What an agent or a judge used. An unknown number counts for nothing."""
        with self._changed:
            self.tokens += tokens or 0
            self.cost_usd += cost_usd or 0.0
            self._changed.notify_all()

    def ended(self, *, counts: bool = True) -> None:
        """An admitted attempt is over. `counts`: it tells what an attempt takes."""
        with self._changed:
            self._running -= 1
            self._ended += counts
            self._changed.notify_all()

    def start_from(self, tokens: int, cost_usd: float, attempts: int) -> None:
        """What an earlier part of the same run used."""
        self.tokens, self.cost_usd, self._ended = tokens, cost_usd, attempts

    def close(self) -> None:
        """The run stops: whoever waits is turned away."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def reason(self) -> str:
        """Which limit turned an attempt away, in words."""
        allowance = self.allowance
        if allowance.max_tokens is not None and not self._tokens_fit(1):
            return f"{self.tokens:,} of {allowance.max_tokens:,} tokens are used (--max-tokens)"
        return f"${self.cost_usd:.2f} of ${allowance.max_cost_usd or 0:.2f} are used (--max-cost)"

    @property
    def _used_up(self) -> bool:
        most, dearest = self.allowance.max_tokens, self.allowance.max_cost_usd
        return (most is not None and self.tokens >= most) or (dearest is not None and self.cost_usd >= dearest)

    def _fits(self, attempts: int) -> bool:
        return not self._used_up and self._tokens_fit(attempts) and self._cost_fits(attempts)

    def _tokens_fit(self, attempts: int) -> bool:
        most = self.allowance.max_tokens
        if most is None:
            return True
        each = self.tokens / self._ended if self._ended else (self.allowance.max_tokens_per_attempt or 0)
        return self.tokens + attempts * each <= most

    def _cost_fits(self, attempts: int) -> bool:
        dearest = self.allowance.max_cost_usd
        if dearest is None:
            return True
        each = self.cost_usd / self._ended if self._ended else 0.0
        return self.cost_usd + attempts * each <= dearest
