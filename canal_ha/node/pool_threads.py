"""PoolThreads: ends threads of a pool that wait for work. Reactor thread.

A pool may need a thread for each question to a source that hangs. Twisted never ends one, so a moment with hundreds of
questions would leave hundreds of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.python.threadpool import ThreadPool

from canal_ha.model.clock import Clock

PERIOD_S = 10.0
KEPT = 8  # that wait for work


class PoolThreads:
    """The threads of one pool."""

    def __init__(self, reactor: Clock, pool: Callable[[], ThreadPool]) -> None:
        """reactor: Twisted's. pool: returns the pool."""
        self._pool = pool
        self._loop = LoopingCall(self._end_surplus)
        self._loop.clock = cast(IReactorTime, reactor)

    def start(self) -> None:
        """Begin to end threads."""
        self._loop.start(PERIOD_S, now=False)

    def stop(self) -> None:
        """End no threads any more."""
        if self._loop.running:
            self._loop.stop()

    def _end_surplus(self) -> None:
        pool = self._pool()
        for _ in range(len(pool.waiters) - KEPT):
            pool.stopAWorker()
