"""Harmful filters: a node refuses them or matches them in linear time, and other clients do not notice."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from canal_ha.client.connector import SimpleConnector
from canal_ha.errors import ServerRefused
from lab import MySQL, Node, ZooKeeper, follow
from lab.ports import LOOPBACK
from tests.node.following import column, following, read, stream_of

pytestmark = [pytest.mark.real, pytest.mark.timed]

SLOW_TO_MATCH = ".*" * 20 + "z"
SLOW_TO_COMPILE = ",".join(f"(a{number}|b)+" for number in range(1_700))  # 18 kB
TOO_LONG_FOR_A_ZNODE = "x" * 1_200_000


@contextmanager
def followed(mysql: MySQL, schema: str, *, zk_servers: str = "") -> Iterator[Node]:
    """Run a node that follows the server, with a table whose name is slow to match."""
    table = f"{schema}.a_table_with_quite_a_long_name"
    mysql.execute(f"CREATE DATABASE {schema}", f"CREATE TABLE {table} (id int PRIMARY KEY)")
    destinations = {"example": follow(mysql, {"canal.instance.filter.regex": rf"{schema}\\..*"})}
    with Node(destinations, zk_servers=zk_servers, wait_for=["example"]) as node:
        yield node


def connected(node: Node) -> SimpleConnector:
    """Return client 1002, which has sent no request yet."""
    return SimpleConnector(LOOPBACK, node.port, "example", 1002)


def insert(mysql: MySQL, schema: str, number: int) -> None:
    """Insert one row into the table."""
    mysql.execute(f"INSERT INTO {schema}.a_table_with_quite_a_long_name VALUES ({number})")


def test_a_filter_that_is_slow_to_match_delays_nobody(mysql: MySQL, database: str) -> None:
    """Client 1001 gets its next row within two seconds, and the node stops with exit code 0 within five."""
    with followed(mysql, database) as node, following(node) as client:
        insert(mysql, database, 1)
        assert column(read(client, 1)) == [1]
        with following(node, client_id=1002, tables=SLOW_TO_MATCH):
            insert(mysql, database, 2)
            time.sleep(0.5)  # until the other stream meets the table
            began = time.monotonic()
            assert column(read(client, 1)) == [2]
            assert time.monotonic() - began < 2
            began = time.monotonic()
            node.stop()
            assert time.monotonic() - began < 5
            assert node.exit_code == 0


def test_a_long_filter_is_refused_and_not_kept(mysql: MySQL, database: str) -> None:
    """The client gets an error, its id is not stored, and client 1001 is still served."""
    with followed(mysql, database) as node, following(node) as client:
        for number, long in enumerate((SLOW_TO_COMPILE, TOO_LONG_FOR_A_ZNODE), 1):
            began = time.monotonic()
            with connected(node) as other, pytest.raises(ServerRefused, match="4096 bytes"):
                other.subscribe(long)
            with connected(node) as other, pytest.raises(ServerRefused, match="4096 bytes"):
                other.read_from("latest", filter=long)
            insert(mysql, database, number)
            assert column(read(client, 1)) == [number]
            assert time.monotonic() - began < 2
        cursors = json.loads((node.conf / "example" / "meta.dat").read_text())
        assert [each["clientIdentity"]["clientId"] for each in cursors["clientDatas"]] == [1001]
        assert len(node.log_file()) < 20_000


def test_a_long_filter_does_not_suspend_the_session(mysql: MySQL, zookeeper: ZooKeeper, database: str) -> None:
    """The node refuses the filter before ZooKeeper, where a write beyond the size limit would end the session."""
    with (
        followed(mysql, database, zk_servers=zookeeper.hosts) as node,
        following(node) as client,
        connected(node) as other,
    ):
        with pytest.raises(ServerRefused, match="4096 bytes"):
            other.subscribe(TOO_LONG_FOR_A_ZNODE)
        insert(mysql, database, 1)
        assert column(read(client, 1)) == [1]
        assert "suspended" not in node.log_file()


def test_a_stored_filter_that_cannot_be_used_stops_its_own_stream(mysql: MySQL, database: str) -> None:
    """Earlier versions stored any filter. Only its stream fails, with an alarm, and a new SUBSCRIBE repairs it."""
    with followed(mysql, database) as node:
        with following(node) as client, following(node, client_id=1002, tables="kept"):
            insert(mysql, database, 1)
            assert column(read(client, 1)) == [1]
        for unusable, reason, rows in ((r"(?=a).*\..*", "look-ahead", [1, 2]), (SLOW_TO_COMPILE, "4096 bytes", [3])):
            node.stop()
            file = node.conf / "example" / "meta.dat"
            kept = json.loads(file.read_text())
            kept["clientDatas"][1]["clientIdentity"]["filter"] = unusable
            file.write_text(json.dumps(kept))
            node.start()
            with following(node) as client, connected(node) as other:
                with pytest.raises(ServerRefused, match=reason):
                    other.get_without_ack(1, 10_000)
                assert stream_of(node, "example", 1002)["state"] == "failed"
                assert "stream.stopped" in node.log_file("example")
                insert(mysql, database, rows[-1])
                assert column(read(client, 1)) == rows[-1:]
                with following(node, client_id=1002, tables=rf"{database}\..*") as mended:
                    assert column(read(mended, len(rows))) == rows
