"""Heartbeat: measures how late the reactor runs its timers. Reactor thread.

Whatever blocks the reactor, or keeps it busy, delays every client. The measured delay is shorter than the block by up
to BEAT_S, because a block can begin between two beats. A suspension of the machine counts as a delay.

A delay has two parts. While the thread waits for a processor, other threads of the machine have all of them, and the
node can do nothing about it. The rest is the node's own: work on the reactor, and waits for the interpreter's lock. If
the thread that has the lock waits for a processor, this counts as the node's own too.
"""

from __future__ import annotations

from collections.abc import Callable

from canal_ha import logs
from canal_ha.model.clock import Clock, Timer

BEAT_S = 0.02
STALL_S = 0.1  # a delay that counts as a stall
LOGGED_S = 1.0  # a stall that is logged,
LOG_EVERY_S = 60.0  # but no more often than this

LOG = logs.get(__name__)


class Heartbeat:
    """Beats from `start` to `stop`.

    stalls: delays of more than STALL_S since the start.
    own_stalls: those whose part of the node's own is longer than STALL_S.
    """

    def __init__(self, clock: Clock, waited: Callable[[], float] = lambda: 0.0) -> None:
        """waited: for how long the reactor's thread has waited for a processor since some time before, seconds."""
        self.stalls = self.own_stalls = 0
        self._clock = clock
        self._waited = waited
        self._waited_s = 0.0  # at the last beat
        self._due: float | None = None
        self._timer: Timer | None = None
        self._longest = self._longest_own = 0.0
        self._logged_at: float | None = None
        self._unlogged = 0

    def start(self) -> None:
        """Begin to beat."""
        self._due = self._clock.seconds() + BEAT_S
        self._waited_s = self._waited()
        self._timer = self._clock.callLater(BEAT_S, self._beat)

    def stop(self) -> None:
        """Stop beating."""
        if self._timer and self._timer.active():
            self._timer.cancel()
        self._timer = self._due = None

    def take_longest(self) -> tuple[float, float]:
        """Return the longest delay and the longest part of the node's own, seconds, since the last call.

        They count a beat that is due now, and may be of two beats.
        """
        if self._due is not None:
            self._note(self._clock.seconds() - self._due)
        longest = self._longest, self._longest_own
        self._longest = self._longest_own = 0.0
        return longest

    def _note(self, late: float) -> float:
        """Keep the longest; return the part of a delay that is the node's own."""
        own = late - (self._waited() - self._waited_s)
        self._longest = max(self._longest, late)
        self._longest_own = max(self._longest_own, own)
        return own

    def _beat(self) -> None:
        assert self._due is not None
        now = self._clock.seconds()
        late = now - self._due
        own = self._note(late)
        if late > STALL_S:
            self.stalls += 1
        if own > STALL_S:
            self.own_stalls += 1
        if late > LOGGED_S:
            self._log(late, own, now)
        self.start()

    def _log(self, late: float, own: float, now: float) -> None:
        if self._logged_at is not None and now - self._logged_at < LOG_EVERY_S:
            self._unlogged += 1
            return
        LOG.warning("reactor.stalled", seconds=round(late, 3), own=round(max(0.0, own), 3), left_out=self._unlogged)
        self._logged_at, self._unlogged = now, 0
