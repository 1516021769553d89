"""MESSAGES packets: a short head in front of wire-ready frames, and back (docs/protocol.md#messages).

No entry is parsed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from canal_ha.errors import RemoteProtocolError
from canal_ha.model.batch import GetAnswer
from canal_ha.wire.framing import frame, header
from canal_ha.wire.proto.canal_protocol_pb2 import Messages

# version=1, type=7, body{batch_id=-1}: canal builds the empty one with a builder, the others by hand, without version
EMPTY = frame(bytes.fromhex("100118072a0b08ffffffffffffffffff01"))
_TYPE_AND_BODY = b"\x18\x07\x2a"
_BATCH_ID = b"\x08"
_LENGTH_BYTES = 5  # of the longest length
_NUMBER_BYTES = 10

OnlyFrames = Callable[[bytes, int], bool]
"""Whether all bytes from a place on are whole fields 2 of Messages"""


@dataclass(frozen=True, slots=True)
class Fetched:
    """The answer to a GET as a client sees it. data[start:]: the frames."""

    batch_id: int
    data: bytes
    start: int = 0

    @property
    def frames(self) -> memoryview:
        """Entries as Messages carries them (tag, length, entry, ...), not copied."""
        return memoryview(self.data)[self.start :]

    def entries(self) -> tuple[bytes, ...]:
        """Every serialized Entry, in order, copied."""
        return tuple(Messages.FromString(bytes(self.frames)).messages)


def encode(message: GetAnswer) -> tuple[bytes | memoryview, ...]:
    """The whole frame in pieces: head, then the batch's views, not copied."""
    if message.batch is None:
        return (EMPTY,)
    batch_id = _BATCH_ID + varint(message.batch_id)
    body_length = len(batch_id) + message.batch.size_bytes
    head = _TYPE_AND_BODY + varint(body_length) + batch_id
    length = len(head) + message.batch.size_bytes
    return (header(length) + head, *message.batch.views)


def decode(body: bytes) -> Fetched:
    """Read the body of a MESSAGES packet, whatever the order of its fields. Raises RemoteProtocolError."""
    try:
        messages = Messages.FromString(body)
    except DecodeError as error:
        raise RemoteProtocolError(f"a MESSAGES body that cannot be read: {error}") from error
    messages.DiscardUnknownFields()
    batch_id = messages.batch_id
    head = _BATCH_ID + varint(batch_id % 2**64) if batch_id else b""
    # nothing unknown, nothing twice, the id first: it would be written the same way again
    as_written = messages.ByteSize() == len(body) and body.startswith(head)
    whole = body if as_written else messages.SerializeToString()
    return Fetched(batch_id, whole, len(head))


def in_place(packet: bytes, only_frames: OnlyFrames) -> Fetched | None:
    """A whole MESSAGES packet as `decode` reads its body, but nothing is copied.

    None for one that is not written as by a canal server: type, body; in the body the id, then frames.
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


def _read_varint(data: bytes, at: int, most: int) -> tuple[int, int]:
    """The number, and what is behind it. most: bytes. Raises IndexError for one that is longer or does not end."""
    value = 0
    for place in range(most):
        byte = data[at + place]
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise IndexError


def varint(value: int) -> bytes:
    """Protobuf's variable-length integer. value: not negative."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
