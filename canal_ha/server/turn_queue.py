"""TurnQueue: which conversations go on in the next round of the reactor, so that together they never hold it for long.

A conversation that has more to do than it may do at once waits here. So does one whose waiting GET another connection
has ended: it must not act before that one is done, and must not act inside it.
"""

from __future__ import annotations

from collections import deque

from twisted.internet.defer import Deferred

from canal_ha.model.clock import Clock, Timer

ROUND_S = 0.005  # of each round of the reactor, and the turn of the last one that begins


class TurnQueue:
    """See the module. Reactor thread. clock: seconds and callLater of a reactor."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: deque[Deferred[None]] = deque()
        self._timer: Timer | None = None

    def turn(self) -> Deferred[None]:
        """Return a Deferred that fires in one of the next rounds, after those that asked before."""
        turn = Deferred[None]()
        self._waiting.append(turn)
        self._arm()
        return turn

    def _arm(self) -> None:
        if self._waiting and self._timer is None:
            self._timer = self._clock.callLater(0, self._round)

    def _round(self) -> None:
        self._timer = None
        until = self._clock.seconds() + ROUND_S
        for _ in range(len(self._waiting)):
            self._waiting.popleft().callback(None)  # one that was cancelled ignores it
            if self._clock.seconds() >= until:
                break
        self._arm()
