"""A step of the system clock, as NTP or a person makes it, does not touch the timers of a node."""

from __future__ import annotations

import subprocess
import sys
import time
from textwrap import dedent

import pytest

from canal_ha import steady_time

STEPPED = dedent(
    """
    import sys
    import time

    wall, monotonic, step_s = time.time, time.monotonic, 0.0
    time.time = lambda: wall() + step_s  # before Twisted keeps it

    from twisted.internet.task import LoopingCall

    from canal_ha.node.run import steady_reactor

    reactor = steady_reactor()
    began, chores = monotonic(), []


    def step():
        global step_s
        step_s = float(sys.argv[1])


    loop = LoopingCall(lambda: chores.append(monotonic() - began))
    loop.start(0.05)
    reactor.callLater(0.3, step)
    reactor.callLater(1.0, reactor.stop)
    reactor.run()
    waits = [after - before for before, after in zip(chores, chores[1:])]
    print(f"{monotonic() - began} {max(waits)} {len(chores)}")
    """
)


@pytest.mark.parametrize("step_s", [-30, 30])
def test_a_step_of_the_system_clock_stops_no_flush_and_ends_no_wait_early(step_s: int) -> None:
    """Chores go on at their period, and a timer is due neither earlier nor later."""
    command = [sys.executable, "-c", STEPPED, str(step_s)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    took_s, longest_wait_s, chores = map(float, done.stdout.split())
    assert 0.9 < took_s < 10
    assert longest_wait_s < 5
    assert chores > 3


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a clock that counts suspensions")
def test_a_suspended_machine_extends_no_lease() -> None:
    """Steady time is the time since the start of the machine, with all suspensions."""
    assert abs(steady_time.seconds() - time.clock_gettime(time.CLOCK_BOOTTIME)) < 1.0
