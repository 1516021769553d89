"""What a decoder yields for a dump: groups, control events, positions, errors."""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import takewhile

import pytest

from canal_ha.config.model import DecodeOptions
from canal_ha.decode.decoder import Decoder
from canal_ha.decode.filters import FieldFilter, TableFilter
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
from canal_ha.decode.table_map import TableMap
from canal_ha.errors import MalformedEvent, TableUnknown
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import EntryKind, Segment
from canal_ha.model.table import Column, TableSchema
from canal_ha.wire.proto import entry_protocol_pb2 as entry
from canal_ha.wire.proto.canal_protocol_pb2 import Messages
from lab.dump import (
    JOURNAL,
    SECONDS,
    SOURCE,
    AnyTable,
    ColumnType,
    Dump,
    decoder,
    entries,
    packets,
    segments,
)

BEGIN, ROWS, END, DDL, QUERY = EntryKind.BEGIN, EntryKind.ROWS, EntryKind.END, EntryKind.DDL, EntryKind.QUERY


def feed(dump: Dump, **options: object) -> list[Output]:
    return list(decoder(**options).feed(bytes(dump.data)))  # type: ignore[arg-type] # keywords of `decoder`


def kinds(outputs: list[Output]) -> list[EntryKind]:
    return [EntryKind(kind) for segment in segments(outputs) for kind in segment.kinds]


def parsed(outputs: list[Output]) -> list[entry.Entry]:
    return [entry.Entry.FromString(raw) for raw in entries(outputs)]


# ---- transactions


def test_a_transaction_is_one_group_and_its_end_is_a_place_to_reconnect_at() -> None:
    """BEGIN, rows and END come in one segment with their positions; Passed then has the position behind them."""
    dump = Dump().format().begin().table().insert(1, 2).xid()
    *_, segment, passed = feed(dump)
    assert isinstance(segment, Segment)
    assert bytes(segment.kinds) == bytes([BEGIN, ROWS, END])
    assert list(segment.row_counts) == [0, 2, 0]
    assert list(segment.timestamps) == [SECONDS * 1000] * 3
    assert list(segment.run_starts) == [0]
    assert list(segment.run_server_ids) == [5]
    position = segment.position(2)
    assert (position.journal, position.offset) == (JOURNAL, dump.position - 31)
    assert (position.address, segment.source) == (SOURCE.address, SOURCE)
    assert passed == Passed(JOURNAL, dump.position, SECONDS * 1000)
    frames = bytes(segment.frames)
    assert frames[segment.ends[0]] == 0x12
    assert sum(segment.entry_size(i) for i in range(3)) < len(frames) == segment.ends[2]
    assert [segment.entry_size(i) for i in range(3)] == [len(raw) for raw in Messages.FromString(frames).messages]
    assert list(segment.row_ends) == [0, 2, 2]


def test_an_open_transaction_stays_inside() -> None:
    """An open transaction gives no entries, and Passed stays at the boundary before it."""
    first = Dump().format().begin().table().insert(1).xid()
    boundary = first.position
    dump = first.begin().table().insert(2)
    work = decoder()
    outputs = list(work.feed(bytes(dump.data)))
    assert kinds(outputs) == [BEGIN, ROWS, END]
    assert outputs[-1] == Passed(JOURNAL, boundary, SECONDS * 1000)
    before = len(dump.data)
    dump.xid()
    rest = list(work.feed(bytes(dump.data[before:])))
    assert kinds(rest) == [BEGIN, ROWS, END]
    assert rest[-1] == Passed(JOURNAL, dump.position, SECONDS * 1000)


def test_large_transactions_come_in_pieces() -> None:
    """A transaction of more than transaction_size entries comes in pieces; all but the last are marked as cut."""
    dump = Dump().format().begin().table()
    for number in range(7):
        dump.insert(number)
    half = bytes(dump.data)
    work = decoder(options=DecodeOptions(transaction_size=4))
    outputs = list(work.feed(half))
    assert kinds(outputs) == [BEGIN, ROWS, ROWS, ROWS]
    assert [segment.cut for segment in segments(outputs)] == [True]
    assert not any(isinstance(output, Passed) and output.position > dump.position - 31 for output in outputs)
    before = len(dump.data)
    dump.xid()
    rest = list(work.feed(bytes(dump.data[before:])))
    assert kinds(rest) == [ROWS] * 4 + [END]
    assert [segment.cut for segment in segments(rest)] == [False]


def test_large_transactions_are_cut_by_bytes_too() -> None:
    """An open transaction of few, large entries comes in pieces too, so that memory stays bounded."""
    column = (ColumnType(252, b"\4"),)
    dump = Dump().format().begin().table(columns=column)
    for _ in range(5):
        dump.rows(30, b"\0" + struct.pack("<I", 600_000) + b"x" * 600_000)
    assert kinds(feed(dump)) == [BEGIN, ROWS, ROWS, ROWS, ROWS]


