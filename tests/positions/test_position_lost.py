"""A cursor whose journal is purged: the stream stops, or continues where canal.instance.position.lost says."""

from __future__ import annotations

import pytest

from canal_ha.client.connector import SimpleConnector
from canal_ha.errors import CanalError
from lab import MariaDB, MySQL, Node, SqlServer, follow
from lab.ports import LOOPBACK
from tests.positions.reading import connected, rows, subscribed_to
from tests.waiting import until

INSERT = "INSERT INTO shop.t VALUES "


def purged(server: SqlServer, node: Node) -> None:
    """Acknowledge row 1, purge the journals with rows 2 and 3, and keep the journal with row 4."""
    server.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id int PRIMARY KEY)")
    with connected(node.start(), "shop") as client:
        server.execute(INSERT + "(1)")
        assert [row.after for row in rows(client, 1)] == [{"id": 1}]
    node.stop()
    server.execute(INSERT + "(2)", "FLUSH BINARY LOGS", INSERT + "(3)", "FLUSH BINARY LOGS", INSERT + "(4)")
    newest = server.journals()[-1]

    def alone() -> bool:  # MariaDB keeps a journal until it notices that its reader is gone
        server.execute(f"PURGE BINARY LOGS TO '{newest}'")
        return server.journals() == [newest]

    until(alone, what="the purge")


@pytest.mark.real
def test_fail_stops_and_names_the_oldest_journal() -> None:
    """Without a policy, GET is refused with an error that names the oldest journal. No purge is about to come."""
    with MariaDB() as server:
        node = Node({"example": follow(server)})
        purged(server, node)
        with node.start(), SimpleConnector(LOOPBACK, node.port, "example") as client:
            until(lambda: subscribed_to(client, "shop"), what="the destination")
            with pytest.raises(CanalError, match=f"purged.*{server.journals()[0]}"):
                rows(client, 1, seconds=5)
            (stream,) = node.status()["destinations"][0]["streams"]
            assert (stream["state"], stream["alarms"]) == ("failed", ["lost"])


@pytest.mark.real
@pytest.mark.parametrize(
    ("make", "properties", "expected"),
    [
        (MySQL, {"canal.instance.position.lost": "earliest"}, [4, 5]),
        (MariaDB, {"canal.instance.position.lost": "timestamp"}, [4, 5]),
        (MariaDB, {"canal.auto.reset.latest.pos.mode": "true"}, [5]),
    ],
)
@pytest.mark.nightly("tests/instance/test_embedded.py: each policy; the test above: a real purge")
def test_goes_on_where_the_policy_says(make: type[SqlServer], properties: dict[str, str], expected: list[int]) -> None:
    """The stream continues by itself where the policy says, after an alarm in the log; so does a restarted node."""
    with make() as server:
        node = Node({"example": follow(server, properties)})
        purged(server, node)
        with connected(node.start(), "shop") as client:
            log = node.directory / "logs" / "example" / "example.log"

            def moved() -> bool:
                message = client.get_without_ack(100, 100)
                if message:
                    client.rollback(message.id)
                return "cursor.moved_past_lost" in log.read_text()

            until(moved, what="the alarm")
            server.execute(INSERT + "(5)")
            assert [row.after for row in rows(client, len(expected))] == [{"id": value} for value in expected]
        node.stop()
        with node.start(), connected(node, "shop") as client:
            server.execute(INSERT + "(6)")
            assert [row.after for row in rows(client, 1)] == [{"id": 6}]


@pytest.mark.real
@pytest.mark.parametrize("make", [MySQL, MariaDB])
def test_binary_logs_that_were_reset(make: type[SqlServer]) -> None:
    """A reset begins the journals anew at smaller numbers: a node forgets the tables' columns and moves the cursor."""
    with make(row_metadata="MINIMAL") as server:
        node = Node({"example": follow(server, {"canal.instance.position.lost": "earliest"})})
        server.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id int PRIMARY KEY, a int)", "FLUSH BINARY LOGS")
        with connected(node.start(), "shop") as client:
            server.execute(INSERT + "(1, 1)")
            assert [row.after for row in rows(client, 1)] == [{"id": 1, "a": 1}]
        node.stop()
        reset = "RESET BINARY LOGS AND GTIDS" if server.flavor == "mysql" else "RESET MASTER"
        server.execute("ALTER TABLE shop.t CHANGE a b int", reset, INSERT + "(2, 2)")
        with node.start(), connected(node, "shop") as client:
            assert [row.after for row in rows(client, 1)] == [{"id": 2, "b": 2}]
            server.execute("ALTER TABLE shop.t CHANGE b c int", INSERT + "(3, 3)")
            assert [row.after for row in rows(client, 1)] == [{"id": 3, "c": 3}]
