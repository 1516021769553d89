"""Memory that is used again once nobody refers to what was in it: what a socket brings, and what columns are put into.

Nobody has to give anything back. Whoever keeps a message or a batch keeps its memory, and others get fresh one.
"""

from __future__ import annotations

import canal_ha.decode.kernel.reuse as r

_SMALL = 65536  # bytes, below which nothing is gained
_LARGE = 32 << 20  # of a message, above which memory is given back to the system
_MESSAGES = 2  # the one that is being worked on, and the next one
_COLUMNS = 128 << 20  # bytes, of all columns together


class Landing:
    """Where messages are received, one after the other."""

    __slots__ = ("_held", "_room")

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._room: bytearray | None = None

    def begin(self, size: int) -> memoryview:
        """Memory for a message of this size; to be released before `finish`."""
        self._room = r.room(self._held, size, _SMALL, _LARGE, _MESSAGES)
        return r.writable(self._room)

    def finish(self) -> bytes:
        """The message."""
        room = self._room
        assert room is not None
        self._room = None
        return r.content(room)


class Spares:
    """Bytearrays to be filled."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: list[bytearray] = []

    def take(self, size: int) -> bytearray:
        """An empty one that will hold about so many bytes."""
        return r.spare(self._held, size, _SMALL, _COLUMNS)
