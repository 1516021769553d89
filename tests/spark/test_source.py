"""The source on real servers: shapes, restarts, replays, fencing, and the errors that a user sees."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from canal_ha.zookeeper import tree
from lab import MariaDB, MySQL, Node, ZooKeeper, follow
from tests.spark.conftest import Stream
from tests.waiting import until

pytestmark = pytest.mark.spark

MakeStream = Callable[..., Stream]


def insert(server: MariaDB, database: str, *ids: int) -> None:
    """Insert one row for each id, each in its own transaction."""
    server.execute(*(f"INSERT INTO {database}.t VALUES ({number}, {number})" for number in ids))


def keys(rows: list[Any]) -> list[int]:
    """Return the ids of the rows in an envelope."""
    return [int(row["key"]["id"]) for row in rows if row["op"] != "ddl"]


TYPES = {
    "id": "INT PRIMARY KEY",
    "tiny": "TINYINT UNSIGNED",
    "big": "BIGINT UNSIGNED",
    "amount": "DECIMAL(20,4)",
    "ratio": "DOUBLE",
    "day": "DATE",
    "moment": "DATETIME(6)",
    "stamp": "TIMESTAMP(3) NULL",
    "raw": "BINARY(4)",
    "blobs": "BLOB",
    "words": "TEXT CHARACTER SET utf8mb4",
    "doc": "JSON",
    "kind": "ENUM('a','b''c')",
    "flags": "SET('x','y','z')",
    "bits": "BIT(12)",
    "span": "TIME(2)",
}
ROWS = (
    r"(1, 255, 18446744073709551615, -12.5, 1.5e10, '2024-02-29', '2024-02-29 01:02:03.000004',"
    r" '2024-02-29 01:02:03.004', 'ab', x'00ff80', 'grüß 😀', '{\"a\": [1, null]}', 'b''c', 'x,z',"
    " b'100000000001', '-838:00:00.25')",
    "(2" + ", NULL" * 15 + ")",
)


def test_a_table_has_its_values_and_types(mysql: MySQL, database: str, stream: MakeStream) -> None:
    """Typed columns hold the source's values and NULL; an ALTER is a row, and its column can be declared.

    schemaEvolution=fail names that statement if a row has an undeclared column.
    """
    with Node({database: follow(mysql, {"canal.instance.filter.regex": rf"{database}\..*"})}) as node:
        one = stream(servers=node.address, destination=database, clientId=7)
        one.run()  # creates the client id
        columns = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
        mysql.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t ({columns})")
        mysql.execute(f"INSERT INTO {database}.t VALUES {', '.join(ROWS)}")
        assert [row["op"] for row in one.run()] == ["ddl", "ddl", "insert", "insert"]
        one.checkpoint = one.directory / "typed"
        rows = one.run(format="table", table=f"{database}.t")
        assert [row["_op"] for row in rows] == ["ddl", "insert", "insert"]
        assert rows[0]["_ddl"].startswith("CREATE TABLE")
        found = rows[1].asDict()
        source = mysql.query(f"SELECT * FROM {database}.t WHERE id = 1")[0]
        for name in ("id", "tiny", "big", "amount", "ratio", "day", "moment", "words"):
            assert found[name] == source[name], name
        assert found["amount"] == Decimal("-12.5000")
        assert found["big"] == Decimal(18446744073709551615)
        assert found["stamp"].isoformat() == "2024-02-29T01:02:03.004000"
        assert bytes(found["raw"]) == b"ab\0\0"
        assert bytes(found["blobs"]) == b"\x00\xff\x80"
        assert json.loads(found["doc"]) == {"a": [1, None]}
        assert (found["kind"], found["flags"], found["bits"], found["span"]) == ("b'c", "x,z", 2049, "-838:00:00.25")
        assert all(value is None for name, value in rows[2].asDict().items() if name in TYPES and name != "id")

        mysql.execute(
            f"ALTER TABLE {database}.t ADD COLUMN late INT", f"INSERT INTO {database}.t (id, late) VALUES (3, 9)"
        )
        declared = "id INT, late INT"
        rows = one.run(format="table", table=f"{database}.t", tableSchema=declared)
        assert [(row["_op"], row["id"], row["late"]) for row in rows] == [("ddl", None, None), ("insert", 3, 9)]
        mysql.execute(f"INSERT INTO {database}.t (id) VALUES (4)")
        with pytest.raises(Exception, match=r"has a column 'tiny'.*ADD COLUMN late INT"):
            one.run(format="table", table=f"{database}.t", tableSchema=declared, schemaEvolution="fail")

        one.checkpoint = one.directory / "debezium"
        values = [json.loads(row["value"]) for row in one.run(format="debezium")]
        assert [value.get("op") for value in values] == [None, None, "c", "c", None, "c", "c"]
        assert values[2]["after"]["day"] == 19782
        assert values[2]["source"]["table"] == "t"


def test_each_row_once_over_restarts_and_silence(
    mariadb: MariaDB, node: Node, database: str, stream: MakeStream
) -> None:
    """Every start continues after the last one; a start with nothing to read makes no batch."""
    one = stream(servers=node.address, destination=database, clientId=7, maxRowsPerTrigger=2)
    assert one.run() == []
    insert(mariadb, database, 1, 2, 3, 4, 5)
    assert keys(one.run()) == [1, 2, 3, 4, 5]
    assert all(len(batch) <= 2 for batch in one.batches[1:])
    assert one.run() == []
    assert one.batches == []
    insert(mariadb, database, 6)
    assert keys(one.run()) == [6]


@pytest.mark.nightly("test_restored.py: the same restores, without Spark; the test above: restarts")
def test_a_restored_checkpoint_is_replayed_from_the_spool(
    mariadb: MariaDB, node: Node, database: str, stream: MakeStream
) -> None:
    """The rows are the same, though the cursor is ahead. Beyond retention failOnDataLoss decides."""
    one = stream(servers=node.address, destination=database, clientId=7, retainBatches=1)
    insert(mariadb, database, 1)
    first = one.run()
    old = one.directory / "old"
    shutil.copytree(one.checkpoint, old)
    insert(mariadb, database, 2, 3)
    second = one.run()
    shutil.rmtree(one.checkpoint)
    shutil.copytree(old, one.checkpoint)
    assert one.run() == second != first
    for number in (4, 5):
        insert(mariadb, database, number)
        one.run()
    shutil.rmtree(one.checkpoint)
    shutil.copytree(old, one.checkpoint)
    with pytest.raises(Exception, match=r"the spool begins with segment \d+.*failOnDataLoss"):
        one.run()
    assert keys(one.run(failOnDataLoss="false"))[-1] == 5


@pytest.mark.nightly("test_restored.py: spools that are behind or gone")
def test_a_spool_that_is_gone_is_a_loss(mariadb: MariaDB, node: Node, database: str, stream: MakeStream) -> None:
    """The cursor is ahead of an empty spool, so the query fails and skips no rows."""
    one = stream(servers=node.address, destination=database, clientId=7)
    insert(mariadb, database, 1)
    one.run()
    shutil.rmtree(one.directory / "spool")
    with pytest.raises(Exception, match=r"another spool|spool that is gone"):
        one.run()


def test_the_newer_of_two_drivers_goes_on(mariadb: MariaDB, node: Node, database: str, stream: MakeStream) -> None:
    """The older one ends with one sentence. The newer one reads its first row again and continues."""
    one = stream(servers=node.address, destination=database, clientId=7)
    query = one.start()
    insert(mariadb, database, 1)
    until(lambda: keys(one.rows) == [1], what="the first row", seconds=180)
    other = stream(servers=node.address, destination=database, clientId=7)
    other.checkpoint = other.directory / "other"
    second = other.start()
    try:
        until(lambda: keys(other.rows) == [1], what="the first row again", seconds=180)
        insert(mariadb, database, 2)  # may be in flight in the older driver when that ends
        until(lambda: keys(other.rows) == [1, 2], what="a row of the second", seconds=180)

        def fenced() -> bool:
            insert(mariadb, database, int(time.time() * 1000) % 10**9)
            assert second.isActive, str(second.exception())[:3000]
            return not query.isActive

        until(fenced, what="the end of the first", seconds=180)
        assert "another driver writes the spool" in str(query.exception())
        assert "Traceback" not in str(query.exception()).partition("JVM stacktrace")[0]
        assert second.isActive
    finally:
        query.stop()
        second.stop()


def test_a_worker_that_dies_is_replaced(mariadb: MariaDB, node: Node, database: str, stream: MakeStream) -> None:
    """The task is tried again and reads the same rows."""
    one = stream(servers=node.address, destination=database, clientId=7)
    insert(mariadb, database, 1, 2)
    marker = one.directory / "died"

    def dies_once(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    rows = one.run(change=lambda frame: frame.mapInArrow(dies_once, frame.schema))
    assert keys(rows) == [1, 2]
    assert marker.exists()


@pytest.mark.nightly("test_tailer.py: a server that is away; test_restored.py: a node that dies under the reader")
def test_a_destination_that_stops_and_starts(mariadb: MariaDB, node: Node, database: str, stream: MakeStream) -> None:
    """The query waits and continues; no row is lost or doubled."""
    one = stream(servers=node.address, destination=database, clientId=7)
    query = one.start()
    try:
        insert(mariadb, database, 1)
        until(lambda: keys(one.rows) == [1], what="the first row", seconds=180)
        node.kill()
        insert(mariadb, database, 2)
        node.start()
        insert(mariadb, database, 3)
        until(lambda: 3 in keys(one.rows), what="the last row", seconds=180)
        assert keys(one.rows) == [1, 2, 3]
    finally:
        query.stop()


def test_the_clients_place_is_free_at_once(
    mariadb: MariaDB, zookeeper: ZooKeeper, database: str, stream: MakeStream
) -> None:
    """Stopping a query ends its session properly. A glob finds the destination."""
    settings = follow(mariadb, {"canal.instance.filter.regex": rf"{database}\..*"})
    client = KazooClient(hosts=zookeeper.hosts)
    client.start()
    path = tree.client_running(database, 7)
    with Node({database: settings}, zk_servers=zookeeper.hosts, wait_for=[database]):
        one = stream(zkServers=zookeeper.hosts, destination=f"{database}*", clientId=7)
        query = one.start()
        until(lambda: client.exists(path), what="the client's place", seconds=180)
        began = time.monotonic()
        query.stop()
        until(lambda: not client.exists(path), what="its end", seconds=5)
        assert time.monotonic() - began < 5
    client.stop()
    client.close()


OTHERS = pytest.mark.nightly("the first option here; tests/pipeline/test_options.py: each sentence")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"servers": "x:1", "destination": "d", "spolDir": "/x"}, "canal: option 'spoldir' is unknown"),
        pytest.param({}, "canal: set one of the options zkServers", marks=OTHERS),
        pytest.param({"servers": "x:1", "spoolDir": "/x"}, "canal: option destination is missing", marks=OTHERS),
        pytest.param(
            {"servers": "x:1", "destination": "d", "spoolDir": "/x", "format": "xml"},
            "canal: option format = 'xml'",
            marks=OTHERS,
        ),
    ],
)
def test_a_wrong_option_is_one_sentence(spark: Any, options: dict[str, str], says: str) -> None:
    """The error names the option and has no traceback."""
    reader = spark.readStream.format("canal")
    for name, value in options.items():
        reader = reader.option(name, value)
    with pytest.raises(Exception, match="canal: ") as caught:
        reader.load()
    text = str(caught.value).partition("JVM stacktrace")[0]
    assert says in text
    assert "Traceback" not in text


def test_a_spool_that_cannot_be_written_is_one_sentence(
    mariadb: MariaDB, node: Node, database: str, stream: MakeStream, tmp_path: Path
) -> None:
    """The query fails with an error about the spool."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    one = stream(servers=node.address, destination=database, clientId=7)
    with pytest.raises(Exception, match="the spool cannot"):
        one.run(spoolDir=blocked)
