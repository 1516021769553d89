"""CanalConnection: one client's TCP connection, between a Twisted transport and a conversation. Reactor thread."""

from __future__ import annotations

import socket
import typing
from collections.abc import Collection
from contextlib import suppress

from twisted.internet.protocol import Protocol, connectionDone
from twisted.protocols.tls import TLSMemoryBIOProtocol
from twisted.python.failure import Failure

from canal_ha.model.clock import Clock
from canal_ha.server.certificates import names_of, subject_of
from canal_ha.server.closing import Closing, closing
from canal_ha.server.conversation import LATE_S, Conversation, LastRead, Shared
from canal_ha.server.entrance import Visitor
from canal_ha.server.idle import IdleLimits
from canal_ha.server.outbox import Consumer, Outbox
from canal_ha.wire.server_session import ServerSession

QUICKACK: int | None = getattr(socket, "TCP_QUICKACK", None)  # Linux has it


class Transport(Consumer, Closing, typing.Protocol):
    """The part of a Twisted TCP transport that a connection uses."""

    def setTcpNoDelay(self, enabled: bool) -> None: ...

    def setTcpKeepAlive(self, enabled: bool) -> None: ...

    def getHandle(self) -> socket.socket: ...


class CanalConnection(Protocol):
    """See the module."""

    def __init__(
        self, session: ServerSession, visitor: Visitor, shared: Shared, peer: str, connections: set[CanalConnection]
    ) -> None:
        """Make a connection that Twisted will open.

        session: the wire protocol's half of the conversation.
        visitor: who the client is.
        shared: what all connections of the service have in common.
        peer: `/ip` of the client, for the counters.
        connections: the open connections of the service; this one is among them while it is open.
        """
        self._session = session
        self._visitor = visitor
        self._shared = shared
        self._peer = peer
        self._connections = connections

    def connectionMade(self) -> None:
        """Begin the conversation."""
        self._transport = typing.cast(Transport, self.transport)
        self._transport.setTcpNoDelay(True)
        self._transport.setTcpKeepAlive(True)
        below: typing.Any = self._transport
        if isinstance(below, TLSMemoryBIOProtocol):
            below = below.transport
        self._socket: socket.socket = below.getHandle()
        self._idle = IdleLimits(
            self._shared.clock, lambda reason: self._conversation.drop(reason), self._session.idle_ms
        )
        outbox = Outbox(self._transport, self._idle.wrote, self._shared.sends)
        self._conversation = Conversation(
            self._session, self._visitor, self._shared, self._peer, closing(self._transport), outbox, self._idle
        )
        self._connections.add(self)
        self._shared.load.opened(self._peer)
        self._shared.counters.connections += 1
        self._conversation.begin()

    def dataReceived(self, data: bytes) -> None:
        """Take bytes and acknowledge them at once, unless the client waits for a reply.

        The Java client sends a request's header and body in two writes, without TCP_NODELAY: the body waits for the ACK
        of the header. Linux delays that ACK by 40 ms unless told otherwise after each read (docs/protocol.md#tcp). A
        client that waits for the reply to a GET sends nothing meanwhile, and the reply acknowledges its bytes.
        """
        self._idle.heard()
        self._conversation.receive(data)
        if QUICKACK is not None and not self._conversation.answers:
            with suppress(OSError):  # it is closed by now
                self._socket.setsockopt(socket.IPPROTO_TCP, QUICKACK, 1)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The conversation finishes what the client sent before."""
        self._idle.stop()
        self._connections.discard(self)
        self._shared.load.closed(self._peer)
        self._shared.counters.connections -= 1
        self._visitor.leave()
        self._conversation.client_gone()

    @property
    def reading(self) -> LastRead | None:
        """What the client read last; None before its first GET."""
        return self._conversation.reading

    def uses(self, destination: str, client_id: int) -> bool:
        """Return whether the client has subscribed with this client id, or reads with it."""
        reading, subscribed = self._conversation.reading, self._conversation.subscribed
        identities = (subscribed, reading.identity if reading and not reading.private else None)
        return any(each and each.key == (destination, client_id) for each in identities)

    @property
    def certified(self) -> Collection[str]:
        """The names in the client's certificate, once its TLS handshake is over."""
        return names_of(self._transport)

    @property
    def subject(self) -> str:
        """The subject of the client's certificate; "" without one."""
        return subject_of(self._transport)

    @property
    def who(self) -> tuple[str, str]:
        """The account's name, "" without one, and the client's address."""
        return self._visitor.account, self._peer.removeprefix("/")

    def end(self) -> None:
        """Close the connection once the current reply is written and batches on their way are acknowledged."""
        self._conversation.end()

    def abort(self) -> None:
        """Close the connection at once."""
        self._transport.abortConnection()


class RefusedConnection(Protocol):
    """A connection beyond a limit: its login is answered with the error that canal's clients show, and it ends."""

    def __init__(self, handshake: bytes, error: bytes, clock: Clock, refused: set[RefusedConnection]) -> None:
        """Make a connection that Twisted will open.

        handshake: the first frame.
        error: the answer to the login. canal-go loses a frame that comes together with the handshake.
        clock: bounds the time of both.
        refused: the open ones; this one is among them while it is open.
        """
        self._handshake = handshake
        self._error = error
        self._clock = clock
        self._refused = refused

    def connectionMade(self) -> None:
        """Write the handshake."""
        self._refused.add(self)
        self._transport = typing.cast(Transport, self.transport)
        self._transport.write(self._handshake)
        self._timer = self._clock.callLater(LATE_S, self._transport.abortConnection)

    def dataReceived(self, data: bytes) -> None:
        """The client logs in: write the error and close our direction.

        A reset because of bytes that are not read yet could overtake the error.
        """
        if not self._error:
            return
        self._transport.write(self._error)
        self._error = b""
        closing(self._transport).loseWriteConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The client has gone."""
        self._refused.discard(self)
        if self._timer.active():
            self._timer.cancel()
