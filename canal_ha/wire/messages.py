"""Writes and reads MESSAGES packets: a short head in front of wire-ready frames (docs/protocol.md#messages).

Entries are not parsed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from google.protobuf.message import DecodeError

from canal_ha.errors import RemoteProtocolError
from canal_ha.model.batch import GetAnswer
from canal_ha.model.immutable import immutable
from canal_ha.wire.framing import frame, header
from canal_ha.wire.proto.canal_protocol_pb2 import Messages

# version=1, type=7, body{batch_id=-1}: canal writes the version only in the empty packet
EMPTY = frame(bytes.fromhex("100118072a0b08ffffffffffffffffff01"))
_TYPE_AND_BODY = b"\x18\x07\x2a"
_BATCH_ID = b"\x08"
_LENGTH_BYTES = 5  # of the longest length varint
_NUMBER_BYTES = 10

OnlyFrames = Callable[[bytes, int], bool]
"""Returns whether all bytes from an offset on are complete fields 2 of Messages."""


WholeReply = Callable[[bytes], tuple[int, int] | None]
"""Returns the batch id of a reply with its length, and where its frames begin; None if it is anything else."""


@immutable
class Fetched:
    """A client's view of the reply to a GET. data[start:] holds the frames."""

    batch_id: int
    data: bytes
    start: int = 0

    @property
    def frames(self) -> memoryview:
        """The entries as fields of Messages (tag, length, entry, ...), not copied."""
        return memoryview(self.data)[self.start :]

    def entries(self) -> tuple[bytes, ...]:
        """Return copies of all serialized entries, in order."""
        return tuple(Messages.FromString(bytes(self.frames)).messages)


def encode(message: GetAnswer, number: bytes = b"") -> tuple[bytes | memoryview, ...]:
    """Return the frame in pieces: the head, then the batch's views, not copied. number: varint of the batch's id."""
    batch = message.batch
    if batch is None:
        return (EMPTY,)
    number = number or varint(message.batch_id)
    return (_head(len(number), batch.size_bytes) + number, *batch.views)


@lru_cache(1024)  # many small transactions have the same size
def _head(number_bytes: int, size_bytes: int) -> bytes:
    """Return the beginning of a frame, up to the number of the batch. size_bytes: of the batch's views."""
    body_length = len(_BATCH_ID) + number_bytes + size_bytes
    head = _TYPE_AND_BODY + varint(body_length) + _BATCH_ID
    return header(len(head) + number_bytes + size_bytes) + head


def decode(body: bytes) -> Fetched:
    """Read the body of a MESSAGES packet with its fields in any order. Raises RemoteProtocolError."""
    try:
        messages = Messages.FromString(body)
    except DecodeError as error:
        raise RemoteProtocolError(f"invalid MESSAGES body: {error}") from error
    messages.DiscardUnknownFields()
    batch_id = messages.batch_id
    head = _BATCH_ID + varint(batch_id % 2**64) if batch_id else b""
    # no unknown or repeated field, and the id first: serializing gives the same bytes
    as_written = messages.ByteSize() == len(body) and body.startswith(head)
    whole = body if as_written else messages.SerializeToString()
    return Fetched(batch_id, whole, len(head))


def in_place(packet: bytes, only_frames: OnlyFrames) -> Fetched | None:
    """Read a complete MESSAGES packet like `decode`, but without a copy.

    Returns None unless the fields are in canal's order: type, body; in the body the id, then frames.
    """
    if not packet.startswith(_TYPE_AND_BODY):
        return None
    try:
        size, body = _read_varint(packet, len(_TYPE_AND_BODY), _LENGTH_BYTES)
        if body + size != len(packet) or not packet.startswith(_BATCH_ID, body):
            return None
        batch_id, start = _read_varint(packet, body + 1, _NUMBER_BYTES)
    except IndexError:
        return None
    if not only_frames(packet, start):
        return None
    batch_id &= 2**64 - 1
    return Fetched(batch_id - (batch_id >> 63 << 64), packet, start)


def number_at(data: bytes, at: int) -> int:
    """Return the number with which a packet ends; 0 if it does not end with a number, or it is too large."""
    try:
        number, end = _read_varint(data, at, _NUMBER_BYTES - 1)
    except IndexError:
        return 0
    return number if end == len(data) else 0


def _read_varint(data: bytes, at: int, most: int) -> tuple[int, int]:
    """Return the number and the offset after it. most: longest length in bytes. Raises IndexError if it is longer."""
    value = 0
    for place in range(most):
        byte = data[at + place]
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise IndexError


def varint(value: int) -> bytes:
    """Return protobuf's variable-length integer of a non-negative value."""
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
