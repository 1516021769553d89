"""An address that comes to lead to another server with other columns, while one destination still reads the former."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from canal_ha.client.connector import SimpleConnector
from canal_ha.client.rows import Row, rows_of
from lab import MySQL, Node, follow
from lab.proxy import Network
from tests.node.following import following
from tests.waiting import until

pytestmark = pytest.mark.real

COLUMNS = ("id INT PRIMARY KEY, a INT, b INT", "id INT PRIMARY KEY, b INT, a INT")
VALUES = {"a": 1, "b": 2}


def dumps(server: MySQL) -> set[int]:
    """Return the server's ids of the dumps."""
    return {int(row["Id"]) for row in server.query("SHOW PROCESSLIST") if "Binlog Dump" in str(row["Command"])}


def insert(server: MySQL, table: str, number: int) -> None:
    """Write a row with this id and the same values in each column on every server."""
    server.execute(f"INSERT INTO d.{table} (id, a, b) VALUES ({number}, {VALUES['a']}, {VALUES['b']})")


def awaited(client: SimpleConnector, table: str, number: int) -> dict[str, object]:
    """Return the columns of a row of this table as the client gets it."""

    def found() -> Row | None:
        message = client.get_without_ack(100, 200)
        if not message:
            return None
        rows = list(rows_of(message.entries))
        client.ack(message.id)
        return next((row for row in rows if row.after and (row.table, row.after["id"]) == (table, number)), None)

    row = until(found, seconds=60, what=f"row {number} of {table}")
    return {name: value for name, value in (row.after or {}).items() if name != "id"}


@pytest.mark.parametrize("tsdb", ["true", "false"])
def test_each_row_has_the_columns_of_the_server_that_it_comes_from(tsdb: str) -> None:
    """One destination loses its dump and goes on at the new server; the other one goes on at the former.

    Row metadata is MINIMAL, so the names come from the definitions that the node asks for. Destinations of one address
    share idle sessions.
    """
    with ExitStack() as stack:
        first, second = (stack.enter_context(MySQL(server_id=n, row_metadata="MINIMAL")) for n in (1, 2))
        for server, columns in zip((first, second), COLUMNS, strict=True):
            tables = [f"CREATE TABLE d.{name} ({columns})" for name in ("t", "u", "v")]
            server.execute("CREATE DATABASE d", *tables)
        link = stack.enter_context(Network()).link(first.port)
        settings = {"canal.instance.master.address": link.address, "canal.instance.tsdb.enable": tsdb}
        node = stack.enter_context(Node({name: follow(first, settings) for name in ("moves", "stays")}))
        moves = stack.enter_context(following(node, "moves"))
        insert(first, "t", 1)
        assert awaited(moves, "t", 1) == VALUES
        its_dumps = dumps(first)
        stays = stack.enter_context(following(node, "stays"))
        insert(first, "t", 2)
        assert awaited(stays, "t", 2) == VALUES

        link.target = second.port
        for number in its_dumps:
            first.execute(f"KILL {number}")
        until(lambda: dumps(second), seconds=60, what="a dump of the second server")
        insert(second, "t", 101)
        assert awaited(moves, "t", 101) == VALUES
        insert(second, "u", 102)
        assert awaited(moves, "u", 102) == VALUES
        for table, number in (("t", 3), ("u", 4)):
            insert(first, table, number)
            assert awaited(stays, table, number) == VALUES
        insert(second, "v", 103)
        assert awaited(moves, "v", 103) == VALUES
        insert(first, "v", 5)
        assert awaited(stays, "v", 5) == VALUES
