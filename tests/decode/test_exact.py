"""The exact form: cells whose text is what SELECT gives in utf8mb4, of events as the servers write them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from canal_ha.client.arrow import table_batches
from canal_ha.client.message import parse
from canal_ha.client.rows import rows_of
from canal_ha.decode.history.history import History
from canal_ha.decode.table_map import parse_table_map
from canal_ha.errors import MalformedEvent, SinkRefused
from canal_ha.model.position import LogPosition
from lab.dump import JOURNAL, ColumnType, Dump, decoder, entries, packed, segments, table_map
from tests.decode.documents import document, opaque
from tests.time_zone import zone

MYSQL, MARIADB = b"9.7.4", b"10.11.6-MariaDB-log"
UUID = bytes.fromhex("123e4567e89b12d3a456426655440000")


def field(kind: int, data: bytes) -> bytes:
    return bytes([kind]) + packed(len(data)) + data


def one(collation: int) -> bytes:
    """The metadata of a table whose only text has this collation."""
    return field(2, packed(collation))


def shown(
    declared: str,
    column: ColumnType,
    stored: bytes,
    optional: bytes = b"",
    *,
    version: bytes = MYSQL,
    exact: bool = True,
    time_zone: str = "UTC",
) -> tuple[Any, Any]:
    """Return the value of column u in Python rows and in Arrow. declared: CREATE TABLE behind the column's name."""
    history = History(lambda schema, table: None).view(LogPosition(JOURNAL, 4))
    dump = Dump().format(version).query(f"CREATE TABLE t (u {declared}").begin()
    dump.add(19, table_map(1, "s", "t", [column], optional)).rows(30, b"\0" + stored).xid()
    outputs = list(decoder(history, exact=exact).feed(bytes(dump.data)))
    row = next(row for row in rows_of(entries(outputs)) if row.type == "INSERT")
    assert row.after is not None
    arrow = [
        batch.rows.column("u")[0].as_py()
        for segment in segments(outputs)
        for batch in table_batches(bytes(segment.frames_view(0, len(segment))), time_zone)
        if "u" in batch.rows.schema.names and batch.rows.column("_op")[0].as_py() == "insert"
    ]
    return row.after["u"], arrow[0]


def sized(raw: bytes, size: int = 1) -> bytes:
    return len(raw).to_bytes(size, "little") + raw


@pytest.mark.parametrize(
    ("declared", "column", "size", "optional"),
    [
        ("char(16) character set binary)", ColumnType(254, b"\xfe\x10"), 1, b""),
        ("char(16) character set binary)", ColumnType(254, b"\xfe\x10"), 1, one(63)),
        ("varchar(16)) DEFAULT CHARSET=binary", ColumnType(15, b"\x10\0"), 1, one(63)),
        ("tinytext) CHARSET=binary", ColumnType(252, b"\x01"), 1, one(63)),
        ("text character set binary)", ColumnType(252, b"\x02"), 2, b""),
    ],
)
def test_texts_in_character_set_binary_are_bytes(declared: str, column: ColumnType, size: int, optional: bytes) -> None:
    """They became text with U+FFFD for each byte that is no UTF-8."""
    raw = b"\xff" + UUID[:15]
    assert shown(declared, column, sized(raw, size), optional) == (raw, raw)


@pytest.mark.parametrize(
    ("declared", "column", "stored", "expected"),
    [
        ("uuid)", ColumnType(254, b"\xfe\x10"), UUID[:14], "123e4567-e89b-12d3-a456-426655440000"),
        ("inet4)", ColumnType(254, b"\xfe\x04"), bytes([192, 168]), "192.168.0.0"),
        ("inet6)", ColumnType(254, b"\xfe\x10"), bytes.fromhex("20010db8") + bytes(8) + b"\1", "2001:db8::100:0"),
        ("inet6)", ColumnType(254, b"\xfe\x10"), bytes(10) + b"\xff\xff\x0a\0\0\1", "::ffff:10.0.0.1"),
        ("inet6)", ColumnType(254, b"\xfe\x10"), b"", "::"),
        ("INET6)", ColumnType(254, b"\xfe\x10"), bytes(15) + b"\1", "::1"),
    ],
)
def test_addresses_of_mariadb_are_texts(declared: str, column: ColumnType, stored: bytes, expected: str) -> None:
    """They became U+FFFD; the binlog omits zero bytes at their end."""
    assert shown(declared, column, sized(stored), one(63), version=MARIADB) == (expected, expected)


