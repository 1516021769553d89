"""Row images -> RowData bytes, as a plan says. This is the innermost loop.

An image is a null bitmap over its columns, then their values. Columns are written in table order. `updated` of an after
image is written as true and corrected if the before image holds the same text. Nearly everything here runs without the
interpreter's lock, so it touches only the bytes read and the bytearrays written, no other Python object.
"""

from __future__ import annotations

from collections.abc import Sequence

import canal_ha.decode.kernel.cells as c
import canal_ha.decode.kernel.documents as documents
import canal_ha.decode.kernel.kinds as k
import canal_ha.decode.kernel.numbers as numbers
import canal_ha.decode.kernel.primitives as p
import canal_ha.decode.kernel.protection as protection
import canal_ha.decode.kernel.temporal as temporal
import canal_ha.decode.kernel.views as views
import canal_ha.decode.values as values
from canal_ha.decode.java_text import UTF8_ERRORS

p.prepare()

_TEXT_KEPT = 1 << 20  # bytes: memory of a longer document is freed


class RowWriter:
    """Writes the rows of one event at a time; keeps nothing between events."""

    __slots__ = (
        "after_cells",
        "before_cells",
        "clear",
        "length_size",
        "partial",
        "partial_at",
        "pos",
        "stop",
        "text",
        "whole",
    )

    def __init__(self) -> None:
        self.pos = 0
        self.stop = 0  # where the event ends
        self.partial = False  # whether the image being read is an after image with JSON diffs
        self.partial_at = 0
        self.whole = True  # whether the new images of the last event have all columns
        self.length_size = 2  # bytes reserved for a RowData's length: as many as the last one needed
        self.text = bytearray()  # of the value being written
        self.clear = bytearray()  # the Column of a protected value, which goes nowhere else
        self.before_cells = bytearray()  # memory for the cells of images that lack columns
        self.after_cells = bytearray()

    def rows(self, plan: c.TablePlan, kind: int, partial: bool, src: bytes, pos: int, stop: int, out: bytearray) -> int:
        """Append the RowDatas of a rows event; return how many.

        plan: its view.
        kind, partial: of the event.
        src[pos:stop]: the event from its column count on, without checksum.
        out: the output. When Broken is raised, it ends with invalid bytes.
        """
        self.stop = stop
        if pos >= stop:
            p.broken("no column count")
        width = p.u8(src, pos)
        pos += 1
        if width == 252:
            if pos + 2 > stop:
                p.broken("no column count")
            width = p.u16(src, pos)
            pos += 2
        if width != plan.width:
            p.broken("a row of %d columns for a table of another width", width)
        size = (width + 7) >> 3
        if pos + size > stop:
            p.broken("no column bitmap")
        cells = plan.before if kind in (k.DELETE, k.UPDATE) else plan.after
        count = p.ones(src, pos, width)
        if count < width:
            cells = views.present(cells, src, pos, width, self.before_cells)
        pos += size
        afters = plan.after
        after_count = width
        if kind == k.UPDATE:
            if pos + size > stop:
                p.broken("no second column bitmap")
            after_count = p.ones(src, pos, width)
            if after_count < width:
                afters = views.present(afters, src, pos, width, self.after_cells)
            pos += size
            if count < width:
                for index in range(width):
                    cell = plan.before[index]
                    cell.start = k.ABSENT
        self.whole = after_count == width if kind == k.UPDATE else count == width or kind == k.DELETE
        rows = 0
        while pos < stop:
            p.put_byte(out, 0x62)
            start = p.size(out)
            p.reserve(out, self.length_size)
            self.pos = pos
            self.partial = False
            if kind == k.UPDATE:
                self._before(cells, count, src, stop, out)
                if partial:
                    self._partial(plan, src, stop)
                self._after(afters, after_count, src, stop, out)
            else:
                self._image(cells, count, src, stop, out)
            if self.pos == pos:
                p.broken("a row without bytes")
            pos = self.pos
            size = p.size(out) - start - self.length_size
            p.fill_varint(out, start, self.length_size, size)
            self.length_size = p.varint_size(size)
            rows += 1
        return rows

    def _nulls(self, count: int, src: bytes, stop: int) -> bool:
        """Skip the null bitmap of `count` columns; return whether one of them is NULL."""
        nulls = self.pos
        self.pos = nulls + ((count + 7) >> 3)
        if self.pos > stop:
            p.broken("no null bitmap")
        return p.has_null(src, nulls, count)

    def _image(self, cells: Sequence[c.Cell], count: int, src: bytes, stop: int, out: bytearray) -> None:
        """Write the only image of an inserted or deleted row."""
        nulls = self.pos
        any_null = self._nulls(count, src, stop)
        for bit in range(count):
            cell = cells[bit]
            if any_null and p.is_set(src, nulls, bit):
                if not cell.skip:
                    p.put_piece(out, cell.null)
            elif cell.skip:
                mark = p.size(out)
                self.put_cell(cell, src, stop, out)
                p.truncate(out, mark)
            else:
                self.put_cell(cell, src, stop, out)

    def _before(self, cells: Sequence[c.Cell], count: int, src: bytes, stop: int, out: bytearray) -> None:
        """Write the before image of an update, and record where its values are."""
        nulls = self.pos
        any_null = self._nulls(count, src, stop)
        for bit in range(count):
            cell = cells[bit]
            if any_null and p.is_set(src, nulls, bit):
                cell.start = k.NULL
                if not cell.skip:
                    p.put_piece(out, cell.null)
            else:
                cell.column_start = p.size(out)
                cell.source_start = self.pos
                size = self.put_cell(cell, src, stop, out)
                cell.source_size = self.pos - cell.source_start
                if cell.skip:
                    p.truncate(out, cell.column_start)
                    cell.column_stop = cell.column_start
                else:
                    cell.column_stop = p.size(out)
                cell.stop = cell.column_stop - cell.suffix_size
                cell.start = cell.stop - size

    def _after(self, cells: Sequence[c.Cell], count: int, src: bytes, stop: int, out: bytearray) -> None:
        """Write the after image of an update; `updated` is false where both images have the same text."""
        nulls = self.pos
        any_null = self._nulls(count, src, stop)
        for bit in range(count):
            cell = cells[bit]
            twin = cell.twin
            if any_null and p.is_set(src, nulls, bit):
                if not cell.skip:
                    p.put_piece(out, cell.null_same if twin.start == k.NULL else cell.null)
            elif self._repeats(cell, twin, src, stop):
                self.pos += twin.source_size
                if not cell.skip:
                    p.repeat_column(out, cell.tag, twin.column_start, twin.column_stop)
            else:
                mark = p.size(out)
                size = self.put_cell(cell, src, stop, out)
                if cell.skip:
                    p.truncate(out, mark)
                elif twin.start >= 0 and twin.stop - twin.start == size:
                    start = p.size(out) - cell.suffix_size - size
                    if p.same_text(out, start, twin.start, size):
                        # ... updated(28 01) isNull(30 00) value(42 n ...): step back over n and five bytes
                        p.set_byte(out, start - p.varint_size(size) - 4, 0)

    def _repeats(self, cell: c.Cell, twin: c.Cell, src: bytes, stop: int) -> bool:
        """Return whether the next value has the bytes of the before image's, and so the same text."""
        return (
            twin.start >= 0
            and self.pos + twin.source_size <= stop
            and p.same_source(src, self.pos, twin.source_start, twin.source_size)
            and not (self.partial and (cell.text == k.JSON or cell.text == k.EXACT_JSON))
        )

    def _partial(self, plan: c.TablePlan, src: bytes, stop: int) -> None:
        """Read what precedes the after image of a PARTIAL_UPDATE row: options, then a bit for each JSON column."""
        pos = self.pos
        if pos >= stop or p.u8(src, pos) > 1:
            p.broken("unknown value options")
        options = p.u8(src, pos)
        pos += 1
        if options:
            self.partial = True
            self.partial_at = pos
            pos += (plan.json_columns + 7) >> 3
            if pos > stop:
                p.broken("no bitmap of partial JSON values")
        self.pos = pos

    def put_cell(self, cell: c.Cell, src: bytes, stop: int, out: bytearray) -> int:
        """Write the Column of one value that is not NULL and skip the value; return the length of its text."""
        pos = self.pos
        kind = cell.kind
        size = cell.size
        if pos + size > stop:
            p.broken("a value beyond the event")
        if kind == k.PREFIXED:
            length = p.little(src, pos, size)
            pos += size
            end = pos + length
            if end > stop:
                p.broken("a value of %d bytes beyond the event", length)
            self.pos = end
            if cell.text == k.UTF8:
                mark = p.size(out)
                if p.put_column(out, cell.tag, cell.fixed, src, pos, end, cell.suffix) or p.is_utf8(src, pos, end):
                    return length
                p.truncate(out, mark)
                return self._put_repaired(cell, src, pos, end, out)
            if cell.text == k.LATIN1:
                return p.put_latin1_column(out, cell.tag, cell.fixed, src, pos, end, cell.suffix)
            if (cell.text == k.JSON or cell.text == k.EXACT_JSON) and not self._is_diff(cell, src):
                return self._put_document(cell, src, pos, end, out)
            return self._put_rare(cell, src, pos, end, out)
        self.pos = pos + size
        if kind == k.INTEGER:
            value = p.signed(src, pos, size)
            if value >= 0 or not cell.unsigned:
                return p.put_number_column(out, cell.tag, cell.fixed, value, cell.suffix)
            p.truncate(self.text, 0)
            p.put_upper_half(self.text, value, size)
            return p.put_text_column(out, cell.tag, cell.wide_fixed, self.text, cell.suffix)
        p.truncate(self.text, 0)
        self._put_fixed(cell, src, pos, self.text)
        return p.put_text_column(out, cell.tag, cell.fixed, self.text, cell.suffix)

    def _put_fixed(self, cell: c.Cell, src: bytes, pos: int, text: bytearray) -> None:
        """Append the text of a value of known size, all of whose bytes exist."""
        kind = cell.kind
        size = cell.size
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
            temporal.put_year(text, p.u8(src, pos))
        elif kind == k.TIMESTAMP:
            temporal.put_seconds(text, p.u32(src, pos))
        elif kind == k.DATETIME:
            temporal.put_datetime(text, src, pos)
        elif kind == k.TIME:
            temporal.put_time(text, src, pos)
        elif kind == k.UTC_TIMESTAMP2:
            temporal.put_timestamp2(text, src, pos, cell.decimals, True)
        elif kind == k.UTC_TIMESTAMP:
            temporal.put_seconds(text, p.u32(src, pos), True)
        elif kind != k.NOTHING:
            p.broken("no writer for a column of kind %d", kind)

    def _is_diff(self, cell: c.Cell, src: bytes) -> bool:
        """Return whether a JSON value is an update of the one before."""
        return self.partial and p.is_set(src, self.partial_at, cell.json_index)

    def _put_document(self, cell: c.Cell, src: bytes, start: int, stop: int, out: bytearray) -> int:
        """Write a Column whose value is a JSON document."""
        p.truncate(self.text, 0)
        documents.put_document(self.text, src, start, stop, cell.text == k.EXACT_JSON)
        size = p.put_text_column(out, cell.tag, cell.fixed, self.text, cell.suffix)
        if size > _TEXT_KEPT:
            self._forget_text()
        return size

    def _forget_text(self) -> None:
        self.text = bytearray()

    def _put_repaired(self, view: c.Cell, src: bytes, start: int, stop: int, out: bytearray) -> int:
        """Write a Column of UTF-8 text whose malformed bytes become U+FFFD, as in Java."""
        text = bytearray(src[start:stop].decode("utf-8", UTF8_ERRORS).encode())
        return p.put_text_column(out, view.tag, view.fixed, text, view.suffix)

    def _put_rare(self, view: c.Cell, src: bytes, start: int, stop: int, out: bytearray) -> int:
        """Write a Column with one of the rarer texts, which Python makes."""
        data = src[start:stop]
        cell = views.cell(view)
        if cell.clear is not None:
            self.pos = start
            text = protection.protected(self, cell, src)
        elif cell.text == k.JSON:
            text = values.json_diff_text(cell.name, data)
        elif cell.text == k.EXACT_JSON:
            text = values.updated_document(cell.name, self._before_bytes(view, src), data)
        elif cell.text == k.CHARSET:
            text = values.recoded(data, cell.codec)
        else:
            text = values.uncompressed(data, cell.text == k.COMPRESSED_UTF8, cell.codec)
        return p.put_text_column(out, view.tag, view.fixed, bytearray(text), view.suffix)

    def _before_bytes(self, view: c.Cell, src: bytes) -> bytes:
        """Return the stored document of the before image; b"" if the image lacks it."""
        twin = view.twin
        return src[twin.source_start + view.size : twin.source_start + twin.source_size] if twin.start >= 0 else b""
