"""A column in Arrow's memory layout, filled from texts value by value (arrow.apache.org, "Columnar Format").

    validity  one bit for each value, least significant first; empty until the first NULL
    offsets   of TEXT and BINARY: 32 bits for each value and one more, ends of the values in `data`
    data      the values

Taking the buffers ends the column: append nothing to it afterwards.
"""

from __future__ import annotations

import canal_ha.decode.kernel.buffers as b
import canal_ha.decode.kernel.codes as k
import canal_ha.decode.kernel.primitives as p
import canal_ha.decode.kernel.texts as t

_LARGEST_OFFSET = (1 << 31) - 1


class Target:
    """One column.

    format: see codes.
    width: bytes of an INTEGER; BINARY is padded with zeros to this length.
    precision, scale: of a DECIMAL.
    refused: the first text that is no value of this format; `put` returned False for it.
    """

    __slots__ = (
        "count", "data", "format", "nulls", "offsets", "precision", "refused", "room", "rows", "scale", "size",
        "validity", "width",
    )  # fmt: skip

    def __init__(self, format: int, width: int = 0, precision: int = 0, scale: int = 0) -> None:
        self.format = format
        self.width = width
        self.precision = precision
        self.scale = scale
        self.size = _slot(format, width)  # of a value in `data`; 0 if sizes differ
        self.count = 0
        self.nulls = 0
        self.validity = bytearray()
        self.offsets = bytearray(4 if self.size == 0 else 0)
        self.data = bytearray()
        self.refused: bytes | None = None
        self.rows = 0  # expected rows; `room`: their expected bytes in `data`
        self.room = 0

    def leave(self) -> None:
        """Release the memory; as much is expected next time."""
        if self.count:
            self.rows = self.count
            self.room = len(self.data)
        self.count = 0
        self.validity = self.offsets = self.data = bytearray()

    def expect(self, other: Target) -> None:
        """Expect as many values and bytes as another column has, or expects."""
        self.rows = other.count if other.count else other.rows
        self.room = len(other.data) if other.count else other.room

    def renewed(self, spares: b.Spares) -> Target:
        """Release the memory and return an empty column of the same format with memory for the expected values."""
        self.leave()
        again = Target(self.format, self.width, self.precision, self.scale)
        again.rows = self.rows
        again.room = self.room
        again.data = spares.take(self.room)
        if self.size == 0:
            again.offsets = spares.take(4 * self.rows + 4)
            t.put_zeros(again.offsets, 4)
        return again

    def put(self, src: bytes, start: int, stop: int) -> bool:
        """Append the value whose text is src[start:stop]; a `start` of codes.NULL appends NULL.

        Return False and set `refused` if the text is no value of this format. Raises Broken if it is not UTF-8.
        """
        if start == k.NULL:
            self.put_null()
            return True
        format = self.format
        data = self.data
        done = 1
        if format == k.TEXT:
            if not p.is_utf8(src, start, stop):
                raise p.Broken("a value that is no UTF-8")
            p.put_slice(data, src, start, stop)
            _put_end(self.offsets, len(data))
        elif format == k.INTEGER:
            done = t.put_integer(data, src, start, stop, self.width)
        elif format == k.INSTANT:
            done = t.put_instant(data, src, start, stop)
        elif format == k.DECIMAL:
            done = t.put_decimal(data, src, start, stop, self.precision, self.scale)
        elif format == k.DOUBLE:
            done = t.put_double(data, src, start, stop)
        elif format == k.DAY:
            done = t.put_day(data, src, start, stop)
        elif format == k.BINARY:
            before = len(data)
            done = t.put_narrow(data, src, start, stop)
            if done:
                if len(data) - before < self.width:
                    t.put_zeros(data, self.width - len(data) + before)
                _put_end(self.offsets, len(data))
        elif format == k.SINGLE:
            done = t.put_single(data, src, start, stop)
        else:
            t.put_i8(data, 0 if stop - start == 1 and src[start] == 48 else 1)
        if done == 1:
            if self.nulls:
                t.mark(self.validity, self.count, True)
            self.count += 1
            return True
        if done == t.NOTHING:
            self.put_null()
            return True
        self.refused = src[start:stop]
        return False

    def put_null(self) -> None:
        """Append NULL."""
        if self.nulls == 0:
            _all_valid(self.validity, self.count)
        self.nulls += 1
        t.mark(self.validity, self.count, False)
        self.count += 1
        if self.size:
            t.put_zeros(self.data, self.size)
        else:
            _put_end(self.offsets, len(self.data))


class Groups:
    """Lists in Arrow's layout: which stretch of other columns belongs to each row. Like Target, without data."""

    __slots__ = ("count", "nulls", "offsets", "validity")

    def __init__(self) -> None:
        self.count = 0
        self.nulls = 0
        self.validity = bytearray()
        self.offsets = bytearray(4)

    def put(self, end: int) -> None:
        """Append a row whose stretch ends at `end`."""
        if self.nulls:
            t.mark(self.validity, self.count, True)
        self.count += 1
        _put_end(self.offsets, end)

    def put_null(self, end: int) -> None:
        """Append a row without a stretch; the previous one ended at `end`."""
        if self.nulls == 0:
            _all_valid(self.validity, self.count)
        self.nulls += 1
        t.mark(self.validity, self.count, False)
        self.count += 1
        _put_end(self.offsets, end)


def spread(data: bytearray, width: int, places: bytearray, spares: b.Spares) -> bytearray:
    """Return the values of 4 or 8 bytes in `data` at each place. places: 32 bits each. Raises IndexError."""
    out = spares.take(width * len(places) >> 2)
    t.put_places(out, data, width, places)
    return out


def spread_texts(texts: Target, width: int, places: bytearray, spares: b.Spares) -> Target:
    """Return the text at each place; none of them is NULL. width: bytes of a place. Raises IndexError, Broken."""
    out = Target(k.TEXT)
    size = t.places_size(texts.offsets, places, width)
    if size > _LARGEST_OFFSET:
        raise p.Broken("more than 2 GiB in one column")
    out.count = len(places) // width
    out.data = spares.take(size)
    out.offsets = spares.take(4 * out.count + 4)
    t.put_zeros(out.offsets, 4)
    t.put_text_places(out.data, out.offsets, texts.data, texts.offsets, places, width, size)
    return out


def _slot(format: int, width: int) -> int:
    """Return the bytes of a value in `data`."""
    if format in (k.TEXT, k.BINARY):
        return 0
    if format == k.INTEGER:
        return width
    if format == k.DECIMAL:
        return 16
    if format == k.BOOLEAN:
        return 1
    return 8 if format in (k.DOUBLE, k.INSTANT) else 4


def _put_end(offsets: bytearray, end: int) -> None:
    if end > _LARGEST_OFFSET:
        raise p.Broken("more than 2 GiB in one column")
    t.put_i32(offsets, end)


def _all_valid(bitmap: bytearray, count: int) -> None:
    """Set the bits of the values before the first NULL."""
    bitmap += b"\xff" * (count >> 3)
    if count & 7:
        bitmap.append((1 << (count & 7)) - 1)
