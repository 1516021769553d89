"""Every request of every port, made by nobody, by a reader of another destination, by a reader and by an admin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.protocol import connectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

from canal_ha.accounts import gate
from canal_ha.accounts.account import Account, AccountRole, Accounts
from canal_ha.accounts.parse import parse
from canal_ha.admin.routes import PAGES, ROUTES
from canal_ha.instance.status import InstanceStatus
from canal_ha.server.admin_service import AdminService
from canal_ha.server.counters import RequestCounters
from canal_ha.server.entrance import Entrance
from canal_ha.server.metrics import CanalCollector, MetricsPage
from canal_ha.server.probes import Probes
from canal_ha.server.site import QuietSite
from canal_ha.wire import scramble
from canal_ha.wire.admin_session import KINDS, AdminRequest
from canal_ha.wire.proto import canal_protocol_pb2 as pb
from lab.desk import Desk
from lab.gate import ACCOUNTS as ACCOUNTS_FILE
from lab.gate import ADMIN, HTTP, NAMED, PACKETS, PASSWORD, WHO, admin_error, http_request, packet_error
from lab.ports import LOOPBACK
from tests.server.harness import Served, on_reactor, reactor
from tests.server.raw_client import RawClient

ACCOUNTS = parse(ACCOUNTS_FILE, "accounts.toml")


def test_the_gate_names_every_packet_and_every_route() -> None:
    """A packet type or a route that the gate or this walk does not name is a mistake."""
    routes = {route.kind for route in (*ROUTES, *PAGES)} | {gate.METRICS, gate.PROBE}
    assert set(pb.PacketType.keys()) == set(PACKETS)
    assert routes == set(HTTP)
    assert set(KINDS) == set(ADMIN)
    assert set(gate.NEEDS) == set(PACKETS) | routes | set(ADMIN) | {gate.DESTINATION_STATUS}


@pytest.mark.parametrize("kind", [*gate.NEEDS, "an unknown request"])
def test_nobody_may_do_anything_but_log_in(kind: str) -> None:
    """Before a login all but the login and the probes is refused; what the table does not name is refused to all."""
    free = ("CLIENTAUTHENTICATION", gate.FRONT, gate.PROBE)
    assert bool(gate.refusal(None, kind, "example", 1001)) is (kind not in free)
    everything = Account("all", roles=frozenset(AccountRole), destinations=("*",))
    never = gate.NEEDS.get(kind, gate.Need.NEVER) is gate.Need.NEVER
    assert bool(gate.refusal(everything, kind, "example", 1001)) is never


@pytest.fixture
def served() -> Any:
    with Served(user="x", passwd="0" * 40) as running:
        running.accounts = Accounts(ACCOUNTS)
        yield running


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("name", pb.PacketType.keys())
def test_every_packet(served: Served, name: str, who: str) -> None:
    """Only the reader's own packets reach the destination; every other one is an error that a client shows."""
    error = packet_error(served.port, name, who)
    refused_by = {
        "nobody": "auth failed for user:",
        "elsewhere": "account elsewhere has no right on destination:example",
        "admin": "account admin has no role read",
    }
    if who in PACKETS[name]:
        assert error == "" or "batchId:4711 is not exist" in error
    elif who == "nobody" or PACKETS[name]:
        assert refused_by[who] in error
    else:
        assert "is NOT supported!" in error


def test_a_client_id_of_somebody_else_is_refused(served: Served) -> None:
    """The reader has client id 1001 alone."""
    with RawClient(served, client_id=1002, authenticate=False) as client:
        client.write(
            pb.CLIENTAUTHENTICATION,
            pb.ClientAuth(username="reader", password=scramble.token(PASSWORD, client.seed)),
        )
        assert client.refusal() == (0, "")
        client.subscribe()
        code, text = client.refusal()
        assert code == 403
        assert "account reader has no right on client id 1002 of destination:example" in text
    assert served.service.counters.refusals["not_allowed"]