def test_segments_hold_whole_groups_up_to_their_size() -> None:
    """A chunk with many transactions gives several segments, each of which ends with a transaction."""
    dump = Dump().format()
    for number in range(50):
        dump.begin().table().insert(number).xid()
    found = segments(feed(dump, segment_bytes=2000))
    assert len(found) > 3
    assert all(segment.kinds[-1] == END and len(segment.frames) < 3000 for segment in found)
    assert sum(map(len, found)) == 150


def test_empty_transactions_pass_every_five_seconds() -> None:
    """Of transactions without rows, the first passes, then one whenever more than 5 s of source time have gone by."""
    dump = Dump().format()
    for _ in range(13):
        dump.begin().xid()
        dump.seconds += 1
    found = parsed(feed(dump))
    assert [one.header.executeTime // 1000 - SECONDS for one in found] == [0, 0, 6, 6, 12, 12]


def test_empty_transactions_pass_after_8192() -> None:
    """Of 8195 empty transactions in one second, two pass, so that clients see that the stream is alive."""
    dump = Dump().format()
    for _ in range(8195):
        dump.begin().xid()
    assert len(entries(feed(dump))) == 4


def test_dropped_transactions_leave_no_trace_in_runs() -> None:
    """A dropped empty transaction leaves no run in the segment."""
    dump = Dump().format().begin().table().insert(1).xid()
    dump.server_id = 6
    dump.begin().xid().begin().xid()
    dump.server_id = 5
    dump.begin().table().insert(2).xid()
    (segment,) = segments(feed(dump))
    assert list(segment.run_server_ids) == [5, 6, 5]
    assert list(segment.run_starts) == [0, 3, 5]
    assert [segment.position(i).server_id for i in (0, 4, 5, 7)] == [5, 6, 5, 5]


def test_an_unfinished_group_moves_to_the_next_segment() -> None:
    """The entries and runs of an open transaction move to the next segment when the present one is delivered."""
    dump = Dump().format().begin().table().insert(1).xid()
    dump.server_id = 6
    dump.begin().table().insert(2)
    work = decoder()
    (first,) = segments(work.feed(bytes(dump.data)))
    before = len(dump.data)
    dump.insert(3).xid()
    (second,) = segments(work.feed(bytes(dump.data[before:])))
    assert bytes(first.kinds) == bytes([BEGIN, ROWS, END])
    assert list(first.run_server_ids) == [5]
    assert bytes(second.kinds) == bytes([BEGIN, ROWS, ROWS, END])
    assert list(second.run_server_ids) == [6]
    assert second.ends[-1] == len(second.frames)
    assert [one.header.serverId for one in map(entry.Entry.FromString, second.entries())] == [6] * 4


def test_rollback_of_a_transaction_ends_it() -> None:
    """After a ROLLBACK the next transaction is a group of its own, and Passed moves behind it."""
    dump = Dump().format().begin().query("ROLLBACK").begin().table().insert(1).xid()
    outputs = feed(dump)
    assert kinds(outputs)[-3:] == [BEGIN, ROWS, END]
    assert outputs[-1] == Passed(JOURNAL, dump.position, SECONDS * 1000)


# ---- statements


def test_a_ddl_statement_is_a_group_and_voids_plans() -> None:
    """The history applies the statement, and is asked again at the next table map, even if that has not changed."""
    history = AnyTable()
    dump = Dump().format().begin().table().insert(1).table().insert(2).xid()
    dump.query("ALTER TABLE t ADD COLUMN x int").begin().table().insert(3).xid()
    outputs = feed(dump, history=history)
    assert kinds(outputs) == [BEGIN, ROWS, ROWS, END, DDL, BEGIN, ROWS, END]
    assert history.applied == [("s", "ALTER TABLE t ADD COLUMN x int")]
    assert len(history.asked) == 2


def test_a_statement_that_changes_no_table_leaves_plans_valid() -> None:
    """GRANT and the like cost no table another question, however many tables are known."""

    class Unchanged(AnyTable):
        def apply(self, at: LogPosition, default_schema: str, sql: str) -> bool:
            super().apply(at, default_schema, sql)
            return False

    history = Unchanged()
    dump = Dump().format().begin().table().insert(1).xid().query("GRANT ALL ON s.* TO u")
    outputs = feed(dump.begin().table().insert(2).xid(), history=history)
    assert kinds(outputs) == [BEGIN, ROWS, END, BEGIN, ROWS, END]
    assert len(history.applied) == len(history.asked) == 1


@pytest.mark.parametrize(
    ("options", "savepoints"),
    [
        (DecodeOptions(), 0),
        (DecodeOptions(ddl_parser=False), 1),
        (DecodeOptions(ddl_parser=False, filter_query_dcl=True), 0),
    ],
)
def test_a_savepoint_in_a_transaction_does_not_leave_the_kernel(options: DecodeOptions, savepoints: int) -> None:
    """Servers write one for each SAVEPOINT. It is read as a statement only where canal makes an entry of it."""
    history = AnyTable()
    dump = Dump().format().begin().query("SAVEPOINT `a`").table().insert(1).query("SAVEPOINT `a`").xid()
    outputs = feed(dump, history=history, options=options)
    kept = [QUERY] * savepoints
    assert kinds(outputs) == [BEGIN, *kept, ROWS, *kept, END]
    assert len(history.applied) == 2 * savepoints
    assert outputs[-1] == Passed(JOURNAL, dump.position, SECONDS * 1000)


def test_a_savepoint_outside_a_transaction_is_a_statement() -> None:
    """It ends what a GTID began, as any other statement does."""
    history = AnyTable()
    dump = Dump().format().add(34, bytes(42)).query("SAVEPOINT `a`")
    outputs = feed(dump, history=history)
    assert history.applied == [("s", "SAVEPOINT `a`")]
    assert outputs[-1] == Passed(JOURNAL, dump.position, SECONDS * 1000)


def test_statements_that_end_in_begin_or_commit_are_statements() -> None:
    """A statement that ends with a name such as `begin` is not a transaction boundary: the history applies it."""
    history = AnyTable()
    statements = (
        "ALTER TABLE t MODIFY a int AFTER last_commit",
        "ALTER TABLE t RENAME TO `begin`",
        "RENAME TABLE a TO begin",
    )
    dump = Dump().format()
    for sql in statements:
        dump.query(sql)
    outputs = feed(dump, history=history)
    assert kinds(outputs) == [DDL, DDL, DDL]
    assert [sql for _, sql in history.applied] == list(statements)


def test_an_incident_stops_the_stream() -> None:
    """An INCIDENT event, which reports lost events, raises MalformedEvent."""
    dump = Dump().format().begin().table().insert(1).xid().add(26, b"\x01\x00\x00")
    with pytest.raises(MalformedEvent, match="INCIDENT"):
        feed(dump)


def test_statements_of_filtered_tables_are_nothing() -> None:
    """A statement on a filtered table gives no entry, but the history applies it; RENAME passes if either name does."""
    history = AnyTable()
    dump = Dump().format().query("CREATE TABLE other (id int)").query("RENAME TABLE other TO t")
    outputs = feed(dump, history=history, tables=TableFilter(r"s\.t", ""))
    assert [one.header.eventType for one in parsed(outputs)] == [entry.RENAME]
    assert [sql for _, sql in history.applied] == ["CREATE TABLE other (id int)", "RENAME TABLE other TO t"]


@pytest.mark.parametrize(
    ("sql", "event_type", "names"),
    [
        ("SELECT `s`.`f`(2)", entry.UPDATE, ("", "")),
        ("DO f(2)", entry.UPDATE, ("", "")),
        ("/* app */ CALL f(2)", entry.UPDATE, ("", "")),
        ("WITH c AS (SELECT 1) SELECT f(x) FROM c", entry.UPDATE, ("", "")),
        ("WITH c AS (SELECT 1) DELETE FROM t", entry.DELETE, ("s", "t")),
        ("WITH c AS (SELECT 1) DELETE q FROM t q, c", entry.DELETE, ("", "")),
        ("ANALYZE FORMAT=JSON UPDATE t SET a = 1", entry.UPDATE, ("", "")),
        ("SET STATEMENT max_statement_time = 1 FOR SELECT f(2)", entry.UPDATE, ("", "")),
        ("LOAD DATA INFILE '/tmp/INTO' IGNORE INTO TABLE `t` FIELDS TERMINATED BY ','", entry.INSERT, ("s", "t")),
        ("LOAD XML INFILE 'x' INTO TABLE o.t", entry.INSERT, ("o", "t")),
    ],
)
def test_rows_that_a_query_changes_are_told_in_the_exact_form(
    sql: str, event_type: int, names: tuple[str, str]
) -> None:
    """canal's form has no entry of such a statement, or a QUERY."""
    for parser in (True, False):
        dump = Dump().format().begin().query(sql).xid()
        options = DecodeOptions(ddl_parser=parser)
        _, one, _ = parsed(feed(dump, exact=True, options=options))
        assert (one.header.eventType, one.header.schemaName, one.header.tableName) == (event_type, *names)
        change = entry.RowChange.FromString(one.storeValue)
        assert (change.eventType, change.isDdl, change.sql) == (event_type, False, sql)
        others = [one for one in parsed(feed(dump, options=options)) if one.entryType == entry.ROWDATA]
        assert {one.header.eventType for one in others} <= {entry.QUERY}
    assert kinds(feed(dump, exact=True, options=DecodeOptions(filter_query_dml=True))) == [BEGIN, END]


@pytest.mark.parametrize(
    ("sql", "event_type", "exact", "canal"),
    [
        ("UPDATE o JOIN t q ON q.a = o.a SET q.a = 9", entry.UPDATE, "", "o"),
        ("/* app */ UPDATE o, t SET t.a = 9", entry.UPDATE, "", "o"),
        ("UPDATE (SELECT 1 AS a) c, t SET t.a = 9", entry.UPDATE, "", ""),
        ("WITH c AS (SELECT 1) UPDATE o JOIN t q SET q.a = 9", entry.UPDATE, "", "o"),
        ("SET STATEMENT max_statement_time = 1 FOR UPDATE o JOIN t q SET q.a = 9", entry.UPDATE, "", "o"),
        ("DELETE q FROM t q, o WHERE q.a = o.a", entry.DELETE, "", "q"),
        ("DELETE FROM q USING t q JOIN o", entry.DELETE, "", "q"),
        ("DELETE q.* FROM t q", entry.DELETE, "", ""),
        ("UPDATE LOW_PRIORITY IGNORE t AS q SET a = (SELECT 1 FROM o, p)", entry.UPDATE, "t", "t"),
        ("/* app */ UPDATE `t` PARTITION (p0) SET a = 1", entry.UPDATE, "t", "t"),
        ("UPDATE t FOR PORTION OF p FROM 1 TO 2 SET a = 1", entry.UPDATE, "t", "t"),
        ("WITH c AS (SELECT 1) UPDATE t SET a = 1", entry.UPDATE, "t", "t"),
        ("DELETE FROM s.t", entry.DELETE, "t", "t"),
        ("DELETE QUICK FROM t q WHERE a IN (SELECT a FROM o)", entry.DELETE, "t", "t"),
        ("DELETE FROM t ORDER BY a LIMIT 1", entry.DELETE, "t", "t"),
        ("DELETE FROM `t` /* generated by server */", entry.DELETE, "t", "t"),
    ],
)
def test_a_statement_that_changes_other_tables_has_the_name_of_one_in_the_exact_form(
    sql: str, event_type: int, exact: str, canal: str
) -> None:
    """It has none. canal's form has the name of the first table, or an alias."""
    dump = Dump().format().begin().query(sql).xid()
    for form, table in ((True, exact), (False, canal)):
        _, one, _ = parsed(feed(dump, exact=form))
        assert (one.header.eventType, one.header.tableName) == (event_type, table)
        assert entry.RowChange.FromString(one.storeValue).sql == sql


def test_rows_that_load_data_writes_are_told_in_the_exact_form() -> None:
    """The statement has an event type of its own, which canal's form passes over."""
    head = struct.pack("<IIBHH", 9, 0, 1, 0, 0) + struct.pack("<IIIB", 1, 9, 30, 0)
    dump = Dump().format().begin().add(18, head + b"s\0LOAD DATA INFILE '/tmp/x' INTO TABLE t").xid()
    _, one, _ = parsed(feed(dump, exact=True))
    assert (one.header.eventType, one.header.schemaName, one.header.tableName) == (entry.INSERT, "s", "t")
    assert kinds(feed(dump)) == [BEGIN, END]
    with pytest.raises(MalformedEvent, match="a load query event without a header"):
        feed(Dump().format().begin().add(18, head[:20]).xid(), exact=True)


def test_ddl_entries_filtered_still_reach_the_history() -> None:
    """filter.query.ddl drops the entry, but the history still applies the statement."""
    history = AnyTable()
    dump = Dump().format().query("CREATE TABLE t (id int)")
    assert kinds(feed(dump, history=history, options=DecodeOptions(filter_query_ddl=True))) == []
    assert len(history.applied) == 1


# ---- filtered rows


def test_filtered_rows_cost_no_question() -> None:
    """The history is not asked for filtered tables, and their transactions are empty."""
    history = AnyTable()
    dump = Dump().format()
    for _ in range(3):
        dump.begin().table().insert(1).xid()
    outputs = feed(dump, history=history, tables=TableFilter(r"s\.other", ""))
    assert kinds(outputs) == [BEGIN, END]
    assert history.asked == []


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (DecodeOptions(filter_rows=True), set()),
        (DecodeOptions(filter_dml_insert=True), {entry.UPDATE, entry.DELETE}),
        (DecodeOptions(filter_dml_update=True), {entry.INSERT, entry.DELETE}),
        (DecodeOptions(filter_dml_delete=True), {entry.INSERT, entry.UPDATE}),
    ],
)
def test_rows_filtered_by_kind(options: DecodeOptions, left: set[int]) -> None:
    """Each filter.dml switch drops its kind of rows event, and filter.rows drops all of them."""
    image = b"\0" + struct.pack("<i", 1)
    dump = Dump().format().begin().table()
    dump.rows(30, image).rows(31, image + image).rows(32, image).xid()
    found = parsed(feed(dump, options=options))
    assert {one.header.eventType for one in found if one.entryType == entry.ROWDATA} == left


