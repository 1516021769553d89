"""Frames: a 4-byte big-endian signed length, then one serialized Packet of that length (docs/protocol.md#framing)."""

from __future__ import annotations

import struct

from canal_ha.errors import RemoteProtocolError

HEADER_BYTES = 4
JOINED_BYTES = 4096  # smaller pieces are joined, because each piece takes memory besides its bytes
_LENGTH = struct.Struct(">i")


def frame(packet: bytes) -> bytes:
    """Return the packet with its length in front."""
    return _LENGTH.pack(len(packet)) + packet


def header(length: int) -> bytes:
    """Return only the length, for a packet that is sent in pieces."""
    return _LENGTH.pack(length)


def is_whole(data: bytes) -> bool:
    """Return whether these bytes are one frame, with its length."""
    return len(data) >= HEADER_BYTES and int.from_bytes(data[:HEADER_BYTES], "big") == len(data) - HEADER_BYTES


class FrameReader:
    """Cuts a byte stream into frames. A length is checked as soon as its four bytes are here.

    max_frame_bytes: largest frame; may be changed between frames.
    A caller that feeds at most `missing` bytes has each large frame copied at most once.
    """

    def __init__(self, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._pieces: list[bytes] = []
        self._at = 0  # offset of the next byte in the first piece
        self._size = 0  # bytes from there on
        self._length: int | None = None  # length of the frame that begins there

    def __len__(self) -> int:
        """Return the number of bytes received and not yet returned."""
        return self._size + (0 if self._length is None else HEADER_BYTES)

    @property
    def missing(self) -> int:
        """Bytes to the end of the current length or frame; at least one after `next` returned None."""
        return (HEADER_BYTES if self._length is None else self._length) - self._size

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes from the peer."""
        if not self._size:  # one piece may be left that is read completely
            self._pieces = [bytes(data)]
            self._at = 0
            self._size = len(data)
        elif data:
            if len(self._pieces[-1]) + len(data) <= JOINED_BYTES:
                self._pieces[-1] += bytes(data)
            else:
                self._pieces.append(bytes(data))
            self._size += len(data)

    def clear(self) -> None:
        """Forget all bytes that are not returned yet."""
        self._pieces.clear()
        self._at = self._size = 0
        self._length = None

    def next(self) -> bytes | None:
        """Return the next complete packet, or None. Raises RemoteProtocolError for a negative or too large length."""
        if self._length is None:
            if self._size < HEADER_BYTES:
                return None
            first, start = self._pieces[0], self._at + HEADER_BYTES
            if len(first) > start:  # nearly all frames are whole, in one piece
                (size,) = _LENGTH.unpack_from(first, self._at)
                end = start + size
                if 0 < size <= self.max_frame_bytes and end <= len(first):
                    self._size -= HEADER_BYTES + size
                    if end < len(first):
                        self._at = end
                    else:
                        del self._pieces[0]
                        self._at = 0
                    return first[start:end]
            if len(self._pieces[0]) - self._at < HEADER_BYTES:
                self._join()
            (self._length,) = _LENGTH.unpack_from(self._pieces[0], self._at)
            self._at += HEADER_BYTES
            self._size -= HEADER_BYTES
        length: int = self._length
        if not 0 <= length <= self.max_frame_bytes:
            raise RemoteProtocolError(f"a frame of {length} bytes exceeds the limit of {self.max_frame_bytes} bytes")
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
        """Join all pieces into one that begins at the next byte."""
        self._pieces[0] = self._pieces[0][self._at :]
        self._pieces = [b"".join(self._pieces)]
        self._at = 0
