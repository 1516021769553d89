"""The push parser: bytes of a dump or of a binlog file -> events -> transactions -> entries.

`feed` takes bytes, `step` works until there is something that Python has to know: more bytes are needed, a segment is
full, an event came that the kernel leaves to the decoder, the server said something that is no event. What is frequent
(table maps already known, rows, transaction begins and ends) never leaves here. Raises Broken.
"""

from __future__ import annotations

import canal_ha.decode.kernel.cells as c
import canal_ha.decode.kernel.grouping as g
import canal_ha.decode.kernel.kinds as k
import canal_ha.decode.kernel.primitives as p
import canal_ha.decode.kernel.rows as r
from canal_ha.decode.kernel.gtid import Gtids, uuid_text

NO_TABLE = b"\x42\x00\x4a\x00"  # schemaName and tableName, both present and empty
_EVENT_TYPES = (b"", b"\x58\x01", b"\x58\x02", b"\x58\x03")  # Header.eventType INSERT, UPDATE, DELETE
QUERY_TYPE = b"\x58\x07"
_CHANGE_TYPES = (b"", b"\x10\x01\x50\x00", b"\x10\x02\x50\x00", b"\x10\x03\x50\x00")  # eventType, isDdl = false
_ENTRY_TYPES = (b"", b"\x10\x01\x1a", b"\x10\x02\x1a", b"\x10\x03\x1a")  # entryType, tag of storeValue
_DUMMY_TABLE = 0xFFFFFF  # the table id of an event that only ends a statement
_FULL_PACKET = 0xFFFFFF
_HALF = 0x80000000  # of what a position in an event header can say


def _rows_count(rows: int) -> bytes:
    """Header.props: the number of rows in the event."""
    number = b"%d" % rows
    return b"\x62" + p.varint(13 + len(number)) + b"\x0a\x09rowsCount\x12" + p.varint(len(number)) + number


_ROWS_KNOWN = 1024
_ROWS_COUNT = tuple(_rows_count(rows) for rows in range(_ROWS_KNOWN))


