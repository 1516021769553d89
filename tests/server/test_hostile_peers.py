"""Names, numbers and addresses that a stranger invents are not kept, and not repeated at length in replies or logs."""

from __future__ import annotations

import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest
from twisted.internet.task import Clock

from canal_ha.accounts.account import Accounts
from canal_ha.config.kinds import DESTINATION_BYTES
from canal_ha.model.excerpt import EXCERPT_CHARACTERS, excerpt
from canal_ha.node.run import share_interpreter
from canal_ha.server.audit import Audit
from canal_ha.server.complaints import COMPLAINTS, NAMED, PEERS, Complaints
from canal_ha.server.consumers import Consumers
from canal_ha.server.counters import PEERS as COUNTED_PEERS
from canal_ha.server.counters import UNKNOWN, RequestCounters
from canal_ha.server.entrance import Entrance
from canal_ha.server.metrics import CanalCollector, exposition
from canal_ha.wire.packets import client_frame
from canal_ha.wire.proto import canal_protocol_pb2 as pb
from canal_ha.wire.server_session import Reply
from tests.server.harness import Served, reactor
from tests.server.raw_client import RawClient
from tests.server.test_service import resident_kib
from tests.waiting import until


def page(served: Served) -> bytes:
    """Return the metrics page."""
    return exposition(CanalCollector(served.embedded.status, served.service.counters, "compiled").collect())


def written(caplog: pytest.LogCaptureFixture) -> int:
    """Return the number of characters in the log so far."""
    return sum(len(str(record.msg)) for record in caplog.records)


def test_long_names_leave_no_memory_and_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """40 GETs with destination names of 4 MiB get short refusals, and the names are not kept."""
    with Served() as served, caplog.at_level(logging.INFO):
        with RawClient(served) as client:
            client.names["destination"] = "w" * 4 * 1024 * 1024
            client.get()  # makes the allocations that happen once
            client.refusal()
            before = resident_kib()
            for number in range(40):
                client.names["destination"] = f"{number}" + "x" * 4 * 1024 * 1024
                client.get()
                code, text = client.refusal()
                assert code == 400
                assert f"at most {DESTINATION_BYTES}" in text
                assert len(text) < 1_000
        assert resident_kib() - before < 40_000
        assert len(page(served)) < 20_000
        assert written(caplog) < 40_000


def test_made_up_names_share_one_label() -> None:
    """3,000 names of unknown destinations add one label to the metrics page."""
    with Served() as served:
        with RawClient(served) as client:
            client.subscribe()
            client.refusal()
            for number in range(3_000):
                client.names["destination"] = f"made-up-{number}"
                client.get()
                assert client.refusal()[1].endswith(f"destination:made-up-{number} should start first\n")
        counters = served.service.counters
        assert set(counters.bytes) == {"example", UNKNOWN}
        until(lambda: counters.errors[UNKNOWN, 400] == 3_000, what="the count of the last reply")
        assert b"made-up" not in page(served)


def test_addresses_are_bounded() -> None:
    """A limited number of addresses have their own figures; later ones count as unknown."""
    counters = RequestCounters(lambda name: True)
    for number in range(3 * COUNTED_PEERS):
        counters.note(Reply((b"x",), packet_type="HEARTBEAT", error_code=400), f"/10.0.0.{number}", 1.0)
    assert len(counters.bytes) == COUNTED_PEERS + 1
    assert counters.errors[UNKNOWN, 400] == 2 * COUNTED_PEERS


LONG = "y" * 1_000_000


@pytest.mark.parametrize(
    "request_of",
    [
        lambda: (pb.GET, pb.Get(client_id=LONG)),
        lambda: (pb.GET, pb.Get(destination="example", client_id=LONG)),
        lambda: (pb.GET, pb.Get(destination="example", client_id="9" * 1_000_000)),
        lambda: (pb.CLIENTACK, pb.ClientAck(destination="example", client_id="0" * 1_000_000 + "1")),
        lambda: (pb.GET, pb.Get(destination=LONG, client_id="1001")),
        lambda: (pb.SUBSCRIPTION, pb.Sub(destination="example", client_id="1001", filter=LONG)),
        lambda: (pb.SUBSCRIPTION, pb.Sub(destination="example", client_id="1001", filter="(" * 4_000)),
        lambda: (pb.DUMP, pb.Dump(destination="example", client_id="1001", filter="[" * 1_000_000)),
    ],
)
def test_long_texts_are_cut(
    request_of: Callable[[], tuple[pb.PacketType.ValueType, object]], caplog: pytest.LogCaptureFixture
) -> None:
    """No reply and no log line repeats more than 500 characters of a request, and the connection stays open."""
    with Served() as served, RawClient(served) as client, caplog.at_level(logging.INFO):
        client.write(*request_of())
        code, text = client.refusal()
        assert code in (400, 401, 402)
        assert len(text) < 1_200
        assert written(caplog) < 3_000
        client.get()
        assert "should subscribe first" in client.refusal()[1]


