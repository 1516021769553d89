"""Memory that is reused once nobody refers to its contents: received messages, and columns.

Nothing has to be given back. Whoever keeps a message or a batch keeps its memory, and new memory is allocated.
"""

from __future__ import annotations

import canal_ha.decode.kernel.reuse as r

_SMALL = 65536  # bytes; reuse gains nothing below this
_LARGE = 32 << 20  # bytes of a message; larger memory is freed
_MESSAGES = 2  # the current one and the next one
_COLUMNS = 128 << 20  # bytes of all columns together


class Landing:
    """Memory for received messages, one after the other."""

    __slots__ = ("_held", "_room")

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._room: bytearray | None = None

    def begin(self, size: int) -> memoryview:
        """Return memory for a message of this size; release it before calling `finish`."""
        self._room = r.room(self._held, size, _SMALL, _LARGE, _MESSAGES)
        return r.writable(self._room)

    def finish(self) -> bytes:
        """Return the message."""
        room = self._room
        assert room is not None
        self._room = None
        return r.content(room)


class Spares:
    """Reusable bytearrays for columns."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: list[bytearray] = []

    def take(self, size: int) -> bytearray:
        """Return an empty bytearray with memory for about this many bytes."""
        return r.spare(self._held, size, _SMALL, _COLUMNS)
