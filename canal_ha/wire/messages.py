"""MESSAGES packets: a short head in front of wire-ready frames, and back (specification 2.6). No entry is parsed."""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.message import DecodeError

from canal_ha.errors import RemoteProtocolError
from canal_ha.model.batch import Message
from canal_ha.wire.framing import frame, header
from canal_ha.wire.proto.canal_protocol_pb2 import Messages

# version=1, type=7, body{batch_id=-1}: canal builds the empty one with a builder, the others by hand, without version
EMPTY = frame(bytes.fromhex("100118072a0b08ffffffffffffffffff01"))
_TYPE_AND_BODY = b"\x18\x07\x2a"
_BATCH_ID = b"\x08"


@dataclass(frozen=True, slots=True)
class Fetched:
    """The answer to a GET as a client sees it. frames: entries as Messages carries them (tag, length, entry, ...)."""

    batch_id: int
    frames: memoryview

    def entries(self) -> tuple[bytes, ...]:
        """Every serialized Entry, in order, copied."""
        return tuple(Messages.FromString(bytes(self.frames)).messages)


def encode(message: Message) -> tuple[bytes | memoryview, ...]:
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
    return Fetched(batch_id, memoryview(whole)[len(head) :])


def varint(value: int) -> bytes:
    """Protobuf's variable-length integer. value: not negative."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