def test_field_filters() -> None:
    """A filtered column is left out of the entry; `updated` of the other columns is right."""
    columns = (ColumnType(3), ColumnType(3), ColumnType(3))
    before = b"\0" + struct.pack("<iii", 1, 2, 3)
    after = b"\0" + struct.pack("<iii", 1, 5, 4)
    dump = Dump().format().begin().table(columns=columns).rows(31, before + after, width=3).xid()
    outputs = feed(dump, fields=FieldFilter("", "s.t:c1"))
    (row,) = entry.RowChange.FromString(parsed(outputs)[1].storeValue).rowDatas
    assert [(column.name, column.value) for column in row.beforeColumns] == [("c0", "1"), ("c2", "3")]
    assert [(column.name, column.value, column.updated) for column in row.afterColumns] == [
        ("c0", "1", False),
        ("c2", "4", True),
    ]


# ---- control events


def test_the_start_of_a_dump() -> None:
    """The artificial rotate event before the format is read with and without a checksum; both come as raw packets."""
    for checksum in (True, False):
        dump = Dump(checksum=checksum).rotate(JOURNAL, artificial=True).format()
        outputs = feed(dump)
        assert [type(output) for output in outputs] == [RawPacket, Rotated, RawPacket, SourceFormat, Passed]
        assert outputs[1] == Rotated(JOURNAL, 4)
        assert outputs[3] == SourceFormat("9.7.4", checksum)
        raw = outputs[0]
        assert isinstance(raw, RawPacket)
        assert packets(raw.payload[1:]) == bytes(dump.data[: len(raw.payload) + 4])


