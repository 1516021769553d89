"""Complaints: log lines that peers cause, so that none of them can fill a disk. Reactor thread."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from canal_ha import logs
from canal_ha.server.idle import Clock, Timer

LINES_AT_ONCE = 10  # of one address; a second later it may have one more
PEERS = 256  # addresses told apart; those who have been silent longest share their lines with newcomers

LOG = logs.get(__name__)


@dataclass(slots=True)
class _Peer:
    left: float
    seen_at: float
    left_out: int = 0


class Complaints:
    """Decides which lines are written, and once a second writes how many were left out for each address."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._peers: OrderedDict[str, _Peer] = OrderedDict()
        self._timer: Timer | None = None

    def may(self, peer: str) -> bool:
        """Whether a line about this address may be written now; a line that may not is counted. peer: `/ip`."""
        now = self._clock.seconds()
        known = self._peers.pop(peer, None)
        if known is None:
            if len(self._peers) >= PEERS:
                self._tell(*self._peers.popitem(last=False))
            known = _Peer(LINES_AT_ONCE, now)
        self._peers[peer] = known
        known.left = min(LINES_AT_ONCE, known.left + now - known.seen_at)
        known.seen_at = now
        if known.left >= 1:
            known.left -= 1
            return True
        known.left_out += 1
        if self._timer is None:
            self._timer = self._clock.callLater(1.0, self._rang)
        return False

    def stop(self) -> None:
        """Write what was left out so far; no more timers until the next complaint."""
        if self._timer and self._timer.active():
            self._timer.cancel()
        self._rang()

    def _rang(self) -> None:
        self._timer = None
        for peer, known in self._peers.items():
            self._tell(peer, known)

    def _tell(self, peer: str, known: _Peer) -> None:
        if known.left_out:
            LOG.warning("peer.lines_left_out", peer=peer, count=known.left_out)
            known.left_out = 0
