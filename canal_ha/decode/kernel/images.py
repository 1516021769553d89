"""Rows of a result set -> WRITE_ROWS events, whose row images are what the server writes to its binlog for these rows.

A row comes as in the text protocol: in one packet, or in several from 16 MiB on, a text for each column that its length
precedes. What the texts must look like is said in `source/snapshot/table.py`, which makes the statement that asks for
them. Nearly everything here runs without the interpreter's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import canal_ha.decode.kernel.kinds as k
import canal_ha.decode.kernel.primitives as p
import canal_ha.decode.kernel.temporal as temporal
import canal_ha.decode.kernel.texts as t

try:
    import cython
except ImportError:  # only a compiled build needs it; an interpreted one releases no lock
    import canal_ha.decode.kernel.no_cython as cython

p.prepare()

_DOCUMENT = k.NOTHING + 1
DOCUMENT = _DOCUMENT  # besides the kinds of row events: the text of a MySQL JSON column
_FULL_PACKET = 0xFFFFFF
_NULL = 0xFB
_LENGTH_AT = 9  # of an event, in its header
_MINUS, _POINT, _ZERO, _COLON, _DASH, _SPACE = 0x2D, 0x2E, 0x30, 0x3A, 0x2D, 0x20
_ERROR_FIRST, _END_FIRST = 0xFF, 0xFE  # the first byte of the packet that ends a result
_END_BYTES_MOST = 9  # a longer packet with the same first byte is a row with a huge first value
_EPOCH = 719468  # days from March of the year 0 to 1970
_TIMESTAMP_MAX = 0xFFFFFFFF


_MORE, _END, _ERROR = 0, 1, 2
MORE, END, ERROR = _MORE, _END, _ERROR


def empty(out: bytearray) -> None:
    """Drop the content, and keep the memory for the next one."""
    p.truncate(out, 0)


def widen(out: bytearray, size: int) -> None:
    """Append so many bytes of any content; a compiled build does not touch them."""
    p.reserve(out, size)


def append(out: bytearray, data: bytes) -> None:
    """Append, and keep the memory: `+=` gives it back if less than half of it is in use."""
    p.put(out, data)


class RowPackets:
    """Finds the rows of a result set in its packets, while they come.

    at: where the next packet starts.
    started: where the row starts that the next packet begins or continues: the end of the whole rows.
    last: where the last whole row starts; -1 without rows.
    count: of whole rows.
    """

    __slots__ = ("at", "count", "last", "started")

    def __init__(self) -> None:
        """Begin at byte 0."""
        self.at = self.started = self.count = 0
        self.last = -1

    def scan(self, data: bytearray, stop: int, most: int) -> int:
        """Read on in data[:stop], up to the end of the result, of the bytes, or of a number of rows.

        data: the packets from byte 0 on, with those of earlier calls.
        most: rows; 0 for any number.
        Return MORE, END (`at` is the end of the rows), or ERROR (the packet of an error starts at `at`).
        """
        while self.at + 4 < stop:
            at = self.at
            size = p.byte_at(data, at) | p.byte_at(data, at + 1) << 8 | p.byte_at(data, at + 2) << 16
            if at + 4 + size > stop:
                break
            if self.started == at:
                first = p.byte_at(data, at + 4)
                if first == _END_FIRST and size <= _END_BYTES_MOST:
                    return _END
                if first == _ERROR_FIRST:
                    return _ERROR
            self.at = at + 4 + size
            if size < _FULL_PACKET:
                self.count += 1
                self.last = self.started
                self.started = self.at
                if self.count == most:
                    break
        return _MORE


class RowImages:
    """Writes the rows of one table; keeps nothing between calls."""

    __slots__ = ("decimals", "documents", "head", "kinds", "no_nulls", "precisions", "sizes", "stripped", "width")

    def __init__(
        self,
        kinds: bytes,
        sizes: bytes,
        precisions: bytes,
        decimals: bytes,
        stripped: bytes,
        documents: Callable[[bytes], bytes],
    ) -> None:
        """Describe the columns, one byte for each in every argument.

        kinds: see kinds, and JSON for MySQL's JSON columns.
        sizes, precisions, decimals: see cells.Cell.
        stripped: 1 if the image omits zero bytes at the end of a value, as that of a BINARY column does.
        documents: returns the binary form of a JSON text, or raises ValueError.
        """
        self.kinds = kinds
        self.sizes = sizes
        self.precisions = precisions
        self.decimals = decimals
        self.stripped = stripped
        self.documents = documents
        self.width = len(kinds)
        self.no_nulls = bytes((len(kinds) + 7) >> 3)
        self.head = b""

    def events(self, rows: bytes, skip: Sequence[int], head: bytes, size: int, out: bytearray) -> int:
        """Append events with the rows; return how many rows they have.

        rows: the packets of rows, with their headers of four bytes, and nothing else.
        skip: numbers of rows to leave out; the first row is 0.
        head: the beginning of every event, up to its first row. The length in its header is filled in.
        size: bytes after which an event ends and another one begins.
        Raises Broken for packets that are not rows of this table; then `out` ends with invalid bytes.
        """
        left_out = bytearray(max(skip, default=-1) + 1)
        for number in skip:
            left_out[number] = 1
        self.head = head
        with cython.nogil:
            return self._events(rows, left_out, size, out)

    def _events(self, rows: bytes, skip: bytearray, size: int, out: bytearray) -> int:
        pos = 0
        number = 0
        count = 0
        start = -1  # of the open event
        stop = p.held(rows)
        while pos < stop:
            after = self._behind(rows, pos, stop)
            if number >= p.size(skip) or not p.byte_at(skip, number):
                if start < 0:
                    start = p.size(out)
                    p.put(out, self.head)
                if after - pos - 4 < _FULL_PACKET:
                    self._row(rows, pos + 4, after, out)
                else:
                    self._wide(rows, pos, after, out)
                count += 1
                if p.size(out) - start >= size:
                    self._end(out, start)
                    start = -1
            number += 1
            pos = after
        if start >= 0:
            self._end(out, start)
        return count

    def _behind(self, rows: bytes, pos: int, stop: int) -> int:
        """Return where the packets of the row at `pos` end."""
        while True:
            if pos + 4 > stop or pos + 4 + p.u24(rows, pos) > stop:
                p.broken("a row beyond its bytes")
            size = p.u24(rows, pos)
            pos += 4 + size
            if size < _FULL_PACKET:
                return pos

    def _end(self, out: bytearray, start: int) -> None:
        """Fill in the length of the event at `start`."""
        size = p.size(out) - start
        if size > k.EVENT_MAX:
            p.broken("a row that makes an event of %d bytes", size)
        for index in range(4):
            p.set_byte(out, start + _LENGTH_AT + index, size >> 8 * index & 255)

    def _wide(self, rows: bytes, pos: int, after: int, out: bytearray) -> None:
        """Write a row of several packets."""
        row = bytearray()
        while pos < after:
            size = p.u24(rows, pos)
            p.put_slice(row, rows, pos + 4, pos + 4 + size)
            pos += 4 + size
        self._row(bytes(row), 0, len(row), out)

    def _row(self, src: bytes, pos: int, stop: int, out: bytearray) -> None:
        """Append the image of the row src[pos:stop]."""
        nulls = p.size(out)
        p.put(out, self.no_nulls)
        for index in range(self.width):
            if pos >= stop:
                p.broken("a row of %d columns, fewer than expected", index)
            size = p.u8(src, pos)
            pos += 1
            if size == _NULL:
                at = nulls + (index >> 3)
                p.set_byte(out, at, p.byte_at(out, at) | 1 << (index & 7))
                continue
            if size > _NULL:
                width = 2 if size == 252 else 3 if size == 253 else 8
                if size == 255 or pos + width > stop or (width == 8 and p.u32(src, pos + 4)):
                    p.broken("a value without a length in column %d", index)
                size = p.u32(src, pos) if width == 8 else p.u24(src, pos) if width == 3 else p.u16(src, pos)
                pos += width
            if pos + size > stop:
                p.broken("a value beyond the row in column %d", index)
            if not self._put(index, src, pos, pos + size, out):
                p.broken("a value that is none of its type in column %d", index)
            pos += size
        if pos != stop:
            p.broken("a row of more than %d columns", self.width)

    def _put(self, index: int, src: bytes, start: int, stop: int, out: bytearray) -> bool:
        """Append the value of a column; return whether the text is one of its type."""
        kind = p.u8(self.kinds, index)
        size = p.u8(self.sizes, index)
        if kind == k.INTEGER or kind == k.ENUM or kind == k.SET or kind == k.BIT:
            return _put_integer(src, start, stop, size, kind == k.BIT, out)
        if kind == k.PREFIXED:
            if p.u8(self.stripped, index):
                while stop > start and not p.u8(src, stop - 1):
                    stop -= 1
            if (stop - start) >> 8 * size:
                return False
            p.put_little(out, stop - start, size)
            p.put_slice(out, src, start, stop)
            return True
        decimals = p.u8(self.decimals, index)
        if kind == k.DECIMAL:
            return _put_decimal(src, start, stop, p.u8(self.precisions, index), decimals, out)
        if kind == k.DOUBLE or kind == k.FLOAT:
            return t.put_double(out, src, start, stop) if size == 8 else t.put_single(out, src, start, stop)
        if kind == k.DATETIME2:
            return _put_datetime(src, start, stop, decimals, out)
        if kind == k.TIMESTAMP2:
            return _put_timestamp(src, start, stop, decimals, out)
        if kind == k.DATE:
            return _put_date(src, start, stop, out)
        if kind == k.TIME2:
            return _put_time(src, start, stop, decimals, out)
        if kind == k.YEAR:
            return _put_year(src, start, stop, out)
        return kind == _DOCUMENT and self._put_document(src, start, stop, out)

    def _put_document(self, src: bytes, start: int, stop: int, out: bytearray) -> bool:
        try:
            document = self.documents(src[start:stop])
        except ValueError:
            return False
        p.put_little(out, len(document), 4)
        p.put(out, document)
        return True


def _number(src: bytes, start: int, stop: int) -> int:
    """Return a number of up to 18 decimal digits; -1 if there is something else."""
    value = 0
    if start >= stop:
        return -1
    for at in range(start, stop):
        digit = p.u8(src, at) - _ZERO
        if digit < 0 or digit > 9:
            return -1
        value = value * 10 + digit
    return value


def _put_integer(src: bytes, start: int, stop: int, size: int, is_bit: bool, out: bytearray) -> bool:
    """Append a whole number, of any number of digits with ZEROFILL."""
    negative = start < stop and p.u8(src, start) == _MINUS
    if negative:
        start += 1
    while stop - start > 1 and p.u8(src, start) == _ZERO:
        start += 1
    if stop - start > 20:
        return False
    last = _number(src, max(start, stop - 18), stop)
    first = _number(src, start, stop - 18) if stop - start > 18 else 0
    if last < 0 or first < 0 or first > 18:
        return False
    if is_bit:
        p.put_big(out, p.whole(first, last, negative), size)
    else:
        p.put_little(out, p.whole(first, last, negative), size)
    return True


def _put_decimal(src: bytes, start: int, stop: int, precision: int, decimals: int, out: bytearray) -> bool:
    """Append a packed DECIMAL: see numbers.put_decimal."""
    negative = start < stop and p.u8(src, start) == _MINUS
    if negative:
        start += 1
    point = start
    while point < stop and p.u8(src, point) != _POINT:
        point += 1
    left = precision - decimals
    at = point - left  # of the first digit; digits before `start` are zero
    while start < at:
        if p.u8(src, start) != _ZERO:
            return False
        start += 1
    sign_at = p.size(out)
    while left:
        digits = (left - 1) % 9 + 1
        if not _put_group(src, max(at, start), at + digits, 0, digits, negative, out):
            return False
        at += digits
        left -= digits
    at = point + 1
    left = decimals
    if stop > at + left:
        return False
    while left:
        digits = 9 if left > 9 else left
        end = min(at + digits, stop)
        if not _put_group(src, at, end, at + digits - max(end, at), digits, negative, out):
            return False
        at += digits
        left -= digits
    p.set_byte(out, sign_at, p.byte_at(out, sign_at) ^ 0x80)
    return True


def _put_group(src: bytes, start: int, stop: int, zeros: int, digits: int, negative: bool, out: bytearray) -> bool:
    """Append a group of up to nine digits: src[start:stop], which may be empty, and zeros behind it."""
    value = _number(src, start, stop) if start < stop else 0
    if value < 0:
        return False
    size = 4 if digits > 6 else (digits + 1) >> 1
    value *= p.power(zeros)
    if negative:
        value ^= p.bit(8 * size) - 1
    p.put_big(out, value, size)
    return True


def _fraction(src: bytes, start: int, stop: int, decimals: int) -> int:
    """Return the stored fraction of a second src[start:stop], its point included; -1 if it has other decimals."""
    if not decimals:
        return 0 if start == stop else -1
    if stop - start != decimals + 1 or p.u8(src, start) != _POINT:
        return -1
    value = _number(src, start + 1, stop)
    return value * 10 if decimals & 1 else value


def _date(src: bytes, at: int) -> int:
    """Return the date yyyy-mm-dd as year times 512, month times 32, day; -1 if there is none."""
    if p.u8(src, at + 4) != _DASH or p.u8(src, at + 7) != _DASH:
        return -1
    year, month, day = _number(src, at, at + 4), _number(src, at + 5, at + 7), _number(src, at + 8, at + 10)
    if year < 0 or month < 0 or month > 12 or day < 0 or day > 31:
        return -1
    return year << 9 | month << 5 | day


def _clock(src: bytes, at: int) -> int:
    """Return the minutes and seconds mm:ss as minute times 64, second; -1 if there are none."""
    minute, second = _number(src, at, at + 2), _number(src, at + 3, at + 5)
    if p.u8(src, at + 2) != _COLON or minute < 0 or minute > 59 or second < 0 or second > 59:
        return -1
    return minute << 6 | second


def _moment(src: bytes, start: int, stop: int) -> int:
    """Return the date and time yyyy-mm-dd hh:mm:ss as the date times 2**17, hour times 4096, time; -1 without them."""
    if stop - start < 19 or p.u8(src, start + 10) != _SPACE or p.u8(src, start + 13) != _COLON:
        return -1
    date, hour, time = _date(src, start), _number(src, start + 11, start + 13), _clock(src, start + 14)
    if date < 0 or hour < 0 or hour > 23 or time < 0:
        return -1
    return date << 17 | hour << 12 | time


def _put_date(src: bytes, start: int, stop: int, out: bytearray) -> bool:
    value = _date(src, start) if stop - start == 10 else -1
    if value < 0:
        return False
    p.put_little(out, value, 3)
    return True


def _put_datetime(src: bytes, start: int, stop: int, decimals: int, out: bytearray) -> bool:
    """Append a DATETIME: see temporal.put_datetime2."""
    moment = _moment(src, start, stop)
    fraction = _fraction(src, start + 19, stop, decimals) if moment >= 0 else -1
    if fraction < 0:
        return False
    year, month = moment >> 26, moment >> 22 & 15
    packed = (year * 13 + month) << 22 | moment & (1 << 22) - 1
    p.put_big(out, packed + p.bit(39), 5)
    p.put_big(out, fraction, temporal.fraction_size(decimals))
    return True


def _put_timestamp(src: bytes, start: int, stop: int, decimals: int, out: bytearray) -> bool:
    """Append a TIMESTAMP, whose text is in UTC: see temporal.put_timestamp2."""
    moment = _moment(src, start, stop)
    fraction = _fraction(src, start + 19, stop, decimals) if moment >= 0 else -1
    if fraction < 0:
        return False
    seconds = 0
    if moment:
        year, month, day = moment >> 26, moment >> 22 & 15, moment >> 17 & 31
        seconds = _days(year, month, day) * 86400 + (moment >> 12 & 31) * 3600 + (moment >> 6 & 63) * 60 + (moment & 63)
        if not month or not day or seconds < 0 or seconds > _TIMESTAMP_MAX:
            return False
    p.put_big(out, seconds, 4)
    p.put_big(out, fraction, temporal.fraction_size(decimals))
    return True


def _days(year: int, month: int, day: int) -> int:
    """Return the days from 1970 to a date. Years here begin in March, so that a leap day ends them."""
    if month < 3:
        year -= 1
        month += 12
    return year * 365 + year // 4 - year // 100 + year // 400 + (153 * (month - 3) + 2) // 5 + day - 1 - _EPOCH


def _put_time(src: bytes, start: int, stop: int, decimals: int, out: bytearray) -> bool:
    """Append a TIME, of two or three digits of hours: see temporal.put_time2."""
    negative = start < stop and p.u8(src, start) == _MINUS
    if negative:
        start += 1
    if stop - start < 8:
        return False
    colon = start + 2 if p.u8(src, start + 2) == _COLON else start + 3
    if stop < colon + 6 or p.u8(src, colon) != _COLON:
        return False
    hours, clock = _number(src, start, colon), _clock(src, colon + 1)
    fraction = _fraction(src, colon + 6, stop, decimals)
    if hours < 0 or hours > 838 or clock < 0 or fraction < 0:
        return False
    bits = temporal.fraction_size(decimals) << 3
    value = (hours << 12 | clock) << bits | fraction
    p.put_big(out, p.bit(bits + 23) + (-value if negative else value), 3 + (bits >> 3))
    return True


def _put_year(src: bytes, start: int, stop: int, out: bytearray) -> bool:
    """Append a YEAR, of four digits, or two of 1970 to 2069: see temporal.put_year."""
    year = _number(src, start, stop)
    if stop - start == 2:
        year += 100 if 0 <= year < 70 else 0
    elif stop - start != 4:
        return False
    elif year:
        year -= 1900
    if year < 0 or year > 255:
        return False
    p.put_byte(out, year)
    return True
