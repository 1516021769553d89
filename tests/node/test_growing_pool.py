"""A pool of few threads, while calls end and while they hang."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from twisted.internet.task import Clock

from canal_ha.node.growing_pool import GROWTH, HANGS_S, LOOK_S, GrowingPool
from lab.waiting import until

LEAST, MOST = 4, 40
PATIENCE_S = 20


class Reactor(Clock):
    """A clock of the test. Calls of threads wait until the test makes them."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[tuple[Any, tuple[object, ...]]] = []

    def callFromThread(self, call: Any, *args: object) -> None:
        """Keep a call."""
        self._calls.append((call, args))

    def turn(self) -> None:
        """Make the calls so far, and look once."""
        calls, self._calls = self._calls, []
        for call, args in calls:
            call(*args)
        self.advance(LOOK_S)


@pytest.fixture
def reactor() -> Reactor:
    """The reactor of the pool."""
    return Reactor()


@pytest.fixture
def pool(reactor: Reactor) -> Iterator[GrowingPool]:
    """A pool that is stopped after the test."""
    found = GrowingPool(reactor, "test", LEAST, MOST)
    yield found
    found.stop()


def threads() -> int:
    """Return how many threads the pool has."""
    return sum("test" in thread.name for thread in threading.enumerate())


def _all_ended(calls: set[object], pool: GrowingPool) -> bool:
    """Whether none of these calls runs any more."""
    return not calls & set(pool._running)


def test_calls_that_end_need_few_threads(reactor: Reactor, pool: GrowingPool) -> None:
    """However many there are."""
    counts: list[int] = []
    for _ in range(50 * LEAST):
        pool.run(threads).addCallback(counts.append)

    def all_over() -> bool:
        if len(reactor._calls) >= min(LEAST, 50 * LEAST - len(counts)):  # else the pool would seem to hang
            reactor.turn()
        return len(counts) == 50 * LEAST

    until(all_over)
    assert max(counts) <= LEAST
    reactor.turn()
    assert not reactor.getDelayedCalls()


def test_calls_that_the_busy_processor_delays_get_no_more_threads(reactor: Reactor, pool: GrowingPool) -> None:
    """With more threads each of them would take longer still."""
    rounds = [threading.Event() for _ in range(6)]
    for may_end in rounds:
        for _ in range(LEAST):
            pool.run(partial(may_end.wait, PATIENCE_S))
    for may_end in rounds:
        until(lambda: len(pool._running) == LEAST)
        for _ in range(int(HANGS_S / LOOK_S) - 1):  # each takes nearly as long as one that hangs
            reactor.turn()
            assert threads() <= LEAST
        running = set(pool._running)
        may_end.set()
        until(partial(_all_ended, running, pool))
    reactor.turn()


def test_calls_that_hang_keep_no_other_call_from_a_thread(reactor: Reactor, pool: GrowingPool) -> None:
    """A server that hangs has twenty destinations. The threads end when it has answered."""
    go_on = threading.Event()
    hanging = [pool.run(lambda: go_on.wait(PATIENCE_S)) for _ in range(20)]
    other = pool.run(lambda: "answer")

    def answered() -> bool:
        reactor.turn()
        return other.called

    try:
        until(answered)
        assert not any(each.called for each in hanging)
    finally:
        go_on.set()

    def over() -> bool:
        reactor.turn()
        return all(each.called for each in hanging) and threads() <= LEAST

    until(over)


def test_calls_that_hang_leave_no_single_thread_to_many_short_calls(reactor: Reactor, pool: GrowingPool) -> None:
    """The one thread that is left ends many of them, but not as many as come."""
    go_on = threading.Event()
    hanging = [pool.run(lambda: go_on.wait(PATIENCE_S)) for _ in range(LEAST - 1)]

    def ask_again(count: int) -> None:
        if not go_on.is_set():
            pool.run(threads).addCallback(ask_again)

    for _ in range(2 * LEAST):
        ask_again(0)
    try:
        for _ in range(6):
            until(lambda: len(reactor._calls) == 2 * LEAST)
            reactor.turn()
        assert threads() == GROWTH * LEAST
    finally:
        go_on.set()

    def over() -> bool:
        reactor.turn()
        return all(each.called for each in hanging)

    until(over)


def test_there_is_a_limit(reactor: Reactor, pool: GrowingPool) -> None:
    """Of threads. What waits gets its turn when one of them is free."""
    go_on = threading.Event()
    hanging = [pool.run(lambda: go_on.wait(PATIENCE_S)) for _ in range(3 * MOST)]
    for _ in range(20):
        reactor.turn()
    assert threads() == MOST
    go_on.set()

    def over() -> bool:
        reactor.turn()
        return all(each.called for each in hanging)

    until(over)


def test_an_error_is_the_result(reactor: Reactor, pool: GrowingPool) -> None:
    """As with any pool."""
    errors: list[str] = []

    def fail() -> None:
        raise ValueError("broken")

    pool.run(fail).addErrback(lambda failure: errors.append(str(failure.value)))

    def told() -> bool:
        reactor.turn()
        return errors == ["broken"]

    until(told)
