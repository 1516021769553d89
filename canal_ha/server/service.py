"""CanalService: the listening port and its connections. Reactor thread."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import astuple

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import ServerFactory

from canal_ha import logs
from canal_ha.accounts.account import Accounts
from canal_ha.instance.round_queue import RoundQueue
from canal_ha.instance.status import ReaderStatus
from canal_ha.server.ahead import RequestsAhead
from canal_ha.server.bounded_port import BoundedPort, ListeningReactor, slash
from canal_ha.server.certificates import Certificates
from canal_ha.server.complaints import Complaints
from canal_ha.server.consumers import Consumers
from canal_ha.server.conversation import LAST_WORDS_S, Shared
from canal_ha.server.counters import RequestCounters
from canal_ha.server.destinations import Destinations
from canal_ha.server.entrance import Entrance, Visitor
from canal_ha.server.limits import PortLimits, PortLoad
from canal_ha.server.protocol import CanalConnection, RefusedConnection
from canal_ha.server.send_turns import SendTurns
from canal_ha.server.unread import UnreadReplies
from canal_ha.wire import packets
from canal_ha.wire.scramble import SEED_BYTES
from canal_ha.wire.server_session import ServerSession

LOG = logs.get(__name__)
POLL_S = 0.02


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
            Consumers(),
            RoundQueue(reactor),
            SendTurns(reactor),
        )
        self._bound = BoundedPort(
            reactor,
            self._entrance,
            self._complaints,
            host=host,
            port=port,
            handshake=packets.handshake,
            error=packets.refused,
            random=random,
        )
        self._reactor = reactor
        self._certificates = certificates
        self._host = host
        self._max_frame_bytes = max_frame_bytes
        self._random = random

    @property
    def port(self) -> int:
        """The port in use; before `start` the configured one."""
        return self._bound.number

    def start(self) -> None:
        """Listen. Raises ConfigError when the port is taken."""
        factory = self._certificates.around(self) if self._certificates else self
        self._bound.listen(factory, "canal.port", "a free port")
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
        await self._bound.close()
        for connection in tuple(self._open):
            connection.end()
        await self._all_closed(LAST_WORDS_S)

    async def stop(self, grace_s: float = 5.0) -> None:
        """Close every connection, after `end`.

        grace_s: how long replies may take to leave, seconds.
        """
        if self._bound.open:
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
        peer = slash(addr)
        address = peer.rpartition(":")[0]
        reason, text = self._shared.load.refusal(address)
        if reason:
            return self._bound.refuse(address, reason, text)
        visitor = Visitor(self._entrance, address, lambda: connection.certified, lambda: connection.subject)
        session = ServerSession(
            seed=self._random(SEED_BYTES),
            guard=visitor,
            channel=self._bound.channel(peer),
            max_frame_bytes=self._max_frame_bytes,
        )
        connection = CanalConnection(session, visitor, self._shared, address, self._open)
        return connection
