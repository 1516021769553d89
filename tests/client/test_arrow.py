"""Entries as Arrow record batches, without a server."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from canal_ha.client.arrow import BATCH_ROWS, META, Pages, arrow_message, read_tables, table_batches
from canal_ha.client.arrow_types import column_type, finished, target_of, to_arrow
from canal_ha.client.message import Message
from canal_ha.client.rows import rows_of, value_of
from canal_ha.errors import RemoteProtocolError, SinkRefused
from canal_ha.wire.messages import Fetched
from canal_ha.wire.proto import entry_protocol_pb2 as pb
from tests.decode import reading
from tests.spark.entries import begin, ddl, end, frames, insert, rows

TYPES = (
    ("tinyint(4)", -6), ("smallint unsigned", 5), ("mediumint", 4), ("int(10) unsigned", -5), ("bigint(20)", -5),
    ("bigint unsigned", 3), ("decimal(10,2)", 3), ("decimal(38,10)", 3), ("decimal(65,30)", 3), ("float", 7),
    ("double", 8), ("bit(1)", -7), ("bit(12)", -7), ("bit(64)", -7), ("date", 91), ("datetime", 93),
    ("timestamp(3)", 93), ("time(2)", 92), ("year(4)", 12), ("char(3)", 1), ("text", 2005), ("text(100)", 2004),
    ("binary(3)", 2004), ("blob", 2004), ("enum('a','b')", 4), ("set('x','y','z')", -7), ("json", 12), ("point", 2004),
    ("inet6", 12), ("", 12),
)  # fmt: skip
TEXTS = (
    "0", "1", "2", "-1", "5", "255", "-128", "65535", "16777215", "4294967295", "18446744073709551615", "1.50", "5.0",
    "0.", "-0.00", "12345678.90", "1.0E7", "9.99E-4", "0.1", "2024-02-29", "0000-00-00", "2020-00-00",
    "2024-07-01 12:00:00", "2024-07-01 12:00:00.250", "0000-00-00 00:00:00", "2024-03-31 02:30:00", "-838:59:59.00",
    "1999", "", "abc", "é", "\xff\0", "中", '{"a": 1}', "2024-02-30", "1e400", " 1",
)  # fmt: skip
DATES = tuple(text for text in TEXTS if len(text) == 10 and "-" in text)
TIMES = tuple(text for text in TEXTS if len(text) > 10 and "-" in text)
EXPONENTS = ("1.0E7", "9.99E-4")
WANTED = (
    pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(20, 0),
    pa.decimal128(12, 4), pa.string(), pa.binary(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", tz="UTC"),
    pa.bool_(),
)  # fmt: skip


def by_pyarrow(text: str, mysql_type: str, sql_type: int, wanted: pa.DataType) -> object:
    try:
        return to_arrow([text, None], column_type(mysql_type, sql_type), wanted, "Europe/Berlin").to_pylist()
    except SinkRefused:
        return "refused"


def by_kernel(text: str, mysql_type: str, sql_type: int, wanted: pa.DataType) -> object:
    column = column_type(mysql_type, sql_type)
    target = target_of(column, wanted)
    raw = text.encode()
    if not target.put(raw, 0, len(raw)):
        return "refused"
    target.put_null()
    try:
        array = finished(target, column, wanted, "Europe/Berlin")
    except SinkRefused:
        return "refused"
    assert array.type == wanted
    array.validate(full=True)
    return array.to_pylist()


@pytest.mark.parametrize(("mysql_type", "sql_type"), TYPES)
def test_the_kernel_makes_what_pyarrow_makes(mysql_type: str, sql_type: int) -> None:
    """The kernel equals pyarrow for every text, for the column's own type and for any type that a table declares."""
    own, name = column_type(mysql_type, sql_type).arrow, column_type(mysql_type, sql_type).name
    for text in TEXTS:
        for wanted in (own, *WANTED):
            expected = by_pyarrow(text, mysql_type, sql_type, wanted)
            found = by_kernel(text, mysql_type, sql_type, wanted)
            if found != expected:  # the kernel refuses what canal never writes for such a column
                assert found == "refused"
                assert text in ("1e400", *{"date": TIMES, "datetime": DATES, "timestamp": DATES}.get(name, EXPONENTS))


def test_labels_of_a_statement() -> None:
    """A literal is a label like the others, and trailing blanks belong to none."""
    for text, label in (("1", "a"), ("2", "b"), ("3", "c")):
        for convert in (by_pyarrow, by_kernel):
            assert convert(text, "enum(0x61,'b ',b'1100011')", 4, pa.string()) == [label, None]