def test_a_subscription_inside_the_login_passes_the_gate(served: Served) -> None:
    """canal subscribes with the login packet too; without the right the connection ends."""
    with RawClient(served, authenticate=False) as client:
        client.write(
            pb.CLIENTAUTHENTICATION,
            pb.ClientAuth(username="elsewhere", password=scramble.token(PASSWORD, client.seed), **NAMED),
        )
        assert client.closed()


@pytest.fixture(scope="module")
def admin_port() -> Iterator[int]:
    """A port of canal's admin protocol, on which every request that passes the gate succeeds."""

    async def carry_out(request: AdminRequest, who: Account) -> str:
        return "1"

    async def start() -> AdminService:
        entrance = Entrance(lambda: Accounts(ACCOUNTS), reactor)
        service = AdminService(carry_out, reactor, entrance, host=LOOPBACK, port=0)
        service.start()
        return service

    service = on_reactor(start)
    yield service.port
    on_reactor(service.stop)


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("kind", ADMIN)
def test_every_request_of_the_admin_protocol(admin_port: int, kind: str, who: str) -> None:
    """A reader of another destination, a reader and an admin have the rights that they have over HTTP."""
    address = f"127.0.1.{1 + list(ADMIN).index(kind)}"  # nobody's tries to log in would make the others wait
    error = admin_error(admin_port, kind, who, address)
    if who in ADMIN[kind]:
        assert error == ""
    elif who == "nobody":
        assert "auth failed for user:" in error
    else:
        assert " has no right on " in error or "an account of the role admin" in error or " has no role " in error


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("kind", HTTP)
@pytest.mark.parametrize("peer", ["127.0.0.1", "10.0.0.9"])
def test_every_route(kind: str, who: str, peer: str) -> None:
    """With accounts, a peer of this machine has no more rights than any other."""
    instances = [InstanceStatus("example", "db:1"), InstanceStatus("other", "db:2")]
    desk = Desk(instances=instances)
    entrance = desk.entrance
    page: Any = desk.api
    if kind == gate.METRICS:
        page = MetricsPage(CanalCollector(lambda: instances, RequestCounters(lambda name: True)), entrance)
    answer = asked(page, entrance, http_request(kind, who), peer)
    status = int(answer.split()[1])
    if who in HTTP[kind]:
        assert status == (404 if kind in (gate.LAG, gate.TABLES) else 200)  # no instance runs in this test
    elif who == "nobody" and kind in (gate.PAGE, gate.DESTINATION_PAGE, gate.EVENTS):
        assert status == 303
        assert b"location: /login" in answer.lower()
    else:
        assert status == (401 if who == "nobody" else 403)
    if status == 401:
        assert b"www-authenticate: basic" in answer.lower()
    if kind in (gate.STATUS, gate.DESTINATIONS) and who != "nobody":
        shown = {"elsewhere": (False, True), "reader": (True, False), "admin": (True, True)}[who]
        assert tuple(f'"destination": "{name}"'.encode() in answer for name in ("example", "other")) == shown


@pytest.mark.parametrize("header", ["Basic", "Basic \xff\xfe", "Basic ////", "Bearer x", "Digest username=reader"])
def test_a_header_that_is_no_login_is_refused(header: str) -> None:
    """Any bytes in the header end in 401."""
    entrance = Entrance(lambda: Accounts(ACCOUNTS), Clock())
    page = MetricsPage(CanalCollector(list, RequestCounters(lambda name: True)), entrance)
    request = f"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: {header}\r\n\r\n"
    assert asked(page, entrance, request, "10.0.0.9").split()[1] == b"401"


def asked(page: Any, entrance: Entrance, request: str, peer: str) -> bytes:
    """Send an HTTP request through Twisted's own parser, and return the answer."""
    site: Any = QuietSite(page, entrance, Probes(tuple, lambda missing: True))
    site.startFactory()
    protocol: Any = site.buildProtocol(None)
    transport = StringTransport(peerAddress=IPv4Address("TCP", peer, 54321))
    protocol.makeConnection(transport)
    protocol.dataReceived(request.encode("latin-1"))
    protocol.connectionLost(connectionDone)
    site.stopFactory()
    return bytes(transport.value())
