"""Openings: how many dumps of one server open at once. Any thread.

A dump asks its server a dozen questions before it reads. When a thousand streams open together, as many threads would
hold each other up, and each question would open a connection of its own. A dump that takes long does not count for
longer than a moment, so it delays the others no more than that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable

MOST = 16
COUNTS_S = 2.0  # how long one that opens counts
_LOOK_S = 1.0  # between two looks of one that waits at whether the wait is still wanted


class Openings:
    """See the module. clock: seconds, monotonic."""

    def __init__(self, most: int = MOST, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._lock = threading.Lock()
        self._began: dict[Hashable, dict[object, float]] = {}  # by server, those that open
        self._waiting: dict[Hashable, dict[object, threading.Event]] = {}  # by server, first come first served

    def enter(self, server: Hashable, dump: object, go_on: Callable[[], None]) -> None:
        """Wait for a place. go_on: called while waiting; what it raises ends the wait."""
        turn = threading.Event()
        with self._lock:
            self._waiting.setdefault(server, {})[dump] = turn
            self._admit(server)
        try:
            while not turn.wait(_LOOK_S):
                go_on()
                with self._lock:
                    self._admit(server)
        except BaseException:
            with self._lock:
                self._waiting.get(server, {}).pop(dump, None)
            self.leave(server, dump)
            raise

    def leave(self, server: Hashable, dump: object) -> None:
        """Give the place up. Do nothing if there is none."""
        with self._lock:
            self._began.get(server, {}).pop(dump, None)
            self._admit(server)

    def _admit(self, server: Hashable) -> None:
        now = self._clock()
        waiting, began = self._waiting.get(server, {}), self._began.setdefault(server, {})
        count = sum(now - each < COUNTS_S for each in began.values())
        while waiting and count < self._most:
            dump = next(iter(waiting))
            waiting.pop(dump).set()
            began[dump] = now
            count += 1
        if not waiting:
            self._waiting.pop(server, None)
        if not began:
            del self._began[server]


OF_PROCESS = Openings()
AT_TAPS = Openings(4)  # of streams that open no connection: more threads would only wait for the interpreter
