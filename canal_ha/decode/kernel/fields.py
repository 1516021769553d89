"""Reads protobuf's wire format in place: numbers, tags, lengths, and fields to skip.

Rejects what protobuf's own parser rejects: numbers without an end, lengths beyond their message, field number 0,
unclosed groups. Source: protobuf.dev, "Encoding"; limits as in upb, which Python's protobuf uses.
"""

from __future__ import annotations

import canal_ha.decode.kernel.primitives as p
import canal_ha.decode.kernel.texts as t

_NUMBER_BYTES = 10  # of the longest number
_TAG_BYTES = 5  # of the longest tag or length
_ALL = (1 << 64) - 1
_LARGEST_TAG = (1 << 32) - 1
_LARGEST_SIZE = (1 << 31) - 1
_DEPTH = 96  # of nested groups


class Cursor:
    """A position in `src`. Every method takes the end of its message and leaves `pos` behind what it read.

    All methods raise Broken.
    """

    __slots__ = ("pos", "src")

    def __init__(self) -> None:
        self.src = b""
        self.pos = 0

    def varint(self, stop: int) -> int:
        """Read an unsigned number of 64 bits; further bits are dropped."""
        src = self.src
        pos = self.pos
        limit = min(stop, pos + _NUMBER_BYTES)
        value = 0
        shift = 0
        while pos < limit:
            byte = src[pos]
            pos += 1
            value |= (byte & 127) << shift
            if byte < 128:
                self.pos = pos
                return value & _ALL
            shift += 7
        raise p.Broken("a number that does not end")

    def int64(self, stop: int) -> int:
        """Read a signed number."""
        return t.int64(self.varint(stop))

    def int32(self, stop: int) -> int:
        """Read a signed number; only its lower 32 bits count."""
        return t.int32(self.varint(stop))

    def _short(self, stop: int) -> int:
        """Read a number of at most five bytes."""
        pos = self.pos
        value = self.varint(stop)
        if self.pos - pos > _TAG_BYTES:
            raise p.Broken("a tag or a length of too many bytes")
        return value

    def tag(self, stop: int) -> int:
        """Read a field number and wire type."""
        pos = self.pos
        if pos < stop and self.src[pos] < 128:
            self.pos = pos + 1
            value = self.src[pos]
        else:
            value = self._short(stop)
        if value < 8 or value > _LARGEST_TAG:
            raise p.Broken("a field with a number that cannot be")
        return value

    def end(self, stop: int) -> int:
        """Read a length; return where the content of this length ends."""
        src = self.src
        pos = self.pos
        if pos < stop and src[pos] < 128:
            self.pos = pos + 1
            size = src[pos]
        elif pos + 1 < stop and src[pos + 1] < 128:
            self.pos = pos + 2
            size = src[pos] & 127 | src[pos + 1] << 7
        else:
            size = self._short(stop)
        left = stop - self.pos
        if size > _LARGEST_SIZE or size > left:
            raise p.Broken(f"{size} bytes announced, {left} are there")
        return self.pos + size

    def skip(self, tag: int, stop: int) -> None:
        """Skip a field whose tag was just read."""
        self._skip(tag, stop, _DEPTH)

    def check(self, stop: int) -> None:
        """Skip a message none of whose fields is needed."""
        src = self.src
        while self.pos < stop:
            tag = self.tag(stop)
            start = -1
            if tag & 7 == 2:
                start, end = p.stretch(src, self.pos, stop)
            if start < 0:
                self._skip(tag, stop, _DEPTH)
            else:
                self.pos = end

    def _skip(self, tag: int, stop: int, depth: int) -> None:
        kind = tag & 7
        if kind == 0:
            self.varint(stop)
        elif kind == 2:
            self.pos = self.end(stop)
        elif kind == 1 or kind == 5:
            size = 8 if kind == 1 else 4
            if size > stop - self.pos:
                raise p.Broken("a number beyond its message")
            self.pos += size
        elif kind == 3:
            if depth == 0:
                raise p.Broken("groups within groups")
            while True:
                inner = self._short(stop)  # protobuf does not check field numbers in unknown fields
                if inner > _LARGEST_TAG:
                    raise p.Broken("a field with a number that cannot be")
                if inner & 7 == 4:
                    break
                self._skip(inner, stop, depth - 1)
            if inner != tag + 1:
                raise p.Broken("a group that another one closes")
        else:
            raise p.Broken(f"a field of wire type {kind}")
