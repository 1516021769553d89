"""The port of canal's admin protocol: logins, limits, and peers that break the protocol. Real TCP."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from canal_ha.accounts.account import Account, Accounts
from canal_ha.accounts.parse import of_properties
from canal_ha.errors import ConfigError
from canal_ha.server import admin_service
from canal_ha.server.admin_service import AdminService
from canal_ha.server.audit import Audit
from canal_ha.server.entrance import Entrance
from canal_ha.wire import scramble
from canal_ha.wire.admin_session import FRAME_BYTES, AdminRequest
from canal_ha.wire.proto import admin_protocol_pb2 as pb
from lab.admin_peer import AdminPeer
from lab.ports import LOOPBACK
from tests.server.harness import on_reactor, reactor
from tests.waiting import until

PASSWORD = "geheim"
SECRET = scramble.secret_of(PASSWORD).hex()


@dataclass
class Opened:
    """A service on a free port, that answers each request with its number."""

    login_s: float = 10.0
    user: str = "admin"
    asked: list[AdminRequest] = field(default_factory=list)
    audited: list[bytes] = field(default_factory=list)
    accounts: Accounts = field(default_factory=Accounts)

    def __post_init__(self) -> None:
        entrance = Entrance(lambda: self.accounts, reactor, Audit(reactor, self.audited.append))
        if self.user:
            (account,) = of_properties(self.user, SECRET)
            entrance = entrance.beside(account)

        async def carry_out(request: AdminRequest, who: Account) -> str:
            self.asked.append(request)
            return str(len(self.asked))

        async def start() -> AdminService:
            service = AdminService(carry_out, reactor, entrance, host=LOOPBACK, port=0, login_s=self.login_s)
            service.start()
            return service

        self.service = on_reactor(start)
        self.port = self.service.port

    def close(self) -> None:
        """Stop the service."""
        on_reactor(self.service.stop)


@pytest.fixture
def opened() -> Iterator[Opened]:
    service = Opened()
    yield service
    service.close()


def test_a_console_logs_in_and_asks(opened: Opened) -> None:
    """The handshake has canal's bytes, each answer its code, and requests that come together are answered in order."""
    with AdminPeer(opened.port) as peer:
        assert peer.handshake.hex() == "10011801220a1208" + peer.seed.hex()  # body is field 4, not 5
        assert peer.log_in("admin", PASSWORD) == (0, "")
        assert peer.request("SERVER check") == (0, "1")
        packet = pb.Packet(type=pb.SERVER, body=pb.ServerAdmin(action="list").SerializeToString()).SerializeToString()
        framed = len(packet).to_bytes(4, "big") + packet
        peer.sock.sendall(framed * 3)
        answers = [pb.Ack.FromString(peer.packet().body).message for _ in range(3)]
        assert answers == ["2", "3", "4"]


def test_the_node_remembers_a_console_from_the_end_of_its_connection_on(opened: Opened) -> None:
    """Made-up names of its neighbours do not keep it out for a day from then on."""
    with AdminPeer(opened.port) as peer:
        assert peer.log_in("admin", PASSWORD) == (0, "")
        (known,) = opened.service.entrance._lockout._known.values()
        began = known.seen_at
    until(lambda: known.seen_at > began)


def test_a_wrong_password_opens_no_session(opened: Opened) -> None:
    """canal answers 300 and opens the session all the same. Here a peer stays outside; the third guess is its last."""
    with AdminPeer(opened.port) as peer:
        assert peer.log_in("admin", "wrong") == (300, "auth failed for user:admin")
        assert peer.request("SERVER stop")[0] == 300  # read as a login
        assert peer.log_in("admin", "wrong") == (300, "auth failed for user:admin")
        assert peer.closed()
    assert opened.asked == []
    with AdminPeer(opened.port) as peer:
        assert peer.log_in("admin", "")[0] == 300
        assert peer.log_in("root", PASSWORD)[0] == 300
        assert peer.log_in("admin", PASSWORD) == (0, "")


def test_without_a_password_a_peer_may_look_and_nothing_else() -> None:
    """Nobody stops a node that has no accounts over the network."""
    opened = Opened(user="")
    try:
        with AdminPeer(opened.port) as peer:
            assert peer.log_in("anybody", "") == (0, "")
            assert peer.request("SERVER check") == (0, "1")
            for kind in ("SERVER stop", "INSTANCE stop", "INSTANCE release", "LOG server", "LOG instance"):
                code, text = peer.request(kind, "example")
                assert code == 403
                assert "set canal.admin.user and canal.admin.passwd" in text
        assert [request.kind for request in opened.asked] == ["SERVER check"]
    finally:
        opened.close()


def test_a_peer_whose_account_was_removed_is_told_so() -> None:
    """The node has accounts, so there is no password to set: the peer has to log in again."""
    (boss,) = of_properties("boss", SECRET)
    (other,) = of_properties("other", SECRET)
    opened = Opened(user="", accounts=Accounts((boss, other)))
    try:
        with AdminPeer(opened.port) as peer:
            assert peer.log_in("boss", PASSWORD) == (0, "")
            assert peer.request("SERVER check") == (0, "1")
            opened.accounts = Accounts((other,))
            code, text = peer.request("SERVER stop")
            assert code == 403
            assert text == "SERVER stop needs a login"
        assert len(opened.asked) == 1
    finally:
        opened.close()


def test_two_nodes_on_one_machine_are_told_how_to_share_it(opened: Opened) -> None:
    """Both have canal's stock file. The error names the key and the ways out."""

    async def start() -> None:
        entrance = opened.service.entrance
        AdminService(opened.service.carry_out, reactor, entrance, host=LOOPBACK, port=opened.port).start()

    with pytest.raises(ConfigError, match=r"canal\.admin\.port = '\d+': expected a free port: .* its own, or 0"):
        on_reactor(start)


