"""The ways to end a connection, also inside TLS. Reactor thread."""

from __future__ import annotations

from typing import Any, Protocol

from twisted.protocols.tls import TLSMemoryBIOProtocol


class Closing(Protocol):
    """The ways to end a connection: a Twisted TCP transport."""

    def loseConnection(self) -> None: ...

    def loseWriteConnection(self) -> None: ...

    def abortConnection(self) -> None: ...


class TlsClosing:
    """Ends a connection inside TLS.

    Twisted's own loseWriteConnection there closes TCP below the TLS session, with what is not encrypted yet unsent.
    """

    def __init__(self, tls: Any) -> None:
        """tls: the TLSMemoryBIOProtocol."""
        self._tls = tls
        self._half_closed = False

    def loseWriteConnection(self) -> None:
        """Send what is written, and the close alert; what the client still sends arrives."""
        self._half_closed = True
        self._tls.loseConnection()

    def loseConnection(self) -> None:
        """Send what is written, and close."""
        if self._half_closed:
            self._tls.transport.loseConnection()  # TLS would wait for the client's alert
        else:
            self._tls.loseConnection()

    def abortConnection(self) -> None:
        """Close at once."""
        self._tls.abortConnection()


def closing(transport: Any) -> Closing:
    """Return the ways to end the connection of a Twisted transport."""
    return TlsClosing(transport) if isinstance(transport, TLSMemoryBIOProtocol) else transport
