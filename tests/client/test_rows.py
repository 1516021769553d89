"""Typed rows, their JSON form and their console form."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from canal_ha.client.message import Message
from canal_ha.client.pretty import pretty
from canal_ha.client.rows import rows_of, value_of
from canal_ha.errors import RemoteProtocolError
from canal_ha.model.position import LogPosition
from canal_ha.wire.framing import frame
from canal_ha.wire.messages import Fetched, varint
from canal_ha.wire.proto import entry_protocol_pb2 as pb
from tests.server.harness import JOURNAL, entry, transaction


@pytest.mark.parametrize(
    ("sql_type", "mysql_type", "text", "value"),
    [
        (-6, "tinyint(4)", "-128", -128),
        (5, "tinyint(3) unsigned", "255", 255),
        (-7, "bit(8)", "170", 170),
        (4, "enum('a','b')", "2", "b"),
        (4, "enum('a','b')", "0", ""),
        (4, "ENUM('it''s',0x62,x'C3A9','c ')", "4", "c"),
        (4, "enum('it''s',0x62,x'c3a9',b'1100001')", "3", "é"),
        (-7, "set('a','b')", "3", "a,b"),
        (-7, "set('a','b')", "0", ""),
        (-5, "bigint(20)", "-9223372036854775808", -(2**63)),
        (3, "bigint(20) unsigned", "18446744073709551615", 2**64 - 1),
        (3, "DECIMAL(65,30)", "0.000000000000000000000000000", Decimal("0.000000000000000000000000000")),
        (7, "float", "1.0E7", 1e7),
        (8, "double", "1.9999999999999998E23", 1.9999999999999998e23),
        (1, "char(3)", "äöü", "äöü"),
        (12, "varchar(3)", "", ""),
        (12, "json", '{"a": 1}', '{"a": 1}'),
        (12, "year(4)", "0000", "0000"),
        (91, "date", "2020-00-00", "2020-00-00"),
        (92, "time(3)", "-838:59:59.000", "-838:59:59.000"),
        (93, "datetime", "0000-00-00 00:00:00", "0000-00-00 00:00:00"),
        (2005, "text", "long", "long"),
        (2004, "blob", "\x00\x7f\x80ÿ", b"\x00\x7f\x80\xff"),
        (2004, "json", '{"k": "Ã©"}', '{"k": "é"}'),
        (2004, "blob", "€", "€"),
        (2004, "binary(4)", "\x01", b"\x01\0\0\0"),
        (2004, "BINARY", "", b"\0"),
        (2004, "varbinary(4)", "\x01", b"\x01"),
        (2004, "text(100)", "Ã©", "é"),
        (2014, "timestamp", "2024-07-01 12:00:00", "2024-07-01 12:00:00"),
        (4, "int(11)", "JSON_REPLACE", "JSON_REPLACE"),
    ],
)
def test_values_have_the_type_of_their_column(sql_type: int, mysql_type: str, text: str, value: object) -> None:
    """The types are those in the docstring of canal_ha.client.rows; a value that does not fit stays text."""
    column = pb.Column(sqlType=sql_type, mysqlType=mysql_type, value=text, isNull=False)
    assert value_of(column) == value
    assert type(value_of(column)) is type(value)


@pytest.mark.parametrize("sql_type", [-7, 4, 3, 8, 12, 93, 2004, 1111])
def test_null_is_none(sql_type: int) -> None:
    """NULL of every type is None."""
    assert value_of(pb.Column(sqlType=sql_type, isNull=True)) is None


def columns(**values: Any) -> list[pb.Column]:
    return [pb.Column(index=i, name=name, isNull=False, **kind) for i, (name, kind) in enumerate(values.items())]


def update() -> bytes:
    before = columns(id={"sqlType": 4, "value": "7"}, pic={"sqlType": 2004, "value": "ÿ\0"})
    after = columns(id={"sqlType": 4, "value": "7"}, pic={"sqlType": 2004, "value": ""})
    data = pb.RowData(beforeColumns=before, afterColumns=after)
    change = pb.RowChange(eventType=pb.UPDATE, isDdl=False, rowDatas=[data, data])
    return entry(500, pb.ROWDATA, change.SerializeToString(), eventType=pb.UPDATE, gtid="u:1-5", tableName="t")


def test_an_entry_becomes_its_rows() -> None:
    """Two rows of one event differ only in their index. Parsed entries give the same rows; an END gives none."""
    raw = [transaction(0)[0], update(), transaction(0)[2]]
    rows = list(rows_of(raw))
    assert rows == list(rows_of(pb.Entry.FromString(one) for one in raw))
    assert [row.row for row in rows] == [0, 1]
    first = rows[0]
    assert (first.type, first.table, first.gtid, first.sql) == ("UPDATE", "t", "u:1-5", "")
    assert (first.before, first.after) == ({"id": 7, "pic": b"\xff\0"}, {"id": 7, "pic": b""})
    assert first.position == LogPosition(JOURNAL, 500, 1_700_000_000_500, 1, "u:1-5")


def test_inserts_and_deletes_have_one_side() -> None:
    """The other side is None, not an empty row."""
    (inserted,) = rows_of(transaction(0))
    assert (inserted.before, inserted.after) == (None, {"id": 0, "v": "x"})
    data = pb.RowData(beforeColumns=columns(id={"sqlType": 4, "value": "7"}))
    change = pb.RowChange(eventType=pb.DELETE, rowDatas=[data])
    (deleted,) = rows_of([entry(5, pb.ROWDATA, change.SerializeToString(), eventType=pb.DELETE)])
    assert (deleted.type, deleted.before, deleted.after) == ("DELETE", {"id": 7}, None)


def test_a_statement_is_a_row_without_sides() -> None:
    """The row has the statement's text."""
    change = pb.RowChange(eventType=pb.ALTER, isDdl=True, sql="ALTER TABLE t ADD c int")
    (row,) = rows_of([entry(5, pb.ROWDATA, change.SerializeToString(), eventType=pb.ALTER, schemaName="shop")])
    assert (row.type, row.schema, row.sql, row.before, row.after) == (
        "ALTER", "shop", "ALTER TABLE t ADD c int", None, None,
    )  # fmt: skip


