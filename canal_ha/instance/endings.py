"""Endings: the destinations that are stopping here. A start waits, so that it finds the last cursors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from twisted.internet.defer import Deferred


class Endings:
    """What is ending, by destination, and who waits for the end. Reactor thread."""

    def __init__(self) -> None:
        self._under_way: Counter[str] = Counter()
        self._waiting: dict[str, list[Deferred[None]]] = {}

    @contextmanager
    def of(self, destination: str) -> Iterator[None]:
        """Count the destination as ending during this block."""
        self._under_way[destination] += 1
        try:
            yield
        finally:
            self._under_way[destination] -= 1
            if not self._under_way[destination]:
                del self._under_way[destination]
                for waiting in self._waiting.pop(destination, ()):
                    if not waiting.called:  # the one who waited may have cancelled it
                        waiting.callback(None)

    async def over(self, destination: str) -> None:
        """Wait until nothing of the destination is ending. Return at once if nothing is."""
        while destination in self._under_way:
            waiting: Deferred[None] = Deferred()
            self._waiting.setdefault(destination, []).append(waiting)
            await waiting

    @property
    def destinations(self) -> tuple[str, ...]:
        """The names of those that are ending."""
        return tuple(self._under_way)
