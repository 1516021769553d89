"""Row images -> RowData bytes, as a plan says. The innermost loop of all.

An image is a null bitmap over the columns it holds, then their values. Columns come out in table order; `updated` of an
after image is written as true and taken back when the before image holds the same text.
"""

from __future__ import annotations

import canal_ha.decode.kernel.cells as c
import canal_ha.decode.kernel.documents as documents
import canal_ha.decode.kernel.kinds as k
import canal_ha.decode.kernel.numbers as numbers
import canal_ha.decode.kernel.primitives as p
import canal_ha.decode.kernel.temporal as temporal
import canal_ha.decode.values as values
from canal_ha.decode.java_text import UTF8_ERRORS

_ROW_LENGTH = 2  # bytes reserved for a RowData's length: right from 128 to 16383 bytes
_TEXT_KEPT = 1 << 20  # bytes: memory of a longer document is given back


class RowWriter:
    """Writes the rows of one event at a time; holds nothing between events."""

    __slots__ = ("out", "partial", "partial_at", "pos", "text")

    def __init__(self) -> None:
        self.out = bytearray()
        self.pos = 0
        self.partial = False  # the image being read is an after image with JSON diffs
        self.partial_at = 0
        self.text = bytearray()  # of the value being written

    def rows(self, plan: c.TablePlan, kind: int, partial: bool, src: bytes, pos: int, stop: int, out: bytearray) -> int:
        """Append the RowDatas of a rows event; return how many.

        src[pos:stop]: the event from its column count on, without checksum. Raises Broken; `out` then holds rubbish
        behind what it held.
        """
        if pos >= stop:
            raise p.Broken("no column count")
        width = src[pos]
        pos += 1
        if width == 252:
            if pos + 2 > stop:
                raise p.Broken("no column count")
            width = p.u16(src, pos)
            pos += 2
        if width != plan.width:
            raise p.Broken(f"a row of {width} columns for a table of {plan.width}")
        size = (width + 7) >> 3
        if pos + size > stop:
            raise p.Broken("no column bitmap")
        cells = plan.before if kind in (k.DELETE, k.UPDATE) else plan.after
        if not _all_present(src, pos, width):
            cells = _present(cells, src, pos)
        pos += size
        afters = plan.after
        if kind == k.UPDATE:
            if pos + size > stop:
                raise p.Broken("no second column bitmap")
            if not _all_present(src, pos, width):
                afters = _present(afters, src, pos)
            pos += size
            if len(cells) < width:
                for cell in plan.before:
                    cell.start = k.ABSENT
        self.out = out
        count = 0
        while pos < stop:
            start = len(out) + 1
            p.put(out, b"\x62\0\0")
            self.pos = pos
            self.partial = False
            if kind == k.UPDATE:
                self._before(cells, src, stop)
                if partial:
                    self._partial(plan, src, stop)
                self._after(afters, src, stop)
            else:
                self._image(cells, src, stop)
            if self.pos == pos:
                raise p.Broken("a row without bytes")
            pos = self.pos
            p.fill_varint(out, start, _ROW_LENGTH, len(out) - start - _ROW_LENGTH)
            count += 1
        return count

    def _image(self, cells: list[c.Cell], src: bytes, stop: int) -> None:
        """The only image of an inserted or deleted row."""
        out = self.out
        nulls = self.pos
        count = len(cells)
        self.pos = nulls + ((count + 7) >> 3)
        if self.pos > stop:
            raise p.Broken("no null bitmap")
        any_null = p.has_null(src, nulls, count)
        for bit, cell in enumerate(cells):
            if any_null and src[nulls + (bit >> 3)] >> (bit & 7) & 1:
                if not cell.skip:
                    p.put(out, cell.null)
            elif cell.skip:
                mark = len(out)
                self._cell(cell, src, stop)
                p.truncate(out, mark)
            else:
                self._cell(cell, src, stop)

    def _before(self, cells: list[c.Cell], src: bytes, stop: int) -> None:
        """The before image of an update; notes where its values are."""
        out = self.out
        nulls = self.pos
        count = len(cells)
        self.pos = nulls + ((count + 7) >> 3)
        if self.pos > stop:
            raise p.Broken("no null bitmap")
        any_null = p.has_null(src, nulls, count)
        for bit, cell in enumerate(cells):
            if any_null and src[nulls + (bit >> 3)] >> (bit & 7) & 1:
                cell.start = k.NULL
                if not cell.skip:
                    p.put(out, cell.null)
            else:
                mark = len(out)
                size = self._cell(cell, src, stop)
                if cell.skip:
                    p.truncate(out, mark)
                else:
                    cell.stop = len(out) - cell.suffix_size
                    cell.start = cell.stop - size

    def _after(self, cells: list[c.Cell], src: bytes, stop: int) -> None:
        """The after image of an update: `updated` is false where both images say the same."""
        out = self.out
        nulls = self.pos
        count = len(cells)
        self.pos = nulls + ((count + 7) >> 3)
        if self.pos > stop:
            raise p.Broken("no null bitmap")
        any_null = p.has_null(src, nulls, count)
        for bit, cell in enumerate(cells):
            twin = cell.twin
            assert twin is not None
            if any_null and src[nulls + (bit >> 3)] >> (bit & 7) & 1:
                if not cell.skip:
                    p.put(out, cell.null_same if twin.start == k.NULL else cell.null)
            else:
                mark = len(out)
                size = self._cell(cell, src, stop)
                if cell.skip:
                    p.truncate(out, mark)
                elif twin.start >= 0 and twin.stop - twin.start == size:
                    start = len(out) - cell.suffix_size - size
                    if p.same_text(out, start, twin.start, size):
                        # ... updated(28 01) isNull(30 00) value(42 n ...): step back over n and five bytes
                        p.set_byte(out, start - p.varint_size(size) - 4, 0)

    def _partial(self, plan: c.TablePlan, src: bytes, stop: int) -> None:
        """What precedes the after image of a PARTIAL_UPDATE row: options, then a bit for each JSON column."""
        pos = self.pos
        if pos >= stop or src[pos] > 1:
            raise p.Broken("unknown value options")
        options = src[pos]
        pos += 1
        if options:
            self.partial = True
            self.partial_at = pos
            pos += (plan.json_columns + 7) >> 3
            if pos > stop:
                raise p.Broken("no bitmap of partial JSON values")
        self.pos = pos

    def _cell(self, cell: c.Cell, src: bytes, stop: int) -> int:
        """Write the Column of one value that is not NULL and step over it; return the length of its text."""
        out = self.out
        pos = self.pos
        kind = cell.kind
        size = cell.size
        if pos + size > stop:
            raise p.Broken("a value beyond the event")
        if kind == k.PREFIXED:
            length = p.little(src, pos, size)
            pos += size
            end = pos + length
            if end > stop:
                raise p.Broken(f"a value of {length} bytes beyond the event")
            self.pos = end
            if cell.text == k.UTF8:
                return _put_utf8(out, cell, src, pos, end)
            if cell.text == k.LATIN1:
                return _put_latin1(out, cell, src, pos, end)
            if cell.text == k.JSON and not self._is_diff(cell, src):
                return self._document(cell, src, pos, end)
            return _put_value(out, cell, self._text(cell, src, pos, end))
        self.pos = pos + size
        text = self.text
        p.truncate(text, 0)
        if kind == k.INTEGER:
            value = p.signed(src, pos, size)
            if value >= 0 or not cell.unsigned:
                return _put_number(out, cell, value)
            p.put_upper_half(text, value, size)
            return _put_wide(out, cell, text)
        if kind == k.DATETIME2:
            temporal.put_datetime2(text, src, pos, cell.decimals)
        elif kind == k.TIMESTAMP2:
            temporal.put_timestamp2(text, src, pos, cell.decimals)
        elif kind == k.DECIMAL:
            numbers.put_decimal(text, src, pos, cell.precision, cell.decimals)
        elif kind == k.DOUBLE:
            numbers.put_double(text, src, pos)
        elif kind == k.FLOAT:
            numbers.put_float(text, src, pos)
        elif kind == k.DATE:
            temporal.put_date(text, src, pos)
        elif kind == k.TIME2:
            temporal.put_time2(text, src, pos, cell.decimals)
        elif kind in (k.ENUM, k.SET):
            p.put_unsigned(text, p.little(src, pos, size))
        elif kind == k.BIT:
            p.put_unsigned(text, p.big(src, pos, size))
        elif kind == k.YEAR:
            temporal.put_year(text, src[pos])
        elif kind == k.TIMESTAMP:
            temporal.put_seconds(text, p.u32(src, pos))
        elif kind == k.DATETIME:
            temporal.put_datetime(text, src, pos)
        elif kind == k.TIME:
            temporal.put_time(text, src, pos)
        return _put_text(out, cell, text)

    def _is_diff(self, cell: c.Cell, src: bytes) -> bool:
        """Whether a JSON value is an update of the one before."""
        index = cell.json_index
        return self.partial and src[self.partial_at + (index >> 3)] >> (index & 7) & 1 != 0

    def _document(self, cell: c.Cell, src: bytes, start: int, stop: int) -> int:
        """A Column whose value is a JSON document."""
        text = self.text
        p.truncate(text, 0)
        documents.put_document(text, src, start, stop)
        if len(text) > _TEXT_KEPT:
            self.text = bytearray()
        return _put_text(self.out, cell, text)

    def _text(self, cell: c.Cell, src: bytes, start: int, stop: int) -> bytes:
        """The rarer texts, which are made in Python."""
        data = src[start:stop]
        if cell.text == k.JSON:
            return values.json_diff_text(cell.name, data)
        if cell.text == k.CHARSET:
            return values.recoded(data, cell.codec)
        return values.uncompressed(data, cell.text == k.COMPRESSED_UTF8, cell.codec)


