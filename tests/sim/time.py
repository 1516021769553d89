"""Virtual time: one queue of events for the world, and a view of it per process that can be stopped or killed."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

RESUME_S = 0.050  # within this, a resumed process runs what fell due meanwhile, in any order: its threads race


class Timer:
    """What callLater returns: the part of IDelayedCall that is used."""

    __slots__ = ("args", "call")

    def __init__(self, call: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.call: Callable[..., object] | None = call
        self.args = args

    def active(self) -> bool:
        """Whether it is still to come."""
        return self.call is not None

    def cancel(self) -> None:
        """It shall not come."""
        self.call = None


class World:
    """The time of everything: seconds from 0.0; events of one moment run in the order they were scheduled."""

    def __init__(self) -> None:
        self._now = 0.0
        self._queue: list[tuple[float, int, Timer]] = []
        self._number = count()

    def seconds(self) -> float:
        """Now."""
        return self._now

    def callLater(self, delay_s: float, call: Callable[..., object], *args: Any) -> Timer:
        """As IReactorTime.callLater, whose name it has to have."""
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
    """One process's view of time. While paused nothing of it runs; once killed, nothing ever does."""

    def __init__(self, world: World, random: Random) -> None:
        self.world = world
        self._random = random
        self._held: list[Timer] = []
        self.paused = False
        self.dead = False

    def seconds(self) -> float:
        """Now; it does not stop with the process."""
        return self.world.seconds()

    def callLater(self, delay_s: float, call: Callable[..., object], *args: Any) -> Timer:
        """As IReactorTime.callLater, whose name it has to have."""
        timer = Timer(call, args)
        self.world.callLater(delay_s, self._due, timer)
        return timer

    def callFromThread(self, call: Callable[..., object], *args: Any) -> None:
        """As IReactorFromThreads.callFromThread."""
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
        """SIGSTOP."""
        self.paused = True

    def resume(self) -> None:
        """SIGCONT."""
        self.paused = False
        held, self._held = self._held, []
        for timer in held:
            self.world.callLater(self._random.uniform(0.0, RESUME_S), self._due, timer)

    def kill(self) -> None:
        """SIGKILL."""
        self.dead = True
        self._held.clear()
