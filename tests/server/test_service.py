"""The port: order of replies, waiting GETs, slow and broken clients, idle limits, an orderly stop, counters."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from canal_ha.accounts.parse import of_properties
from canal_ha.errors import ConfigError
from canal_ha.model.identity import ClientIdentity
from canal_ha.server.idle import IdleLimits
from canal_ha.server.service import CanalService
from canal_ha.wire.client_session import ClientSession
from canal_ha.wire.packets import client_frame
from canal_ha.wire.proto import canal_protocol_pb2 as pb
from lab.process import memory_mib
from tests.server.harness import Served, entries_segment, on_reactor, reactor, transaction
from tests.server.raw_client import EXAMPLE, RawClient, acknowledge_after_the_end
from tests.waiting import until


def test_pipelined_requests_are_answered_in_order() -> None:
    """A GET that waits, an ACK that fails and a GET after them get replies in the order of the requests."""
    with Served() as served, RawClient(served) as client:
        client.subscribe()
        assert client.refusal() == (0, "")
        began = time.monotonic()
        client.get(timeout=300)
        client.ack(5)
        client.get()
        client.ack(-1)
        client.subscribe()
        assert client.fetched().batch_id == -1
        assert time.monotonic() - began >= 0.29
        code, text = client.refusal()
        assert code == 400
        assert text.endswith("ack error , clientId:1001 batchId:5 is not exist , please check\n")
        assert client.fetched().batch_id == -1
        assert client.refusal() == (0, "")


def test_a_waiting_get_blocks_its_own_connection_only() -> None:
    """One client waits without limit; meanwhile another client of the same destination is served."""
    with Served() as served, RawClient(served) as waiting, RawClient(served, client_id=2) as other:
        for client in (waiting, other):
            client.subscribe()
            assert client.refusal() == (0, "")
        waiting.get(timeout=0, size=1)
        for _ in range(20):
            other.get()
            assert other.fetched().batch_id == -1
        for number in range(10):  # 1 KiB of entries: what a GET of size 1 waits for
            served.push(entries_segment(transaction(number)))
        assert len(waiting.fetched().entries()) >= 4


def test_the_end_of_a_connection_ends_its_waiting_get() -> None:
    """The GET takes no batch: the next client gets batch 2. The ACK before the end still counts."""
    with Served() as served:
        with RawClient(served) as client:
            client.subscribe()
            assert client.refusal() == (0, "")
            served.push(entries_segment(transaction(1)))
            client.get()
            assert client.fetched().batch_id == 1
            client.get(timeout=0)
            client.ack(1)
        until(lambda: str(served.meta.cursor(1001)) == "mysql-bin.000001:2900", what="the ACK")
        served.push(entries_segment(transaction(2)))
        with RawClient(served) as client:
            client.get()
            assert client.fetched().batch_id == 2


def test_rows_given_to_a_lost_connection_go_to_the_next_one() -> None:
    """The client connects again, and its old connection still gets a batch. Its end makes the rows come again."""
    with Served() as served, RawClient(served) as after:
        with RawClient(served) as before:
            before.subscribe()
            assert before.refusal() == (0, "")
            after.subscribe()
            assert after.refusal() == (0, "")
            after.rollback()
            after.get()
            assert after.fetched().batch_id == -1
            for number in range(10):  # 1 KiB of entries: what a GET of size 1 waits for
                served.push(entries_segment(transaction(number)))
            before.get()
            lost = before.fetched()
            assert lost.batch_id == 1
            after.get(timeout=0, size=1)  # waits until there is something
        again = after.fetched()
        assert again.batch_id == 2
        assert again.entries()[:4] == lost.entries()[:4]


def test_the_end_of_the_newest_connection_leaves_batches_in_flight() -> None:
    """A client may acknowledge on its next connection what it got on the last one, as with canal."""
    with Served() as served:
        with RawClient(served) as before:
            before.subscribe()
            assert before.refusal() == (0, "")
            served.push(entries_segment(transaction(1)))
            before.get()
            assert before.fetched().batch_id == 1
        with RawClient(served) as after:
            after.subscribe()
            assert after.refusal() == (0, "")
            after.ack(1)
            after.get()
            assert after.fetched().batch_id == -1


def resident_kib() -> int:
    """Return the resident memory of this process, KiB."""
    return round(memory_mib("self") * 1024)


def test_a_slow_client_costs_little_memory() -> None:
    """If clients do not read their batches of 16 MiB, the server copies only a slice of each at a time."""
    with Served(config={"buffer_mem_unit": 8192}) as served:
        filler = "x" * 1_000_000
        clients = [RawClient(served, client_id=number) for number in range(1, 9)]
        for client in clients:
            client.subscribe()
            assert client.refusal() == (0, "")
        for number in range(16):
            served.push(entries_segment(transaction(number, value=filler)))
        before = resident_kib()
        for client in clients:
            client.get(size=10_000)
        time.sleep(0.5)
        assert resident_kib() - before < 30_000  # KiB; the batches are 128 MiB
        sizes = {len(client.fetched().frames) for client in clients}
        assert len(sizes) == 1
        assert sizes.pop() > 16_000_000
        for client in clients:
            client.sock.close()


def test_a_peer_that_reads_no_replies_is_cut_off() -> None:
    """A peer that sends bad authentications without end and reads no reply loses its connection."""
    with Served(user="canal", passwd="00" * 20) as served:
        client = RawClient(served, authenticate=False)
        flood = client_frame(pb.CLIENTAUTHENTICATION, pb.ClientAuth(username="x" * 1000)) * 10_000
        with pytest.raises(ConnectionError):  # BrokenPipeError or ConnectionResetError
            client.sock.sendall(flood * 5)


@pytest.mark.parametrize(
    "data",
    [
        b"\x7f\xff\xff\xffxxxx",
        b"\xff\xff\xff\xffxxxx",
        (65_537).to_bytes(4, "big"),
        b"\x00\x00\x00\x05\xff\xff\xff\xff\xff",
    ],
)
def test_impossible_frames_close_the_connection(data: bytes) -> None:
    """A negative length, a length too large for a stranger, or an invalid packet closes it without a reply."""
    with Served() as served, RawClient(served, authenticate=False) as client:
        client.sock.sendall(data)
        assert client.closed()


def test_large_frames_are_for_those_who_are_known() -> None:
    """After authentication a frame may have up to max_frame_bytes."""
    with Served(max_frame_bytes=200_000) as served, RawClient(served) as client:
        client.subscribe("a" * 150_000)
        assert "table filter of 150000 bytes" in client.refusal()[1]
        client.subscribe("a" * 250_000)
        assert client.closed()


def test_errors_are_canals() -> None:
    """The codes and texts are those of docs/protocol.md#checks that no recording shows."""
    with Served() as served, RawClient(served) as client:
        for packet_type, name, body in (
            (pb.SUBSCRIPTION, "Sub", pb.Sub(client_id="é")),
            (pb.UNSUBSCRIPTION, "Unsub", pb.Unsub(client_id="é")),
            (pb.GET, "Get", pb.Get(client_id="é")),
            (pb.CLIENTACK, "Ack", pb.ClientAck(client_id="é")),
            (pb.CLIENTROLLBACK, "Rollback", pb.ClientRollback(client_id="é")),
        ):
            client.write(packet_type, body)
            dump = 'client_id: "\\303\\251"\n'
            assert client.refusal() == (401, f"destination or clientId is null. {name}: {dump}")
        client.write(pb.DUMP, pb.Dump())
        assert client.refusal() == (400, "packet type: DUMP is NOT supported!")
        client.write(pb.GET, pb.Get(destination="example", client_id="40000"))
        assert 'java.lang.NumberFormatException: Value out of range. Value:"40000"' in client.refusal()[1]
        client.sock.sendall(bytes.fromhex("0000000718062a03ffffff"))
        assert "com.google.protobuf.InvalidProtocolBufferException: " in client.refusal()[1]
        client.subscribe("[")
        assert client.refusal()[0] == 400
        client.get()
        code, text = client.refusal()
        assert code == 400
        assert "should subscribe first" in text