class Stream:
    """One stream's parser. Its owner reads and writes the attributes below between steps.

    position: bytes into the journal, behind the last event; offset, length, timestamp, server_id, flags: of the current
    event; event_src[event_at:event_stop]: its body without checksum; event_start: its header in event_src.
    checksum: 4 when events end in a CRC32; known_format: a format description was seen.
    plans: table id -> plan; passed_position: behind the last event outside any transaction, -1 when nothing is new;
    passed_gtid: the set executed there.
    """

    __slots__ = (
        "base",
        "begun",
        "checksum",
        "chunk",
        "chunk_pos",
        "clock",
        "clock_server_id",
        "clock_timestamp",
        "drop",
        "drop_statements",
        "event_at",
        "event_kind",
        "event_src",
        "event_start",
        "event_stop",
        "flags",
        "frame",
        "group",
        "gtids",
        "joined",
        "journal_field",
        "known_format",
        "length",
        "limit",
        "need",
        "offset",
        "open",
        "outer",
        "outer_limit",
        "outer_pos",
        "packets",
        "passed_gtid",
        "passed_position",
        "passed_timestamp",
        "payload",
        "pending",
        "plan",
        "plan_id",
        "plans",
        "pos",
        "position",
        "segment_bytes",
        "server_id",
        "src",
        "store",
        "sub",
        "timestamp",
        "writer",
    )

    def __init__(
        self, journal: str, position: int, transaction_size: int, segment_bytes: int, gtids: Gtids | None
    ) -> None:
        """gtids: the executed set that headers carry; None outside GTID mode."""
        self.packets = True
        self.src = b""
        self.pos = 0
        self.limit = 0
        self.pending = bytearray()
        self.need = 0
        self.chunk = b""  # what came last, from chunk_pos on not looked at
        self.chunk_pos = 0
        self.joined = False  # src was put together, and the rest of the chunk follows it
        self.outer = b""
        self.outer_pos = 0
        self.outer_limit = 0
        self.payload = False
        self.checksum = 0
        self.known_format = False
        self.position = position
        self.base = position & ~0xFFFFFFFF
        self.offset = position
        self.sub = 0
        self.length = 0
        self.timestamp = 0
        self.server_id = 0
        self.flags = 0
        self.event_kind = 0
        self.event_src = b""
        self.event_start = 0
        self.event_at = 0
        self.event_stop = 0
        self.plans: dict[int, c.TablePlan] = {}
        self.plan: c.TablePlan | None = None  # the one that was last asked for, of `plan_id`
        self.plan_id = -1
        self.drop = [False, False, False, False]  # by rows.INSERT, UPDATE, DELETE
        self.drop_statements = False  # no entries for what accompanies rows or statements
        self.gtids = gtids
        self.open = False  # inside a transaction, or between its GTID and its first event
        self.begun = False
        self.passed_position = -1
        self.passed_timestamp = 0
        self.passed_gtid = "" if gtids is None else gtids.text
        self.segment_bytes = segment_bytes
        self.group = g.Grouping(transaction_size)
        self.writer = r.RowWriter()
        self.frame = bytearray()
        self.store = bytearray()
        self.clock = b""
        self.clock_timestamp = -1
        self.clock_server_id = -1
        self.journal_field = b""
        self.set_journal(journal, position)
        if gtids is not None:
            self.group.gtid = gtids.text

    def set_journal(self, journal: str, position: int) -> None:
        """Events come from this file and offset on; table ids start anew."""
        name = journal.encode("utf-8", "replace")
        # version = 1, logfileName, tag of logfileOffset
        self.journal_field = b"\x08\x01\x12" + p.varint(len(name)) + name + b"\x18"
        self.position = position
        self.base = position & ~0xFFFFFFFF
        self.forget_plans()

    def set_plan(self, table_id: int, plan: c.TablePlan) -> None:
        """What to do with the rows of this table id."""
        self.plans[table_id] = plan
        self.plan_id = -1

    def forget_plans(self) -> None:
        """Table ids start anew."""
        self.plans.clear()
        self.plan_id = -1

    def _plan(self, table_id: int) -> c.TablePlan | None:
        if table_id != self.plan_id:
            self.plan = self.plans.get(table_id)
            self.plan_id = table_id
        return self.plan

    # ---- bytes

    def feed(self, data: bytes) -> bool:
        """Take in more bytes; False when they are not enough for a step. `step` returned NEED before."""
        self.chunk = data
        self.chunk_pos = 0
        if self.pending:
            return self._join()
        self._enter_chunk()
        return True

    def _enter_chunk(self) -> None:
        """Go on with what is left of the bytes that came last."""
        self.src = self.chunk
        self.pos = self.chunk_pos
        self.limit = len(self.chunk)
        self.joined = False

    def _join(self) -> bool:
        """Complete what is pending, so far as it is known, from the bytes that came last; False when that is not all.

        Only what lies across two chunks is copied.
        """
        pending = self.pending
        stop = min(self.chunk_pos + self.need - len(pending), len(self.chunk))
        p.put_slice(pending, self.chunk, self.chunk_pos, stop)
        self.chunk_pos = stop
        if len(pending) < self.need:
            self.chunk = b""
            return False
        self.src = bytes(pending)
        self.pending = bytearray()  # gives back the memory of a large event
        self.pos = 0
        self.limit = len(self.src)
        self.joined = True
        return True

    def _starve(self, need: int) -> int:
        """Keep the beginning of what is not complete, or complete it. need: bytes from here to go on."""
        if self.joined and self.pos == self.limit:
            self._enter_chunk()
            return -1
        p.put_slice(self.pending, self.src, self.pos, self.limit)
        self.need = need
        if self.joined and self._join():
            return -1
        self.src = b""
        self.chunk = b""
        self.pos = 0
        self.limit = 0
        self.joined = False
        return k.NEED

    def enter_payload(self, data: bytes) -> None:
        """Read events from `data`, the content of the current compressed payload event, before going on."""
        if self.payload:
            raise p.Broken("a compressed payload inside another")
        self.outer = self.src
        self.outer_pos = self.pos
        self.outer_limit = self.limit
        self.src = data
        self.pos = 0
        self.limit = len(data)
        self.payload = True

    def step(self) -> int:
        """Work until the decoder is needed; say for what."""
        while True:
            code = self._next()
            if code >= 0:
                return code
            if self.group.visible_bytes >= self.segment_bytes:
                return k.SEGMENT

    def _next(self) -> int:
        """Frame one event and handle it. -1: go on."""
        src = self.src
        pos = self.pos
        left = self.limit - pos
        if self.payload:
            if left == 0:
                self.src = self.outer
                self.pos = self.outer_pos
                self.limit = self.outer_limit
                self.payload = False
                self.outer = b""
                self.sub = 0
                return -1
            if left < 19 or p.u32(src, pos + 9) > left or p.u32(src, pos + 9) < 19:
                raise p.Broken("an event beyond its compressed payload")
            self.pos = pos + p.u32(src, pos + 9)
            return self._event(src, pos, self.pos)
        if not self.packets:
            if left < 19:
                return self._starve(19)
            size = p.u32(src, pos + 9)
            if size < 19 or size > k.EVENT_MAX:
                self.offset = self.position
                raise p.Broken(f"an event of {size} bytes")
            if size > left:
                return self._starve(size)
            self.pos = pos + size
            return self._event(src, pos, self.pos)
        if left < 5:
            return self._starve(5)
        self.offset = self.position
        size = p.u24(src, pos)
        if size == _FULL_PACKET:
            return self._large(left)
        if size == 0:
            raise p.Broken("an empty packet")
        if size + 4 > left:
            return self._starve(size + 4)
        self.pos = pos + 4 + size
        if src[pos + 4]:
            self.event_src = src
            self.event_at = pos + 4
            self.event_stop = self.pos
            return k.SAID
        return self._event(src, pos + 5, self.pos)

    def _large(self, left: int) -> int:
        """An event in several packets: the event header says how many bytes there are in all."""
        src = self.src
        pos = self.pos
        if left < 24:
            return self._starve(24)
        if src[pos + 4]:
            raise p.Broken("a large packet that is no event")
        size = p.u32(src, pos + 14) + 1
        packets = size // _FULL_PACKET + 1
        if size < _FULL_PACKET:
            raise p.Broken(f"an event of {size - 1} bytes in a larger packet")
        if size > k.EVENT_MAX:
            raise p.Broken(f"an event of {size - 1} bytes")
        if left < size + 4 * packets:
            return self._starve(size + 4 * packets)
        whole = bytearray()
        for index in range(packets):
            part = _FULL_PACKET if index + 1 < packets else size % _FULL_PACKET
            if p.u24(src, pos) != part:
                raise p.Broken("a packet of another length than its event asks for")
            p.put_slice(whole, src, pos + 4, pos + 4 + part)
            pos += 4 + part
        self.pos = pos
        return self._event(bytes(whole), 1, size)

    # ---- events

    def _event(self, src: bytes, start: int, stop: int) -> int:
        """Handle src[start:stop], an event with header and checksum. -1: done; EVENT: the decoder's turn."""
        if stop - start < 19:
            raise p.Broken("an event shorter than its header")
        timestamp, kind, server_id, length, log_pos, flags = p.event_header(src, start)
        self.timestamp = timestamp
        self.server_id = server_id
        self.flags = flags
        body = start + 19
        if not self.payload:
            self.offset = self.position
            if length != stop - start:
                raise p.Broken(f"an event of {length} bytes in a packet for {stop - start}")
            self.length = length
            if self.checksum and kind != k.FORMAT_DESCRIPTION and kind != k.ROTATE:
                if stop - body < 4 or not p.checksum_holds(src, start, stop):
                    raise p.Broken(f"the checksum of an event of type {kind} does not hold")
                stop -= 4
            # A heartbeat names the last event's end; a dump from within a journal begins with the format description
            # of its start.
            placed = kind not in (k.HEARTBEAT, k.HEARTBEAT_V2) and (kind != k.FORMAT_DESCRIPTION or self.position <= 4)
            if log_pos and placed:
                self._locate(log_pos, length)
        code = k.EVENT
        if kind == k.TABLE_MAP:
            code = self._table_map(src, body, stop)
        elif 23 <= kind <= 25 or 30 <= kind <= 32 or kind == k.PARTIAL_UPDATE_ROWS:
            self.rows_event(kind, src, body, stop)
            code = -1
        elif kind == k.XID:
            self._xid(src, body, stop)
            code = -1
        elif kind == k.QUERY:
            code = self._query(src, body, stop)
        elif kind in (k.GTID, k.ANONYMOUS_GTID):
            self._gtid(kind, src, body, stop)
            code = -1
        elif kind == k.MARIADB_GTID:
            self._mariadb_gtid(src, body, stop)
            code = -1
        elif kind == k.ANNOTATE_ROWS:
            if not self.drop_statements:
                self._annotate(src, body, stop)
            code = -1
        if code == k.EVENT:
            self.event_kind = kind
            self.event_src = src
            self.event_start = start
            self.event_at = body
            self.event_stop = stop
        elif not self.open:
            self.pass_event()
        return code

    def _locate(self, log_pos: int, length: int) -> None:
        """Positions in event headers have 32 bits; a large transaction can carry a journal beyond them."""
        end = self.base + log_pos
        if end + _HALF < self.position:
            self.base += 2 * _HALF
            end += 2 * _HALF
        if end < length:
            raise p.Broken(f"an event of {length} bytes that ends at {end}")
        self.position = end
        self.offset = end - length

    def pass_event(self) -> None:
        """Everything before this position is decoded and visible, unless entries wait for the end of their group."""
        if p.length(self.group.ends) == self.group.visible:
            self.passed_position = self.position
            self.passed_timestamp = self.timestamp
            self.passed_gtid = self.group.gtid

    def close(self) -> None:
        """A transaction is over, with whatever event ends it."""
        self.open = False
        self.begun = False

    def _table_map(self, src: bytes, body: int, stop: int) -> int:
        if stop - body < 8:
            raise p.Broken("a table map without an id")
        plan = self._plan(p.u48(src, body))
        if plan is not None and p.same_bytes(src, body, stop, plan.body):
            return -1
        return k.EVENT

    def rows_event(self, kind: int, src: bytes, body: int, stop: int) -> None:
        """One entry of all the rows of an event."""
        if stop - body < 10:
            raise p.Broken("a rows event without a header")
        table_id = p.u48(src, body)
        pos = body + 8
        if kind >= 30:
            extra = p.u16(src, pos)
            if extra < 2 or pos + extra > stop:
                raise p.Broken("a rows event whose extra data makes no sense")
            pos += extra
        plan = self._plan(table_id)
        if plan is not None:
            change = k.UPDATE
            if kind == 23 or kind == 30:
                change = k.INSERT
            elif kind == 25 or kind == 32:
                change = k.DELETE
            if not plan.drop and not self.drop[change]:
                self._put_rows(plan, change, kind == k.PARTIAL_UPDATE_ROWS, src, pos, stop)
        elif table_id != _DUMMY_TABLE:
            raise p.Broken(f"rows of table id {table_id}, which no table map has announced")

    def _put_rows(self, plan: c.TablePlan, change: int, partial: bool, src: bytes, pos: int, stop: int) -> None:
        group = self.group
        group.room()
        out = group.out
        mark = len(out)
        size = plan.head_size
        p.reserve(out, size)
        count = self.writer.rows(plan, change, partial, src, pos, stop, out)
        frame = self.frame
        p.truncate(frame, 0)
        store = len(plan.change) + 4 + len(out) - mark - size
        entry = self._put_frame(frame, k.TYPE_ROWS, plan.names, _EVENT_TYPES[change], count, True, store)
        p.put(frame, plan.change)
        p.put(frame, _CHANGE_TYPES[change])
        plan.head_size = len(frame)
        p.fill(out, mark, size, frame)
        self._added(k.KIND_ROWS, count, entry)
        group.has_rows = True

    def _xid(self, src: bytes, body: int, stop: int) -> None:
        if stop - body < 8:
            raise p.Broken("an XID event without its number")
        store = self.store
        p.truncate(store, 0)
        p.put(store, b"\x12\0")
        p.put_unsigned(store, p.u64(src, body))
        p.set_byte(store, 1, len(store) - 2)
        self.put_entry(k.KIND_END, k.TYPE_END, NO_TABLE, b"", store, True, True)
        self.close()

    def _query(self, src: bytes, body: int, stop: int) -> int:
        """BEGIN, the one statement that is frequent in a binlog of rows."""
        if stop - body < 14:
            raise p.Broken("a query event without a header")
        at = body + 14 + p.u16(src, body + 11) + src[body + 8]
        if at > stop:
            raise p.Broken("a query event whose statement lies beyond it")
        if stop - at != 5 or not p.same_bytes(src, at, stop, b"BEGIN"):
            return k.EVENT
        store = self.store
        p.truncate(store, 0)
        p.put_byte(store, 0x20)
        p.put_varint(store, p.u32(src, body))
        self.begin(store)
        return -1

    def begin(self, store: bytes | bytearray) -> None:
        """A transaction begins with this TransactionBegin."""
        self.group.flush()
        self.put_entry(k.KIND_BEGIN, k.TYPE_BEGIN, NO_TABLE, b"", store, True, False)
        self.open = True
        self.begun = True

    def _gtid(self, kind: int, src: bytes, body: int, stop: int) -> None:
        self.open = True
        self.begun = False
        if self.gtids is not None and kind != k.ANONYMOUS_GTID:
            self._executed(self.gtids, src, body, stop)

    def _executed(self, gtids: Gtids, src: bytes, body: int, stop: int) -> None:
        """A transaction of MySQL with this GTID event counts as executed."""
        if stop - body < 25:
            raise p.Broken("a GTID event without its number")
        committed = sequence = 0
        if stop - body >= 42 and src[body + 25] == 2:
            committed = p.u64(src, body + 26)
            sequence = p.u64(src, body + 34)
        gtids.mysql(uuid_text(src[body + 1 : body + 17]), "", p.u64(src, body + 17), committed, sequence)
        self.group.gtid = gtids.text

    def _mariadb_gtid(self, src: bytes, body: int, stop: int) -> None:
        if stop - body < 13:
            raise p.Broken("a GTID event without its number")
        self.group.flush()
        self.open = True
        self.begun = src[body + 12] & 1 == 0  # FL_STANDALONE: one statement follows, else this stands for BEGIN
        gtids = self.gtids
        if gtids is not None:
            gtids.mariadb(p.u32(src, body + 8), self.server_id, p.u64(src, body))
            self.group.gtid = gtids.text

    def _annotate(self, src: bytes, body: int, stop: int) -> None:
        text = bytearray()
        p.put_text(text, src, body, stop)
        store = bytearray(b"\x10\x07\x5a")
        p.put_varint(store, len(text))
        p.put(store, text)
        self.put_entry(k.KIND_QUERY, k.TYPE_ROWS, NO_TABLE, QUERY_TYPE, store, True, True)

    # ---- entries

    def put_entry(
        self,
        kind: int,
        entry_type: int,
        names: bytes,
        event_type: bytes,
        store: bytes | bytearray,
        with_gtid: bool,
        shows: bool,
    ) -> None:
        """Append an entry that is not of rows. names, event_type: the header's fields, encoded; store: storeValue.

        with_gtid: the header tells the GTID, in GTID mode; shows: the group ends with this entry and becomes visible.
        """
        group = self.group
        group.room()
        size = self._put_frame(group.out, entry_type, names, event_type, 0, with_gtid, len(store))
        p.put(group.out, store)
        self._added(kind, 0, size)
        if entry_type == k.TYPE_ROWS:
            group.has_rows = True
        if shows:
            group.flush()

    def _clock(self) -> bytes:
        """The header's fields from serverId to sourceType, of the current event."""
        if self.timestamp != self.clock_timestamp or self.server_id != self.clock_server_id:
            self.clock_timestamp = self.timestamp
            self.clock_server_id = self.server_id
            self.clock = (  # serverId, serverenCode, executeTime, sourceType = MYSQL
                b"\x20"
                + p.varint(self.server_id)
                + b"\x2a\x05UTF-8\x30"
                + p.varint(self.timestamp * 1000)
                + b"\x38\x02"
            )
        return self.clock

    def _put_frame(
        self, out: bytearray, entry_type: int, names: bytes, event_type: bytes, rows: int, with_gtid: bool, store: int
    ) -> int:
        """What precedes a storeValue of `store` bytes: the frame, the Entry, its Header. Return the Entry's length."""
        clock = self._clock()
        count = b""
        if rows:
            count = _ROWS_COUNT[rows] if rows < _ROWS_KNOWN else _rows_count(rows)
        props = field = b""
        gtids = self.gtids
        if gtids is not None and with_gtid:
            props = gtids.props
            field = gtids.field
        return p.put_frame(
            out,
            self.journal_field,
            self.offset,
            clock,
            names,
            self.length,
            event_type,
            props,
            count,
            field,
            _ENTRY_TYPES[entry_type],
            store,
        )

    def _added(self, kind: int, rows: int, size: int) -> None:
        self.group.added(kind, self.offset, self.sub, self.timestamp * 1000, self.length, rows, self.server_id, size)
        if self.payload:
            self.sub += 1
