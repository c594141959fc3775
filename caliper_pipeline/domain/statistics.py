"""How sure we are of a rate: intervals for one task and for a suite, and the estimates of pass@k and pass^k.

Everything is in plain Python, because the commands that only show numbers must start fast. What is not here: tests
of a difference between two runs, and what follows nights.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A range that holds the true rate in the share `level` of cases."""

    low: float
    high: float
    level: float = LEVEL
    method: str = "wilson"
    """`wilson`, `jeffreys`, `clopper-pearson`, or `wilson-suite`: Wilson over all attempts of the same tasks."""


def wilson(successes: float, trials: float, level: float = LEVEL) -> Interval:
    """Wilson's score interval; `[0, 1]` without trials. Counts may be fractions (effective sizes).

    Wilson 1927; recommended for small samples by Brown, Cai, DasGupta 2001 and Bowyer et al. 2025 (arXiv 2503.01747).
    """
    _check(successes, trials)
    if trials == 0:
        return Interval(0.0, 1.0, level, "wilson")
    z = _z(level)
    rate = successes / trials
    middle = rate + z * z / (2 * trials)
    spread = z * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    low = 0.0 if successes == 0 else max(0.0, (middle - spread) / scale)
    high = 1.0 if successes == trials else min(1.0, (middle + spread) / scale)
    return Interval(min(low, rate), max(high, rate), level, "wilson")


def jeffreys(successes: int, trials: int, level: float = LEVEL) -> Interval:
    """The equal-tailed interval of Beta(x + ½, n − x + ½), reaching 0 and 1 where nothing or everything passed.

    Brown, Cai, DasGupta 2001.
    """
    _check(successes, trials)
    tail = (1 - level) / 2
    a, b = successes + 0.5, trials - successes + 0.5
    low = 0.0 if successes == 0 else beta_quantile(tail, a, b)
    high = 1.0 if successes == trials else beta_quantile(1 - tail, a, b)
    return Interval(low, high, level, "jeffreys")


def clopper_pearson(successes: int, trials: int, level: float = LEVEL) -> Interval:
    """The exact interval: its coverage is never below `level`. For gates and baselines.

    Clopper and Pearson 1934.
    """
    _check(successes, trials)
    tail = (1 - level) / 2
    low = 0.0 if successes == 0 else beta_quantile(tail, successes, trials - successes + 1)
    high = 1.0 if successes == trials else beta_quantile(1 - tail, successes + 1, trials - successes)
    return Interval(low, high, level, "clopper-pearson")


def suite_wilson(counts: Sequence[tuple[int, int]], level: float = LEVEL) -> Interval | None:
    """How reliable the agent is on *these* tasks: an interval round the plain mean of the tasks' rates.

    `counts` holds (passes, usable attempts) of each task; tasks without usable attempts say nothing. With equal
    numbers of attempts this is Wilson's interval of the pooled counts, which is conservative: a sum of unequal
    Bernoulli variables has lighter tails than the binomial of their mean (Hoeffding 1956). With unequal numbers the
    size that counts is T² ÷ Σ 1/n, from the variance of a mean of T rates, so the mean stays inside. It says nothing
    about tasks *like* these. `None`: nothing was measured.
    """
    measured = [(passes, usable) for passes, usable in counts if usable > 0]
    if not measured:
        return None
    tasks = len(measured)
    sizes = {usable for _, usable in measured}
    if len(sizes) == 1:
        passes, usable = sum(x for x, _ in measured), float(sum(n for _, n in measured))
        found = wilson(passes, usable, level)
    else:
        mean = math.fsum(x / n for x, n in measured) / tasks
        usable = tasks * tasks / math.fsum(1 / n for _, n in measured)
        found = wilson(min(mean, 1.0) * usable, usable, level)
    return Interval(found.low, found.high, level, "wilson-suite")


def plug_in_pass_at(rate: float, k: int) -> float:
    """1 − (1 − p)^k: the chance of at least one pass, with the observed rate put in. Biased; kept for comparison."""
    return float(1 - (1 - rate) ** k)


def plug_in_pass_hat(rate: float, k: int) -> float:
    """p^k: the chance that all pass, with the observed rate put in. Biased; kept for comparison."""
    return float(rate**k)


def unbiased_pass_at(successes: int, trials: int, k: int) -> float | None:
    """1 − C(n−x, k) ÷ C(n, k): the chance that one of k attempts passes. `None` where n < k.

    Chen et al. 2021, arXiv 2107.03374.
    """
    _check(successes, trials)
    if k < 1 or trials < k:
        return None
    return 1 - math.comb(trials - successes, k) / math.comb(trials, k)


def unbiased_pass_hat(successes: int, trials: int, k: int) -> float | None:
    """C(x, k) ÷ C(n, k): the chance that k attempts all pass. `None` where n < k.

    Yao et al. 2024 (tau-bench), arXiv 2406.12045.
    """
    _check(successes, trials)
    if k < 1 or trials < k:
        return None
    return math.comb(successes, k) / math.comb(trials, k)


def beta_cdf(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b), by its continued fraction (Press et al. 2007, §6.4)."""
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    if x < (a + 1) / (a + b + 2):
        return math.exp(log_front) * _beta_fraction(x, a, b) / a
    return 1 - math.exp(log_front) * _beta_fraction(1 - x, b, a) / b


def beta_quantile(probability: float, a: float, b: float) -> float:
    """The x at which `beta_cdf(x, a, b)` reaches the probability: halving, which cannot go astray."""
    low, high = 0.0, 1.0
    while True:
        middle = (low + high) / 2
        if middle in (low, high):
            return middle
        if beta_cdf(middle, a, b) < probability:
            low = middle
        else:
            high = middle
        if high - low < 1e-15 * max(high, 1e-9):
            return (low + high) / 2


def _beta_fraction(x: float, a: float, b: float) -> float:
    """Lentz's evaluation of the continued fraction."""
    tiny = 1e-300
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > tiny else tiny)
    result = d
    for m in range(1, 100_000):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 + numerator * d
            d = 1 / (d if abs(d) > tiny else tiny)
            c = 1 + numerator / c
            c = c if abs(c) > tiny else tiny
            result *= c * d
        if abs(c * d - 1) < 1e-16:
            break
    return result


@lru_cache(maxsize=16)
def _z(level: float) -> float:
    """The two-sided normal quantile: 1.96 for 0.95."""
    if not 0 < level < 1:
        raise ValueError(f"a level between 0 and 1 is needed, not {level}")
    low, high = 0.0, 40.0
    while low < (middle := (low + high) / 2) < high:
        if math.erfc(middle / math.sqrt(2)) > 1 - level:
            low = middle
        else:
            high = middle
    return low


def _check(successes: float, trials: float) -> None:
    if not 0 <= successes <= trials:
        raise ValueError(f"0 ≤ successes ≤ trials is needed, not {successes} of {trials}")
