"""Rows of a SELECT become one transaction of ordinary entries, whatever their size, filters and protection."""

from __future__ import annotations

import resource
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from canal_ha.config.model import DecodeOptions
from canal_ha.decode.kernel import BUILD
from canal_ha.decode.privacy import NO_PRIVACY, Privacy
from canal_ha.errors import SnapshotRefused
from canal_ha.model.entry import SNAPSHOT_PROP
from canal_ha.model.position import LogPosition
from canal_ha.model.privacy import ColumnRules
from canal_ha.model.segment import EntryKind, Segment
from canal_ha.model.table import Column, TableSchema
from canal_ha.source.connection.flavor import flavor
from canal_ha.source.snapshot.keys import TableKeys
from canal_ha.source.snapshot.table import SnapshotTable
from canal_ha.source.snapshot.transaction import EVENT_BYTES, SnapshotTransactions
from canal_ha.wire.proto import entry_protocol_pb2 as entry
from lab.dump import INTS, JOURNAL, AnyTable, Dump, decoder, segments
from tests.decode.result_sets import packet

COLUMNS = (Column("id", "int", key=True, nullable=False), Column("name", "longtext", charset="utf8mb4"))
SERVER = flavor({"version": "9.7.4"})
PLACE = LogPosition(JOURNAL, 4711, 1_700_000_000_000, 9, sub_index=3)


def transactions(options: DecodeOptions | None = None, privacy: Privacy = NO_PRIVACY) -> SnapshotTransactions:
    """Return what makes segments of s.t. options, privacy: of the decoder."""
    table = SnapshotTable(TableSchema("s", "t", COLUMNS), SERVER)
    return SnapshotTransactions(
        table,
        "first",
        lambda place: decoder(AnyTable(*COLUMNS), options, position=place.offset, privacy=privacy),
    )


def rows(segment: Segment) -> list[list[str | None]]:
    """Return the texts of every row."""
    found: list[list[str | None]] = []
    for index, kind in enumerate(segment.kinds):
        if kind == EntryKind.ROWS:
            change = entry.RowChange.FromString(entry.Entry.FromString(segment.entry(index)).storeValue)
            assert change.eventType == entry.INSERT
            found += [
                [None if column.isNull else column.value for column in row.afterColumns] for row in change.rowDatas
            ]
    return found


def test_rows_are_one_transaction_at_one_place() -> None:
    """All rows are in one segment, with entries of a usual size, at the given place, with the snapshot's id."""
    packets = b"".join(packet(b"%d" % number, b"x" * 1000) for number in range(5000))
    segment = transactions().segment(packets, PLACE)
    assert segment is not None
    assert rows(segment) == [[str(number), "x" * 1000] for number in range(5000)]
    assert (segment.cut, segment.kinds[0], segment.kinds[-1]) == (False, EntryKind.BEGIN, EntryKind.END)
    assert set(segment.kinds[1:-1]) == {EntryKind.ROWS}
    assert max(segment.entry_size(index) for index in range(len(segment))) < 2 * EVENT_BYTES
    assert sum(segment.row_counts) == segment.row_ends[-1] == 5000
    for index, raw in enumerate(segment.entries()):
        one = entry.Entry.FromString(raw)
        assert one.SerializeToString() == raw
        assert (one.header.logfileName, one.header.logfileOffset) == (PLACE.journal, PLACE.offset)
        told = {pair.key: pair.value for pair in one.header.props}
        assert told.get(SNAPSHOT_PROP) == ("first" if segment.kinds[index] == EntryKind.ROWS else None)
        at = segment.position(index)
        assert (at.offset, at.sub_index, at.timestamp_ms, at.server_id) == (4711, 3, 1_700_000_000_000, 9)


def test_skipped_rows_are_left_out() -> None:
    """Rows whose numbers are named are left out; without any row there is no segment."""
    made = transactions()
    packets = b"".join(packet(b"%d" % number, None) for number in range(5))
    segment = made.segment(packets, PLACE, {0, 3})
    assert segment is not None
    assert rows(segment) == [["1", None], ["2", None], ["4", None]]
    assert made.segment(packets, PLACE, range(5)) is None
    assert made.segment(b"", PLACE) is None


