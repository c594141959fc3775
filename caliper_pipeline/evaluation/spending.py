"""What a run has used and may still use: the calls of its agents and judge, counted against its budget."""

from caliper_pipeline.domain.engine import Engine
from caliper_pipeline.domain.errors import BudgetReached
from caliper_pipeline.domain.prices import cost_usd, price_of
from caliper_pipeline.domain.records import RunHeader
from caliper_pipeline.domain.transcript import Usage
from caliper_pipeline.evaluation.settings import judge_engine_of
from caliper_pipeline.execution.budget import Allowance, Budget
from caliper_pipeline.storage.runs import RunState


class Spending:
    def __init__(self, header: RunHeader, allowance: Allowance, state: RunState) -> None:
        """`state`: what the run already holds counts."""
        self._header = header
        self.budget = Budget(allowance)
        tokens, cost = 0, 0.0
        for record in state.attempts.values():
            tokens += _tokens(record.usage) or 0
            cost += self._cost(record.usage, record.model, judge=False) or 0.0
        for verdict in state.verdicts.values():
            tokens += _tokens(verdict.judge_usage) or 0
            cost += self._cost(verdict.judge_usage, verdict.judge_model, judge=True) or 0.0
        self.budget.start_from(tokens, cost, len(state.attempts))

    def book(self, usage: Usage | None, model: str | None, *, judge: bool) -> None:
        """What one attempt's agent, or its judge, used. `model`: the one that answered, where that is known."""
        self.budget.book(_tokens(usage), self._cost(usage, model, judge=judge))

    def over(self) -> BudgetReached:
        """Why the run ends here."""
        return BudgetReached(
            f"One more attempt could pass the budget of this run: {self.budget.reason()}.",
            hint="What is finished is kept. To go on, resume the run with a larger value of the flag.",
        )

    def _cost(self, usage: Usage | None, model: str | None, *, judge: bool) -> float | None:
        header = self._header
        engine = judge_engine_of(header) if judge else Engine(header.backend, header.model)
        if engine is None:
            return None
        answered = price_of(header.prices, backend=engine.backend, model=model)
        asked = price_of(header.prices, backend=engine.backend, model=engine.model)
        return cost_usd(usage, answered or asked)


def _tokens(usage: Usage | None) -> int | None:
    return usage.total_tokens if usage is not None else None
