"""Memory to fill; a compiled build replaces these functions by inline C, which takes it from what nobody uses any more.

Fresh memory costs more than what is done with it: the system hands it out page by page, filled with zeros.
"""

from __future__ import annotations


def room(held: list[bytes], size: int, smallest: int, largest: int, count: int) -> bytearray:
    """Room for so many bytes, which `writable` fills and `content` returns.

    held: for this function alone, rooms of `smallest` to `largest` bytes, `count` at most.
    """
    return bytearray(size)


def writable(room: bytearray) -> memoryview:
    """A room's memory."""
    return memoryview(room)


def content(room: bytearray) -> bytes:
    """What was written there; nothing more may be."""
    return bytes(room)


def spare(held: list[bytearray], size: int, smallest: int, most: int) -> bytearray:
    """An empty bytearray that will hold about so many bytes.

    held: for this function alone, those of at least `smallest` bytes, of `most` together.
    """
    return bytearray()
