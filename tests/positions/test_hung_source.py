"""A source that hangs, as with a frozen machine or a dead disk: everything that waits for it can still be stopped."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import pytest

from canal_ha.client.connector import SimpleConnector
from canal_ha.errors import CanalError
from canal_ha.model.place import Place
from canal_ha.source.connection.dump_connection import DumpConnection
from canal_ha.source.connection.session import Interruptible
from canal_ha.source.connection.stop_signal import StopSignal
from canal_ha.source.server.view import View
from lab import MySQL, Node, SqlServer, follow
from lab.ports import LOOPBACK
from tests.positions.reading import connected, rows
from tests.source.reading import config_of

STOPS_WITHIN_S = 10.0  # two on an idle machine; the read time-out alone is 30


@pytest.mark.real
@pytest.mark.timed
def test_a_node_stops(mysql: MySQL, database: str) -> None:
    """A node stops in time while its source hangs: with a dump and a waiting SUBSCRIBE, and right after a start."""
    server = mysql
    server.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY)")
    node = Node({"example": follow(server)})
    with connected(node.start(), database) as client:
        server.execute(f"INSERT INTO {database}.t VALUES (1)")
        assert len(rows(client, 1)) == 1
    server.pause()
    try:
        asking = threading.Thread(target=subscribe, args=(node,), daemon=True)
        asking.start()
        assert seconds_to_stop(node) < STOPS_WITHIN_S
        asking.join(10)
        assert not asking.is_alive()
        node.start()
        assert seconds_to_stop(node) < STOPS_WITHIN_S
    finally:
        server.resume()
        node.kill()


@pytest.mark.real
def test_every_connection_can_be_woken(source_server: SqlServer) -> None:
    """A search by time reports the connections that it opens, so that they can be interrupted."""
    opened: list[Interruptible] = []

    class Recorded(StopSignal):
        def opened(self, connection: Interruptible) -> None:
            opened.append(connection)
            super().opened(connection)

    view = View(config_of(source_server), stop_signal=Recorded())
    view.find(Place(timestamp_ms=int(time.time() * 1000) - 5000))
    view.close()
    assert any(isinstance(connection, DumpConnection) for connection in opened)


def subscribe(node: Node) -> None:
    """Subscribe with a new client id; the node refuses this when it stops."""
    with suppress(CanalError), SimpleConnector(LOOPBACK, node.port, "example", 7) as client:
        client.subscribe("")


def seconds_to_stop(node: Node) -> float:
    """Return how long an orderly stop takes."""
    began = time.monotonic()
    node.stop()
    return time.monotonic() - began
