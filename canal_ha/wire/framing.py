"""Frames: a 4-byte big-endian signed length, then so many bytes of one serialized Packet (specification 2.1)."""

from __future__ import annotations

import struct

from canal_ha.errors import RemoteProtocolError

HEADER_BYTES = 4
_LENGTH = struct.Struct(">i")


def frame(packet: bytes) -> bytes:
    """The packet behind its length."""
    return _LENGTH.pack(len(packet)) + packet


def header(length: int) -> bytes:
    """The length alone, for a packet that is sent in pieces."""
    return _LENGTH.pack(length)


class FrameReader:
    """Cuts a byte stream into frames. A length is judged as soon as its four bytes are there, before any of the body.

    max_frame_bytes may be changed between frames.
    """

    def __init__(self, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._buffer = bytearray()

    def __len__(self) -> int:
        """Bytes received and not handed out yet."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Append what the peer sent."""
        self._buffer += data

    def next(self) -> bytes | None:
        """The next whole packet, or None. Raises RemoteProtocolError for a length that is negative or too large."""
        if len(self._buffer) < HEADER_BYTES:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if not 0 <= length <= self.max_frame_bytes:
            raise RemoteProtocolError(f"a frame of {length} bytes: at most {self.max_frame_bytes} are allowed here")
        end = HEADER_BYTES + length
        if len(self._buffer) < end:
            return None
        with memoryview(self._buffer) as view:
            packet = bytes(view[HEADER_BYTES:end])
        del self._buffer[:end]
        return packet
