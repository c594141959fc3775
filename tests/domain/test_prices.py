"""What tokens cost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caliper_pipeline.domain.prices import Price, cost_usd, price_of
from caliper_pipeline.domain.transcript import Usage

FULL = Price(3.0, 15.0, 0.3, 3.75)
TABLE = {"claude-*": Price(1, 1), "claude-sonnet-*": Price(2, 2), "codex:gpt-5.5": Price(3, 3), "pi": Price(4, 4)}


def test_each_kind_of_token_has_its_own_price() -> None:
    assert cost_usd(Usage(1_000_000, 100_000, 1_000_000, 1_000_000), FULL) == pytest.approx(3 + 1.5 + 0.3 + 3.75)


@pytest.mark.parametrize(
    ("usage", "price"),
    [
        (None, FULL),
        (Usage(1, 1), None),
        (Usage(), FULL),
        (Usage(1, 1, 5), Price(3, 15)),  # tokens from a cache, and no price for them
    ],
)
def test_without_a_price_for_every_token_no_cost_is_claimed(usage: Usage | None, price: Price | None) -> None:
    assert cost_usd(usage, price) is None


def test_tokens_of_a_kind_that_did_not_occur_need_no_price() -> None:
    assert cost_usd(Usage(1_000_000, 0, 0, None), Price(3, 15)) == 3


@pytest.mark.parametrize(
    ("backend", "model", "found"),
    [
        ("codex", "gpt-5.5", 3),
        ("claude-code", "claude-sonnet-5", 2),  # the longest pattern
        ("claude-code", "claude-opus-4", 1),
        ("pi", None, 4),
        ("codex", None, None),
        ("codex", "other", None),
    ],
)
def test_a_price_is_found_by_the_most_exact_name(backend: str, model: str | None, found: float | None) -> None:
    price = price_of(TABLE, backend=backend, model=model)
    assert (price.input_usd if price else None) == found


@given(st.lists(st.integers(0, 10**9), min_size=4, max_size=4), st.lists(st.integers(0, 10**9), min_size=4, max_size=4))
def test_costs_add_up(first: list[int], second: list[int]) -> None:
    a, b = Usage(*first), Usage(*second)
    together = cost_usd(a.plus(b), FULL)
    assert together == pytest.approx((cost_usd(a, FULL) or 0) + (cost_usd(b, FULL) or 0))
