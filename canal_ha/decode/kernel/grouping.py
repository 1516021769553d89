"""Entries -> groups -> segments: which entries become visible, and when (docs/protocol.md#groups).

Entries are appended to one buffer of frames with flat arrays beside it. A group is what canal's transaction buffer
flushes at once. Flushing settles it, or drops it if it is an empty transaction that canal would drop.

Settled entries become visible at once outside transactions. Inside one, the source may still roll them back, so they
become visible when the transaction ends, or in pieces while it grows too large.
"""

from __future__ import annotations

from array import array

import canal_ha.decode.kernel.kinds as k
import canal_ha.decode.kernel.primitives as p
from canal_ha.model.buffers import LARGEST, Buffers

_ENTRIES_HELD = 4096  # most entries for which a segment reserves room


class Grouping:
    """Frames and arrays of one stream. The first `visible` entries may be taken; behind `settled` is the open group.

    visible_bytes, settled_bytes: where the frames behind the visible and the settled entries start.
    given: how many entries were taken before.
    undoable: inside a transaction, whose entries can be dropped until they are visible.
    shown: whether entries of this transaction became visible before its end.
    whole: whether transactions become visible at their end alone, however large they are.
    mark_names, mark_ends, mark_counts: the savepoints of this transaction: their names one after the other, where each
    name ends, and how many entries precede what follows it.
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
        "given",
        "has_rows",
        "kinds",
        "mark_counts",
        "mark_ends",
        "mark_name",
        "mark_names",
        "offsets",
        "out",
        "row_counts",
        "row_ends",
        "run_server_ids",
        "run_starts",
        "run_text_ends",
        "run_texts",
        "settled",
        "settled_bytes",
        "shown",
        "subs",
        "timestamps",
        "transaction_size",
        "undoable",
        "visible",
        "visible_bytes",
        "whole",
    )

    def __init__(self, transaction_size: int) -> None:
        self.transaction_size = transaction_size
        self.executed = bytearray()  # the GTID set of the run that entries are added to
        self.has_rows = False  # whether the open group holds an entry that is not BEGIN or END
        self.cut = False  # whether the open group continues a transaction of which pieces are visible
        self.empty_ms = 0  # time of the last empty transaction that became visible
        self.empty_count = 0
        self.given = 0
        self.undoable = False
        self.shown = False
        self.whole = False
        self.mark_names = bytearray()
        self.mark_ends = array("q")
        self.mark_counts = array("q")
        self.mark_name = bytearray()  # of the savepoint being set
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
        self.settled = 0
        self.settled_bytes = 0

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
        if self._too_large(self.settled, self.settled_bytes):
            self.flush()
            self.cut = True
        if self.undoable and self._too_large(self.visible, self.visible_bytes):
            self.shown = True
            self._show()

    def _too_large(self, first: int, first_byte: int) -> bool:
        """Return whether the entries from `first` on are more than a piece."""
        if self.whole:
            return False
        return p.length(self.ends) - first >= self.transaction_size or p.size(self.out) - first_byte >= k.PIECE_BYTES

    def begin(self) -> None:
        """Begin a transaction; everything before it becomes visible."""
        self.end()
        self.flush()
        self.undoable = True
        self.shown = False
        self._cut_marks(0)

    def end(self) -> None:
        """End the transaction: what is settled becomes visible."""
        self.undoable = False
        self._show()

    def _show(self) -> None:
        self.visible = self.settled
        self.visible_bytes = self.settled_bytes

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
        """Settle the open group. Drop an empty transaction unless one is due, see _shows_empty."""
        first = self.settled
        if p.length(self.ends) > first:
            if self.has_rows or self.cut or self._shows_empty(p.item(self.timestamps, first)):
                self.settled = p.length(self.ends)
                self.settled_bytes = p.size(self.out)
                self.has_rows = False
                self.cut = False
            else:
                self.rewind()
        if not self.undoable:
            self._show()

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
        self._drop_from(self.settled)

    def mark(self, src: bytes, start: int, stop: int) -> None:
        """Set a savepoint behind the entries added. src[start:stop]: its name."""
        marks = p.length(self.mark_ends)
        first = p.item(self.mark_ends, marks - 2) if marks > 1 else 0
        p.truncate(self.mark_name, 0)
        p.put_slice(self.mark_name, src, start, stop)
        count = self.given + p.length(self.ends)
        if marks and p.ends_in(self.mark_names, first, self.mark_name):  # set again in a loop: takes no more memory
            p.set_item(self.mark_counts, marks - 1, count)
        else:
            p.put(self.mark_names, self.mark_name)
            p.push(self.mark_ends, p.size(self.mark_names))
            p.push(self.mark_counts, count)

    @property
    def marks(self) -> list[bytes]:
        """The names of this transaction's savepoints, in order."""
        ends = list(self.mark_ends)
        return [bytes(self.mark_names[first:end]) for first, end in zip([0, *ends], ends, strict=False)]

    def _cut_marks(self, count: int) -> None:
        """Keep the first `count` savepoints."""
        if p.length(self.mark_ends) > count:
            p.truncate(self.mark_names, p.item(self.mark_ends, count - 1) if count else 0)
            p.cut(self.mark_ends, count)
            p.cut(self.mark_counts, count)

    def undo_to(self, mark: int) -> bool:
        """Forget the savepoints behind this one, by index, and the entries; return False if some are visible."""
        self._cut_marks(mark + 1)
        count = p.item(self.mark_counts, mark)
        if count < self.given + self.visible:
            return False
        self._drop_from(min(count - self.given, p.length(self.ends)))
        self.cut = self.undoable  # what is left of the transaction shows, and so must its end
        return True

    def undo_all(self) -> bool:
        """Drop every entry of this transaction; return False if some are visible."""
        if self.shown:
            return False
        self._drop_from(self.visible)
        return True

    def _drop_from(self, first: int) -> None:
        """Drop entries from the index `first` on, which is not below `visible`."""
        size = p.item(self.ends, first - 1) if first else 0
        if first < self.settled:
            self.settled = first
            self.settled_bytes = size
        p.truncate(self.out, size)
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
        if first <= self.settled:
            self.has_rows = False
            self.cut = False

    def take(self) -> Grouping:
        """Hand over the visible entries; move those behind them to the front of other buffers."""
        taken = Grouping.__new__(Grouping)  # without the buffers of a new one: it gets these
        taken.whole = taken.undoable = taken.has_rows = taken.cut = False
        self._hand_over(taken)
        taken.kinds = self.kinds
        taken.ends, taken.offsets, taken.subs, taken.timestamps = self.ends, self.offsets, self.subs, self.timestamps
        taken.event_lengths, taken.row_counts = self.event_lengths, self.row_counts
        taken.entry_ends, taken.row_ends = self.entry_ends, self.row_ends
        taken.run_starts, taken.run_server_ids = self.run_starts, self.run_server_ids
        taken.run_texts, taken.run_text_ends = self.run_texts, self.run_text_ends
        taken.visible = taken.settled = self.visible
        taken.visible_bytes = taken.settled_bytes = self.visible_bytes
        settled, settled_bytes = self.settled - self.visible, self.settled_bytes - self.visible_bytes
        self.given += self.visible
        self._renew(min(p.length(taken.ends), _ENTRIES_HELD))
        self.settled, self.settled_bytes = settled, settled_bytes
        if len(taken.ends) > taken.visible:
            self._adopt(taken)
            taken.rewind()
        return taken

    def _hand_over(self, taken: Grouping) -> None:
        """Hand over the visible frames without copying; copy only those behind them.

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
            if self.whole:  # the next transaction is as large
                p.reserve(self.out, size - (size >> 2))  # growth takes half as much again
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
        """Copy what `taken` has behind its visible entries, without the frames."""
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
