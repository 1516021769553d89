"""QuietSite: a small web site beside the canal port, for monitoring."""

from __future__ import annotations

from typing import Any, Protocol

from twisted.internet.interfaces import IListeningPort
from twisted.web.http import Request
from twisted.web.server import Site


class Listener(Protocol):
    """The part of Twisted's reactor that opens a port."""

    def listenTCP(self, port: int, factory: Any, backlog: int = 50, interface: str = "") -> IListeningPort: ...


class QuietSite(Site):
    """A site without an access log and without tracebacks in its answers: monitoring asks every few seconds."""

    displayTracebacks = False

    def log(self, request: Request) -> None:
        """Write nothing."""
