"""Buffers: memory of segments that were acknowledged, for the segments to come.

A segment's frames are written into a bytearray that has grown to its size before: no memory is asked for, cleared and
moved while rows stream. Taken by a stream's source thread, given back by its ring; a deque needs no lock for that.
"""

from __future__ import annotations

from collections import deque

LARGEST = 4 << 20  # bytes: what a single huge transaction needed is given back to the system


class Buffers:
    """Free buffers of one stream. As many exist as its ring ever held at once, so its byte budget bounds them."""

    __slots__ = ("_free",)

    def __init__(self) -> None:
        self._free: deque[bytearray] = deque()

    def give(self, buffer: bytearray) -> None:
        """Nobody will ask for the frames in it again; views of them that are still being sent stay as they are."""
        if len(buffer) <= LARGEST:
            self._free.append(buffer)

    def take(self) -> bytearray:
        """A buffer that nothing looks at, whatever it holds; a new one when there is none."""
        for _ in range(len(self._free)):
            buffer = self._free.popleft()
            try:
                buffer.append(0)  # refused while a memoryview looks at it
            except BufferError:
                self._free.append(buffer)
            else:
                return buffer
        return bytearray()