def test_json_loses_nothing() -> None:
    """Keys have a fixed order, a decimal is a text, bytes are an object, and numbers have any size."""
    after = columns(
        big={"sqlType": 3, "mysqlType": "bigint(20) unsigned", "value": str(2**64 - 1)},
        price={"sqlType": 3, "mysqlType": "decimal(10,2)", "value": "1.50"},
        pic={"sqlType": 2004, "value": "ÿ\0"},
        name={"sqlType": 12, "value": 'ä"\n'},
    )
    change = pb.RowChange(eventType=pb.INSERT, rowDatas=[pb.RowData(afterColumns=after)])
    (row,) = rows_of([entry(5, pb.ROWDATA, change.SerializeToString(), eventType=pb.INSERT, tableName="t")])
    assert "\n" not in row.to_json()
    assert row.to_json().startswith('{"schema":"","table":"t","type":"INSERT","before":null,"after":{"big":1844674')
    assert json.loads(row.to_json()) == {
        "schema": "",
        "table": "t",
        "type": "INSERT",
        "before": None,
        "after": {"big": 2**64 - 1, "price": "1.50", "pic": {"$bytes": "/wA="}, "name": 'ä"\n'},
        "journal": JOURNAL,
        "offset": 5,
        "row": 0,
        "ts": 1_700_000_000_005,
        "gtid": "",
        "sql": "",
    }


def test_rows_of_a_snapshot_name_it() -> None:
    """Their JSON ends with the id. The JSON of other rows has no such field."""
    of_binlog, read = rows_of([*transaction(0), *transaction(0, snapshot="3f2a")])
    assert (of_binlog.snapshot, read.snapshot, read.type, read.after) == ("", "3f2a", "INSERT", of_binlog.after)
    assert read != of_binlog
    assert read.to_json() == of_binlog.to_json()[:-1] + ',"snapshot":"3f2a"}'
    assert "snapshot" not in of_binlog.to_json()


def test_bytes_that_are_no_entry_are_refused() -> None:
    """The bytes are those of an entry, or those that an entry stores."""
    for raw in (b"\xff", entry(5, pb.ROWDATA, b"\xff")):
        with pytest.raises(RemoteProtocolError):
            list(rows_of([raw]))


def message(batch_id: int, raw: list[bytes]) -> Message:
    return Message(Fetched(batch_id, b"".join(b"\x12" + varint(len(one)) + one for one in raw)))


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set local time to UTC+8, as in canal's example."""
    monkeypatch.setenv("TZ", "CST-8")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("utc")
