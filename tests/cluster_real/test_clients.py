"""Clients with one id on a real ZooKeeper: which is active, what they write, how they follow the destination.

Real servers in this process serve the destination. The test writes the znode that names the current one.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest
from kazoo.client import KazooClient

from canal_ha.client.cluster import ClusterConnector
from canal_ha.errors import ConnectorStopped, WaitedTooLong
from canal_ha.zookeeper import tree
from lab import Ensemble, ZooKeeper
from lab.process import spawn
from tests.server.harness import LOOPBACK, Served, entries_segment, transaction
from tests.waiting import until

pytestmark = pytest.mark.real

CLIENT = 1001
RUNNING = tree.client_running("example", CLIENT)
SESSION_MS = 2000
WAIT_MS = 50


class Place:
    """A chroot, an operator's session, and servers that can run the destination."""

    def __init__(self, hosts: str) -> None:
        self.hosts = f"{hosts}/clients{time.time_ns()}"
        self.operator = KazooClient(self.hosts)
        self.operator.start()
        self.operator.ensure_path(tree.destination("example"))
        self.clients: list[ClusterConnector] = []
        self.stack = ExitStack()

    def server(self) -> Served:
        """Start another server that can run the destination."""
        return self.stack.enter_context(Served())

    def runs_on(self, server: Served | None) -> None:
        """Make `running` name this server, or delete it."""
        path = tree.running("example")
        if self.operator.exists(path):
            self.operator.delete(path)
        if server is not None:
            data = tree.RunningData(f"{LOOPBACK}:{server.port}").to_bytes()
            self.operator.create(path, data, ephemeral=True)

    def client(self, **options: object) -> ClusterConnector:
        """Return a connector that is not connected."""
        made: Callable[..., ClusterConnector] = ClusterConnector
        self.clients.append(made(self.hosts, "example", **{"zk_session_timeout_ms": SESSION_MS, **options}))
        return self.clients[-1]

    def active_client(self) -> ClusterConnector:
        """Return a connector that is connected, subscribed and active."""
        client = self.client()
        client.connect()
        client.subscribe("")
        return client

    def process(self, *options: str) -> subprocess.Popen[str]:
        """Start `canal-ha client` as a process."""
        program = "from canal_ha.cli.main import main; main()"
        command = [sys.executable, "-c", program, "client", "--zk", self.hosts, "--destination", "example", *options]
        child: subprocess.Popen[str] = spawn(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
        )
        self.stack.callback(_end, child)
        return child

    def says(self) -> tuple[bytes, int] | None:
        """Return data and session of the client's `running` node, if it exists."""
        if self.operator.exists(RUNNING) is None:
            return None
        data, stat = self.operator.get(RUNNING)
        return data, stat.ephemeralOwner

    def close(self) -> None:
        for client in self.clients:
            client.disconnect()
        self.stack.close()
        self.operator.delete("/", recursive=True)
        self.operator.stop()
        self.operator.close()


def _end(child: subprocess.Popen[str]) -> None:
    child.kill()
    child.communicate()


@pytest.fixture
def place(zookeeper: ZooKeeper) -> Iterator[Place]:
    made = Place(zookeeper.hosts)
    yield made
    made.close()


def waiting_get(client: ClusterConnector) -> threading.Thread:
    """Start a thread in `get_without_ack`. It ends when the call returns or is stopped."""

    def work() -> None:
        with suppress(ConnectorStopped):
            client.get_without_ack(100, WAIT_MS)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def told(process: subprocess.Popen[str], event: str) -> None:
    """Read a process's standard error up to this event."""
    assert process.stderr is not None
    for line in process.stderr:
        if event in line:
            return
    raise AssertionError(f"it ended without {event}")


def test_the_node_reads_as_canals_own(place: Place) -> None:
    """`running` is ephemeral and is updated once, to the local address of the connection. Disconnecting deletes it."""
    server = place.server()
    place.runs_on(server)
    client = place.active_client()
    assert client._calls._exchange._link is not None
    host, port = client._calls._exchange._link.local_address
    expected = f'{{"active":true,"address":"{host}:{port}","clientId":1001}}'.encode()
    until(lambda: (place.says() or (b"",))[0] == expected, what="the address of the connection")
    data, stat = place.operator.get(RUNNING)
    assert (stat.version, stat.ephemeralOwner != 0, data) == (1, True, expected)
    client.disconnect()
    assert place.says() is None


