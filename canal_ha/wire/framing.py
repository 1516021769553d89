"""Frames: a 4-byte big-endian signed length, then so many bytes of one serialized Packet (docs/protocol.md#framing)."""

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

    max_frame_bytes may be changed between frames. Who feeds no more than is `missing` has large frames copied at most
    once.
    """

    def __init__(self, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._pieces: list[bytes] = []
        self._at = 0  # what comes next in the first piece
        self._size = 0  # from there on
        self._length: int | None = None  # of the frame that begins there

    def __len__(self) -> int:
        """Bytes received and not handed out yet."""
        return self._size + (0 if self._length is None else HEADER_BYTES)

    @property
    def missing(self) -> int:
        """Bytes up to the end of the length or of the frame that has begun; at least one after `next` said None."""
        return (HEADER_BYTES if self._length is None else self._length) - self._size

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Append what the peer sent."""
        if data:
            if not self._size:
                self._pieces.clear()  # one may be left whose bytes are all handed out
                self._at = 0
            self._pieces.append(bytes(data))
            self._size += len(data)

    def next(self) -> bytes | None:
        """The next whole packet, or None. Raises RemoteProtocolError for a length that is negative or too large."""
        if self._length is None:
            if self._size < HEADER_BYTES:
                return None
            if len(self._pieces[0]) - self._at < HEADER_BYTES:
                self._join()
            (self._length,) = _LENGTH.unpack_from(self._pieces[0], self._at)
            self._at += HEADER_BYTES
            self._size -= HEADER_BYTES
        length: int = self._length
        if not 0 <= length <= self.max_frame_bytes:
            raise RemoteProtocolError(f"a frame of {length} bytes: at most {self.max_frame_bytes} are allowed here")
        if self._size < length:
            return None
        self._length = None
        if not length:
            return b""
        if len(self._pieces[0]) - self._at < length:
            self._join()
        first = self._pieces[0]
        end = self._at + length
        taken = first[self._at : end]
        self._at = end
        if end == len(first):
            del self._pieces[0]
            self._at = 0
        self._size -= length
        return taken

    def _join(self) -> None:
        """Make one piece of all, which begins with what comes next."""
        self._pieces[0] = self._pieces[0][self._at :]
        self._pieces = [b"".join(self._pieces)]
        self._at = 0