@pytest.mark.parametrize("strange", [0.0, 0.02, 0.3])
def test_rows_are_protobufs_rows(strange: float) -> None:
    """The values equal those of protobuf for any order, repetition or gaps of the fields, from messages and entries."""
    for seed in range(40):
        data = reading.frames(f"rows {seed}", 8, strange)
        message = Message(Fetched(7, data))
        expected = []
        for one in message.entries:
            if one.entryType != pb.ROWDATA:
                continue
            change = pb.RowChange.FromString(one.storeValue)
            head = (one.header.schemaName, one.header.tableName, pb.EventType.Name(change.eventType), change.sql)
            place = (one.header.logfileName, one.header.logfileOffset, one.header.serverId, one.header.gtid)
            for index, row in enumerate(change.rowDatas or [pb.RowData()]):
                sides = [{each.name: value_of(each) for each in side} for side in (row.beforeColumns, row.afterColumns)]
                places = (*place, reading.snapshot(one.header), one.header.executeTime, index)
                expected.append((*head, *places, *(side or None for side in sides)))
        for given in (message, message.entries, message.raw_entries):
            assert [told(row) for row in rows_of(given)] == expected


def told(row: Any) -> tuple[object, ...]:
    place = (row.journal, row.offset, row.position.server_id, row.gtid, row.snapshot, row.ts)
    return (row.schema, row.table, row.type, row.sql, *place, row.row, row.before, row.after)


def test_every_batch_is_valid_arrow() -> None:
    """All buffers are valid for any input; a text that is not a value of its column is refused."""
    kept = refused = 0
    for seed in range(150):
        data = reading.frames(f"batches {seed}", 3, random.Random(seed).choice((0.0, 0.02)))
        batches = table_batches(data)
        while True:
            try:
                batch = next(batches, None)
            except SinkRefused as error:
                refused += " do not fit into " in str(error)
                break
            if batch is None:
                break
            batch.rows.validate(full=True)
            kept += batch.rows.num_rows
    assert kept > 50
    assert refused > 10


def test_tables_side_by_side() -> None:
    """Each table has its own batches. Positions give the order of all rows, and a statement keeps its place."""
    entries = [
        begin(10),
        insert(20, 1),
        insert(30, 2, table="u"),
        ddl(40, "ALTER TABLE t ADD x INT"),
        insert(50, 3),
        end(60),
    ]
    message = arrow_message(Message(Fetched(3, frames(entries))))
    assert (message.id, bool(message)) == (3, True)
    assert [(batch.table, batch.rows.num_rows) for batch in message.batches] == [("t", 1), ("t", 1), ("t", 1), ("u", 1)]
    found = sorted(
        (row["_position"]["entry"], batch.table, row["_op"], row["id"], row["_ddl"])
        for batch in message.batches
        for row in batch.rows.to_pylist()
    )
    assert found == [
        (1, "t", "insert", 1, None), (2, "u", "insert", 2, None), (3, "t", "ddl", None, "ALTER TABLE t ADD x INT"),
        (4, "t", "insert", 3, None),
    ]  # fmt: skip
    assert not arrow_message(Message(Fetched(-1, b"")))


def test_rows_of_a_snapshot_are_read() -> None:
    """They keep their place between the rows of the binlog."""
    entries = [insert(100, 1), insert(110, 2, snapshot="7"), insert(110, 3, snapshot="7"), insert(120, 4)]
    [batch] = table_batches(frames(entries))
    rows = batch.rows
    assert list(zip(rows["id"].to_pylist(), rows["_op"].to_pylist(), strict=True)) == [
        (1, "insert"), (2, "read"), (3, "read"), (4, "insert"),
    ]  # fmt: skip
    assert [place["sub"] for place in rows["_position"].to_pylist()] == [0, 0, 1, 0]


