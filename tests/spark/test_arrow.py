"""Entries as Arrow: NULL and missing columns, changed keys, statements, values by type."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from canal_ha.client import arrow
from canal_ha.errors import SchemaChanged, SinkRefused
from canal_ha.pipeline.messages.debezium_values import value
from canal_ha.pipeline.options import Evolution, Shape
from canal_ha.spark.arrow import SegmentReading, entries_to_arrow
from canal_ha.spark.debezium import messages
from canal_ha.spark.entries import INSERT, EntryRows, RowLayout
from canal_ha.spark.moments import in_utc
from canal_ha.spark.mysql_types import column_type, spark_name, to_arrow
from canal_ha.wire.proto.entry_protocol_pb2 import Header
from tests.spark.entries import ID, NAME, begin, ddl, end, frames, insert, logged_statement, rows

POSITION = pa.struct([pa.field("seq", pa.int64()), *arrow.POSITION])
STAMP = pa.timestamp("us", tz="UTC")
MAP = pa.map_(pa.string(), pa.string())
ENVELOPE = pa.schema(
    {
        "op": pa.string(),
        "ts": STAMP,
        **dict.fromkeys(("destination", "schema", "table"), pa.string()),
        **dict.fromkeys(("key", "before", "after"), MAP),
        "position": POSITION,
        "ddl": pa.string(),
    }
)
CHANGES = pa.schema(
    {
        **dict.fromkeys(("op", "ts", "destination", "schema", "table", "layout"), pa.string()),
        "ts": STAMP,
        **dict.fromkeys(("before", "after"), pa.list_(pa.string())),
        "position": POSITION,
        "ddl": pa.string(),
    }
)
DEBEZIUM = pa.schema(
    {**dict.fromkeys(("destination", "schema", "table", "key", "value"), pa.string()), "position": POSITION}
)
TABLE = pa.schema(
    {
        "id": pa.int32(),
        "name": pa.string(),
        "extra": pa.int64(),
        "_op": pa.string(),
        "_ts": STAMP,
        "_position": POSITION,
        "_ddl": pa.string(),
    }
)


def read(
    shape: Shape, schema: pa.Schema, *entries: bytes, evolution: Evolution = Evolution.NULL, filter: str = ""
) -> list[dict[str, Any]]:
    """Return the rows of one segment."""
    table = "s.t" if shape in (Shape.TABLE, Shape.CHANGES) else ""
    reading = SegmentReading(shape, schema, table, evolution, "UTC", filter)
    batches = entries_to_arrow(frames(entries), "d", 7, "segment", reading, "")
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("modules", "libraries"),
    [
        (
            "canal_ha.spark.source, canal_ha.spark.stream, canal_ha.spark.arrow",
            ["google.protobuf", "javaproperties", "kazoo", "pyarrow.compute", "pyarrow.fs", "re2", "regex", "sqlglot"],
        ),
        ("canal_ha.spark.stream, canal_ha.spark.tailer", ["jsonschema", "pyarrow.compute", "sqlglot", "yaml"]),
    ],
    ids=["worker", "driver"],
)
def test_a_process_of_a_query_imports_only_what_its_rows_need(modules: str, libraries: list[str]) -> None:
    """Each Python worker, and the driver's process of the source, imports them before its first row."""
    program = f"import sys, {modules}; print([each for each in sys.argv[1:] if each in sys.modules])"
    command = [sys.executable, "-c", program, *libraries]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_envelope_tells_null_from_missing() -> None:
    """NULL is a null value; a column that the binlog omits is not in the map."""
    update = rows(20, "UPDATE", [({"id": "1"}, {"id": "1", "name": None})])
    [row] = read(Shape.ENVELOPE, ENVELOPE, begin(10), update, end(30))
    assert row["op"] == "update"
    assert row["key"] == [("id", "1")]
    assert row["before"] == [("id", "1")]
    assert row["after"] == [("id", "1"), ("name", None)]
    assert row["ts"] == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert row["position"] == {
        "seq": 7, "entry": 1, "row": 0, "server": 1, "journal": "bin.000001", "offset": 20, "sub": 0, "gtid": ""
    }  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "schema"),
    [(Shape.ENVELOPE, ENVELOPE), (Shape.CHANGES, CHANGES), (Shape.DEBEZIUM, DEBEZIUM), (Shape.TABLE, TABLE)],
)
def test_changes_that_the_source_logged_as_a_statement_do_not_pass_unnoticed(shape: Shape, schema: pa.Schema) -> None:
    """Every shape refuses those of its tables, and of unknown ones; the filter leaves tables out."""
    for logged in (
        logged_statement(11, "UPDATE t SET name = 'y'", "UPDATE"),
        logged_statement(11, "SELECT f(1)", "UPDATE", table="", schema=""),
    ):
        with pytest.raises(SinkRefused, match=r"logged a statement without its rows, UPDATE of .*, at bin.*:11"):
            read(shape, schema, begin(10), insert(10, 1), logged, end(19))
    other = logged_statement(11, "UPDATE u SET name = 'y'", "UPDATE", table="u")
    assert len(read(shape, schema, begin(10), insert(10, 1), other, end(19), filter=r"s\.t")) == 1


