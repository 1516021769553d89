"""The clock of the chaos run: it is compiled from the checkout, and moves the wall clock of one process alone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from lab.chaos.clock import Clock

_CLOCKS = "import time; print(time.time(), time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME))"


def test_a_step_moves_the_wall_clock_and_no_other(tmp_path: Path) -> None:
    """time.sleep, which waits on the monotonic clock, still works."""
    clock = Clock(tmp_path / "clock")
    for step in (0, 3600, -7200, 0):
        clock.step(step)
        done = subprocess.run(
            [sys.executable, "-c", f"import time; time.sleep(0.01); {_CLOCKS}"],
            env={**os.environ, **clock.environment()},
            capture_output=True,
            text=True,
            check=True,
        )
        wall, monotonic, boot = map(float, done.stdout.split())
        assert abs(wall - time.time() - step) < 60
        assert 0 <= time.monotonic() - monotonic < 60
        assert 0 <= time.clock_gettime(time.CLOCK_BOOTTIME) - boot < 60