def test_vectors_of_mariadb_are_bytes() -> None:
    """Arrow refused them, and Python rows had U+FFFD."""
    raw = struct.pack("<3f", 1.5, -2.25, 3e8)
    assert shown("vector(3))", ColumnType(15, b"\x0c\0"), sized(raw), one(63), version=MARIADB) == (raw, raw)
    assert shown("vector(3))", ColumnType(15, b"\x0c\0"), sized(raw), version=MARIADB) == (raw, raw)


@pytest.mark.parametrize(
    ("charset", "collation", "stored", "expected"),
    [
        ("latin1", 8, b"caf\xe9 \x80\x81", "caf\xe9 \u20ac\x81"),
        ("gbk", 28, "订单".encode("gbk"), "订单"),
        ("sjis", 13, b"\x8a\xbf\x81\x5f", "漢\\"),
        ("utf16", 54, "a订\U0001f600".encode("utf-16-be"), "a订\U0001f600"),
        ("utf32", 60, "订".encode("utf-32-be"), "订"),
        ("utf8mb4", 255, "ü\U0001f600".encode(), "ü\U0001f600"),
    ],
)
def test_texts_are_read_in_the_character_set_of_their_column(
    charset: str, collation: int, stored: bytes, expected: str
) -> None:
    """From the event; without its metadata from the declaration. They became U+FFFD."""
    column = ColumnType(15, b"\x28\0")
    assert shown("varchar(10))", column, sized(stored), one(collation)) == (expected, expected)
    assert shown(f"varchar(10) character set {charset})", column, sized(stored)) == (expected, expected)
    text = ColumnType(252, b"\x02")
    assert shown("text(100))", text, sized(stored, 2), one(collation)) == (expected, expected)


def test_canals_form_stays_for_those_who_do_not_ask() -> None:
    """Without the exact form the value is canal's, which reads everything as UTF-8."""
    latin1 = ColumnType(15, b"\x28\0")
    assert shown("varchar(10))", latin1, sized(b"caf\xe9"), one(8), exact=False)[0] == "caf\ufffd"


def test_labels_come_from_the_event() -> None:
    """In the character set of the column, whatever the declaration says."""
    labels = packed(2) + sized("ü".encode("latin-1")) + sized(b"it's")
    optional = field(6, labels) + field(10, packed(8))
    assert shown("enum('tiny','ü','it''s'))", ColumnType(254, b"\xf7\x01"), b"\x02", optional) == ("it's", "it's")
    assert shown("enum('tiny','ü','it''s'))", ColumnType(254, b"\xf7\x01"), b"\x01", optional) == ("ü", "ü")
    optional = field(5, packed(2) + sized(b"x") + sized(b"y")) + field(10, packed(45))
    assert shown("set('z','x','y'))", ColumnType(254, b"\xf8\x01"), b"\x03", optional) == ("x,y", "x,y")


@pytest.mark.parametrize("name", ["UTC", "Europe/Berlin", "Asia/Shanghai"])
def test_hours_that_come_twice_stay_apart(name: str) -> None:
    """In the autumn 00:30 and 01:30 UTC are both 02:30 in Berlin. No zone of a process or a reader counts."""
    with zone(name):
        for hour in (0, 1):
            moment = datetime(2024, 10, 27, hour, 30, tzinfo=UTC)
            stored = int(moment.timestamp()).to_bytes(4, "big")
            text = moment.strftime("%Y-%m-%d %H:%M:%S")
            column = ColumnType(17, b"\0")
            assert shown("timestamp)", column, stored, time_zone="America/New_York") == (text, moment)
            assert shown("timestamp)", ColumnType(7), stored[::-1], time_zone=name) == (text, moment)
    assert shown("timestamp)", ColumnType(17, b"\0"), bytes(4)) == ("0000-00-00 00:00:00", None)


