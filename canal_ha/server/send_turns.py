"""SendTurns: how much each connection may write in a round of the reactor. Reactor thread.

A socket of this machine takes megabytes at once. Four of them take two milliseconds, and twenty if all processors are
busy. Ten clients with large rows that are ready in the same round would keep the reactor for a fifth of a second. A
client alone may write much, because each turn costs a round, and each write wakes the client.
"""

from __future__ import annotations

from canal_ha.model.clock import Clock

MUCH_BYTES = 4 * 1024 * 1024
LITTLE_BYTES = 128 * 1024
ROUND_S = 0.010  # of long writes in one round; the writes behind them are short


class SendTurns:
    """See the module. clock: the reactor; its timers of zero seconds run between two rounds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.seconds = clock.seconds
        self._spent_s = 0.0
        self._counting = False

    @property
    def room(self) -> int:
        """How many bytes a connection may write now."""
        return MUCH_BYTES if self._spent_s < ROUND_S else LITTLE_BYTES

    def wrote(self, size: int, began_s: float) -> None:
        """Note that a connection has written so many bytes. began_s: when it began, in `seconds`."""
        if size <= LITTLE_BYTES:
            return
        if not self._counting:
            self._counting = True
            self._clock.callLater(0, self._next_round)
        self._spent_s += self.seconds() - began_s

    def _next_round(self) -> None:
        self._spent_s, self._counting = 0.0, False
