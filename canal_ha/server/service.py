"""CanalService: the listening port and its connections. Reactor thread."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import astuple
from typing import Protocol

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import ServerFactory

from canal_ha import logs
from canal_ha.accounts.account import Accounts
from canal_ha.errors import Busy, ConfigError
from canal_ha.instance.status import ReaderStatus
from canal_ha.model.clock import Clock
from canal_ha.server.ahead import RequestsAhead
from canal_ha.server.audit import Actor
from canal_ha.server.certificates import Certificates
from canal_ha.server.complaints import Complaints
from canal_ha.server.conversation import LAST_WORDS_S, Shared
from canal_ha.server.counters import RequestCounters
from canal_ha.server.destinations import Destinations
from canal_ha.server.entrance import Entrance, Visitor
from canal_ha.server.limits import PortLimits, PortLoad
from canal_ha.server.protocol import CanalConnection, RefusedConnection
from canal_ha.server.unread import UnreadReplies
from canal_ha.wire import packets
from canal_ha.wire.scramble import SEED_BYTES
from canal_ha.wire.server_session import ServerSession

LOG = logs.get(__name__)
BACKLOG = 128
POLL_S = 0.02
REFUSED_MOST = 100  # connections that are told at a time why they end


class Listening(Protocol):
    """An open port."""

    def getHost(self) -> IPv4Address | IPv6Address: ...

    def stopListening(self) -> Deferred[None] | None: ...


class ListeningReactor(Clock, Protocol):
    """The part of Twisted's reactor that the service uses."""

    def listenTCP(self, port: int, factory: ServerFactory, backlog: int, interface: str, /) -> Listening: ...


