"""The rows of an entry -> what messages of queues need: objects of JSON, and hashes that choose partitions.

In the objects each value is a string of canal's text, as canal's own producers write them. A label is what stands
before a value: the name of its column as a member begins with it, and the comma before it. The caller makes the labels
once for all rows with the same columns.
"""

from __future__ import annotations

from array import array

import canal_ha.decode.kernel.codes as k
import canal_ha.decode.kernel.layouts as ly
import canal_ha.decode.kernel.primitives as p
import canal_ha.decode.kernel.texts as t

_QUOTE = 0x22
_BACKSLASH = 0x5C
_NAMED = b"btn?fr"  # letters of the escapes of the bytes from 8 on
_ALL = (1 << 32) - 1
_DIGITS = b"0123456789abcdef"
_DIFFERENT = "rows of one entry with different columns"  # the caller knows those of the last one


def row_objects(src: bytes, places: array[int], images: ly.Images, deleted: bool, labels: list[bytes]) -> list[bytes]:
    """Return the current image of each row as an object: the new one, or the old one of a delete.

    places: where the RowDatas of an entry begin and end in `src`.
    images: those of the entry's table and kind of change.
    labels: of the image's columns.
    Raises Broken.
    """
    found = []
    text = bytearray()
    names: object = None
    for row in range(p.length(places) >> 1):
        images.row(src, p.item(places, 2 * row), p.item(places, 2 * row + 1))
        layout = images.before if deleted else images.after
        if row == 0:
            names = layout.names
        if layout.names is not names or len(layout.columns) != len(labels):
            raise p.Broken(_DIFFERENT)
        p.truncate(text, 0)
        p.put_byte(text, 0x7B)
        for index in range(len(layout.columns)):
            _put_member(text, src, layout.columns[index], labels[index], index == 0)
        p.put_byte(text, 0x7D)
        found.append(bytes(text))
    return found


def old_objects(src: bytes, places: array[int], images: ly.Images, now: list[int], labels: list[bytes]) -> list[bytes]:
    """Return an object for each row of an UPDATE: the old values that this row, or one before it, has changed.

    src, places, images: see row_objects.
    now: for each column of the old image its place in the new one; -1 if it has none.
    labels: of the old image's columns.
    Raises Broken.
    """
    found = []
    text = bytearray()
    updated = bytearray(len(now))
    before: object = None
    after: object = None
    for row in range(p.length(places) >> 1):
        images.row(src, p.item(places, 2 * row), p.item(places, 2 * row + 1))
        old = images.before.columns
        new = images.after.columns
        if row == 0:
            before = images.before.names
            after = images.after.names
        if images.before.names is not before or images.after.names is not after or len(old) != len(now):
            raise p.Broken(_DIFFERENT)
        p.truncate(text, 0)
        p.put_byte(text, 0x7B)
        for index in range(len(old)):
            place = now[index]
            if place >= len(new):
                raise p.Broken(_DIFFERENT)
            if place >= 0 and not same_value(src, old[index], new[place]):
                p.set_byte(updated, index, 1)
            if p.byte_at(updated, index):
                _put_member(text, src, old[index], labels[index], p.size(text) == 1)
        p.put_byte(text, 0x7D)
        found.append(bytes(text))
    return found


def row_hashes(src: bytes, places: array[int], images: ly.Images, deleted: bool, columns: list[int]) -> list[int]:
    """Return for each row the Java hashes of its texts in these columns, combined by XOR: signed, of 32 bits.

    src, places, images, deleted: see row_objects.
    columns: places in the image. NULL has the hash 0.
    Raises Broken.
    """
    found = []
    names: object = None
    for row in range(p.length(places) >> 1):
        images.row(src, p.item(places, 2 * row), p.item(places, 2 * row + 1))
        layout = images.before if deleted else images.after
        hashed = 0
        if row == 0:
            names = layout.names
        if layout.names is not names:
            raise p.Broken(_DIFFERENT)
        for index in columns:
            if index >= len(layout.columns):
                raise p.Broken(_DIFFERENT)
            column = layout.columns[index]
            if column.start == k.NULL:
                continue
            if not p.is_utf8(src, column.start, column.stop):
                raise p.Broken("a value that is no UTF-8")
            hashed ^= java_hash(src, column.start, column.stop)
        found.append(t.int32(hashed))
    return found


def java_hash(src: bytes, start: int, stop: int) -> int:
    """Return String.hashCode() of well-formed UTF-8, as 32 bits without a sign. Java counts UTF-16 units."""
    found = 0
    while start < stop:
        byte = p.u8(src, start)
        if byte < 0x80:
            unit, size = byte, 1
        elif byte < 0xE0:
            unit, size = (byte & 31) << 6 | p.u8(src, start + 1) & 63, 2
        elif byte < 0xF0:
            unit, size = (byte & 15) << 12 | (p.u8(src, start + 1) & 63) << 6 | p.u8(src, start + 2) & 63, 3
        else:
            unit = (byte & 7) << 18 | (p.u8(src, start + 1) & 63) << 12 | (p.u8(src, start + 2) & 63) << 6
            unit = (unit | p.u8(src, start + 3) & 63) - 0x10000
            found = (31 * found + (0xD800 | unit >> 10)) & _ALL
            unit, size = 0xDC00 | unit & 0x3FF, 4
        found = (31 * found + unit) & _ALL
        start += size
    return found


def same_value(src: bytes, one: ly.ColumnLayout, other: ly.ColumnLayout) -> bool:
    """Return whether two columns have the same value."""
    if one.start == k.NULL or other.start == k.NULL:
        return one.start == other.start
    size = one.stop - one.start
    return size == other.stop - other.start and p.same_source(src, one.start, other.start, size)


def _put_member(text: bytearray, src: bytes, column: ly.ColumnLayout, label: bytes, first: bool) -> None:
    """Append a member of an object. label: begins with a comma, which the first member leaves out."""
    p.put_slice(text, label, 1 if first else 0, p.held(label))
    if column.start == k.NULL:
        p.put(text, b"null")
    else:
        put_string(text, src, column.start, column.stop)


def put_string(text: bytearray, src: bytes, start: int, stop: int) -> None:
    """Append UTF-8 text as a string of JSON. Raises Broken for other bytes."""
    if p.is_plain(src, start, stop):
        p.put_byte(text, _QUOTE)
        p.put_slice(text, src, start, stop)
        p.put_byte(text, _QUOTE)
    elif p.is_utf8(src, start, stop):
        _put_escaped(text, src, start, stop)
    else:
        raise p.Broken("a value that is no UTF-8")


def _put_escaped(text: bytearray, src: bytes, start: int, stop: int) -> None:
    """Append UTF-8 text as a string, with the escapes that JSON demands and no others."""
    p.put_byte(text, _QUOTE)
    for at in range(start, stop):
        byte = p.u8(src, at)
        if byte >= 0x20 and byte != _QUOTE and byte != _BACKSLASH:
            continue
        p.put_slice(text, src, start, at)
        start = at + 1
        p.put_byte(text, _BACKSLASH)
        if byte >= 0x20:
            p.put_byte(text, byte)
        elif 8 <= byte <= 13 and byte != 11:
            p.put_byte(text, p.u8(_NAMED, byte - 8))
        else:
            p.put(text, b"u00")
            p.put_byte(text, p.u8(_DIGITS, byte >> 4))
            p.put_byte(text, p.u8(_DIGITS, byte & 15))
    p.put_slice(text, src, start, stop)
    p.put_byte(text, _QUOTE)
