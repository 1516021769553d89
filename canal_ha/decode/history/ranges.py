"""Ranges of a binlog whose statements are all known. Knowledge of one range says nothing about another.

No locks here: the history that owns the ranges has one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from canal_ha.decode.history.versions import Order
from canal_ha.model.position import LogPosition


@dataclass(frozen=True, slots=True)
class Range:
    """Every statement from `start` up to, but not including, `end` is known. Both are edges."""

    start: LogPosition
    end: LogPosition


def edge(at: LogPosition) -> LogPosition:
    """Return the position just before an event, which sorts before all its entries.

    A stream that begins at a consumed position reads that event again, so `consumed` does not count.
    """
    return LogPosition(at.journal, at.offset, at.timestamp_ms, sub_index=-1)


class Ranges:
    """Separate ranges in the order of their positions."""

    def __init__(self) -> None:
        self._ranges: list[Range] = []

    def __iter__(self) -> Iterator[Range]:
        return iter(tuple(self._ranges))

    def __len__(self) -> int:
        return len(self._ranges)

    def of(self, order: Order) -> Range | None:
        """Return the range that contains a position, edges included."""
        found = self.before(order)
        return found if found is not None and order <= found.end.order else None

    def before(self, order: Order) -> Range | None:
        """Return the last range that begins at a position or before it."""
        index = bisect_right(self._ranges, order, key=_start)
        return self._ranges[index - 1] if index else None

    def behind(self, order: Order) -> Range | None:
        """Return the first range that begins behind a position."""
        index = bisect_right(self._ranges, order, key=_start)
        return self._ranges[index] if index < len(self._ranges) else None

    def ending_before(self, order: Order) -> Range | None:
        """Return the last range that ends before a position."""
        return next((known for known in reversed(self._ranges) if known.end.order < order), None)

    def add(self, start: LogPosition, end: LogPosition) -> None:
        """Join a stretch with the ranges that it overlaps or touches. Ignore it if it ends before it begins."""
        start, end = edge(start), edge(end)
        if end.order < start.order:
            return
        apart = []
        for known in self._ranges:
            if known.end.order < start.order or known.start.order > end.order:
                apart.append(known)
            else:
                start = min(start, known.start, key=_order)
                end = max(end, known.end, key=_order)
        self._ranges = sorted((*apart, Range(start, end)), key=_start)

    def forget_before(self, at: LogPosition) -> None:
        """Drop everything before a position."""
        at = edge(at)
        kept = (known for known in self._ranges if known.end.order >= at.order)
        self._ranges = [Range(max(known.start, at, key=_order), known.end) for known in kept]

    def forget(self, known: Range) -> None:
        """Drop one range."""
        self._ranges = [each for each in self._ranges if each != known]


def _order(at: LogPosition) -> Order:
    return at.order


def _start(known: Range) -> Order:
    return known.start.order
