"""Buffers of acknowledged segments are reused, but not while they are referenced."""

from __future__ import annotations

from collections import deque

from canal_ha.model import buffers as module
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


def test_memory_in_use_is_not_taken_in_a_python_that_counts_references_in_another_way() -> None:
    """The number for a free buffer is measured, not written down: Python 3.14 counts fewer than earlier ones."""
    free = deque([bytearray(b"free"), bytearray(b"held")])
    held = free[1]
    counts = [module._pop(free)[1] for _ in range(2)]
    assert counts == [module._ALONE, module._ALONE + 1]
    assert held == b"held"


def test_huge_buffers_are_not_kept() -> None:
    """A buffer that is larger than LARGEST is not kept."""
    buffers = Buffers()
    given(buffers, bytes(LARGEST + 1))
    assert buffers.take() == b""
