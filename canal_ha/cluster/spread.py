"""Whose turn it is to claim: one destination at a time, later the more this node runs already (pure).

Every node waits step x (destinations it runs) plus a random part of a step, at most 1 s, before each claim. The node
with the least to do is therefore first, and destinations spread over nodes without anybody planning it.
"""

from __future__ import annotations

from collections.abc import Callable

ORDERLY_STEP_S = 0.020  # at start and after an orderly release: every node knows at the same moment
VANISHED_STEP_S = 0.100  # after a crash: nodes hear of it one after the other
MOST_S = 1.0


class Turns:
    """The destinations that could be claimed now. uniform: random float of a range, as random.uniform."""

    def __init__(self, uniform: Callable[[float, float], float]) -> None:
        self._uniform = uniform
        self._wanted: dict[str, tuple[float, float]] = {}  # destination -> (random rank, step)

    def want(self, destination: str, step_s: float) -> None:
        """Queue a destination that nobody runs. Nodes queue in different orders, so that they seldom collide."""
        rank = self._wanted.get(destination, (self._uniform(0.0, 1.0), 0.0))[0]
        self._wanted[destination] = (rank, step_s)

    def drop(self, destination: str) -> None:
        """Somebody took it, or we may not ask at the moment."""
        self._wanted.pop(destination, None)

    def delay(self, running: int) -> float | None:
        """Seconds to wait before the next claim when `running` destinations run here; None: nothing to claim."""
        if not self._wanted:
            return None
        step_s = min(self._wanted.values())[1]
        return min(MOST_S, step_s * running + self._uniform(0.0, step_s))

    def take(self) -> str | None:
        """The destination to claim now, the waiting done."""
        if not self._wanted:
            return None
        destination = min(self._wanted, key=lambda name: self._wanted[name])
        del self._wanted[destination]
        return destination