def test_a_new_journal() -> None:
    """At a new journal a new segment begins, positions restart, and earlier table ids are unknown."""
    dump = Dump().format().begin().table().insert(1).xid().rotate("mysql-bin.000008").format()
    outputs = feed(dump.begin().table().insert(2).xid())
    assert [segment.journal for segment in segments(outputs)] == [JOURNAL, "mysql-bin.000008"]
    assert outputs[-1] == Passed("mysql-bin.000008", dump.position, SECONDS * 1000)
    with pytest.raises(MalformedEvent, match="table id 1"):
        feed(Dump().format().begin().table().insert(1).xid().rotate("mysql-bin.000008").format().insert(2))


def test_heartbeats() -> None:
    """Both kinds of heartbeat give journal and position, and Passed moves there; an impossible position is an error."""
    dump = Dump().format()
    dump.position = 5000
    size = 19 + len(JOURNAL) + 4
    dump.position -= size  # a heartbeat names the position behind the last event and takes no space in the journal
    dump.add(27, JOURNAL.encode())
    outputs = feed(dump)
    assert SourceHeartbeat(JOURNAL, 5000) in outputs
    assert outputs[-1] == Passed(JOURNAL, 5000, SECONDS * 1000)
    name = JOURNAL.encode()
    large = b"\xfe" + struct.pack("<Q", 5 << 32)
    body = b"\x01" + bytes([len(name)]) + name + b"\x02" + bytes([len(large)]) + large + b"\0"
    outputs = feed(Dump().format().add(41, body, artificial=True))
    assert SourceHeartbeat(JOURNAL, 5 << 32) in outputs
    assert [type(output) for output in outputs].count(RawPacket) == 1  # mysql-replication needs no heartbeats
    nowhere = b"\x02\x09\xfe" + b"\xff" * 8 + b"\0"
    with pytest.raises(MalformedEvent, match="a heartbeat at 18446744073709551615"):
        feed(Dump().format().add(41, nowhere, artificial=True))


