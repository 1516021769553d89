"""SnapshotRate: how fast a client takes the rows of its snapshot, and how long the rest will take. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from canal_ha.model.snapshot import SnapshotPhase, SnapshotState

WINDOW_S = 60.0
_APART_S = 1.0  # between samples

UNKNOWN = -1.0


class SnapshotRate:
    """Keeps how many rows were acknowledged in the last minute. Reactor thread."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        """seconds: a clock."""
        self._seconds = seconds
        self._id = ""
        self._samples: deque[tuple[float, int]] = deque()  # the oldest first

    def acknowledged(self, before: SnapshotState, after: SnapshotState) -> None:
        """Take the states before and after an ACK."""
        now = self._seconds()
        if after.id != self._id or after.rows < self._samples[-1][1]:
            self._id = after.id
            self._samples.clear()
            self._samples.append((now, min(before.rows, after.rows)))
        elif now - self._samples[-1][0] >= _APART_S:
            self._samples.append((now, after.rows))

    def of(self, state: SnapshotState) -> dict[str, float]:
        """Return `rows_per_s`, 0.0 if nothing runs, and `left_s`, -1.0 while nobody can tell it."""
        now = self._seconds()
        while len(self._samples) > 1 and now - self._samples[0][0] > WINDOW_S:
            self._samples.popleft()
        if state.phase is not SnapshotPhase.RUNNING or state.id != self._id:
            return {"rows_per_s": 0.0, "left_s": UNKNOWN}
        since, rows = self._samples[0]
        passed = now - since
        rate = max(0, state.rows - rows) / passed if passed >= _APART_S else 0.0
        left = state.total - state.rows
        return {"rows_per_s": round(rate, 1), "left_s": round(left / rate, 1) if rate and left > 0 else UNKNOWN}