def test_rows_that_the_node_marks_as_partial_are_partial() -> None:
    """Missing last columns do not show otherwise."""
    for marked in (
        rows(11, "INSERT", [(None, {"id": "1"})], partial=True),
        rows(11, "UPDATE", [({"id": "1"}, {"id": "1"})], partial=True),
    ):
        [row] = read(Shape.CHANGES, CHANGES, begin(10), marked, end(19))
        assert RowLayout.from_json(row["layout"]).partial


def test_entries_of_one_offset_are_numbered() -> None:
    """Entries of a compressed transaction share their offset, so `sub` numbers them."""
    found = read(Shape.ENVELOPE, ENVELOPE, begin(10), insert(10, 1), insert(10, 2), end(10), insert(50, 3))
    assert [row["position"]["sub"] for row in found] == [1, 2, 0]


def test_a_table_takes_its_rows_only_and_every_statement_about_it() -> None:
    """A changed key is a delete and an insert, a missing column is NULL, and a delete carries the old row."""
    found = read(
        Shape.TABLE,
        TABLE,
        insert(10, 1, table="other"),
        rows(20, "INSERT", [(None, {"id": "1", "name": "a"}), (None, {"id": "2", "name": None})]),
        rows(30, "UPDATE", [({"id": "1", "name": "a"}, {"id": "3", "name": "a"})]),
        ddl(40, "ALTER TABLE t ADD extra BIGINT"),
        rows(
            50, "DELETE", [({"id": "2", "name": None, "extra": "5"}, None)], (ID, NAME, ("extra", "bigint", -5, False))
        ),
    )
    assert [(row["_op"], row["id"], row["name"], row["extra"]) for row in found] == [
        ("insert", 1, "a", None),
        ("insert", 2, None, None),
        ("delete", 1, "a", None),
        ("insert", 3, "a", None),
        ("ddl", None, None, None),
        ("delete", 2, None, 5),
    ]
    assert found[4]["_ddl"] == "ALTER TABLE t ADD extra BIGINT"


def test_an_unknown_column_is_left_out_or_refused() -> None:
    """The error names the statement that added the column."""
    entries = (
        ddl(10, "ALTER TABLE t ADD late INT"),
        rows(20, "INSERT", [(None, {"id": "1", "late": "2"})], (ID, ("late", "int", 4, False))),
    )
    assert [row["id"] for row in read(Shape.TABLE, TABLE, *entries)] == [None, 1]
    with pytest.raises(SchemaChanged, match=r"s\.t has a column 'late'.*ALTER TABLE t ADD late INT"):
        read(Shape.TABLE, TABLE, *entries, evolution=Evolution.FAIL)


PARTIAL = {
    "a key alone behind other columns": (rows(20, "DELETE", [({"name": "a"}, None)]), True),
    "only what has changed": (rows(20, "UPDATE", [({"id": "1"}, {"name": "new"})]), True),
    "only what has changed, from the first column": (
        rows(20, "UPDATE", [({"id": "1"}, {"id": "2", "name": "b"})]),
        True,
    ),
    "a text that has not changed": (rows(20, "UPDATE", [({"id": "1", "name": "a"}, {"id": "1"})]), True),
    "all": (rows(20, "UPDATE", [({"id": "1", "name": "a"}, {"id": "2", "name": "b"})]), False),
}


@pytest.mark.parametrize(("entry", "refused"), PARTIAL.values(), ids=PARTIAL)
def test_a_column_that_the_binlog_omits_is_not_null_in_a_table(entry: bytes, refused: bool) -> None:
    """binlog_row_image=MINIMAL or NOBLOB, or a field filter, whatever schemaEvolution says."""
    for evolution in Evolution:
        known = pa.schema([field for field in TABLE if field.name != "extra"])
        if refused:
            with pytest.raises(SinkRefused, match=r"s\.t at bin\.000001:20.*binlog_row_image=FULL"):
                read(Shape.TABLE, known, insert(10, 1), entry, evolution=evolution)
        else:
            assert len(read(Shape.TABLE, known, insert(10, 1), entry, evolution=evolution)) == 3


