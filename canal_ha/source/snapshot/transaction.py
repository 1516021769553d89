"""Rows of a SELECT -> one segment: a transaction of INSERTs, which an ordinary decoder makes of synthetic events.

So names, keys, charsets, filters, protected columns and both forms of values are those of the stream.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from itertools import accumulate

from canal_ha.decode.decoder import Decoder
from canal_ha.decode.kernel import kinds
from canal_ha.decode.kernel.primitives import Broken, varint
from canal_ha.decode.plans import text_field
from canal_ha.decode.table_map import table_map_body
from canal_ha.decode.values import packed
from canal_ha.errors import SnapshotRefused
from canal_ha.model.entry import SNAPSHOT_PROP
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import EntryKind, Segment
from canal_ha.source.snapshot.table import TABLE_ID, SnapshotTable

BEFORE = -1  # the sub-index of a chunk's entries: the event at the same offset comes behind them
EVENT_BYTES = 16384  # after which a rows event ends; a server ends them at 8 KiB

_HEADER_BYTES = 19
_FORMAT_VERSION = 4
_POST_HEADERS = 45  # event types whose fixed part a format description tells, which nobody reads
_HEADER_TAG, _PROPS_TAG = 0x0A, 0x62

DecoderAt = Callable[[LogPosition], Decoder]


class SnapshotTransactions:
    """Makes the segments of one table of one snapshot. A thread at a time uses it."""

    def __init__(self, table: SnapshotTable, snapshot: str, decoder_at: DecoderAt) -> None:
        """Create.

        table: as its rows were asked for.
        snapshot: the id of the snapshot, for the property of each entry.
        decoder_at: returns a new decoder with the stream's filters and options that begins at the journal, the offset
            and the GTID set of a position. Its history must know the columns of the table there.
        """
        self._table = table
        self._decoder_at = decoder_at
        pair = text_field(0x0A, SNAPSHOT_PROP) + text_field(0x12, snapshot)
        self._property = bytes([_PROPS_TAG]) + varint(len(pair)) + pair
        width = len(table.table_map.types)
        columns = (1 << width) - 1
        self._rows_head = (
            TABLE_ID.to_bytes(6, "little") + b"\0\0\2\0" + packed(width) + columns.to_bytes((width + 7) // 8, "little")
        )
        self._table_map = table_map_body(table.table_map)

    def segment(self, rows: bytes, place: LogPosition, skip: Collection[int] = ()) -> Segment | None:
        """Return a transaction with one INSERT for each row; None if no row is left, or the filters drop the table.

        rows: the packets of rows with their 4-byte headers, as the server sent them, without the packets before and
            behind them.
        place: where the entries stand: every one has its journal, offset, sub_index, timestamp_ms and server_id.
        skip: numbers of rows to leave out; the first row is 0.
        Entries are some EVENT_BYTES large, as those of the binlog. The segment is not `cut`.
        Raises SnapshotRefused if the rows are not of this table, what `decoder_at` raises, and what a decoder raises.
        """
        header = _event_header(place)
        events = bytearray()
        for kind, body in (
            (kinds.FORMAT_DESCRIPTION, _format_description(self._table.table_map.mariadb)),
            (kinds.QUERY, bytes(14) + b"BEGIN"),  # no thread, time, schema, error or status
            (kinds.TABLE_MAP, self._table_map),
        ):
            events += header(kind, len(body)) + body
        rows_head = header(kinds.WRITE_ROWS, 0) + self._rows_head
        try:
            count = self._table.images.events(rows, tuple(skip), rows_head, EVENT_BYTES, events)
        except Broken as error:
            schema = self._table.schema
            raise SnapshotRefused(
                f"{schema.schema}.{schema.name}: the rows of a SELECT cannot be read: {error}"
            ) from error
        if not count:
            return None
        events += header(kinds.XID, 8) + bytes(8)
        made = _Joined(self._property)
        for output in self._decoder_at(place).feed_file(events):
            if isinstance(output, Segment):
                made.add(output)
        return made.segment(place)


class _Joined:
    """The entries of several segments, with a property in the header of each INSERT."""

    def __init__(self, pair: bytes) -> None:
        """pair: the property, as a field of Header."""
        self._pair = pair
        self._first: Segment | None = None
        self._frames = bytearray()
        self._ends, self._sizes, self._timestamps, self._lengths = (array("q") for _ in range(4))
        self._rows = array("i")
        self._kinds = bytearray()

    def add(self, segment: Segment) -> None:
        """Append the entries of a segment, and give its memory back."""
        self._first = self._first or segment
        frames, view = self._frames, memoryview(segment.frames)
        for index, kind in enumerate(segment.kinds):
            end, size = segment.ends[index], segment.entry_size(index)
            start = end - size
            if kind == EntryKind.ROWS:
                header, at = _varint_at(view, start + 1)
                props = next(begin for tag, begin in _fields(view, at, at + header) if tag == _PROPS_TAG)
                head = bytes([_HEADER_TAG]) + varint(header + len(self._pair))
                size += len(head) - (at - start) + len(self._pair)
                frames += b"\x12" + varint(size) + head
                frames += view[at:props]
                frames += self._pair
                frames += view[props:end]
            else:
                frames += b"\x12" + varint(size)
                frames += view[start:end]
            self._sizes.append(size)
            self._ends.append(len(frames))
        self._timestamps += segment.timestamps
        self._lengths += segment.event_lengths
        self._rows += segment.row_counts
        self._kinds += segment.kinds
        view.release()
        segment.recycle()

    def segment(self, place: LogPosition) -> Segment | None:
        """Return the entries as those of one place; None if they have no rows."""
        if self._first is None or EntryKind.ROWS not in self._kinds:
            return None
        count = len(self._ends)
        return replace(
            self._first,
            frames=self._frames,
            ends=self._ends,
            offsets=array("q", [place.offset]) * count,
            subs=array("i", [place.sub_index]) * count,
            timestamps=self._timestamps,
            event_lengths=self._lengths,
            row_counts=self._rows,
            kinds=self._kinds,
            run_starts=array("q", [0]),
            run_server_ids=self._first.run_server_ids[:1],
            run_gtids=self._first.run_gtids[:1],
            entry_ends=array("q", accumulate(self._sizes)),
            row_ends=array("q", accumulate(self._rows)),
            cut=False,
            buffers=None,
        )


def _event_header(place: LogPosition) -> Callable[[int, int], bytes]:
    """Return a function that makes the header of an event of a type and a body's size. It tells no position."""
    seconds, server_id = place.timestamp_ms // 1000, place.server_id or 0

    def header(kind: int, size: int) -> bytes:
        return struct.pack("<IBIIIH", seconds, kind, server_id, _HEADER_BYTES + size, 0, 0)

    return header


def _format_description(mariadb: bool) -> bytes:
    """Return the body of an event that tells the flavor, and that events have no checksums."""
    version = b"10.11.0-MariaDB" if mariadb else b"8.0.0"
    fixed = bytes(_POST_HEADERS)
    return struct.pack("<H50sIB", _FORMAT_VERSION, version, 0, _HEADER_BYTES) + fixed + bytes(5)


def _fields(message: memoryview, at: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield the tag and the start of each field of a message; its tags are of one byte, its fields numbers or bytes."""
    while at < stop:
        yield message[at], at
        value, behind = _varint_at(message, at + 1)
        at = behind + value if message[at] & 7 == 2 else behind


def _varint_at(data: memoryview, at: int) -> tuple[int, int]:
    """Return a number, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at
