"""Sightings: what a node has seen since its start: changes of owners, nodes that are gone, and the lag of streams.

All of it is bounded and in memory. Pure; the caller says what time it is, in seconds since 1970.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from canal_ha.instance.status import InstanceStatus

SAMPLE_S = 15.0
SAMPLES = 240  # an hour
STREAMS_MOST = 4096
CHANGES_MOST = 500
GONE_MOST = 100


@dataclass(frozen=True, slots=True)
class OwnerChange:
    """Another node runs a destination than before.

    destination: its name.
    before, after: addresses of the nodes; "" for none.
    at: when this node saw it, s since 1970.
    """

    destination: str
    before: str
    after: str
    at: float


@dataclass(frozen=True, slots=True)
class LagSample:
    """The lag of a stream at one moment; -1: unknown.

    at: the moment, s since 1970.
    seconds, size: behind the source, s and bytes.
    """

    at: float
    seconds: float
    size: int


class Lag:
    """The samples of one stream, the newest SAMPLES of them."""

    def __init__(self) -> None:
        self._at, self._seconds, self._size = array("d"), array("d"), array("q")

    def add(self, sample: LagSample) -> None:
        """Add a sample, and forget the oldest one beyond SAMPLES."""
        self._at.append(sample.at)
        self._seconds.append(sample.seconds)
        self._size.append(sample.size)
        for kept in (self._at, self._seconds, self._size):
            del kept[:-SAMPLES]

    def samples(self) -> tuple[LagSample, ...]:
        """Return the samples, the oldest first."""
        return tuple(map(LagSample, self._at, self._seconds, self._size))


class Sightings:
    """See the module."""

    def __init__(self) -> None:
        self.changes: deque[OwnerChange] = deque(maxlen=CHANGES_MOST)
        self.gone: OrderedDict[str, float] = OrderedDict()  # address -> since when, the longest gone first
        self._owners: dict[str, str] = {}
        self._nodes: frozenset[str] = frozenset()
        self._lags: OrderedDict[tuple[str, int], Lag] = OrderedDict()  # the one sampled last is last

    def owners(self, owners: Mapping[str, str], now: float) -> None:
        """Compare the owners with those of the last call. owners: by destination; left out while unknown."""
        for destination, owner in owners.items():
            before = self._owners.get(destination)
            if owner and owner != before:
                self._owners[destination] = owner
                if before is not None:
                    self.changes.append(OwnerChange(destination, before, owner, now))

    def nodes(self, nodes: Collection[str], now: float) -> None:
        """Compare the live nodes with those of the last call."""
        alive = frozenset(nodes)
        for address in sorted(self._nodes - alive):
            self.gone[address] = now
            if len(self.gone) > GONE_MOST:
                self.gone.popitem(last=False)
        for address in alive & self.gone.keys():
            del self.gone[address]
        self._nodes = alive

    def sample(self, instances: Iterable[InstanceStatus], now: float) -> None:
        """Add a sample of each stream that runs here."""
        for instance in instances:
            for stream in instance.streams:
                key = (instance.destination, stream.client_id)
                lag = self._lags.setdefault(key, Lag())
                self._lags.move_to_end(key)
                lag.add(LagSample(now, stream.seconds_behind, stream.bytes_behind))
        while len(self._lags) > STREAMS_MOST:
            self._lags.popitem(last=False)

    def lags(self, destination: str, since: float) -> dict[int, tuple[LagSample, ...]]:
        """Return the samples of a destination's streams by client id. since: s since 1970; older ones are left out."""
        return {
            client_id: samples
            for (name, client_id), lag in sorted(self._lags.items())
            if name == destination and (samples := tuple(each for each in lag.samples() if each.at >= since))
        }
