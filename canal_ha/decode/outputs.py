"""The outputs of a Decoder besides segments, in the order of the stream."""

from __future__ import annotations

from canal_ha.model.immutable import immutable
from canal_ha.model.segment import Segment


@immutable
class Rotated:
    """The journal changed, by a real or an artificial (timestamp 0) event. position: where the next event starts."""

    journal: str
    position: int


@immutable
class SourceFormat:
    """A format description event: a journal or a dump began. Table ids restart with it."""

    server_version: str
    checksum: bool


@immutable
class SourceHeartbeat:
    """The source is alive and at this position. On the wire, heartbeats have timestamp 0."""

    journal: str
    position: int


@immutable
class SourceSaid:
    """The dump ended, by an ERR packet (errno, text) or by EOF (errno 0)."""

    errno: int
    text: str


@immutable
class RawPacket:
    """A packet for mysql-replication: payload without the 4-byte packet header, first byte 0x00 kept."""

    payload: bytes


@immutable
class Passed:
    """Everything before this position is decoded: the end of a transaction or of an event outside one."""

    journal: str
    position: int
    timestamp_ms: int


@immutable
class MayBlock:
    """What the decoder does before the next output may take long, or ask the source. See Decoder.announces."""


Output = Segment | Rotated | SourceFormat | SourceHeartbeat | SourceSaid | RawPacket | Passed | MayBlock
