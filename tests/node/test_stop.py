"""Orderly stops of a real node while its source hangs, or while a client does what a client should not do."""

from __future__ import annotations

import time
from contextlib import ExitStack

import pytest

from lab import MariaDB, Node, ZooKeeper, follow
from tests.server.raw_client import RawClient

pytestmark = [pytest.mark.real, pytest.mark.timed]


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