def test_the_server_ends_the_dump() -> None:
    """ERR and EOF packets come after the segment and Passed of the data before them; another first byte is an error."""
    dump = Dump().format().begin().table().insert(1).xid()
    error = b"\xff" + struct.pack("<H", 1236) + b"#HY000" + b"no such file"
    dump.data += struct.pack("<I", len(error))[:3] + b"\1" + error + b"\5\0\0\2\xfe\0\0\2\0"
    outputs = feed(dump)
    assert [type(output) for output in outputs[-4:]] == [Segment, Passed, SourceSaid, SourceSaid]
    assert SourceSaid(1236, "no such file") in outputs
    assert any(isinstance(output, SourceSaid) and output.errno == 0 for output in outputs)
    with pytest.raises(MalformedEvent):
        list(decoder().feed(b"\1\0\0\0\x07"))


def test_unknown_events() -> None:
    """An unknown event comes as a raw packet if its flag allows ignoring it; otherwise it raises MalformedEvent."""
    dump = Dump().format()
    dump.data += packets(dump.event(120, b"whatever", flags=0x80))
    outputs = feed(dump.begin().table().insert(1).xid())
    assert kinds(outputs) == [BEGIN, ROWS, END]
    raw = [output for output in outputs if isinstance(output, RawPacket)]
    assert b"whatever" in raw[-1].payload
    with pytest.raises(MalformedEvent, match="an event of type 120"):
        feed(Dump().format().add(120, b"whatever"))