def _all_present(src: bytes, at: int, width: int) -> bool:
    """Whether a column bitmap has all its bits set."""
    full = width >> 3
    for index in range(full):
        if src[at + index] != 255:
            return False
    rest = (1 << (width & 7)) - 1
    return rest == 0 or src[at + full] & rest == rest


def _present(cells: list[c.Cell], src: bytes, at: int) -> list[c.Cell]:
    """The cells whose bits are set in a column bitmap."""
    return [cell for cell in cells if src[at + (cell.index >> 3)] >> (cell.index & 7) & 1]


def _put_bytes(out: bytearray, cell: c.Cell, src: bytes, start: int, stop: int) -> bool:
    """Write a whole Column with the value src[start:stop]; whether that is ASCII."""
    size = stop - start
    if size >= k.HEADS:
        p.put_head(out, cell.tag, cell.fixed, size, cell.suffix_size)
        return p.put_framed_ascii(out, b"", src, start, stop, cell.suffix)
    before = cell.heads[size]
    if before is None:
        before = c.head(cell, size, False)
    return p.put_framed_ascii(out, before, src, start, stop, cell.suffix)


def _put_value(out: bytearray, cell: c.Cell, value: bytes) -> int:
    """`_put_bytes` of a value that was made in Python; return its length in bytes."""
    _put_bytes(out, cell, value, 0, len(value))
    return len(value)


