"""Steady time: seconds that no step of the system clock moves, and that go on while the machine is suspended.

Whatever decides by time uses it: leases, elections, periods, time-outs. Wall time is for people and for comparisons
with the times in a binlog.
"""

from __future__ import annotations

import sys
import time

if sys.platform == "linux":

    def seconds() -> float:
        """Return seconds since the machine started. time.monotonic() stands still during a suspension on Linux."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:

    def seconds() -> float:
        """Return seconds since some moment."""
        return time.monotonic()
