"""Pace: how many rows the next chunk of a snapshot asks for, and when it may begin. Pure."""

from __future__ import annotations

from canal_ha.config.model import SnapshotLimits

_MOST_GROWTH = 4.0  # from one chunk to the next, so that one lucky chunk does not decide
_FIRST_ROWS = 1000


class Pace:
    """Adapts the rows of a chunk to the limits.

    row_bytes: of an average row, as the server estimates it; 0: unknown.

    rows: what the next chunk asks for.
    """

    def __init__(self, limits: SnapshotLimits, row_bytes: int = 0) -> None:
        self._limits = limits
        first = min(_FIRST_ROWS, limits.bytes_most // row_bytes if row_bytes else _FIRST_ROWS)
        self.rows = max(1, min(first, limits.chunk_rows))

    def took(self, rows: int, size: int, seconds: float) -> None:
        """Take what a chunk had. size: bytes. seconds: of its SELECT."""
        if not rows:
            return
        limits = self._limits
        by_time = rows * limits.chunk_s / max(seconds, 1e-6)
        by_size = rows * limits.bytes_most / max(size, 1)
        wanted = min(by_time, by_size, limits.chunk_rows, max(rows, self.rows) * _MOST_GROWTH)
        self.rows = max(1, int(wanted))

    def too_long(self) -> bool:
        """Note that the server ended the SELECT; return whether a smaller one may help."""
        smaller, self.rows = self.rows > 1, max(1, self.rows // 2)
        return smaller

    def pause_s(self, rows: int, seconds: float) -> float:
        """Return the seconds to wait after a chunk. seconds: since the chunk began."""
        rate = self._limits.rows_per_s
        return max(0.0, rows / rate - seconds) if rate else 0.0