@pytest.mark.parametrize(
    ("packet_type", "body", "answer"),
    [
        (pb.SERVER, pb.ServerAdmin(action="explode"), (301, "ServerAdmin action: explode  is unknown")),
        (pb.INSTANCE, pb.InstanceAdmin(action="explode"), (301, "InstanceAdmin action: explode is unknown")),
        (pb.LOG, pb.LogAdmin(type="explode"), (301, "LogAdmin type: explode is unknown")),
        (
            pb.INSTANCE,
            pb.InstanceAdmin(destination="x" * 5000, action="stop"),
            (400, f"a destination has at most 128 bytes: {'x' * 499}…"),
        ),
        (pb.HANDSHAKE, pb.Handshake(), (300, "packet type: HANDSHAKE is NOT supported!")),
    ],
)
def test_an_unknown_request_is_answered_as_in_canal(
    opened: Opened, packet_type: pb.PacketType.ValueType, body: pb.ServerAdmin, answer: tuple[int, str]
) -> None:
    """Code and text are canal's, and the connection stays."""
    with AdminPeer(opened.port) as peer:
        peer.log_in("admin", PASSWORD)
        assert peer.ask(packet_type, body) == answer
        assert peer.request("SERVER check") == (0, "1")


@pytest.mark.parametrize("logged_in", [False, True])
@pytest.mark.parametrize(
    "sent",
    [
        (FRAME_BYTES + 1).to_bytes(4, "big"),
        b"\xff\xff\xff\xff",
        (8).to_bytes(4, "big") + b"\xff" * 8,
        b"\0\0\0\x04\x18\x04\x22\x05",
    ],
    ids=["too long", "negative", "no packet", "cut body"],
)
def test_a_peer_that_breaks_the_protocol_loses_its_connection(opened: Opened, sent: bytes, logged_in: bool) -> None:
    """Before and after the login."""
    with AdminPeer(opened.port) as peer:
        if logged_in:
            peer.log_in("admin", PASSWORD)
        peer.sock.sendall(sent)
        assert peer.closed()


def test_any_splits_of_the_bytes_are_the_same_requests(opened: Opened) -> None:
    """A request that comes byte by byte is carried out once."""
    with AdminPeer(opened.port) as peer:
        peer.log_in("admin", PASSWORD)
        packet = pb.Packet(type=pb.SERVER, body=pb.ServerAdmin(action="check").SerializeToString()).SerializeToString()
        for byte in len(packet).to_bytes(4, "big") + packet:
            peer.sock.sendall(bytes([byte]))
        assert pb.Ack.FromString(peer.packet().body).message == "1"


def test_a_peer_without_a_login_is_closed_in_time() -> None:
    """The time is that of canal.client.login.timeout; a login ends the wait."""
    opened = Opened(login_s=0.3)
    try:
        with AdminPeer(opened.port) as silent, AdminPeer(opened.port) as peer:
            assert peer.log_in("admin", PASSWORD) == (0, "")
            assert silent.closed()
            time.sleep(0.4)
            assert peer.request("SERVER check") == (0, "1")
    finally:
        opened.close()


def test_a_silent_peer_is_closed_after_the_time_that_it_named(opened: Opened) -> None:
    """As on the client port, net_read_timeout counts milliseconds."""
    with AdminPeer(opened.port) as peer:
        peer.log_in("admin", PASSWORD, idle_ms=200)
        assert peer.closed()


def test_one_connection_too_many_says_why_it_ends(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of an address is reached first; a connection that ends makes room."""
    most = admin_service.CONNECTIONS_OF_ADDRESS_MOST
    with ExitStack() as stack:
        peers = [stack.enter_context(AdminPeer(opened.port)) for _ in range(most)]
        with AdminPeer(opened.port) as peer:
            code, text = peer.log_in("admin", PASSWORD)
            assert code == 429
            assert f"this address has {most} connections to the admin port already" in text
        with AdminPeer(opened.port, source="127.0.0.9") as other:
            assert other.log_in("admin", PASSWORD) == (0, "")
        peers[0].sock.shutdown(socket.SHUT_RDWR)
        assert peers[0].closed()
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with AdminPeer(opened.port) as again:
                if again.log_in("admin", PASSWORD) == (0, ""):
                    return
        pytest.fail("the place of a closed connection is not free again")


def test_requests_behind_answers_that_nobody_reads_are_bounded(opened: Opened) -> None:
    """A peer that sends and never reads loses its connection; it cannot fill the node's memory."""
    with AdminPeer(opened.port) as peer:
        peer.log_in("admin", PASSWORD)
        packet = pb.Packet(type=pb.SERVER, body=pb.ServerAdmin(action="x" * 400).SerializeToString())
        framed = packet.ByteSize().to_bytes(4, "big") + packet.SerializeToString()
        with pytest.raises(ConnectionError):
            peer.sock.sendall(framed * 200_000)


def test_the_audit_tells_logins_refusals_and_actions(opened: Opened) -> None:
    """A check is no line; an action has its answer."""
    with AdminPeer(opened.port) as peer:
        peer.log_in("admin", "wrong")
        peer.log_in("admin", PASSWORD)
        peer.request("SERVER check")
        peer.request("INSTANCE stop", "example")
    text = b"".join(opened.audited).decode()
    assert [line.split('"action": "')[1].split('"')[0] for line in text.splitlines()] == [
        "login",
        "login",
        "INSTANCE stop",
    ]
    assert '"destination": "example", "client_id": null, "details": {"answer": "2"}' in text
