"""Virtual time: one queue of calls for the world, and for each process a clock of its own.

The clock of a process starts anywhere and runs at its own speed. It goes on while the process is stopped, as
CLOCK_BOOTTIME does on a suspended machine. The wall time of the process can also step.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

RESUME_S = 0.050  # a resumed process runs all due calls within this time, in any order: its threads race
TICK_S = 1e-9  # timers are late by so much, because rounding must not make them early
CALLS_OF_A_MOMENT = 20_000  # more of them never end


class Timer:
    """What callLater returns: the part of IDelayedCall that is used. process: whose call it is; None: the world's."""

    __slots__ = ("args", "call", "process")

    def __init__(self, call: Callable[..., object], args: tuple[Any, ...], process: Process | None = None) -> None:
        self.call: Callable[..., object] | None = call
        self.args = args
        self.process = process

    def active(self) -> bool:
        """Return whether the call is still to come."""
        return self.call is not None

    def cancel(self) -> None:
        """Cancel the call."""
        self.call = None


class World:
    """The time of all processes. Calls of one moment run in the order they were scheduled. now: seconds from 0.0."""

    def __init__(self) -> None:
        self.now = 0.0
        self._queue: list[tuple[float, int, Timer]] = []
        self._number = count()

    def seconds(self) -> float:
        """Return `now`, as clocks do."""
        return self.now

    def callLater(self, delay_s: float, call: Callable[..., object], *args: Any) -> Timer:
        """See IReactorTime.callLater, which prescribes the name."""
        timer = Timer(call, args)
        self.schedule(delay_s, timer)
        return timer

    def schedule(self, delay_s: float, timer: Timer) -> None:
        """Let the timer fire after a delay. Raises ValueError for a negative one, which would turn time back."""
        if delay_s < 0.0:
            raise ValueError(f"{timer.call} cannot be called {-delay_s:g} s ago")
        heappush(self._queue, (self.now + delay_s, next(self._number), timer))

    def run(self, until: float) -> None:
        """Let time pass up to `until`."""
        queue = self._queue
        moment, calls = -1.0, 0
        while queue and queue[0][0] <= until:
            self.now, _, timer = heappop(queue)
            calls = calls + 1 if self.now == moment else 0
            moment = self.now
            if calls > CALLS_OF_A_MOMENT:
                raise AssertionError(f"time does not pass: {timer.call} is called again and again")
            call = timer.call
            if call is None:
                continue
            process = timer.process
            if process is not None and not process.runs(timer):
                continue
            timer.call = None
            call(*timer.args)
        self.now = until


class Process:
    """A process's view of time. While it is paused, none of its calls run; after kill(), none ever do.

    rate: seconds of its clock in a second of the world.
    started_at: what its clock shows when the world is at 0.0.
    """

    def __init__(self, world: World, random: Random, *, rate: float = 1.0, started_at: float = 0.0) -> None:
        self.world = world
        self.rate = rate
        self.wall_offset_s = 0.0  # what steps of the wall time add up to
        self._started_at = started_at
        self._random = random
        self._held: list[Timer] = []
        self.paused = False
        self.dead = False

    def seconds(self) -> float:
        """Return the time of the process's clock, which goes on while the process is paused and never steps."""
        return self._started_at + self.rate * self.world.now

    def wall_seconds(self) -> float:
        """Return the wall time, which an operator or a time server can step."""
        return self.seconds() + self.wall_offset_s

    def callLater(self, delay_s: float, call: Callable[..., object], *args: Any) -> Timer:
        """See IReactorTime.callLater, which prescribes the name."""
        timer = Timer(call, args, self)
        self.world.schedule(delay_s / self.rate + TICK_S if delay_s > 0 else 0.0, timer)
        return timer

    def callFromThread(self, call: Callable[..., object], *args: Any) -> None:
        """See IReactorFromThreads.callFromThread."""
        self.callLater(0.0, call, *args)

    def runs(self, timer: Timer) -> bool:
        """Return whether the process runs; if it is paused, keep the due call for later."""
        if self.paused and not self.dead:
            self._held.append(timer)
        return not (self.paused or self.dead)

    def pause(self) -> None:
        """Stop the process, as SIGSTOP does, or the suspension of its machine."""
        self.paused = True

    def resume(self) -> None:
        """Resume the process, as SIGCONT does."""
        self.paused = False
        held, self._held = self._held, []
        for timer in held:
            self.world.schedule(self._random.uniform(0.0, RESUME_S), timer)

    def kill(self) -> None:
        """Kill the process, as SIGKILL does."""
        self.dead = True
        self._held.clear()
