"""Buffers of acknowledged segments are reused, but not while they are referenced."""

from __future__ import annotations

from canal_ha.model.buffers import LARGEST, Buffers


def given(buffers: Buffers, content: bytes) -> int:
    """Give a new buffer without any other reference; return its identity."""
    buffer = bytearray(content)
    buffers.give(buffer)
    return id(buffer)


def test_a_buffer_comes_back() -> None:
    """take() returns a given buffer once."""
    buffers = Buffers()
    known = given(buffers, b"rows")
    taken = buffers.take()
    assert id(taken) == known
    assert buffers.take() is not taken


def test_a_buffer_that_somebody_holds_is_not_taken() -> None:
    """A buffer with a view or another reference is not taken until that is gone; the next free one is."""
    buffers = Buffers()
    held = bytearray(b"held")
    views = [memoryview(bytearray(b"rows"))[1:3]]
    buffers.give(held)
    buffers.give(views[0].obj)  # type: ignore[arg-type]  # a bytearray
    free = given(buffers, b"free")
    assert id(buffers.take()) == free
    assert buffers.take() == b""
    assert bytes(views[0]) == b"ow"
    assert held == b"held"
    views.clear()
    assert buffers.take() == b"rows"
    del held
    assert buffers.take() == b"held"


def test_huge_buffers_are_not_kept() -> None:
    """A buffer that is larger than LARGEST is not kept."""
    buffers = Buffers()
    given(buffers, bytes(LARGEST + 1))
    assert buffers.take() == b""
