"""OneAtATime: work that must not overlap with other work of the same key. Reactor thread."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

from twisted.internet.defer import Deferred

from canal_ha.model.clock import Clock


class OneAtATime:
    """For each key the work runs in the order in which it came; works of different keys do not wait for each other.

    Work that has waited begins in a turn of the reactor of its own. Thousands of works in a row need no deep stack.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[Hashable, deque[Deferred[None]]] = {}  # a key is here while its work is under way

    @asynccontextmanager
    async def of(self, key: Hashable) -> AsyncIterator[None]:
        """Wait for the earlier work of this key, and keep later work waiting during the block."""
        if key in self._waiting:
            turn: Deferred[None] = Deferred()
            self._waiting[key].append(turn)
            await turn
        else:
            self._waiting[key] = deque()
        try:
            yield
        finally:
            if self._waiting[key]:
                following = self._waiting[key].popleft()
                self._clock.callLater(0, lambda: following.callback(None))
            else:
                del self._waiting[key]