def test_debezium() -> None:
    """Keys and values have the form of Debezium's connector."""
    found = read(Shape.DEBEZIUM, DEBEZIUM, insert(10, 1, None), ddl(20, "DROP TABLE t", "ERASE"))
    assert json.loads(found[0]["key"]) == {"id": 1}
    body = json.loads(found[0]["value"])
    assert (body["op"], body["before"], body["after"]) == ("c", None, {"id": 1, "name": None})
    assert (body["source"]["file"], body["source"]["pos"], body["source"]["row"]) == ("bin.000001", 10, 0)
    assert json.loads(found[1]["value"])["ddl"] == "DROP TABLE t"


def test_a_changed_key_is_a_delete_and_a_create_for_debezium() -> None:
    """A reader that keeps the last message of each key must lose the old row. Partial images keep their keys."""
    found = read(
        Shape.DEBEZIUM,
        DEBEZIUM,
        rows(
            10,
            "UPDATE",
            [
                ({"id": "1", "name": "a"}, {"id": "1", "name": "b"}),
                ({"id": "2", "name": "a"}, {"id": "3", "name": "b"}),
            ],
        ),
        rows(20, "UPDATE", [({"id": "4"}, {"name": "c"})]),
        rows(30, "UPDATE", [({"id": "4"}, {"id": "5"})]),
    )
    shown = []
    for row in found:
        body = json.loads(row["value"])
        place = row["position"]
        shown.append((json.loads(row["key"]), body["op"], body["before"], body["after"], place["entry"], place["row"]))
    assert shown == [
        ({"id": 1}, "u", {"id": 1, "name": "a"}, {"id": 1, "name": "b"}, 0, 0),
        ({"id": 2}, "d", {"id": 2, "name": "a"}, None, 0, 1),
        ({"id": 3}, "c", None, {"id": 3, "name": "b"}, 0, 1),
        ({"id": 4}, "u", {"id": 4}, {"name": "c"}, 1, 0),
        ({"id": 4}, "d", {"id": 4}, None, 2, 0),
        ({"id": 5}, "c", None, {"id": 5}, 2, 0),
    ]


def test_rows_of_a_snapshot_are_read() -> None:
    """Every shape tells them from rows of the binlog."""
    entries = [insert(10, 1), insert(10, 2, snapshot="7")]
    assert [row["_op"] for row in read(Shape.TABLE, TABLE, *entries)] == ["insert", "read"]
    envelope = read(Shape.ENVELOPE, ENVELOPE, *entries)[1]
    assert (envelope["op"], envelope["before"], envelope["after"]) == ("read", None, [("id", "2"), ("name", "x")])
    changes = read(Shape.CHANGES, CHANGES, *entries)
    assert [(row["op"], row["before"], row["after"]) for row in changes] == [
        ("insert", None, ["1", "x"]), ("read", None, ["2", "x"]),
    ]  # fmt: skip
    of_binlog, of_snapshot = [json.loads(row["value"]) for row in read(Shape.DEBEZIUM, DEBEZIUM, *entries)]
    assert (of_binlog["op"], of_binlog["source"]["snapshot"]) == ("c", "false")
    assert (of_snapshot["op"], of_snapshot["source"]["snapshot"]) == ("r", "incremental")
    assert (of_snapshot["before"], of_snapshot["after"]) == (None, {"id": 2, "name": "x"})


