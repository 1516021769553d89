"""Ring: the segments between a stream's source thread and its client. Two threads use it; its lock keeps them apart.

Three sequences counted in entries, put >= get >= ack, all from -1 (docs/protocol.md#ring).
put belongs to the source thread and blocks while the ring is full; everything else belongs to the reactor
thread and never blocks for longer than the lock is held.

Room. A segment is admitted whole while fewer than buffer_size entries and fewer than buffer_size * mem_unit bytes
are unacknowledged *before* it, in both batch modes. So a segment of any size is admitted once the ring has
drained, and the ring holds at most one segment more than its budgets. Not so in canal, where a group of more than
buffer_size entries is never admitted, ITEMSIZE has no bound in bytes, and the product is taken in 32 bits, so that
4 GiB become 0. The budget counts bytes held: frames, not just the entries in them.

Progress. A client may wait with its acknowledgements until a transaction ends, and that end may still wait for room. So
a full ring admits the rest of a transaction, one segment at a time, as long as everything it holds is handed out and no
batch in flight ends with a transaction. It drops what it holds to make that room, because the source can send it again:
acknowledgements of these entries still count, but a roll-back has to read them from the source.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from canal_ha.config.model import BatchMode
from canal_ha.errors import AckUnmatched, RingClosed, StoreFull
from canal_ha.model.batch import Batch
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import EntryKind, Segment
from canal_ha.store.take import (
    Piece,
    batch_of,
    before_ddl,
    canal_text,
    take_bytes,
)

IN_FLIGHT_MOST = 65536  # batches of one transaction beyond the ring's room; each takes some 700 bytes


class _InFlight(NamedTuple):
    """A batch that was got: its end, and what was put up to it: bytes of frames, bytes of entries, rows."""

    end_seq: int
    end: LogPosition
    frames: int
    size: int
    rows: int


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
        self._segments: list[Segment] = []
        self._firsts: list[int] = []  # sequence of each segment's first entry
        self._before: list[tuple[int, int, int]] = []  # put_bytes, _put_size and put_rows before each segment
        self.put_seq = self.get_seq = self.ack_seq = -1
        self.put_bytes = self.get_bytes = self.ack_bytes = 0
        self._put_size = self._get_size = self._ack_size = 0  # bytes of entries alone, as MEMSIZE counts them
        self.put_rows = self.get_rows = self.ack_rows = 0
        self.put_time_ms = self.get_time_ms = self.ack_time_ms = 0
        self._in_flight: deque[_InFlight] = deque()  # oldest first
        self._ended_seq = -1  # the last entry put that ends a transaction
        self._whole_seq = -1  # the end of the last batch that was got and ended with a transaction
        self._let_go_seq = -1  # entries up to it were handed out, and are not held any more

    # ---- the source thread

    def put(self, segment: Segment, timeout_s: float | None = None) -> int:
        """Append a segment, kept and not copied, and return its last entry's sequence; wait while there is no room.

        timeout_s: None waits without limit. Raises StoreFull after it, RingClosed once closed; nothing is stored then.
        """
        with self._lock:
            if not self._room.wait_for(lambda: self._closed or self._admits(), timeout_s):
                held = self.put_seq - self.ack_seq
                raise StoreFull(f"ring is full: {held} entries, {self.put_bytes - self.ack_bytes} bytes unacknowledged")
            if self._closed:
                raise RingClosed("ring is closed: its stream was parked or stopped")
            if not len(segment):
                return self.put_seq
            if self._full():
                self._let_go()
            self._segments.append(segment)
            self._firsts.append(self.put_seq + 1)
            self._before.append((self.put_bytes, self._put_size, self.put_rows))
            self.put_seq = last = self.put_seq + len(segment)
            self.put_bytes += segment.ends[-1]
            self._put_size += segment.entry_ends[-1]
            self.put_rows += segment.row_ends[-1]
            self.put_time_ms = segment.timestamps[-1]
            self._ended_seq = self._last_end(segment)
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
        last one may pass the limit. Under DDL isolation a DDL comes alone. A batch that could take everything leaves
        out the begin of a transaction whose end is not there yet, unless there is nothing else.
        """
        with self._lock:
            first = self.get_seq + 1
            if first > self.put_seq:
                return None
            count = self._count_items(size) if self._batch_mode is BatchMode.ITEMSIZE else self._count_bytes(size)
            if self.get_seq + count == self.put_seq and self._ended_seq >= first:
                count = self._ended_seq - self.get_seq
            if self._ddl_isolation:
                count = before_ddl(list(self._pieces(first, self.get_seq + count)))
            last = self.get_seq + count
            pieces = list(self._pieces(first, last))
            batch = batch_of(pieces, last)
            through = self._through(last)
            self._in_flight.append(_InFlight(last, batch.range.end, *through))
            if _ends_whole(pieces[-1]):
                self._whole_seq = last
            self.get_seq = last
            self.get_bytes, self._get_size, _ = through
            self.get_rows += batch.rows
            self.get_time_ms = batch.range.end.timestamp_ms
            if self._full() and self._admits():
                self._room.notify_all()
            return batch

    def ack(self, position: LogPosition, end_seq: int) -> None:
        """Free everything up to the end of a batch that was got.

        position, end_seq: of the batch's last entry.
        Raises AckUnmatched when no batch in flight ends there.
        """
        with self._lock:
            at = next((at for at, each in enumerate(self._in_flight) if each.end_seq == end_seq), -1)
            if at < 0 or self._in_flight[at].end != position:
                raise AckUnmatched(canal_text(position))
            done = self._in_flight[at]
            for _ in range(at + 1):
                self._in_flight.popleft()
            self.ack_seq, self.ack_bytes, self._ack_size, self.ack_rows = (
                done.end_seq,
                done.frames,
                done.size,
                done.rows,
            )
            self.ack_time_ms = position.timestamp_ms
            through = bisect_right(self._firsts, end_seq + 1) - 1 if end_seq < self.put_seq else len(self._firsts)
            self._free(max(through, 0))  # nothing of a batch that was let go is held
            self._room.notify_all()

    def rollback(self) -> bool:
        """Go back to the ack sequence, so that everything unacknowledged is handed out again.

        False if some of that was let go: nothing is changed then, and the ring is of no more use.
        """
        with self._lock:
            if self._let_go_seq > self.ack_seq:
                return False
            self._in_flight.clear()
            self.get_seq = self._whole_seq = self.ack_seq
            self.get_bytes = self.ack_bytes
            self._get_size = self._ack_size
            return True

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

    def _admits(self) -> bool:
        """Whether a put need not wait: there is room, or the client may wait for the rest of a transaction."""
        if not self._full():
            return True
        drained = self.get_seq == self.put_seq
        return drained and self._whole_seq <= self.ack_seq and len(self._in_flight) < IN_FLIGHT_MOST

    def _let_go(self) -> None:
        """Drop what is held, all of which is handed out; the batches in flight stay known."""
        self._let_go_seq = self.get_seq
        self._free(len(self._segments))

    def _free(self, count: int) -> None:
        """Drop the oldest segments."""
        for segment in self._segments[:count]:
            segment.recycle()
        del self._segments[:count], self._firsts[:count], self._before[:count]

    def _last_end(self, segment: Segment) -> int:
        """The last entry that ends a transaction, as far as this segment, which was just put, tells."""
        if not segment.cut:
            return self.put_seq
        index = segment.kinds.rfind(EntryKind.END)  # a DDL may stand inside a transaction: CREATE TABLE ... SELECT
        return self._ended_seq if index < 0 else self._firsts[-1] + index

    def _through(self, seq: int) -> tuple[int, int, int]:
        """Bytes of frames, bytes of entries and rows ever put, up to and including the stored entry `seq`."""
        at = bisect_right(self._firsts, seq) - 1
        segment, index = self._segments[at], seq - self._firsts[at]
        frames, size, rows = self._before[at]
        return frames + segment.ends[index], size + segment.entry_ends[index], rows + segment.row_ends[index]

    def _pieces(self, first: int, last: int) -> Iterator[Piece]:
        """Entries first..last (sequences, last inclusive), segment by segment."""
        index = bisect_right(self._firsts, first) - 1
        assert index >= 0, "these entries were let go"
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


def _ends_whole(piece: Piece) -> bool:
    """Whether no transaction goes on behind the last entry of a piece."""
    segment, _, last = piece
    return segment.kinds[last - 1] == EntryKind.END or (last == len(segment) and not segment.cut)
