"""Binlogs of real servers with rare formats: the decoder must read the values that the server wrote."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from canal_ha.config.model import DecodeOptions
from canal_ha.decode.decoder import Decoder
from canal_ha.decode.filters import FieldFilter, TableFilter
from canal_ha.decode.history.history import History
from canal_ha.model.segment import Segment, Source
from canal_ha.wire.proto import entry_protocol_pb2 as entry
from lab.mysql import MariaDB, MySQL, SqlServer

pytestmark = pytest.mark.real

Row = tuple[str, list[str | None], list[str | None]]


def decode(server: SqlServer, gtid_set: str = "") -> list[entry.Entry]:
    """Return all entries of schema c in the file of the newest journal."""
    journal, _ = server.position()

    def fetch(schema: str, table: str) -> str | None:
        return str(server.query(f"SHOW CREATE TABLE `{schema}`.`{table}`")[0]["Create Table"])

    decoder = Decoder(
        source=Source(server.address[0], server.port),
        journal=journal,
        position=4,
        options=DecodeOptions(gtid_on=bool(gtid_set)),
        tables=TableFilter(r"c\..*", ""),
        fields=FieldFilter("", ""),
        history=History(fetch).view(None),
        gtid_set=gtid_set,
    )
    segments = [out for out in decoder.feed_file((server.data / journal).read_bytes()) if isinstance(out, Segment)]
    return [entry.Entry.FromString(raw) for segment in segments for raw in segment.entries()]


def rows(entries: Sequence[entry.Entry]) -> list[Row]:
    """Return (event type, texts before, texts after) of every changed row."""
    found: list[Row] = []
    for one in entries:
        if one.entryType == entry.ROWDATA and one.header.HasField("tableName"):
            change = entry.RowChange.FromString(one.storeValue)
            found.extend(
                (
                    entry.EventType.Name(change.eventType),
                    [None if column.isNull else column.value for column in row.beforeColumns],
                    [None if column.isNull else column.value for column in row.afterColumns],
                )
                for row in change.rowDatas
            )
    return found


def test_mariadb_compresses_events_and_columns() -> None:
    """Events compressed by log_bin_compress are read, and columns declared COMPRESSED have their text."""
    long = "déjà vu " * 100
    options = ["--log-bin-compress=ON", "--log-bin-compress-min-len=10"]
    with MariaDB(extra=options) as server:
        server.execute(
            "CREATE DATABASE c CHARACTER SET utf8mb4",
            "CREATE TABLE c.t (id int PRIMARY KEY, a text, b blob COMPRESSED, v varchar(2000) COMPRESSED)",
            f"INSERT INTO c.t VALUES (1, '{long}', '{long}', '{long}'), (2, '{long}', NULL, 'short')",
            f"UPDATE c.t SET v = '{long}!' WHERE id = 2",
            "DELETE FROM c.t WHERE id = 1",
        )
        blob = long.encode().decode("latin-1")
        entries = decode(server)
    assert rows(entries) == [
        ("INSERT", [], ["1", long, blob, long]),
        ("INSERT", [], ["2", long, None, "short"]),
        ("UPDATE", ["2", long, None, "short"], ["2", long, None, long + "!"]),
        ("DELETE", ["1", long, blob, long], []),
    ]
    statements = [entry.RowChange.FromString(one.storeValue).sql for one in entries if one.entryType == entry.ROWDATA]
    assert any(sql.startswith("CREATE TABLE c.t (id int PRIMARY KEY") for sql in statements)


def test_mysql_compresses_transactions() -> None:
    """All entries of a compressed transaction have its offset, in order."""
    with MySQL(extra=["--binlog-transaction-compression=ON"]) as server:
        server.execute(
            "CREATE DATABASE c",
            "CREATE TABLE c.t (id int PRIMARY KEY, a text)",
            *[f"INSERT INTO c.t VALUES ({id}, REPEAT('x', 2000))" for id in range(20)],
        )
        entries = decode(server)
    assert [after[0] for _, _, after in rows(entries)] == [str(id) for id in range(20)]
    transactions = [one for one in entries if one.header.logfileOffset == entries[-1].header.logfileOffset]
    assert [one.entryType for one in transactions] == [entry.TRANSACTIONBEGIN, entry.ROWDATA, entry.TRANSACTIONEND]


def test_mysql_tagged_gtids_and_vectors() -> None:
    """Transactions with tagged GTIDs and vectors are read; the executed set has MySQL's form with tags."""
    with MySQL() as server:
        server.execute(
            "CREATE DATABASE c",
            "CREATE TABLE c.t (id int PRIMARY KEY, v vector(2))",
            "SET gtid_next = 'AUTOMATIC:blue'",
            "INSERT INTO c.t VALUES (1, STRING_TO_VECTOR('[1, 2]'))",
            "INSERT INTO c.t VALUES (2, NULL)",
        )
        executed = server.gtid_set()
        uuid = str(server.query("SELECT @@server_uuid AS uuid")[0]["uuid"])
        entries = decode(server, gtid_set=f"{uuid}:1")
    assert rows(entries) == [
        ("INSERT", [], ["1", "\x00\x00\x80?\x00\x00\x00@"]),
        ("INSERT", [], ["2", None]),
    ]
    last = entries[-1].header
    assert last.gtid == executed
    assert next(pair.value for pair in last.props if pair.key == "curtGtid") == f"{uuid}:blue:2"


