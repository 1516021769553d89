"""Rows are decoded with the columns that their table had when they were written, wherever a node resumes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from canal_ha.client.connector import SimpleConnector
from canal_ha.client.rows import Row
from canal_ha.errors import ServerRefused
from lab import MariaDB, MySQL, Node, SqlServer, ZooKeeper, follow
from lab.mysql import ADMIN, RowMetadata
from tests.positions.reading import connected, rows
from tests.positions.shapes import Shapes, seen

Server = Callable[..., SqlServer]
EACH = pytest.mark.parametrize("make", [MySQL, MariaDB])
BOTH = pytest.mark.parametrize("metadata", ["FULL", "MINIMAL"])


@pytest.mark.real
@EACH
@BOTH
def test_cold_start_with_ddl_ahead(make: Server, metadata: RowMetadata) -> None:
    """After 200 statements without a node, half of them DDL, each row arrives once with its columns of that time."""
    with make(row_metadata=metadata) as server:
        shapes = Shapes(server, "shop")
        shapes.create()
        node = Node({"example": follow(server)})
        with connected(node.start(), "shop") as client:
            shapes.insert_everywhere()
            shapes.change(20)
            assert seen(rows(client, len(shapes.written))) == shapes.written
        node.stop()
        before = len(shapes.written)
        shapes.change(200)
        shapes.insert_everywhere()
        with node.start(), connected(node, "shop") as client:
            assert seen(rows(client, len(shapes.written) - before)) == shapes.written[before:]


@pytest.mark.real
@pytest.mark.parametrize(
    ("make", "metadata", "history"),
    [
        (MySQL, "FULL", "file"),
        (MariaDB, "MINIMAL", "MySQL"),
        (MySQL, "MINIMAL", "MySQL"),
        (MariaDB, "MINIMAL", "file"),
    ],
)
def test_fail_over_to_a_node_that_has_never_seen_the_tables(
    make: Server, metadata: RowMetadata, history: str, zookeeper: ZooKeeper
) -> None:
    """A second node continues from the cursor in ZooKeeper; tables have changed since.

    With FULL row metadata or a shared history every row is right. With a history in a file of each node, a row of a
    table that changed is refused, and no row has a wrong column name.
    """
    with make(row_metadata=metadata) as server:
        shapes = Shapes(server, "shop")
        shapes.create()
        in_mysql = {
            "canal.instance.tsdb.url": f"jdbc:mysql://{server.address}/canal_tsdb?useUnicode=true",
            "canal.instance.tsdb.dbUsername": ADMIN,
            "canal.instance.tsdb.dbPassword": ADMIN,
        }
        tsdb = in_mysql if history == "MySQL" else {"canal.instance.tsdb.zookeeper": "false"}
        instance = {"example": follow(server, tsdb)}
        one = Node(instance, zk_servers=f"{zookeeper.hosts}/{server.port}", name="one")
        two = Node(instance, zk_servers=f"{zookeeper.hosts}/{server.port}", name="two")
        with one, connected(one, "shop") as client:
            shapes.insert_everywhere()
            assert seen(rows(client, len(shapes.written))) == shapes.written
            one.stop()
        before = len(shapes.written)
        first = shapes.tables.copy()
        shapes.insert_everywhere()
        shapes.change(60)
        expected = shapes.written[before:]
        with two, connected(two, "shop") as client:
            if history == "MySQL" or metadata == "FULL":
                assert seen(rows(client, len(expected))) == expected
                return
            log = two.directory / "logs" / "example" / "example.log"
            got, reason = until_refused(client)
            assert "are not known for certain" in reason
            assert seen(got) == expected[: len(got)]
            assert "are not known for certain" in log.read_text()
            unchanged = {table for table, columns in first.items() if shapes.tables.get(table) == columns}
            assert len(unchanged) < len(first)


@pytest.mark.real
@EACH
def test_a_node_and_its_disk_are_lost_after_an_alter(make: Server, zookeeper: ZooKeeper) -> None:
    """Columns swap between a cursor and now; the node dies, and its disk with it. The next node gives the right names.

    The set-up is that of docs/cluster.md: MINIMAL metadata, nothing shared by hand.
    """
    with make(row_metadata="MINIMAL") as server:
        server.execute(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.t (id int PRIMARY KEY, price int, qty int)",
            "CREATE TABLE shop.gone (id int PRIMARY KEY, price int, qty int)",
        )
        instance = {"example": follow(server)}
        hosts = f"{zookeeper.hosts}/{server.port}"
        one, two = (Node(instance, zk_servers=hosts, name=name) for name in ("one", "two"))
        with one, connected(one, "shop") as client:
            server.execute("INSERT INTO shop.t VALUES (0, 100, 7)")
            assert rows(client, 1)
            server.execute(
                "INSERT INTO shop.t VALUES (1, 100, 7)",
                "INSERT INTO shop.gone VALUES (1, 100, 7)",
                "ALTER TABLE shop.t MODIFY price int AFTER qty",
                "DROP TABLE shop.gone",
                "CREATE TABLE shop.gone (id int PRIMARY KEY, qty int, price int)",
                "INSERT INTO shop.gone VALUES (2, 7, 100)",
                "INSERT INTO shop.t VALUES (2, 7, 100)",
            )
            one.kill()
        assert not one.directory.exists()
        with two, connected(two, "shop") as client:
            found = rows(client, 4)
            if found[0].after == {"id": 0, "price": 100, "qty": 7}:  # its acknowledgement was not durable yet
                found = (found + rows(client, 5 - len(found)))[1:]
        before, after = [("price", 100), ("qty", 7)], [("qty", 7), ("price", 100)]
        assert [(row.table, list((row.after or {}).items())) for row in found] == [
            ("t", [("id", 1), *before]),
            ("gone", [("id", 1), *before]),
            ("gone", [("id", 2), *after]),
            ("t", [("id", 2), *after]),
        ]


def until_refused(client: SimpleConnector) -> tuple[list[Row], str]:
    """Read rows until a GET is refused; return the rows and the reason."""
    got: list[Row] = []
    while True:
        try:
            got += rows(client, 1)
        except ServerRefused as error:
            return got, str(error)


@pytest.mark.real
def test_unchanged_tables_of_a_new_node(zookeeper: ZooKeeper) -> None:
    """With MINIMAL metadata, a node without records knows the tables that no statement has changed since the cursor."""
    with MySQL(row_metadata="MINIMAL") as server:
        shapes = Shapes(server, "shop")
        shapes.create()
        hosts = f"{zookeeper.hosts}/{server.port}"
        instance = {"example": follow(server)}
        one, two = (Node(instance, zk_servers=hosts, name=name) for name in ("one", "two"))
        with one, connected(one, "shop"):
            pass
        shapes.insert_everywhere()
        server.execute("CREATE TABLE shop.other (id int PRIMARY KEY)", "ALTER TABLE shop.other ADD a int")
        shapes.insert_everywhere()
        with two, connected(two, "shop") as client:
            assert seen(rows(client, len(shapes.written))) == shapes.written


@pytest.mark.real
def test_a_store_that_cannot_be_written(source_server: SqlServer, database: str, tmp_path: Path) -> None:
    """A store that cannot be written raises an alarm, and rows continue."""
    taken = tmp_path / "taken"
    taken.write_text("a file where a directory should be")
    node = Node({"example": follow(source_server, {"canal.instance.tsdb.dir": str(taken)})})
    shapes = Shapes(source_server, database)
    shapes.create()
    with node, connected(node, database) as client:
        shapes.insert_everywhere()
        shapes.change(20)
        assert seen(rows(client, len(shapes.written))) == shapes.written
        assert "history.unavailable" in (node.directory / "logs" / "example" / "example.log").read_text()
