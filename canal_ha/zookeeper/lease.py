"""How long this node may act as owner without hearing from ZooKeeper (pure).

A session cannot expire sooner than its time-out after the ensemble last handled a write of it, and the write was
handled after it was sent. So the clock runs from the send time of the last write that was answered. Reads, pings and
sync prove nothing: a follower cut off from its leader answered reads for 10 s.
"""

from __future__ import annotations

PART = 2 / 3  # of the session time-out: what remains pays for clocks that run at different speeds
PROBES = 6  # quorum writes per session time-out, when nothing else is written


class Lease:
    """One per session, shared by all destinations of the node. Times in seconds on one monotonic clock."""

    def __init__(self) -> None:
        self._timeout_s = 0.0
        self._proven_at: float | None = None

    @property
    def probe_interval_s(self) -> float:
        """How often a quorum write must be sent."""
        return self._timeout_s / PROBES

    def begin(self, timeout_s: float) -> None:
        """A new session was granted. timeout_s: as negotiated, not as asked for. Nothing is proven yet."""
        self._timeout_s = timeout_s
        self._proven_at = None

    def end(self) -> None:
        """The session is gone; the lease with it."""
        self._proven_at = None

    def answered(self, sent_at: float) -> None:
        """A quorum write of this session, sent at `sent_at`, was answered."""
        if self._proven_at is None or sent_at > self._proven_at:
            self._proven_at = sent_at

    def proven_at(self) -> float | None:
        """Send time of the newest answered write, None before the first."""
        return self._proven_at

    def over_at(self) -> float | None:
        """When the lease is over, None when there is none."""
        return None if self._proven_at is None else self._proven_at + self._timeout_s * PART

    def holds(self, now: float) -> bool:
        """Whether the node may still act as owner."""
        over = self.over_at()
        return over is not None and now < over
