"""What happened on the port since it was opened: plain numbers that the metrics read (docs/protocol.md#metrics)."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from canal_ha.wire.framing import HEADER_BYTES
from canal_ha.wire.server_session import Reply

UNKNOWN = "unknown"
PEERS = 64  # addresses with figures of their own

LATENCY_BUCKETS_MS = (2.5, 10.0, 25.0, 100.0)


@dataclass(slots=True)
class Latency:
    """A histogram. buckets: requests that took at most LATENCY_BUCKETS_MS[i], not cumulated; the last has no limit."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BUCKETS_MS) + 1))
    sum_ms: float = 0.0
    count: int = 0

    def note(self, latency_ms: float) -> None:
        """Count one request."""
        self.buckets[bisect_left(LATENCY_BUCKETS_MS, latency_ms)] += 1
        self.sum_ms += latency_ms
        self.count += 1


@dataclass(slots=True)
class RequestCounters:
    """Keys are destinations, where a request named one; else the peer's address as `/ip`, without its port, which would
    make a new series of every connection. Authentication is not counted.

    known: whether this node knows a destination. Other names, and addresses beyond the first PEERS, count as UNKNOWN:
    a stranger can make up any number of them.
    """

    known: Callable[[str], bool]

    packets: Counter[tuple[str, str]] = field(default_factory=Counter)  # (destination, packet type); no empty GETs
    bytes: Counter[str] = field(default_factory=Counter)  # outbound, headers included
    empty_batches: Counter[str] = field(default_factory=Counter)
    errors: Counter[tuple[str, int]] = field(default_factory=Counter)  # (destination, error code)
    latency: dict[str, Latency] = field(default_factory=dict)
    connections: int = 0  # open now
    refusals: Counter[str] = field(default_factory=Counter)  # by reason: what is refused before it is a request
    _peers: set[str] = field(default_factory=set)

    def note(self, reply: Reply, peer: str, latency_ms: float) -> None:
        """Count one request and its reply. peer: `/ip`; latency_ms: until the reply's last byte has left."""
        if not reply.packet_type:
            return
        destination = reply.destination
        label = destination if destination and self.known(destination) else self._other_label(destination, peer)
        self.bytes[label] += sum(map(len, reply.pieces)) or HEADER_BYTES  # size_bytes
        latency = self.latency.get(label)
        if latency is None:
            latency = self.latency[label] = Latency()
        latency.note(latency_ms)
        if reply.error_code:
            self.errors[label, reply.error_code] += 1
        if reply.empty:
            self.empty_batches[label] += 1
        else:
            self.packets[label, reply.packet_type] += 1

    def _other_label(self, destination: str, peer: str) -> str:
        """Return the label of a request that names no known destination."""
        if destination:
            return UNKNOWN
        if peer in self._peers:
            return peer
        if len(self._peers) >= PEERS:
            return UNKNOWN
        self._peers.add(peer)
        return peer