class CanalService(ServerFactory):
    """Serves destinations on one port."""

    noisy = False

    def __init__(
        self,
        destinations: Destinations,
        reactor: ListeningReactor,
        *,
        host: str = "",
        port: int = 11111,
        entrance: Entrance | None = None,
        limits: PortLimits | None = None,
        certificates: Certificates | None = None,
        max_frame_bytes: int = 16 * 1024 * 1024,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """Make a service that waits for `start`.

        destinations: carries out the requests.
        reactor: Twisted's.
        host: the address to listen on; "" is every address.
        port: the port to listen on; 0 takes a free one.
        entrance: knows the accounts; None: there are none.
        certificates: for TLS; None: plain connections.
        limits: of connections and logins; None: the defaults.
        max_frame_bytes: of a request.
        random: makes this many unpredictable bytes.
        """
        self._entrance = entrance or Entrance(Accounts, reactor)
        self.counters = RequestCounters(destinations.knows, refusals=self._entrance.refusals)
        self._open: set[CanalConnection] = set()
        self._complaints = Complaints(reactor)
        load = PortLoad(limits or PortLimits())
        self._shared = Shared(
            destinations,
            self.counters,
            reactor,
            self._complaints,
            load,
            RequestsAhead(load.limits.ahead_bytes),
            UnreadReplies(load.limits.reply_bytes),
            self._entrance.audit,
        )
        self._refused: set[RefusedConnection] = set()
        self._reactor = reactor
        self._certificates = certificates
        self._host = host
        self._port = port
        self._max_frame_bytes = max_frame_bytes
        self._random = random
        self._listening: Listening | None = None

    @property
    def port(self) -> int:
        """The port in use; before `start` the configured one."""
        return self._listening.getHost().port if self._listening else self._port

    def start(self) -> None:
        """Listen. Raises ConfigError when the port is taken."""
        factory = self._certificates.around(self) if self._certificates else self
        try:
            self._listening = self._reactor.listenTCP(self._port, factory, BACKLOG, self._host)
        except CannotListenError as error:
            raise ConfigError("canal.properties", "canal.port", str(self._port), f"a free port: {error}") from error
        LOG.info("server.listening", host=self._host or "*", port=self.port, tls=self._certificates is not None)

    def set_limits(self, limits: PortLimits) -> None:
        """Use other limits from now on. Connections that are open stay, also if they are too many."""
        self._shared.load.limits = limits
        self._shared.ahead.most_bytes = limits.ahead_bytes
        self._shared.unread.most_bytes = limits.reply_bytes

    async def end(self) -> None:
        """Stop accepting, end every conversation, and let clients acknowledge what is on its way for half a second.

        A waiting GET ends at once. A reply that leaves more slowly goes on leaving, until `stop` is over.
        """
        if self._listening is not None:
            listening, self._listening = self._listening, None
            stopped = listening.stopListening()
            if stopped:
                await stopped
        for connection in tuple(self._open):
            connection.end()
        await self._all_closed(LAST_WORDS_S)

    async def stop(self, grace_s: float = 5.0) -> None:
        """Close every connection, after `end`.

        grace_s: how long replies may take to leave, seconds.
        """
        if self._listening is not None:
            await self.end()
        await self._all_closed(grace_s)
        for connection in tuple(self._open):
            connection.abort()
        while self._open:
            await self._pause()
        self._complaints.stop()
        LOG.info("server.stopped")

    async def _all_closed(self, within_s: float) -> None:
        """Wait until the clients have gone, but not longer than this."""
        deadline = self._reactor.seconds() + within_s
        while self._open and self._reactor.seconds() < deadline:
            await self._pause()

    async def _pause(self) -> None:
        pause = Deferred[None]()
        self._reactor.callLater(POLL_S, lambda: pause.callback(None))
        await pause

    def readers(self, destination: str) -> tuple[ReaderStatus, ...]:
        """Return who reads a destination over which connection."""
        found = []
        for connection in self._open:
            reading, (account, address) = connection.reading, connection.who
            if reading and reading.identity.destination == destination:
                found.append(ReaderStatus(reading.identity.client_id, account, address, reading.private))
        return tuple(sorted(found, key=astuple))

    def connected(self, destination: str, client_id: int) -> str:
        """Return the address of a client that is connected with this client id; "" if none is."""
        addresses = [each.who[1] for each in self._open if each.uses(destination, client_id)]
        return min(addresses, default="")

    def buildProtocol(self, addr: IAddress | None) -> CanalConnection | RefusedConnection | None:
        """Return a connection for a new client; None closes it at once."""
        here = self._listening.getHost() if self._listening else None
        peer = slash(addr)
        address = peer.rpartition(":")[0]
        reason, text = self._shared.load.refusal(address)
        if reason:
            return self._refuse(address, reason, text)
        visitor = Visitor(self._entrance, address, lambda: connection.certified, lambda: connection.subject)
        session = ServerSession(
            seed=self._random(SEED_BYTES),
            guard=visitor,
            channel=f"[id: 0x{self._random(4).hex()}, {peer} => {slash(here)}]",
            max_frame_bytes=self._max_frame_bytes,
        )
        connection = CanalConnection(session, visitor, self._shared, address, self._open)
        return connection

    def _refuse(self, peer: str, reason: str, text: str) -> RefusedConnection | None:
        """Return a connection that says why it ends; None if too many are doing so."""
        self.counters.refusals[reason] += 1
        self._entrance.audit.refused("connect", Actor(address=peer.removeprefix("/")), text)
        if self._complaints.may(peer):
            LOG.warning("connection.refused", peer=peer, reason=text)
        if len(self._refused) >= REFUSED_MOST:
            return None
        handshake, error = packets.handshake(self._random(SEED_BYTES)), packets.refused(Busy.code, text)
        return RefusedConnection(handshake, error, self._reactor, self._refused)


def slash(address: object) -> str:
    """Return a socket address in the form in which Java prints it."""
    match address:
        case IPv4Address():
            return f"/{address.host}:{address.port}"
        case IPv6Address():
            return f"/[{address.host}]:{address.port}"
        case _:
            return "/unknown:0"
