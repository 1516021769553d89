"""AdminService: the port of canal's admin protocol, which canal-admin speaks, and its connections. Reactor thread.

A connection carries out one request after the other, and reads no further while an answer is not taken.
"""

from __future__ import annotations

import os
import typing
from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import Protocol, ServerFactory, connectionDone
from twisted.python.failure import Failure

from canal_ha import logs
from canal_ha.accounts.account import Account
from canal_ha.accounts.gate import NEEDS, Need
from canal_ha.errors import CanalError, NotAllowed, RemoteProtocolError
from canal_ha.model.clock import Clock
from canal_ha.model.excerpt import excerpt
from canal_ha.server.audit import FAILED, OK
from canal_ha.server.bounded_port import BoundedPort, ListeningReactor, slash
from canal_ha.server.complaints import Complaints
from canal_ha.server.entrance import Entrance, Visitor
from canal_ha.server.idle import IdleLimits
from canal_ha.server.limits import PortLimits, PortLoad
from canal_ha.server.outbox import Outbox
from canal_ha.server.protocol import RefusedConnection, Transport
from canal_ha.server.send_turns import SendTurns
from canal_ha.wire import admin_session
from canal_ha.wire.admin_session import AdminReply, AdminRequest, AdminSession
from canal_ha.wire.packets import generic_text
from canal_ha.wire.scramble import SEED_BYTES

LOG = logs.get(__name__)
CONNECTIONS_MOST = 100
CONNECTIONS_OF_ADDRESS_MOST = 50
NO_PASSWORD = "without accounts this port only tells what runs: set canal.admin.user and canal.admin.passwd on the node"
ACTIONS = frozenset(
    kind for kind in admin_session.KINDS if not kind.startswith("LOG") and NEEDS[kind] in (Need.ACTION, Need.EVERYTHING)
)
"""Requests that change something. The audit has a line for each."""

CarryOut = Callable[[AdminRequest, Account], typing.Awaitable[str]]
"""Carries out a request of an account that may make it, and returns the text of the answer. Raises CanalError."""


