"""Ring: the segments between a stream's source thread and its client. Two threads use it; its lock keeps them apart.

Three sequences counted in entries, put >= get >= ack, all from -1 (canal's MemoryEventStoreWithBuffer, specification
5.4). put belongs to the source thread and blocks while the ring is full; everything else belongs to the reactor
thread and never blocks for longer than the lock is held.

Room. A segment is admitted whole while fewer than buffer_size entries and fewer than buffer_size * mem_unit bytes
are unacknowledged *before* it, in both batch modes. So a segment of any size is admitted once the ring has
drained, and the ring holds at most one segment more than its budgets. Not so in canal, where a group of more than
buffer_size entries is never admitted, ITEMSIZE has no bound in bytes, and the product is taken in 32 bits, so that
4 GiB become 0. The budget counts bytes held: frames, not just the entries in them.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator

from canal_ha.config.model import BatchMode
from canal_ha.errors import AckUnmatched, RingClosed, StoreFull
from canal_ha.model.batch import Batch
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import Segment
from canal_ha.store.take import (
    Piece,
    batch_of,
    before_ddl,
    canal_text,
    take_bytes,
)


class Ring:
    """See the module. buffer_size: entries; mem_unit: bytes; batch_mode: what the size of a GET counts.

    A GET that waits sets `wanted` and `armed` first and looks at `available` afterwards: a put that the look missed
    calls on_data. Byte counts are bytes of frames; row counts of `get` count redelivered rows again, as canal's do;
    times are those of the newest entry put, got and acknowledged, ms.
    """

    def __init__(self, *, buffer_size: int, mem_unit: int, batch_mode: BatchMode, ddl_isolation: bool) -> None:
        self.on_data: Callable[[], None] | None = None
        self.armed = False
        self.wanted = 0  # on_data is called once `available(wanted)` holds, not for every put before
        self._buffer_size = buffer_size
        self._mem_unit = mem_unit
        self._batch_mode = batch_mode
        self._ddl_isolation = ddl_isolation
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._closed = False
        self._reset()

    def _reset(self) -> None:
        self._segments: list[Segment] = []
        self._firsts: list[int] = []  # sequence of each segment's first entry
        self._before: list[tuple[int, int, int]] = []  # put_bytes, _put_size and put_rows before each segment
        self.put_seq = self.get_seq = self.ack_seq = -1
        self.put_bytes = self.get_bytes = self.ack_bytes = 0
        self._put_size = self._get_size = self._ack_size = 0  # bytes of entries alone, as MEMSIZE counts them
        self.put_rows = self.get_rows = self.ack_rows = 0
        self.put_time_ms = self.get_time_ms = self.ack_time_ms = 0
        self._acked: LogPosition | None = None

    # ---- the source thread

    def put(self, segment: Segment, timeout_s: float | None = None) -> int:
        """Append a segment, kept and not copied, and return its last entry's sequence; wait while there is no room.

        timeout_s: None waits without limit. Raises StoreFull after it, RingClosed once closed; nothing is stored then.
        """
        with self._lock:
            if self._full() and not self._room.wait_for(lambda: self._closed or not self._full(), timeout_s):
                held = self.put_seq - self.ack_seq
                raise StoreFull(f"ring is full: {held} entries, {self.put_bytes - self.ack_bytes} bytes unacknowledged")
            if self._closed:
                raise RingClosed("ring is closed: its stream was parked or stopped")
            if not len(segment):
                return self.put_seq
            self._segments.append(segment)
            self._firsts.append(self.put_seq + 1)
            self._before.append((self.put_bytes, self._put_size, self.put_rows))
            self.put_seq = last = self.put_seq + len(segment)
            self.put_bytes += segment.ends[-1]
            self._put_size += segment.entry_ends[-1]
            self.put_rows += segment.row_ends[-1]
            self.put_time_ms = segment.timestamps[-1]
            tell = self.armed and self._available(self.wanted)
        if tell and self.on_data:
            self.on_data()
        return last

    # ---- the reactor thread

    def available(self, size: int) -> bool:
        """Whether a GET of `size` that waits can be answered: that much is there, or no more can come before an ACK."""
        with self._lock:
            return self._available(size)

    def get(self, size: int) -> Batch | None:
        """Take the next entries, at least one; None when nothing waits. Move the get sequence behind them.

        size: entries in ITEMSIZE. In MEMSIZE units of mem_unit bytes of entries, counted before each entry, so that the
        last one may pass the limit. Under DDL isolation a DDL comes alone.
        """
        with self._lock:
            first = self.get_seq + 1
            if first > self.put_seq:
                return None
            count = self._count_items(size) if self._batch_mode is BatchMode.ITEMSIZE else self._count_bytes(size)
            if self._ddl_isolation:
                count = before_ddl(list(self._pieces(first, self.get_seq + count)))
            last = self.get_seq + count
            pieces = list(self._pieces(first, last))
            batch = batch_of(pieces, last)
            self.get_seq = last
            self.get_bytes, self._get_size, _ = self._through(last)
            self.get_rows += batch.rows
            self.get_time_ms = batch.range.end.timestamp_ms
            return batch

    def ack(self, position: LogPosition, end_seq: int) -> None:
        """Free everything up to the entry at `position`, the end of a batch that was got.

        end_seq: that entry's sequence; negative: the first entry at `position` (canal's cleanUntil).
        Raises AckUnmatched when the ring holds no such entry between the ack and the get sequence.
        """
        with self._lock:
            found = self._find(position, end_seq)
            if found is None:
                raise AckUnmatched(canal_text(position))
            at, piece = found
            self.ack_bytes, self._ack_size, self.ack_rows = self._through(at)
            self.ack_seq = at
            self.ack_time_ms = piece.segment.timestamps[piece.first]
            self._acked = piece.segment.position(piece.first) if end_seq < 0 else position
            keep = bisect_right(self._firsts, at + 1) - 1 if at < self.put_seq else len(self._firsts)
            for segment in self._segments[:keep]:
                segment.recycle()
            del self._segments[:keep], self._firsts[:keep], self._before[:keep]
            self._room.notify_all()

    def rollback(self) -> None:
        """Go back to the ack sequence: everything unacknowledged is handed out again."""
        with self._lock:
            self.get_seq = self.ack_seq
            self.get_bytes = self.ack_bytes
            self._get_size = self._ack_size

    def clear(self) -> None:
        """Forget everything and start at -1 again. Meant for a ring whose source thread has stopped."""
        with self._lock:
            self._reset()
            self._room.notify_all()

    def close(self) -> None:
        """Refuse every put from now on, the waiting one included. What is stored can still be got and acknowledged."""
        with self._lock:
            self._closed = True
            self._room.notify_all()

    @property
    def full(self) -> bool:
        """Whether the next put waits for an ACK. For either thread, as of this moment."""
        with self._lock:
            return self._full()

    @property
    def first_position(self) -> LogPosition | None:
        """Position of the last acknowledged entry, before the first ACK of the oldest one; None when empty."""
        with self._lock:
            if self._acked is None and self._segments:
                return self._segments[0].position(0)
            return self._acked

    @property
    def latest_position(self) -> LogPosition | None:
        """Position of the newest entry ever put; None before there was one."""
        with self._lock:
            return self._segments[-1].position(len(self._segments[-1]) - 1) if self._segments else self._acked

    # ---- under the lock

    def _available(self, size: int) -> bool:
        waiting = self.put_seq - self.get_seq
        if not waiting:
            return False
        if self._full():
            return True
        if self._batch_mode is BatchMode.ITEMSIZE:
            return waiting >= size
        return self._put_size - self._get_size >= size * self._mem_unit

    def _full(self) -> bool:
        return (
            self.put_seq - self.ack_seq >= self._buffer_size
            or self.put_bytes - self.ack_bytes >= self._buffer_size * self._mem_unit
        )

    def _through(self, seq: int) -> tuple[int, int, int]:
        """Bytes of frames, bytes of entries and rows ever put, up to and including the stored entry `seq`."""
        at = bisect_right(self._firsts, seq) - 1
        segment, index = self._segments[at], seq - self._firsts[at]
        frames, size, rows = self._before[at]
        return frames + segment.ends[index], size + segment.entry_ends[index], rows + segment.row_ends[index]

    def _pieces(self, first: int, last: int) -> Iterator[Piece]:
        """Entries first..last (sequences, last inclusive), segment by segment."""
        index = bisect_right(self._firsts, first) - 1
        while first <= last:
            segment, base = self._segments[index], self._firsts[index]
            end = min(last + 1, base + len(segment.ends))
            yield Piece(segment, first - base, end - base)
            first = end
            index += 1

    def _count_items(self, size: int) -> int:
        return min(max(size, 1), self.put_seq - self.get_seq)

    def _count_bytes(self, size: int) -> int:
        count, left = 0, max(size, 0) * self._mem_unit
        for piece in self._pieces(self.get_seq + 1, self.put_seq):
            taken, left = take_bytes(piece, left)
            count += taken
            if left < 0:
                break
        return count

    def _find(self, position: LogPosition, end_seq: int) -> tuple[int, Piece] | None:
        """The entry to acknowledge, as its sequence and a piece of it alone."""
        if end_seq > self.get_seq:
            return None
        first = end_seq if end_seq >= 0 else self.ack_seq + 1
        last = end_seq if end_seq >= 0 else self.get_seq
        if first <= self.ack_seq:
            return None
        wanted = (position.offset, position.sub_index, position.timestamp_ms)
        at = first
        for segment, start, end in self._pieces(first, last):
            if segment.journal == position.journal:
                for index in range(start, end):
                    if (segment.offsets[index], segment.subs[index], segment.timestamps[index]) == wanted:
                        return at + index - start, Piece(segment, index, index + 1)
            at += end - start
        return None
