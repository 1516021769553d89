"""Values of every type, from real servers through a node: what SELECT gives in utf8mb4."""

from __future__ import annotations

import datetime as dt
import json
import struct
from decimal import Decimal
from typing import Any

import pytest

from canal_ha.client.connector import SimpleConnector
from canal_ha.client.rows import rows_of
from lab import MariaDB, Node, SqlServer, follow
from lab.ports import LOOPBACK
from tests.waiting import until

pytestmark = pytest.mark.real

TEXT = "Zażółć gęślą"
COLUMNS = {
    "latin1": ("varchar(20) character set latin1", "'café € Ã'"),
    "latin2": ("char(20) character set latin2", f"'{TEXT}'"),
    "cp1251": ("text character set cp1251", "'Привет'"),
    "koi8r": ("tinytext character set koi8r", "'Привет'"),
    "gbk": ("varchar(300) character set gbk", "'订单 ¥'"),
    "big5": ("mediumtext character set big5", "'訂單'"),
    "sjis": ("varchar(20) character set sjis", "'注文 ｱ'"),
    "ujis": ("text(100) character set ujis", "'注文 ｱ'"),
    "euckr": ("longtext character set euckr", "'주문 뷁'"),
    "utf16": ("char(5) character set utf16", "'a订\U0001f600'"),
    "ucs2": ("varchar(5) character set ucs2", "'a订 '"),
    "utf32": ("text character set utf32", "'a订\U0001f600'"),
    "own": ("varchar(20)", "'ü订\U0001f600'"),
    "cbin": ("char(8) character set binary", "x'ff00e9'"),
    "vbin": ("varchar(8) character set binary", "x'ff00e9'"),
    "tbin": ("text character set binary", "x'ff00e9'"),
    "bin": ("binary(8)", "x'ff00e9'"),
    "varbin": ("varbinary(8)", "x'ff00e9'"),
    "data": ("blob", "x'ff00e9'"),
    "kind": ("enum('klein','groß','it''s') character set latin1", "'groß'"),
    "odd": ("enum(0x61,'b ')", "2"),
    "flags": ("set('p','q','ü')", "'p,ü'"),
    "day": ("date", "'2023-02-31'"),
    "at": ("datetime(3)", "'2023-02-31 01:02:03.004'"),
    "zero": ("date", "'0000-00-00'"),
    "autumn": ("timestamp(2) null", "'2024-10-27 00:30:00.25'"),
    "winter": ("timestamp null", "'2024-10-27 01:30:00'"),
    "doc": ("json", '\'{"a": [1, "ü"]}\''),
    "took": ("time(2)", "'-12:34:56.78'"),
    "price": ("decimal(12,4)", "-1.5"),
    "bits": ("bit(12)", "b'101'"),
    "yr": ("year", "1999"),
}
MARIADB = {
    "u": ("uuid", "'123e4567-e89b-12d3-a456-426655440000'"),
    "i4": ("inet4", "'10.0.0.0'"),
    "i6": ("inet6", "'2001:db8::ff00:42:0'"),
    "mapped": ("inet6", "'::ffff:10.0.0.1'"),
    "old": ("inet6", "'::1.2.3.4'"),
    "packed": ("varchar(300) compressed character set latin1", "repeat('é', 200)"),
    "ptext": ("text compressed character set gbk", "repeat('订', 200)"),
    "pbin": ("varbinary(300) compressed", "repeat(x'ff', 200)"),
}
MYSQL = {
    "gb18030": ("varchar(9) character set gb18030", "'订\U0001f600'"),
    "vec": ("vector(2)", "string_to_vector('[1.5, -2]')"),
    "jdoc": (
        "json",
        "json_object('d', cast('2024-02-29' as date), 'b', cast(x'ff00' as binary), 't', cast('01:02:03' as time(6)))",
    ),
}


