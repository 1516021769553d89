"""How long an owner may act without an answer from ZooKeeper (pure).

A session expires at the earliest one time-out after the ensemble handled its last write, and the ensemble handles a
write after it was sent. So the lease runs from the send time of the last write that was answered. Reads, pings and sync
prove nothing: a follower that was cut off from its leader answered reads for another 10 s.
"""

from __future__ import annotations

PART = 2 / 3  # of the session time-out; the rest covers clocks that run at different speeds
PROBES = 6  # quorum writes in each session time-out when nothing else is written


class Lease:
    """The lease of one session. All times are seconds on one monotonic clock."""

    def __init__(self) -> None:
        self._timeout_s = 0.0
        self._proven_at: float | None = None

    @property
    def probe_interval_s(self) -> float:
        """Seconds between two quorum writes."""
        return self._timeout_s / PROBES

    def begin(self, timeout_s: float) -> None:
        """Start without proof: a new session was granted. timeout_s: as negotiated, not as asked for."""
        self._timeout_s = timeout_s
        self._proven_at = None

    def resume(self, timeout_s: float) -> None:
        """Go on with the same session over a new connection, whose server may grant another time-out."""
        self._timeout_s = timeout_s

    def end(self) -> None:
        """Give up the lease, because its session is gone or its owner releases the node."""
        self._proven_at = None

    def answered(self, sent_at: float) -> None:
        """Extend the lease: a quorum write of this session, sent at `sent_at`, was answered."""
        if self._proven_at is None or sent_at > self._proven_at:
            self._proven_at = sent_at

    def proven_at(self) -> float | None:
        """Return the send time of the newest answered write, None before the first."""
        return self._proven_at

    def over_at(self) -> float | None:
        """Return when the lease ends, None when there is none."""
        proven_at = self._proven_at  # read once, because a client's other threads ask as well
        return None if proven_at is None else proven_at + self._timeout_s * PART

    def holds(self, now: float) -> bool:
        """Return whether the owner may still act."""
        over = self.over_at()
        return over is not None and now < over
