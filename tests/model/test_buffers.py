"""Memory of acknowledged segments is used again, and never while somebody looks at it."""

from __future__ import annotations

from canal_ha.model.buffers import LARGEST, Buffers


def test_a_buffer_comes_back() -> None:
    """What was given is what is taken, and once only."""
    buffers = Buffers()
    buffer = bytearray(100)
    buffers.give(buffer)
    assert buffers.take() is buffer
    assert buffers.take() is not buffer


def test_a_buffer_that_is_being_sent_is_not_taken() -> None:
    """A view keeps its bytes until it is released; the next free buffer is taken meanwhile."""
    buffers = Buffers()
    busy, free = bytearray(b"rows"), bytearray(b"other")
    view = memoryview(busy)[1:3]
    buffers.give(busy)
    buffers.give(free)
    assert buffers.take() is free
    assert buffers.take() not in (busy, free)
    assert bytes(view) == b"ow"
    view.release()
    assert buffers.take() is busy


def test_huge_buffers_are_not_kept() -> None:
    """What one huge transaction needed does not stay."""
    buffers = Buffers()
    huge = bytearray(LARGEST + 1)
    buffers.give(huge)
    assert buffers.take() is not huge
