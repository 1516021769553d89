"""Crowd: the followers of a tap whose queues are full, and how long the tap waits for them. Pure.

A bulk load reaches all followers. Each decodes it on a thread, and the tap brings it faster than they can. If none were
waited for, all would open dumps of their own, and the server would send the bulk load once to each. So the tap waits
until their queues are shorter. Followers that have decoded everything must not wait for long: see Patience. Those with
full queues leave then. One that decodes nothing for STALLED_S leaves as well, because its client may have stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from canal_ha.source.server.patience import GRACE_S, ROOM_S, Patience

STALLED_S = 3.0  # a herd of threads needs some time until the last one has begun


class QueueingStream(Protocol):
    """A follower.

    taken_bytes: how many bytes its thread has taken from its queue.
    """

    taken_bytes: int

    @property
    def full(self) -> bool:
        """Whether its queue holds too much."""


S = TypeVar("S", bound=QueueingStream)


class Crowd(Generic[S]):
    """See the module. It is true while there are such followers. clock: seconds, monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._patience = Patience(clock)
        self._seen: dict[S, tuple[int, float]] = {}  # what each had taken, and when it took something last

    def __bool__(self) -> bool:
        return bool(self._seen)

    def add(self, follower: S) -> None:
        """Its queue is full now."""
        self._seen.setdefault(follower, (follower.taken_bytes, self._clock()))

    def discard(self, follower: S) -> None:
        """It follows no longer."""
        self._seen.pop(follower, None)
        if not self._seen:
            self._patience.ends(ROOM_S, waits=False)

    def look(self, busy: int, followers: int) -> tuple[S, ...]:
        """Return those that have to leave, and forget those that have room.

        busy: how many followers have something to decode.
        followers: how many there are.
        """
        now = self._clock()
        for follower, (taken, _) in tuple(self._seen.items()):
            if not follower.full:
                del self._seen[follower]
            elif follower.taken_bytes != taken:
                self._seen[follower] = follower.taken_bytes, now
        most_s = ROOM_S if 2 * busy >= followers else GRACE_S
        if self._patience.ends(most_s, waits=bool(self._seen) and busy < followers):
            return tuple(self._seen)
        return tuple(each for each, (_, since) in self._seen.items() if now - since >= STALLED_S)