def test_a_failed_subscription_during_authentication_closes() -> None:
    """Like canal, the server sends no reply."""
    with Served() as served, RawClient(served, authenticate=False) as client:
        client.write(pb.CLIENTAUTHENTICATION, pb.ClientAuth(destination="nope", client_id="1001"))
        assert client.closed()


def test_units_of_a_timeout() -> None:
    """The units are microseconds, seconds, and milliseconds for an unknown number.

    A GET without timeout and unit is not tested, because it waits without limit.
    """
    with Served() as served, RawClient(served) as client:
        client.subscribe()
        assert client.refusal() == (0, "")
        for timeout, unit, least in ((200_000, 1, 0.2), (1, 3, 1.0), (100, 77, 0.1)):
            began = time.monotonic()
            client.get(timeout=timeout, unit=unit)
            assert client.fetched().batch_id == -1
            assert least <= time.monotonic() - began < least + 2


def test_idle_connections_are_closed() -> None:
    """The limits of the authentication packet are in milliseconds, and a GET restarts them."""
    with Served() as served, RawClient(served, idle_ms=300) as client:
        client.subscribe()
        assert client.refusal() == (0, "")
        for _ in range(4):
            time.sleep(0.15)
            client.get()
            assert client.fetched().batch_id == -1
        began = time.monotonic()
        assert client.closed()
        assert 0.2 < time.monotonic() - began < 3


def test_many_silent_requests_in_a_row() -> None:
    """Hundreds of acknowledgements let other work run in between, and all are done before the next request."""
    with Served() as served, RawClient(served) as client:
        client.subscribe()
        assert client.refusal() == (0, "")
        one = ClientSession().ack(EXAMPLE, -1)
        client.sock.sendall(one * 250 + ClientSession().get(EXAMPLE, 1, -1))
        assert client.fetched().batch_id == -1
        assert served.service.counters.packets["example", "CLIENTACK"] == 250