@pytest.mark.timed
def test_a_second_client_waits_and_follows_at_once(place: Place) -> None:
    """connect() returns and get waits. The second client is active within 0.5 s after the first one disconnects."""
    place.runs_on(place.server())
    first, second = place.active_client(), place.client()
    second.connect()
    until(lambda: second.standing_by is not None)
    assert not second.check_valid()
    thread = waiting_get(second)
    time.sleep(0.3)
    assert thread.is_alive()
    began = time.monotonic()
    first.disconnect()
    until(second.check_valid)
    assert time.monotonic() - began < 0.5
    thread.join(5)
    second.subscribe("")


@pytest.mark.parametrize("stop", [ClusterConnector.stop_running, ClusterConnector.disconnect])
def test_a_client_that_waits_can_be_stopped(place: Place, stop: Callable[[ClusterConnector], None]) -> None:
    """Another thread can stop it at once. It also gives up after call_timeout_s, with the active client's address."""
    place.runs_on(place.server())
    place.active_client()
    second = place.client(call_timeout_s=0.3)
    second.connect()
    with pytest.raises(WaitedTooLong, match=r"client 1001 is active at 127\.0\.0\.1:"):
        second.get_without_ack()
    second = place.client()
    second.connect()
    thread = waiting_get(second)
    time.sleep(0.2)
    stop(second)
    thread.join(1)
    assert not thread.is_alive()


@pytest.mark.timed
def test_a_killed_process_is_followed_after_its_session(place: Place) -> None:
    """After SIGKILL the next client is active within the session time-out and 2 s, and gets the open batch again."""
    server = place.server()
    place.runs_on(server)
    process = place.process("--format", "json", "--no-ack", "--timeout", str(WAIT_MS))
    until(lambda: bool(server.feeds), what="the stream")
    server.push(entries_segment(transaction(1)))
    assert process.stdout is not None
    row = process.stdout.readline()
    second = place.client()
    second.connect()
    until(lambda: second.standing_by is not None)
    process.kill()
    began = time.monotonic()
    message = second.get_without_ack(100, WAIT_MS)
    took_s = time.monotonic() - began
    print(f"active after {took_s:.1f} s")  # the process asked for 6 s
    assert 1.0 < took_s < 6.0 + 1.0 + 1.0
    assert '"id":1' in row
    assert [entry.header.logfileOffset for entry in message.entries] == [2000, 2100, 2900]


@pytest.mark.timed
def test_a_process_that_is_told_to_end_hands_over_at_once(place: Place) -> None:
    """After SIGTERM a process ends with code 0, and the next one is active within a second, as its log lines show."""
    place.runs_on(place.server())
    first = place.process()
    until(place.says, what="the first client")
    second = place.process()
    told(second, "client.standby")
    first.send_signal(signal.SIGTERM)
    assert first.wait(5) == 0
    began = time.monotonic()
    told(second, "client.active")
    assert time.monotonic() - began < 1.0
    told(second, "client.connected")


def test_a_process_that_stands_by_ends_when_told(place: Place) -> None:
    """SIGINT ends a process that waits for its turn, with code 0."""
    place.runs_on(place.server())
    place.active_client()
    process = place.process()
    told(process, "client.standby")
    process.send_signal(signal.SIGINT)
    assert process.wait(5) == 0


def test_a_session_that_ends_takes_the_turn_with_it(place: Place) -> None:
    """When its session ends, the client disconnects and sends no ACK.

    It is active again at once and gets the batch again.
    """
    server = place.server()
    place.runs_on(server)
    client = place.active_client()
    client.get_without_ack(100, WAIT_MS)
    server.push(entries_segment(transaction(1)))
    message = client.get_without_ack(100, WAIT_MS)
    old, coordination = place.says(), client._calls._exchange._coordination
    assert coordination is not None
    thief = KazooClient(place.hosts, client_id=coordination._session.credentials)
    thief.start()
    thief.stop()
    thief.close()
    until(lambda: client._calls._exchange._link is None, what="the end of the connection")
    client.ack(message.id)
    again = client.get_without_ack(100, WAIT_MS)
    assert [e.header.logfileOffset for e in again.entries] == [e.header.logfileOffset for e in message.entries]
    assert again.id > message.id
    new = place.says()
    assert old is not None
    assert new is not None
    assert old[1] != new[1]


def test_an_operator_takes_the_turn_away(place: Place) -> None:
    """When `active` is set to false, the first client stops and stands back, and the second takes over at once."""
    place.runs_on(place.server())
    first, second = place.active_client(), place.client()
    second.connect()
    until(lambda: second.standing_by is not None)
    place.operator.set(RUNNING, b'{"active":false,"address":"x","clientId":1001}')
    thread = waiting_get(second)
    until(second.check_valid, seconds=1.0)
    assert not first.active
    thread.join(5)
    time.sleep(0.5)
    assert second.check_valid()