# ---- bytes


def test_an_event_of_more_than_sixteen_megabytes() -> None:
    """An event in several packets is decoded, even if the last packet is empty."""
    for extra in (0, 5):
        column = (ColumnType(252, b"\4"),)
        dump = Dump().format().begin().table(columns=column)
        size = 0xFFFFFF - 1 - 19 - 4 - 12 - 1 - 4 + extra
        mark = len(dump.data)
        dump.rows(30, b"\0" + struct.pack("<I", size) + b"x" * size).xid()
        assert dump.data[mark : mark + 3] == b"\xff\xff\xff"
        work = decoder()
        outputs: list[Output] = []
        for at in range(0, len(dump.data), 4_000_000):
            outputs += work.feed(memoryview(dump.data)[at : at + 4_000_000])
        assert kinds(outputs) == [BEGIN, ROWS, END]
        (row,) = entry.RowChange.FromString(parsed(outputs)[1].storeValue).rowDatas
        assert len(row.afterColumns[0].value) == size
        assert work.received_bytes == len(dump.data)


def received(work: Decoder, data: bytes, chunk: int) -> list[Output]:
    """Decode as a connection does: into `room` if there is any, else at most `chunk` bytes."""
    outputs: list[Output] = []
    at = 0
    while at < len(data):
        room = work.room()
        if room is None:
            outputs += work.feed(data[at : at + chunk])
            at += chunk
        else:
            count = min(len(room), 3_000_000, len(data) - at)
            room[:count] = data[at : at + count]
            room.release()
            outputs += work.received(count)
            at += count
    return outputs


def test_large_events_are_the_same_however_they_arrive() -> None:
    """Large events among small ones give the same entries from one chunk, from any chunks, and received in place."""
    column = (ColumnType(252, b"\4"),)
    dump = Dump().format().begin().table(columns=column)
    head = 1 + 19 + 4 + 12 + 1 + 4  # of the row's event, with the zero before it and its checksum
    for size in (5, (1 << 20) - head, 1 << 20, 3_000_000, 0xFFFFFF - head - 1, 2 * 0xFFFFFF - head, 34_000_000, 7):
        dump.rows(30, b"\0" + struct.pack("<I", size) + bytes([size % 251]) * size)
    dump.xid().begin().table(columns=column).rows(30, b"\0" + struct.pack("<I", 2) + b"ab").xid()
    data = bytes(dump.data)
    whole = feed(dump)
    assert frames(whole) == frames(received(decoder(), data, 262_144))
    for chunk in (65_537, 1_000_003, 20_000_000):
        work = decoder()
        assert frames([output for at in range(0, len(data), chunk) for output in work.feed(data[at : at + chunk])]) == (
            frames(whole)
        )
        assert work.received_bytes == len(data)
        assert not work.awaited


def frames(outputs: list[Output]) -> bytes:
    """Return the entries of all segments."""
    return b"".join(bytes(output.frames) for output in outputs if isinstance(output, Segment))


def test_a_large_event_is_broken_the_same_way_however_it_arrives() -> None:
    """A wrong length of a later packet, or a damaged byte, is malformed. A large event without its end is awaited."""
    size = 20_000_000
    dump = Dump().format().begin().table(columns=(ColumnType(252, b"\4"),))
    mark = len(dump.data)
    dump.rows(30, b"\0" + struct.pack("<I", size) + b"x" * size)
    for at, what in ((mark + 4 + 0xFFFFFF, "another length"), (mark + 1_000_000, "checksum")):
        data = bytearray(dump.data)
        data[at] ^= 1
        with pytest.raises(MalformedEvent, match=what):
            list(decoder().feed(bytes(data)))
        with pytest.raises(MalformedEvent, match=what):
            received(decoder(), bytes(data), 50_000)
    work = decoder()
    received(work, bytes(dump.data[:-1]), 262_144)
    room = work.room()
    assert room is not None
    assert len(room) == 1
    assert work.awaited > size


def test_positions_beyond_32_bits() -> None:
    """Offsets stay right in a journal that is larger than the 32 bits of an event header."""
    start = (1 << 32) - 200
    dump = Dump(position=start).begin().table().insert(1).insert(2).insert(3).xid()
    work = decoder(position=start)
    outputs = [*work.feed(bytes(Dump().format().data)), *work.feed(bytes(dump.data))]
    (segment,) = segments(outputs)
    assert segment.offsets[-1] == dump.position - 31 > 1 << 32
    assert list(segment.offsets) == sorted(segment.offsets)


