"""CanalService: the listening port and its connections. Reactor thread."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import ServerFactory

from canal_ha import logs
from canal_ha.errors import ConfigError
from canal_ha.model.clock import Clock
from canal_ha.server.complaints import Complaints
from canal_ha.server.conversation import Shared
from canal_ha.server.counters import RequestCounters
from canal_ha.server.destinations import Destinations
from canal_ha.server.protocol import CanalConnection
from canal_ha.wire.scramble import SEED_BYTES, Credentials
from canal_ha.wire.server_session import ServerSession

LOG = logs.get(__name__)
BACKLOG = 128
POLL_S = 0.02


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
        user: str = "",
        passwd: str = "",
        max_frame_bytes: int = 16 * 1024 * 1024,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """Make a service that waits for `start`. Raises ConfigError for a user without a password.

        destinations: carries out the requests.
        reactor: Twisted's.
        host: the address to listen on; "" is every address.
        port: the port to listen on; 0 takes a free one.
        user: canal.user; "" accepts every client.
        passwd: canal.passwd, hex of SHA1(SHA1).
        max_frame_bytes: of a request.
        random: makes this many unpredictable bytes.
        """
        self.counters = RequestCounters(destinations.knows)
        self._open: set[CanalConnection] = set()
        self._complaints = Complaints(reactor)
        self._shared = Shared(destinations, self.counters, reactor, self._complaints)
        self._reactor = reactor
        self._host = host
        self._port = port
        self._credentials = credentials(user, passwd)
        self._max_frame_bytes = max_frame_bytes
        self._random = random
        self._listening: Listening | None = None

    @property
    def port(self) -> int:
        """The port in use; before `start` the configured one."""
        return self._listening.getHost().port if self._listening else self._port

    def start(self) -> None:
        """Listen. Raises ConfigError when the port is taken."""
        try:
            self._listening = self._reactor.listenTCP(self._port, self, BACKLOG, self._host)
        except CannotListenError as error:
            raise ConfigError("canal.properties", "canal.port", str(self._port), f"a free port: {error}") from error
        LOG.info("server.listening", host=self._host or "*", port=self.port)

    async def stop(self, grace_s: float = 5.0) -> None:
        """Stop accepting and close every connection.

        grace_s: how long replies may take to leave, seconds. A waiting GET ends at once.
        """
        if self._listening is not None:
            listening, self._listening = self._listening, None
            stopped = listening.stopListening()
            if stopped:
                await stopped
        for connection in tuple(self._open):
            connection.end()
        deadline = self._reactor.seconds() + grace_s
        while self._open and self._reactor.seconds() < deadline:
            await self._pause()
        for connection in tuple(self._open):
            connection.abort()
        while self._open:
            await self._pause()
        self._complaints.stop()
        LOG.info("server.stopped")

    async def _pause(self) -> None:
        pause = Deferred[None]()
        self._reactor.callLater(POLL_S, lambda: pause.callback(None))
        await pause

    def buildProtocol(self, addr: IAddress | None) -> CanalConnection:
        """Return a connection for a new client."""
        here = self._listening.getHost() if self._listening else None
        peer = _slash(addr)
        session = ServerSession(
            seed=self._random(SEED_BYTES),
            credentials=self._credentials,
            channel=f"[id: 0x{self._random(4).hex()}, {peer} => {_slash(here)}]",
            max_frame_bytes=self._max_frame_bytes,
        )
        return CanalConnection(session, self._shared, peer.rpartition(":")[0], self._open)


def credentials(user: str, passwd: str) -> Credentials:
    """Return what clients must know according to canal.user and canal.passwd. Raises ConfigError."""
    if user and not passwd:
        raise ConfigError("canal.properties", "canal.passwd", passwd, f"a password for canal.user = {user}")
    try:
        return Credentials(user, bytes.fromhex(passwd))
    except ValueError:
        pass
    raise ConfigError("canal.properties", "canal.passwd", passwd, "40 hex digits: SHA1 of SHA1 of the password")


def _slash(address: object) -> str:
    """Return a socket address in the form in which Java prints it."""
    match address:
        case IPv4Address():
            return f"/{address.host}:{address.port}"
        case IPv6Address():
            return f"/[{address.host}]:{address.port}"
        case _:
            return "/unknown:0"
