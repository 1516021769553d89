"""RoundQueue: calls that wait for one of the next rounds of the reactor, a few milliseconds of them in each.

One transaction wakes the GETs of hundreds of streams, and hundreds of connections have requests that are here already.
To answer all of them at once would keep the reactor from everything else. Reactor thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

ROUND_S = 0.005  # of each round of the reactor, and the last call that begins
GAP_S = 0.001  # without a call: the reactor has done something else since


class RoundQueue:
    """See the module. clock: seconds and callLater of a reactor."""

    def __init__(self, clock: Any) -> None:
        self._clock = clock
        self._waiting: deque[Callable[[], object]] = deque()
        self._timer: Any = None
        self._began = self._ended = float("-inf")  # the calls of `soon` without a gap between them

    def turn(self) -> Deferred[None]:
        """Return a Deferred that fires in one of the next rounds, after those that asked before."""
        turn = Deferred[None]()
        self._later(lambda: turn.callback(None))  # one that was cancelled ignores it
        return turn

    def soon(self, call: Callable[[], None]) -> None:
        """Call at once, or in a later round if the calls before have taken ROUND_S."""
        now = self._clock.seconds()
        if now - self._ended > GAP_S:
            self._began = now
        if self._waiting or now - self._began >= ROUND_S:
            self._later(call)
            return
        call()
        self._ended = self._clock.seconds()

    def _later(self, call: Callable[[], object]) -> None:
        self._waiting.append(call)
        self._arm()

    def _arm(self) -> None:
        if self._waiting and self._timer is None:
            self._timer = self._clock.callLater(0, self._round)

    def _round(self) -> None:
        self._timer = None
        until = self._clock.seconds() + ROUND_S
        try:
            for _ in range(len(self._waiting)):
                try:
                    self._waiting[0]()
                finally:
                    self._waiting.popleft()  # behind the call, so that one that comes meanwhile waits for its turn
                if self._clock.seconds() >= until:
                    break
        finally:
            self._arm()
