"""A stream that lags, or begins far behind, beside one that is far ahead: its rows have the columns of their time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from canal_ha.client.connector import SimpleConnector
from canal_ha.errors import ServerRefused
from lab import MariaDB, MySQL, Node, SqlServer, follow
from lab.ports import LOOPBACK
from tests.positions.reading import connected, rows
from tests.waiting import until

Server = Callable[..., SqlServer]
EACH = pytest.mark.parametrize("make", [MySQL, MariaDB])
SMALL_RING = {"canal.instance.memory.buffer.size": "16", "canal.instance.memory.batch.mode": "ITEMSIZE"}
BEYOND_THE_RING = 40  # transactions


def far_ahead(server: SqlServer) -> None:
    """Begin more journals than a node reads to extend its history to a new stream."""
    for _ in range(10):
        server.execute("FLUSH BINARY LOGS")


@pytest.mark.real
@EACH
def test_the_history_under_a_stream_that_lags_stays_when_another_one_opens_far_ahead(make: Server) -> None:
    """A lagging client's rows keep their names after a swap of columns, though another client opens far ahead."""
    with make(row_metadata="MINIMAL") as server:
        server.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id int PRIMARY KEY, price int, qty int)")
        with (
            Node({"example": follow(server)}, properties=SMALL_RING) as node,
            connected(node, "shop") as lagging,
            SimpleConnector(LOOPBACK, node.port, "example", 2, rollback_on_connect=False) as reader,
        ):
            server.execute("INSERT INTO shop.t VALUES (0, 100, 7)")
            found = rows(lagging, 1)
            server.execute(*(f"INSERT INTO shop.t VALUES ({i}, 100, 7)" for i in range(1, BEYOND_THE_RING)))
            server.execute("FLUSH BINARY LOGS")
            server.execute(*(f"INSERT INTO shop.t VALUES ({i}, 100, 7)" for i in range(BEYOND_THE_RING, 60)))
            server.execute("ALTER TABLE shop.t MODIFY price int AFTER qty")
            server.execute("INSERT INTO shop.t VALUES (60, 7, 100)")
            far_ahead(server)
            reader.read_from("latest", filter=r"shop\..*")
            server.execute("INSERT INTO shop.t VALUES (61, 7, 100)")
            assert [row.after for row in rows(reader, 1)] == [{"id": 61, "qty": 7, "price": 100}]
            found += rows(lagging, 61)
            assert [row.after for row in found] == [{"id": i, "price": 100, "qty": 7} for i in range(62)]
            assert list(found[59].after or ()) == ["id", "price", "qty"]
            assert list(found[60].after or ()) == ["id", "qty", "price"]


@pytest.mark.real
@EACH
def test_the_order_in_which_clients_open_does_not_matter(make: Server) -> None:
    """After a restart, a client far behind gets the right columns even if another client opens far ahead first."""
    with make(row_metadata="MINIMAL") as server:
        server.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id int PRIMARY KEY, price int, qty int)")
        node = Node({"example": follow(server)}).start()
        with connected(node, "shop") as lagging:
            server.execute("INSERT INTO shop.t VALUES (0, 100, 7)")
            assert rows(lagging, 1)
        node.stop()
        server.execute("INSERT INTO shop.t VALUES (1, 100, 7)", "ALTER TABLE shop.t MODIFY price int AFTER qty")
        far_ahead(server)
        with node.start():
            with SimpleConnector(LOOPBACK, node.port, "example", 2, rollback_on_connect=False) as reader:
                until(lambda: begun(reader), what="a node that runs the destination")
                server.execute("INSERT INTO shop.t VALUES (2, 7, 100)")
                assert [row.after for row in rows(reader, 1)] == [{"id": 2, "qty": 7, "price": 100}]
            with connected(node, "shop") as lagging:
                assert [row.after for row in rows(lagging, 2)] == [{"id": i, "price": 100, "qty": 7} for i in (1, 2)]


@pytest.mark.real
@EACH
def test_rows_from_before_full_metadata_are_not_taken_for_rows_with_it(make: Server) -> None:
    """On a fresh node, rows logged before the switch to FULL are refused if their table changed since, else right."""
    with make(row_metadata="MINIMAL") as server:
        server.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id int PRIMARY KEY, price int, qty int)")
        server.execute("CREATE TABLE shop.calm (id int PRIMARY KEY, a int)")
        begin = ":".join(map(str, server.position()))
        server.execute("INSERT INTO shop.calm VALUES (1, 2)")
        server.execute("INSERT INTO shop.t VALUES (1, 100, 7)")
        server.execute("ALTER TABLE shop.t MODIFY price int AFTER qty")
        server.execute("SET GLOBAL binlog_row_metadata = FULL", "FLUSH BINARY LOGS")
        server.execute("INSERT INTO shop.t VALUES (2, 7, 100)")
        with (
            Node({"example": follow(server)}) as node,
            SimpleConnector(LOOPBACK, node.port, "example", 2, rollback_on_connect=False) as reader,
        ):
            reader.read_from(begin, filter=r"shop\..*")
            assert [row.after for row in rows(reader, 1)] == [{"id": 1, "a": 2}]
            with pytest.raises(ServerRefused, match="are not known for certain"):
                rows(reader, 1)


def begun(reader: SimpleConnector) -> bool:
    """Read from the newest position. Return False, after a reconnect, if the destination does not run there yet."""
    try:
        reader.read_from("latest", filter=r"shop\..*")
    except ServerRefused:
        reader.disconnect()
        reader.connect()
        return False
    return True
