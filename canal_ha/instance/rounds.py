"""Rounds: the regular chores of all instances of a node, on one timer for each period. Reactor thread.

The timers of a thousand instances would keep a tenth of a core busy. The chores of one period are spread over it, in
turns, so that they do not hold up a row for milliseconds. While rows wait for the reactor, the turns wait too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from inspect import iscoroutine

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from canal_ha.model.clock import Clock, Timer

TURN_S = 0.1  # shortest time between two turns
HELD_S = 0.3  # longest time by which waiting rows delay a turn
HELD_PART = 0.25  # the same, as a part of the period
SLACK_PART = 0.5  # of the period, by which turns may be late while each round of the reactor serves one
_CHECK_S = 0.005  # between two checks whether rows still wait

_log = logging.getLogger(__name__)


class Rounds:
    """See the module.

    reactor: Twisted's.
    turns: the most into which a period is divided.
    rows_wait: whether rows wait for the reactor.
    """

    def __init__(self, reactor: Clock, turns: int = 1, rows_wait: Callable[[], bool] = lambda: False) -> None:
        self._reactor = reactor
        self._turns = turns
        self._rows_wait = rows_wait
        self._periods: dict[float, _Period] = {}

    def every(
        self, period_s: float, call: Callable[[], object], broke: Callable[[Failure], object], *, now: bool = False
    ) -> Callable[[], None]:
        """Call regularly, and return what ends that.

        period_s: time between two calls; the first one comes within this time, if no rows wait.
        call: may return a coroutine; the next call waits for its end.
        broke: hears of an error; it was the last call then.
        now: whether to call at once, too.
        """
        period = self._periods.get(period_s)
        if period is None:
            turns = max(1, min(self._turns, int(period_s / TURN_S)))
            period = self._periods[period_s] = _Period(self._reactor, period_s / turns, turns, self._rows_wait)
        chore = _Chore(call, broke)
        turn = period.add(chore)
        if now:
            chore.run()

        def end() -> None:
            chore.over = True
            period.discard(chore, turn)

        return end


class _Period:
    """The chores of one period, in turns. turn_s: between two of them. rows_wait: see Rounds."""

    def __init__(self, reactor: Clock, turn_s: float, turns: int, rows_wait: Callable[[], bool]) -> None:
        self._reactor = reactor
        self._turn_s = turn_s
        self._rows_wait = rows_wait
        self._slack = int(turns * SLACK_PART)
        self._held_s = min(HELD_S, turn_s * turns * HELD_PART)
        self._turns: list[dict[_Chore, None]] = [{} for _ in range(turns)]
        self._now = 0
        self._next_at = 0.0
        self._timer: Timer | None = None
        self._busy = False

    def add(self, chore: _Chore) -> dict[_Chore, None]:
        """Add a chore to the turn that has the fewest, and return the turn."""
        turn = min(self._turns, key=len)
        turn[chore] = None
        if not self._timer and not self._busy:
            self._next_at = self._reactor.seconds() + self._turn_s
            self._arm()
        return turn

    def discard(self, chore: _Chore, turn: dict[_Chore, None]) -> None:
        """Remove a chore. The timer ends with the last one."""
        turn.pop(chore, None)
        if self._timer and not any(self._turns):
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        self._timer = self._reactor.callLater(max(0.0, self._next_at - self._reactor.seconds()), self._pass)

    def _pass(self) -> None:
        """Serve the next turn, unless rows wait. Serve more of them if they are late by more than SLACK_PART."""
        late_s = max(0.0, self._reactor.seconds() - self._next_at)
        if late_s < self._held_s and self._rows_wait():
            self._timer = self._reactor.callLater(_CHECK_S, self._pass)
            return
        self._timer = None
        late = int(late_s / self._turn_s + 1e-9)  # turns; 1e-9 absorbs rounding errors
        due = 1 + (late if late >= len(self._turns) else max(0, late - self._slack))
        self._next_at += due * self._turn_s
        self._busy = True
        try:
            for _ in range(min(due, len(self._turns))):  # a stall of several periods makes no call twice
                self._now = (self._now + 1) % len(self._turns)
                for chore in tuple(self._turns[self._now]):
                    chore.run()
        finally:
            self._busy = False
            if any(self._turns):
                self._arm()


class _Chore:
    """One call, never twice at once. over: it is not called any more."""

    def __init__(self, call: Callable[[], object], broke: Callable[[Failure], object]) -> None:
        self.over = False
        self._call = call
        self._broke = broke
        self._waits = False  # for a coroutine

    def run(self) -> None:
        if self._waits or self.over:
            return
        try:
            result = self._call()
        except Exception:
            self._broken(Failure())
            return
        if result is not None and iscoroutine(result):  # most chores return None
            self._waits = True
            Deferred.fromCoroutine(result).addCallbacks(self._ended, self._broken)

    def _ended(self, result: object) -> None:
        self._waits = False

    def _broken(self, failure: Failure) -> None:
        self.over = True
        try:
            self._broke(failure)
        except Exception:
            _log.exception("a chore broke, and so did the report of it")
