"""GrowingPool: a pool that has few threads, and more while its calls hang. Reactor thread.

Hundreds of threads that all have work hold each other up: they wait for the interpreter's lock. But each question to a
source that hangs keeps a thread, and must not keep others from theirs. Calls that take long because the processor is
busy get no more threads, because these would slow them further.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool

T = TypeVar("T")

LOOK_S = 0.5  # between two looks at whether calls hang
HANGS_S = 2.0  # a call that runs for this long hangs
GROWTH = 4  # factor by which the number of threads grows then


class GrowingPool:
    """See the module. The pool runs from its creation on."""

    def __init__(self, reactor: Any, name: str, least: int, most: int) -> None:
        """Begin without a thread.

        reactor: Twisted's.
        name: of the threads.
        least: how many threads there may be while calls end.
        most: how many there may be in all.
        """
        self._reactor = reactor
        self._least, self._most = least, most
        self._pool = ThreadPool(0, least, name)
        self._pool.start()
        self._under_way = 0
        self._running: dict[object, float] = {}  # calls, and when each of them began
        self._loop = LoopingCall(self._look)
        self._loop.clock = reactor

    def run(self, call: Callable[[], T]) -> Deferred[T]:
        """Call on a thread, and return the result."""
        self._under_way += 1
        if not self._loop.running:
            self._loop.start(LOOK_S, now=False)
        return deferToThreadPool(self._reactor, self._pool, self._timed, call).addBoth(self._over)

    def stop(self) -> None:
        """End the threads. Calls that hang have to be interrupted before."""
        if self._loop.running:
            self._loop.stop()
        self._pool.stop()

    def _timed(self, call: Callable[[], T]) -> T:
        """Call, on a thread of the pool."""
        key = object()
        self._running[key] = self._reactor.seconds()
        try:
            return call()
        finally:
            del self._running[key]

    def _over(self, result: T | Failure) -> T | Failure:
        self._under_way -= 1
        return result

    def _look(self) -> None:
        """Let the pool have more threads if calls wait while others hang, and few again when none waits."""
        pool = self._pool
        if self._under_way > pool.max:
            now = self._reactor.seconds()
            hang = sum(now - began >= HANGS_S for began in list(self._running.values()))
            if 2 * hang >= pool.max:  # short calls must not all go through the few threads left
                threads = min(self._most, GROWTH * pool.max)
                pool.adjustPoolsize(minthreads=threads, maxthreads=threads)  # a new maximum alone begins no thread
        elif pool.max > self._least and self._under_way <= self._least:
            pool.adjustPoolsize(minthreads=0, maxthreads=self._least)
        if not self._under_way and pool.max == self._least:
            self._loop.stop()
