"""The push parser: bytes of a dump or of a binlog file -> events -> transactions -> entries.

`feed` takes bytes, `step` works until Python has to act: more bytes are needed, a segment is full, the decoder has to
handle an event, or the server sent a packet that is not an event. Frequent events (known table maps, rows, transaction
begins and ends) are handled here completely. Raises Broken.

An incomplete event of more than _LANDED bytes is put together in memory of its size, into which its owner can receive:
see `room`. So no byte of a large event is copied before it is decoded, except where its packets meet.

While it works on more than a few bytes, it releases the interpreter's lock so that other threads run. `step` does
everything that needs the lock before and after that; rare work in between takes the lock. Only its owner's thread uses
an EventStream, and the bytes fed belong to it until `step` returns.
"""

from __future__ import annotations

from collections.abc import Iterator

import canal_ha.decode.kernel.cells as c
import canal_ha.decode.kernel.grouping as g
import canal_ha.decode.kernel.gtid as gtid
import canal_ha.decode.kernel.kinds as k
import canal_ha.decode.kernel.primitives as p
import canal_ha.decode.kernel.reuse as reuse
import canal_ha.decode.kernel.rows as r
import canal_ha.decode.kernel.views as views

try:
    import cython
except ImportError:  # only a compiled build needs it; an interpreted one releases no lock
    import canal_ha.decode.kernel.no_cython as cython

p.prepare()

NO_TABLE = b"\x42\x00\x4a\x00"  # schemaName and tableName, both present and empty
_NO_TABLE = NO_TABLE
_PLANS_SEEN = 1024  # plans found without asking `plans`; a power of two
_ALONE = 8192  # bytes: with fewer to work on, the interpreter's lock is kept
_STATEMENT_KEPT = 1 << 20  # bytes: memory of a longer one is freed
_STATEMENT_ENDS = 1  # STMT_END_F of a rows event: its table maps do not count any more
_DUMMY_TABLE = 0xFFFFFF  # the table id of an event that only ends a statement
_FULL_PACKET = 0xFFFFFF
_LANDED = 1 << 20  # bytes: an incomplete event above this gets memory of its size at once
_GROUP_COMMIT_ID, _XA = 2, 0xC0  # flags of MariaDB's GTID events: further fields follow
_START_ALTER, _ROLLBACK_ALTER = 2, 8  # their further flags
_HALF = 0x80000000  # half the range of a position in an event header


# Results of `_work` besides the numbers in kinds.
_GO_ON = -1
_STARVED = -2  # `need` bytes are required from `pos` on
_REFILL = -3  # the payload's next piece is required
_LARGE = -4  # a large packet begins at `pos`


