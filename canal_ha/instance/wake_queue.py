"""WakeQueue: the GETs of many streams that one transaction wakes, a few milliseconds in each round of the reactor.

The streams of a shared dump get a segment at the same moment. To answer all their clients at once keeps the reactor
from everything else. A stream alone is woken without delay. Reactor thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

ROUND_S = 0.005  # of each round of the reactor, and the last one that begins
GAP_S = 0.001  # without a wake: the reactor has done something else since


class WakeQueue:
    """See the module. clock: seconds and callLater of a reactor."""

    def __init__(self, clock: Any) -> None:
        self._clock = clock
        self._waiting: deque[Callable[[], None]] = deque()
        self._began = self._ended = float("-inf")  # the wakes without a gap between them

    def soon(self, wake: Callable[[], None]) -> None:
        """Call at once, or in a later round if the wakes before have taken ROUND_S."""
        now = self._clock.seconds()
        if now - self._ended > GAP_S:
            self._began = now
        if self._waiting or now - self._began >= ROUND_S:
            self._waiting.append(wake)
            if len(self._waiting) == 1:
                self._clock.callLater(0, self._round)
            return
        wake()
        self._ended = self._clock.seconds()

    def _round(self) -> None:
        until = self._clock.seconds() + ROUND_S
        for _ in range(len(self._waiting)):
            self._waiting[0]()
            self._waiting.popleft()  # behind the call, so that one that comes meanwhile waits for its turn
            if self._clock.seconds() >= until:
                break
        if self._waiting:
            self._clock.callLater(0, self._round)
