"""MySQL's binary JSON -> canal's text of it (docs/protocol.md#json), appended to a text.

A value is its kind (one byte) and its content; offsets count from the start of their container. Source of the format:
MySQL sql-common/json_binary.h. Raises Broken for bytes that are not a document.

The exact form (docs/protocol.md#exact) differs where canal changes a value: DATE has no time, zero times have a
fraction, and bytes are base64 as in MySQL's own text.
"""

from __future__ import annotations

from base64 import b64encode
from typing import NoReturn

import canal_ha.decode.kernel.numbers as numbers
import canal_ha.decode.kernel.primitives as p
import canal_ha.decode.kernel.temporal as temporal

_DEPTH_MAX = 128  # MySQL allows 100


def document_text(data: bytes, exact: bool = False) -> bytes:
    """Return the text of a document; see `put_document`."""
    text = bytearray()
    put_document(text, data, 0, len(data), exact)
    return bytes(text)


def put_document(text: bytearray, src: bytes, start: int, stop: int, exact: bool) -> None:
    """Append the document src[start:stop]; no bytes give an empty text, in the exact form `null` as in MySQL."""
    if start < stop:
        # A longer text is possible only if parts of the document are visited repeatedly.
        limit = p.size(text) + 16 * (stop - start) + 64
        _put_value(text, limit, p.u8(src, start), src, start + 1, stop, exact, 0)
    elif exact:
        p.put(text, b"null")


def _put_value(
    text: bytearray, limit: int, kind: int, src: bytes, pos: int, stop: int, exact: bool, depth: int
) -> None:
    """Append one value. src[pos:stop] holds it and its children. limit: of the text's length."""
    if depth > _DEPTH_MAX:
        p.broken("JSON nested too deep")
    if kind == 12:
        length, pos = _length(src, pos, stop)
        if pos < 0 or pos + length > stop:
            _beyond()
        p.put_quoted(text, src, pos, pos + length)
    elif kind < 4:
        _put_container(text, limit, kind, src, pos, stop, exact, depth)
    elif kind == 4:
        if pos >= stop:
            _beyond()
        _put_literal(text, p.u8(src, pos))
    elif kind < 11:
        _put_integer(text, kind, src, pos, stop)
    elif kind == 11:
        if pos + 8 > stop:
            _beyond()
        numbers.put_double(text, src, pos)
    elif kind == 15:
        if pos >= stop:
            _beyond()
        length, start = _length(src, pos + 1, stop)
        if start < 0 or start + length > stop:
            _beyond()
        _put_opaque(text, p.u8(src, pos), src, start, length, exact)
    else:
        p.broken("unknown JSON type %d", kind)
    if p.size(text) > limit:
        p.broken("JSON that refers to itself")


def _put_container(
    text: bytearray, limit: int, kind: int, src: bytes, pos: int, stop: int, exact: bool, depth: int
) -> None:
    """Append an object (0 small, 1 large) or array (2, 3): counts, entries, keys and values at offsets from `pos`."""
    is_object = kind < 2
    width = 4 if kind & 1 else 2
    keys = pos + 2 * width
    if keys > stop:
        _beyond()
    count = p.little(src, pos, width)
    size = p.little(src, pos + width, width)
    entries = keys + count * (width + 2) if is_object else keys
    if pos + size > stop or entries + count * (1 + width) > pos + size:
        _beyond()
    stop = pos + size
    p.put_byte(text, 0x7B if is_object else 0x5B)
    for index in range(count):
        if index:
            p.put(text, b", ")
        if is_object:
            start = pos + p.little(src, keys, width)
            end = start + p.u16(src, keys + width)
            if end > stop:
                _beyond()
            p.put_quoted(text, src, start, end)
            p.put(text, b": ")
            keys += width + 2
        child = p.u8(src, entries)
        if child in (4, 5, 6) or (width == 4 and child in (7, 8)):
            _put_value(text, limit, child, src, entries + 1, entries + 1 + width, exact, depth + 1)
        else:
            _put_value(text, limit, child, src, pos + p.little(src, entries + 1, width), stop, exact, depth + 1)
        entries += 1 + width
    p.put_byte(text, 0x7D if is_object else 0x5D)


