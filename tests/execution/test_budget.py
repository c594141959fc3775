"""What a run may use."""

import threading

import pytest

from caliper_pipeline.execution.budget import Allowance, Budget


def used(budget: Budget, tokens: int, cost_usd: float = 0.0) -> None:
    assert budget.admit()
    budget.book(tokens, cost_usd)
    budget.ended()


def test_without_limits_everything_is_let_in() -> None:
    budget = Budget(Allowance())
    used(budget, 10**9, 10**6)
    assert budget.admit()


def test_an_attempt_that_would_likely_pass_the_limit_is_not_started() -> None:
    budget = Budget(Allowance(max_tokens=250))
    used(budget, 100)
    used(budget, 100)
    assert not budget.admit()
    assert budget.reason() == "200 of 250 tokens are used (--max-tokens)"


def test_dollars_are_counted_like_tokens() -> None:
    budget = Budget(Allowance(max_cost_usd=1.0))
    used(budget, 5, 0.7)
    assert not budget.admit()
    assert budget.reason() == "$0.70 of $1.00 are used (--max-cost)"


def test_attempts_under_way_count_with_what_they_are_likely_to_use() -> None:
    budget = Budget(Allowance(max_tokens=300))
    used(budget, 100)
    assert budget.admit()
    assert budget.admit()
    waited: list[bool] = []
    third = threading.Thread(target=lambda: waited.append(budget.admit()))
    third.start()
    for _ in range(2):
        budget.book(10, 0.0)
        budget.ended()
    third.join()
    assert waited == [True], "both took less than expected, so there is room after all"


@pytest.mark.parametrize(("each", "admitted"), [(None, 3), (100, 2)])
def test_before_the_first_ended_the_limit_of_one_attempt_is_what_it_may_use(each: int | None, admitted: int) -> None:
    budget = Budget(Allowance(max_tokens=250, max_tokens_per_attempt=each))
    count = 0
    while count < 3 and budget._fits(budget._running + 1):
        assert budget.admit()
        count += 1
    assert count == admitted


def test_what_an_earlier_part_of_the_run_used_counts() -> None:
    budget = Budget(Allowance(max_tokens=100))
    budget.start_from(95, 0.0, 10)
    assert not budget.admit()


def test_a_stop_turns_away_who_waits() -> None:
    budget = Budget(Allowance(max_tokens=150))
    used(budget, 100)
    budget.close()
    assert not budget.admit()
