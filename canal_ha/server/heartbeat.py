"""Heartbeat: measures how late the reactor runs its timers. Reactor thread.

Whatever blocks the reactor, or keeps it busy, delays every client. The measured delay is shorter than the block by up
to BEAT_S, because a block can begin between two beats. A suspension of the machine counts as a delay.
"""

from __future__ import annotations

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
    """

    def __init__(self, clock: Clock) -> None:
        self.stalls = 0
        self._clock = clock
        self._due: float | None = None
        self._timer: Timer | None = None
        self._longest = 0.0
        self._logged_at: float | None = None
        self._unlogged = 0

    def start(self) -> None:
        """Begin to beat."""
        self._due = self._clock.seconds() + BEAT_S
        self._timer = self._clock.callLater(BEAT_S, self._beat)

    def stop(self) -> None:
        """Stop beating."""
        if self._timer and self._timer.active():
            self._timer.cancel()
        self._timer = self._due = None

    def take_longest(self) -> float:
        """Return the longest delay since the last call, seconds, with the one of a beat that is due now."""
        due_since = 0.0 if self._due is None else self._clock.seconds() - self._due
        longest, self._longest = max(self._longest, due_since), 0.0
        return longest

    def _beat(self) -> None:
        assert self._due is not None
        now = self._clock.seconds()
        late = now - self._due
        self._longest = max(self._longest, late)
        if late > STALL_S:
            self.stalls += 1
        if late > LOGGED_S:
            self._log(late, now)
        self.start()

    def _log(self, late: float, now: float) -> None:
        if self._logged_at is not None and now - self._logged_at < LOG_EVERY_S:
            self._unlogged += 1
            return
        LOG.warning("reactor.stalled", seconds=round(late, 3), left_out=self._unlogged)
        self._logged_at, self._unlogged = now, 0
