"""Segment: consecutive wire-ready entries of one journal, with flat arrays beside them.

`frames` holds the entries as a Messages body carries them (field 2, length-delimited), so a MESSAGES packet is a short
header plus slices of `frames`. The server never parses an entry on its way to the client.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import accumulate
from typing import Any

from canal_ha.model.buffers import Buffers
from canal_ha.model.immutable import immutable
from canal_ha.model.position import LogPosition, split_journal


class EntryKind(IntEnum):
    """Kinds of entry that the ring and the sink distinguish."""

    BEGIN = 1
    ROWS = 2
    END = 3
    DDL = 4  # ALTER, CREATE, ERASE, RENAME, TRUNCATE, CINDEX, DINDEX: canal delivers these alone and acknowledges there
    QUERY = 5  # every other statement, including XA COMMIT and XA ROLLBACK
    HEARTBEAT = 6


_END, _DDL = int(EntryKind.END), int(EntryKind.DDL)  # found faster than the members


@dataclass(frozen=True, slots=True)
class Source:
    """The server that a segment's rows come from.

    address, port: as configured.
    uuid: MySQL's server_uuid; "" on MariaDB.
    server_id: the server's own id; 0 when unknown.
    keeps_order: whether, as a replica, it commits in its source's order.
    """

    address: str
    port: int
    uuid: str = ""
    server_id: int = 0
    keeps_order: bool = True

    @property
    def server(self) -> str:
        """Identity of the server, independent of its address: see LogPosition.server."""
        return self.uuid or (str(self.server_id) if self.server_id else "")


@immutable
class Segment:
    """Whole entries of one journal, in binlog order, ending at the end of a transaction or of a piece of a large one.

    frames: bytes-like. Arrays with one element for each entry:
    ends ('q'): end of its frame in `frames`; offsets ('q'): event start in the journal, bytes; subs ('i'): index among
    the entries that share an offset (compressed payloads), else 0; timestamps ('q'): ms; event_lengths ('q'): bytes;
    row_counts ('i'); kinds: one byte of `EntryKind`.
    Running totals that include the entry: entry_ends ('q'): bytes of entries without the tags and lengths of their
    frames, as canal's MEMSIZE counts them; row_ends ('q'): rows.
    One element for each run of entries that agree: run_starts ('q', first is 0), run_server_ids ('q'), run_gtids (set
    text including the run's transaction, "" outside GTID mode).
    cut: the segment ends inside a transaction, which the next segment continues.
    buffers: where `frames` came from, and where `recycle` returns it.
    part, others: in a merged stream, this source's number and the positions of the others, see LogPosition.
    chunk_end: of a snapshot's chunk, the cursor once its last entry is acknowledged, with the progress; else None.
    hashed_rows: of large row entries, by index: what fingerprints hash of their last rows, the last row first.
    copied: of all entries, what streams keep for fingerprints, if the segment is small or several streams get it. A
        segment that is made of this one has none.
    """

    source: Source
    journal: str
    frames: bytes | bytearray | memoryview
    ends: array[int]
    offsets: array[int]
    subs: array[int]
    timestamps: array[int]
    event_lengths: array[int]
    row_counts: array[int]
    kinds: bytes | bytearray
    run_starts: array[int]
    run_server_ids: array[int]
    run_gtids: tuple[str, ...]
    entry_ends: array[int]
    row_ends: array[int]
    cut: bool = False
    buffers: Buffers | None = None
    part: int = 0
    others: tuple[LogPosition, ...] = ()
    chunk_end: LogPosition | None = None
    hashed_rows: Mapping[int, tuple[bytes, ...]] = field(default_factory=dict)
    copied: Any = field(default=None, init=False, compare=False, repr=False)
    _end_consumed: LogPosition | None = field(default=None, init=False, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.ends)

    def recycle(self) -> None:
        """Give `frames` back for reuse, because its owner no longer needs it; existing views stay valid."""
        if self.buffers is not None and isinstance(self.frames, bytearray):
            self.buffers.give(self.frames)

    def keep_memory(self) -> None:
        """Let nobody take `frames` for reuse, before others get the segment."""
        object.__setattr__(self, "buffers", None)

    def end_consumed(self) -> LogPosition:
        """Return the position behind the last entry, which ends a transaction. Streams that share it get one object."""
        end = self._end_consumed
        if end is None:
            end = self.position(len(self.ends) - 1, consumed=True)
            object.__setattr__(self, "_end_consumed", end)
        return end

    def frame_start(self, index: int) -> int:
        """Return where the frame of entry `index` starts in `frames`; len(self) gives the end of the last frame."""
        return self.ends[index - 1] if index else 0

    def frames_view(self, first: int, last: int) -> memoryview:
        """Return the frames of entries first..last (last exclusive) without copying."""
        ends = self.ends
        return memoryview(self.frames)[ends[first - 1] if first else 0 : ends[last - 1] if last else 0]

    def entry_bytes(self, first: int, last: int) -> int:
        """Return the total serialized length of entries first..last (last exclusive), bytes."""
        return _between(self.entry_ends, first, last)

    def entry_size(self, index: int) -> int:
        """Return the serialized length of one entry, bytes."""
        return _between(self.entry_ends, index, index + 1)

    def rows(self, first: int, last: int) -> int:
        """Return the number of rows in entries first..last (last exclusive)."""
        ends = self.row_ends
        if not first < last:
            return 0
        return ends[last - 1] - ends[first - 1] if first else ends[last - 1]

    def entry(self, index: int) -> bytes:
        """Return a copy of the serialized entry."""
        end = self.ends[index]
        return bytes(memoryview(self.frames)[end - self.entry_size(index) : end])

    def entries(self) -> Iterator[bytes]:
        """Return copies of all entries, in order."""
        return (self.entry(index) for index in range(len(self)))

    def run_of(self, index: int) -> int:
        """Return the index of the run that entry `index` belongs to."""
        return bisect_right(self.run_starts, index) - 1

    def first_behind(self, offset: int, sub: int) -> int:
        """Return the index of the first entry behind (offset, sub) of this journal; len(self) if there is none."""
        return bisect_right(range(len(self)), (offset, sub), key=lambda at: (self.offsets[at], self.subs[at]))

    def ends_event(self, index: int) -> bool:
        """Whether entry `index` is the last one of its event here; a compressed payload makes several of one event."""
        return index + 1 == len(self.ends) or self.offsets[index + 1] != self.offsets[index]

    def last_end(self, first: int, last: int) -> int:
        """Return the last of entries first..last (last exclusive) up to which everything is whole; -1 if none is.

        It ends a transaction, or is a DDL. A DDL inside a transaction with a GTID (CREATE TABLE ... SELECT) does not
        count, because its set has the whole transaction.
        """
        done = last
        while True:
            done = max(self.kinds.rfind(_END, first, done), self.kinds.rfind(_DDL, first, done))
            if done < 0 or self.kinds[done] == _END or not self._goes_on(done):
                return done

    def _goes_on(self, index: int) -> bool:
        """Whether more entries of the same GTID follow this one."""
        run = self.run_of(index)
        if not self.run_gtids[run]:
            return False
        return self.cut if index + 1 == len(self) else self.run_of(index + 1) == run

    # ---- parts of it

    def slice(self, first: int, last: int) -> Segment:
        """Return entries first..last (last exclusive): the segment itself when that is all of it, else a copy.

        The copy is cut if it ends inside a transaction, as far as GTIDs tell.
        """
        if first == 0 and last == len(self):
            return self
        start = self.frame_start(first)
        runs = range(self.run_of(first), self.run_of(last - 1) + 1)
        return replace(
            self,
            frames=bytes(self.frames_view(first, last)),
            ends=array("q", [end - start for end in self.ends[first:last]]),
            offsets=self.offsets[first:last],
            subs=self.subs[first:last],
            timestamps=self.timestamps[first:last],
            event_lengths=self.event_lengths[first:last],
            row_counts=self.row_counts[first:last],
            kinds=self.kinds[first:last],
            run_starts=array("q", [max(0, self.run_starts[run] - first) for run in runs]),
            run_server_ids=array("q", [self.run_server_ids[run] for run in runs]),
            run_gtids=tuple(self.run_gtids[run] for run in runs),
            entry_ends=array("q", [end - self.entry_bytes(0, first) for end in self.entry_ends[first:last]]),
            row_ends=array("q", [end - self.rows(0, first) for end in self.row_ends[first:last]]),
            cut=self.cut if last == len(self) else self.kinds[last - 1] != _END and self._goes_on(last - 1),
            chunk_end=self.chunk_end if last == len(self) else None,
            buffers=None,
            hashed_rows={at - first: rows for at, rows in self.hashed_rows.items() if first <= at < last},
        )

    def select(self, kept: Sequence[int]) -> Segment:
        """Return a copy with these entries alone. kept: ascending indexes, at least one."""
        frames = memoryview(self.frames)
        spans = [(self.frame_start(index), self.ends[index]) for index in kept]
        runs = [self.run_of(index) for index in kept]
        starts = [new for new, run in enumerate(runs) if new == 0 or run != runs[new - 1]]
        return replace(
            self,
            frames=b"".join(frames[start:end] for start, end in spans),
            ends=array("q", accumulate(end - start for start, end in spans)),
            offsets=array("q", [self.offsets[index] for index in kept]),
            subs=array("i", [self.subs[index] for index in kept]),
            timestamps=array("q", [self.timestamps[index] for index in kept]),
            event_lengths=array("q", [self.event_lengths[index] for index in kept]),
            row_counts=array("i", [self.row_counts[index] for index in kept]),
            kinds=bytes(self.kinds[index] for index in kept),
            run_starts=array("q", starts),
            run_server_ids=array("q", [self.run_server_ids[runs[start]] for start in starts]),
            run_gtids=tuple(self.run_gtids[runs[start]] for start in starts),
            entry_ends=array("q", accumulate(self.entry_size(index) for index in kept)),
            row_ends=array("q", accumulate(self.row_counts[index] for index in kept)),
            cut=self.cut and kept[-1] == len(self) - 1,
            chunk_end=self.chunk_end if kept[-1] == len(self) - 1 else None,
            buffers=None,
            hashed_rows={new: self.hashed_rows[old] for new, old in enumerate(kept) if old in self.hashed_rows},
        )

    def behind(self, last: LogPosition) -> Segment | None:
        """Return the entries behind the entry at `last`: all of them if `last` is of another server, None if none is.

        last: of a merged stream, it holds a position of each source, and the one of this source counts.
        """
        if self.part:
            own = last.of(self.part)
            if own is None:
                return self
            last = own
        if last.server and self.source.server and last.server != self.source.server:
            return self  # the positions of two servers cannot be compared
        here, there = split_journal(self.journal), split_journal(last.journal)
        if here > there:
            return self
        first = len(self) if here < there else self.first_behind(last.offset, last.sub_index)
        if first and first == len(self):
            return None
        return self.slice(first, len(self))

    def before(self, end: LogPosition) -> Segment | None:
        """Return the entries of events that start before a position of the same server; None if there are none."""
        here, there = split_journal(self.journal), split_journal(end.journal)
        if here != there:
            return self if here < there else None
        count = bisect_left(self.offsets, end.offset)
        if len(self) and not count:
            return None
        return self.slice(0, count)

    def position(self, index: int, *, consumed: bool = False) -> LogPosition:
        """Return the position of entry `index`. consumed: see LogPosition."""
        run = self.run_of(index) if len(self.run_starts) > 1 else 0
        source = self.source
        return LogPosition(
            self.journal,
            self.offsets[index],
            self.timestamps[index],
            self.run_server_ids[run],
            self.run_gtids[run],
            source.address,
            source.port,
            consumed,
            self.subs[index],
            source.server,
            part=self.part,
            others=self.others,
        )


def _between(ends: array[int], first: int, last: int) -> int:
    return ends[last - 1] - (ends[first - 1] if first else 0) if last > first else 0
