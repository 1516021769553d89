"""Orderly stops of a real node while its source hangs, or while a client does what a client should not do."""

from __future__ import annotations

import time
from contextlib import ExitStack
from threading import Thread

import pytest
from kazoo.client import KazooClient

from canal_ha.model.position import LogPosition
from canal_ha.wire.packets import client_frame
from canal_ha.wire.proto import canal_protocol_pb2 as pb
from canal_ha.zookeeper import tree
from lab import MariaDB, Node, ZooKeeper, follow
from tests.node.following import stream_of
from tests.server.raw_client import RawClient
from tests.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.timed]


def cursor_in(zookeeper: ZooKeeper) -> LogPosition:
    """Return the durable cursor of client 1001."""
    operator = KazooClient(zookeeper.hosts)
    operator.start()
    try:
        return LogPosition.from_json(operator.get(tree.cursor("example", 1001))[0].decode())
    finally:
        operator.stop()
        operator.close()


def moved(node: Node, from_offset: int) -> int | None:
    """Return where the cursor of client 1001 is in the node's memory, once it has left an offset."""
    offset: int = stream_of(node, "example", 1001)["cursor"]["offset"]
    return None if offset == from_offset else offset


def test_a_node_stops_in_time_while_its_source_hangs_and_clients_subscribe(zookeeper: ZooKeeper) -> None:
    """40 SUBSCRIBEs of ten new client ids wait for the source. The node stops all the same and releases `running`."""
    with (
        ExitStack() as held,
        MariaDB() as source,
        Node({"example": follow(source)}, zk_servers=zookeeper.hosts, wait_for=["example"]) as node,
    ):
        source.pause()
        for number in range(40):
            client = held.enter_context(RawClient(node, client_id=3000 + number % 10))
            client.subscribe()
        time.sleep(1)
        began = time.monotonic()
        node.stop()
        took_s = time.monotonic() - began
        assert node.exit_code == 0
        assert "running.released" in node.log_file()
        assert took_s < 10


def test_a_client_that_reads_nothing_does_not_delay_the_hand_over(
    zookeeper: ZooKeeper, mariadb: MariaDB, database: str
) -> None:
    """The node releases the destination while its reply of 20 MB to this client is still leaving."""
    mariadb.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (v longtext)")
    with (
        Node({"example": follow(mariadb)}, zk_servers=zookeeper.hosts, wait_for=["example"]) as node,
        RawClient(node) as client,
    ):
        client.subscribe()
        assert client.refusal() == (0, "")
        mariadb.execute(f"INSERT INTO {database}.t VALUES (REPEAT('x', 20000000))")
        client.get(timeout=20_000, size=1)
        time.sleep(2)
        stop = Thread(target=node.stop)
        began = time.monotonic()
        stop.start()
        until(lambda: "running.released" in node.log_file(), what="the release")
        took_s = time.monotonic() - began
        stop.join()
        assert took_s < 3
        assert node.exit_code == 0


def test_what_is_acknowledged_is_durable_after_a_stop_whatever_another_client_sends(
    zookeeper: ZooKeeper, mariadb: MariaDB, database: str
) -> None:
    """The other client has sent 300,000 GETs ahead, behind one that waits; its batch is not acknowledged."""
    mariadb.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY)")
    slow = {"canal.zookeeper.flush.period": "60000"}
    with (
        Node({"example": follow(mariadb)}, zk_servers=zookeeper.hosts, wait_for=["example"], properties=slow) as node,
        RawClient(node, client_id=1001) as good,
        RawClient(node, client_id=1002) as hostile,
    ):
        tables = rf"{database}\..*"
        for client in (good, hostile):
            client.subscribe(tables)
            assert client.refusal() == (0, "")
        mariadb.execute(f"INSERT INTO {database}.t VALUES (1)")
        hostile.get(timeout=20_000)
        assert hostile.fetched().entries()
        get = client_frame(pb.GET, pb.Get(fetch_size=1, timeout=-1, unit=2, **hostile.names))
        hostile.get(timeout=0)
        hostile.sock.sendall(get * 300_000)
        began = cursor_in(zookeeper).offset
        good.get(timeout=20_000)
        good.ack(good.fetched().batch_id)
        acknowledged = until(lambda: moved(node, from_offset=began), what="the ACK")
        node.stop()
        assert cursor_in(zookeeper).offset == acknowledged
