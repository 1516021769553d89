"""How many rows the next chunk of a snapshot asks for (Pace), and when it may begin (Rate). Pure."""

from __future__ import annotations

from canal_ha.config.model import SnapshotLimits

LOCKED_S = 0.2  # the longest that a chunk's SELECT should lock its rows
_MOST_GROWTH = 4.0  # from one chunk to the next, so that one lucky chunk does not decide
_FIRST_ROWS = 1000


class Pace:
    """Adapts the rows of a chunk to the limits.

    row_bytes: of an average row, as the server estimates it; 0: unknown.
    sorts: whether each SELECT sorts the whole rest of the table. That takes as long for fewer rows, so the time counts
        only where the server would end a longer SELECT.

    rows: what the next chunk asks for.
    """

    def __init__(self, limits: SnapshotLimits, row_bytes: int = 0, *, sorts: bool = False) -> None:
        self._limits = limits
        self._sorts = sorts
        first = min(_FIRST_ROWS, limits.bytes_most // row_bytes if row_bytes else _FIRST_ROWS)
        self.rows = max(1, min(first, limits.chunk_rows))

    def took(self, rows: int, size: int, seconds: float, *, locked: bool = False) -> None:
        """Take what a chunk had. size: bytes. seconds: of its SELECT. locked: whether that locked the rows."""
        if not rows:
            return
        limits, before = self._limits, max(rows, self.rows)
        by_time = self._by_time(before, seconds) if self._sorts else rows * self._chunk_s(locked) / max(seconds, 1e-6)
        by_size = rows * limits.bytes_most / max(size, 1)
        wanted = min(by_time, by_size, limits.chunk_rows, before * _MOST_GROWTH)
        self.rows = max(1, int(wanted))

    def _chunk_s(self, locked: bool) -> float:
        """Return the seconds that a SELECT should take. locked: whether it locks the rows."""
        return min(self._limits.chunk_s, LOCKED_S) if locked else self._limits.chunk_s

    def _by_time(self, rows: int, seconds: float) -> float:
        """Return the rows that a SELECT with a sort may have, behind one with these."""
        near = self._limits.select_s and seconds > self._limits.select_s / 2
        return rows if near else rows * _MOST_GROWTH

    def too_long(self) -> bool:
        """Note that the server ended the SELECT; return whether a smaller one may help."""
        smaller, self.rows = self.rows > 1, max(1, self.rows // 2)
        return smaller


class Rate:
    """The rows a second of a snapshot, of all its connections together. One thread at a time uses it.

    rows_per_s: at most; 0: as fast as it goes.
    """

    def __init__(self, rows_per_s: int) -> None:
        self._rows_per_s = rows_per_s
        self._free_at = 0.0

    def pause_s(self, rows: int, began: float, now: float) -> float:
        """Return the seconds to wait after a chunk of these rows.

        began, now: when the chunk began, and the present, monotonic, s.
        """
        if not self._rows_per_s:
            return 0.0
        self._free_at = max(self._free_at, began) + rows / self._rows_per_s
        return max(0.0, self._free_at - now)