def test_the_console_form_is_canals() -> None:
    """The output equals the example of canal's documentation, character by character."""
    head: dict[str, Any] = {"version": 1, "logfileName": "mysql-bin.000004", "executeTime": 1507701989000}
    after = columns(
        uid={"sqlType": 4, "mysqlType": "int(4)", "value": "1", "updated": True},
        name={"sqlType": 12, "mysqlType": "varchar(10)", "value": "10", "updated": True},
    )
    inserted = pb.RowChange(eventType=pb.INSERT, rowDatas=[pb.RowData(afterColumns=after)])
    raw = [
        pb.Entry(
            header=pb.Header(logfileOffset=659, eventLength=80, **head),
            entryType=pb.TRANSACTIONBEGIN,
            storeValue=pb.TransactionBegin(threadId=11).SerializeToString(),
        ),
        pb.Entry(
            header=pb.Header(logfileOffset=785, eventLength=75, schemaName="canal_test", tableName="test", **head),
            entryType=pb.ROWDATA,
            storeValue=inserted.SerializeToString(),
        ),
        pb.Entry(
            header=pb.Header(logfileOffset=822, eventLength=31, **head),
            entryType=pb.TRANSACTIONEND,
            storeValue=pb.TransactionEnd(transactionId="0").SerializeToString(),
        ),
    ]
    batch = message(2, [one.SerializeToString() for one in raw])
    assert pretty(batch, 1507701992142) == (
        "****************************************************\n"
        "* Batch Id: [2] ,count : [3] , memsize : [186] , Time : 2017-10-11 14:06:32\n"
        "* Start : [mysql-bin.000004:659:1507701989000(2017-10-11 14:06:29)]\n"
        "* End : [mysql-bin.000004:822:1507701989000(2017-10-11 14:06:29)]\n"
        "****************************************************\n"
        "\n"
        "================> binlog[mysql-bin.000004:659] , executeTime : 1507701989000 , delay : 3142ms\n"
        " BEGIN ----> Thread id: 11\n"
        "----------------> binlog[mysql-bin.000004:785] , name[canal_test,test] , eventType : INSERT"
        " , executeTime : 1507701989000 , delay : 3142ms\n"
        "uid : 1    type=int(4)    update=true\n"
        "name : 10    type=varchar(10)    update=true\n"
        "----------------\n"
        " END ----> transaction id: 0\n"
        "================> binlog[mysql-bin.000004:822] , executeTime : 1507701989000 , delay : 3142ms\n"
    )


def test_the_console_shows_statements_and_what_was_deleted() -> None:
    """The console shows the text of a query and the before columns of a DELETE."""
    query = pb.RowChange(eventType=pb.QUERY, isDdl=True, sql="create database canal_test")
    gone = pb.RowData(beforeColumns=columns(id={"sqlType": 4, "mysqlType": "int", "value": "7"}))
    deleted = pb.RowChange(eventType=pb.DELETE, rowDatas=[gone])
    raw = [
        entry(396, pb.ROWDATA, query.SerializeToString(), eventType=pb.QUERY, schemaName="canal_test"),
        entry(496, pb.ROWDATA, deleted.SerializeToString(), eventType=pb.DELETE, schemaName="shop", tableName="t"),
    ]
    lines = pretty(message(1, raw), 1_700_000_000_500).splitlines()[6:]
    assert lines == [
        f"----------------> binlog[{JOURNAL}:396] , name[canal_test,] , eventType : QUERY"
        " , executeTime : 1700000000396 , delay : 104ms",
        " sql ----> create database canal_test",
        f"----------------> binlog[{JOURNAL}:496] , name[shop,t] , eventType : DELETE"
        " , executeTime : 1700000000496 , delay : 4ms",
        "id : 7    type=int",
    ]


def test_frames_are_not_confused() -> None:
    """A message keeps its frames unchanged, and parses each entry once."""
    batch = message(3, transaction(0))
    assert batch.entries is batch.entries
    assert frame(batch.raw_entries[0])[4:] == transaction(0)[0]


def inserted_into(columns_of_row: list[pb.Column]) -> bytes:
    change = pb.RowChange(eventType=pb.INSERT, rowDatas=[pb.RowData(afterColumns=columns_of_row)])
    return entry(5, pb.ROWDATA, change.SerializeToString(), eventType=pb.INSERT, schemaName="s", tableName="t")


def test_iterations_over_one_table_do_not_disturb_each_other() -> None:
    """One goes on while another one reads rows of the same table with other columns."""
    narrow = message(1, [inserted_into(columns(a={"sqlType": 4, "value": str(n)})) for n in range(3)])
    wide = message(
        2,
        [inserted_into(columns(b={"sqlType": 12, "value": str(n)}, a={"sqlType": 4, "value": "9"})) for n in range(3)],
    )
    for _ in range(2):  # the second time with what the first ones have learnt
        pairs = list(zip(rows_of(narrow), rows_of(wide), strict=True))
        assert [one.after for one, _ in pairs] == [{"a": n} for n in range(3)]
        assert [other.after for _, other in pairs] == [{"b": str(n), "a": 9} for n in range(3)]


def test_an_iteration_that_is_over_keeps_nothing_of_its_message() -> None:
    """What it has learnt about the columns of a table stays for the next one, but not the bytes."""
    batch = message(1, transaction(0))
    data = batch.walk().src
    references = sys.getrefcount(data)
    assert [row.after for row in rows_of(batch)] == [{"id": 0, "v": "x"}]
    assert sys.getrefcount(data) == references
