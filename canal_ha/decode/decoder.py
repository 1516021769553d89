"""Decoder: drives the kernel and handles rare events: control events, statements, new tables, compressed payloads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import canal_ha.decode.kernel.primitives as p
from canal_ha.config.model import DecodeOptions
from canal_ha.decode import entries, java_text, payload
from canal_ha.decode.ddl.dialect import Dialect, plain
from canal_ha.decode.ddl.event_types import DdlResult, changed_rows, classify
from canal_ha.decode.ddl.lower_names import lowered, lowered_text
from canal_ha.decode.filters import FieldFilter, TableFilter
from canal_ha.decode.history.history import TableHistory
from canal_ha.decode.kernel import cells, gtid, kinds, stream
from canal_ha.decode.outputs import (
    MayBlock,
    Output,
    Passed,
    RawPacket,
    Rotated,
    SourceFormat,
    SourceHeartbeat,
    SourceSaid,
)
from canal_ha.decode.plan_cache import PLANS_BYTES, PlanCache
from canal_ha.decode.plans import table_names, text_field
from canal_ha.decode.prepared import PreparedParts, XaCommit, Xid, xid_of_event, xid_of_statement
from canal_ha.decode.privacy import NO_PRIVACY, Privacy
from canal_ha.decode.protected_statements import exposed, names_only, tells_nothing
from canal_ha.decode.savepoints import ROLLBACK_TO, SAVEPOINT, behind, last_of_name
from canal_ha.decode.table_map import TableMap, parse_table_map
from canal_ha.decode.values import inflated, packed_integer
from canal_ha.errors import CanalError, ColumnExposed, MalformedEvent, RolledBackLate, TableUnknown
from canal_ha.model.buffers import Buffers
from canal_ha.model.entry import DDL_TYPES, PARTIAL_PROP, EntryType, EventType
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import EntryKind, Segment, Source

MAGIC = b"\xfebin"
_PARTIAL = text_field(0x62, text_field(0x0A, PARTIAL_PROP) + text_field(0x12, "true"))  # one of Header.props
_DML_TYPES = frozenset({EventType.INSERT, EventType.UPDATE, EventType.DELETE})
_TOLD_IN_PART = frozenset({EventType.QUERY, EventType.UPDATE, EventType.DELETE})  # see ddl.event_types.changed_rows
_CHECKSUM_CRC32 = 1
_IN_USE = 1  # header flag of a journal that is still being written; the checksum is computed without it
_WITHOUT_MEANING = frozenset(
    {kinds.STOP, kinds.PREVIOUS_GTIDS, kinds.BINLOG_CHECKPOINT, kinds.GTID_LIST, kinds.START_ENCRYPTION}
)
# MySQL's event types (include/mysql binlog_event.h) except UNKNOWN_EVENT and 5.1 alpha rows events; all of MariaDB's.
_KNOWN = frozenset({*range(1, 20), *range(23, 43), *range(160, 172)})
_IGNORABLE = 0x80  # header flag: a reader may skip the event if it does not know its type
_EXECUTE_LOAD_QUERY = 18
_INCIDENT = 26
# event types that are never part of a prepared XA transaction
_NEVER_HELD = frozenset(
    {
        kinds.ROTATE,
        kinds.FORMAT_DESCRIPTION,
        kinds.HEARTBEAT,
        kinds.HEARTBEAT_V2,
        kinds.PAYLOAD,
        kinds.XA_PREPARE,
        kinds.TAGGED_GTID,
        _INCIDENT,
    }
)
# event types left to the Decoder that need neither much time nor the source
_QUICK = frozenset({kinds.HEARTBEAT, kinds.HEARTBEAT_V2, kinds.TAGGED_GTID, kinds.INTVAR, kinds.RAND, kinds.USER_VAR})
_MAY_BLOCK = MayBlock()
_COMPRESSED_ROWS = {166: 23, 167: 24, 168: 25, 169: 30, 170: 31, 171: 32}  # MariaDB's -> the uncompressed type


class Decoder:
    """Turns the bytes of one dump into outputs. One stream and one thread use it; after an error it is useless."""

    def __init__(
        self,
        *,
        source: Source,
        journal: str,
        position: int,
        options: DecodeOptions,
        tables: TableFilter,
        fields: FieldFilter,
        history: TableHistory,
        privacy: Privacy = NO_PRIVACY,
        confined: bool = False,
        segment_bytes: int = 1 << 20,
        plans_bytes: int = PLANS_BYTES,
        gtid_set: str | None = None,
        exact: bool = False,
        prepared: PreparedParts | None = None,
        in_prepared_part: bool = False,
    ) -> None:
        """Create a decoder.

        source: the server, for the entries.
        journal, position: where the first event starts.
        options: the filter and parser settings.
        tables: which tables the stream gets.
        fields: which columns it gets.
        history: the columns of the tables.
        privacy: which columns are protected; with any, entries with the text of a statement come for DDL only.
        confined: whether the reader may know nothing of other tables. Entries with the text of a statement come for DDL
        only then too, and without the text if it names another table or can hold values.
        segment_bytes: size at which a segment is yielded.
        plans_bytes: see PlanCache.
        gtid_set: executed before the first event; None if unknown. If it is known and options.gtid_on, entries carry
        GTIDs.
        exact: whether entries are in the exact form (docs/protocol.md#exact), not in canal's.
        prepared: keeps the rows of XA transactions until they commit; None delivers them when they are prepared.
        in_prepared_part: the first event belongs to a prepared part.
        Raises ValueError if gtid_set is invalid.
        """
        self._source = source
        self._journal = journal
        self._guarded = privacy.on or confined
        self._confined = confined
        if self._guarded:
            options = replace(options, filter_query_dml=True, filter_query_dcl=True)
        self._privacy = privacy
        self._options = options
        self._exact = exact
        self._tables = tables
        self._history = history
        self._stream = stream.EventStream(
            journal, position, options.transaction_size, segment_bytes, self._gtids(gtid_set)
        )
        self._stream.drop[kinds.INSERT] = options.filter_rows or options.filter_dml_insert
        self._stream.drop[kinds.UPDATE] = options.filter_rows or options.filter_dml_update
        self._stream.drop[kinds.DELETE] = options.filter_rows or options.filter_dml_delete
        self._stream.drop_statements = options.filter_query_dml
        if exact:
            self._stream.partial_mark = _PARTIAL
        self._stream.drop_savepoints = options.ddl_parser or options.filter_query_dcl
        self._plans = PlanCache(
            self._stream,
            fields,
            options.charset,
            privacy=privacy,
            budget_bytes=plans_bytes,
            charset_of=history.charset,
            exact=exact,
        )
        self._prepared = prepared
        self._stream.hold_xa = prepared is not None
        self._in_part = in_prepared_part
        self._held = -1  # the offset of the last event held of a part
        self._payload_event = b""  # the payload event being read, if XA transactions are held
        self._file_began = False
        self._mariadb = False
        self.received_bytes = 0
        self.announces = False  # whether MayBlock comes before all that may block
        self.places_only = False  # whether only `place` counts: what may take long is not decoded

    def _gtids(self, gtid_set: str | None) -> gtid.Gtids | None:
        return gtid.Gtids(gtid_set) if self._options.gtid_on and gtid_set is not None else None

    def read_snapshot(self, mark: bytes, buffers: Buffers) -> None:
        """Decode the existing rows of a table: each transaction comes whole, in one segment.

        mark: a property, as a field of Header, of each entry with rows.
        buffers: for the frames of segments.
        """
        self._stream.mark = mark
        self._stream.group.whole = True
        self._stream.group.buffers = buffers

    def go_to(self, journal: str, position: int, gtid_set: str | None) -> None:
        """Decode events of another place from now on, which do not begin with a format description.

        The decoder is outside any transaction. The arguments are those of the constructor.
        """
        self._journal = journal
        self._stream.go_to(journal, position, self._gtids(gtid_set))

    @property
    def offset(self) -> int:
        """Where the last event that was looked at starts."""
        return self._stream.offset

    @property
    def server_id(self) -> int:
        """Id of the server that first wrote the last event that was looked at."""
        return self._stream.server_id

    @property
    def gtid_set(self) -> str:
        """The GTID set executed up to the last Passed; "" if entries carry no GTIDs."""
        return self._stream.passed_gtid

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[Output]:
        """Decode packets of a dump with their 4-byte headers, split anywhere. Consume the whole iterator.

        Raises MalformedEvent, TableUnknown, RolledBackLate, and what `prepared` raises, after yielding everything that
        was complete before.
        """
        self.received_bytes += len(data)
        raw = _as_bytes(data)
        return self._run(lambda: self._stream.feed(raw))

    def room(self) -> memoryview | None:
        """Return memory for the next bytes of a large event, of which some are missing; None if `feed` must take them.

        Write bytes there, release the view, then call `received`.
        """
        return self._stream.room()

    def received(self, count: int) -> Iterator[Output]:
        """Decode like `feed`, after this many bytes were written to `room`."""
        self.received_bytes += count
        return self._run(lambda: self._stream.received(count))

    @property
    def awaited(self) -> int:
        """Bytes of the large event of which some are missing; 0 without one."""
        return self._stream.landing_size

    @property
    def large_events(self) -> int:
        """How many large events have begun."""
        return self._stream.landings

    @property
    def begun_bytes(self) -> int:
        """Size of the event of which some bytes are missing, as far as it is known; 0 between two events."""
        return self._stream.landing_size or (self._stream.need if self._stream.pending else 0)

    @property
    def place(self) -> tuple[str, int] | None:
        """The journal, and where the next event starts; None inside a transaction or an event."""
        work = self._stream
        return None if work.open or self.begun_bytes else (self._journal, work.position)

    def feed_file(self, data: bytes | bytearray | memoryview) -> Iterator[Output]:
        """Decode bytes of a binlog file, with or without its magic number. One Decoder takes packets or file bytes."""
        self.received_bytes += len(data)
        self._stream.packets = False
        raw = _as_bytes(data)
        if not self._file_began:
            raw = bytes(self._stream.pending) + raw
            self._stream.pending.clear()
            if len(raw) < 4 and MAGIC.startswith(raw):
                self._stream.pending += raw
                self._stream.need = 4
                return iter(())
            self._file_began = True
            raw = raw.removeprefix(MAGIC)
        return self._run(lambda: self._stream.feed(raw))

    def finish(self) -> Iterator[Output]:
        """End the file: yield the entries that waited for their group to continue.

        Raises MalformedEvent inside an event or a transaction, whose rows are not yielded.
        """
        work = self._stream
        reason = "an event" if work.pending or work.landing_size else "a transaction" if work.open else ""
        if reason:
            raise MalformedEvent(self._journal, work.position, f"the file ends inside {reason}")
        work.group.flush()
        yield from self._segment()

    def _run(self, take: Callable[[], bool]) -> Iterator[Output]:
        """Decode after `take` has given bytes to the kernel."""
        work = self._stream
        try:
            if not take():
                return
            while True:
                code = work.step()
                if code == kinds.NEED:
                    break
                if code == kinds.SEGMENT:
                    yield self._taken()
                    continue
                if self.announces and (code == kinds.SAID or work.holding or work.event_kind not in _QUICK):
                    yield _MAY_BLOCK
                if code == kinds.SAID:
                    yield from self._segment()
                    yield from self._passed()
                    yield _said(work.event_src[work.event_at : work.event_stop])
                else:
                    yield from self._event()
        except p.Broken as error:
            work.group.rewind()
            yield from self._segment()
            raise MalformedEvent(self._journal, work.offset, str(error)) from error
        except CanalError:
            work.group.rewind()
            yield from self._segment()
            raise
        if work.group.visible:
            yield self._taken()
        if work.passed_position >= 0:
            yield Passed(self._journal, work.passed_position, work.passed_timestamp * 1000)
            work.passed_position = -1

    def _passed(self) -> Iterator[Passed]:
        """Yield the boundary reached, if it is new."""
        work = self._stream
        if work.passed_position >= 0:
            yield Passed(self._journal, work.passed_position, work.passed_timestamp * 1000)
            work.passed_position = -1

    def _segment(self) -> Iterator[Segment]:
        """Yield the visible entries, if any."""
        if self._stream.group.visible:
            yield self._taken()

    def _taken(self) -> Segment:
        """Return the visible entries, at least one."""
        group = self._stream.group
        cut = bool(self._stream.open)
        if cut:
            last = group.kinds[group.visible - 1]
            # the first entry of CREATE TABLE ... SELECT does not stand alone
            stands_alone = last == EntryKind.DDL and not self._stream.begun
            cut = last != EntryKind.END and not stands_alone
        group = group.take()
        return Segment(
            source=self._source,
            journal=self._journal,
            frames=group.out,
            ends=group.ends,
            offsets=group.offsets,
            subs=group.subs,
            timestamps=group.timestamps,
            event_lengths=group.event_lengths,
            row_counts=group.row_counts,
            kinds=group.kinds,
            run_starts=group.run_starts,
            run_server_ids=group.run_server_ids,
            run_gtids=tuple(group.run_gtids),
            entry_ends=group.entry_ends,
            row_ends=group.row_ends,
            cut=cut,
            buffers=group.buffers,
        )

    def _event(self) -> Iterator[Output]:
        """Decode the event that the kernel left to this class."""
        work = self._stream
        kind = work.event_kind
        handler = _HANDLERS.get(kind)
        if work.holding and kind not in _NEVER_HELD:
            self._hold()
        elif handler is not None:
            yield from handler(self, work.event_src[work.event_at : work.event_stop])
        elif kind in _COMPRESSED_ROWS and self.places_only:
            pass
        elif kind in _COMPRESSED_ROWS:
            body = _decompressed_rows(work.event_src[work.event_at : work.event_stop], _COMPRESSED_ROWS[kind])
            work.rows_event(_COMPRESSED_ROWS[kind], body, 0, len(body))
        elif kind == _INCIDENT:
            raise p.Broken(
                "the source reports missing events here (INCIDENT): copy the lost rows, then move the cursor"
            )
        elif kind not in _KNOWN and not work.flags & _IGNORABLE:
            raise p.Broken(f"an event of type {kind}, which is unknown: it may have held rows")
        elif kind == _EXECUTE_LOAD_QUERY and self._exact:
            self._statement(entries.parse_load_query(work.event_src[work.event_at : work.event_stop]))
        elif kind not in _WITHOUT_MEANING:
            yield from self._raw()
        if not work.open:
            work.pass_event()

    def _raw(self) -> Iterator[Output]:
        """Yield the current event for mysql-replication, after everything decoded before it."""
        work = self._stream
        if work.packets and not work.payload:
            yield from self._segment()
            stop = work.event_start + work.length
            yield RawPacket(b"\0" + work.event_src[work.event_start : stop])

    # ---- control events

    def _rotate(self, body: bytes) -> Iterator[Output]:
        work = self._stream
        self._outside()
        whole = work.event_src[work.event_start : work.event_start + work.length]
        if work.checksum or not work.known_format:  # while the format is unknown, matching bytes count as a checksum
            holds = len(body) >= 4 and p.checksum_holds(whole, 0, len(whole))
            if holds:
                body = body[:-4]
            elif work.known_format:
                raise p.Broken("the checksum of a rotate event does not hold")
        if len(body) <= 8:
            raise p.Broken("a rotate event without a journal")
        work.close()
        work.group.flush()
        yield from self._raw()
        yield from self._segment()
        self._journal = body[8:].decode("utf-8", "replace")
        position = p.u64(body, 0)
        if position >> 48:
            raise p.Broken(f"a rotate event to {position}")
        work.set_journal(self._journal, position)
        self._plans.forget()
        yield Rotated(self._journal, position)

    def _format(self, body: bytes) -> Iterator[Output]:
        """Source: MySQL libs/mysql/binlog/event/control_events.h, Format_description_event."""
        work = self._stream
        self._outside()
        if len(body) < 57:
            raise p.Broken("a format description that ends early")
        if body[56] != 19:
            raise p.Broken(f"event headers of {body[56]} bytes")
        version = body[2:52].split(b"\0")[0].decode("ascii", "replace")
        checksum = False
        if _tells_checksum(version):
            if len(body) < 62:
                raise p.Broken("a format description that ends early")
            checksum = body[-5] == _CHECKSUM_CRC32
            if checksum:
                whole = bytearray(work.event_src[work.event_start : work.event_start + work.length])
                whole[17] &= ~_IN_USE
                if not p.checksum_holds(bytes(whole), 0, len(whole)):
                    raise p.Broken("the checksum of a format description does not hold")
        work.close()
        work.group.flush()
        work.checksum = 4 if checksum else 0
        work.known_format = True
        self._mariadb = "mariadb" in version.lower()
        self._plans.forget()
        work.holding = work.open = self._in_part
        self._in_part = False
        self._held = -1
        yield from self._raw()
        yield from self._segment()
        yield SourceFormat(version, checksum)

    def _heartbeat(self, body: bytes) -> Iterator[Output]:
        work = self._stream
        log_pos = p.u32(work.event_src, work.event_start + 13)
        return self._alive(body.decode("utf-8", "replace"), work.base + log_pos)

    def _heartbeat_v2(self, body: bytes) -> Iterator[Output]:
        """Fields of type, length, value. Source: MySQL libs/mysql/binlog/event/codecs/binary.cpp, Heartbeat."""
        journal = ""
        position = 0
        pos = 0
        while pos < len(body):
            kind, pos = packed_integer(body, pos, len(body))
            if kind == 0:
                break
            size, pos = packed_integer(body, pos, len(body))
            if pos + size > len(body):
                raise p.Broken("a heartbeat field beyond its event")
            if kind == 1:
                journal = body[pos : pos + size].decode("utf-8", "replace")
            elif kind == 2:
                position, _ = packed_integer(body, pos, pos + size)
                if position >> 48:
                    raise p.Broken(f"a heartbeat at {position}")
            pos += size
        return self._alive(journal, position)

    def _alive(self, journal: str, position: int) -> Iterator[Output]:
        """Take a heartbeat, which shows how far the source has read even if it skips events without sending them."""
        work = self._stream
        self._outside()
        if journal == self._journal and position > work.position and not work.open:
            work.position = position
        yield from self._segment()
        yield SourceHeartbeat(journal, position)

    def _outside(self) -> None:
        if self._stream.payload:
            raise p.Broken("a control event inside a compressed payload")

    # ---- transactions

    def _xa_prepare(self, body: bytes) -> Iterator[Output]:
        work = self._stream
        if work.prepared:  # the end of a compressed payload that was held
            return iter(())
        held = work.holding
        work.close()
        self._held = -1
        if self._prepared is not None:
            xid, one_phase = xid_of_event(body)
            if held:
                self._prepared.prepared(xid)
            if one_phase:
                return self._commit(xid)
        return iter(())

    def _xa_statement(self, statement: entries.Statement, made: entries.Made) -> Iterator[Output]:
        """Handle XA START, END, COMMIT and ROLLBACK."""
        work = self._stream
        if self._prepared is not None and not work.prepared and made.entry_type != EntryType.TRANSACTIONEND:
            if made.entry_type == EntryType.TRANSACTIONBEGIN:
                work.open = work.holding = True
                self._held = -1
                self._hold()
            elif statement.sql[: len("XA COMMIT")].upper() == "XA COMMIT":
                return self._commit(xid_of_statement(statement.sql[len("XA COMMIT") :]))
            else:
                self._prepared.rolled_back(xid_of_statement(statement.sql[len("XA ROLLBACK") :]), self._here())
                work.close()
        elif made.entry_type == EntryType.TRANSACTIONBEGIN:
            work.begin(made.store)
        else:
            self._put(made)
            work.begun = False
            if made.entry_type == EntryType.ROWDATA:
                work.close()
        return iter(())

    def _hold(self) -> None:
        """Give the current event to the prepared part that it belongs to; a compressed payload is given once, whole."""
        assert self._prepared is not None
        work = self._stream
        if self._held < 0:
            self._prepared.begin(self._here())
        if not work.payload:
            self._prepared.add(self._without_checksum(), work.offset)
        elif work.offset != self._held:
            self._prepared.add(self._payload_event, work.offset)
        self._held = work.offset

    def _without_checksum(self) -> bytes:
        work = self._stream
        source, start, stop = work.event_src, work.event_start, work.event_stop
        return source[start : start + 9] + (stop - start).to_bytes(4, "little") + source[start + 13 : stop]

    def _commit(self, xid: Xid) -> Iterator[Output]:
        """Read the events of a prepared transaction as the content of the current event."""
        assert self._prepared is not None
        work = self._stream
        work.enter_prepared(self._prepared.committed(XaCommit(xid, self._here(), work.position)))
        return self._segment()  # reading the part may take long

    def _tagged_gtid(self, body: bytes) -> Iterator[Output]:
        work = self._stream
        work.open = True
        work.begun = work.holding = False
        if work.gtids is not None:
            work.gtids.mysql(*gtid.parse_tagged(body))
            work.group.gtid = work.gtids.text
        return iter(())

    def _payload(self, body: bytes) -> Iterator[Output]:
        if self.places_only:
            self._stream.close()  # it holds all of a transaction behind its GTID
            return iter(())
        self._stream.enter_payload(self._content(body))
        return iter(())

    def _content(self, body: bytes) -> Iterator[bytes]:
        """Yield the events of the current payload event, which is at hand until they are read."""
        if self._prepared is not None:
            self._payload_event = self._without_checksum()
        yield from payload.pieces(body)
        self._payload_event = b""

    # ---- tables

    def _table_map(self, body: bytes) -> Iterator[Output]:
        table_map = parse_table_map(body, mariadb=self._mariadb)
        plan = cells.dropped(body)
        if self._tables.accepts(table_map.schema, table_map.name):
            try:
                schema = self._history.table(table_map, self._here())
                plan = self._plans.plan(table_map, schema, body)
            except TableUnknown:
                if not self._options.filter_table_error:
                    self._refuse(table_map)
                    raise
        self._plans.keep(table_map.table_id, plan)
        return iter(())

    def _refuse(self, table_map: TableMap) -> None:
        """Raise TableUnknown without the statement behind it, whose text is not for a reader of protected columns."""
        if self._privacy.on:
            raise TableUnknown(
                f"columns of {table_map.schema}.{table_map.name} at {self._here()} are not known for certain"
                " (canal.instance.privacy hides the statement). Start this stream after the position"
                " (canal-ha cursor set), or exclude the table (canal.instance.filter.black.regex)"
            ) from None

    def _here(self) -> LogPosition:
        """Return the position of the current event."""
        work = self._stream
        return LogPosition(
            journal=self._journal,
            offset=work.offset,
            timestamp_ms=work.timestamp * 1000,
            server_id=work.server_id,
            gtid=work.group.gtid,
            address=self._source.address,
            port=self._source.port,
            sub_index=work.sub,
        )

    # ---- statements

    def _query_compressed(self, body: bytes) -> Iterator[Output]:
        """Decode MariaDB's QUERY event with a compressed text."""
        if len(body) < 14:
            raise p.Broken("a query event without a header")
        if self.places_only:
            if not self._stream.begun:
                self._stream.close()  # BEGIN and COMMIT are too short to be compressed
            return iter(())
        at = entries.statement_at(body)
        return self._query(body[:at] + _mariadb_decompressed(body[at:]))

    def _query(self, body: bytes) -> Iterator[Output]:
        work = self._stream
        statement = entries.parse_query(body)
        upper = statement.sql.upper()
        xa = entries.xa_entry(statement)
        if xa is not None:
            return self._xa_statement(statement, xa)
        if upper.strip() == "BEGIN":
            # canal checks only the end of the text, and loses statements such as `ALTER TABLE t RENAME TO begin`
            work.begin(b"\x20" + p.varint(statement.thread_id))
        elif upper.strip() == "COMMIT":
            self._put(entries.commit_entry())
            work.close()
        elif work.begun and upper == "ROLLBACK":
            undone = work.group.undo_all()
            work.close()
            self._undone(undone)
        elif work.begun and upper.startswith(ROLLBACK_TO):
            self._undone(work.group.undo_to(last_of_name(work.group.marks, behind(ROLLBACK_TO, body))))
        else:
            if not work.without_effect and not self.places_only:
                self._statement(statement)
            if work.begun and upper.startswith(SAVEPOINT):
                name = behind(SAVEPOINT, body)
                work.group.mark(name, 0, len(name))
            if not work.begun or upper == "ROLLBACK":
                work.close()
        return iter(())

    def _undone(self, undone: bool) -> None:
        """Raise RolledBackLate if rows that the source has rolled back were delivered already."""
        if undone:
            return
        work = self._stream
        onwards = f"{self._journal}:{work.position}" if not work.begun else "the end of the transaction"
        raise RolledBackLate(
            f"{self._journal}:{work.offset}: the transaction rolls back rows of which a part was delivered already,"
            " because it has more than canal.instance.transaction.size entries or 1 MiB: correct these rows in the"
            f" targets, then set the cursor to {onwards} (canal-ha cursor set)"
        )

    def _statement(self, statement: entries.Statement) -> None:
        """Put one entry for a statement, named by its first result, if any result passes the filters."""
        sql = plain(statement.sql, Dialect(self._mariadb, statement.sql_mode))
        results = classify(sql, statement.schema, sql_parser=self._options.ddl_parser)
        if self._exact and all(result.event_type in _TOLD_IN_PART for result in results):
            results = changed_rows(sql, statement.schema) or results
        changes_rows = bool(results) and results[0].event_type in _DML_TYPES
        # apply filtered statements too: another stream's filters may pass their tables
        if not changes_rows and self._privacy.on:
            self._check_exposed(sql, statement.schema)
        if not changes_rows and self._history.apply(self._here(), statement.schema, sql):
            self._stream.doubt_plans()
        passing = [result for result in results if self._passes(result)]
        if not passing:
            return
        first = passing[0] if self._confined else results[0]
        is_ddl = first.event_type in DDL_TYPES
        if is_ddl and self._options.filter_query_ddl:
            return
        if self._exact and self._history.lowers_names:
            first = lowered(first)
            text = lowered_text(statement.sql) if is_ddl else statement.sql
            statement = replace(statement, schema=statement.schema.lower(), sql=text)
        names = table_names(first.schema, first.table)
        if self._guarded and not (tells_nothing(sql, self._privacy) and self._may_name(sql, statement.schema, results)):
            statement = replace(statement, sql="")
        self._put(entries.statement_entry(statement, first.event_type, names, ddl=is_ddl))

    def _check_exposed(self, sql: str, schema: str) -> None:
        """Raise ColumnExposed if a statement takes a column out of the rules that protect it."""
        names = exposed(sql, schema, self._privacy, self._tables)
        if names is not None:
            old, new = names
            raise ColumnExposed(
                f"{self._journal}:{self._stream.offset}: a statement turns the protected column {old} into {new},"
                " which is protected less: add that name to the rules (canal.instance.privacy.*, or privacy of the"
                " account), or remove the old one"
            )

    def _passes(self, result: DdlResult) -> bool:
        """Return whether one result passes the filters (docs/protocol.md#statements)."""
        if result.event_type in _DML_TYPES:
            return not self._options.filter_query_dml
        if result.event_type not in DDL_TYPES:
            return not self._options.filter_query_dcl
        if self._tables.accepts(result.schema or "", result.table or ""):
            return True
        if result.event_type is not EventType.RENAME:
            return False
        return self._tables.accepts(result.origin_schema or "", result.origin_table or "")

    def _may_name(self, sql: str, schema: str, results: Sequence[DdlResult]) -> bool:
        """Return whether the reader may know all tables that a statement names."""
        if not self._confined:
            return True
        changed = (
            (schema or "", table)
            for result in results
            for schema, table in ((result.schema, result.table), (result.origin_schema, result.origin_table))
            if table
        )
        own_schema = next((result.schema for result in results if result.schema), schema)
        return all(self._tables.accepts(*name) for name in changed) and names_only(
            sql, schema, own_schema, self._tables
        )

    def _intvar(self, body: bytes) -> Iterator[Output]:
        return self._accompanying(entries.intvar_sql(body), with_gtid=False)

    def _rand(self, body: bytes) -> Iterator[Output]:
        return self._accompanying(entries.rand_sql(body))

    def _user_var(self, body: bytes) -> Iterator[Output]:
        return self._accompanying(entries.user_var_sql(body))

    def _rows_query(self, body: bytes) -> Iterator[Output]:
        """Put the statement behind rows events. Ignore its first byte, a length too small for long statements."""
        sql = java_text.decode(body[1:], self._options.charset)
        table = None
        if self._options.ddl_parser and not self._options.filter_query_dml:
            results = classify(sql, "")
            table = results[0].table if results else None
        return self._accompanying(sql, table_names("", table))

    def _accompanying(self, sql: str, names: bytes = stream.NO_TABLE, *, with_gtid: bool = True) -> Iterator[Output]:
        if not self._options.filter_query_dml:
            self._put(entries.accompanying_entry(sql, names, with_gtid=with_gtid))
        return iter(())

    def _put(self, made: entries.Made) -> None:
        self._stream.put_entry(
            made.kind, made.entry_type, made.names, made.event_type, made.store, made.with_gtid, made.shows
        )


_HANDLERS: Mapping[int, Callable[[Decoder, bytes], Iterator[Output]]] = {
    kinds.ROTATE: Decoder._rotate,
    kinds.FORMAT_DESCRIPTION: Decoder._format,
    kinds.HEARTBEAT: Decoder._heartbeat,
    kinds.HEARTBEAT_V2: Decoder._heartbeat_v2,
    kinds.TABLE_MAP: Decoder._table_map,
    kinds.QUERY: Decoder._query,
    kinds.QUERY_COMPRESSED: Decoder._query_compressed,
    kinds.INTVAR: Decoder._intvar,
    kinds.RAND: Decoder._rand,
    kinds.USER_VAR: Decoder._user_var,
    kinds.ROWS_QUERY: Decoder._rows_query,
    kinds.XA_PREPARE: Decoder._xa_prepare,
    kinds.PAYLOAD: Decoder._payload,
    kinds.TAGGED_GTID: Decoder._tagged_gtid,
}


def _as_bytes(data: bytes | bytearray | memoryview) -> bytes:
    """Return the data as bytes, without a copy if it is bytes or a view of a whole bytes object."""
    if isinstance(data, bytes):
        return data
    if isinstance(data, memoryview) and isinstance(data.obj, bytes) and len(data.obj) == data.nbytes:
        return data.obj
    return bytes(data)


def _said(packet: bytes) -> SourceSaid:
    """Decode an ERR or EOF packet, which ends a dump. Raises Broken."""
    if packet[0] == 0xFF and len(packet) >= 3:
        text = packet[3:].decode("utf-8", "replace")
        return SourceSaid(p.u16(packet, 1), text[6:] if text.startswith("#") else text)
    if packet[0] == 0xFE and len(packet) < 9:
        return SourceSaid(0, "end of the binlog")
    raise p.Broken(f"a packet that begins with {packet[0]:#04x}")


def _tells_checksum(version: str) -> bool:
    """Return whether format descriptions end in a checksum algorithm: since MySQL 5.6.1 and MariaDB 5.3."""
    numbers = []
    for part in version.split("-")[0].split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return numbers >= ([5, 3] if "mariadb" in version.lower() else [5, 6, 1])


def _mariadb_decompressed(data: bytes) -> bytes:
    """Decompress a header byte, big-endian length, zlib stream (MariaDB sql/log_event.cc, binlog_buf_uncompress)."""
    if not data or data[0] & 0xE0 != 0x80 or len(data) < 1 + (data[0] & 7):
        raise p.Broken("a compressed event without its header")
    size = data[0] & 7
    expected = int.from_bytes(data[1 : 1 + size], "big")
    return inflated(data[1 + size :], expected)


def _decompressed_rows(body: bytes, kind: int) -> bytes:
    """Decompress the rows of a MariaDB rows event; the part before them is not compressed."""
    pos = 8
    if kind >= 30:
        pos += p.u16(body, 8) if len(body) >= 10 else 2
    width, pos = packed_integer(body, pos, len(body))
    pos += (width + 7) // 8 * (2 if kind in (24, 31) else 1)
    if pos > len(body):
        raise p.Broken("a rows event without its bitmaps")
    return body[:pos] + _mariadb_decompressed(body[pos:])