def test_positions_that_make_no_sense() -> None:
    """An event that ends before it begins, and a rotate event to an impossible offset, raise MalformedEvent."""
    dump = Dump(checksum=False).format()
    mark = len(dump.data)
    dump.begin()
    dump.data[mark + 5 + 13 : mark + 5 + 17] = b"\5\0\0\0"
    with pytest.raises(MalformedEvent, match="ends at 5"):
        feed(dump)
    with pytest.raises(MalformedEvent, match="a rotate event to"):
        feed(Dump().format().rotate(JOURNAL, 1 << 60, artificial=True))


def test_a_checksum_that_does_not_hold() -> None:
    """One wrong bit raises MalformedEvent with the event's position, after the complete transactions before it."""
    dump = Dump().format().begin().table().insert(1).xid()
    boundary = dump.position
    mark = len(dump.data)
    dump.begin()
    dump.data[mark + 30] ^= 1
    work = decoder()
    seen: list[Output] = []
    outputs = work.feed(bytes(dump.data))
    with pytest.raises(MalformedEvent, match="checksum") as raised:
        seen.extend(outputs)
    assert (raised.value.journal, raised.value.offset) == (JOURNAL, boundary)
    assert kinds(seen) == [BEGIN, ROWS, END]


def test_a_table_that_cannot_be_told() -> None:
    """The history's TableUnknown ends the stream; with filter.table.error it only drops the rows of the table."""

    class Nothing(AnyTable):
        def table(self, table_map: TableMap, at: LogPosition) -> TableSchema:
            raise TableUnknown(table_map.name)

    dump = Dump().format().begin().table().insert(1).xid()
    with pytest.raises(TableUnknown):
        feed(dump, history=Nothing())
    assert kinds(feed(dump, history=Nothing(), options=DecodeOptions(filter_table_error=True))) == [BEGIN, END]


def test_fewer_columns_known_than_written() -> None:
    """A table map with more columns than the history knows raises TableUnknown."""
    dump = Dump().format().begin().table(columns=(ColumnType(3), ColumnType(3)))
    with pytest.raises(TableUnknown, match=r"column size is not match for table:s\.t,2 vs 1"):
        feed(dump, history=AnyTable(Column("id", "int")))


# ---- GTIDs


def gtid(number: int, uuid: bytes = bytes(range(16))) -> bytes:
    return b"\1" + uuid + struct.pack("<Q", number) + b"\2" + struct.pack("<QQ", number - 1, number)


UUID = "00010203-0405-0607-0809-0a0b0c0d0e0f"


def test_gtids_of_runs_and_of_the_place_to_reconnect_at() -> None:
    """Each transaction is a run whose GTID set includes it; the decoder's own set leaves out an open transaction."""
    options = DecodeOptions(gtid_on=True)
    dump = Dump().format()
    for number in (5, 6, 9):
        dump.add(33, gtid(number)).begin().table().insert(number).xid()
    dump.add(33, gtid(7)).begin()
    work = decoder(options=options, gtid_set=f"{UUID}:1-4,{UUID[::-1]}:3")
    (segment,) = segments(work.feed(bytes(dump.data)))
    tail = f",{UUID[::-1]}:3"
    assert segment.run_gtids == (f"{UUID}:1-5{tail}", f"{UUID}:1-6{tail}", f"{UUID}:1-6:9{tail}")
    assert segment.position(3).gtid == f"{UUID}:1-6{tail}"
    assert work.gtid_set == f"{UUID}:1-6:9{tail}"


def test_an_anonymous_transaction_does_not_carry_the_gtid_of_the_one_before() -> None:
    """The set stays as it is."""
    dump = Dump().format().add(33, gtid(5)).begin().table().insert(5).xid()
    dump.add(34, gtid(1, bytes(16))).begin().table().insert(6).xid()
    (segment,) = segments(decoder(options=DecodeOptions(gtid_on=True), gtid_set=f"{UUID}:1-4").feed(bytes(dump.data)))
    headers = [entry.Entry.FromString(each).header for each in segment.entries()]
    told = [[pair.value for pair in header.props if pair.key.startswith("curtGtid")] for header in headers]
    assert told == [[f"{UUID}:5", "5", "4"]] * 3 + [[]] * 3
    assert {header.gtid for header in headers} == {f"{UUID}:1-5"}


def test_a_set_that_makes_no_sense() -> None:
    """A malformed start set raises ValueError when the decoder is created."""
    with pytest.raises(ValueError, match="not a GTID set"):
        decoder(options=DecodeOptions(gtid_on=True), gtid_set="nonsense")


# ---- servers, modes and phases


@pytest.mark.parametrize(("version", "statement"), [(b"9.7.4", " "), (b"10.11.19-MariaDB-log", "/*M!, ADD b int */")])
def test_statements_are_read_as_their_server_reads_them(version: bytes, statement: str) -> None:
    """The history gets what the server executed; the entry keeps what was logged."""
    history = AnyTable()
    dump = Dump().format(version).query("ALTER TABLE t ADD a int /*M!, ADD b int */")
    outputs = list(decoder(history).feed(bytes(dump.data)))
    assert history.applied == [("s", f"ALTER TABLE t ADD a int {statement}")]
    assert b"/*M!, ADD b int */" in entries(outputs)[0]


