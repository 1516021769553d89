"""Limits of the data port, against peers that open connections or send ahead without end. Reactor thread."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from canal_ha.accounts.origin import origin_of


@dataclass(frozen=True, slots=True)
class PortLimits:
    """What the port allows. The defaults are those of the keys canal.client.*.

    login_s: longest time from a connection's begin to its login.
    connections: open at a time.
    connections_of_address: open at a time from one address; in IPv6 from one network of 64 bits.
    ahead_bytes: of requests that all clients together have sent and the node has not read.
    reply_bytes: of replies that all clients together have not read.
    """

    login_s: float = 10.0
    connections: int = 5000
    connections_of_address: int = 2500
    ahead_bytes: int = 256 * 1024 * 1024
    reply_bytes: int = 1024 * 1024 * 1024


@dataclass(slots=True)
class PortLoad:
    """What the connections of a port use of its limits."""

    limits: PortLimits
    connections: int = 0
    _by_origin: Counter[str] = field(default_factory=Counter)

    def refusal(self, peer: str) -> tuple[str, str]:
        """Return why one more connection of this address is refused: reason and text; two empty texts if it is not."""
        if self.connections >= self.limits.connections:
            most = self.limits.connections
            return "connections", f"the node has {most} connections already (canal.client.connections.max)"
        most = self.limits.connections_of_address
        if self._by_origin.get(origin_of(peer), 0) >= most:
            return (
                "connections_of_address",
                f"this address has {most} connections already (canal.client.connections.address.max)",
            )
        return "", ""

    def opened(self, peer: str) -> None:
        """Count a connection."""
        self.connections += 1
        self._by_origin[origin_of(peer)] += 1

    def closed(self, peer: str) -> None:
        """Count its end."""
        self.connections -= 1
        origin = origin_of(peer)
        self._by_origin[origin] -= 1
        if not self._by_origin[origin]:
            del self._by_origin[origin]
