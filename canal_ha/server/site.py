"""QuietSite: a small web site beside the canal port, for monitoring and an operator's actions. Reactor thread."""

from __future__ import annotations

from collections import Counter
from io import BytesIO
from typing import Any, Protocol

from twisted.internet.interfaces import IListeningPort
from twisted.protocols.policies import WrappingFactory
from twisted.web import http
from twisted.web.resource import Resource
from twisted.web.server import Request, Site

from canal_ha.accounts.origin import origin_of
from canal_ha.server.audit import Actor
from canal_ha.server.certificates import Certificates
from canal_ha.server.entrance import Entrance

BODY_MOST_BYTES = 4096
CONNECTIONS_MOST = 100  # open on one port; Twisted closes one that is silent for a minute
CROWDED = f"the port has {CONNECTIONS_MOST} connections already, and this is the oldest of the address with most"


class Listener(Protocol):
    """The part of Twisted's reactor that opens a port."""

    def listenTCP(self, port: int, factory: Any, backlog: int = 50, interface: str = "") -> IListeningPort: ...


class SmallRequest(Request):
    """A request with a body of at most BODY_MOST_BYTES. A larger one is answered with 413, and the connection ends.

    Twisted writes a body of any length to a temporary file before it asks the page.
    """

    _refused = False

    def gotLength(self, length: int | None) -> None:
        """Prepare for the body. length: as announced; None for a body in chunks."""
        self.content: BytesIO = BytesIO()
        if length is not None and length > BODY_MOST_BYTES:
            self._refuse()

    def handleContentChunk(self, data: bytes) -> None:
        """Keep a piece of the body."""
        if self.content.tell() + len(data) > BODY_MOST_BYTES:
            self._refuse()
        else:
            self.content.write(data)

    def process(self) -> None:
        """Ask the page."""
        if not self._refused:
            super().process()  # type: ignore[no-untyped-call] # Twisted's

    def _refuse(self) -> None:
        if not self._refused:
            self._refused = True
            transport: Any = self.channel.transport
            transport.write(b"HTTP/1.1 413 Content Too Large\r\nconnection: close\r\n\r\n")
            self.channel.loseConnection()


class QuietChannel(http.HTTPChannel):
    """A connection that answers 400 to a header that breaks Twisted's parser.

    Python reads no number of more than 4,300 digits. Twisted logs that as an error, with a traceback, each time that a
    stranger sends such a Content-Length.
    """

    def headerReceived(self, line: bytes) -> bool:
        """Take a header; return whether it is valid."""
        try:
            return bool(super().headerReceived(line))  # type: ignore[no-untyped-call] # Twisted's
        except ValueError:
            transport: Any = self.transport
            transport.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            self.loseConnection()  # type: ignore[no-untyped-call] # Twisted's
            return False


class QuietSite(Site):
    """A site without an access log and without tracebacks in its answers: monitoring asks every few seconds."""

    protocol: Any = QuietChannel
    displayTracebacks = False
    requestFactory = SmallRequest

    def log(self, request: http.Request) -> None:
        """Write nothing."""


class FewConnections(WrappingFactory):
    """Keeps CONNECTIONS_MOST connections, so that they take no file descriptors from clients.

    One more ends the oldest connection of the address that has most. A stranger who holds connections open, and sends a
    byte now and then, so ends his own and keeps nobody out.
    """

    noisy = False

    def __init__(self, factory: Any, entrance: Entrance) -> None:
        """factory: of the connections. entrance: counts those that are ended, as `http_connections`."""
        super().__init__(factory)  # type: ignore[no-untyped-call] # Twisted's
        self._entrance = entrance
        self._hosts: dict[Any, str] = {}  # of the open connections, the oldest first

    def buildProtocol(self, addr: Any) -> Any:
        """Return a connection."""
        if len(self._hosts) >= CONNECTIONS_MOST:
            self._end_one()
        return super().buildProtocol(addr)

    def registerProtocol(self, p: Any) -> None:
        """Count a connection."""
        super().registerProtocol(p)  # type: ignore[no-untyped-call] # Twisted's
        self._hosts[p] = getattr(p.getPeer(), "host", "unknown")

    def unregisterProtocol(self, p: Any) -> None:
        """Count its end."""
        super().unregisterProtocol(p)  # type: ignore[no-untyped-call] # Twisted's
        self._hosts.pop(p, None)

    def _end_one(self) -> None:
        origins = {connection: origin_of(f"/{host}") for connection, host in self._hosts.items()}
        ((most, _),) = Counter(origins.values()).most_common(1)
        oldest = next(connection for connection, origin in origins.items() if origin == most)
        self._entrance.refusals["http_connections"] += 1
        self._entrance.audit.refused("connection", Actor(address=self._hosts.pop(oldest)), CROWDED)
        oldest.abortConnection()


def site_of(page: Resource, certificates: Certificates | None, entrance: Entrance) -> FewConnections:
    """Return what listens on a port.

    page: answers the requests.
    certificates: for TLS; None: plain HTTP.
    entrance: see FewConnections.
    """
    site: Any = QuietSite(page)  # type: ignore[no-untyped-call] # Twisted's
    return FewConnections(certificates.around(site) if certificates else site, entrance)
