"""Batch: the entries that a GET returns, and the range of the ring that they cover."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from canal_ha.model.immutable import immutable
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import Segment

EMPTY_BATCH_ID = -1

FindPositions = Callable[[], tuple[LogPosition | None, LogPosition | None]]


class PositionRange:
    """The end of a batch. Its positions are needed only after the batch was sent, so they are found later.

    end_seq: ring sequence of the last entry.
    snapshot: progress of the client's snapshot once the batch is acknowledged; "" if the batch ends no chunk.
    """

    __slots__ = ("_ack", "_end", "_find", "end_seq", "snapshot")

    def __init__(self, end_seq: int, snapshot: str, find: FindPositions) -> None:
        """find: returns `end` and `ack`. It refers to the memory of the batch until `settle`.

        It may return None for the end if that is the same as `ack`, but not consumed.
        """
        self.end_seq = end_seq
        self.snapshot = snapshot
        self._find: FindPositions | None = find
        self._end: LogPosition | None = None
        self._ack: LogPosition | None = None

    @property
    def end(self) -> LogPosition:
        """Position of the last entry."""
        self.settle()
        if self._end is None:  # seldom asked for
            assert self._ack is not None
            self._end = replace(self._ack, consumed=False)
        return self._end

    @property
    def ack(self) -> LogPosition | None:
        """The last position that a cursor may take (docs/protocol.md#ack-point); None if there is none."""
        if self._find:
            self.settle()
        return self._ack

    def settle(self) -> None:
        """Find the positions, and refer to the memory of the batch no longer."""
        if self._find:
            self._end, self._ack = self._find()
            self._find = None


@immutable
class Batch:
    """Entries taken from the ring.

    views: consecutive pieces of wire-ready frames, not copied.
    pieces: where the views come from, as (segment, first, last); last is exclusive.
    """

    range: PositionRange
    views: tuple[memoryview, ...]
    entries: int
    rows: int
    size_bytes: int
    pieces: tuple[tuple[Segment, int, int], ...] = ()


@immutable
class GetAnswer:
    """The answer to a GET. batch_id is EMPTY_BATCH_ID exactly when there is no batch."""

    batch_id: int
    batch: Batch | None = None
