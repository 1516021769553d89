"""QuietSite: a small web site beside the canal port, for monitoring and an operator's actions. Reactor thread."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from io import BytesIO
from typing import Any, Protocol

from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import connectionDone
from twisted.protocols.policies import WrappingFactory
from twisted.python.failure import Failure
from twisted.web import http
from twisted.web.resource import Resource
from twisted.web.server import Request, Site

from canal_ha.accounts.origin import origin_of
from canal_ha.server.audit import Actor
from canal_ha.server.certificates import Certificates, subject_of
from canal_ha.server.entrance import Entrance
from canal_ha.server.probes import PATHS, Probes

BODY_MOST_BYTES = 32 * 1024  # an instance.properties as JSON
CONNECTIONS_MOST = 100  # open on one port; Twisted closes one that is silent for a minute
REQUEST_MOST_S = 30.0  # from the first byte of a request to its last
ANSWER_MOST_S = 60.0  # until the peer has taken the last bytes of an answer
CROWDED = f"the port has {CONNECTIONS_MOST} connections already, and this is the oldest of the address with most"


class Listener(Protocol):
    """The part of Twisted's reactor that opens a port."""

    def listenTCP(self, port: int, factory: Any, backlog: int = 50, interface: str = "") -> IListeningPort: ...


BodyMost = Callable[[bytes, bytes], int]
"""Returns the most bytes of a body. Its arguments are the method and the path, of somebody who may not have a login."""


def small_body(method: bytes, path: bytes) -> int:
    """See BodyMost."""
    return BODY_MOST_BYTES


class SmallRequest(Request):
    """A request with a body that is not too large. A larger one is answered with 413, and the connection ends.

    Twisted writes a body of any length to a temporary file before it asks the page.
    """

    channel: QuietChannel

    def gotLength(self, length: int | None) -> None:
        """Prepare for the body. length: as announced; None for a body in chunks."""
        self.content: BytesIO = BytesIO()
        self._most = self.channel.body_most()
        if length is not None and length > self._most:
            self._too_large()

    def handleContentChunk(self, data: bytes) -> None:
        """Keep a piece of the body."""
        if self.content.tell() + len(data) > self._most:
            self._too_large()
        else:
            self.content.write(data)

    def process(self) -> None:
        """Ask the page. Twisted itself would answer `OPTIONS *`, to anybody."""
        if self.path == b"*":
            self.channel.refuse(400, "the request has no path")
        if not self.channel.refused:
            super().process()  # type: ignore[no-untyped-call] # Twisted's

    def render(self, resrc: Any) -> None:
        """Let the page answer, without the version of Twisted, which strangers need not know."""
        self.setHeader(b"server", b"canal-ha")  # type: ignore[no-untyped-call] # Twisted's
        super().render(resrc)  # type: ignore[no-untyped-call] # Twisted's

    def _too_large(self) -> None:
        self.channel.refuse(413, f"the body has more than {self._most} bytes")


