"""What tokens cost, from the prices a project states. No price, no claim: an unknown cost is `None`, never 0."""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from caliper_pipeline.domain.transcript import Usage

PER_TOKENS = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for a million tokens of each kind. `None`: not stated."""

    input_usd: float
    output_usd: float
    cache_read_usd: float | None = None
    cache_creation_usd: float | None = None


def price_of(prices: Mapping[str, Price], *, backend: str, model: str | None) -> Price | None:
    """The price of a model: by `backend:model`, else by the model, else by the longest pattern that fits either; for
    an engine whose model is not known by its backend alone."""
    names = [backend] if model is None else [f"{backend}:{model}", model]
    for name in names:
        if name in prices:
            return prices[name]
    fitting = [pattern for pattern in prices if any(fnmatchcase(name, pattern) for name in names)]
    return prices[max(fitting, key=lambda pattern: (len(pattern), pattern))] if fitting else None


def cost_usd(usage: Usage | None, price: Price | None) -> float | None:
    """Cost of these tokens in US dollars. `None`: no tokens were told, or one kind of them has no price."""
    if usage is None or price is None or usage.total_tokens is None:
        return None
    rates = (price.input_usd, price.output_usd, price.cache_read_usd, price.cache_creation_usd)
    total = 0.0
    for count, rate in zip(usage.counts(), rates, strict=True):
        if count:
            if rate is None:
                return None
            total += count * rate
    return total / PER_TOKENS
