"""SnapshotRetry: why a client's snapshot cannot go on now, and when it is tried again. Pure."""

from __future__ import annotations

from collections.abc import Callable

from canal_ha.model.snapshot import SnapshotState


class SnapshotRetry:
    """Keeps the last failure until the snapshot goes on. Reactor thread."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        """seconds: a clock."""
        self._seconds = seconds
        self._error = ""
        self._at = 0.0

    def failed(self, error: str, retry_in_s: float) -> None:
        """Take a failure. retry_in_s: until the next attempt."""
        self._error, self._at = error, self._seconds() + retry_in_s

    def goes_on(self) -> None:
        """Forget the failure."""
        self._error = ""

    def of(self, state: SnapshotState) -> dict[str, object]:
        """Return `failing`, "" if nothing fails, and `retry_in_s`, 0.0 also while the attempt is made."""
        if not state.active or not self._error:
            return {"failing": "", "retry_in_s": 0.0}
        return {"failing": self._error, "retry_in_s": round(max(0.0, self._at - self._seconds()), 1)}
