"""Replies on real connections, plain and TLS: whole, in order, at the client's pace."""

from __future__ import annotations

import resource
import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.ssl import DefaultOpenSSLContextFactory
from twisted.internet.task import Clock

from canal_ha.server.outbox import Consumer, Outbox
from canal_ha.server.send_turns import LITTLE_BYTES, MUCH_BYTES, SendTurns
from tests.server.harness import LOOPBACK, on_reactor, reactor
from tests.waiting import until


class Sender(Protocol):
    """Sends its factory's replies, one after the other, when a client connects."""

    factory: Replies

    def connectionMade(self) -> None:
        self.outbox = Outbox(cast(Consumer, self.transport), self.factory.wrote, SendTurns(reactor))
        Deferred.fromCoroutine(self._send())

    async def _send(self) -> None:
        for reply in self.factory.replies:
            sent = self.outbox.send(reply)
            if sent:
                await sent
        self.factory.done.append(self.outbox.gone)
        cast(Any, self.transport).loseConnection()


class Replies(Factory):
    """The replies of a Sender, and the result.

    done: for each connection whose replies are sent or cannot be: whether the client was gone.
    taken: how often the client took bytes.
    """

    protocol = Sender  # type: ignore[assignment]  # Twisted's stub wants a protocol of any factory

    def __init__(self, replies: list[tuple[bytes | memoryview, ...]]) -> None:
        self.replies = replies
        self.done: list[bool] = []
        self.taken = 0

    def wrote(self) -> None:
        self.taken += 1


def replies(sizes: list[int]) -> list[tuple[bytes | memoryview, ...]]:
    """Return replies of a head, views of these sizes, and an empty view."""
    whole = memoryview(bytes(range(251)) * 60_000)
    return [(b"head", *(whole[size : 2 * size] for size in sizes), whole[:0]) for _ in range(3)]


class Greedy:
    """A socket that takes all that it is given, as one of this machine does while its client reads."""

    taken = 0

    def sendmsg(self, views: list[memoryview]) -> int:
        given = sum(map(len, views))
        self.taken += given
        return given


def test_a_socket_that_takes_everything_gets_a_few_megabytes_in_a_turn() -> None:
    """Other connections wait meanwhile: a row of 64 MiB in one go took more than a tenth of a second."""
    outbox, greedy = Outbox(cast(Consumer, None), lambda: None, SendTurns(Clock())), Greedy()
    outbox._pieces.extend([memoryview(bytes(1000)), memoryview(bytes(5 * MUCH_BYTES)), memoryview(bytes(1000))])
    turns = 1
    while not outbox._push(cast(socket.socket, greedy)):
        assert greedy.taken == turns * MUCH_BYTES
        turns += 1
    assert (turns, greedy.taken) == (6, 5 * MUCH_BYTES + 2000)


def test_many_connections_with_large_replies_leave_the_reactor_to_others() -> None:
    """Each large write takes six milliseconds. Behind the first ones of a round, the others write less."""
    now = 0.0
    clock = Clock()
    clock.seconds = lambda: now  # type: ignore[method-assign]  # its timers run between the rounds only
    turns = SendTurns(clock)
    for _ in range(3):
        began, written = now, []
        for _ in range(10):
            for size in (100, turns.room):  # a small reply comes between, as a second one of the same connection does
                began_s = now
                now += 0.006 * size / MUCH_BYTES
                turns.wrote(size, began_s)
            written.append(size)
            now += 0.0001  # the reactor does other things too
        assert written == [MUCH_BYTES] * 2 + [LITTLE_BYTES] * 8
        assert now - began < 0.025
        clock.advance(0)
    assert turns.room == MUCH_BYTES


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with a key and its certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    file = tmp_path_factory.mktemp("tls") / "server.pem"
    plain = serialization.NoEncryption()
    file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return file


def listening(factory: Replies, certificate: Path | None) -> int:
    """Listen on a free port until the process ends; return it."""

    async def begin() -> int:
        if certificate is None:
            port = reactor.listenTCP(0, factory, interface=LOOPBACK)
        else:
            context = DefaultOpenSSLContextFactory(str(certificate), str(certificate))
            port = reactor.listenSSL(0, factory, context, interface=LOOPBACK)
        return int(port.getHost().port)

    return on_reactor(begin)


def connected(port: int, tls: bool) -> socket.socket:
    plain = socket.create_connection((LOOPBACK, port), 60)
    if not tls:
        return plain
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(plain)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("sizes", [[1], [100_000, 7, 200_000], [7_000_000, 1, 5_000_000], [1] * 300])
def test_replies_arrive_whole(sizes: list[int], tls: bool, certificate: Path) -> None:
    """Replies of any size arrive one after the other, read in pieces that differ from those written."""
    factory = Replies(replies(sizes))
    client = connected(listening(factory, certificate if tls else None), tls)
    received = bytearray()
    while data := client.recv(65_537):
        received += data
    assert received == b"".join(piece for reply in factory.replies for piece in reply)
    until(lambda: factory.done == [False])
    assert factory.taken >= 3
    client.close()


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_client_that_goes_ends_the_reply(tls: bool, certificate: Path) -> None:
    """A sender that waits for its reply to be sent continues when that has become impossible."""
    factory = Replies(replies([7_000_000, 7_000_000]))
    client = connected(listening(factory, certificate if tls else None), tls)
    assert client.recv(4) == b"head"
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # close with a reset
    client.close()
    until(lambda: factory.done == [True])


@pytest.mark.parametrize("takes", [64 << 20, 5 << 20], ids=["all", "a part"])
def test_a_frame_of_64_mib_leaves_no_copy(takes: int) -> None:
    """It arrives whole, or as far as the client takes it, and nothing holds its memory afterwards."""
    frame = bytearray(b"0123456789abcdef" * (4 << 20))
    before = peak_kib()
    factory = Replies([(memoryview(frame),)])
    client = connected(listening(factory, None), False)
    taken = 0
    while taken < takes:
        data = client.recv(1 << 20)
        assert data == frame[taken : taken + len(data)]
        taken += len(data)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # close with a reset
    client.close()
    until(lambda: factory.done == [takes < len(frame)])
    factory.replies.clear()
    until(lambda: grows(frame))  # the reactor thread may still be in the step that ended the reply
    assert peak_kib() - before < 40 << 10


def grows(frame: bytearray) -> bool:
    """Append to a bytearray. Return whether that was possible: not while a view of it exists."""
    try:
        frame.append(0)
    except BufferError:
        return False
    return True


def peak_kib() -> int:
    """Return the process's peak memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