def test_long_texts_before_login_are_cut(caplog: pytest.LogCaptureFixture) -> None:
    """The texts are a user name, and a destination in CLIENTAUTHENTICATION."""
    with caplog.at_level(logging.INFO):
        with Served(user="canal", passwd="00" * 20) as served, RawClient(served, authenticate=False) as client:
            client.write(pb.CLIENTAUTHENTICATION, pb.ClientAuth(username="u" * 60_000))
            assert len(client.refusal()[1]) < 600
        with Served() as served, RawClient(served, authenticate=False) as client:
            client.write(pb.CLIENTAUTHENTICATION, pb.ClientAuth(destination="d" * 60_000, client_id="1"))
            assert client.closed()
    assert written(caplog) < 3_000


def test_a_flood_of_refusals_writes_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    """The log has the first lines, and then one a second with the number of omitted lines. Each omitted line counts."""
    with Served() as served, caplog.at_level(logging.INFO):
        began = time.monotonic()
        for _ in range(5):
            with RawClient(served) as client:
                for _ in range(200):
                    client.get()
                    client.refusal()
        took_s = time.monotonic() - began
    refused = [record for record in caplog.records if "request.refused" in str(record.msg)]
    assert COMPLAINTS.at_once <= len(refused) <= COMPLAINTS.at_once + took_s + 1
    left_out = [record.msg for record in caplog.records if "peer.lines_left_out" in str(record.msg)]
    assert sum(each["count"] for each in left_out if isinstance(each, dict)) == 1_000 - len(refused)


def test_complaints_of_one_address_hide_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """Each address has its own lines and gets new ones with time; omitted lines are counted."""
    clock = Clock()
    complaints = Complaints(clock)
    assert sum(complaints.may("/1") for _ in range(100)) == COMPLAINTS.at_once
    assert complaints.may("/2")
    clock.advance(1)
    assert [record.msg["count"] for record in caplog.records if isinstance(record.msg, dict)] == [90]
    assert [complaints.may("/1") for _ in range(2)] == [True, False]
    clock.advance(100)
    assert sum(complaints.may("/1") for _ in range(100)) == COMPLAINTS.at_once
    complaints.stop()
    assert not clock.getDelayedCalls()
    assert left_out(caplog) == 90 + 1 + 90


def left_out(caplog: pytest.LogCaptureFixture) -> int:
    """Return the number of lines that the log reports as omitted."""
    return sum(record.msg["count"] for record in caplog.records if isinstance(record.msg, dict))


def test_many_addresses_together_write_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    """600 addresses that complain without end share limits for a burst and for a second. Reports are limited too."""
    clock = Clock()
    complaints = Complaints(clock)
    lines = 0
    for _ in range(10):
        lines += sum(complaints.may(f"/10.0.{number // 200}.{number % 200}") for number in [*range(600)] * 5)
        clock.advance(1)
    assert COMPLAINTS.all_at_once < lines <= COMPLAINTS.all_at_once + 10 * COMPLAINTS.all_per_s
    assert len(caplog.records) <= 10 * (NAMED + 1)
    assert left_out(caplog) == 10 * 600 * 5 - lines


def test_a_crowd_of_addresses_gives_none_of_them_fresh_lines() -> None:
    """An address is forgotten only after it has all its lines again. Until then newcomers share an allowance."""
    clock = Clock()
    complaints = Complaints(clock)
    assert sum(complaints.may("/first") for _ in range(100)) == COMPLAINTS.at_once
    for number in range(PEERS - 1):
        clock.advance(0.02)
        assert complaints.may(f"/other/{number}")
    assert sum(complaints.may("/first") for _ in range(100)) <= PEERS * 0.02
    clock.advance(1.5)
    for number in range(PEERS - 1):
        complaints.may(f"/other/{number}")
    clock.advance(2)
    assert sum(complaints.may(f"/newcomer/{number}") for number in range(PEERS)) == COMPLAINTS.at_once
    clock.advance(COMPLAINTS.at_once)
    assert sum(complaints.may("/late") for _ in range(100)) == COMPLAINTS.at_once