def test_statements_are_read_in_the_sql_mode_of_their_session() -> None:
    """With NO_BACKSLASH_ESCAPES a backslash does not hide a string's end; with ANSI_QUOTES double quotes hold names."""
    history = AnyTable()
    dump = Dump().format().query("CREATE TABLE t (a int COMMENT 'C:\\')", sql_mode=1 << 20)
    dump.query('DROP TABLE "b"', sql_mode=4)
    outputs = list(decoder(history).feed(bytes(dump.data)))
    assert [made.header.tableName for made in parsed(outputs)] == ["t", "b"]
    assert [sql for _, sql in history.applied] == ["CREATE TABLE t (a int COMMENT 'C:\\\\')", "DROP TABLE `b`"]


def mariadb_gtid(number: int, *, phase: int = 0, group: bool = False, xa: bytes | None = None) -> bytes:
    """The body of MariaDB's GTID event in front of one statement. phase: its further flags."""
    flags = 0x29 | 2 * group | (0x40 if xa is not None else 0)
    body = struct.pack("<QIB", number, 0, flags) + bytes(8 * group)
    if xa is not None:
        body += struct.pack("<IBB", 1, len(xa), 0) + xa
    return body + (bytes([phase]) + bytes(8 * (phase in (4, 8))) if phase else b"").ljust(19 - len(body), b"\0")


@pytest.mark.parametrize("form", [{}, {"group": True}, {"xa": b"\2\2"}])
def test_an_alter_in_two_phases_takes_effect_at_its_commit(form: dict[str, object]) -> None:
    """MariaDB logs it at its start and again at its end; after a rollback it has changed nothing."""
    history = AnyTable()
    dump = Dump().format(b"10.11.19-MariaDB-log")
    steps = [(2, "ALTER TABLE a ADD x int"), (2, "ALTER TABLE b ADD x int"), (8, "ALTER TABLE a ADD x int")]
    steps += [(0, "DROP TABLE c"), (4, "ALTER TABLE b ADD x int")]
    for number, (phase, sql) in enumerate(steps, 1):
        dump.add(162, mariadb_gtid(number, phase=phase, **form)).query(sql)  # type: ignore[arg-type] # see `form`
    outputs = list(decoder(history).feed(bytes(dump.data)))
    assert [sql for _, sql in history.applied] == ["DROP TABLE c", "ALTER TABLE b ADD x int"]
    assert [made.header.tableName for made in parsed(outputs)] == ["c", "b"]
    assert outputs[-1] == Passed(JOURNAL, dump.position, SECONDS * 1000)


def test_a_gtid_event_that_ends_in_its_xa_identifier() -> None:
    """A truncated identifier is malformed, not a phase."""
    dump = Dump().format(b"10.11.19-MariaDB-log").add(162, struct.pack("<QIB", 1, 0, 0x69) + b"\0\0")
    with pytest.raises(MalformedEvent):
        list(decoder().feed(bytes(dump.data)))


# ---- what the reactor leaves to a thread


def test_what_may_block_is_announced_on_request() -> None:
    """New tables, statements, MySQL's texts of statements, which are parsed, and prepared transactions."""
    dump = Dump().format().begin().table().insert(1).xid()
    work = decoder()
    list(work.feed(bytes(dump.data)))
    work.announces = True
    known = part(dump, lambda: dump.begin().table().insert(2).xid())
    assert MayBlock() not in list(work.feed(known))
    for add in (
        lambda: dump.add(29, b"\x09INSERT ..."),  # ROWS_QUERY
        lambda: dump.query("CREATE TABLE new (id INT)"),
        lambda: dump.begin().table(table_id=7, name="new").insert(1, table_id=7).xid(),
        lambda: dump.add(38, bytes(40)),  # XA_PREPARE
    ):
        outputs = work.feed(part(dump, add))
        assert MayBlock() in takewhile(lambda output: not isinstance(output, Passed), outputs)
        list(outputs)


def part(dump: Dump, add: Callable[[], object]) -> bytes:
    """Return the bytes that `add` adds to a dump."""
    begun = len(dump.data)
    add()
    return bytes(dump.data[begun:])


def test_the_size_of_an_event_is_known_with_its_first_bytes() -> None:
    """Nothing is said about the bytes of events that are complete."""
    dump = Dump().format().begin().table().insert(*range(1000))
    work = decoder()
    list(work.feed(bytes(dump.data)))
    assert work.begun_bytes == 0
    begun = len(dump.data)
    dump.insert(*range(1000, 2000))
    list(work.feed(bytes(dump.data[begun : begun + 100])))
    assert work.begun_bytes == len(dump.data) - begun
    list(work.feed(bytes(dump.data[begun + 100 :])))
    assert work.begun_bytes == 0