def test_dates_that_no_calendar_has() -> None:
    """NULL in Arrow, which stopped there; Python rows have the text."""
    stored = (2023 << 9 | 2 << 5 | 31).to_bytes(3, "little")
    assert shown("date)", ColumnType(10), stored) == ("2023-02-31", None)


def json(value: Any, large: bool = False) -> bytes:
    return document(value, large)


def test_dates_and_bytes_inside_json() -> None:
    """As MySQL shows them; canal gives dates a time, and reads bytes as text."""
    date = opaque(10, struct.pack("<q", ((2024 * 13 + 2) << 22 | 29 << 17) << 24))
    time = opaque(11, bytes(8))
    raw = opaque(252, b"\xff\0")
    stored = sized(json({"a": date, "b": time, "c": raw}), 4)
    expected = '{"a": "2024-02-29", "b": "00:00:00.000000", "c": "base64:type252:/wA="}'
    assert shown("json)", ColumnType(245, b"\x04"), stored) == (expected, expected)
    assert shown("json)", ColumnType(245, b"\x04"), bytes(4)) == ("null", "null")


# ---- rows without all columns


@pytest.mark.parametrize(
    ("kind", "bitmaps", "marked"),
    [
        (30, b"\x03", False),
        (30, b"\x01", True),
        (30, b"\x02", True),
        (31, b"\x03\x03", False),
        (31, b"\x01\x01", True),
        (31, b"\x01\x03", False),
        (31, b"\x03\x01", True),
        (32, b"\x01", False),
    ],
)
@pytest.mark.parametrize("exact", [True, False])
def test_new_rows_without_all_columns_are_marked(kind: int, bitmaps: bytes, marked: bool, exact: bool) -> None:
    """A column that is missing at the end does not show otherwise. canal's form keeps canal's bytes."""
    history = History(lambda schema, table: None).view(LogPosition(JOURNAL, 4))
    dump = Dump().format().query("CREATE TABLE t (id int, u int)").begin()
    dump.add(19, table_map(1, "s", "t", [ColumnType(3), ColumnType(3)]))
    head = struct.pack("<Q", 1)[:6] + b"\1\0\2\0" + packed(2)
    images = [b"\0" + struct.pack("<i", 1) * bitmap.bit_count() for bitmap in bitmaps]
    dump.add(kind, head + bitmaps + b"".join(images)).xid().begin()
    dump.add(19, table_map(1, "s", "t", [ColumnType(3), ColumnType(3)]))
    dump.add(30, head + b"\x03\0" + bytes(8)).xid()
    outputs = list(decoder(history, exact=exact).feed(bytes(dump.data)))
    changed, whole = [one.header.props for one in map(parse, entries(outputs)) if one.header.props]
    assert [(prop.key, prop.value) for prop in changed if prop.key != "rowsCount"] == (
        [("canal.partial", "true")] if marked and exact else []
    )
    assert [prop.key for prop in whole] == ["rowsCount"]


# ---- partial updates


def updated(before: bytes | None, diffs: bytes) -> tuple[Any, Callable[[], object]]:
    """The value of column u after a partial update, in Python rows; and a call that makes Arrow of it."""
    history = History(lambda schema, table: None).view(LogPosition(JOURNAL, 4))
    dump = Dump().format().query("CREATE TABLE t (id int, u json)").begin()
    dump.add(19, table_map(1, "s", "t", [ColumnType(3), ColumnType(245, b"\x04")]))
    image = b"\0" + struct.pack("<i", 1)
    if before is None:
        bitmaps, first = b"\x01\x03", b"\0" + struct.pack("<i", 1)
    else:
        bitmaps, first = b"\x03\x03", image + sized(before, 4)
    body = struct.pack("<Q", 1)[:6] + b"\1\0\2\0" + packed(2) + bitmaps + first + b"\1\1" + image + sized(diffs, 4)
    dump.add(39, body).xid()
    outputs = list(decoder(history, exact=True).feed(bytes(dump.data)))
    row = next(row for row in rows_of(entries(outputs)) if row.type == "UPDATE")
    assert row.after is not None
    frames = [bytes(segment.frames_view(0, len(segment))) for segment in segments(outputs)]
    return row.after["u"], lambda: [list(table_batches(each)) for each in frames]