class AdminService(ServerFactory):
    """Serves canal's admin protocol on one port."""

    noisy = False

    def __init__(
        self,
        carry_out: CarryOut,
        reactor: ListeningReactor,
        entrance: Entrance,
        *,
        host: str,
        port: int,
        login_s: float = 10.0,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """Make a service that waits for `start`.

        carry_out: see CarryOut.
        reactor: Twisted's.
        entrance: knows the accounts.
        host: the address to listen on; "" is every address.
        port: the port to listen on; 0 takes a free one.
        login_s: longest time from a connection's begin to its login; may be changed.
        random: makes this many unpredictable bytes.
        """
        self.carry_out = carry_out
        self.entrance = entrance
        self.clock: Clock = reactor
        self.login_s = login_s
        self.sends = SendTurns(reactor)
        self.load = PortLoad(
            PortLimits(connections=CONNECTIONS_MOST, connections_of_address=CONNECTIONS_OF_ADDRESS_MOST)
        )
        self.complaints = Complaints(reactor)
        self.open: set[AdminConnection] = set()
        self._bound = BoundedPort(
            reactor,
            entrance,
            self.complaints,
            host=host,
            port=port,
            handshake=admin_session.handshake,
            error=lambda code, text: admin_session.refused(code, text).frame,
            random=random,
        )
        self._host = host
        self._random = random

    @property
    def port(self) -> int:
        """The port in use; before `start` the configured one."""
        return self._bound.number

    def start(self) -> None:
        """Listen. Raises ConfigError when the port is taken."""
        self._bound.listen(
            self,
            "canal.admin.port",
            "a free port: give each node of a machine its own, or 0, which leaves canal's admin port closed",
        )
        LOG.info("admin_protocol.listening", host=self._host or "*", port=self.port)

    async def stop(self) -> None:
        """Stop accepting and close every connection. An action that is under way goes on."""
        await self._bound.close()
        for connection in tuple(self.open):
            connection.abort()
        self.complaints.stop()

    def buildProtocol(self, addr: IAddress | None) -> AdminConnection | RefusedConnection | None:
        """Return a connection for a new peer; None closes it at once."""
        peer = slash(addr)
        address = peer.rpartition(":")[0]
        reason, _ = self.load.refusal(address)
        if reason:
            return self._refuse(address, reason)
        visitor = Visitor(self.entrance, address)
        session = AdminSession(self._random(SEED_BYTES), visitor)
        return AdminConnection(self, session, visitor, address, self._bound.channel(peer))

    def _refuse(self, peer: str, reason: str) -> RefusedConnection | None:
        """See BoundedPort.refuse."""
        who, most = "the admin port has", CONNECTIONS_MOST
        if reason == "connections_of_address":
            who, most = "this address has", CONNECTIONS_OF_ADDRESS_MOST
        text = f"{who} {most} connections to the admin port already; close some of them"
        return self._bound.refuse(peer, reason, text)


class AdminConnection(Protocol):
    """One peer's connection."""

    def __init__(self, service: AdminService, session: AdminSession, visitor: Visitor, peer: str, channel: str) -> None:
        """Make a connection that Twisted will open.

        service: what all connections have in common.
        session: the wire protocol's half of the conversation.
        visitor: who the peer is.
        peer: `/ip`.
        channel: name of the connection in error texts.
        """
        self._service = service
        self._session = session
        self._visitor = visitor
        self._peer = peer
        self._channel = channel
        self._busy = self._over = False

    def connectionMade(self) -> None:
        """Greet the peer."""
        self._transport = typing.cast(Transport, self.transport)
        self._transport.setTcpNoDelay(True)
        self._transport.setTcpKeepAlive(True)
        service = self._service
        service.open.add(self)
        service.load.opened(self._peer)
        self._idle = IdleLimits(service.clock, self._drop, self._session.idle_ms)
        self._outbox = Outbox(self._transport, self._idle.wrote, service.sends)
        self._login = service.clock.callLater(service.login_s, self._late)
        self._outbox.send((self._session.handshake(),))  # a few bytes, which an empty socket takes

    def dataReceived(self, data: bytes) -> None:
        """Take bytes, and carry out what is complete."""
        if self._over:
            return
        self._idle.heard()
        try:
            self._session.receive(data)
        except RemoteProtocolError as error:
            self._drop(str(error))
            return
        if not self._busy:
            self._busy = True
            Deferred.fromCoroutine(self._answer()).addErrback(self._broke)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Forget the connection."""
        self._over = True
        self._idle.stop()
        self._logged_in()
        self._service.open.discard(self)
        self._service.load.closed(self._peer)
        self._visitor.leave()

    def abort(self) -> None:
        """Close the connection at once."""
        self._over = True
        self._transport.abortConnection()

    def _drop(self, reason: str) -> None:
        """Close the connection at once. reason: for the log."""
        if self._service.complaints.may(self._peer):
            LOG.warning("connection.dropped", channel=self._channel, reason=reason)
        self.abort()

    def _late(self) -> None:
        """The peer has not logged in in time."""
        reason = f"no login within {self._service.login_s:g} s (canal.client.login.timeout)"
        self._service.entrance.refusals["login_late"] += 1
        self._service.entrance.audit.refused("connection", self._visitor.actor, reason)
        self._drop(reason)

    def _logged_in(self) -> None:
        if self._login.active():
            self._login.cancel()

    async def _answer(self) -> None:
        """Answer all complete requests, each in a turn of its own, so that other connections get theirs."""
        try:
            while not self._over:
                was_outside = not self._session.authenticated
                step = self._session.next()
                if step is None:
                    return
                reply = await self._carried_out(step) if isinstance(step, AdminRequest) else step
                if reply.error and self._service.complaints.may(self._peer):
                    LOG.warning("request.refused", channel=self._channel, error=reply.error)
                if sent := self._outbox.send((reply.frame,)):
                    await sent
                if reply.last:
                    self._over = True
                    self._transport.loseConnection()
                elif self._session.authenticated and was_outside:
                    self._logged_in()
                    if not self._over:
                        self._idle.limit(self._session.idle_ms)
                turn = Deferred[None]()
                self._service.clock.callLater(0, lambda turn=turn: turn.callback(None))
                await turn
        except RemoteProtocolError as error:
            self._drop(str(error))
        finally:
            self._busy = False

    async def _carried_out(self, request: AdminRequest) -> AdminReply:
        """Ask the gate, carry out a request and write down what happened."""
        audit, who = self._service.entrance.audit, self._visitor.actor
        try:
            account = self._visitor.allowed(request.kind, request.destination)
            text = await self._service.carry_out(request, account)
        except NotAllowed as error:
            text = NO_PASSWORD if self._service.entrance.accounts().is_open else str(error)
            audit.refused(request.kind, who, text, destination=request.destination)
            return admin_session.refused(error.code, text)
        except Exception as error:
            if not isinstance(error, CanalError):
                LOG.exception("admin_protocol.broken", action=request.kind, destination=excerpt(request.destination))
            if request.kind in ACTIONS:
                audit.ordered(request.kind, who, FAILED, destination=request.destination, details={"error": error})
            return admin_session.refused(admin_session.GENERIC, generic_text(self._channel, error))
        if request.kind in ACTIONS:
            result = OK if text == "1" else FAILED
            audit.ordered(request.kind, who, result, destination=request.destination, details={"answer": text})
        return admin_session.succeeded(text)

    def _broke(self, failure: Failure) -> None:
        LOG.error("connection.broken", channel=self._channel, trace=failure.getTraceback())
        self.abort()
