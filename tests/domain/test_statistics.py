"""The intervals and estimates agree with SciPy and with the published figures, and keep their laws."""

import math
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from caliper_pipeline.domain.statistics import (
    beta_cdf,
    beta_quantile,
    clopper_pearson,
    jeffreys,
    plug_in_pass_at,
    plug_in_pass_hat,
    suite_wilson,
    unbiased_pass_at,
    unbiased_pass_hat,
    wilson,
)

counts = st.integers(0, 60).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
GRID = [(x, n) for n in (1, 2, 3, 5, 10, 30, 100, 1_000) for x in sorted({0, 1, n // 3, n // 2, n - 1, n}) if x <= n]


@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
@pytest.mark.parametrize(("x", "n"), GRID)
def test_wilson_and_clopper_pearson_agree_with_scipy(x: int, n: int, level: float) -> None:
    for ours, method in ((wilson, "wilson"), (clopper_pearson, "exact")):
        theirs = stats.binomtest(x, n).proportion_ci(level, method=method)
        found = ours(x, n, level)
        assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), abs=1e-9)
        assert found.level == level


@pytest.mark.parametrize(("x", "n"), GRID)
def test_jeffreys_agrees_with_scipy(x: int, n: int) -> None:
    found = jeffreys(x, n)
    low = 0.0 if x == 0 else stats.beta.ppf(0.025, x + 0.5, n - x + 0.5)
    high = 1.0 if x == n else stats.beta.ppf(0.975, x + 0.5, n - x + 0.5)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-9)


@given(st.floats(0, 1), st.floats(0.5, 2_000), st.floats(0.5, 2_000))
def test_the_beta_distribution_agrees_with_scipy(x: float, a: float, b: float) -> None:
    assert beta_cdf(x, a, b) == pytest.approx(stats.beta.cdf(x, a, b), abs=1e-9)


@given(st.floats(1e-6, 1 - 1e-6), st.floats(0.5, 500), st.floats(0.5, 500))
def test_its_quantile_agrees_with_scipy(probability: float, a: float, b: float) -> None:
    assert beta_quantile(probability, a, b) == pytest.approx(stats.beta.ppf(probability, a, b), abs=1e-9)


@pytest.mark.parametrize(
    ("x", "n", "interval"),
    [(3, 3, (0.44, 1)), (5, 5, (0.57, 1)), (10, 10, (0.72, 1)), (2, 3, (0.21, 0.94)), (28, 30, (0.79, 0.98))],
)
def test_wilson_has_the_published_figures(x: int, n: int, interval: tuple[float, float]) -> None:
    found = wilson(x, n)
    assert (round(found.low, 2), round(found.high, 2)) == interval


@given(counts)
def test_an_interval_holds_its_rate_and_stays_between_0_and_1(count: tuple[int, int]) -> None:
    x, n = count
    if n == 0:
        assert (wilson(x, n).low, wilson(x, n).high) == (0, 1)
        return
    for method in (wilson, jeffreys, clopper_pearson):
        found = method(x, n)
        assert 0 <= found.low <= x / n <= found.high <= 1


@given(counts)
def test_an_interval_mirrors_when_passes_and_failures_change_places(count: tuple[int, int]) -> None:
    x, n = count
    one, other = wilson(x, n), wilson(n - x, n)
    assert (one.low, one.high) == pytest.approx((1 - other.high, 1 - other.low))


@pytest.mark.parametrize(("x", "n"), [(-1, 3), (4, 3), (1, 0)])
def test_counts_that_cannot_be_are_refused(x: int, n: int) -> None:
    for method in (wilson, jeffreys, clopper_pearson):
        with pytest.raises(ValueError):
            method(x, n)
    with pytest.raises(ValueError):
        unbiased_pass_at(x, n, 1)


def test_a_level_of_one_is_refused() -> None:
    with pytest.raises(ValueError):
        wilson(1, 2, 1.0)


@given(st.lists(st.tuples(st.integers(0, 5), st.just(5)), min_size=1, max_size=20))
def test_with_equal_numbers_of_attempts_a_suite_is_wilson_of_the_pool(tasks: list[tuple[int, int]]) -> None:
    found = suite_wilson(tasks)
    pooled = wilson(sum(x for x, _ in tasks), 5 * len(tasks))
    assert found is not None
    assert (found.low, found.high) == (pooled.low, pooled.high)
    assert found.method == "wilson-suite"


@given(st.lists(counts, max_size=12))
def test_the_suites_interval_holds_the_mean_of_the_rates(tasks: list[tuple[int, int]]) -> None:
    found = suite_wilson(tasks)
    rates = [x / n for x, n in tasks if n]
    if not rates:
        assert found is None
    else:
        assert found is not None
        assert found.low - 1e-12 <= math.fsum(rates) / len(rates) <= found.high + 1e-12


@given(counts.filter(lambda c: 0 < c[1] <= 8), st.integers(1, 8))
def test_the_unbiased_estimates_count_the_subsets(count: tuple[int, int], k: int) -> None:
    x, n = count
    subsets = list(combinations([True] * x + [False] * (n - x), k))
    at, hat = unbiased_pass_at(x, n, k), unbiased_pass_hat(x, n, k)
    if k > n:
        assert at is None
        assert hat is None
    else:
        assert at == pytest.approx(sum(any(s) for s in subsets) / len(subsets))
        assert hat == pytest.approx(sum(all(s) for s in subsets) / len(subsets))


@given(counts.filter(lambda c: c[1] > 0), st.integers(1, 60))
def test_all_pass_is_never_likelier_than_one_and_one_never_than_any(count: tuple[int, int], k: int) -> None:
    x, n = count
    rate = x / n
    assert plug_in_pass_hat(rate, k) <= rate + 1e-12
    assert rate <= plug_in_pass_at(rate, k) + 1e-12
    at, hat = unbiased_pass_at(x, n, k), unbiased_pass_hat(x, n, k)
    if at is not None and hat is not None:
        assert 0 <= hat <= rate + 1e-12
        assert rate <= at + 1e-12 <= 1 + 1e-12
