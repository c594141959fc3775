"""One back-off for all calls of an engine."""

import threading

import pytest

from caliper_pipeline.execution.command import StopToken
from caliper_pipeline.execution.throttle import Backoff, Gate, Gates


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def stop() -> StopToken:
    return StopToken()


def entered(gate: Gate, stop: StopToken, times: int) -> None:
    for _ in range(times):
        assert gate.enter(stop)


def test_a_throttle_halves_the_calls_at_once(clock: Clock, stop: StopToken) -> None:
    gate = Gate(8, clock=clock)
    entered(gate, stop, 1)
    gate.leave(throttled=True)
    assert gate.limit == 4


def test_calls_that_are_told_off_together_are_one_sign(clock: Clock, stop: StopToken) -> None:
    gate = Gate(8, clock=clock)
    entered(gate, stop, 3)
    for _ in range(3):
        gate.leave(throttled=True)
    assert gate.limit == 4


def test_what_is_served_lets_through_a_little_more_up_to_where_it_began(clock: Clock, stop: StopToken) -> None:
    gate = Gate(4, clock=clock)
    entered(gate, stop, 1)
    gate.leave(throttled=True)
    clock.now += 1000
    limits = []
    for _ in range(12):
        entered(gate, stop, 1)
        gate.leave()
        limits.append(gate.limit)
    assert limits == sorted(limits)
    assert (limits[0], limits[-1]) == (2, 4)


def test_the_wait_doubles_with_each_throttle_in_a_row_up_to_the_longest(clock: Clock, stop: StopToken) -> None:
    gate = Gate(1, Backoff(first_seconds=2, most_seconds=10), clock=clock)
    waits = []
    for _ in range(5):
        entered(gate, stop, 1)
        gate.leave(throttled=True)
        waits.append(gate.wait_seconds)
        clock.now += gate.wait_seconds
    for wait, least in zip(waits, (2, 4, 8, 10, 10), strict=True):
        assert least <= wait <= least * 1.25


def test_what_the_service_asks_for_outweighs_our_own_wait(clock: Clock, stop: StopToken) -> None:
    gate = Gate(1, Backoff(first_seconds=2), clock=clock)
    entered(gate, stop, 1)
    gate.leave(throttled=True, retry_after=33.0)
    assert gate.wait_seconds == 33.0


def test_nobody_gets_in_while_the_gate_is_shut_and_a_stop_turns_all_away(stop: StopToken) -> None:
    gate = Gate(2, Backoff(first_seconds=3600, most_seconds=3600))
    entered(gate, stop, 1)
    gate.leave(throttled=True)
    answers: list[bool] = []
    waiting = [threading.Thread(target=lambda: answers.append(gate.enter(stop))) for _ in range(3)]
    for thread in waiting:
        thread.start()
    stop.set()
    gate.wake()
    for thread in waiting:
        thread.join()
    assert answers == [False] * 3


def test_who_was_throttled_goes_before_who_is_new(stop: StopToken) -> None:
    gate = Gate(1)
    entered(gate, stop, 1)
    order: list[str] = []
    arrived = threading.Event()

    def come(name: str, *, returning: bool) -> None:
        arrived.set()
        assert gate.enter(stop, returning=returning)
        order.append(name)
        gate.leave()

    threads = []
    for name, returning in (("new", False), ("returning", True)):
        arrived.clear()
        threads.append(threading.Thread(target=come, args=(name,), kwargs={"returning": returning}))
        threads[-1].start()
        arrived.wait()
    while not gate._returning:  # the second one has told that it waits
        pass
    gate.leave()
    for thread in threads:
        thread.join()
    assert order == ["returning", "new"]


def test_attempts_lost_in_a_row_are_too_many_at_the_limit_and_a_served_call_forgets_them(stop: StopToken) -> None:
    gate = Gate(1, Backoff(lost_attempts=2))
    assert not gate.lost()
    entered(gate, stop, 1)
    gate.leave()
    assert not gate.lost()
    assert gate.lost()


def test_agent_and_judge_of_one_engine_share_its_gate() -> None:
    gates = Gates([("claude-code", 3), ("codex", 2), ("claude-code", 3)], Backoff())
    assert (gates["claude-code"].places, gates["codex"].places) == (6, 2)
