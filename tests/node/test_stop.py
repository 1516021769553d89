"""Orderly stops of a real node while its source hangs, or while a client does what a client should not do."""

from __future__ import annotations

import re
import time
from contextlib import ExitStack
from datetime import datetime

import pytest

from lab import MariaDB, Node, ZooKeeper, follow
from tests.node.slow_reader import leave_unread, released_s
from tests.server.raw_client import RawClient

pytestmark = [pytest.mark.real, pytest.mark.timed]


def line_with(log: str, text: str) -> str:
    """Return the only line with a text."""
    (line,) = [line for line in log.splitlines() if text in line]
    return line


def moment(line: str) -> datetime:
    """Return when a line was logged."""
    found = re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.,]\d{3}", line)
    assert found, line
    return datetime.fromisoformat(found[0])


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


def test_a_node_stops_in_time_while_a_destination_first_starts_and_its_source_hangs() -> None:
    """The start waits for the source, but not when the node stops."""
    with MariaDB() as source:
        source.pause()
        with Node({"example": follow(source)}, wait_for=()) as node:
            assert not node.running()
            began = time.monotonic()
            node.stop()
            took_s = time.monotonic() - began
            assert node.exit_code == 0
            assert took_s < 3
            assert "instance.stopped" in node.log_file("example")


def test_a_client_that_reads_nothing_does_not_delay_the_hand_over(
    zookeeper: ZooKeeper, mariadb: MariaDB, database: str
) -> None:
    """The node releases the destination while its reply of 20 MB to this client is still leaving."""
    mariadb.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (v longtext)")
    with (
        Node({"example": follow(mariadb)}, zk_servers=zookeeper.hosts, wait_for=["example"]) as node,
        RawClient(node) as client,
    ):
        leave_unread(mariadb, database, client)
        assert released_s(node, node.stop) < 3
        assert node.exit_code == 0


def test_what_is_acknowledged_is_durable_before_clients_have_their_last_words(
    zookeeper: ZooKeeper, mariadb: MariaDB, database: str
) -> None:
    """A client that has not acknowledged its batch gets half a second, and may keep the node busy meanwhile.

    The other client's cursor is written before that, and the instance stops after it.
    """
    mariadb.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (v text)")
    slow = {"canal.zookeeper.flush.period": "60000"}
    with (
        Node({"example": follow(mariadb)}, zk_servers=zookeeper.hosts, wait_for=["example"], properties=slow) as node,
        RawClient(node, client_id=1001) as good,
        RawClient(node, client_id=1002) as late,
    ):
        for client in (good, late):
            client.subscribe(rf"{database}\..*")
            assert client.refusal() == (0, "")
        # The second row fills a batch of 1 KiB, so that the GET does not wait for its time-out.
        mariadb.execute(
            f"INSERT INTO {database}.t VALUES ('x')", f"INSERT INTO {database}.t VALUES (REPEAT('x', 2000))"
        )
        for client in (late, good):
            client.get(timeout=20_000, size=1)
            batch = client.fetched()
        good.ack(batch.batch_id)
        time.sleep(0.2)
        node.stop()
        persisted = (node.directory / "logs" / "example" / "meta.log").read_text().splitlines()
        assert [line for line in persisted if "1001" in line]
        assert moment(persisted[0]) < moment(line_with(node.log_file(), "running.stopping"))
