"""A run in one line of a list: what `caliper list` shows of it, and no more.

A tuple, and in a module that imports next to nothing: a list of 20,000 runs is made of them in a fifth of a second.
Times are texts, as the results file has them in UTC.
"""

from typing import TYPE_CHECKING, NamedTuple

from caliper_pipeline.domain.plain import utc_text

if TYPE_CHECKING:
    from caliper_pipeline.domain.results import Results


class RunBrief(NamedTuple):
    ended_utc: str
    started_utc: str | None
    """`None`: not recorded."""
    run_id: str | None
    """`None`: the file is of another product."""
    backend: str
    model: str | None
    ablated: tuple[str, ...]
    k: int
    tasks: int
    score: float | None
    """`None`: nothing was measured."""
    score_low: float | None
    score_high: float | None
    scored_tasks: int
    successes: int
    usable: int
    interrupted: bool
    probes_only: bool
    simulated: bool

    @property
    def engine(self) -> str:
        return self.backend if self.model is None else f"{self.backend}:{self.model}"

    @property
    def pooled(self) -> bool:
        """The attempts' share of passes is the headline, so that both may stand together."""
        if self.score is None or not self.usable:
            return False
        return abs(self.successes / self.usable - self.score) <= 0.0005


LOOKS = RunBrief._fields.index("backend")
"""From here on stands what a list shows; before it what tells runs apart."""


def brief_of(results: "Results") -> RunBrief:
    run, score = results.run, results.aggregate
    shown = score.interval if score.avg_score is not None else None
    return RunBrief(
        ended_utc=utc_text(run.timestamp),
        started_utc=None if run.started_at is None else utc_text(run.started_at),
        run_id=run.run_id,
        backend=run.backend,
        model=run.model,
        ablated=run.ablated,
        k=run.k,
        tasks=len(results.task_results),
        score=score.avg_score,
        score_low=None if shown is None else shown.low,
        score_high=None if shown is None else shown.high,
        scored_tasks=score.scored_tasks,
        successes=score.successes,
        usable=score.usable,
        interrupted=run.interrupted,
        probes_only=results.probes_only,
        simulated=run.simulated,
    )