def test_either_direction_may_be_idle_for_too_long() -> None:
    """The earlier limit counts, from the last read or write. New limits start again."""
    clock, expired = Clock(), list[str]()
    limits = IdleLimits(clock, expired.append, (1000, 5000))
    for _ in range(6):
        clock.advance(0.9)
        limits.heard()
    assert expired == ["nothing written for 5000 ms"]
    limits.limit((2000, 2000))
    clock.advance(1.5)
    limits.wrote()
    assert len(expired) == 1
    clock.advance(0.6)
    assert expired[1:] == ["nothing read for 2000 ms"]
    limits.limit((1000, 1000))
    limits.stop()
    clock.advance(10)
    assert len(expired) == 2


def test_stopping_closes_every_connection_and_the_port() -> None:
    """Waiting GETs do not delay the stop, a reply in progress is completed, and no client can connect afterwards."""
    with Served(config={"buffer_mem_unit": 8192}) as served:
        waiting, reading = RawClient(served), RawClient(served, client_id=2)
        for client in (waiting, reading):
            client.subscribe()
            assert client.refusal() == (0, "")
        waiting.get(timeout=0, size=100_000)
        for number in range(8):
            served.push(entries_segment(transaction(number, value="x" * 1_000_000)))
        reading.get(size=10_000)
        time.sleep(0.1)
        port = served.port
        done: list[float] = []
        began = time.monotonic()

        def stopped(_: object) -> None:
            done.append(time.monotonic() - began)

        reactor.callFromThread(lambda: Deferred.fromCoroutine(served.service.stop()).addCallback(stopped))
        assert waiting.closed()
        assert len(reading.fetched().frames) > 8_000_000
        assert reading.closed()
        until(lambda: bool(done), what="the stop")
        assert done[0] < 2
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 1)


def test_an_ack_under_way_counts_when_the_node_stops() -> None:
    """The ACK arrives after the node has closed its half of the connection, and still moves the cursor."""
    with Served() as served, RawClient(served) as client:
        acknowledge_after_the_end(served, client)


def test_counters() -> None:
    """Packets, bytes, empty batches, errors and latencies count by destination; a request without one by address."""
    with Served() as served, RawClient(served) as client:
        client.subscribe()
        client.get()
        served_bytes = len(client.packet().SerializeToString()) + 4 + len(client.packet().SerializeToString()) + 4
        served.push(entries_segment(transaction(1)))
        client.get()
        served_bytes += len(client.packet().SerializeToString()) + 4
        client.ack(1)
        client.ack(99)
        client.write(pb.HEARTBEAT, pb.HeartBeat())
        served_bytes += 4 + len(client.packet().SerializeToString()) + 4
        assert client.refusal()[0] == 400
        client.get()
        served_bytes += len(client.packet().SerializeToString()) + 4
        counters = served.service.counters
        until(lambda: counters.empty_batches["example"] == 2, what="the last GET")
        assert counters.packets["example", "SUBSCRIPTION"] == 1
        assert counters.packets["example", "GET"] == 1
        assert counters.packets["example", "CLIENTACK"] == 2
        assert counters.errors == {("example", 400): 1, ("/127.0.0.1", 400): 1}
        assert counters.bytes["example"] == served_bytes
        assert counters.latency["example"].count == 6
        assert sum(counters.latency["example"].buckets) == 6
        assert counters.connections == 1
    assert counters.connections == 0


def test_a_header_sent_apart_from_its_body_costs_nothing() -> None:
    """The Java client writes like this, without TCP_NODELAY. Delayed acknowledgements would cost 40 ms a request."""
    with Served() as served, RawClient(served) as client:
        client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
        client.subscribe()
        assert client.refusal() == (0, "")
        requests = [ClientSession().ack(EXAMPLE, -1), ClientSession().get(EXAMPLE, 1000, 1)]
        took = []
        for _ in range(20):
            began = time.monotonic()
            for request in requests:
                client.sock.sendall(request[:4])
                client.sock.sendall(request[4:])
            client.fetched()
            took.append(time.monotonic() - began)
        assert sorted(took)[7] < 0.03


def test_a_user_needs_a_password_and_a_password_is_hex() -> None:
    """The error names the key to change."""
    for user, passwd in (("canal", ""), ("canal", "canal")):
        with pytest.raises(ConfigError, match=r"canal\.passwd"):
            of_properties(user, passwd)


def test_a_taken_port_is_said_so() -> None:
    """The error is a ConfigError that names the key, not a traceback of Twisted."""
    with Served() as served:

        async def start() -> None:
            CanalService(served.embedded, reactor, host="127.0.0.1", port=served.port).start()

        with pytest.raises(ConfigError, match=r"canal\.port"):
            on_reactor(start)


def test_a_destination_that_breaks_keeps_the_connection() -> None:
    """An unforeseen error becomes an error packet, and the connection stays open."""
    with Served() as served, RawClient(served) as client:

        async def broken(identity: ClientIdentity, **options: Any) -> None:
            raise ZeroDivisionError("oh")

        served.embedded.subscribe = broken  # type: ignore[method-assign]
        client.subscribe()
        code, text = client.refusal()
        assert code == 400
        assert "java.lang.RuntimeException: oh" in text
        client.get()
        assert "should subscribe first" in client.refusal()[1]
