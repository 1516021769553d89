"""Reads entries in place, as `Messages` carries them: headers, and where statements and rows are.

It accepts everything that protobuf allows: fields in any order, repeated fields (the last one counts, headers merge),
unknown fields, omitted defaults, unknown enum numbers (as if omitted: docs/protocol.md#entry-schema).
"""

from __future__ import annotations

from array import array

import canal_ha.decode.kernel.codes as k
import canal_ha.decode.kernel.fields as f
import canal_ha.decode.kernel.kinds as e
import canal_ha.decode.kernel.primitives as p
import canal_ha.decode.kernel.repeats as r
import canal_ha.decode.kernel.texts as t
from canal_ha.model.entry import PARTIAL_PROP, SNAPSHOT_PROP

_ENTRY_TYPES = 5
_EVENT_TYPES = 15
_LENGTH_SHIFT = 28  # a length has at most five bytes
_NUMBER_SHIFT = 56  # nine bytes of a number that is not negative
_SHORTEST_REPLY = 9
_SNAPSHOT = SNAPSHOT_PROP.encode()
_SNAPSHOT_SIZE = len(_SNAPSHOT)
_PARTIAL = PARTIAL_PROP.encode()
_PARTIAL_SIZE = len(_PARTIAL)
_OWN_GTID = b"curtGtid"
_OWN_GTID_SIZE = len(_OWN_GTID)
_LARGEST_MS = (1 << 63) // 1000 - 1


def only_frames(src: bytes, start: int) -> bool:
    """Return whether the bytes from `start` on are nothing but whole frames that Entries accepts."""
    stop = p.held(src)
    pos = start
    while pos < stop:
        if p.u8(src, pos) != 0x12:
            return False
        pos += 1
        size = 0
        shift = 0
        while True:
            if pos == stop or shift > _LENGTH_SHIFT:
                return False
            byte = p.u8(src, pos)
            pos += 1
            size |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
        if size > stop - pos:
            return False
        pos += size
    return True


def whole_reply(data: bytes) -> tuple[int, int] | None:
    """Return the batch id of a reply to a GET, and where its frames begin.

    data: the reply with its length. None unless it is one whole MESSAGES packet, with type, body, id and frames in this
        order, whose id is not negative.
    """
    stop = len(data)
    if stop < _SHORTEST_REPLY or data[4] != 0x18 or data[5] != 7 or data[6] != 0x2A:
        return None
    if data[0] << 24 | data[1] << 16 | data[2] << 8 | data[3] != stop - 4:
        return None
    pos = 7
    size = 0
    shift = 0
    while True:
        if pos == stop or shift > _LENGTH_SHIFT:
            return None
        byte = data[pos]
        pos += 1
        size |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
    if size != stop - pos or pos == stop or data[pos] != 8:
        return None
    pos += 1
    number = 0
    shift = 0
    while True:
        if pos == stop or shift > _NUMBER_SHIFT:
            return None
        byte = data[pos]
        pos += 1
        number |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
    return (number, pos) if only_frames(data, pos) else None


def own_gtid_ranges(
    frames: bytes | bytearray | memoryview, ends: array[int], kinds: bytes | bytearray, inside: bool
) -> dict[str, tuple[int, int]]:
    """Return the least and the greatest number of the transactions of each source, as entries of MySQL name them.

    frames, ends, kinds: of a segment.
    inside: whether the first entry belongs to the transaction of an entry before it. Such entries do not count.
    The sources are `uuid` or `uuid:tag`. Transactions without a GTID do not count. Raises Broken.
    """
    found: dict[str, tuple[int, int]] = {}
    view = memoryview(frames)
    walk = Entries(b"", 0, 0)
    source = b""  # of the last transaction
    least = greatest = -1
    for index in range(p.length(ends)):
        kind = kinds[index]
        if kind == e.KIND_BEGIN or not inside:
            src = bytes(view[p.item(ends, index - 1) if index else 0 : p.item(ends, index)])
            walk.src = src
            walk.pos = 0
            walk.stop = p.held(src)
            if walk.next():
                start = walk.own_gtid_start
                at = walk.own_gtid_stop
                number = 0
                unit = 1
                while at > start and 0x30 <= p.u8(src, at - 1) <= 0x39:
                    at -= 1
                    number += unit * (p.u8(src, at) - 0x30)
                    unit *= 10
                if at > start:
                    if not p.same_bytes(src, start, at, source):
                        if greatest >= 0:
                            _widen(found, source, least, greatest)
                        source = src[start:at]
                        least = greatest = number
                    elif number > greatest:
                        greatest = number
                    elif number < least:
                        least = number
        if kind == e.KIND_BEGIN:
            inside = True
        elif kind == e.KIND_END:
            inside = False
    if greatest >= 0:
        _widen(found, source, least, greatest)
    return found


