"""SendTurns: how much each connection may write in a round of the reactor. Reactor thread.

A socket of this machine takes megabytes at once, some five milliseconds each. Ten clients with large rows that are
ready in the same round would keep the reactor for a twentieth of a second and more. A client alone may write much,
because each turn costs a round.
"""

from __future__ import annotations

from collections.abc import Callable

MUCH_BYTES = 1024 * 1024
LITTLE_BYTES = 128 * 1024
ROUND_S = 0.010  # of a round in which connections may write much
GAP_S = 0.002  # without a write: another round has begun


class SendTurns:
    """See the module. A connection writes once in each round. seconds: a monotonic clock."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._round = 0
        self._began = self._ended = float("-inf")

    def room(self, before: int) -> tuple[int, int]:
        """Return how many bytes a connection may write now, and the number of this round.

        before: the round in which the connection has written last; 0 for none.
        """
        now = self._seconds()
        if before == self._round or now - self._ended > GAP_S:
            self._round += 1
            self._began = now
        return (MUCH_BYTES if now - self._began < ROUND_S else LITTLE_BYTES), self._round

    def wrote(self) -> None:
        """Note that a connection has written."""
        self._ended = self._seconds()
