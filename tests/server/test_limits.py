"""Peers that open connections without end, do not log in, or send ahead. Each refusal is an error, a figure, a line."""

from __future__ import annotations

import gc
import socket
import threading
import time
from contextlib import ExitStack, suppress

import pytest

from canal_ha.client.cluster import ClusterConnector
from canal_ha.client.connector import SimpleConnector
from canal_ha.errors import ServerRefused
from canal_ha.instance.stream import WAITING_MOST
from canal_ha.server.limits import PortLimits
from canal_ha.server.unread import UnreadReplies
from canal_ha.wire.packets import client_frame
from canal_ha.wire.proto import canal_protocol_pb2 as pb
from tests.server.harness import LOOPBACK, Served, entries_segment, transaction
from tests.server.raw_client import RawClient
from tests.server.test_service import resident_kib
from tests.waiting import until


@pytest.mark.parametrize(("limits", "reason", "key"), [
    (PortLimits(connections=3), "connections", "canal.client.connections.max"),
    (PortLimits(connections_of_address=3), "connections_of_address", "canal.client.connections.address.max"),
])  # fmt: skip
def test_one_connection_too_many_is_told_so(
    limits: PortLimits, reason: str, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The client shows the limit's key. When a connection ends, the next one is accepted."""
    with Served(limits=limits) as served:
        held = [RawClient(served) for _ in range(3)]
        for _ in range(20):
            with pytest.raises(ServerRefused, match=key) as caught:
                SimpleConnector(LOOPBACK, served.port, "example").connect()
            assert caught.value.code == 429
        held[0].sock.close()
        until(lambda: served.service.counters.connections == 2, what="the end of a connection")
        with SimpleConnector(LOOPBACK, served.port, "example") as client:
            client.subscribe()
        assert served.service.counters.refusals == {reason: 20}
        for each in held:
            each.sock.close()
    assert len([record for record in caplog.records if "connection.refused" in str(record.msg)]) == 10


def test_gets_sent_ahead_do_not_pass_the_limit_of_gets_that_wait() -> None:
    """A GET that waits ends when there is one too many. The next one of its connection waits in its place."""
    with Served() as served, ExitStack() as stack:
        clients = [stack.enter_context(RawClient(served)) for _ in range(WAITING_MOST + 20)]
        clients[0].subscribe()
        assert clients[0].refusal() == (0, "")
        for client in clients:
            for _ in range(5):
                client.get(timeout=0, size=1)

        def waiting() -> int:
            return served.embedded.status()[0].streams[0].waiting

        until(lambda: waiting() == WAITING_MOST, what="as many GETs as may wait")
        for client in clients[:20]:  # they were sent first, so all of theirs have ended meanwhile
            assert client.fetched().batch_id == -1
        assert waiting() <= WAITING_MOST


def test_a_client_with_failover_waits_for_room() -> None:
    """A full node is no wrong password: the client tries again, and reads when another connection has ended."""
    with Served(limits=PortLimits(connections=1)) as served, RawClient(served) as other:
        client = ClusterConnector([f"{LOOPBACK}:{served.port}"], "example", retry_interval_ms=100, call_timeout_s=20)
        threading.Timer(1.0, other.sock.shutdown, (socket.SHUT_RDWR,)).start()
        with client:
            client.subscribe()
        assert served.service.counters.refusals["connections"]


def test_canal_go_sees_why_a_full_node_refuses_it() -> None:
    """The error comes after the login. canal-go reads a frame and drops all that arrived together with it."""
    with Served(limits=PortLimits(connections=1)) as served, RawClient(served), served.connect() as late:
        time.sleep(0.2)
        assert b"connections already" not in late.recv(1000)
        late.sendall(client_frame(pb.CLIENTAUTHENTICATION, pb.ClientAuth()))
        assert b"the node has 1 connections already" in late.recv(1000)


def test_a_crowd_at_the_door_holds_no_connections() -> None:
    """Refused connections end by themselves, and only some of them are told why."""
    with Served(limits=PortLimits(connections=1)) as served, RawClient(served):
        crowd = [served.connect() for _ in range(150)]
        until(lambda: served.service.counters.refusals["connections"] == 150, what="150 refusals")
        assert len(served.service._bound.refused) <= 100
        until(lambda: not served.service._bound.refused, what="the end of the crowd")
        for each in crowd:
            each.close()


def test_a_connection_without_a_login_ends() -> None:
    """The time counts from the beginning: neither bytes nor a refused login prolongs it. A client that is in stays."""
    with Served(user="canal", passwd="00" * 20, limits=PortLimits(login_s=0.5)) as served:
        began = time.monotonic()
        with RawClient(served, authenticate=False) as client:
            client.write(pb.CLIENTAUTHENTICATION, pb.ClientAuth(username="x"))
            assert "auth failed" in client.refusal()[1]
            client.sock.sendall(b"\0")
            code, text = client.refusal()
            assert (code, "canal.client.login.timeout" in text) == (429, True)
            assert client.closed()
            assert 0.4 < time.monotonic() - began < 5
        assert served.service.counters.refusals["login_late"] == 1
    with Served(limits=PortLimits(login_s=0.5)) as served, RawClient(served) as client:
        time.sleep(0.7)
        client.subscribe()
        assert client.refusal() == (0, "")


def test_the_third_wrong_password_ends_the_connection() -> None:
    """Each guess is answered; the fourth needs a new connection."""
    with Served(user="canal", passwd="00" * 20) as served, RawClient(served, authenticate=False) as client:
        for _ in range(4):
            client.write(pb.CLIENTAUTHENTICATION, pb.ClientAuth(username="x"))
        assert [client.refusal()[0] for _ in range(3)] == [400] * 3
        assert client.closed()
        assert served.service.counters.refusals["login_failed"] == 3
        until(lambda: served.service._shared.ahead.size_bytes == 0, what="an empty budget")


def test_requests_sent_ahead_are_bounded_for_all_clients_together() -> None:
    """Each client keeps below its own limit. When they fill the node's budget, the one with most is cut off."""
    with Served(limits=PortLimits(ahead_bytes=250_000)) as served:
        ahead = served.service._shared.ahead
        clients = [RawClient(served, client_id=number) for number in (1, 2, 3)]
        for each, size in zip(clients, (90_000, 100_000, 90_000), strict=True):
            each.subscribe()
            assert each.refusal() == (0, "")
            request = client_frame(pb.GET, pb.Get(fetch_size=1, **each.names))
            each.sock.sendall(request * (size // len(request)))
            until(lambda: ahead.size_bytes > 80_000, what="the bytes of a client")
        assert clients[1].closed()
        assert served.service.counters.refusals["ahead_bytes"] == 1
        until(lambda: 170_000 < ahead.size_bytes < 190_000, what="the budget of the lost client")
        with RawClient(served, client_id=7) as another:
            another.subscribe()
            assert another.refusal() == (0, "")
        for each in clients:
            each.sock.close()
        until(lambda: ahead.size_bytes == 0, what="an empty budget")


class Neighbour:
    """The same server, as seen from another address."""

    def __init__(self, port: int) -> None:
        self._port = port

    def connect(self) -> socket.socket:
        """Return a new connection."""
        return socket.create_connection((LOOPBACK, self._port), 10, ("127.0.0.2", 0))


def test_clients_that_fill_the_budget_of_requests_keep_nobody_out() -> None:
    """Another address asks as before while connections hold all of the budget but a byte."""
    request = client_frame(pb.GET, pb.Get(destination="example", client_id="1001", fetch_size=1))
    with Served(limits=PortLimits(ahead_bytes=100_000)) as served, ExitStack() as stack:
        ahead = served.service._shared.ahead
        greedy = stack.enter_context(RawClient(served))
        greedy.subscribe()
        assert greedy.refusal() == (0, "")
        waiting = client_frame(pb.GET, pb.Get(destination="example", client_id="1001", fetch_size=1, timeout=0))
        greedy.sock.sendall(waiting + (request * 10_000)[:99_990])
        until(lambda: ahead.size_bytes > 99_980, what="a budget that is almost used up")
        with RawClient(Neighbour(served.port), client_id=7) as other:
            other.subscribe()
            assert other.refusal() == (0, "")
            other.get(size=1)
            assert other.fetched().batch_id == -1


@pytest.mark.parametrize("cut_off", [True, False])
def test_requests_of_an_ended_connection_hold_no_memory(cut_off: bool) -> None:
    """The memory is free when the budget says so, whoever ended the connection; no garbage collection is needed."""
    request = client_frame(pb.CLIENTACK, pb.ClientAck(destination="example", client_id="1001", batch_id=1))
    ahead = request * ((8 << 20) // len(request))
    limits = PortLimits(ahead_bytes=6 << 20 if cut_off else 64 << 20)
    gc.collect()
    gc.disable()
    try:
        with Served(limits=limits) as served:
            shared = served.service._shared
            before = resident_kib()
            for _ in range(12):
                with RawClient(served) as client:
                    client.subscribe()
                    assert client.refusal() == (0, "")
                    client.get(timeout=0)
                    with suppress(OSError):  # a reset
                        client.sock.sendall(ahead)
                    if not cut_off:
                        until(lambda: shared.ahead.size_bytes > 7 << 20, what="requests that wait")
                until(lambda: not shared.load.connections and not shared.ahead.size_bytes, what="an empty budget")
            grown = resident_kib() - before
    finally:
        gc.enable()
    assert grown < 16 << 10


@pytest.mark.parametrize(("most", "filter_text", "reason"), [("stream_max", "", "streams"), ("", "(", "filter")])
def test_a_refused_subscription_is_counted(
    most: str, filter_text: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The client shows the reason, the metrics count it, and the log has a limited number of lines."""
    with Served(config={most: 1} if most else {}) as served, RawClient(served) as first:
        first.subscribe()
        assert first.refusal() == (0, "")
        with RawClient(served, client_id=7) as second:
            for _ in range(20):
                second.subscribe(filter_text)
                code, text = second.refusal()
                assert (code, "canal.instance.stream.max" in text) == ((429, True) if most else (400, False))
        assert served.service.counters.refusals == {reason: 20}
    assert 10 <= len([record for record in caplog.records if "request.refused" in str(record.msg)]) <= 12


def test_clients_that_do_not_read_pin_no_more_than_the_budget() -> None:
    """The oldest of them is cut off when the replies exceed the budget, and a client that reads is served."""
    big = entries_segment(transaction(0, value="x" * 6_000_000))
    with Served(limits=PortLimits(reply_bytes=15_000_000)) as served:
        clients = [RawClient(served, client_id=number) for number in (1, 2, 3)]
        for each in clients:
            each.subscribe()
            assert each.refusal() == (0, "")
        served.push(big)
        unread = served.service._shared.unread
        for count, each in enumerate(clients, start=1):
            each.get()
            until(lambda: unread.size_bytes > 6_000_000 * min(count, 2), what="a reply that waits")  # noqa: B023
        until(lambda: served.service.counters.refusals["reply_bytes"] == 1, what="the end of the oldest")
        assert unread.size_bytes < 15_000_000
        for each in clients[1:]:
            assert each.fetched().batch_id
        until(lambda: unread.size_bytes == 0, what="an empty budget")
        with RawClient(served, client_id=1) as again:
            again.rollback()
            again.get()
            assert again.fetched().batch_id
        for each in clients:
            each.sock.close()


def test_the_holder_of_most_unread_replies_loses_its_oldest() -> None:
    """Somebody who fills the budget from one address cuts off itself, not a slow reader elsewhere."""
    cut: list[str] = []

    class Connection:
        def __init__(self, name: str) -> None:
            self.name = name

        def cut_off(self) -> None:
            cut.append(self.name)

    unread = UnreadReplies(100)
    slow = Connection("slow")
    unread.begin(slow, "slow", 30)
    for number in range(5):
        unread.begin(Connection(f"greedy {number}"), "greedy", 30)
    assert cut == ["greedy 0", "greedy 1", "greedy 2"]
    unread.end(slow)
    unread.end(slow)
    assert unread.size_bytes == 60
    unread.begin(slow, "slow", 1000)
    assert cut[3:] == ["slow"]
    alone = UnreadReplies(100)
    alone.begin(slow, "slow", 1000)
    assert cut[4:] == []
