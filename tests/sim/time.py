"""Virtual time: one queue of calls for the world, and for each process a view of it that can be stopped or killed."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

RESUME_S = 0.050  # a resumed process runs all due calls within this time, in any order: its threads race


class Timer:
    """What callLater returns: the part of IDelayedCall that is used."""

    __slots__ = ("args", "call")

    def __init__(self, call: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.call: Callable[..., object] | None = call
        self.args = args

    def active(self) -> bool:
        """Return whether the call is still to come."""
        return self.call is not None

    def cancel(self) -> None:
        """Cancel the call."""
        self.call = None


class World:
    """The time of all processes: seconds from 0.0. Calls of one moment run in the order they were scheduled."""

    def __init__(self) -> None:
        self._now = 0.0
        self._queue: list[tuple[float, int, Timer]] = []
        self._number = count()

    def seconds(self) -> float:
        """Return the current time."""
        return self._now

    def callLater(self, delay_s: float, call: Callable[..., object], *args: Any) -> Timer:
        """See IReactorTime.callLater, which prescribes the name."""
        timer = Timer(call, args)
        heappush(self._queue, (self._now + delay_s, next(self._number), timer))
        return timer

    def run(self, until: float) -> None:
        """Let time pass up to `until`."""
        while self._queue and self._queue[0][0] <= until:
            self._now, _, timer = heappop(self._queue)
            call, timer.call = timer.call, None
            if call is not None:
                call(*timer.args)
        self._now = until


class Process:
    """A process's view of time. While it is paused, none of its calls run; after kill(), none ever do."""

    def __init__(self, world: World, random: Random) -> None:
        self.world = world
        self._random = random
        self._held: list[Timer] = []
        self.paused = False
        self.dead = False

    def seconds(self) -> float:
        """Return the current time, which goes on while the process is paused."""
        return self.world.seconds()

    def callLater(self, delay_s: float, call: Callable[..., object], *args: Any) -> Timer:
        """See IReactorTime.callLater, which prescribes the name."""
        timer = Timer(call, args)
        self.world.callLater(delay_s, self._due, timer)
        return timer

    def callFromThread(self, call: Callable[..., object], *args: Any) -> None:
        """See IReactorFromThreads.callFromThread."""
        self.callLater(0.0, call, *args)

    def _due(self, timer: Timer) -> None:
        if self.dead:
            return
        if self.paused:
            self._held.append(timer)
            return
        call, timer.call = timer.call, None
        if call is not None:
            call(*timer.args)

    def pause(self) -> None:
        """Stop the process, as SIGSTOP does."""
        self.paused = True

    def resume(self) -> None:
        """Resume the process, as SIGCONT does."""
        self.paused = False
        held, self._held = self._held, []
        for timer in held:
            self.world.callLater(self._random.uniform(0.0, RESUME_S), self._due, timer)

    def kill(self) -> None:
        """Kill the process, as SIGKILL does."""
        self.dead = True
        self._held.clear()
