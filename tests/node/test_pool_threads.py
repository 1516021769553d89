"""The threads of a pool that was busy for a moment."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from twisted.internet.task import Clock
from twisted.python.threadpool import ThreadPool

from canal_ha.node.pool_threads import KEPT, PERIOD_S, PoolThreads
from lab.waiting import until

PATIENCE_S = 20
QUESTIONS = 60


class Reactor(Clock):
    """A clock of the test, and a real pool."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = ThreadPool(0, QUESTIONS + 1)
        self.pool.start()


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    """A reactor whose pool is stopped after the test."""
    found = Reactor()
    yield found
    found.pool.stop()


def test_threads_that_wait_for_work_end_and_those_that_hang_do_not(reactor: Reactor) -> None:
    """After a moment with many questions few threads stay, and a question that has no answer goes on."""
    threads = PoolThreads(reactor, lambda: reactor.pool)
    threads.start()
    meet, answer, hung = threading.Barrier(QUESTIONS), threading.Event(), threading.Event()
    answered: list[int] = []

    def ask() -> None:
        meet.wait(PATIENCE_S)

    def hang() -> None:
        assert hung.wait(PATIENCE_S)
        answered.append(1)

    for _ in range(QUESTIONS):
        reactor.pool.callInThread(ask)
    until(lambda: len(reactor.pool.waiters) == QUESTIONS)
    reactor.pool.callInThread(hang)
    until(lambda: len(reactor.pool.working) == 1)
    reactor.advance(PERIOD_S)
    until(lambda: reactor.pool.workers == KEPT + 1)
    reactor.advance(PERIOD_S)
    reactor.pool.callInThread(answer.set)
    assert answer.wait(PATIENCE_S)
    hung.set()
    until(lambda: answered == [1])
    threads.stop()
    assert not reactor.getDelayedCalls()
