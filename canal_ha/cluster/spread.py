"""Decides when to claim: one destination at a time, and later on a node that runs its share (pure).

A share is what each live node runs if all run as many. Before each claim a node waits a random part of a step. Once it
runs its share, it waits another step for each destination that it would run beyond it, at most 0.25 s. So nodes that
run less claim first, destinations spread over nodes without a planner, and hundreds of them run within seconds.
"""

from __future__ import annotations

from collections.abc import Callable

ORDERLY_STEP_S = 0.020  # at start and after an orderly release: every node learns of it at the same moment
VANISHED_STEP_S = 0.100  # after a crash: nodes learn of it at different moments
MOST_S = 0.25  # beyond the share: longer than a claim on a node that runs less
FEW = 8  # of more queued destinations, two nodes seldom choose the same one, so the random part can be shorter


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

    def delay(self, running: int, share: int) -> float | None:
        """Return the seconds before the next claim; None if nothing is queued.

        running: destinations that run here.
        share: how many each live node runs if all run as many.
        """
        if not self._wanted:
            return None
        step_s = min(self._wanted.values())[1]
        beyond = max(0, running + 1 - share)
        return min(MOST_S, step_s * beyond) + self._uniform(0.0, step_s) / max(1.0, len(self._wanted) / FEW)

    def take(self) -> str | None:
        """Remove and return the destination to claim now; None if nothing is queued."""
        if not self._wanted:
            return None
        destination = min(self._wanted, key=lambda name: self._wanted[name])
        del self._wanted[destination]
        return destination
