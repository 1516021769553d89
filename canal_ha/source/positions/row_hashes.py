"""What a fingerprint hashes of a row: what all servers write alike. Pure.

Names and types of columns are left out, because they follow the table history. A small entry is parsed as protobuf. A
large one is read in place: each copy of a row of 64 MiB would hold the interpreter's lock while it is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from itertools import chain
from operator import sub
from typing import NamedTuple

from canal_ha.errors import LocalProtocolError
from canal_ha.model.entry import EventType
from canal_ha.model.segment import EntryKind, Segment
from canal_ha.wire.proto import entry_protocol_pb2 as pb

ROWS = 4  # the last rows of a transaction, which are hashed
LARGE = 1 << 16  # bytes: a longer value is represented by its hash, a longer entry is read in place

_KEPT_BYTES = 1024  # of an entry whose rows are kept for the next streams
_WIDE = 16 * 1024  # bytes of an average row: reading many narrow rows in place would take too long
_FEW = 64  # entries of a segment, each of which is looked at
_MANY_BYTES = 2 << 20  # of a segment that has more: without a large entry, it is smaller

_ENTRY_HEADER, _ENTRY_STORE = 1, 3
_HEADER_SCHEMA, _HEADER_TABLE = 8, 9
_CHANGE_TYPE, _CHANGE_ROWS = 2, 12
_ROW_BEFORE, _ROW_AFTER = 1, 2
_COLUMN_INDEX, _COLUMN_NULL, _COLUMN_VALUE = 1, 6, 8
_VARINT, _BYTES = 0, 2  # wire types; our entries have no others


class _Value(NamedTuple):
    """One value of a row image. text: UTF-8; b"" if it is NULL."""

    place: int
    null: bool
    text: bytes | memoryview


def with_hashed_rows(segment: Segment) -> Segment:
    """Return the segment with what `rows_of` gives for its large row entries. Takes time, but no memory of their size.

    Call it on the thread that decodes: later threads then need not look at the rows again.
    """
    if segment.hashed_rows or segment.ends[-1] <= LARGE or (len(segment) > _FEW and segment.ends[-1] < _MANY_BYTES):
        return segment
    frames, ends = memoryview(segment.frames), segment.ends
    if max(map(sub, ends, chain((0,), ends))) <= LARGE:  # sizes of frames, which are larger than their entries
        return segment
    sizes = [segment.entry_size(index) for index in range(len(segment))]
    large = {
        index: _rows_in_place(frames[ends[index] - size : ends[index]])
        for index, size in enumerate(sizes)
        if size > max(LARGE, _WIDE * segment.row_counts[index]) and segment.kinds[index] == EntryKind.ROWS
    }
    return replace(segment, hashed_rows=large) if large else segment


def rows_of(entry: bytes) -> tuple[bytes, ...]:
    """Return what is hashed of the last ROWS rows of an entry, for each row, the last one first."""
    if len(entry) > LARGE:
        return _rows_in_place(memoryview(entry))
    return _kept_rows(entry) if len(entry) <= _KEPT_BYTES else _small_rows(entry)


def _small_rows(entry: bytes) -> tuple[bytes, ...]:
    parsed = pb.Entry.FromString(entry)
    change = pb.RowChange.FromString(parsed.storeValue)
    table = f"\0{parsed.header.schemaName}.{parsed.header.tableName}\0{change.eventType}".encode()
    return tuple([_small_row(table, row) for row in reversed(change.rowDatas[-ROWS:])])


_kept_rows = lru_cache(128)(_small_rows)  # all streams of a destination hash the same entries, one after the other


def _small_row(table: bytes, row: pb.RowData) -> bytes:
    """Return as `_row` does. The stream's thread calls it for most transactions of a quiet source."""
    parts = [table]
    for side, columns in ((b"-", row.beforeColumns), (b"+", row.afterColumns)):
        parts.append(side)
        for each in columns:
            if each.isNull:
                parts.append(b"%d:1:0:" % each.index)
            else:
                text = each.value.encode()
                parts.append(b"%d:0:%d:%b" % (each.index, len(text), text))
    return b"".join(parts)


def _row(table: bytes, before: Iterable[_Value], after: Iterable[_Value]) -> bytes:
    parts = [table]
    for side, values in ((b"-", before), (b"+", after)):
        parts.append(side)
        for place, null, text in values:
            size = len(text)
            shown = sha256(text).digest() if size > LARGE else bytes(text)
            parts.append(b"%d:%d:%d:" % (place, null, size) + shown)
    return b"".join(parts)


# ---- in place


def _rows_in_place(entry: memoryview) -> tuple[bytes, ...]:
    schema = table = b""
    change = entry[:0]
    for number, _, content in _fields(entry):
        if number == _ENTRY_HEADER:
            texts = {inner: bytes(text) for inner, _, text in _fields(content)}
            schema, table = texts.get(_HEADER_SCHEMA, b""), texts.get(_HEADER_TABLE, b"")
        elif number == _ENTRY_STORE:
            change = content
    event_type: int = EventType.UPDATE
    rows: list[memoryview] = []
    for number, value, content in _fields(change):
        if number == _CHANGE_TYPE:
            event_type = value
        elif number == _CHANGE_ROWS:
            rows.append(content)
    head = b"\0%b.%b\0%d" % (schema, table, event_type)
    return tuple(_row(head, _images(row, _ROW_BEFORE), _images(row, _ROW_AFTER)) for row in reversed(rows[-ROWS:]))


def _images(row: memoryview, wanted: int) -> Iterator[_Value]:
    return (_column(content) for number, _, content in _fields(row) if number == wanted)


def _column(column: memoryview) -> _Value:
    place, null, text = 0, False, column[:0]
    for number, value, content in _fields(column):
        if number == _COLUMN_INDEX:
            place = value
        elif number == _COLUMN_NULL:
            null = bool(value)
        elif number == _COLUMN_VALUE:
            text = content
    return _Value(place, null, b"" if null else text)


def _fields(message: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """Yield the number of each field with its value, if that is a number, or else with its content."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        value, at = _varint(message, at)
        if tag & 7 == _VARINT:
            yield tag >> 3, value, message[:0]
        elif tag & 7 == _BYTES:
            yield tag >> 3, 0, message[at : at + value]
            at += value
        else:
            raise LocalProtocolError(f"a field of wire type {tag & 7} in an entry of ours")


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
