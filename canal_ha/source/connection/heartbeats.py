"""Heartbeats: how often a source reports to a dump that there is nothing new. Any thread.

A heartbeat costs the node some 0.2 ms. So many dumps ask for fewer of them: those of a thousand dumps would keep a
quarter of a core busy. A stream knows that it is idle only from a heartbeat, so it knows that later then.
"""

from __future__ import annotations

import threading

HEARTBEAT_S = 1.0
MOST_S = 5.0  # before the shortest time after which a stream that is not known to be idle counts as late
DUMPS = 50  # that have a heartbeat every second
MISSED = 3  # heartbeats in a row before the read time-out


class Heartbeats:
    """The heartbeats of many dumps."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._dumps = 0

    def begin(self, read_timeout_s: float, alarm_lag_s: float) -> float:
        """A dump begins. Return the seconds between its heartbeats.

        read_timeout_s: longest silence of the source.
        alarm_lag_s: how far the stream may be behind; 0 for any. It seems behind until a heartbeat says that it is not.
        """
        with self._lock:
            self._dumps += 1
            dumps = self._dumps
        limits = [MOST_S, dumps / DUMPS, read_timeout_s / MISSED]
        if alarm_lag_s > 0:
            limits.append(alarm_lag_s / 2)
        return max(HEARTBEAT_S, min(limits))

    def end(self) -> None:
        """A dump that has begun ends."""
        with self._lock:
            self._dumps -= 1


OF_PROCESS = Heartbeats()
