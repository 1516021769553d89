"""Entries -> groups -> segments: which entries become visible, and when (docs/protocol.md#groups).

Entries are appended to one buffer of frames with flat arrays beside it. A group is what canal's transaction buffer
flushes at once. Flushing makes it visible, or drops it if it is an empty transaction that canal would drop.
"""

from __future__ import annotations

from array import array

import canal_ha.decode.kernel.kinds as k
import canal_ha.decode.kernel.primitives as p
from canal_ha.model.buffers import LARGEST, Buffers

_ENTRIES_HELD = 4096  # most entries for which a segment reserves room


class Grouping:
    """Frames and arrays of one stream. The first `visible` entries are decided; those behind form the open group.

    visible_bytes: where the frames of the open group start.
    """

    __slots__ = (
        "buffers",
        "cut",
        "empty_count",
        "empty_ms",
        "ends",
        "entry_ends",
        "event_lengths",
        "executed",
        "has_rows",
        "kinds",
        "offsets",
        "out",
        "row_counts",
        "row_ends",
        "run_server_ids",
        "run_starts",
        "run_text_ends",
        "run_texts",
        "subs",
        "timestamps",
        "transaction_size",
        "visible",
        "visible_bytes",
    )

    def __init__(self, transaction_size: int) -> None:
        self.transaction_size = transaction_size
        self.executed = bytearray()  # the GTID set of the run that entries are added to
        self.has_rows = False  # whether the open group holds an entry that is not BEGIN or END
        self.cut = False  # whether the open group continues a transaction of which pieces are visible
        self.empty_ms = 0  # time of the last empty transaction that became visible
        self.empty_count = 0
        self.buffers: Buffers | None = Buffers()
        self.out = bytearray()
        self._renew(0)

    def _renew(self, entries: int) -> None:
        """Make new arrays. entries: how many to reserve room for; growing takes the interpreter's lock each time."""
        self.ends = array("q")
        self.offsets = array("q")
        self.subs = array("i")
        self.timestamps = array("q")
        self.event_lengths = array("q")
        self.row_counts = array("i")
        self.entry_ends = array("q")
        self.row_ends = array("q")
        self.kinds = bytearray()
        self.run_starts = array("q")
        self.run_server_ids = array("q")
        self.run_texts = bytearray()  # their GTID sets, one after the other
        self.run_text_ends = array("q")
        for column in (self.ends, self.offsets, self.timestamps, self.event_lengths, self.entry_ends, self.row_ends):
            p.hold(column, entries)
        p.hold(self.subs, entries)
        p.hold(self.row_counts, entries)
        p.reserve(self.kinds, entries)
        p.truncate(self.kinds, 0)
        self.visible = 0
        self.visible_bytes = 0

    @property
    def gtid(self) -> str:
        """The GTID set executed at the next entry."""
        return self.executed.decode()

    @gtid.setter
    def gtid(self, text: str) -> None:
        self.executed[:] = text.encode()

    @property
    def run_gtids(self) -> list[str]:
        """The GTID set of each run."""
        found = []
        start = 0
        for run in range(p.length(self.run_text_ends)):
            stop = p.item(self.run_text_ends, run)
            found.append(p.as_text(self.run_texts, start, stop))
            start = stop
        return found

    def room(self) -> None:
        """Call before adding an entry: makes the pieces of a transaction visible that has become too large."""
        if (
            p.length(self.ends) - self.visible >= self.transaction_size
            or p.size(self.out) - self.visible_bytes >= k.PIECE_BYTES
        ):
            self.flush()
            self.cut = True

    def added(
        self,
        kind: int,
        offset: int,
        sub: int,
        timestamp_ms: int,
        event_length: int,
        rows: int,
        server_id: int,
        entry_size: int,
    ) -> None:
        """Record an entry whose frame was appended to `out`."""
        entries = p.length(self.ends)
        runs = p.length(self.run_starts)
        if runs == 0 or p.item(self.run_server_ids, runs - 1) != server_id or not self._is_executed(runs - 1):
            p.push(self.run_starts, entries)
            p.push(self.run_server_ids, server_id)
            p.put(self.run_texts, self.executed)
            p.push(self.run_text_ends, p.size(self.run_texts))
        p.push(self.ends, p.size(self.out))
        p.push(self.offsets, offset)
        p.push_small(self.subs, sub)
        p.push(self.timestamps, timestamp_ms)
        p.push(self.event_lengths, event_length)
        p.push_small(self.row_counts, rows)
        p.put_byte(self.kinds, kind)
        p.push(self.entry_ends, entry_size + (p.item(self.entry_ends, entries - 1) if entries else 0))
        p.push(self.row_ends, rows + (p.item(self.row_ends, entries - 1) if entries else 0))

    def _is_executed(self, run: int) -> bool:
        """Return whether a run, the last one, has the GTID set of the entries being added."""
        start = p.item(self.run_text_ends, run - 1) if run else 0
        return p.ends_in(self.run_texts, start, self.executed)

    def flush(self) -> None:
        """Make the open group visible; an empty transaction only at intervals."""
        first = self.visible
        if p.length(self.ends) > first:
            if self.has_rows or self.cut or self._shows_empty(p.item(self.timestamps, first)):
                self.visible = p.length(self.ends)
                self.visible_bytes = p.size(self.out)
                self.has_rows = False
                self.cut = False
            else:
                self.rewind()

    def _shows_empty(self, timestamp: int) -> bool:
        """Return whether an empty transaction becomes visible."""
        if -k.EMPTY_INTERVAL_MS <= timestamp - self.empty_ms <= k.EMPTY_INTERVAL_MS:
            self.empty_count += 1
            if self.empty_count <= k.EMPTY_THRESHOLD:
                return False
        self.empty_count = 0
        self.empty_ms = timestamp
        return True

    def rewind(self) -> None:
        """Drop the open group, and the remains of a broken event."""
        first = self.visible
        p.truncate(self.out, self.visible_bytes)
        p.truncate(self.kinds, first)
        p.cut(self.ends, first)
        p.cut(self.offsets, first)
        p.cut(self.subs, first)
        p.cut(self.timestamps, first)
        p.cut(self.event_lengths, first)
        p.cut(self.row_counts, first)
        p.cut(self.entry_ends, first)
        p.cut(self.row_ends, first)
        runs = p.length(self.run_starts)
        while runs and p.item(self.run_starts, runs - 1) >= first:
            runs -= 1
        p.cut(self.run_starts, runs)
        p.cut(self.run_server_ids, runs)
        p.cut(self.run_text_ends, runs)
        p.truncate(self.run_texts, p.item(self.run_text_ends, runs - 1) if runs else 0)
        self.has_rows = False
        self.cut = False

    def take(self) -> Grouping:
        """Hand over the visible entries; move the open group to the front of other buffers."""
        taken = Grouping(self.transaction_size)
        self._hand_over(taken)
        taken.kinds = self.kinds
        taken.ends, taken.offsets, taken.subs, taken.timestamps = self.ends, self.offsets, self.subs, self.timestamps
        taken.event_lengths, taken.row_counts = self.event_lengths, self.row_counts
        taken.entry_ends, taken.row_ends = self.entry_ends, self.row_ends
        taken.run_starts, taken.run_server_ids = self.run_starts, self.run_server_ids
        taken.run_texts, taken.run_text_ends = self.run_texts, self.run_text_ends
        taken.visible, taken.visible_bytes = self.visible, self.visible_bytes
        self._renew(min(p.length(taken.ends), _ENTRIES_HELD))
        if len(taken.ends) > taken.visible:
            self._adopt(taken)
            has_rows, cut = self.has_rows, self.cut
            taken.rewind()
            self.has_rows, self.cut = has_rows, cut
        return taken

    def _hand_over(self, taken: Grouping) -> None:
        """Hand over the visible frames without copying; copy only the open group's.

        If a buffer is less than half full, copy instead, because its whole capacity counts against the ring's budget.
        """
        size = self.visible_bytes
        capacity = self.out.__sizeof__()
        assert self.buffers is not None
        if size * 2 >= capacity:
            taken.out = self.out
            taken.buffers = self.buffers
            self.out = self.buffers.take()
            p.truncate(self.out, 0)
            p.put(self.out, taken.out[size:])
            p.truncate(taken.out, size)
        else:
            taken.out = self.out[:size]
            taken.buffers = None
            if capacity > LARGEST:
                self.out = self.out[size:]
            else:
                p.forget(self.out, size)

    def _adopt(self, taken: Grouping) -> None:
        """Copy the open group of `taken` without its frames."""
        first = taken.visible
        base = taken.visible_bytes
        self.kinds += taken.kinds[first:]
        self.offsets += taken.offsets[first:]
        self.subs += taken.subs[first:]
        self.timestamps += taken.timestamps[first:]
        self.event_lengths += taken.event_lengths[first:]
        self.row_counts += taken.row_counts[first:]
        for end in taken.ends[first:]:
            self.ends.append(end - base)
        for mine, theirs in ((self.entry_ends, taken.entry_ends), (self.row_ends, taken.row_ends)):
            before = theirs[first - 1] if first else 0
            for end in theirs[first:]:
                mine.append(end - before)
        for run in range(len(taken.run_starts)):
            last = run + 1 == len(taken.run_starts)
            if last or taken.run_starts[run + 1] > first:
                self.run_starts.append(max(taken.run_starts[run] - first, 0))
                self.run_server_ids.append(taken.run_server_ids[run])
                start = taken.run_text_ends[run - 1] if run else 0
                self.run_texts += taken.run_texts[start : taken.run_text_ends[run]]
                self.run_text_ends.append(len(self.run_texts))
