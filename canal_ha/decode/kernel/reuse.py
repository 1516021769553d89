"""Memory to fill; a compiled build replaces these functions by inline C, which reuses memory without references.

Fresh memory costs more than filling it, because the system provides it page by page, filled with zeros.
"""

from __future__ import annotations


def room(held: list[bytes], size: int, smallest: int, largest: int, count: int) -> bytearray:
    """Return room for so many bytes, which `writable` fills and `content` returns.

    held: for this function alone: rooms of `smallest` to `largest` bytes, `count` at most.
    """
    return bytearray(size)


def writable(room: bytearray) -> memoryview:
    """Return a room's memory."""
    return memoryview(room)


def content(room: bytearray) -> bytes:
    """Return what was written there; write nothing afterwards."""
    return bytes(room)


def spare(held: list[bytearray], size: int, smallest: int, most: int) -> bytearray:
    """Return an empty bytearray with memory for about this many bytes.

    held: for this function alone: bytearrays of at least `smallest` bytes, of `most` bytes together.
    """
    return bytearray()
