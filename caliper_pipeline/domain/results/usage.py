"""What a run cost in tokens and seconds."""

import math
from dataclasses import dataclass

from caliper_pipeline.domain.results.values import Results


@dataclass(frozen=True, slots=True)
class UsageTotals:
    """Sums over all attempts of a run. Attempts that were lost are in the sums and told apart."""

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_creation_tokens: int
    wall_seconds: float
    attempts: int
    tokens_reported: bool
    """Some attempt told its tokens; without that the sums mean nothing."""
    unusable_tokens: int
    unusable_wall_seconds: float
    unusable_attempts: int
    judge_seconds: float
    judged_attempts: int
    retries: int
    retried_attempts: int

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.output_tokens

    @property
    def prompt_tokens(self) -> int:
        return self.input_tokens + self.cache_read_tokens + self.cache_creation_tokens

    @property
    def usable_attempts(self) -> int:
        """Not lost to the execution; probes count."""
        return self.attempts - self.unusable_attempts

    @property
    def usable_wall_seconds(self) -> float:
        return max(self.wall_seconds - self.unusable_wall_seconds, 0.0)

    @property
    def tokens_per_attempt(self) -> int | None:
        if not self.tokens_reported or not self.usable_attempts:
            return None
        return (self.total_tokens - self.unusable_tokens) // self.usable_attempts

    @property
    def wall_per_attempt(self) -> float | None:
        return self.usable_wall_seconds / self.usable_attempts if self.usable_attempts else None

    @property
    def judge_per_attempt(self) -> float | None:
        return self.judge_seconds / self.judged_attempts if self.judged_attempts else None


def usage_totals(results: Results) -> UsageTotals:
    attempts = [attempt for task in results.task_results for attempt in task.attempts]
    lost = [attempt for attempt in attempts if attempt.outcome.noise]
    told = [attempt.usage for attempt in attempts if attempt.usage is not None]
    judged = [attempt.judge_seconds for attempt in attempts if attempt.judge_seconds is not None]
    return UsageTotals(
        input_tokens=sum(usage.input_tokens or 0 for usage in told),
        output_tokens=sum(usage.output_tokens or 0 for usage in told),
        cache_read_tokens=sum(usage.cache_read_tokens or 0 for usage in told),
        cache_creation_tokens=sum(usage.cache_creation_tokens or 0 for usage in told),
        wall_seconds=math.fsum(attempt.duration_seconds for attempt in attempts),
        attempts=len(attempts),
        tokens_reported=any(usage.total_tokens is not None for usage in told),
        unusable_tokens=sum((attempt.usage.total_tokens or 0) if attempt.usage else 0 for attempt in lost),
        unusable_wall_seconds=math.fsum(attempt.duration_seconds for attempt in lost),
        unusable_attempts=len(lost),
        judge_seconds=math.fsum(judged),
        judged_attempts=len(judged),
        retries=sum(attempt.retries for attempt in attempts),
        retried_attempts=sum(attempt.retries > 0 for attempt in attempts),
    )
