"""Rows of a SELECT -> one segment: a transaction of INSERTs, which an ordinary decoder makes of synthetic events.

So names, keys, charsets, filters, protected columns and both forms of values are those of the stream.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Collection
from dataclasses import replace

from canal_ha.decode.decoder import Decoder
from canal_ha.decode.kernel import images, kinds
from canal_ha.decode.kernel.buffers import Landing
from canal_ha.decode.kernel.primitives import Broken, varint
from canal_ha.decode.plans import text_field
from canal_ha.decode.table_map import table_map_body
from canal_ha.decode.values import packed
from canal_ha.errors import SnapshotRefused
from canal_ha.model.buffers import LARGEST, Buffers
from canal_ha.model.entry import SNAPSHOT_PROP
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import EntryKind, Segment
from canal_ha.source.snapshot.table import TABLE_ID, SnapshotTable

BEFORE = -1  # the sub-index of a chunk's entries: the event at the same offset comes behind them
EVENT_BYTES = 16384  # after which a rows event ends; a server ends them at 8 KiB

_HEADER_BYTES = 19
_FORMAT_VERSION = 4
_POST_HEADERS = 45  # event types whose fixed part a format description tells, which nobody reads
_PROPS_TAG = 0x62

DecoderAt = Callable[[LogPosition], Decoder]


class SnapshotTransactions:
    """Makes the segments of one table of one snapshot. A thread at a time uses it."""

    def __init__(
        self, table: SnapshotTable, snapshot: str, decoder_at: DecoderAt, buffers: Buffers | None = None
    ) -> None:
        """Create.

        table: as its rows were asked for.
        snapshot: the id of the snapshot, for the property of each entry.
        decoder_at: returns a new decoder with the stream's filters and options that begins at the journal, the offset
            and the GTID set of a position. Its history must know the columns of the table, wherever it is read.
        buffers: for the frames of segments; others may use them, too.
        """
        self._table = table
        self._decoder_at = decoder_at
        self._decoder: Decoder | None = None
        self._buffers = buffers or Buffers()
        self._events = bytearray()  # of the last segment, for their memory
        self._landing = Landing()
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
        events = self._events if len(self._events) <= LARGEST else bytearray()
        images.empty(events)
        self._events = events
        begin = bytes(14) + b"BEGIN"  # no thread, time, schema, error or status
        bodies = [(kinds.QUERY, begin), (kinds.TABLE_MAP, self._table_map)]
        if self._decoder is None:
            bodies.insert(0, (kinds.FORMAT_DESCRIPTION, _format_description(self._table.table_map.mariadb)))
        for kind, body in bodies:
            images.append(events, header(kind, len(body)) + body)
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
        images.append(events, header(kinds.XID, 8) + bytes(8))
        return self._decoded(events, place)

    def _decoded(self, events: bytearray, place: LogPosition) -> Segment | None:
        """Return the segment of one transaction at a place; None if it has no rows."""
        decoder, self._decoder = self._decoder, None  # after an error it is useless
        if decoder is None:
            decoder = self._decoder_at(place)
            decoder.read_snapshot(self._property, self._buffers)
        else:
            decoder.go_to(place.journal, place.offset, place.gtid or None)
        with self._landing.begin(len(events)) as room:
            room[:] = events
        segments = [output for output in decoder.feed_file(self._landing.finish()) if isinstance(output, Segment)]
        self._decoder = decoder
        if not segments:
            return None
        (made,) = segments
        if EntryKind.ROWS not in made.kinds:
            made.recycle()
            return None
        return replace(made, subs=array("i", [place.sub_index]) * len(made))


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