def test_minimal_images_and_metadata() -> None:
    """Columns missing in a row image are missing in the entry; a column with only an after value counts as updated."""
    with MySQL(row_metadata="MINIMAL", extra=["--binlog-row-image=MINIMAL", "--binlog-checksum=NONE"]) as server:
        server.execute(
            "CREATE DATABASE c",
            "CREATE TABLE c.t (id int PRIMARY KEY, a int unsigned, b text)",
            "INSERT INTO c.t VALUES (1, 4294967295, 'x')",
            "UPDATE c.t SET a = 7 WHERE id = 1",
        )
        entries = decode(server)
    assert rows(entries) == [("INSERT", [], ["1", "4294967295", "x"]), ("UPDATE", ["1"], ["7"])]
    update = next(one for one in entries if one.header.eventType == entry.UPDATE and one.entryType == entry.ROWDATA)
    after = entry.RowChange.FromString(update.storeValue).rowDatas[0].afterColumns
    assert [(column.index, column.name, column.updated) for column in after] == [(1, "a", True)]


@pytest.fixture(scope="module", params=[MySQL, MariaDB])
def own_server(request: pytest.FixtureRequest) -> Iterator[SqlServer]:
    """Yield a server with a schema c and nothing else in its journal."""
    with request.param() as server:
        server.execute("CREATE DATABASE c")
        yield server


def of_table(entries: Sequence[entry.Entry], name: str) -> list[entry.Entry]:
    """Return the entries with rows of one table."""
    return [one for one in entries if one.header.tableName == name and one.header.props]


def test_images_without_blobs(own_server: SqlServer) -> None:
    """NOBLOB leaves out blobs that did not change; the other columns keep their index."""
    own_server.execute(
        "SET SESSION binlog_row_image = 'NOBLOB'",
        "CREATE TABLE c.n (id int PRIMARY KEY, b blob, v varchar(9), x text)",
        "INSERT INTO c.n VALUES (1, 'b', 'v', 'x')",
        "UPDATE c.n SET v = 'w' WHERE id = 1",
        "UPDATE c.n SET x = 'y' WHERE id = 1",
        "DELETE FROM c.n WHERE id = 1",
    )
    entries = of_table(decode(own_server), "n")
    assert rows(entries) == [
        ("INSERT", [], ["1", "b", "v", "x"]),
        ("UPDATE", ["1", "v"], ["1", "w"]),
        ("UPDATE", ["1", "w"], ["1", "w", "y"]),
        ("DELETE", ["1", "w"], []),
    ]
    after = entry.RowChange.FromString(entries[2].storeValue).rowDatas[0].afterColumns
    assert [(column.index, column.updated) for column in after] == [(0, False), (2, False), (3, True)]


