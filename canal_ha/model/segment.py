"""Segment: a run of whole, wire-ready entries from one journal, with flat arrays beside them.

`frames` holds the entries in the form in which a Messages body carries them (field 2, length-delimited), so that a
MESSAGES packet is a short head plus slices of it. Nobody parses an entry on the server's way to the client.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from canal_ha.model.buffers import Buffers
from canal_ha.model.immutable import immutable
from canal_ha.model.position import LogPosition


class EntryKind(IntEnum):
    """What an entry is, as the ring and the sink need to know it."""

    BEGIN = 1
    ROWS = 2
    END = 3
    DDL = 4  # ALTER, CREATE, ERASE, RENAME, TRUNCATE, CINDEX, DINDEX: the types canal isolates and acknowledges at
    QUERY = 5  # every other statement, XA COMMIT and XA ROLLBACK included
    HEARTBEAT = 6


@dataclass(frozen=True, slots=True)
class Source:
    """Where a segment's rows come from. address, port: as configured; uuid: MySQL's server_uuid, "" on MariaDB;
    server_id: the server's own, 0 when unknown.
    """

    address: str
    port: int
    uuid: str = ""
    server_id: int = 0

    @property
    def server(self) -> str:
        """Which server it is, whatever its address: see LogPosition.server."""
        return self.uuid or (str(self.server_id) if self.server_id else "")


@immutable
class Segment:
    """Whole entries of one journal, in binlog order, ending where a transaction (or a piece of a large one) ends.

    frames: bytes-like; per entry one element of
    ends ('q'): end of its frame in `frames`; offsets ('q'): event start in the journal, bytes; subs ('i'): index among
    the entries that share an offset (compressed payloads), else 0; timestamps ('q'): ms; event_lengths ('q'): bytes;
    row_counts ('i'); kinds: one byte of `Kind`; and up to and including the entry: entry_ends ('q'), bytes of entries
    without their frames' tags and lengths, which is what canal's MEMSIZE counts; row_ends ('q'), rows.
    Per run of entries that agree on them: run_starts ('q', first is 0), run_server_ids ('q'), run_gtids (set text
    including the run's transaction, "" outside GTID mode).
    cut: it ends inside a transaction, of which the next one brings more; buffers: where `frames` came from, and goes
    when `recycle` is called; part, others: of a merged stream, which of its sources this is from, and where the others
    stood, see LogPosition.
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

    def __len__(self) -> int:
        return len(self.ends)

    def recycle(self) -> None:
        """The owner will not look at `frames` any more; views of them made before stay good."""
        if self.buffers is not None and isinstance(self.frames, bytearray):
            self.buffers.give(self.frames)

    def frame_start(self, index: int) -> int:
        """Where the frame of entry `index` starts in `frames`; len(self) gives the end of the last."""
        return self.ends[index - 1] if index else 0

    def frames_view(self, first: int, last: int) -> memoryview:
        """The frames of entries first..last (last exclusive), not copied."""
        return memoryview(self.frames)[self.frame_start(first) : self.frame_start(last)]

    def entry_bytes(self, first: int, last: int) -> int:
        """Sum of the serialized Entry lengths of entries first..last (last exclusive)."""
        return _between(self.entry_ends, first, last)

    def entry_size(self, index: int) -> int:
        """Serialized Entry length in bytes."""
        return _between(self.entry_ends, index, index + 1)

    def rows(self, first: int, last: int) -> int:
        """How many rows entries first..last hold (last exclusive)."""
        return _between(self.row_ends, first, last)

    def entry(self, index: int) -> bytes:
        """The serialized Entry itself, copied."""
        end = self.ends[index]
        return bytes(memoryview(self.frames)[end - self.entry_size(index) : end])

    def entries(self) -> Iterator[bytes]:
        """All entries in order, copied."""
        return (self.entry(index) for index in range(len(self)))

    def run_of(self, index: int) -> int:
        """Which run entry `index` belongs to."""
        return bisect_right(self.run_starts, index) - 1

    def first_behind(self, offset: int, sub: int) -> int:
        """Index of the first entry behind the one at (offset, sub) of this journal; len(self) when there is none."""
        return bisect_right(range(len(self)), (offset, sub), key=lambda at: (self.offsets[at], self.subs[at]))

    def position(self, index: int, *, consumed: bool = False) -> LogPosition:
        """Where entry `index` came from; consumed: see LogPosition."""
        run = self.run_of(index)
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