@pytest.mark.parametrize("size", [0xFFFFFF - 20, 0xFFFFFF - 10, 0xFFFFFF - 7, 0xFFFFFF, 2 * 0xFFFFFF - 7, 40_000_000])
def test_rows_of_several_packets(size: int) -> None:
    """A row beyond one packet is read, skipped, and followed by others."""
    packets = packet(b"1", b"a") + packet(b"2", b"b" * size) + packet(b"3", b"c")
    made = transactions()
    segment = made.segment(packets, PLACE)
    assert segment is not None
    assert rows(segment) == [["1", "a"], ["2", "b" * size], ["3", "c"]]
    left = made.segment(packets, PLACE, [1])
    assert left is not None
    assert rows(left) == [["1", "a"], ["3", "c"]]


def test_filters_and_protection_apply() -> None:
    """The decoder's options hold for existing rows as for the stream."""
    packets = packet(b"1", b"secret")
    masked = transactions(privacy=Privacy([ColumnRules(mask="s.t:name")], "")).segment(packets, PLACE)
    assert masked is not None
    assert b"secret" not in bytes(masked.frames)
    assert rows(masked)[0][0] == "1"
    assert transactions(DecodeOptions(filter_dml_insert=True)).segment(packets, PLACE) is None


def test_entries_have_the_executed_set() -> None:
    """In GTID mode every entry has the set that was executed before the place."""
    executed = "cc9eb805-e57b-11f1-8162-02fc00000001:1-9"
    table = SnapshotTable(TableSchema("s", "t", COLUMNS), SERVER)
    options = DecodeOptions(gtid_on=True)
    made = SnapshotTransactions(
        table, "first", lambda place: decoder(AnyTable(*COLUMNS), options, position=place.offset, gtid_set=place.gtid)
    )
    segment = made.segment(packet(b"1", b"a"), replace(PLACE, gtid=executed))
    assert segment is not None
    assert segment.run_gtids == (executed,)
    assert [entry.Entry.FromString(raw).header.gtid for raw in segment.entries()] == [executed] * 3
    assert segment.position(2).gtid == executed


def test_segments_at_several_places() -> None:
    """One after the other, each has its own place and executed set, and the rest is as that of a new maker."""
    executed = "cc9eb805-e57b-11f1-8162-02fc00000001:1-"
    table = SnapshotTable(TableSchema("s", "t", COLUMNS), SERVER)
    options = DecodeOptions(gtid_on=True, transaction_size=2)

    def maker() -> SnapshotTransactions:
        return SnapshotTransactions(
            table,
            "first",
            lambda at: decoder(AnyTable(*COLUMNS), options, position=at.offset, gtid_set=at.gtid or None),
        )

    one = maker()
    for number, size in enumerate((10, 90_000, 1_200_000, 20)):
        packets = packet(b"%d" % number, b"x" * size) + packet(b"7", None) * 3000
        place = replace(
            PLACE,
            offset=4 + (number << 32),
            timestamp_ms=1000 * number,
            gtid=f"{executed}{number + 1}" if number % 2 else "",
        )
        segment, alone = one.segment(packets, place, [1]), maker().segment(packets, place, [1])
        assert segment is not None
        assert alone is not None
        assert bytes(segment.frames) == bytes(alone.frames)
        assert replace(segment, frames=b"", buffers=None) == replace(alone, frames=b"", buffers=None)
        assert not segment.cut
        at = segment.position(0)
        assert (at.offset, at.sub_index, at.timestamp_ms, at.gtid) == (place.offset, 3, 1000 * number, place.gtid)
        segment.recycle()
    elsewhere = one.segment(packet(b"1", b"a"), replace(PLACE, journal="mysql-bin.000002"))
    assert elsewhere is not None
    names = [entry.Entry.FromString(raw).header.logfileName for raw in elsewhere.entries()]
    assert [elsewhere.journal, *names] == ["mysql-bin.000002"] * 4


@pytest.mark.skipif(BUILD == "interpreted", reason="the compiled kernel alone uses memory again")
def test_pieces_of_a_snapshot_use_memory_again() -> None:
    """On a thread of a connection, a piece gets no memory from the system: that costs as much as decoding the rows."""
    made = transactions()
    packets = b"".join(packet(b"%d" % number, b"x" * 200) for number in range(2500))

    def new_pages() -> int:
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        segment = made.segment(packets, PLACE)
        assert segment is not None
        segment.recycle()
        return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before

    with ThreadPoolExecutor(1) as thread:
        counts = [thread.submit(new_pages).result() for _ in range(20)]
    assert sorted(counts)[10] < 16, counts  # a piece has 130 pages of rows


