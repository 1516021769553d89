"""FeedPaces: how fast feeds may begin. Each makes several connections to the source, and a client can ask for many."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable

BEGUN_MOST, BEGUN_S = 20, 10.0  # feeds that begin in this time
KEPT = 1024  # paces; those that have begun nothing for BEGUN_S go first


class FeedPace:
    """The feeds of one client id, the tables that it adds to its snapshot, or the private reads of one holder.

    clock: seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._begun: deque[float] = deque(maxlen=BEGUN_MOST)

    @property
    def wait_s(self) -> float:
        """After how many seconds the next feed may begin."""
        return max(0.0, self._begun[0] + BEGUN_S - self._clock()) if len(self._begun) == BEGUN_MOST else 0.0

    def begins(self) -> None:
        """Note that a feed begins."""
        self._begun.append(self._clock())

    @property
    def idle(self) -> bool:
        """Whether nothing has begun for a while, so that a new pace would be the same."""
        return not self._begun or self._begun[-1] + BEGUN_S <= self._clock()


class FeedPaces:
    """The paces of a destination. They outlive the streams: a client can unsubscribe and subscribe again."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._paces: dict[Hashable, FeedPace] = {}

    def of(self, key: Hashable) -> FeedPace:
        """Return a pace. key: of whose; the paces of its feeds and of its snapshots have different keys."""
        if key not in self._paces:
            if len(self._paces) >= KEPT:
                self._paces = {key: pace for key, pace in self._paces.items() if not pace.idle}
            self._paces[key] = FeedPace(self._clock)
        return self._paces[key]
