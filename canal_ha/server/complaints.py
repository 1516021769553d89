"""Complaints: log lines that peers cause, so that none of them can fill a disk, nor all together. Reactor thread."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

from canal_ha import logs
from canal_ha.accounts.origin import origin_of
from canal_ha.model.clock import Clock, Timer

PEERS = 256  # addresses told apart; newcomers share one allowance until one of these has all its lines again
NAMED = 10  # addresses that one report names; it counts the others together

_OTHERS = "others"

LOG = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class LineRates:
    """How many lines may be written: at once, and more of them each second; by one address, and by all together."""

    at_once: int
    per_s: float
    all_at_once: int
    all_per_s: float


COMPLAINTS = LineRates(10, 1, 100, 50)


@dataclass(slots=True)
class _Allowance:
    """Lines that may be written: `most` at once, and `per_s` more each second."""

    most: int
    per_s: float
    left: float
    seen_at: float
    left_out: int = 0

    def refill(self, now: float) -> None:
        self.left = min(self.most, self.left + (now - self.seen_at) * self.per_s)
        self.seen_at = now


class Complaints:
    """Decides which lines are written, and once a second writes how many were left out, by address."""

    def __init__(
        self, clock: Clock, tell: Callable[[str, int], None] | None = None, rates: LineRates = COMPLAINTS
    ) -> None:
        """Begin.

        clock: for the allowances.
        tell: hears of an address and the number of its lines that were left out; None: the log does.
        rates: of the lines.
        """
        self._clock = clock
        self._tell = tell or _tell
        self._rates = rates
        now = clock.seconds()
        self._all = _Allowance(rates.all_at_once, rates.all_per_s, rates.all_at_once, now)
        self._newcomers = _Allowance(rates.at_once, rates.per_s, rates.at_once, now)
        self._peers: OrderedDict[str, _Allowance] = OrderedDict()  # those who complained last are last
        self._timer: Timer | None = None

    def may(self, peer: str) -> bool:
        """Whether a line about this address may be written now; a line that may not is counted. peer: `/ip`."""
        now = self._clock.seconds()
        allowance = self._of(origin_of(peer), now)
        for each in (allowance, self._all):
            each.refill(now)
        if allowance.left >= 1 and self._all.left >= 1:
            allowance.left -= 1
            self._all.left -= 1
            return True
        allowance.left_out += 1
        if self._timer is None:
            self._timer = self._clock.callLater(1.0, self._rang)
        return False

    def stop(self) -> None:
        """Write what was left out so far; no more timers until the next complaint."""
        if self._timer and self._timer.active():
            self._timer.cancel()
        self._rang()

    def _of(self, origin: str, now: float) -> _Allowance:
        """The allowance of an address. An address is forgotten only when it has all its lines again."""
        known = self._peers.get(origin)
        if known is not None:
            self._peers.move_to_end(origin)
            return known
        if len(self._peers) >= PEERS:
            oldest = next(iter(self._peers))
            silent = self._peers[oldest]
            silent.refill(now)
            if silent.left < self._rates.at_once or silent.left_out:
                return self._newcomers
            del self._peers[oldest]
        rates = self._rates
        return self._peers.setdefault(origin, _Allowance(rates.at_once, rates.per_s, rates.at_once, now))

    def _rang(self) -> None:
        self._timer = None
        silenced = [(peer, each) for peer, each in self._peers.items() if each.left_out]
        silenced.sort(key=lambda pair: pair[1].left_out, reverse=True)
        for peer, each in silenced[:NAMED]:
            self._tell(peer, each.left_out)
        others = self._newcomers.left_out + sum(each.left_out for _, each in silenced[NAMED:])
        if others:
            self._tell(_OTHERS, others)
        for each in chain(self._peers.values(), (self._newcomers,)):
            each.left_out = 0


def _tell(peer: str, count: int) -> None:
    LOG.warning("peer.lines_left_out", peer=peer, count=count)
