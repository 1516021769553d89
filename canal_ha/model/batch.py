"""Batch: the entries that a GET returns, and the range of the ring that they cover."""

from __future__ import annotations

from canal_ha.model.immutable import immutable
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import Segment

EMPTY_BATCH_ID = -1


@immutable
class PositionRange:
    """The end of a batch.

    end: position of its last entry.
    ack: the last position that a cursor may take (docs/protocol.md#ack-point); None if there is none.
    end_seq: ring sequence of the last entry.
    snapshot: progress of the client's snapshot once the batch is acknowledged; "" if the batch ends no chunk.
    """

    end: LogPosition
    ack: LogPosition | None
    end_seq: int
    snapshot: str = ""


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
