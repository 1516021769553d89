"""QuietSite: a small web site beside the canal port, for monitoring and an operator's actions."""

from __future__ import annotations

from collections import Counter
from io import BytesIO
from typing import Any, Protocol

from twisted.internet.interfaces import IListeningPort
from twisted.protocols.policies import WrappingFactory
from twisted.web import http
from twisted.web.resource import Resource
from twisted.web.server import Request, Site

from canal_ha.server.certificates import Certificates

BODY_MOST_BYTES = 4096
CONNECTIONS_MOST = 100  # open on one port; Twisted closes one that is silent for a minute


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
    """A connection on which a header that Twisted's parser breaks on is answered with 400.

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
    """Closes connections beyond CONNECTIONS_MOST at once, so that they take no file descriptors from clients."""

    noisy = False

    def __init__(self, factory: Any, refusals: Counter[str]) -> None:
        """factory: of the connections. refusals: counts those that are closed, as `http_connections`."""
        super().__init__(factory)  # type: ignore[no-untyped-call] # Twisted's
        self._refusals = refusals

    def buildProtocol(self, addr: Any) -> Any:
        """Return a connection; None closes it."""
        if len(self.protocols) < CONNECTIONS_MOST:
            return super().buildProtocol(addr)
        self._refusals["http_connections"] += 1
        return None


def site_of(page: Resource, certificates: Certificates | None, refusals: Counter[str]) -> FewConnections:
    """Return what listens on a port.

    page: answers the requests.
    certificates: for TLS; None: plain HTTP.
    refusals: see FewConnections.
    """
    site: Any = QuietSite(page)  # type: ignore[no-untyped-call] # Twisted's
    return FewConnections(certificates.around(site) if certificates else site, refusals)
