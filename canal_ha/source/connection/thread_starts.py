"""ThreadStarts: how many dumps get a thread back from the reactor at once.

A statement reaches all dumps of a server at the same moment, and each needs a thread for it. Hundreds of threads
that all have work hold each other up: they wait for the interpreter's lock. A dump that takes long does not count for
longer than a moment, so it delays the others no more than that.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

MOST = 8
COUNTS_S = 1.0  # how long a dump counts


class Calls(Protocol):
    """The calls of ReactorReads that are used here."""

    def soon(self, call: Callable[..., object], *args: object) -> None: ...

    def call_later(self, seconds: float, call: Callable[[], object]) -> None: ...


class ThreadStarts:
    """See the module. The reactor's thread, where nothing else is said."""

    def __init__(self, calls: Calls, most: int = MOST, clock: Callable[[], float] = time.monotonic) -> None:
        """most: dumps at once. clock: seconds, monotonic."""
        self._clock = clock
        self._calls = calls
        self._most = most
        self._began: dict[object, float] = {}
        self._waiting: deque[tuple[object, Callable[[], None]]] = deque()
        self._looks = False  # a look at those that take long is due

    def begin(self, dump: object, start: Callable[[], None]) -> None:
        """Call `start`, now or when others have settled."""
        self._waiting.append((dump, start))
        self._admit()

    def settled(self, dump: object) -> None:
        """The dump has done what it needed the thread for; any thread."""
        self._calls.soon(self._settled, dump)

    def _settled(self, dump: object) -> None:
        self._began.pop(dump, None)
        self._admit()

    def _admit(self) -> None:
        now = self._clock()
        count = sum(now - began < COUNTS_S for began in self._began.values())
        while self._waiting and count < self._most:
            dump, start = self._waiting.popleft()
            self._began[dump] = now
            count += 1
            start()
        if self._waiting and not self._looks:
            self._looks = True
            self._calls.call_later(COUNTS_S, self._look)

    def _look(self) -> None:
        self._looks = False
        self._admit()
