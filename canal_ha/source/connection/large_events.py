"""LargeEvents: bounds how many large events all streams of a process receive and decode at once. Any thread.

An event of more than one packet takes memory of its size until it is decoded. A stream takes a place before it receives
such an event and leaves it when the event is decoded, before it waits for room in its ring. If a source stalls inside
an event, its place is free after the time-out of its connection; the other streams wait WAIT_S at most, and then
receive without a place: a source that sends slowly delays them, but does not stop them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

LARGE_BYTES = 0xFFFFFF  # a longer event has more than one packet
PLACES = 2
WAIT_S = 30.0
_LOOK_S = 0.5  # between two looks at whether the wait is still wanted


class LargeEvents:
    """See the module. places: events at once. wait_s: longest wait for a place."""

    def __init__(self, places: int = PLACES, wait_s: float = WAIT_S) -> None:
        self._free = threading.BoundedSemaphore(places)
        self._wait_s = wait_s

    def enter(self, go_on: Callable[[], None]) -> bool:
        """Take a place; return False if none was free in time.

        go_on: called while waiting; what it raises ends the wait.
        """
        until = time.monotonic() + self._wait_s
        while not self._free.acquire(timeout=max(0.0, min(_LOOK_S, until - time.monotonic()))):
            go_on()
            if time.monotonic() >= until:
                return False
        return True

    def leave(self) -> None:
        """Give a place back that `enter` took."""
        self._free.release()


OF_PROCESS = LargeEvents()
