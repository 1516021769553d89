"""ClusterConnector with a fixed list of nodes: real servers in this process, real sockets, no ZooKeeper."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from hashlib import sha1

import pytest

from canal_ha.client.cluster import ClusterConnector
from canal_ha.errors import (
    ConnectionLost,
    ConnectorStopped,
    LocalProtocolError,
    ServerRefused,
    WaitedTooLong,
)
from lab.ports import free_port
from tests.server.harness import LOOPBACK, Served, entries_segment, transaction

SECRET = sha1(sha1(b"secret").digest()).hexdigest()
WAIT_MS = 200  # a batch that does not fill comes after this time


def connector(*servers: Served | int, **options: object) -> ClusterConnector:
    """Return a connector for these servers, or for ports without a server."""
    ports = [server if isinstance(server, int) else server.port for server in servers]
    made: Callable[..., ClusterConnector] = ClusterConnector
    return made([f"{LOOPBACK}:{port}" for port in ports], "example", **{"retry_interval_ms": 100, **options})


def push(server: Served, *numbers: int) -> None:
    """Push transactions with these numbers to every open stream."""
    for number in numbers:
        server.push(entries_segment(transaction(number)))


def offsets(client: ClusterConnector) -> list[int]:
    """Return the binlog offsets of the next batch."""
    return [entry.header.logfileOffset for entry in client.get_without_ack(100, WAIT_MS).entries]


def test_a_node_that_is_not_there_is_passed_over() -> None:
    """The connector tries the next node of the list at once."""
    with Served() as server, connector(free_port(), server) as client:
        client.subscribe("")
        assert client.node == f"{LOOPBACK}:{server.port}"


def test_what_was_not_acknowledged_comes_again_after_a_failure() -> None:
    """The next connection subscribes with the same filter and rolls back; an ACK of the lost batch is dropped."""
    with Served() as server, connector(server) as client:
        client.subscribe(r"shop\..*")
        client.get_without_ack(100)
        push(server, 1)
        message = client.get_without_ack(100, WAIT_MS)
        assert client._calls._exchange._link is not None
        client._calls._exchange._link.abort()
        push(server, 2)
        again = client.get_without_ack(100, WAIT_MS)
        assert again.id > message.id
        assert [e.header.logfileOffset for e in again.entries][:3] == [e.header.logfileOffset for e in message.entries]
        client.ack(message.id)
        client.rollback(message.id)
        assert client.check_valid()
        client.ack(again.id)
        assert offsets(client) == []
        assert server.meta.clients()[0].filter == r"shop\..*"


def test_a_fail_over_to_a_node_that_counts_anew() -> None:
    """Batch ids of the second node continue after those of the first."""
    with Served() as second:
        with Served() as first:
            client = connector(first, second)
            client.connect()
            client.subscribe("")
            client.get_without_ack(100)
            push(first, 1)
            old = client.get_without_ack(100, WAIT_MS)
        client.get_without_ack(100)
        push(second, 1)
        new = client.get_without_ack(100, WAIT_MS)
        assert (old.id, new.id) == (1, 2)
        client.rollback(old.id)
        client.ack(old.id)
        client.ack(new.id)
        assert offsets(client) == []
        client.disconnect()


def test_retries_end_when_they_are_limited() -> None:
    """The error has canal's text."""
    port = free_port()
    client = connector(port, retry_times=3)
    with pytest.raises(ConnectionLost, match="failed to connect after 3 times retry: cannot connect"):
        client.connect()
    assert not client.connected


def test_a_call_waits_as_long_as_it_may() -> None:
    """The error says what the call waited for."""
    client = connector(free_port(), call_timeout_s=0.3)
    began = time.monotonic()
    with pytest.raises(WaitedTooLong, match="no connection to a node in time: cannot connect"):
        client.connect()
    assert 0.25 < time.monotonic() - began < 2.0


def test_what_cannot_get_better_is_told_at_once() -> None:
    """A wrong password, a GET without SUBSCRIBE and an invalid filter are not tried again."""
    with Served(user="canal", passwd=SECRET) as server:
        with pytest.raises(ServerRefused, match="auth failed for user:canal"):
            connector(server, username="canal", password="wrong").connect()
        with connector(server, username="canal", password="secret") as client:
            with pytest.raises(ServerRefused, match="should subscribe first"):
                client.get_without_ack()
            with pytest.raises(ServerRefused, match="table filter"):
                client.subscribe("shop.(")
            client.subscribe("shop.t")
            assert not client.get_without_ack()


@pytest.mark.parametrize("stop", [ClusterConnector.stop_running, ClusterConnector.disconnect])
def test_a_call_that_waits_can_be_stopped(stop: Callable[[ClusterConnector], None]) -> None:
    """Another thread stops it, both during a GET without limit and while no node can be reached."""
    with Served() as server:
        client = connector(server)
        client.connect()
        client.subscribe("")
        threading.Timer(0.2, stop, (client,)).start()
        began = time.monotonic()
        with pytest.raises(ConnectorStopped):
            client.get_without_ack(1000, 0)
        assert time.monotonic() - began < 5.0
        client.disconnect()
    client = connector(free_port())
    threading.Timer(0.2, stop, (client,)).start()
    with pytest.raises(ConnectorStopped):
        client.connect()
    client.disconnect()


def test_a_batch_can_be_acknowledged_after_stopping() -> None:
    """stop_running keeps a connection on which no call waits; connect() starts again."""
    with Served() as server:
        client = connector(server)
        client.connect()
        client.subscribe("")
        client.get_without_ack(100)
        push(server, 1)
        message = client.get_without_ack(100, WAIT_MS)
        client.stop_running()
        client.ack(message.id)
        with pytest.raises(ConnectorStopped):
            client.get_without_ack()
        client.disconnect()
        client.connect()
        assert offsets(client) == []
        client.disconnect()


def test_out_of_order() -> None:
    """Calls before connect() and ACKs of unknown batches are errors."""
    with Served() as server:
        client = connector(server)
        with pytest.raises(LocalProtocolError, match="should connect first"):
            client.subscribe("")
        with client, pytest.raises(LocalProtocolError, match="never delivered"):
            client.ack(7)


def test_no_reactor_is_needed() -> None:
    """The client can be imported without Twisted, for Spark's drivers and executors."""
    program = "import sys; sys.modules['twisted'] = None; import canal_ha.client.cluster"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=30).returncode == 0
