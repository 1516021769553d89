"""Patience: how long streams that have taken everything wait for slower ones. Pure."""

from __future__ import annotations

from collections.abc import Callable

ROOM_S = 1.0  # longest wait for room
GRACE_S = 0.02  # longest wait for the room of few


class Patience:
    """How long followers that have taken everything wait for others: at most half of the time, and ROOM_S at once."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left_s = ROOM_S
        self._waits = False
        self._at = clock()

    def ends(self, most_s: float, *, waits: bool) -> bool:
        """Return whether they have waited long enough. waits: whether one of them waits from now on.

        most_s: at once; up to ROOM_S.
        """
        now = self._clock()
        passed_s = now - self._at
        self._left_s = min(ROOM_S, self._left_s + (-passed_s if self._waits else passed_s))
        self._waits, self._at = waits, now
        return waits and self._left_s <= ROOM_S - most_s
