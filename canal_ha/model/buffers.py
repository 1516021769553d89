"""Buffers: memory of segments that were acknowledged, for the segments to come.

A segment's frames are written into a bytearray that has grown to its size before: no memory is asked for, cleared and
moved while rows stream. Taken by a stream's source thread, given back by its ring; a deque needs no lock for that.
"""

from __future__ import annotations

import sys
from collections import deque

LARGEST = 4 << 20  # bytes: what a single huge transaction needed is given back to the system
_UNKNOWN_ELSEWHERE = 2  # references to an object that only `take` knows, while it asks


class Buffers:
    """Free buffers of one stream. As many exist as its ring ever held at once, so its byte budget bounds them."""

    __slots__ = ("_free",)

    def __init__(self) -> None:
        self._free: deque[bytearray] = deque()

    def give(self, buffer: bytearray) -> None:
        """Its owner is done with it. Who still holds it, its segment or a view of it keeps it as it is."""
        if len(buffer) <= LARGEST:
            self._free.append(buffer)

    def take(self) -> bytearray:
        """A buffer that nobody else knows, whatever it holds; a new one when there is none."""
        for _ in range(len(self._free)):
            buffer = self._free.popleft()
            if sys.getrefcount(buffer) == _UNKNOWN_ELSEWHERE:
                return buffer
            self._free.append(buffer)
        return bytearray()
