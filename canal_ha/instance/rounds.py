"""Rounds: the regular chores of all instances of a node, on one timer for each period. Reactor thread.

The timers of a thousand instances would keep a tenth of a core busy. The chores of one period are spread over it, so
that they do not hold up a row for milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutine
from typing import cast

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.python.failure import Failure

from canal_ha.model.clock import Clock


class Rounds:
    """See the module. reactor: Twisted's. turns: into how many each period is divided."""

    def __init__(self, reactor: Clock, turns: int = 1) -> None:
        self._reactor = reactor
        self._turns = turns
        self._periods: dict[float, _Period] = {}

    def every(
        self, period_s: float, call: Callable[[], object], broke: Callable[[Failure], object], *, now: bool = False
    ) -> Callable[[], None]:
        """Call regularly, and return what ends that.

        period_s: time between two calls; the first one comes within this time.
        call: may return a coroutine; the next call waits for its end.
        broke: hears of an error; it was the last call then.
        now: whether to call at once, too.
        """
        period = self._periods.setdefault(period_s, _Period(self._turns))
        chore = _Chore(call, broke)
        period.add(chore)
        if not period.loop.running:
            period.loop.clock = cast(IReactorTime, self._reactor)
            period.loop.start(period_s / self._turns, now=False)
        if now:
            chore.run()

        def end() -> None:
            if period.discard(chore) and period.loop.running:
                period.loop.stop()

        return end


class _Period:
    """The chores of one period, in turns."""

    def __init__(self, turns: int) -> None:
        self.loop = LoopingCall(self._next)
        self._turns: list[list[_Chore]] = [[] for _ in range(turns)]
        self._now = 0

    def add(self, chore: _Chore) -> None:
        """Add a chore to the turn that has the fewest."""
        min(self._turns, key=len).append(chore)

    def discard(self, chore: _Chore) -> bool:
        """Remove a chore. Return whether none is left."""
        for turn in self._turns:
            if chore in turn:
                turn.remove(chore)
        return not any(self._turns)

    def _next(self) -> None:
        self._now = (self._now + 1) % len(self._turns)
        for chore in tuple(self._turns[self._now]):
            if chore in self._turns[self._now]:  # an earlier one may have ended it
                chore.run()


class _Chore:
    """One call, never twice at once."""

    def __init__(self, call: Callable[[], object], broke: Callable[[Failure], object]) -> None:
        self._call = call
        self._broke = broke
        self._waits = False  # for a coroutine, or for ever behind an error

    def run(self) -> None:
        if self._waits:
            return
        self._waits = True
        try:
            result = self._call()
        except Exception:
            self._broke(Failure())
            return
        if iscoroutine(result):
            Deferred.fromCoroutine(result).addCallbacks(self._ended, self._broke)
        else:
            self._waits = False

    def _ended(self, result: object) -> None:
        self._waits = False
