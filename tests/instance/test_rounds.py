"""Chores of many instances on one timer, with a clock of the test."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from canal_ha.instance.rounds import HELD_S, Rounds

CHORES = 100
PERIOD_S = 5.0


def never(failure: Failure) -> None:
    """Fail the test."""
    raise AssertionError(failure)


@pytest.mark.parametrize("turns", [1, 10, 20])
def test_each_chore_is_called_once_in_each_period(turns: int) -> None:
    """All of them have one timer, and each turn has its share of them."""
    clock, called = Clock(), [0] * CHORES
    rounds = Rounds(clock, turns)

    def count(number: int) -> None:
        called[number] += 1

    ends = [rounds.every(PERIOD_S, partial(count, number), never) for number in range(CHORES)]
    assert len(clock.getDelayedCalls()) == 1
    assert sum(called) == 0
    for turn in range(1, 3 * turns + 1):
        clock.advance(PERIOD_S / turns)
        assert sum(called) == turn * CHORES / turns
    assert called == [3] * CHORES
    for end in ends:
        end()
    assert not clock.getDelayedCalls()


def test_a_chore_that_waits_is_not_called_again_before_its_end() -> None:
    """The others go on meanwhile."""
    clock, begun, others = Clock(), list[Deferred[None]](), list[float]()
    rounds = Rounds(clock)

    async def waits() -> None:
        begun.append(Deferred())
        await begun[-1]

    rounds.every(1.0, waits, never, now=True)
    end = rounds.every(1.0, lambda: others.append(clock.seconds()), never)
    for _ in range(3):
        clock.advance(1.0)
    assert len(begun) == 1
    assert others == [1.0, 2.0, 3.0]
    begun[0].callback(None)
    clock.advance(1.0)
    assert len(begun) == 2
    end()
    clock.advance(1.0)
    assert len(others) == 4


def test_a_chore_that_breaks_tells_it_once_and_stops_no_other() -> None:
    """Its instance gives up, and nothing that goes wrong then stops the others."""
    clock, failures, others = Clock(), list[str](), list[int]()
    rounds = Rounds(clock)

    def breaks() -> None:
        raise ValueError("now")

    async def breaks_later() -> None:
        raise ValueError("later")

    def told(failure: Failure) -> None:
        failures.append(str(failure.value))
        raise ValueError("told")

    for call in (breaks, breaks_later):
        rounds.every(1.0, call, told)
    rounds.every(1.0, lambda: others.append(1), never)
    for _ in range(3):
        clock.advance(1.0)
    assert failures == ["now", "later"]
    assert len(others) == 3


def test_a_chore_may_end_another_one_of_its_turn() -> None:
    """The other one is not called any more; a later chore begins the timer again."""
    clock, called = Clock(), list[str]()
    rounds = Rounds(clock)
    rounds.every(1.0, lambda: [end() for end in (end_other, end_first)], never)
    end_first = rounds.every(1.0, lambda: called.append("first"), never)
    end_other = rounds.every(1.0, lambda: called.append("other"), never)
    clock.advance(1.0)
    assert called == []
    rounds.every(2.0, lambda: called.append("later"), never)
    clock.advance(2.0)
    assert called == ["later"]


def test_a_reactor_that_was_late_serves_all_chores_that_are_due() -> None:
    """Each of them once, however late it was, and the next turn is on time again."""
    clock, called = Clock(), [0] * CHORES
    rounds = Rounds(clock, 10)

    def count(number: int) -> None:
        called[number] += 1

    for number in range(CHORES):
        rounds.every(PERIOD_S, partial(count, number), never)
    clock.advance(PERIOD_S * 0.75)
    assert sum(called) == 0.7 * CHORES
    clock.advance(PERIOD_S * 0.25)
    assert called == [1] * CHORES
    clock.advance(20 * PERIOD_S)
    assert called == [2] * CHORES
    clock.advance(PERIOD_S / 10)
    assert sum(called) == 2.1 * CHORES


@pytest.mark.parametrize(("period_s", "most"), [(5.0, 20), (1.0, 10), (0.2, 2), (0.01, 1)])
def test_a_short_period_has_few_turns(period_s: float, most: int) -> None:
    """A timer that runs out a thousand times a second would cost more than the chores."""
    clock, called = Clock(), 0
    rounds = Rounds(clock, 20)

    def count() -> None:
        nonlocal called
        called += 1

    for _ in range(CHORES):
        rounds.every(period_s, count, never)
    turns = 0
    while called < CHORES:
        before = called
        clock.advance(period_s / 100)
        turns += called > before
    assert turns == most
    assert called == CHORES


def test_a_chore_may_end_the_last_one_and_begin_another() -> None:
    """An instance is stopped and started again by what one of its chores finds out."""
    clock, called = Clock(), list[float]()
    rounds = Rounds(clock)

    def again() -> None:
        end()
        rounds.every(1.0, lambda: called.append(clock.seconds()), never)

    end = rounds.every(1.0, again, never)
    for _ in range(3):
        clock.advance(1.0)
    assert called == [2.0, 3.0]
    assert len(clock.getDelayedCalls()) == 1


def test_chores_do_not_compete_with_rows_that_wait() -> None:
    """They begin when no rows wait, or after a part of the period. Each one is still called once in a period."""
    clock, called, waits = Clock(), list[float](), True
    rounds = Rounds(clock, 10, lambda: waits)
    for _ in range(10):
        rounds.every(1.0, lambda: called.append(clock.seconds()), never)
    clock.pump([0.01] * 18)
    assert called == []
    waits = False
    clock.advance(0.01)
    assert len(called) == 1
    waits = True
    clock.pump([0.01] * 100)
    assert 9 <= len(called) <= 11


@pytest.mark.parametrize("period_s", [0.05, 0.2, 0.3, 1.0, 5.0])
def test_rows_that_always_wait_take_no_call_from_a_chore(period_s: float) -> None:
    """Each turn begins later, at most by HELD_S, and there are as many as without rows."""
    clock, called = Clock(), list[float]()
    rounds = Rounds(clock, 20, lambda: True)
    rounds.every(period_s, lambda: called.append(clock.seconds()), never)
    clock.pump([0.001] * round(20 * period_s * 1000))
    gaps = [later - earlier for earlier, later in pairwise([0.0, *called])]
    assert 18 <= len(called) <= 20
    assert max(gaps) <= period_s + min(HELD_S, period_s / 4) + 0.01


def test_turns_that_are_late_leave_rounds_of_the_reactor_to_others() -> None:
    """If it served all late turns at once, nothing else would run meanwhile."""
    clock, done = Clock(), list[str]()
    rounds = Rounds(clock, 10)

    def chore() -> None:
        done.append("chore")
        clock.callLater(0, done.append, "other")

    for _ in range(10):
        rounds.every(1.0, chore, never)
    clock.advance(0.5)
    assert done == ["chore", "other"] * 5


@pytest.mark.parametrize("round_s", [0.05, 0.12, 0.2, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("rows_wait", [False, True])
def test_long_rounds_of_the_reactor_do_not_make_chores_rare(round_s: float, rows_wait: bool) -> None:
    """With one turn in each round, a chore of 1 s came every 5 s if a round took 0.5 s."""
    clock, called = Clock(), list[float]()
    rounds = Rounds(clock, 20, lambda: rows_wait)
    for _ in range(10):
        rounds.every(1.0, lambda: None, never)
    rounds.every(1.0, lambda: called.append(clock.seconds()), never)
    for _ in range(round(30 / round_s)):
        clock.rightNow += round_s
        ready = [call for call in clock.calls if call.getTime() <= clock.seconds()]
        for call in ready:  # a timer that one of them sets has to wait for the next round
            clock.calls.remove(call)
            call.called = 1
            call.func(*call.args, **call.kw)
    gaps = [later - earlier for earlier, later in pairwise(called)]
    assert max(gaps) <= 1.5 + round_s
    assert len(called) >= 30 / (1.0 + round_s)