def _widen(found: dict[str, tuple[int, int]], source: bytes, least: int, greatest: int) -> None:
    name = source.decode()[:-1]
    low, high = found.get(name, (least, greatest))
    found[name] = (min(low, least), max(high, greatest))


class Entries(f.Cursor):
    """A walk over frames: field 2 of Messages, tag, length, entry, tag, length, ...

    After `next`: number of the entry; sub: its index among neighbours with the same journal and offset; kind: its
    entryType; the fields of its header, texts as start and stop; snapshot: id of the snapshot that read its rows,
    empty for entries of the binlog; own_gtid: of its transaction, empty without; partial: whether its new rows lack
    columns, as far as the node has said so.
    After `next_unusual`: frame_start, where the entry's frame begins.
    After `change`: event_type, is_ddl, statement, and `rows`: start and stop of each RowData in turn.
    """

    __slots__ = (
        "_forms", "_journal", "_journal_start", "_journal_stop", "_offset", "event_type", "frame_start", "gtid_start",
        "gtid_stop", "is_ddl", "journal_start", "journal_stop", "kind", "number", "offset", "own_gtid_start",
        "own_gtid_stop", "partial", "rows",
        "schema_start", "schema_stop", "server_id", "snapshot_start", "snapshot_stop", "sql_start", "sql_stop", "stop",
        "store_start", "store_stop", "sub", "table_start", "table_stop", "time_ms",
    )  # fmt: skip

    def __init__(self, src: bytes, start: int, stop: int) -> None:
        """src[start:stop]: the frames."""
        f.Cursor.__init__(self)
        self.src = src
        self.pos = start
        self.stop = min(stop, len(src))
        self.number = -1
        self.sub = 0
        self.offset = 0
        self.journal_start = self.journal_stop = 0
        self._offset = -1
        self._journal = b""
        self.rows = array("q")
        self.kind = k.ROWDATA
        self._forms = r.forms(_ENTRY_TYPES + 1)
        self.partial = False
        self.frame_start = start

    def next(self) -> bool:
        """Step to the next entry; return whether there is one. Raises Broken."""
        while self.pos < self.stop:
            start = -1
            if p.u8(self.src, self.pos) == 0x12:
                start, end = p.stretch(self.src, self.pos + 1, self.stop)
            if start >= 0:
                self.pos = start
                self._entry(end)
                return True
            tag = self.tag(self.stop)
            if tag == 0x12:
                self._entry(self.end(self.stop))
                return True
            self.skip(tag, self.stop)
        return False

    def next_unusual(self) -> int:
        """Step to the next statement, or to the next rows of an update or without all columns, as `change` reads them.

        Returns the number of rows, 0 for a statement, -1 at the end. Raises Broken.
        """
        self.frame_start = self.pos
        while self.next():
            if self.kind == k.ROWDATA:
                count = self.change()
                if count == 0 or self.event_type == k.EVENT_UPDATE or self.partial:
                    return count
            self.frame_start = self.pos
        return -1

    def only(self, src: bytes) -> None:
        """Continue with an entry that stands alone. Raises Broken."""
        self.src = src
        self.pos = 0
        self._entry(len(src))

    def _entry(self, end: int) -> None:
        src = self.src
        self.number += 1
        which = self.kind  # what follows an entry is mostly what followed the last one of its type
        head = r.head(self._forms, which, src, self.pos, end, k.ROWDATA, _ENTRY_TYPES, _SNAPSHOT, _OWN_GTID, _PARTIAL)
        if head.known:
            self.kind = head.kind
            self.partial = head.partial
            self.offset = head.offset
            self.server_id = head.server_id
            self.time_ms = head.time_ms
            self.journal_start = head.journal_start
            self.journal_stop = head.journal_stop
            self.schema_start = head.schema_start
            self.schema_stop = head.schema_stop
            self.table_start = head.table_start
            self.table_stop = head.table_stop
            self.gtid_start = head.gtid_start
            self.gtid_stop = head.gtid_stop
            self.snapshot_start = head.snapshot_start
            self.snapshot_stop = head.snapshot_stop
            self.store_start = head.store_start
            self.store_stop = head.store_stop
            self.own_gtid_start = head.own_gtid_start
            self.own_gtid_stop = head.own_gtid_stop
            self.pos = end
        else:
            self._fields(end)
        if not -_LARGEST_MS <= self.time_ms <= _LARGEST_MS:
            raise p.Broken("an execution time beyond all times")
        if not head.ascii and not (
            p.is_utf8(src, self.journal_start, self.journal_stop)
            and p.is_utf8(src, self.schema_start, self.schema_stop)
            and p.is_utf8(src, self.table_start, self.table_stop)
            and p.is_utf8(src, self.gtid_start, self.gtid_stop)
        ):
            raise p.Broken("a text of a header is no UTF-8")
        if self.offset == self._offset and p.same_bytes(src, self.journal_start, self.journal_stop, self._journal):
            self.sub += 1
        else:
            self.sub = 0
            self._offset = self.offset
            if not p.same_bytes(src, self.journal_start, self.journal_stop, self._journal):
                self._journal = src[self.journal_start : self.journal_stop]

    def _fields(self, end: int) -> None:
        """Read the fields of an entry in any form."""
        self.kind = k.ROWDATA
        self.partial = False
        self.offset = self.server_id = self.time_ms = 0
        self.journal_start = self.journal_stop = self.schema_start = self.schema_stop = 0
        self.table_start = self.table_stop = self.gtid_start = self.gtid_stop = 0
        self.snapshot_start = self.snapshot_stop = self.store_start = self.store_stop = 0
        self.own_gtid_start = self.own_gtid_stop = 0
        while self.pos < end:
            tag = self.tag(end)
            if tag == 0x0A:
                self._header(self.end(end))
            elif tag == 0x10:
                value = self.int32(end)
                if 0 < value <= _ENTRY_TYPES:
                    self.kind = value
            elif tag == 0x1A:
                self.store_stop = self.end(end)
                self.store_start = self.pos
                self.pos = self.store_stop
            else:
                self.skip(tag, end)

    def _header(self, end: int) -> None:
        src = self.src
        while self.pos < end:
            tag = src[self.pos]
            if 8 <= tag < 128:
                self.pos += 1
            else:
                tag = self.tag(end)
            kind = tag & 7
            if kind == 2:
                start, stop = p.stretch(src, self.pos, end)
                if start < 0:
                    stop = self.end(end)
                    start = self.pos
                self.pos = stop
                if tag == 0x12:
                    self.journal_start = start
                    self.journal_stop = stop
                elif tag == 0x42:
                    self.schema_start = start
                    self.schema_stop = stop
                elif tag == 0x4A:
                    self.table_start = start
                    self.table_stop = stop
                elif tag == 0x6A:
                    self.gtid_start = start
                    self.gtid_stop = stop
                elif tag == 0x62:
                    self.pos = start
                    self._prop(stop)
            elif kind == 0:
                value, after = p.number(src, self.pos, end)
                if after < 0:
                    value = self.varint(end)
                else:
                    self.pos = after
                if tag == 0x18:
                    self.offset = t.int64(value)
                elif tag == 0x20:
                    self.server_id = t.int64(value)
                elif tag == 0x30:
                    self.time_ms = t.int64(value)
            else:
                self.skip(tag, end)

    def _prop(self, end: int) -> None:
        src = self.src
        key_start = key_stop = value_start = value_stop = 0
        while self.pos < end:
            tag = src[self.pos]
            if 8 <= tag < 128:
                self.pos += 1
            else:
                tag = self.tag(end)
            if tag & 7 != 2:
                self.skip(tag, end)
                continue
            start, stop = p.stretch(src, self.pos, end)
            if start < 0:
                stop = self.end(end)
                start = self.pos
            self.pos = stop
            if tag == 0x0A:
                key_start = start
                key_stop = stop
            elif tag == 0x12:
                value_start = start
                value_stop = stop
        if key_stop - key_start == _SNAPSHOT_SIZE and p.same_bytes(src, key_start, key_stop, _SNAPSHOT):
            if not p.is_utf8(src, value_start, value_stop):
                raise p.Broken("a text of a header is no UTF-8")
            self.snapshot_start = value_start
            self.snapshot_stop = value_stop
        elif key_stop - key_start == _OWN_GTID_SIZE and p.same_bytes(src, key_start, key_stop, _OWN_GTID):
            if not p.is_utf8(src, value_start, value_stop):
                raise p.Broken("a text of a header is no UTF-8")
            self.own_gtid_start = value_start
            self.own_gtid_stop = value_stop
        elif key_stop - key_start == _PARTIAL_SIZE and p.same_bytes(src, key_start, key_stop, _PARTIAL):
            self.partial = True

    def change(self) -> int:
        """Read the RowChange of the current entry without its rows; return how many there are. Raises Broken."""
        after = self.pos
        end = self.store_stop
        src = self.src
        rows = self.rows
        p.cut(rows, 0)
        read = r.change(src, self.store_start, end, k.EVENT_UPDATE, _EVENT_TYPES, rows)
        self.pos = read.pos
        self.event_type = read.event_type
        self.is_ddl = read.is_ddl
        self.sql_start = self.sql_stop = 0
        while self.pos < end:
            tag = self.tag(end)
            if tag == 0x62:
                start, stop = p.stretch(src, self.pos, end)
                if start < 0:
                    stop = self.end(end)
                    start = self.pos
                p.push(rows, start)
                p.push(rows, stop)
                self.pos = stop
            elif tag == 0x10:
                value = self.int32(end)
                if 0 < value <= _EVENT_TYPES:
                    self.event_type = value
            elif tag == 0x50:
                self.is_ddl = self.varint(end) != 0
            elif tag == 0x5A:
                self.sql_stop = self.end(end)
                self.sql_start = self.pos
                self.pos = self.sql_stop
            elif tag == 0x6A:
                self.check(self.end(end))
            else:
                self.skip(tag, end)
        self.pos = after
        if not p.is_utf8(self.src, self.sql_start, self.sql_stop):
            raise p.Broken("a statement that is no UTF-8")
        return p.length(rows) >> 1

    def texts(self) -> tuple[str, str, str, str, str, str]:
        """Return schema, table, journal, GTID set, statement and snapshot."""
        return (
            self.text(self.schema_start, self.schema_stop),
            self.text(self.table_start, self.table_stop),
            self.text(self.journal_start, self.journal_stop),
            self.text(self.gtid_start, self.gtid_stop),
            self.text(self.sql_start, self.sql_stop),
            self.text(self.snapshot_start, self.snapshot_stop) if self.snapshot_stop else "",
        )

    def text(self, start: int, stop: int) -> str:
        """Return one of the texts, which are all known to be UTF-8."""
        return t.as_text(self.src, start, stop)
