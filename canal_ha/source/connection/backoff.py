"""How long to wait before the next attempt to connect. Pure."""

from __future__ import annotations

from collections.abc import Callable

FIRST_S = 0.5
LIMIT_S = 10.0


class Backoff:
    """Doubles from 0.5 s to 10 s. random: in [0, 1); takes up to a fifth off, so that streams do not march in step."""

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random
        self._next_s = FIRST_S

    def reset(self) -> None:
        """The last attempt got somewhere."""
        self._next_s = FIRST_S

    def delay_s(self) -> float:
        """The pause before the next attempt; the one after is twice as long."""
        delay = self._next_s * (1 - self._random() / 5)
        self._next_s = min(LIMIT_S, self._next_s * 2)
        return delay

    def limit_s(self) -> float:
        """The longest pause, for a source where haste does harm; later ones stay as long until a reset."""
        self._next_s = LIMIT_S
        return self.delay_s()
