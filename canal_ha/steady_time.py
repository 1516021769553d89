"""Steady time: seconds that no step of the system clock moves, and that go on while the machine is suspended.

Whatever decides by time uses it: leases, elections, periods, time-outs. Wall time is for people and for comparisons
with the times in a binlog.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

seconds: Callable[[], float] = time.monotonic
"""Return seconds since some moment. It is no Python function, because one request calls it some twenty times."""

if sys.platform == "linux":
    seconds = partial(time.clock_gettime, time.CLOCK_BOOTTIME)  # time.monotonic stands still during a suspension