def test_a_leftover_of_another_process_is_waited_for(place: Place) -> None:
    """The client leaves a `running` node of a foreign session alone until that session ends."""
    place.runs_on(place.server())
    other = KazooClient(place.hosts, timeout=2.0)
    other.start()
    other.ensure_path(tree.client("example", CLIENT))
    other.create(RUNNING, tree.RunningData("127.0.0.1:1", True, CLIENT).to_bytes(), ephemeral=True)
    client = place.client()
    client.connect()
    assert client.standing_by == "127.0.0.1:1"
    time.sleep(0.5)
    assert place.says() is not None
    other.stop()
    other.close()
    client.subscribe("")
    assert client.check_valid()


@pytest.mark.timed
def test_a_move_is_followed_in_the_middle_of_a_get(place: Place) -> None:
    """The old server keeps the connection open in silence. The waiting GET returns with rows of the new server."""
    first, second = place.server(), place.server()
    place.runs_on(first)
    client = place.active_client()
    moved = threading.Timer(0.3, lambda: place.runs_on(second))
    fed = threading.Timer(0.8, lambda: second.push(entries_segment(transaction(5, rows=100))))
    moved.start()
    fed.start()
    began = time.monotonic()
    message = client.get_without_ack(1, 0)  # waits without limit for 1 KiB
    assert message.entries[0].header.logfileOffset == 6000
    assert time.monotonic() - began < 3.0
    assert client.node == f"{LOOPBACK}:{second.port}"
    assert second.meta.clients()[0].client_id == CLIENT


def test_without_running_the_members_are_tried(place: Place) -> None:
    """While `running` names no server, the client asks the nodes in the destination's list."""
    server = place.server()
    place.operator.create(
        tree.destination_member("example", f"{LOOPBACK}:{server.port}"), b"", ephemeral=True, makepath=True
    )
    client = place.active_client()
    assert client.node == f"{LOOPBACK}:{server.port}"


def test_unsubscribing_keeps_the_place(place: Place) -> None:
    """A server deletes the client's nodes on UNSUBSCRIBE.

    The active client creates its own again, and can subscribe.
    """
    place.runs_on(place.server())
    client = place.active_client()
    client.unsubscribe()
    place.operator.delete(tree.client("example", CLIENT), recursive=True)
    until(place.says, what="the node")
    client.subscribe("")
    assert client.check_valid()


def test_clients_outlive_the_leader_of_the_ensemble(ensemble: Ensemble) -> None:
    """While ZooKeeper elects a new leader, an active client stays active or soon is again, and reads on."""
    place = Place(ensemble.hosts)
    server = place.server()
    place.runs_on(server)
    client = place.client(zk_session_timeout_ms=10_000)
    client.connect()
    client.subscribe("")
    leader = ensemble.leader()
    leader.stop()
    try:
        ensemble.leader()
        server.push(entries_segment(transaction(1)))
        until(lambda: bool(client.get_without_ack(100, WAIT_MS)), what="the row")
    finally:
        leader.start()
    until(client.check_valid)
    place.close()


def test_a_frozen_process_has_lost_its_turn_when_it_goes_on(place: Place) -> None:
    """A process frozen beyond its session loses its turn.

    When it resumes, it logs that, sends nothing and stands by.
    """
    server = place.server()
    place.runs_on(server)
    process = place.process("--timeout", str(WAIT_MS))
    told(process, "client.connected")
    second = place.client()
    second.connect()
    until(lambda: second.standing_by is not None)
    process.send_signal(signal.SIGSTOP)
    until(lambda: second.active, seconds=15.0)
    second.subscribe("")
    second.get_without_ack(100, WAIT_MS)
    server.push(entries_segment(transaction(1)))
    message = second.get_without_ack(100, WAIT_MS)
    process.send_signal(signal.SIGCONT)
    told(process, "client.inactive")
    told(process, "client.standby")
    assert second.check_valid()
    second.ack(message.id)
    until(lambda: str(server.meta.cursor(CLIENT)) == "mysql-bin.000001:2900", what="the cursor")


@pytest.mark.timed
def test_ending_without_zookeeper() -> None:
    """While ZooKeeper is away the client is not active, and disconnect() returns in time."""
    with ZooKeeper() as own:
        place = Place(own.hosts)
        place.runs_on(place.server())
        client = place.active_client()
        own.pause()
        until(lambda: not client.active, seconds=5.0)
        own.resume()
        until(lambda: client.active, seconds=10.0)
        client.get_without_ack()
        own.kill()
        began = time.monotonic()
        client.disconnect()
        assert time.monotonic() - began < 8.0
        print(f"disconnected after {time.monotonic() - began:.1f} s")
        place.stack.close()
        place.operator.stop()
        place.operator.close()