def test_a_network_of_ipv6_has_the_lines_of_one_address() -> None:
    """A peer with one address of a /64 has all of them. IPv4 addresses in IPv6 form count separately."""
    complaints = Complaints(Clock())
    assert sum(complaints.may(f"/2001:db8:0:1::{number:x}") for number in range(100)) == COMPLAINTS.at_once
    assert complaints.may("/2001:db8:0:2:0:0:0:1")
    assert sum(complaints.may(f"/::ffff:10.0.0.{number}") for number in range(20)) == 20


def test_excerpts() -> None:
    """A short text is unchanged; a long one ends with an ellipsis."""
    assert excerpt("x" * EXCERPT_CHARACTERS) == "x" * EXCERPT_CHARACTERS
    assert excerpt("x" * (EXCERPT_CHARACTERS + 1)) == "x" * (EXCERPT_CHARACTERS - 1) + "…"


_AHEAD = {
    "refused ACKs": client_frame(pb.CLIENTACK, pb.ClientAck(destination="example", client_id="1001", batch_id=7)),
    "ROLLBACKs": client_frame(pb.CLIENTROLLBACK, pb.ClientRollback(destination="example", client_id="1001")),
    "GETs": client_frame(pb.GET, pb.Get(destination="example", client_id="1001", fetch_size=1, timeout=-1)),
}


def test_refused_gets_leave_no_client_behind() -> None:
    """A GET can name any destination and client id. What does not exist is forgotten while the connection is open."""
    written: list[bytes] = []
    with (
        Served(entrance=Entrance(Accounts, reactor, Audit(reactor, written.append))) as served,
        RawClient(served) as client,
    ):
        for number in range(300):
            for names in ({"client_id": str(number)}, {"destination": f"no{number}"}):
                body = pb.Get(fetch_size=1, timeout=0, unit=2, **{**client.names, **names})
                client.sock.sendall(client_frame(pb.GET, body))
                assert client.refusal()[0]
        assert vars(served.service._shared.consumers) == vars(Consumers())
    assert b'"action": "get"' not in b"".join(written)


def test_a_burst_on_many_connections_leaves_the_reactor_to_others() -> None:
    """Hundreds of connections send dozens of requests at the same moment: each round carries out some of them."""
    request = client_frame(pb.GET, pb.Get(fetch_size=1, timeout=0, unit=2, destination="nowhere", client_id="1"))
    spent: list[float] = []  # processor time of the reactor's thread in each of its rounds
    over = threading.Event()

    def round_of(before: float) -> None:
        spent.append(time.thread_time() - before)
        if not over.is_set():
            reactor.callLater(0, round_of, time.thread_time())

    with Served() as served, ExitStack() as stack:
        clients = [stack.enter_context(RawClient(served)) for _ in range(200)]
        reactor.callFromThread(lambda: round_of(time.thread_time()))
        all_sent = threading.Event()
        reactor.callFromThread(all_sent.wait)  # so that one round of the reactor finds all of them
        for client in clients:
            client.sock.sendall(request * 60)
        all_sent.set()
        for client in clients:
            for _ in range(60):
                assert client.refusal()[0]
        over.set()
    assert max(spent) < 0.05  # 0.2 and more if each connection goes on at once


@pytest.fixture
def shared_interpreter() -> Iterator[None]:
    """Switch between threads as a node does."""
    before = sys.getswitchinterval()
    share_interpreter()
    yield
    sys.setswitchinterval(before)


@pytest.mark.timed
@pytest.mark.parametrize("goes", [True, False])
@pytest.mark.parametrize("name", _AHEAD)
@pytest.mark.usefixtures("shared_interpreter")
def test_requests_sent_ahead_do_not_stop_the_node(name: str, goes: bool) -> None:
    """300,000 requests wait behind a GET. Their client goes, or reads each answer.

    The other client is a thread of the same process, as a stream is: it needs the interpreter too.
    """
    with Served() as served, RawClient(served, client_id=1002) as other, ExitStack() as stack:
        attacker = stack.enter_context(RawClient(served))
        attacker.subscribe()
        attacker.refusal()
        attacker.get(timeout=300)  # waits for a row
        attacker.sock.sendall(_AHEAD[name] * 300_000)
        if goes:
            attacker.sock.close()
        else:
            threading.Thread(target=_drain, args=(attacker.sock,), daemon=True).start()
        slowest, ends_at = 0.0, time.monotonic() + 2.0
        while time.monotonic() < ends_at:
            began = time.monotonic()
            other.get()
            other.refusal()
            slowest = max(slowest, time.monotonic() - began)
        assert slowest < 1.5


def _drain(sock: socket.socket) -> None:
    with suppress(OSError):
        while sock.recv(1 << 20):
            pass
