"""Sink: counts decoded segments, removes heartbeats and applies canal.instance.filter.transaction.entry.

It runs on the source thread, between decoding and the ring. It copies a segment only to remove entries from it. Rules:
docs/protocol.md#sink. Groups without rows never get here: the decoder drops them.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from canal_ha.config.model import DecodeOptions
from canal_ha.model.segment import EntryKind, Segment

SKIPPED_MAX = 8192  # begins and ends dropped in a row before one passes
SKIPPED_MS = 5000  # or event time since the last one that passed, ms

_END, _HEARTBEAT = int(EntryKind.END), int(EntryKind.HEARTBEAT)  # numbers are found faster than members


class Sink:
    """Filters and counts the segments of one stream.

    put: stores a segment in the ring; it may block, which blocked_ms counts.
    options: the filter settings.
    clock: seconds, monotonic.

    transactions: ends seen. rows: rows passed on. last_time_ms: time of the newest entry seen.
    """

    def __init__(
        self,
        put: Callable[[Segment], object],
        options: DecodeOptions,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.transactions = 0
        self.rows = 0
        self.blocked_ms = 0.0
        self.last_time_ms = 0
        self._put = put
        self._drop_boundaries = options.filter_transaction_entry
        self._clock = clock
        self._skipped = 0
        self._passed_at_ms = 0

    def accept(self, segment: Segment) -> None:
        """Count a segment and put its remaining entries, if any. Raises whatever put raises."""
        if not segment.kinds:
            return
        self.transactions += segment.kinds.count(_END)
        self.last_time_ms = segment.timestamps[-1]
        if not self._drop_boundaries and _HEARTBEAT not in segment.kinds:
            kept: Segment | None = segment
        else:
            kept = self._compact(segment)
        if kept is None:
            return
        self.rows += kept.row_ends[-1]
        since = self._clock()
        try:
            self._put(kept)
        finally:
            self.blocked_ms += (self._clock() - since) * 1000

    def _compact(self, segment: Segment) -> Segment | None:
        if segment.chunk_end:
            return segment  # its end moves the cursor and the progress together
        kept = [index for index, kind in enumerate(segment.kinds) if self._keeps(kind, segment.timestamps[index])]
        if len(kept) == len(segment):
            return segment
        return segment.select(kept) if kept else None

    def _keeps(self, kind: int, time_ms: int) -> bool:
        if kind == EntryKind.HEARTBEAT:
            return False
        if not self._drop_boundaries or kind not in (EntryKind.BEGIN, EntryKind.END):
            return True
        self._skipped += 1
        if self._skipped <= SKIPPED_MAX and abs(time_ms - self._passed_at_ms) <= SKIPPED_MS:
            return False
        if kind == EntryKind.END:  # a begin that passes leaves the counters unchanged, so that its end passes too
            self._skipped = 0
            self._passed_at_ms = time_ms
        return True
