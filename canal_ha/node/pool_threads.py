"""PoolThreads: ends threads of the reactor's pool that wait for work. Reactor thread.

The pool may need a thread for each question to a source that hangs. Twisted never ends one, so a moment with hundreds
of questions would leave hundreds of threads.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.task import LoopingCall

PERIOD_S = 10.0
KEPT = 8  # that wait for work


class PoolThreads:
    """The threads of one reactor's pool."""

    def __init__(self, reactor: Any) -> None:
        """reactor: Twisted's."""
        self._reactor = reactor
        self._loop = LoopingCall(self._end_surplus)
        self._loop.clock = reactor

    def start(self, destinations: int) -> None:
        """Let the pool grow as this number of destinations needs, and begin to end threads.

        Questions to MySQL block a thread each: a server that hangs must not take those of the others.
        """
        self._reactor.suggestThreadPoolSize(min(20 + 8 * destinations, 400))
        self._loop.start(PERIOD_S, now=False)

    def stop(self) -> None:
        """End no threads any more."""
        if self._loop.running:
            self._loop.stop()

    def _end_surplus(self) -> None:
        pool = self._reactor.getThreadPool()
        for _ in range(len(pool.waiters) - KEPT):
            pool.stopAWorker()
