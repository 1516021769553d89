"""Delays between attempts to connect. Pure."""

from __future__ import annotations

from collections.abc import Callable

FIRST_S = 0.5
LIMIT_S = 10.0


class Backoff:
    """Doubles from 0.5 s to 10 s. random: in [0, 1); shortens a delay by up to a fifth, so that streams spread out."""

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random
        self._next_s = FIRST_S

    def reset(self) -> None:
        """Start again at 0.5 s, because an attempt succeeded."""
        self._next_s = FIRST_S

    def delay_s(self) -> float:
        """Return the delay before the next attempt; the one after it is twice as long."""
        delay = self._next_s * (1 - self._random() / 5)
        self._next_s = min(LIMIT_S, self._next_s * 2)
        return delay

    def limit_s(self) -> float:
        """Return the longest delay, for a source that retries could harm; it stays that long until a reset."""
        self._next_s = LIMIT_S
        return self.delay_s()
