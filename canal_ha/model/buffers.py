"""Buffers: reuses the memory of acknowledged segments for new ones.

A segment's frames are written into a bytearray that is already large enough, so streaming rows does not allocate,
clear or copy memory. A stream's source thread takes buffers and its ring gives them back; the deque needs no lock. The
threads of a snapshot share one.
"""

from __future__ import annotations

import sys
from collections import deque

LARGEST = 4 << 20  # bytes: a larger buffer, left by a huge transaction, goes back to the system


def _pop(free: deque[bytearray]) -> tuple[bytearray, int]:
    """Remove the first buffer; return it and the number of its references, of which this function has one or none."""
    buffer = free.popleft()
    return buffer, sys.getrefcount(buffer)


_ALONE = _pop(deque([bytearray()]))[1]  # the number for a buffer that nobody else refers to; it depends on the Python


class Buffers:
    """The free buffers of one stream. There are never more than its ring held at once: its byte budget bounds them."""

    __slots__ = ("_free",)

    def __init__(self) -> None:
        self._free: deque[bytearray] = deque()

    def give(self, buffer: bytearray) -> None:
        """Return a buffer for reuse. It is not reused while a segment or a view still refers to it."""
        if len(buffer) <= LARGEST:
            self._free.append(buffer)

    def take(self) -> bytearray:
        """Return a buffer that nobody else refers to, with arbitrary contents; a new one if none is free."""
        for _ in range(len(self._free)):
            try:
                buffer, references = _pop(self._free)
            except IndexError:  # another thread took the last one
                break
            if references == _ALONE:
                return buffer
            self._free.append(buffer)
        return bytearray()
