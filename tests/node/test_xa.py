"""XA transactions through a whole node: fail-over between XA PREPARE and XA COMMIT, purges, and canal's way."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from canal_ha.client.rows import rows_of
from lab import MariaDB, MySQL, Node, SqlServer, follow
from tests.node.following import column, following, read, silence
from tests.waiting import until

pytestmark = pytest.mark.real

EACH = pytest.mark.parametrize("make", [MySQL, MariaDB])
FILES = {"canal.instance.global.spring.xml": "classpath:spring/file-instance.xml"}


def run(server: SqlServer, database: str, *statements: str) -> None:
    """Run statements in a session of their own."""
    with server.connect(database=database, autocommit=True) as session:
        for statement in statements:
            session.cursor().execute(statement)


def prepare(server: SqlServer, database: str, name: str, number: int) -> None:
    """Prepare one row."""
    insert = f"INSERT INTO t VALUES ({number})"
    run(server, database, f"XA START '{name}'", insert, f"XA END '{name}'", f"XA PREPARE '{name}'")


@EACH
def test_a_node_dies_between_prepare_and_commit(make: Callable[..., SqlServer]) -> None:
    """The client has acknowledged everything; the next process has the rows when they commit, and none it must not.

    The cursor behind XA COMMIT then holds, even if the journal of XA PREPARE is purged.
    """
    with make() as server:
        server.execute("CREATE DATABASE x", "CREATE TABLE x.t (id int)")
        with Node({"example": follow(server)}, properties=FILES) as node:
            with following(node, tables=r"x\..*") as client:
                before = meta(node)
                prepare(server, "x", "a", 1)
                prepare(server, "x", "b", 2)
                run(server, "x", "INSERT INTO t VALUES (3)")
                assert column(read(client, 1)) == [3]
                until(lambda: meta(node) != before, what="a durable cursor")
            node.kill()
            server.execute("FLUSH BINARY LOGS")
            run(server, "x", "XA ROLLBACK 'b'", "XA COMMIT 'a'")
            node.start()
            with following(node, tables=r"x\..*") as client:
                assert column(read(client, 1)) == [1]
                silence(client, 3)
            node.stop()
            server.execute(f"PURGE BINARY LOGS TO '{server.position()[0]}'")
            node.start()
            with following(node, tables=r"x\..*") as client:
                run(server, "x", "INSERT INTO t VALUES (4)")
                assert column(read(client, 1)) == [4]
                silence(client)


def meta(node: Node) -> str:
    """Return the file of the destination's cursors."""
    path = node.conf / "example" / "meta.dat"
    return path.read_text() if path.exists() else ""


def test_prepare_is_canals_way(source_server: SqlServer, database: str) -> None:
    """canal.instance.xa = prepare delivers rows at XA PREPARE, and an entry for XA ROLLBACK."""
    server = source_server
    server.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int)")
    settings = follow(server, {"canal.instance.xa": "prepare"})
    with Node({"example": settings}) as node, following(node, tables=rf"{database}\..*") as client:
        prepare(server, database, "a", 1)
        assert column(read(client, 1)) == [1]
        run(server, database, "XA ROLLBACK 'a'")

        def rolled_back() -> bool:
            message = client.get(1000, 100)
            return any(row.sql.startswith("XA ROLLBACK") for row in rows_of(message.entries))

        until(rolled_back, what="the entry of XA ROLLBACK")
