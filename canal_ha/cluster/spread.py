"""Decides when to claim: one destination at a time, and later the more destinations this node runs (pure).

Before each claim a node waits step x (destinations it runs) plus a random part of a step, at most 1 s. So the node that
runs the fewest claims first, and destinations spread over nodes without a planner.
"""

from __future__ import annotations

from collections.abc import Callable

ORDERLY_STEP_S = 0.020  # at start and after an orderly release: every node learns of it at the same moment
VANISHED_STEP_S = 0.100  # after a crash: nodes learn of it at different moments
MOST_S = 1.0


class Turns:
    """The destinations that this node could claim now. uniform: random float of a range, as random.uniform."""

    def __init__(self, uniform: Callable[[float, float], float]) -> None:
        self._uniform = uniform
        self._wanted: dict[str, tuple[float, float]] = {}  # destination -> (random rank, step)

    def want(self, destination: str, step_s: float) -> None:
        """Queue a destination that nobody runs. Nodes queue in different orders, so that they seldom collide."""
        rank = self._wanted.get(destination, (self._uniform(0.0, 1.0), 0.0))[0]
        self._wanted[destination] = (rank, step_s)

    def drop(self, destination: str) -> None:
        """Remove a destination that somebody took, or that this node cannot claim at the moment."""
        self._wanted.pop(destination, None)

    @property
    def queued(self) -> bool:
        """Whether a destination waits for its turn."""
        return bool(self._wanted)

    def delay(self, running: int) -> float | None:
        """Return the seconds before the next claim if `running` destinations run here; None if nothing is queued."""
        if not self._wanted:
            return None
        step_s = min(self._wanted.values())[1]
        return min(MOST_S, step_s * running + self._uniform(0.0, step_s))

    def take(self) -> str | None:
        """Remove and return the destination to claim now; None if nothing is queued."""
        if not self._wanted:
            return None
        destination = min(self._wanted, key=lambda name: self._wanted[name])
        del self._wanted[destination]
        return destination
