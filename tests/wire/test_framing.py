"""Frames: packets that arrive in pieces of any size, and MESSAGES packets that are read in place."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal_ha.decode.kernel.entries import only_frames, whole_reply
from canal_ha.errors import RemoteProtocolError
from canal_ha.wire import messages
from canal_ha.wire.framing import FrameReader, frame
from canal_ha.wire.messages import varint
from canal_ha.wire.packets import read_packet
from canal_ha.wire.proto import canal_protocol_pb2 as pb

PACKETS = st.lists(st.binary(max_size=40), max_size=6)


@given(PACKETS, st.lists(st.integers(1, 60)), st.booleans())
def test_any_pieces(packets: list[bytes], sizes: list[int], exactly: bool) -> None:
    """Each packet comes once, in order and as soon as it is whole, even if only the missing bytes are fed."""
    data = b"".join(map(frame, packets))
    reader = FrameReader(100)
    found = []
    at = 0
    while True:
        while (packet := reader.next()) is not None:
            found.append(packet)
        assert reader.missing > 0
        assert len(reader) < 4 + 40
        if at == len(data):
            break
        size = sizes.pop() if sizes else 7
        piece = data[at : at + (min(size, reader.missing) if exactly else size)]
        reader.feed(piece)
        at += len(piece)
    assert found == packets
    assert not len(reader)


def test_a_frame_in_tiny_pieces_takes_little_more_memory_than_its_bytes() -> None:
    """A client that sends two bytes at a time cannot hold many times what the limits count."""
    reader = FrameReader(1 << 20)
    reader.feed((1 << 20).to_bytes(4, "big"))
    tracemalloc.start()
    try:
        for _ in range(1 << 16):
            assert reader.next() is None
            reader.feed(b"ab")
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 2 * len(reader)


def test_a_length_that_cannot_be() -> None:
    """A length over the limit is refused before its packet arrives, at each call."""
    for length in (b"\xff\xff\xff\xff", b"\x00\x00\x00\x65"):
        reader = FrameReader(100)
        reader.feed(length)
        for _ in range(2):
            with pytest.raises(RemoteProtocolError, match="limit of 100"):
                reader.next()


@given(st.integers(-(2**63), 2**63 - 1), st.lists(st.binary(max_size=200), max_size=4), st.data())
def test_a_packet_read_in_place_says_what_protobuf_says(
    batch_id: int, entries: list[bytes], data: st.DataObject
) -> None:
    """A packet as canal writes it is read in place; other bytes give None or the result of protobuf."""
    body = pb.Messages(batch_id=batch_id, messages=entries).SerializeToString()
    packet = b"\x18\x07\x2a" + varint(len(body)) + body
    found = messages.in_place(packet, only_frames)
    assert (found is not None) == (batch_id != 0)
    damaged = bytearray(packet)
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    packet = bytes(damaged[: data.draw(st.integers(0, len(damaged)))] if data.draw(st.booleans()) else damaged)
    found = messages.in_place(packet, only_frames)
    if found is not None:
        envelope = read_packet(packet)
        assert envelope.type == pb.MESSAGES
        assert not envelope.HasField("compression")
        expected = messages.decode(envelope.body)
        assert (found.batch_id, bytes(found.frames)) == (expected.batch_id, bytes(expected.frames))


@given(st.integers(-(2**63), 2**63 - 1), st.lists(st.binary(max_size=200), max_size=4), st.data())
def test_a_whole_reply_is_the_packet_behind_its_length(
    batch_id: int, entries: list[bytes], data: st.DataObject
) -> None:
    """A reply in one piece gives the same as its packet read in place. Other bytes give None."""
    body = pb.Messages(batch_id=batch_id, messages=entries).SerializeToString()
    reply = frame(b"\x18\x07\x2a" + varint(len(body)) + body)
    assert (whole_reply(reply) is not None) == (batch_id > 0)
    assert whole_reply(reply + b"\0") is None
    damaged = bytearray(reply)
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    reply = bytes(damaged[: data.draw(st.integers(0, len(damaged)))] if data.draw(st.booleans()) else damaged)
    found = whole_reply(reply)
    if found is not None:
        packet = messages.in_place(reply[4:], only_frames)
        assert packet is not None
        assert len(reply) == 4 + int.from_bytes(reply[:4], "big")
        assert found == (packet.batch_id, packet.start + 4)