def test_many_rows_are_several_batches() -> None:
    """No row is lost between them."""
    count = 2 * BATCH_ROWS + 7
    image = [(None, {"id": str(key), "name": None}) for key in range(100)]
    entries = [rows(10 * at, "INSERT", image) for at in range(count // 100 + 1)]
    batches = list(table_batches(frames(entries)))
    assert [len(batches), sum(batch.rows.num_rows for batch in batches)] == [3, 100 * len(entries)]
    assert batches[1].rows["id"].to_pylist()[:3] == [0, 1, 2]


def test_what_is_kept_between_messages_changes_none() -> None:
    """Each message gives the same batches, or the same error, as it gives alone."""
    pages = Pages.kept(None, "UTC")
    plain = [insert(20, 1), insert(30, 2, table="u"), ddl(40, "ALTER TABLE t ADD x INT"), end(50)]
    plain += [rows(60, "INSERT", [(None, {"id": str(key), "more": None}) for key in range(3)])]
    plain += [rows(70, "UPDATE", [({"id": "1", "name": "a"}, {"id": str(key), "name": "b"}) for key in (1, 2)])]
    kept = refused = 0
    for seed in range(100):
        chance = random.Random(seed)
        data = reading.frames(f"kept {seed}", 3, 0.02) if seed % 4 == 0 else frames(chance.choices(plain, k=4))
        told: list[object] = []
        for each in (pages, None):
            try:
                told.append(arrow_message(Message(Fetched(1, data)), "UTC", each).batches)
                kept += 1
            except SinkRefused as error:
                told.append(str(error))
                refused += 1
        assert told[0] == told[1]
    assert kept > 50
    assert refused > 10
    assert Pages.kept(pages, "UTC") is pages
    assert Pages.kept(pages, "Asia/Shanghai") is not pages


def test_batches_that_are_kept_stay_what_they_were() -> None:
    """Memory is used again only if nobody holds its batch."""
    pages = Pages.kept(None, "UTC")
    kept: list[tuple[pa.RecordBatch, pa.RecordBatch]] = []
    for number in range(12):
        count = 3000 + 100 * (number % 3)
        images = [(None, {"id": str(row + number), "name": f"{number} {row} " * 10}) for row in range(count)]
        body = frames([rows(10, "INSERT", images[: count // 2]), rows(20, "INSERT", images[count // 2 :])])
        (alone,), (found,) = table_batches(body), arrow_message(Message(Fetched(1, body)), "UTC", pages).batches
        if number % 4 < 2:
            kept.append((found.rows, alone.rows))
        assert found.rows.equals(alone.rows)
    for again, alone in kept:
        again.validate(full=True)
        assert again.equals(alone)


@pytest.mark.parametrize("other", ["id", "ID"])
@pytest.mark.parametrize(
    ("one", "two"),
    [
        (("int(11)", 4, "5"), ("bigint(20)", -5, "6")),
        (("bigint(20)", -5, "5"), ("int(11)", 4, "6")),
        (("int(11)", 4, "5"), ("varchar(9)", 12, "six")),
        (("varchar(9)", 12, "five"), ("int(11)", 4, "6")),
        (("datetime", 93, "2024-02-29 00:00:00"), ("double", 8, "6.5")),
        (("blob", 2004, "five"), ("bit(1)", -7, "1")),
    ],
)
def test_columns_of_one_name_keep_their_own_values(
    other: str, one: tuple[str, int, str], two: tuple[str, int, str]
) -> None:
    """Also names that differ only in case. No server has such tables, but a peer can send any names."""
    columns = [("id", *one[:2], True), (other, *two[:2], False)]
    entry = pb.Entry(header=pb.Header(schemaName="s", tableName="t"), entryType=pb.ROWDATA)
    row = pb.RowData()
    expected = []
    for place, ((name, mysql_type, sql_type, key), (*_, text)) in enumerate(zip(columns, (one, two), strict=True)):
        row.afterColumns.add(
            index=place, name=name, mysqlType=mysql_type, sqlType=sql_type, isKey=key, isNull=False, value=text
        )
        kind = column_type(mysql_type, sql_type)
        expected.append(to_arrow([text] * 3, kind, kind.arrow, "UTC").to_pylist())
    entry.storeValue = pb.RowChange(eventType=pb.INSERT, rowDatas=[row] * 3).SerializeToString()
    [batch] = table_batches(frames([entry.SerializeToString()]))
    assert [batch.rows.column(place).to_pylist() for place in range(2)] == expected
    [(_, _, alone)] = read_tables(frames([entry.SerializeToString()]), OneField(batch.rows.schema.field(1)), "UTC")
    assert alone.column(0).to_pylist() == expected[1]


class OneField:
    """Wants one column of each table."""

    def __init__(self, field: pa.Field) -> None:
        self._schema = pa.schema([field, *META])

    def table(self, schema: str, table: str) -> bool:
        return True

    def fields(self, schema: str, table: str, columns: object) -> pa.Schema:
        return self._schema

    def key_places(self, schema: str, table: str) -> None:
        pass

    def statement(self, sql: str) -> None:
        pass


def test_errors_say_where() -> None:
    """One error names the column of a value that does not fit; the other is for bytes that are not an entry."""
    wrong = rows(10, "INSERT", [(None, {"id": "abc", "name": None})])
    with pytest.raises(SinkRefused, match=r"int\(11\) do not fit into int32: 'abc' in s\.t\.id"):
        list(table_batches(frames([wrong])))
    with pytest.raises(RemoteProtocolError, match="invalid entry"):
        list(table_batches(frames([wrong])[:-3]))


def test_a_long_gtid_set_of_many_rows_was_an_error_of_the_kernel() -> None:
    """One entry can make a column of more than 2 GiB, which Arrow's texts cannot have."""
    many = rows(10, "INSERT", [(None, {"id": "1", "name": None})] * 2100, gtid="g" * (1 << 20))
    with pytest.raises(RemoteProtocolError, match="in 2100 rows: more than 2 GiB in one column"):
        list(table_batches(frames([many])))


@pytest.mark.parametrize("mysql_type", ["DECIMAL(0)", "DECIMAL(0,0)", "numeric(0) unsigned", "decimal"])
def test_a_decimal_without_digits_was_a_value_error(mysql_type: str) -> None:
    """Servers take DECIMAL(0) in a statement, and mean the default."""
    assert column_type(mysql_type, 3).arrow == pa.decimal128(10, 0)