@pytest.mark.parametrize(
    ("mysql_type", "sql_type", "text", "spark", "expected"),
    [
        ("tinyint(4)", -6, "-128", "TINYINT", -128),
        ("TINYINT UNSIGNED", 5, "255", "SMALLINT", 255),
        ("int(10) unsigned zerofill", -5, "4294967295", "BIGINT", 4294967295),
        ("bigint(20) unsigned", 3, "18446744073709551615", "DECIMAL(20,0)", Decimal(18446744073709551615)),
        ("decimal(10,2)", 3, "5.0", "DECIMAL(10,2)", Decimal("5.00")),
        ("dec", 3, "5", "DECIMAL(10,0)", Decimal(5)),
        ("decimal(65,30)", 3, "0.1", "STRING", "0.1"),
        ("double", 8, "1.0E7", "DOUBLE", 1e7),
        ("float", 7, "0.1", "FLOAT", pytest.approx(0.1)),
        ("bit(1)", -7, "1", "BOOLEAN", True),
        ("bit(64)", -7, "18446744073709551615", "DECIMAL(20,0)", Decimal(18446744073709551615)),
        ("date", 91, "2024-02-29", "DATE", date(2024, 2, 29)),
        ("date", 91, "0000-00-00", "DATE", None),
        ("datetime(3)", 93, "2024-00-10 00:00:00.000", "TIMESTAMP_NTZ", None),
        ("datetime(3)", 93, "1000-01-01 00:00:00.500", "TIMESTAMP_NTZ", datetime(1000, 1, 1, 0, 0, 0, 500000)),
        ("timestamp", 93, "2024-07-01 12:00:00", "TIMESTAMP", datetime(2024, 7, 1, 10, tzinfo=UTC)),
        ("time(2)", 92, "-838:59:59.00", "STRING", "-838:59:59.00"),
        ("year(4)", 12, "0000", "INT", 0),
        ("binary(3)", 2004, "a", "BINARY", b"a\0\0"),
        ("varbinary(3)", 2004, "\xff", "BINARY", b"\xff"),
        ("enum('a','b''c','d,e')", 4, "2", "STRING", "b'c"),
        ("enum('a')", 4, "0", "STRING", ""),
        ("set('x','y','z')", -7, "5", "STRING", "x,z"),
        ("text(100)", 2004, "\xc3\xa9", "STRING", "é"),
        ("json", 12, '{"a": 1}', "STRING", '{"a": 1}'),
        ("point", 2004, "\0\x01", "BINARY", b"\0\x01"),
        ("inet6", 12, "::1", "STRING", "::1"),
    ],
)
def test_values_by_type(mysql_type: str, sql_type: int, text: str, spark: str, expected: object) -> None:
    """Each type has its Spark type and value; NULL stays NULL."""
    column = column_type(mysql_type, sql_type)
    assert spark_name(column.arrow) == spark
    found = to_arrow([text, None], column, column.arrow, "Europe/Berlin").to_pylist()
    assert found == [expected, None]


def test_a_value_that_does_not_fit_names_the_types() -> None:
    """A value does not fit if a column was widened and the query's schema was not."""
    with pytest.raises(SinkRefused, match=r"bigint.*int8"):
        to_arrow(["300"], column_type("bigint", -5), pa.int8(), "UTC")


@pytest.mark.parametrize(
    ("mysql_type", "sql_type", "text", "expected"),
    [
        ("date", 91, "1970-01-11", 10),
        ("datetime", 93, "1970-01-01 00:00:01", 1000),
        ("datetime(6)", 93, "1970-01-01 00:00:01.000002", 1_000_002),
        ("timestamp(3)", 93, "2024-01-01 00:00:00.500", "2024-01-01T00:00:00.500000Z"),
        ("time", 92, "-01:00:00", -3_600_000_000),
        ("bit(1)", -7, "1", True),
        ("bit(12)", -7, "2049", base64.b64encode(b"\x01\x08").decode()),
        ("blob", 2004, "\xff", base64.b64encode(b"\xff").decode()),
        ("decimal(10,2)", 3, "5.0", "5.0"),
        ("date", 91, "0000-00-00", None),
        ("date", 91, "2023-02-31", None),
    ],
)
def test_debeziums_values(mysql_type: str, sql_type: int, text: str, expected: object) -> None:
    """Values have the default types of Debezium's connector; decimals are texts."""
    assert value(text, column_type(mysql_type, sql_type)) == expected


@pytest.mark.parametrize(("sql_type", "expected"), [(93, "2024-07-01T12:00:00Z"), (2014, "2024-07-01T20:00:00Z")])
def test_debeziums_timestamps_follow_the_time_zone(sql_type: int, expected: str) -> None:
    """Texts in the zone of the process that wrote them are converted; those of the exact form are in UTC already."""
    layout = RowLayout((("t", "timestamp", sql_type),), (), partial=False)
    change = EntryRows(0, 0, Header(), INSERT, layout, layout, [], [["2024-07-01 20:00:00"]])
    [made] = messages(in_utc(change, "Asia/Shanghai"), "d")
    assert json.loads(made.value)["after"] == {"t": expected}


def test_a_partial_update_is_not_taken_for_a_document() -> None:
    """Neither a table nor Debezium's shape stores the call."""
    column = column_type("JSON", 12)
    with pytest.raises(SinkRefused, match="partial update"):
        to_arrow(["{}", "JSON_REPLACE(doc, '$.a', 2)"], column, column.arrow, "UTC")
    with pytest.raises(SinkRefused, match="partial update"):
        value("JSON_REMOVE(doc, '$.a')", column)
