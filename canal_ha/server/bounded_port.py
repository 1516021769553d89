"""BoundedPort: a listening port that tells connections beyond its limits why they end. Reactor thread."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.internet.protocol import ServerFactory

from canal_ha import logs
from canal_ha.errors import Busy, ConfigError
from canal_ha.model.clock import Clock
from canal_ha.server.audit import Actor
from canal_ha.server.complaints import Complaints
from canal_ha.server.entrance import Entrance
from canal_ha.server.protocol import RefusedConnection
from canal_ha.wire.scramble import SEED_BYTES

LOG = logs.get(__name__)
BACKLOG = 128
REFUSED_MOST = 100  # connections that are told at a time why they end


class Listening(Protocol):
    """An open port."""

    def getHost(self) -> IPv4Address | IPv6Address: ...

    def stopListening(self) -> Deferred[None] | None: ...


class ListeningReactor(Clock, Protocol):
    """The part of Twisted's reactor that a port uses."""

    def listenTCP(self, port: int, factory: ServerFactory, backlog: int, interface: str, /) -> Listening: ...


class BoundedPort:
    """One port of a node; see the module. refused: connections that are being told why they end."""

    def __init__(
        self,
        reactor: ListeningReactor,
        entrance: Entrance,
        complaints: Complaints,
        *,
        host: str,
        port: int,
        handshake: Callable[[bytes], bytes],
        error: Callable[[int, str], bytes],
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """Make a port that waits for `listen`.

        reactor: Twisted's.
        entrance: counts refusals and audits them.
        complaints: bounds the lines about refusals in the log.
        host: the address to listen on; "" is every address.
        port: the port to listen on; 0 takes a free one.
        handshake: makes the first frame of a connection from a seed.
        error: makes the frame for a code and a text that answers a login.
        random: makes this many unpredictable bytes.
        """
        self.refused: set[RefusedConnection] = set()
        self._reactor = reactor
        self._entrance = entrance
        self._complaints = complaints
        self._host = host
        self._port = port
        self._handshake = handshake
        self._error = error
        self._random = random
        self._listening: Listening | None = None

    @property
    def open(self) -> bool:
        """Whether it accepts connections."""
        return self._listening is not None

    @property
    def number(self) -> int:
        """The port in use; while it is closed the configured one."""
        return self._listening.getHost().port if self._listening else self._port

    def listen(self, factory: ServerFactory, key: str, expected: str) -> None:
        """Open the port.

        factory: makes the connections.
        key: names the port in canal.properties.
        expected: what the key should be if the port is taken.
        Raises ConfigError if it is.
        """
        try:
            self._listening = self._reactor.listenTCP(self._port, factory, BACKLOG, self._host)
        except CannotListenError as error:
            raise ConfigError("canal.properties", key, str(self._port), f"{expected} ({error})") from error

    async def close(self) -> None:
        """Accept no more connections. Those that are open stay."""
        if self._listening is not None:
            listening, self._listening = self._listening, None
            stopped = listening.stopListening()
            if stopped:
                await stopped

    def channel(self, peer: str) -> str:
        """Return the name of a new connection in error texts. peer: see `slash`."""
        here = self._listening.getHost() if self._listening else None
        return f"[id: 0x{self._random(4).hex()}, {peer} => {slash(here)}]"

    def refuse(self, peer: str, reason: str, text: str) -> RefusedConnection | None:
        """Return a connection that says why it ends; None if too many are doing so.

        peer: `/ip`.
        reason: for the counters.
        text: for the peer, the log and the audit.
        """
        self._entrance.refusals[reason] += 1
        self._entrance.audit.refused("connect", Actor(address=peer.removeprefix("/")), text)
        if self._complaints.may(peer):
            LOG.warning("connection.refused", peer=peer, reason=text)
        if len(self.refused) >= REFUSED_MOST:
            return None
        handshake, error = self._handshake(self._random(SEED_BYTES)), self._error(Busy.code, text)
        return RefusedConnection(handshake, error, self._reactor, self.refused)


def slash(address: object) -> str:
    """Return a socket address in the form in which Java prints it."""
    match address:
        case IPv4Address():
            return f"/{address.host}:{address.port}"
        case IPv6Address():
            return f"/[{address.host}]:{address.port}"
        case _:
            return "/unknown:0"