class EventStream:
    """One stream's parser. Its owner reads and writes the attributes below between steps.

    position: bytes into the journal, behind the last event.
    offset, length, timestamp, server_id, flags: of the current event; event_src[event_at:event_stop]: its body without
    checksum; event_start: its header in event_src.
    checksum: 4 if events end in a CRC32.
    known_format: a format description was seen.
    plans, older_plans: table id -> plan, in two generations.
    hold_xa: whether the decoder takes the events of prepared XA transactions; holding: inside one.
    payload: the events do not come from the bytes fed. compressed: they come from a compressed payload event; prepared:
    they belong to a prepared transaction that the current event commits, and have its time. Both may hold.
    passed_position: behind the last event outside any transaction; -1 if nothing is new; passed_gtid: the set executed
    there.
    without_effect: the statement behind the current GTID only starts an ALTER TABLE, or rolls it back.
    """

    __slots__ = (
        "announced",
        "base",
        "begun",
        "checksum",
        "chunk",
        "chunk_pos",
        "clock",
        "clock_server_id",
        "clock_timestamp",
        "compressed",
        "doubts",
        "drop",
        "drop_savepoints",
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
        "has_gtids",
        "hold_xa",
        "holding",
        "joined",
        "journal_field",
        "known_format",
        "known_gtids",
        "landing",
        "landing_at",
        "landing_packets",
        "landing_size",
        "landing_stop",
        "landings",
        "length",
        "limit",
        "mark",
        "need",
        "offset",
        "older_plans",
        "open",
        "outers",
        "packets",
        "partial_mark",
        "passed_executed",
        "passed_position",
        "passed_timestamp",
        "payload",
        "pending",
        "pieces",
        "places",
        "plans",
        "plans_seen",
        "pos",
        "position",
        "prepared",
        "segment_bytes",
        "server_id",
        "src",
        "store",
        "sub",
        "text",
        "timestamp",
        "wide",
        "without_effect",
        "writer",
    )

    def __init__(
        self, journal: str, position: int, transaction_size: int, segment_bytes: int, gtids: gtid.Gtids | None
    ) -> None:
        """gtids: the executed set that headers carry; None outside GTID mode."""
        self.packets = True
        self.src = b""
        self.pos = 0
        self.limit = 0
        self.pending = bytearray()
        self.need = 0
        self.chunk = b""  # the last bytes fed, not yet looked at from chunk_pos on
        self.chunk_pos = 0
        self.joined = False  # whether src was joined from pieces, and the rest of the chunk follows it
        self.landing = reuse.room([], 0, 1, 0, 0)  # memory of a large event; landing_at of landing_size bytes are there
        self.landing_at = 0
        self.landing_size = 0  # 0: no large event is being put together
        self.landing_stop = 0  # where its current packet ends
        self.landing_packets = 0  # that follow this one
        self.landings = 0  # large events begun
        self.wide = False  # whether src is an event of several packets, with the header of the first one only
        # what payloads and prepared parts interrupt: src, pos, limit, pieces, compressed, prepared
        self.outers: list[tuple[bytes, int, int, Iterator[bytes], bool, bool]] = []
        self.payload = False
        self.prepared = False
        self.compressed = False
        self.pieces: Iterator[bytes] = iter(())  # of the payload or the prepared part, not yet read
        self.hold_xa = False
        self.holding = False
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
        self.older_plans: dict[int, c.TablePlan] = {}
        self.announced = False  # whether the current statement has a table map
        self.doubts = 0  # how often tables may have changed; a plan from before the last time is not trusted
        self.places = bytearray()
        self.plans_seen = views.places(self.places, _PLANS_SEEN)  # views of plans, by the last bits of their table ids
        self.drop = bytearray(4)  # by kinds.INSERT, UPDATE, DELETE: 1 if such changes are filtered out
        self.drop_statements = False  # whether the statements that accompany rows give no entries
        self.drop_savepoints = False  # whether SAVEPOINT gives no entry
        self.mark = b""  # of entries with rows: see primitives.put_frame
        self.partial_mark = b""  # likewise, if their new images lack columns
        self.has_gtids = gtids is not None
        self.gtids = gtids
        self.known_gtids = gtid.Gtids("") if gtids is None else gtids
        self.open = False  # inside a transaction, or between its GTID and its first event
        self.begun = False
        self.without_effect = False
        self.passed_position = -1
        self.passed_timestamp = 0
        self.passed_executed = bytearray()
        self.segment_bytes = segment_bytes
        self.group = g.Grouping(transaction_size)
        self.writer = r.RowWriter()
        self.frame = bytearray()
        self.store = bytearray()
        self.text = bytearray()
        self.clock = b""
        self.clock_timestamp = -1
        self.clock_server_id = -1
        self.journal_field = b""
        self.set_journal(journal, position)
        if gtids is not None:
            self.take_gtids()
            p.put(self.passed_executed, gtids.executed)

    def set_journal(self, journal: str, position: int) -> None:
        """Take events from this file and offset on."""
        name = journal.encode("utf-8", "replace")
        # version = 1, logfileName, tag of logfileOffset
        self.journal_field = b"\x08\x01\x12" + p.varint(len(name)) + name + b"\x18"
        self.position = position
        self.base = position & ~0xFFFFFFFF

    def go_to(self, journal: str, position: int, gtids: gtid.Gtids | None) -> None:
        """Take events from elsewhere on, outside a transaction. The arguments are those of the constructor."""
        self.set_journal(journal, position)
        self.offset = position
        self.has_gtids = gtids is not None
        self.gtids = gtids
        self.known_gtids = gtid.Gtids("") if gtids is None else gtids
        self.take_gtids()

    def set_plan(self, table_id: int, plan: c.TablePlan) -> None:
        """Set the plan for the rows of this table id."""
        plan.table_id = table_id
        plan.doubts = self.doubts
        self.plans[table_id] = plan
        self.plans_seen[table_id & (_PLANS_SEEN - 1)] = views.view(plan)
        self.announced = True

    def age_plans(self) -> bool:
        """Forget the older plans, and make the others the older ones.

        Return False if the current statement has a table map already: its rows need their plans.
        """
        if self.announced:
            return False
        younger = self.plans
        self.forget_plans()
        self.older_plans = younger
        return True

    def forget_plans(self) -> None:
        """Forget all plans."""
        self.plans = {}
        self.older_plans = {}
        for index in range(_PLANS_SEEN):
            self.plans_seen[index] = views.nothing()

    def doubt_plans(self) -> None:
        """Let the decoder handle the next table map of each table, because tables may have changed."""
        self.doubts += 1

    def _plan(self, table_id: int) -> c.TablePlan:
        """Return the view of a table's plan; without a plan, a view with a different table id."""
        plan = self.plans_seen[table_id & (_PLANS_SEEN - 1)]
        if plan.table_id != table_id:
            plan = self._find_plan(table_id)
        return plan

    def _find_plan(self, table_id: int) -> c.TablePlan:
        plan = self.plans.get(table_id)
        if plan is None:
            plan = self.older_plans.get(table_id)
        if plan is None:
            return views.nothing()
        self.plans_seen[table_id & (_PLANS_SEEN - 1)] = views.view(plan)
        return self.plans_seen[table_id & (_PLANS_SEEN - 1)]

    @property
    def passed_gtid(self) -> str:
        """The set executed at passed_position."""
        return self.passed_executed.decode()

    def take_gtids(self) -> None:
        """Use the grown set in the entries from here on."""
        p.truncate(self.group.executed, 0)
        p.put(self.group.executed, self.known_gtids.executed)

    # ---- bytes

    def feed(self, data: bytes) -> bool:
        """Take more bytes; return False if they are not enough for a step. `step` must have returned NEED before."""
        self.chunk = data
        self.chunk_pos = 0
        if self.landing_size:
            self._enter_chunk()
            return self._land()
        if self.pending:
            return self._join()
        self._enter_chunk()
        return True

    def room(self) -> memoryview | None:
        """Return memory for the next bytes of a large event, which is incomplete; None if `feed` must take them.

        Write bytes there, release the view, then call `received`.
        """
        if self.landing_at == self.landing_stop:
            return None
        return reuse.writable(self.landing)[self.landing_at : self.landing_stop]

    def received(self, count: int) -> bool:
        """Take the first bytes in `room`. Return as `feed` does."""
        self.landing_at += count
        return self._landed()

    def _enter_chunk(self) -> None:
        """Continue with the rest of the last bytes fed."""
        self.src = self.chunk
        self.pos = self.chunk_pos
        self.limit = len(self.chunk)
        self.joined = False

    def _join(self) -> bool:
        """Complete the pending bytes from the last ones fed; return False if more are needed.

        Only bytes of events that cross two chunks are copied.
        """
        pending = self.pending
        stop = min(self.chunk_pos + self.need - len(pending), len(self.chunk))
        p.put_slice(pending, self.chunk, self.chunk_pos, stop)
        self.chunk_pos = stop
        if len(pending) < self.need:
            self.chunk = b""
            return False
        self.src = bytes(pending)
        self.pending = bytearray()  # frees the memory of a large event
        self.pos = 0
        self.limit = len(self.src)
        self.joined = True
        return True

    def _starve(self, need: int) -> int:
        """Keep the beginning of an incomplete event, or complete it. need: bytes required from here."""
        if self.joined and self.pos == self.limit:
            self._enter_chunk()
            return -1
        if need > _LANDED:
            self._begin_landing(need, need, 0)
            return _GO_ON if self._land() else k.NEED
        p.put_slice(self.pending, self.src, self.pos, self.limit)
        self.need = need
        if self.joined and self._join():
            return -1
        self._leave_chunk()
        return k.NEED

    def _leave_chunk(self) -> None:
        """Release the bytes fed."""
        self.src = b""
        self.chunk = b""
        self.event_src = b""
        self.pos = 0
        self.limit = 0
        self.joined = False

    def _begin_landing(self, size: int, first: int, packets: int) -> None:
        """Begin to put a large event together.

        size: of all its packets, with the header of the first one only.
        first: of the first packet, with its header.
        packets: that follow it.
        """
        try:
            self.landing = reuse.room([], size, 1, 0, 0)
        except MemoryError:
            p.broken("an event of %d bytes, for which there is no memory", size)
        self.landing_at = 0
        self.landing_size = size
        self.landing_stop = first
        self.landing_packets = packets
        self.landings += 1

    def _land(self) -> bool:
        """Move bytes fed to the large event. Return whether it is complete: what is left belongs to the next event."""
        while not self._landed():
            if self.pos == self.limit:
                if not self.joined:
                    self._leave_chunk()
                    return False
                self._enter_chunk()
            elif self.landing_at == self.landing_stop:
                stop = min(self.pos + 4 - len(self.pending), self.limit)
                p.put_slice(self.pending, self.src, self.pos, stop)
                self.pos = stop
                if len(self.pending) == 4:
                    self._begin_packet()
            else:
                count = min(self.landing_stop - self.landing_at, self.limit - self.pos)
                p.lay(self.landing, self.landing_at, self.src, self.pos, count)
                self.landing_at += count
                self.pos += count
        return True

    def _begin_packet(self) -> None:
        """Take the header, in `pending`, of the large event's next packet."""
        part = min(self.landing_size - self.landing_at, _FULL_PACKET)
        if int.from_bytes(self.pending[:3], "little") != part:
            raise p.Broken("a packet of another length than its event asks for")
        self.pending = bytearray()
        self.landing_stop += part
        self.landing_packets -= 1

    def _landed(self) -> bool:
        """Return whether the large event is complete; then continue with it, and after it with the chunk."""
        if self.landing_at < self.landing_stop or self.landing_packets:
            return False
        self.chunk_pos = self.pos
        self.src = reuse.content(self.landing)
        self.landing = reuse.room([], 0, 1, 0, 0)
        self.pos = 0
        self.limit = self.landing_size
        self.landing_at = self.landing_size = self.landing_stop = 0
        self.joined = True
        return True

    def enter_payload(self, pieces: Iterator[bytes]) -> None:
        """Read events from the pieces of the current compressed payload event before continuing."""
        if self.compressed:
            raise p.Broken("a compressed payload inside another")
        self._enter(pieces)
        self.compressed = True

    def enter_prepared(self, pieces: Iterator[bytes]) -> None:
        """Read events, without checksums, of the transaction that the current event commits before continuing.

        `pieces` may block, and raise any error.
        """
        self._enter(pieces)
        self.compressed = False
        self.prepared = True
        self.open = True
        self.begun = True
        self.group.begin()

    def _enter(self, pieces: Iterator[bytes]) -> None:
        self.outers.append((self.src, self.pos, self.limit, self.pieces, self.compressed, self.prepared))
        self.src = b""
        self.pos = 0
        self.limit = 0
        self.pieces = pieces
        self.payload = True

    def step(self) -> int:
        """Work until the decoder is needed; return what for."""
        while True:
            src = self.src
            if self.limit - self.pos < _ALONE:
                code = self._work(src)
            else:
                with cython.nogil:
                    code = self._work(src)
            if code == _LARGE and self.wide:
                self.wide = False
                self._enter_chunk()
                with cython.nogil:
                    code = self._event(src, 5, p.held(src))
            elif code == _LARGE:
                code = self._begin_wide(src)
            if code == k.EVENT or code == k.SAID:
                self.event_src = src
            elif code == _STARVED:
                code = self._starve(self.need)
            elif code == _REFILL:
                self._refill()
            if code >= 0:
                return code
            if self.group.visible_bytes >= self.segment_bytes:
                if self.joined and self.pos == self.limit:
                    self._enter_chunk()  # frees a large event
                return k.SEGMENT

    def _refill(self) -> None:
        """Continue with the payload's next pieces, until an event is complete; leave the payload at its end."""
        content = bytearray()
        p.put_slice(content, self.src, self.pos, self.limit)
        self.src = b""
        while True:
            need = 19 if len(content) < 19 else int.from_bytes(content[9:13], "little")
            if need > k.EVENT_MAX:
                raise p.Broken(f"an event of {need} bytes")
            if len(content) >= need:
                break
            piece = next(self.pieces, None)
            if piece is None:
                if content:
                    raise p.Broken("an event beyond its compressed payload")
                self._leave_payload()
                return
            content += piece
        self.src = bytes(content)
        self.pos = 0
        self.limit = len(self.src)

    def _leave_payload(self) -> None:
        was_prepared = self.prepared
        self.src, self.pos, self.limit, self.pieces, self.compressed, self.prepared = self.outers.pop()
        self.payload = bool(self.outers)
        if was_prepared and not self.prepared:
            self.close()
            self.pass_event()
        if not self.payload:
            self.sub = 0

    def _work(self, src: bytes) -> int:
        """Handle events in `src` until something else has to be done, or a segment is full."""
        while True:
            code = self._next(src)
            if code != _GO_ON or self.group.visible_bytes >= self.segment_bytes:
                return code

    def _next(self, src: bytes) -> int:
        """Frame one event and handle it."""
        pos = self.pos
        left = self.limit - pos
        if self.payload:
            if left < 19 or p.u32(src, pos + 9) > left:
                return _REFILL
            if p.u32(src, pos + 9) < 19:
                p.broken("an event beyond its compressed payload")
            self.pos = pos + p.u32(src, pos + 9)
            return self._event(src, pos, self.pos)
        if not self.packets:
            self.need = 19
            if left < 19:
                return _STARVED
            size = p.u32(src, pos + 9)
            if size < 19 or size > k.EVENT_MAX:
                self.offset = self.position
                p.broken("an event of %d bytes", size)
            self.need = size
            if size > left:
                return _STARVED
            self.pos = pos + size
            return self._event(src, pos, self.pos)
        self.need = 5
        if left < 5:
            return _STARVED
        self.offset = self.position
        size = p.u24(src, pos)
        if size == _FULL_PACKET:
            return _LARGE
        if size == 0:
            p.broken("an empty packet")
        self.need = size + 4
        if size + 4 > left:
            return _STARVED
        self.pos = pos + 4 + size
        if p.u8(src, pos + 4):
            self.event_at = pos + 4
            self.event_stop = self.pos
            return k.SAID
        return self._event(src, pos + 5, self.pos)

    def _begin_wide(self, src: bytes) -> int:
        """Begin to put together an event sent in several packets, whose header has its length. Return as `_next`."""
        pos = self.pos
        self.need = 24
        if self.limit - pos < 24:
            return _STARVED
        if src[pos + 4]:
            raise p.Broken("a large packet that is no event")
        size = p.u32(src, pos + 14) + 1
        if size < _FULL_PACKET:
            raise p.Broken(f"an event of {size - 1} bytes in a larger packet")
        if size > k.EVENT_MAX:
            raise p.Broken(f"an event of {size - 1} bytes")
        self.wide = True
        self._begin_landing(4 + size, 4 + _FULL_PACKET, size // _FULL_PACKET)
        return _GO_ON if self._land() else k.NEED

    # ---- events

    def _event(self, src: bytes, start: int, stop: int) -> int:
        """Handle the event src[start:stop], header and checksum included. Return -1, or EVENT for the decoder."""
        if stop - start < 19:
            p.broken("an event shorter than its header")
        timestamp, kind, server_id, length, log_pos, flags = p.event_header(src, start)
        if not self.prepared:
            self.timestamp = timestamp
        self.server_id = server_id
        self.flags = flags
        body = start + 19
        if not self.payload:
            self.offset = self.position
            if length != stop - start:
                p.broken("an event of %d bytes in a packet of another length", length)
            self.length = length
            if self.checksum and kind != k.FORMAT_DESCRIPTION and kind != k.ROTATE:
                if stop - body < 4 or not p.checksum_holds(src, start, stop):
                    p.broken("the checksum of an event of type %d does not hold", kind)
                stop -= 4
            # A heartbeat has the last event's end; a dump from within a journal begins with the format description of
            # its start.
            placed = kind not in (k.HEARTBEAT, k.HEARTBEAT_V2) and (kind != k.FORMAT_DESCRIPTION or self.position <= 4)
            if log_pos and placed:
                self._locate(log_pos, length)
        code = k.EVENT
        if self.holding and kind not in (k.GTID, k.ANONYMOUS_GTID, k.MARIADB_GTID):
            pass
        elif kind == k.TABLE_MAP:
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
            self.event_start = start
            self.event_at = body
            self.event_stop = stop
        elif not self.open:
            self.pass_event()
        return code

    def _locate(self, log_pos: int, length: int) -> None:
        """Extend a position of 32 bits from an event header; a large transaction can make a journal longer."""
        end = self.base + log_pos
        if end + _HALF < self.position:
            self.base += 2 * _HALF
            end += 2 * _HALF
        if end < length:
            p.broken("an event that ends at %d, which is less than its length", end)
        self.position = end
        self.offset = end - length

    def pass_event(self) -> None:
        """Mark everything before this position as decoded and visible, unless entries wait for their group's end."""
        if p.length(self.group.ends) == self.group.visible:
            self.passed_position = self.position
            self.passed_timestamp = self.timestamp
            p.truncate(self.passed_executed, 0)
            p.put(self.passed_executed, self.group.executed)

    def close(self) -> None:
        """End the transaction, whatever event ends it."""
        self.open = False
        self.begun = False
        self.announced = False
        self.holding = False
        self.group.end()

    def _table_map(self, src: bytes, body: int, stop: int) -> int:
        if stop - body < 8:
            p.broken("a table map without an id")
        table_id = p.u48(src, body)
        plan = self._plan(table_id)
        if plan.table_id == table_id and plan.doubts == self.doubts and p.same_piece(src, body, stop, plan.body):
            self.announced = True
            return _GO_ON
        return k.EVENT

    def rows_event(self, kind: int, src: bytes, body: int, stop: int) -> None:
        """Put one entry with all rows of an event."""
        if stop - body < 10:
            p.broken("a rows event without a header")
        table_id = p.u48(src, body)
        pos = body + 8
        if kind >= 30:
            extra = p.u16(src, pos)
            if extra < 2 or pos + extra > stop:
                p.broken("a rows event whose extra data makes no sense")
            pos += extra
        plan = self._plan(table_id)
        if plan.table_id == table_id:
            change = k.UPDATE
            if kind == 23 or kind == 30:
                change = k.INSERT
            elif kind == 25 or kind == 32:
                change = k.DELETE
            if not plan.drop and not p.byte_at(self.drop, change):
                self._put_rows(plan, change, kind == k.PARTIAL_UPDATE_ROWS, src, pos, stop)
        elif table_id != _DUMMY_TABLE:
            p.broken("rows of table id %d, which no table map has announced", table_id)
        if p.u16(src, body + 6) & _STATEMENT_ENDS:
            self.announced = False

    def _put_rows(self, plan: c.TablePlan, change: int, partial: bool, src: bytes, pos: int, stop: int) -> None:
        self.group.room()
        mark = p.size(self.group.out)
        size = plan.head_size
        p.reserve(self.group.out, size)
        count = self.writer.rows(plan, change, partial, src, pos, stop, self.group.out)
        mark_field = p.piece(self.mark)
        if not self.writer.whole:
            mark_field = p.piece(self.partial_mark)
        p.truncate(self.frame, 0)
        store = p.piece_size(plan.change) + 4 + p.size(self.group.out) - mark - size
        entry = self._put_frame(self.frame, k.TYPE_ROWS, plan.names, change, mark_field, count, True, store)
        p.put_piece(self.frame, plan.change)
        p.put(self.frame, b"\x10\x00\x50\x00")  # eventType, isDdl = false
        p.set_byte(self.frame, p.size(self.frame) - 3, change)
        plan.head_size = p.size(self.frame)
        p.fill(self.group.out, mark, size, self.frame)
        self._added(k.KIND_ROWS, count, entry)
        self.group.has_rows = True

    def _xid(self, src: bytes, body: int, stop: int) -> None:
        if stop - body < 8:
            p.broken("an XID event without its number")
        p.truncate(self.store, 0)
        p.put(self.store, b"\x12\0")
        p.put_unsigned(self.store, p.u64(src, body))
        p.set_byte(self.store, 1, p.size(self.store) - 2)
        self._put_store(k.KIND_END, k.TYPE_END, p.piece(_NO_TABLE), 0, True, True)
        self.close()

    def _query(self, src: bytes, body: int, stop: int) -> int:
        """Handle BEGIN, and SAVEPOINT in a transaction: no other statement is frequent in a binlog of rows."""
        if stop - body < 14:
            p.broken("a query event without a header")
        at = body + 14 + p.u16(src, body + 11) + p.u8(src, body + 8)
        if at > stop:
            p.broken("a query event whose statement lies beyond it")
        if self.drop_savepoints and self.begun and stop - at > 10 and p.same_bytes(src, at, at + 10, b"SAVEPOINT "):
            self.group.mark(src, at + 10, stop)
            return _GO_ON
        if stop - at != 5 or not p.same_bytes(src, at, stop, b"BEGIN"):
            return k.EVENT
        p.truncate(self.store, 0)
        p.put_byte(self.store, 0x20)
        p.put_varint(self.store, p.u32(src, body))
        self._begin()
        return _GO_ON

    def begin(self, store: bytes | bytearray) -> None:
        """Begin a transaction with this TransactionBegin."""
        p.truncate(self.store, 0)
        p.put(self.store, store)
        self._begin()

    def _begin(self) -> None:
        """Begin a transaction with the TransactionBegin in `store`."""
        self.group.begin()
        self._put_store(k.KIND_BEGIN, k.TYPE_BEGIN, p.piece(_NO_TABLE), 0, True, False)
        self.open = True
        self.begun = True

    def _gtid(self, kind: int, src: bytes, body: int, stop: int) -> None:
        self.open = True
        self.begun = False
        self.holding = False
        if self.has_gtids and kind == k.ANONYMOUS_GTID:
            p.truncate(self.known_gtids.props, 0)  # they are of the transaction before
        elif self.has_gtids:
            self.known_gtids.transaction(src, body, stop)
            self.take_gtids()

    def _mariadb_gtid(self, src: bytes, body: int, stop: int) -> None:
        if stop - body < 13:
            p.broken("a GTID event without its number")
        self.open = True
        self.begun = p.u8(src, body + 12) & 1 == 0  # FL_STANDALONE: one statement follows; otherwise this means BEGIN
        self.holding = self.hold_xa and p.u8(src, body + 12) & 64 != 0  # FL_PREPARED_XA
        if self.begun:
            self.group.begin()
        else:
            self.group.flush()
        if self.has_gtids:
            self.known_gtids.mariadb(p.u32(src, body + 8), self.server_id, p.u64(src, body))
            self.take_gtids()
        self.without_effect = self._has_no_effect(src, body, stop)

    def _has_no_effect(self, src: bytes, body: int, stop: int) -> bool:
        """Return whether this GTID event announces the start or the rollback of an ALTER TABLE in two phases.

        Its COMMIT carries the statement again. Source: MariaDB sql/log_event.cc, Gtid_log_event.
        """
        flags = p.u8(src, body + 12)
        at = body + 13
        if flags & _GROUP_COMMIT_ID:
            at += 8
        if flags & _XA:
            if at + 6 > stop:
                p.broken("a GTID event without its XA identifier")
            at += 6 + p.u8(src, at + 4) + p.u8(src, at + 5)
        return at < stop and bool(p.u8(src, at) & (_START_ALTER | _ROLLBACK_ALTER))

    def _annotate(self, src: bytes, body: int, stop: int) -> None:
        p.truncate(self.text, 0)
        p.put_text(self.text, src, body, stop)
        p.truncate(self.store, 0)
        p.put(self.store, b"\x10\x07\x5a")
        p.put_varint(self.store, p.size(self.text))
        p.put(self.store, self.text)
        self._put_store(k.KIND_QUERY, k.TYPE_ROWS, p.piece(_NO_TABLE), k.QUERY_TYPE, True, True)

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
        """Append an entry without rows.

        names, event_type: the header's fields, encoded.
        store: storeValue.
        with_gtid: whether the header carries the GTID, in GTID mode.
        shows: whether the group ends with this entry and becomes visible.
        """
        p.truncate(self.store, 0)
        p.put(self.store, store)
        self._put_store(kind, entry_type, p.piece(names), event_type[1] if event_type else 0, with_gtid, shows)

    def _put_store(
        self, kind: int, entry_type: int, names: bytes, event_type: int, with_gtid: bool, shows: bool
    ) -> None:
        """`put_entry` with the contents of `store`. event_type: 0 for none."""
        self.group.room()
        size = self._put_frame(
            self.group.out, entry_type, names, event_type, p.piece(self.mark), 0, with_gtid, p.size(self.store)
        )
        p.put(self.group.out, self.store)
        self._added(kind, 0, size)
        if entry_type == k.TYPE_ROWS:
            self.group.has_rows = True
        if shows:
            self.group.flush()
        if p.size(self.store) > _STATEMENT_KEPT:
            self._forget_statement()

    def _forget_statement(self) -> None:
        self.store = bytearray()
        self.text = bytearray()

    def _set_clock(self) -> None:
        """Encode the header's fields from serverId to sourceType of the current event."""
        self.clock_timestamp = self.timestamp
        self.clock_server_id = self.server_id
        self.clock = (  # serverId, serverenCode, executeTime, sourceType = MYSQL
            b"\x20" + p.varint(self.server_id) + b"\x2a\x05UTF-8\x30" + p.varint(self.timestamp * 1000) + b"\x38\x02"
        )

    def _put_frame(
        self,
        out: bytearray,
        entry_type: int,
        names: bytes,
        event_type: int,
        mark: bytes,
        rows: int,
        with_gtid: bool,
        store: int,
    ) -> int:
        """Append the frame, Entry and Header before a storeValue of `store` bytes; return the Entry's length."""
        if self.timestamp != self.clock_timestamp or self.server_id != self.clock_server_id:
            self._set_clock()
        if self.has_gtids and with_gtid:
            return p.put_frame(
                out,
                self.journal_field,
                self.offset,
                self.clock,
                names,
                self.length,
                event_type,
                mark,
                self.known_gtids.props,
                rows,
                self.known_gtids.field,
                entry_type,
                store,
            )
        return p.put_frame(
            out,
            self.journal_field,
            self.offset,
            self.clock,
            names,
            self.length,
            event_type,
            mark,
            b"",
            rows,
            b"",
            entry_type,
            store,
        )

    def _added(self, kind: int, rows: int, size: int) -> None:
        self.group.added(kind, self.offset, self.sub, self.timestamp * 1000, self.length, rows, self.server_id, size)
        if self.payload:
            self.sub += 1
