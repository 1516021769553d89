"""Segments: frames compared with protobuf's own serialization, slices, selections and limits."""

from __future__ import annotations

from array import array
from dataclasses import replace
from itertools import pairwise

import hypothesis.strategies as st
from hypothesis import given

from canal_ha.model.position import LogPosition
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
    """Frames are the bytes that protobuf writes for the entries of Messages, and each entry is found in them."""
    piece = of_sizes(sizes)
    bodies = [bytes([n % 251]) * size for n, size in enumerate(sizes)]
    assert canal_protocol_pb2.Messages(messages=bodies).SerializeToString() == piece.frames
    assert [piece.entry_size(index) for index in range(len(piece))] == sizes
    assert list(piece.entries()) == bodies


@given(st.lists(SIZES, min_size=1, max_size=40), st.data())
def test_slices(sizes: list[int], data: st.DataObject) -> None:
    """frames_view() gives the frames of some entries; entry_bytes() gives their size without tags and lengths."""
    first = data.draw(st.integers(0, len(sizes) - 1))
    last = data.draw(st.integers(first + 1, len(sizes)))
    piece = of_sizes(sizes)
    parsed = canal_protocol_pb2.Messages.FromString(bytes(piece.frames_view(first, last)))
    assert list(parsed.messages) == list(piece.entries())[first:last]
    assert piece.entry_bytes(first, last) == sum(sizes[first:last])


@given(st.lists(SIZES, min_size=1, max_size=40), st.data())
def test_take_bytes(sizes: list[int], data: st.DataObject) -> None:
    """take_bytes() takes the same entries, and leaves the same limit, as a loop over the entries."""
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
    """A segment without entries has length 0 and empty frames."""
    piece = of_sizes([])
    assert len(piece) == 0
    assert piece.frames_view(0, 0).nbytes == 0
    assert list(piece.entries()) == []


@st.composite
def with_runs(draw: st.DrawFn) -> Segment:
    """Draw a segment with several runs and with entries that share an event."""
    count = draw(st.integers(1, 30))
    sizes = draw(st.lists(st.sampled_from([0, 5, 127, 128, 20_000]), min_size=count, max_size=count))
    starts = sorted({0, *draw(st.lists(st.integers(0, count - 1), max_size=5))})
    return replace(
        segment([Item(10 * (n // 3), body=bytes([n]) * size, sub=n % 3, rows=n) for n, size in enumerate(sizes)]),
        run_starts=array("q", starts),
        run_server_ids=array("q", range(len(starts))),
        run_gtids=tuple(f"u:1-{n}" for n in range(len(starts))),
        cut=draw(st.booleans()),
        part=2,
        others=(LogPosition("mysql-bin.000001", 4, part=1),),
    )


@given(with_runs(), st.data())
def test_select(whole: Segment, data: st.DataObject) -> None:
    """A selection keeps the bytes, positions and counts of its entries; its runs are in order."""
    kept = sorted(data.draw(st.sets(st.integers(0, len(whole) - 1), min_size=1)))
    part = whole.select(kept)
    assert [part.position(new) for new in range(len(part))] == [whole.position(old) for old in kept]
    assert list(part.entries()) == [whole.entry(old) for old in kept]
    assert list(part.row_counts) == [whole.row_counts[old] for old in kept]
    assert list(part.event_lengths) == [whole.event_lengths[old] for old in kept]
    assert part.cut == (whole.cut and kept[-1] == len(whole) - 1)
    assert part.run_starts[0] == 0
    assert all(one < two for one, two in pairwise(part.run_starts))


@given(with_runs(), st.data())
def test_a_slice_is_the_selection_of_its_entries(whole: Segment, data: st.DataObject) -> None:
    """slice() equals select() of the same entries; the slice of all entries is the segment itself.

    Only a slice that ends inside a transaction, with more entries of its GTID behind it, is cut.
    """
    first = data.draw(st.integers(0, len(whole) - 1))
    last = data.draw(st.integers(first + 1, len(whole)))
    goes_on = whole.cut if last == len(whole) else whole.run_of(last - 1) == whole.run_of(last)
    assert whole.slice(first, last) == replace(whole.select(range(first, last)), cut=goes_on)
    assert whole.slice(0, len(whole)) is whole


@given(with_runs(), st.integers(-10, 110))
def test_before_and_behind_make_up_the_whole(whole: Segment, offset: int) -> None:
    """before() and behind() a position together give each entry of a segment once."""
    end = LogPosition(whole.journal, offset)
    before, behind = whole.before(end), whole.behind(replace(end, offset=offset - 1, sub_index=2, part=2))
    assert [entry for part in (before, behind) if part for entry in part.entries()] == list(whole.entries())
    assert whole.before(replace(end, journal="mysql-bin.000000")) is None
    assert whole.before(replace(end, journal="mysql-bin.000002")) is whole


def test_the_last_entry_of_an_event() -> None:
    """Of the entries that share an offset, only the last one ends the event."""
    piece = segment([Item(100), Item(200), Item(200, sub=1), Item(300)])
    assert [piece.ends_event(index) for index in range(4)] == [True, False, True, True]