def diff(operation: int, path: str, value: Any = None) -> bytes:
    raw = bytes([operation]) + sized(path.encode())
    return raw if operation == 2 else raw + sized(json(value))


@pytest.mark.parametrize(
    ("diffs", "expected"),
    [
        (diff(0, "$.a", "x"), '{"a": "x", "b": [1, 2.5, null], "c d": {"e": true}}'),
        (diff(0, '$."c d".e', False), '{"a": 1, "b": [1, 2.5, null], "c d": {"e": false}}'),
        (diff(2, "$.b[1]"), '{"a": 1, "b": [1, null], "c d": {"e": true}}'),
        (diff(1, "$.b[1]", 7), '{"a": 1, "b": [1, 7, 2.5, null], "c d": {"e": true}}'),
        (diff(1, "$.bb", 7), '{"a": 1, "b": [1, 2.5, null], "bb": 7, "c d": {"e": true}}'),
        (diff(2, "$.a") + diff(0, "$.b[0]", {"z": 1}), '{"b": [{"z": 1}, 2.5, null], "c d": {"e": true}}'),
        (b"", '{"a": 1, "b": [1, 2.5, null], "c d": {"e": true}}'),
    ],
)
def test_a_partial_update_is_applied(diffs: bytes, expected: str) -> None:
    """The document is stored, not the call that makes it, if the before image has it."""
    value, arrow = updated(json({"a": 1, "b": [1, 2.5, None], "c d": {"e": True}}), diffs)
    assert value == expected
    assert arrow()


def test_a_partial_update_without_its_document_is_refused() -> None:
    """With a minimal row image nothing tells the document; the call must not be stored as one."""
    value, arrow = updated(None, diff(0, "$.a", 2))
    assert value == "JSON_REPLACE(u, '$.a', 2)"
    with pytest.raises(SinkRefused, match=r"partial update.*binlog_row_image=FULL"):
        arrow()


def test_a_diff_that_does_not_fit() -> None:
    """Nothing is guessed."""
    with pytest.raises(MalformedEvent, match=r"\$\.x does not fit"):
        updated(json({"a": 1}), diff(0, "$.x", 2))


# ---- collations of a table map


def test_mysql_and_mariadb_count_different_columns() -> None:
    """MariaDB lists a collation for geometry, MySQL does not; both list none for numbers."""
    columns = [ColumnType(3), ColumnType(255, b"\4"), ColumnType(15, b"\5\0"), ColumnType(15, b"\5\0")]
    body = table_map(1, "s", "t", columns, field(3, packed(63) + packed(8) + packed(28)))
    assert parse_table_map(body, mariadb=True).collations() == (0, 63, 8, 28)
    assert parse_table_map(body).collations() == (0, 0, 0, 0)
    ours = parse_table_map(table_map(1, "s", "t", columns, field(2, packed(8) + packed(1) + packed(28))))
    assert ours.collations() == (0, 0, 8, 28)


def test_collations_that_contradict_the_columns() -> None:
    """Unknown, not guessed."""
    columns = [ColumnType(15, b"\5\0"), ColumnType(15, b"\5\0")]
    few = parse_table_map(table_map(1, "s", "t", columns, field(3, packed(8))))
    assert few.collations() == (0, 0)
    far = parse_table_map(table_map(1, "s", "t", columns, field(2, packed(8) + packed(7) + packed(28))))
    assert far.collations() == (8, 8)