def _put_literal(text: bytearray, code: int) -> None:
    if code == 0:
        p.put(text, b"null")
    elif code == 1:
        p.put(text, b"true")
    elif code == 2:
        p.put(text, b"false")
    else:
        p.broken("unknown JSON literal %d", code)


def _put_integer(text: bytearray, kind: int, src: bytes, pos: int, stop: int) -> None:
    """Append an integer. Kinds 5 to 10: two, four and eight bytes, each signed and then unsigned."""
    size = 2 << ((kind - 5) >> 1)
    if pos + size > stop:
        _beyond()
    if kind & 1:
        p.put_digits(text, p.signed(src, pos, size))
    else:
        p.put_unsigned(text, p.little(src, pos, size))


def _length(src: bytes, pos: int, stop: int) -> tuple[int, int]:
    """Return a length (seven bits in each byte, at most five bytes) and where it ends; -1 if it does not end."""
    length = 0
    shift = 0
    while shift < 35 and pos < stop:
        byte = p.u8(src, pos)
        pos += 1
        length |= (byte & 127) << shift
        if byte < 128:
            return length, pos
        shift += 7
    return 0, -1


def _put_opaque(text: bytearray, kind: int, src: bytes, pos: int, length: int, exact: bool) -> None:
    """Append a value of a MySQL type that JSON does not have."""
    if kind == 246:  # DECIMAL
        if length < 3:
            p.broken("a JSON decimal without digits")
        precision = p.u8(src, pos)
        decimals = p.u8(src, pos + 1)
        if decimals > precision or not precision or length - 2 < numbers.decimal_size(precision, decimals):
            p.broken("a JSON decimal beyond its bounds")
        numbers.put_decimal(text, src, pos + 2, precision, decimals)
    elif kind in (7, 10, 11, 12):  # TIMESTAMP, DATE, TIME, DATETIME
        if length < 8:
            p.broken("a JSON time without its eight bytes")
        if exact and kind == 10:
            _put_day(text, src, pos)
        else:
            _put_time(text, kind == 11, src, pos, exact)
    elif exact:
        _put_base64(text, kind, src, pos, pos + length)
    else:
        p.put_quoted(text, src, pos, pos + length)


def _put_base64(text: bytearray, kind: int, src: bytes, start: int, stop: int) -> None:
    """Append bytes as MySQL does, with the number of their type."""
    text += b'"base64:type%d:%s"' % (kind, b64encode(src[start:stop]))


def _put_day(text: bytearray, src: bytes, pos: int) -> None:
    """Append the date of eight bytes; see `_put_time`."""
    magnitude = p.magnitude(p.signed(src, pos, 8))
    p.put_byte(text, 0x22)
    temporal.put_packed_datetime(text, magnitude >> 24)
    p.truncate(text, p.size(text) - 9)
    p.put_byte(text, 0x22)


def _put_time(text: bytearray, is_clock: bool, src: bytes, pos: int, exact: bool) -> None:
    """Append eight bytes: a packed DATETIME or TIME times 2**24, plus microseconds; negative: two's complement."""
    value = p.signed(src, pos, 8)
    magnitude = p.magnitude(value)
    p.put_byte(text, 0x22)
    if is_clock:
        if value < 0:
            p.put_byte(text, 0x2D)
        temporal.put_packed_time(text, magnitude >> 24)
    else:
        temporal.put_packed_datetime(text, magnitude >> 24)
    if value or exact:
        p.put_byte(text, 0x2E)
        p.put_padded(text, magnitude & 0xFFFFFF, 6)
    p.put_byte(text, 0x22)


def _beyond() -> NoReturn:
    p.broken("JSON beyond its bounds")