def plain(value: Any) -> Any:
    """Return a value of PyMySQL, as Python rows have it."""
    if isinstance(value, dt.timedelta):
        sign = "-" if value < dt.timedelta() else ""
        value = abs(value)
        seconds = int(value.total_seconds())
        return (
            f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{value.microseconds // 10000:02d}"
        )
    return value


def test_every_type(source_server: SqlServer, database: str) -> None:
    """Python rows and Arrow have what SELECT gives, whatever the zone of the node."""
    check(source_server, database)


def test_every_type_without_metadata(database: str) -> None:
    """MariaDB's default is binlog_row_metadata=NO_LOG. Then charsets come from the definitions of the tables."""
    with MariaDB(row_metadata="NO_LOG") as server:
        check(server, database)


def check(source_server: SqlServer, database: str) -> None:
    """Insert a row with a column of each type, and compare what the clients get with what SELECT gives."""
    mariadb = isinstance(source_server, MariaDB)
    columns = {**COLUMNS, **(MARIADB if mariadb else MYSQL)}
    source_server.execute(
        f"CREATE DATABASE {database} CHARACTER SET utf8mb4",
        f"CREATE TABLE {database}.t (id int PRIMARY KEY, "
        + ", ".join(f"`{name}` {kind}" for name, (kind, _) in columns.items())
        + ")",
        f"CREATE TABLE {database}.d (id int PRIMARY KEY, v varchar(8), c char(8), t text, e enum('x'))"
        " CHARACTER SET gbk",
    )
    names = ", ".join(f"`{name}`" for name in columns)
    casts = {"vec": "BINARY", **dict.fromkeys(("day", "at", "zero", "autumn", "winter"), "CHAR")}
    select = ", ".join(
        f"CAST(`{name}` AS {casts[name]}) `{name}`" if name in casts else f"`{name}`" for name in columns
    )
    with (
        Node({"example": follow(source_server)}, environment={"TZ": "Europe/Berlin"}) as node,
        SimpleConnector(LOOPBACK, node.port, "example") as client,
        SimpleConnector(LOOPBACK, node.port, "example", 1002) as arrow,
    ):
        for each in (client, arrow):
            each.subscribe(rf"{database}\..*")
        source_server.execute(
            "SET time_zone = '+00:00', sql_mode = 'ALLOW_INVALID_DATES'",
            "SET NAMES utf8mb4",
            f"INSERT INTO {database}.t (id, {names}) VALUES (1, {', '.join(value for _, value in columns.values())})",
            f"INSERT INTO {database}.d VALUES (1, '订', '单', '订单', 'x')",
        )
        rows: list[Any] = []

        def more() -> bool:
            message = client.get_without_ack(1000, 200)
            rows.extend(row for row in rows_of(message) if row.type == "INSERT")
            client.ack(message.id)
            return len(rows) >= 2

        until(more, what="two rows")
        batches: list[Any] = []

        def more_arrow() -> bool:
            message = arrow.get_arrow(1000, 200)
            batches.extend(each.rows for each in message.batches if each.rows.column("_op")[0].as_py() == "insert")
            arrow.ack(message.id)
            return len(batches) >= 2

        until(more_arrow, what="two batches")
    connection = source_server.connect(charset="utf8mb4", init_command="SET time_zone = '+00:00'")
    with connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT {select} FROM {database}.t")
        found = cursor.fetchone()
    selected = {
        name: plain(value)
        for name, value in (found if isinstance(found, dict) else dict(zip(columns, found, strict=True))).items()
    }
    selected["bits"] = 5
    selected["yr"] = "1999"
    got = {name: value for name, value in rows[0].after.items() if name != "id"}
    documents = [name for name in got if name in ("doc", "jdoc")]
    for name in documents:
        assert json.loads(got[name]) == json.loads(selected[name])
    assert {name: value for name, value in got.items() if name not in documents} == {
        name: value for name, value in selected.items() if name not in documents
    }
    assert rows[1].after == {"id": 1, "v": "订", "c": "单", "t": "订单", "e": "x"}
    values = {name: column[0].as_py() for name, column in zip(batches[0].schema.names, batches[0].columns, strict=True)}
    typed = {
        "day": None, "at": None, "zero": None, "bits": 5, "yr": 1999, "price": Decimal("-1.5000"),
        "autumn": dt.datetime(2024, 10, 27, 0, 30, 0, 250_000, tzinfo=dt.UTC),
        "winter": dt.datetime(2024, 10, 27, 1, 30, tzinfo=dt.UTC),
    }  # fmt: skip
    for name in columns:
        if name not in documents:
            assert values[name] == typed.get(name, selected[name]), name
    if not mariadb:
        assert values["vec"] == struct.pack("<2f", 1.5, -2)


def test_partial_updates_of_json(mysql: SqlServer, database: str) -> None:
    """With PARTIAL_JSON the binlog has diffs; the clients get the document after them, as SELECT does."""
    document = json.dumps({"a": 1, "b": [1, 2, {"c": "ü"}], "long": "x" * 200, "d e": {"f": None}})
    changes = (
        "doc = JSON_SET(doc, '$.a', 2.5)",
        "doc = JSON_REPLACE(doc, '$.b[2].c', CAST('2024-02-29' AS DATE))",
        "doc = JSON_REMOVE(doc, '$.b[0]')",
        "doc = JSON_SET(doc, '$.\"d e\".g', JSON_ARRAY(1, 'z'), '$.aa', TRUE)",
        "doc = JSON_ARRAY_INSERT(doc, '$.b[1]', 7)",
        "n = n + 1",
    )
    mysql.execute(
        f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY, n int, doc json, other json)"
    )
    with (
        Node({"example": follow(mysql)}) as node,
        SimpleConnector(LOOPBACK, node.port, "example") as client,
    ):
        client.subscribe(rf"{database}\..*")
        selected = []
        connection = mysql.connect(autocommit=True, database=database, charset="utf8mb4")
        with connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION binlog_row_value_options = 'PARTIAL_JSON'")
            cursor.execute("INSERT INTO t VALUES (1, 1, %s, '[1, 2]')", (document,))
            for change in changes:
                cursor.execute(f"UPDATE t SET {change}")
                cursor.execute("SELECT doc, other FROM t")
                row = cursor.fetchone()
                selected.append(tuple(row.values()) if isinstance(row, dict) else tuple(row))
        rows: list[Any] = []

        def more() -> bool:
            message = client.get_without_ack(1000, 200)
            rows.extend(row.after for row in rows_of(message) if row.type == "UPDATE")
            client.ack(message.id)
            return len(rows) >= len(changes)

        until(more, what="the updates")
    assert [(row["doc"], row["other"]) for row in rows] == selected