class QuietChannel(http.HTTPChannel):
    """A connection that answers and writes down what reaches no page, and ends one that takes too long.

    Twisted ends a connection that is silent for a minute, but each byte begins that minute anew.
    """

    site: QuietSite
    refused = False
    """Whether a request was refused here; the connection ends then."""
    _limit: Any = None
    """The timer of the request or answer that is under way; None between them, and while a page works."""

    def dataReceived(self, data: bytes) -> None:
        """Take bytes; the first ones of a request begin its time."""
        if self._limit is None and not self._handlingRequest:
            self._within(REQUEST_MOST_S, "the request took longer than")
        super().dataReceived(data)  # type: ignore[no-untyped-call] # Twisted's

    def allContentReceived(self) -> None:
        """End the time of the request, and ask the page. A request that was refused keeps the time of its answer.

        If more requests have arrived already, this one is the last. Twisted would answer all of them in one turn.
        """
        if not self.refused:
            self._in_time()
        if self._buffer or any(self._dataBuffer):
            self.persistent = 0
            self.requests[-1].responseHeaders.setRawHeaders(b"connection", [b"close"])
        super().allContentReceived()  # type: ignore[no-untyped-call] # Twisted's

    def loseConnection(self) -> None:
        """End the connection as soon as the peer has read the answer, which has its own time."""
        self._in_time()
        self._within(ANSWER_MOST_S, "nobody read the answer within")
        super().loseConnection()  # type: ignore[no-untyped-call] # Twisted's

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Forget the connection."""
        self._in_time()
        super().connectionLost(reason)  # type: ignore[no-untyped-call] # Twisted's

    def body_most(self) -> int:
        """Return the most bytes of the body of the request that arrives."""
        path: Any = self._path  # bytes, which mypy takes for a Request
        return self.site.body_most(self._command, path.partition(b"?")[0])

    def _within(self, most_s: float, what: str) -> None:
        later: Any = self.callLater  # the reactor's
        self._limit = later(most_s, self._too_slow, f"{what} {most_s:.0f} s")

    def _in_time(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _too_slow(self, reason: str) -> None:
        self._limit = None
        self._tell("connection", "http_slow", reason)
        transport: Any = self.transport
        transport.abortConnection()

    def refuse(self, code: int, reason: str) -> None:
        """Answer with an error, once, and end the connection. code: of HTTP. reason: for the peer and the audit."""
        if self.refused:
            return
        self.refused = True
        transport: Any = self.transport
        body = json.dumps({"error": reason}).encode() + b"\n"
        head = (
            f"HTTP/1.1 {code} {http.RESPONSES[code].decode()}\r\nconnection: close\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        transport.write(head.encode() + body)
        self.loseConnection()
        self._tell("request", "http_request", f"{code}: {reason}")

    def _tell(self, action: str, counted_as: str, reason: str) -> None:
        transport: Any = self.transport
        actor = Actor("", getattr(transport.getPeer(), "host", "unknown"), subject_of(transport))
        self.site.entrance.refusals[counted_as] += 1
        self.site.entrance.audit.refused(action, actor, reason)

    def headerReceived(self, line: bytes) -> bool:
        """Take a header; return whether it is valid.

        Python reads no number of more than 4,300 digits. Twisted logs that as an error, with a traceback, each time
        that a stranger sends such a Content-Length.
        """
        try:
            return bool(super().headerReceived(line))  # type: ignore[no-untyped-call] # Twisted's
        except ValueError:
            self._respondToBadRequestAndDisconnect()
            return False

    def lineLengthExceeded(self, line: bytes) -> None:
        """Refuse a line that is too long. Twisted would end the connection without an answer."""
        self._respondToBadRequestAndDisconnect()

    def _respondToBadRequestAndDisconnect(self) -> None:
        self.refuse(400, "the request is no valid HTTP, or its headers are too long")


class QuietSite(Site):
    """A site without an access log and without tracebacks in its answers: monitoring asks every few seconds."""

    protocol: Any = QuietChannel
    displayTracebacks = False
    requestFactory = SmallRequest

    def __init__(
        self,
        page: Resource,
        entrance: Entrance,
        probes: Probes | None = None,
        body_most: BodyMost = small_body,
        **options: Any,
    ) -> None:
        """Make a site.

        page: answers the requests.
        entrance: hears of those that are refused before.
        probes: answers those for its paths in place of the page.
        body_most: see BodyMost.
        options: of Twisted's Site.
        """
        super().__init__(page, **options)  # type: ignore[no-untyped-call] # Twisted's
        self.entrance = entrance
        self.body_most = body_most
        self._probes = probes

    def getResourceFor(self, request: Request) -> Resource:
        """Return what answers a request."""
        page: Resource = super().getResourceFor(request)  # type: ignore[no-untyped-call] # Twisted's
        return self._probes if self._probes and request.path in PATHS else page

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


def site_of(
    page: Resource,
    certificates: Certificates | None,
    entrance: Entrance,
    probes: Probes | None = None,
    body_most: BodyMost = small_body,
) -> FewConnections:
    """Return what listens on a port.

    page: answers the requests.
    certificates: for TLS; None: plain HTTP.
    entrance: see FewConnections.
    probes: see QuietSite.
    body_most: see BodyMost.
    """
    site: Any = QuietSite(page, entrance, probes, body_most)
    return FewConnections(certificates.around(site) if certificates else site, entrance)