def _put_text(out: bytearray, cell: c.Cell, text: bytearray) -> int:
    """`_put_value` of a text that was just made."""
    size = len(text)
    if size >= k.HEADS:
        p.put_head(out, cell.tag, cell.fixed, size, cell.suffix_size)
        p.put_around(out, b"", text, cell.suffix)
        return size
    before = cell.heads[size]
    if before is None:
        before = c.head(cell, size, False)
    p.put_around(out, before, text, cell.suffix)
    return size


def _put_wide(out: bytearray, cell: c.Cell, text: bytearray) -> int:
    """`_put_text` for an unsigned number whose top bit is set."""
    size = len(text)
    before = cell.wide_heads[size]
    if before is None:
        before = c.head(cell, size, True)
    p.put_around(out, before, text, cell.suffix)
    return size


def _put_utf8(out: bytearray, cell: c.Cell, src: bytes, start: int, stop: int) -> int:
    """A Column whose value is UTF-8 text; malformed bytes become U+FFFD, as in Java."""
    mark = len(out)
    if _put_bytes(out, cell, src, start, stop) or p.is_utf8(src, start, stop):
        return stop - start
    p.truncate(out, mark)
    return _put_value(out, cell, src[start:stop].decode("utf-8", UTF8_ERRORS).encode())


def _put_latin1(out: bytearray, cell: c.Cell, src: bytes, start: int, stop: int) -> int:
    """A Column whose bytes are one character each, as canal carries binary values."""
    size = p.latin1_size(src, start, stop)
    if size == stop - start:
        _put_bytes(out, cell, src, start, stop)
        return size
    if size >= k.HEADS:
        p.put_head(out, cell.tag, cell.fixed, size, cell.suffix_size)
    else:
        before = cell.heads[size]
        if before is None:
            before = c.head(cell, size, False)
        p.put(out, before)
    p.put_latin1(out, src, start, stop)
    p.put(out, cell.suffix)
    return size


def _put_number(out: bytearray, cell: c.Cell, value: int) -> int:
    """`_put_value` of the digits of a number."""
    size = p.digits_size(value)
    before = cell.heads[size]
    if before is None:
        before = c.head(cell, size, False)
    p.put_number(out, before, value, size, cell.suffix)
    return size