@pytest.mark.parametrize(
    "packets",
    [packet(b"1"), packet(b"1", b"a", b"b"), packet(b"one", b"a"), packet(b"1", b"a")[:-1], b"\1", packet(b"", b"a")],
)
def test_other_rows_are_refused(packets: bytes) -> None:
    """Bytes that are not rows of the table are an error that names the table, and no entry."""
    with pytest.raises(SnapshotRefused, match=r"^s\.t: the rows of a SELECT cannot be read"):
        transactions().segment(packets, PLACE)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ([Column("a", "int")], "no primary key"),
        ([Column("a", "int", key=True), Column("b", "cube")], "column b of type cube"),
        ([Column("a", "int", key=True), Column("b", "")], "column b of type unknown"),
    ],
)
def test_tables_that_cannot_be_read_are_refused(columns: list[Column], reason: str) -> None:
    """A table without a key, or with an unknown type, is refused; the error names table and column."""
    with pytest.raises(SnapshotRefused, match=rf"^s\.t.*{reason}"):
        SnapshotTable(TableSchema("s", "t", tuple(columns)), SERVER)


def test_names_are_quoted() -> None:
    """Names with back-quotes are quoted in the select list, and hidden columns are not asked for."""
    columns = (Column("a`b", "int", key=True), Column("DB_ROW_HASH_1", "bigint unsigned", unsigned=True, hidden=True))
    assert SnapshotTable(TableSchema("s", "t", columns), SERVER).select_list == "`a``b`, NULL"


def test_keys_of_a_chunk() -> None:
    """The keys of a chunk's segment come in the order of its rows, and only for its table."""
    columns = (Column("b", "varchar(20)", key=True), Column("a", "int", key=True), Column("c", "text"))
    table = SnapshotTable(TableSchema("s", "t", columns), SERVER, ("a", "B"))
    made = SnapshotTransactions(table, "first", lambda place: decoder(AnyTable(*columns)))
    segment = made.segment(packet("ä".encode(), b"1", None) + packet(b"", b"-2", b"x"), PLACE)
    assert segment is not None
    assert list(TableKeys("s", "t", table.key).of(segment)) == [(None, ("1", "ä")), (None, ("-2", ""))]
    assert not list(TableKeys("s", "t2", table.key).of(segment))
    assert not list(TableKeys("S", "t", table.key).of(segment))


def test_keys_of_the_stream() -> None:
    """Updates have a key before and after, deletes one before; other tables and statements have none."""
    column = Column("c0", "int", key=True)
    dump = Dump().format().begin().table().insert(1, 2).table()
    one, two = (number.to_bytes(4, "little") for number in (1, 7))
    dump.rows(31, b"\xfe" + one + b"\xfe" + two, width=1).table(2, "s", "other").insert(5, table_id=2).table()
    dump.rows(32, b"\xfe" + two).xid()
    made = segments(decoder(AnyTable(column)).feed(bytes(dump.data)))
    keys = TableKeys("s", "t", ("c0",))
    found = [key for segment in made for key in keys.of(segment)]
    assert found == [(None, ("1",)), (None, ("2",)), (("1",), ("7",)), (("7",), None)]


def test_keys_of_minimal_images() -> None:
    """An after image without a column of the key has its value from the before image."""
    columns = (Column("c0", "int", key=True), Column("c1", "int", key=True), Column("c2", "int"))
    dump = Dump().format().begin().table(columns=INTS * 3)
    one, two, nine = (number.to_bytes(4, "little") for number in (1, 2, 9))
    head = (1).to_bytes(6, "little") + b"\1\0\2\0\3"
    dump.add(31, head + b"\xfb\xfc" + b"\xfc" + one + two + b"\xfe" + nine)  # c0, c1 before; c2 after
    dump.add(31, head + b"\xfb\xfa" + b"\xfc" + one + two + b"\xfe" + nine).xid()  # c1 after
    made = segments(decoder(AnyTable(*columns)).feed(bytes(dump.data)))
    keys = TableKeys("s", "t", ("c0", "c1"))
    assert [key for segment in made for key in keys.of(segment)] == [(("1", "2"),) * 2, (("1", "2"), ("1", "9"))]


def test_a_key_that_the_binlog_lacks_is_refused() -> None:
    """A changed row without its key is an error, because a snapshot could overwrite the change."""
    column = Column("c0", "int", key=True)
    dump = Dump().format().begin().table().insert(1).xid()
    made = segments(decoder(AnyTable(column)).feed(bytes(dump.data)))
    with pytest.raises(SnapshotRefused, match="binlog_row_image"):
        list(TableKeys("s", "t", ("other",)).of(made[0]))
