"""ThreadStarts: how many dumps of a server get a thread at once.

Hundreds of streams open at the same moment, and a statement reaches all dumps of a server at once: each needs a thread.
Hundreds of threads that all have work hold each other up, because they wait for the interpreter's lock. A dump that
takes long does not count for longer than a moment, so it delays the others no more than that.

`Thread.start` returns when the new thread runs, on busy processors after a tenth of a second. So the reactor leaves
these calls to a thread of their own, and does not wait until that one runs.
"""

from __future__ import annotations

import _thread
import logging
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Hashable
from typing import Protocol

MOST = 8  # dumps of a server at once
COUNTS_S = 1.0  # how long a dump counts
IDLE_S = 60.0  # after which the thread that starts others ends

_log = logging.getLogger(__name__)


class Calls(Protocol):
    """The calls of ReactorReads that are used here."""

    def soon(self, call: Callable[..., object], *args: object) -> None: ...

    def call_later(self, seconds: float, call: Callable[[], object]) -> None: ...


class Elsewhere:
    """Makes calls on a thread of its own, in order; any thread."""

    def __init__(self) -> None:
        self._calls: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()
        self._runs = False

    def __call__(self, call: Callable[[], None]) -> None:
        """Make a call there. Return at once. Raises RuntimeError if there can be no thread for it."""
        with self._changed:
            if not self._runs:
                _thread.start_new_thread(self._run, ())
                self._runs = True
            self._calls.append(call)
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._calls, IDLE_S):
                    self._runs = False
                    return
                call = self._calls.popleft()
            try:
                call()
            except Exception:  # the other calls must still be made
                _log.exception("a call on another thread failed")


class ThreadStarts:
    """See the module. The reactor's thread, where nothing else is said."""

    def __init__(
        self,
        calls: Calls,
        most: int = MOST,
        clock: Callable[[], float] = time.monotonic,
        elsewhere: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        """Begin without a dump.

        calls: of the reactor.
        most: dumps of a server at once.
        clock: seconds, monotonic.
        elsewhere: makes a call, not on the reactor's thread; None for a thread of its own.
        """
        self._clock = clock
        self._elsewhere = elsewhere or Elsewhere()
        self._calls = calls
        self._most = most
        self._began: defaultdict[Hashable, dict[object, float]] = defaultdict(dict)  # by server
        self._waiting: defaultdict[Hashable, deque[tuple[object, Callable[[], None]]]] = defaultdict(deque)
        self._looks = False  # a look at those that take long is due

    def begin(self, server: Hashable, dump: object, start: Callable[[], None]) -> None:
        """Call `start` on another thread, now or when other dumps of the server have settled."""
        self._waiting[server].append((dump, start))
        self._admit(server)

    def waiting(self, server: Hashable) -> int:
        """Return how many dumps of a server wait for their turn; any thread."""
        return len(self._waiting.get(server, ()))

    def settled(self, server: Hashable, dump: object) -> None:
        """The dump has done what it needed the thread for; any thread."""
        self._calls.soon(self._settled, server, dump)

    def _settled(self, server: Hashable, dump: object) -> None:
        self._began[server].pop(dump, None)
        self._admit(server)

    def _admit(self, server: Hashable) -> None:
        now = self._clock()
        began, waiting = self._began[server], self._waiting[server]
        count = sum(now - each < COUNTS_S for each in began.values())
        while waiting and count < self._most:
            dump, start = waiting[0]
            try:
                self._elsewhere(start)
            except RuntimeError:  # there are too many threads
                break
            waiting.popleft()
            began[dump] = now
            count += 1
        if not began:
            del self._began[server]
        if not waiting:
            del self._waiting[server]
        elif not self._looks:
            self._looks = True
            self._calls.call_later(COUNTS_S, self._look)

    def _look(self) -> None:
        self._looks = False
        for server in tuple(self._waiting):
            self._admit(server)
