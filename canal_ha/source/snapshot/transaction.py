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
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import EntryKind, Segment
from canal_ha.source.snapshot.table import TABLE_ID, SnapshotTable

EVENT_BYTES = 16384  # after which a rows event ends; a server ends them at 8 KiB
PROPERTY = "canal.snapshot"  # the key in Header.props whose value is the snapshot's id

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
        pair = text_field(0x0A, PROPERTY) + text_field(0x12, snapshot)
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
        Raises SnapshotRefused if the rows are not of this table, TableUnknown, and what `decoder_at` raises.
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
        except (Broken, ValueError) as error:
            schema = self._table.schema
            raise SnapshotRefused(
                f"{schema.schema}.{schema.name}: the rows of a SELECT cannot be read: {error}"
            ) from error
        if not count:
            return None
        events += header(kinds.XID, 8) + bytes(8)
        segments = [out for out in self._decoder_at(place).feed_file(events) if isinstance(out, Segment)]
        if not any(EntryKind.ROWS in segment.kinds for segment in segments):
            return None
        return self._joined(segments, place)

    def _joined(self, segments: list[Segment], place: LogPosition) -> Segment:
        """Return one segment with the entries of these, and the property in the header of each INSERT."""
        frames = bytearray()
        sizes, ends = array("q"), array("q")
        for segment in segments:
            for index, kind in enumerate(segment.kinds):
                entry = segment.entry(index)
                if kind == EntryKind.ROWS:
                    entry = _with_property(entry, self._property)
                frames += b"\x12" + varint(len(entry)) + entry
                sizes.append(len(entry))
                ends.append(len(frames))
        rows = array("i", [count for segment in segments for count in segment.row_counts])
        timestamps = array("q", [time for segment in segments for time in segment.timestamps])
        lengths = array("q", [length for segment in segments for length in segment.event_lengths])
        return replace(
            segments[0],
            frames=frames,
            ends=ends,
            offsets=array("q", [place.offset]) * len(ends),
            subs=array("i", [place.sub_index]) * len(ends),
            timestamps=timestamps,
            event_lengths=lengths,
            row_counts=rows,
            kinds=b"".join(bytes(segment.kinds) for segment in segments),
            run_starts=array("q", [0]),
            run_server_ids=segments[0].run_server_ids[:1],
            run_gtids=segments[0].run_gtids[:1],
            entry_ends=array("q", accumulate(sizes)),
            row_ends=array("q", accumulate(rows)),
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


def _with_property(entry: bytes, pair: bytes) -> bytes:
    """Return a serialized Entry with one more of Header.props, before the others."""
    size, start = _varint_at(entry, 1)
    at = next(begin for tag, begin in _fields(entry, start, start + size) if tag == _PROPS_TAG)
    head = bytes([_HEADER_TAG]) + varint(size + len(pair))
    return head + entry[start:at] + pair + entry[at:]


def _fields(message: bytes, at: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield the tag and the start of each field of a message; its tags are of one byte, its fields numbers or bytes."""
    while at < stop:
        yield message[at], at
        value, behind = _varint_at(message, at + 1)
        at = behind + value if message[at] & 7 == 2 else behind


def _varint_at(data: bytes, at: int) -> tuple[int, int]:
    """Return a number, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at