def test_json_documents(own_server: SqlServer) -> None:
    """JSON documents of every kind, even beyond 64 KB, have the text that the server itself gives them."""
    chance = random.Random(9)
    documents = [_document(chance, depth) for depth in (0, 1, 2, 3) for _ in range(60)]
    documents.append({f"key {number}": ["x" * 300, number, {"é": [number / 4]}] for number in range(500)})
    documents.append(["long " * 20_000, 1 << 63, -(1 << 63), "\U0001f600" * 9000, {}])
    texts = [json.dumps(document, ensure_ascii=chance.random() < 0.5) for document in documents]
    own_server.execute("CREATE TABLE c.j (id int PRIMARY KEY, j json) CHARACTER SET utf8mb4")
    with own_server.connect() as connection, connection.cursor() as cursor:
        cursor.executemany("INSERT INTO c.j VALUES (%s, %s)", list(enumerate(texts)))
        if own_server.flavor == "mysql":
            cursor.execute(
                "INSERT INTO c.j VALUES (10000, JSON_OBJECT('decimal', CAST(-1234567.5 AS DECIMAL(9,1)), 'text', 'é"
                "', 'at', CAST('2024-02-29 23:59:59.012345' AS DATETIME(6)), 'time', CAST('-12:34:56.5' AS TIME(6)),"
                " 'list', JSON_ARRAY(CAST(4294967296 AS UNSIGNED), CAST(7 AS UNSIGNED), 1e0, TRUE, NULL)))"
            )
        connection.commit()
    written = [str(row["j"]) for row in own_server.query("SELECT j FROM c.j ORDER BY id")]
    read = [after[1] for _, _, after in rows(of_table(decode(own_server), "j"))]
    assert read == written
    assert [json.loads(text) for text in written[: len(documents)]] == documents


def _document(chance: random.Random, depth: int) -> Any:
    """Return a document that MySQL and canal write alike: no control characters but \\n, \\r and \\t, no exponents."""
    if depth == 0:
        texts = ("", "x" * 130, 'quoted " \\ / \n\t\r', "é中\U0001f600", f"{chance.random()}")
        numbers = (
            0,
            -32768,
            32768,
            65536,
            1 << 31,
            -(1 << 40),
            (1 << 64) - 1,
            2.5,
            -0.125,
            chance.randrange(10**6) / 4,
        )
        return chance.choice((*texts, *numbers, None, True, False))
    items = [_document(chance, chance.randrange(depth)) for _ in range(chance.randrange(6))]
    return items if chance.random() < 0.5 else {f"{chance.choice(('k', 'é', ''))}{i}": v for i, v in enumerate(items)}


def test_the_widest_table(own_server: SqlServer) -> None:
    """Rows with the most columns that a server takes, every other one NULL, are read."""
    width = 4096 if own_server.flavor == "mysql" else 2000  # MariaDB's table files end before its limit
    columns = ", ".join(f"c{i} tinyint" for i in range(width))
    values = ", ".join(str(i % 100) if i % 2 else "NULL" for i in range(width))
    own_server.execute(
        f"CREATE TABLE c.w ({columns}) ENGINE=MyISAM",
        f"INSERT INTO c.w VALUES ({values})",
        f"UPDATE c.w SET c0 = 1, c{width - 1} = NULL",
    )
    inserted, updated = rows(of_table(decode(own_server), "w"))
    expected = [str(i % 100) if i % 2 else None for i in range(width)]
    assert inserted == ("INSERT", [], expected)
    assert updated == ("UPDATE", expected, ["1", *expected[1:-1], None])


def test_mariadb_rolled_back_rows_are_not_delivered() -> None:
    """MariaDB logs rolled-back rows of transactions that use temporary tables or tables without transactions."""
    with MariaDB() as server, server.connect(autocommit=True) as session:
        server.execute("CREATE DATABASE c", "CREATE TABLE c.t (a int)", "CREATE TABLE c.m (a int) ENGINE=MyISAM")
        for statement in (
            *("BEGIN", "INSERT INTO c.t VALUES (1)", "CREATE TEMPORARY TABLE c.x (a int)", "ROLLBACK"),
            *("BEGIN", "INSERT INTO c.t VALUES (2)", "SAVEPOINT s", "INSERT INTO c.m VALUES (3)"),
            *("INSERT INTO c.t VALUES (4)", "ROLLBACK TO s", "INSERT INTO c.t VALUES (5)", "COMMIT"),
        ):
            session.cursor().execute(statement)
        left = {str(row["a"]) for table in ("t", "m") for row in server.query(f"SELECT a FROM c.{table}")}
        entries = decode(server)
        journal, _ = server.position()
        raw = (server.data / journal).read_bytes()
    assert (b"ROLLBACK TO `s`" in raw, raw.count(b"ROLLBACK")) == (True, 2), "the server logs what it rolls back"
    assert [after for _, _, after in rows(entries)] == [["3"], ["2"], ["5"]]
    assert left == {"2", "3", "5"}
