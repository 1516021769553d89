"""Segments: entries found again in their frames, beside protobuf's own serialization."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from canal_ha.model.segment import Segment
from canal_ha.store.take import Piece, take_bytes
from canal_ha.wire.proto import canal_protocol_pb2
from tests.segments import Item, segment

# Sizes at which a length needs one byte more, and their neighbours.
SIZES = st.one_of(
    st.integers(0, 300), st.sampled_from([127, 128, 16_382, 16_383, 16_384, 16_385, 2_097_151, 2_097_152])
)


def of_sizes(sizes: list[int]) -> Segment:
    return segment([Item(n, body=bytes([n % 251]) * size) for n, size in enumerate(sizes)])


@given(st.lists(SIZES, max_size=12))
def test_frames_are_the_body_of_messages(sizes: list[int]) -> None:
    """Frames are what protobuf writes for the entries of Messages, and every entry is found in them again."""
    piece = of_sizes(sizes)
    bodies = [bytes([n % 251]) * size for n, size in enumerate(sizes)]
    assert canal_protocol_pb2.Messages(messages=bodies).SerializeToString() == piece.frames
    assert [piece.entry_size(index) for index in range(len(piece))] == sizes
    assert list(piece.entries()) == bodies


@given(st.lists(SIZES, min_size=1, max_size=40), st.data())
def test_slices(sizes: list[int], data: st.DataObject) -> None:
    """A view of some entries is their frames; their sizes add up without the frames' tags and lengths."""
    first = data.draw(st.integers(0, len(sizes) - 1))
    last = data.draw(st.integers(first + 1, len(sizes)))
    piece = of_sizes(sizes)
    parsed = canal_protocol_pb2.Messages.FromString(bytes(piece.frames_view(first, last)))
    assert list(parsed.messages) == list(piece.entries())[first:last]
    assert piece.entry_bytes(first, last) == sum(sizes[first:last])


@given(st.lists(SIZES, min_size=1, max_size=40), st.data())
def test_take_bytes(sizes: list[int], data: st.DataObject) -> None:
    """A limit takes exactly what adding up entry by entry takes, and leaves the same."""
    first = data.draw(st.integers(0, len(sizes) - 1))
    limit = data.draw(
        st.integers(0, sum(sizes) + 10) | st.sampled_from([sum(sizes[first:n]) for n in range(len(sizes))])
    )
    left, expected = limit, 0
    for size in sizes[first:]:
        if left < 0:
            break
        left -= size
        expected += 1
    assert take_bytes(Piece(of_sizes(sizes), first, len(sizes)), limit) == (expected, left)


def test_empty() -> None:
    """A segment without entries is one."""
    piece = of_sizes([])
    assert len(piece) == 0
    assert piece.frames_view(0, 0).nbytes == 0
    assert list(piece.entries()) == []
