"""Ring: holds the segments between a stream's source thread and its client. Two threads use it under one lock.

Three sequences counted in entries, put >= get >= ack, all from -1 (docs/protocol.md#ring).
The source thread calls put, which blocks while the ring is full. The reactor thread calls everything else and never
blocks longer than the lock is held.

Room. The ring admits a whole segment if fewer than buffer_size entries and fewer than buffer_size * mem_unit bytes
were unacknowledged *before* it, in both batch modes. So it admits a segment of any size once it has drained, and holds
at most one segment more than its budgets. canal differs: it never admits a group of more than buffer_size entries,
ITEMSIZE has no bound in bytes, and the product is computed in 32 bits, so that 4 GiB become 0. The budget counts the
bytes held: frames, not only the entries in them.

Progress. A client may postpone its acknowledgement until a transaction ends, while that end waits for room. So a full
ring admits the rest of a transaction, one segment at a time, if all its entries are handed out and no batch in flight
ends with a transaction. To make room it drops the entries it holds, because the source can send them again. They can
still be acknowledged, but a rollback has to read them from the source.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from canal_ha.config.model import BatchMode
from canal_ha.errors import AckUnmatched, RingClosed, StoreFull
from canal_ha.model.batch import Batch, PositionRange
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import EntryKind, Segment
from canal_ha.store.take import (
    Piece,
    batch_of,
    batch_of_whole,
    before_ddl,
    canal_text,
    of_one_server,
    take_bytes,
)

_END, _DDL = int(EntryKind.END), int(EntryKind.DDL)  # numbers are found faster than members
IN_FLIGHT_MOST = 65536  # batches of one transaction beyond the ring's capacity; each takes some 700 bytes


class _InFlight(NamedTuple):
    """A batch in flight, its last entry's time, and the totals put up to it: bytes of frames, of entries, rows."""

    end_seq: int
    range: PositionRange
    time_ms: int
    frames: int
    size: int
    rows: int


class Ring:
    """The segments of one stream. See the module.

    buffer_size: entries.
    mem_unit: bytes; the room for one entry, and the unit of MEMSIZE.
    batch_mode: what the size of a GET counts.
    ddl_isolation: whether a DDL entry gets a batch of its own.
    on_data: called on the source's thread when a waiting GET can be answered; True: the next put will block.

    A waiting GET sets `wanted` and `armed` before it checks `available`: a put that the check missed calls on_data.
    Byte counts are bytes of frames. Like canal's, the row counts of `get` include redelivered rows. Times are those of
    the newest entry put, got and acknowledged, ms.
    """

    def __init__(
        self,
        *,
        buffer_size: int,
        mem_unit: int,
        batch_mode: BatchMode,
        ddl_isolation: bool,
        on_data: Callable[[bool], None] = lambda full: None,
    ) -> None:
        self.patient = True  # whether a put waits for room
        self.armed = False
        self.wanted = 0  # on_data is called once `available(wanted)` holds, not for every earlier put
        self._buffer_size = buffer_size
        self._mem_unit = mem_unit
        self._batch_mode = batch_mode
        self._ddl_isolation = ddl_isolation
        self._on_data = on_data
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._closed = False
        self._takers = 0  # threads in await_taken
        self._sleeping = 0  # threads that wait for anything
        self._segments: list[Segment] = []
        self._firsts: list[int] = []  # sequence of each segment's first entry
        self._before: list[tuple[int, int, int]] = []  # put_bytes, _put_size and put_rows before each segment
        self.put_seq = self.get_seq = self.ack_seq = -1
        self.put_bytes = self.get_bytes = self.ack_bytes = 0
        self._put_size = self._get_size = self._ack_size = 0  # bytes of entries alone, as MEMSIZE counts them
        self.put_rows = self.get_rows = self.ack_rows = 0
        self.put_time_ms = self.get_time_ms = self.ack_time_ms = 0
        self._most_bytes = buffer_size * mem_unit
        self._full = self._holds_too_much()
        self._in_flight: deque[_InFlight] = deque()  # oldest first
        self._ended_seq = -1  # the last entry put that ends a transaction
        self._whole_seq = -1  # the end of the last batch handed out that ended with a transaction
        self._dropped_seq = -1  # entries up to this one were handed out and dropped

    # ---- the source thread

    def put(self, segment: Segment, timeout_s: float | None = None) -> int:
        """Append a segment without copying and return the sequence of its last entry; wait while there is no room.

        timeout_s: None waits without limit.
        A ring that is not `patient` takes the segment at once: its caller has asked whether it is `full`. A roll-back
        between the two can make it exceed its budget by this segment.
        Raises StoreFull after the timeout and RingClosed once the ring is closed; nothing is stored then.
        """
        with self._lock:
            full = self._full
            if full and self.patient and not self._wait_for(lambda: self._closed or self._admits(), timeout_s):
                held = self.put_seq - self.ack_seq
                raise StoreFull(f"ring is full: {held} entries, {self.put_bytes - self.ack_bytes} bytes unacknowledged")
            if self._closed:
                self._check_open()
            count = len(segment.ends)
            if not count:
                return self.put_seq
            if full and self._full and self._admits():
                self._drop_held()
            before = self.put_seq
            self._segments.append(segment)
            self._firsts.append(before + 1)
            self._before.append((self.put_bytes, self._put_size, self.put_rows))
            self.put_seq = last = before + count
            self.put_bytes += segment.ends[-1]
            self._put_size += segment.entry_ends[-1]
            self.put_rows += segment.row_ends[-1]
            self.put_time_ms = segment.timestamps[-1]
            self._ended_seq = self._last_end(segment) if segment.cut else last
            self._full = full = (
                last - self.ack_seq >= self._buffer_size or self.put_bytes - self.ack_bytes >= self._most_bytes
            )
            tell = self.armed and (self.wanted <= 0 or full or self._available(self.wanted))
        if tell:
            self._on_data(full)
        return last

    def await_room(self) -> None:
        """Wait as `put` does, before the segment is made. Raises RingClosed."""
        with self._lock:
            self._wait_for(lambda: self._closed or self._admits())
            self._check_open()

    def await_taken(self, most_bytes: int) -> None:
        """Wait until a GET waits for more, or at most so many bytes wait for a GET. Raises RingClosed."""
        with self._lock:
            self._takers += 1
            try:
                self._wait_for(lambda: self._closed or self._taken(most_bytes))
            finally:
                self._takers -= 1
            self._check_open()

    # ---- the reactor thread

    def available(self, size: int) -> bool:
        """Return whether a GET of `size` can be answered: enough entries wait, or no more can come before an ACK."""
        if size <= 0 and not self._takers:
            return self.put_seq != self.get_seq  # the usual case needs no lock, as `armed` is set before
        with self._lock:
            if self._takers:
                self._wake()
            return self._available(size)

    @property
    def full(self) -> bool:
        """Whether a put has to wait."""
        if not self._full:
            return False  # the usual case needs no lock: an ACK meanwhile makes more room
        with self._lock:
            return not self._closed and not self._admits()

    @property
    def over_budget(self) -> bool:
        """Whether it holds more than its size. A put may go on: the client may wait for the end of a transaction."""
        return self._full

    @property
    def drained(self) -> bool:
        """Whether everything in it was handed out."""
        return self.get_seq == self.put_seq

    def taken_whole(self) -> bool:
        """Return whether what was handed out ends with a whole transaction, or nothing was."""
        return self._whole_seq == self.get_seq  # only the reactor's thread moves them

    def next_server(self) -> str:
        """Return whose entries the next `get` takes, as in LogPosition; "" if none wait or several alternate."""
        with self._lock:
            if self.get_seq == self.put_seq:
                return ""
            segment = next(self._pieces(self.get_seq + 1, self.get_seq + 1)).segment
            return "" if segment.part else segment.source.server

    def get(self, size: int) -> Batch | None:
        """Take the next entries, at least one, and move the get sequence behind them; None if none wait.

        size: entries in ITEMSIZE; units of mem_unit bytes in MEMSIZE, checked before each entry, so the last entry may
        exceed the limit.
        DDL isolation puts a DDL entry into a batch of its own. A batch that could take all entries stops at the end of
        the last complete transaction, unless there is none. It has the entries of one server.
        """
        with self._lock:
            first = self.get_seq + 1
            if first > self.put_seq:
                return None
            last = self.put_seq
            segments = self._whole(first) if self._ended_seq == last and self._takes_all(size) else []
            if segments:  # as nearly always at the end of the binlog
                through = self.put_bytes, self._put_size, self.put_rows
                batch = batch_of_whole(segments, last)
                self._whole_seq = last
                self.get_time_ms = self.put_time_ms
            else:
                pieces = self._next_pieces(first, size)
                last = self.get_seq + sum([piece.last - piece.first for piece in pieces])
                batch = batch_of(pieces, last)
                through = self._through(last)
                if _ends_whole(pieces[-1]):
                    self._whole_seq = last
                segment, _, stop = pieces[-1]
                self.get_time_ms = segment.timestamps[stop - 1]
            self._in_flight.append(_InFlight(last, batch.range, self.get_time_ms, *through))
            self.get_seq = last
            self.get_bytes, self._get_size, _ = through
            self.get_rows += batch.rows
            if self._sleeping and (self._takers or (self._full and self._admits())):
                self._wake()
            return batch

    def ack(self, position: LogPosition, end_seq: int) -> None:
        """Free all entries up to the end of a batch in flight.

        position: position of the batch's last entry.
        end_seq: ring sequence of the batch's last entry.
        Raises AckUnmatched if no batch in flight ends there.
        """
        with self._lock:
            done = next((each for each in self._in_flight if each.end_seq == end_seq), None)
            if done is None or (done.range.end is not position and done.range.end != position):
                raise AckUnmatched(canal_text(position))
            while self._in_flight[0] is not done:
                self._in_flight.popleft()
            self._ack_oldest()

    def ack_batch(self, batch: PositionRange) -> None:
        """Free all entries up to the end of this batch in flight. Raises AckUnmatched."""
        in_flight = self._in_flight  # only the reactor's thread changes it
        if in_flight and in_flight[0].range is batch:
            with self._lock:
                self._ack_oldest()
        else:
            self.ack(batch.end, batch.end_seq)

    def rollback(self) -> bool:
        """Go back to the ack sequence, so that all unacknowledged entries are handed out again.

        Return False, changing nothing, if some of them were dropped; the stream then needs a new ring.
        """
        with self._lock:
            if self._dropped_seq > self.ack_seq:
                return False
            self._in_flight.clear()
            self.get_seq = self._whole_seq = self.ack_seq
            self.get_bytes = self.ack_bytes
            self._get_size = self._ack_size
            return True

    def close(self) -> None:
        """Refuse every put from now on, including one that waits. Stored entries can still be got and acknowledged."""
        with self._lock:
            self._closed = True
            self._wake()

    # ---- under the lock

    def _ack_oldest(self) -> None:
        end_seq, _, self.ack_time_ms, self.ack_bytes, self._ack_size, self.ack_rows = self._in_flight.popleft()
        self.ack_seq = end_seq
        if self._full:
            self._full = self._holds_too_much()
        through = bisect_right(self._firsts, end_seq + 1) - 1 if end_seq < self.put_seq else len(self._firsts)
        if through > 0:  # a batch whose entries were dropped holds nothing
            self._free(through)
        if self._sleeping:
            self._wake()

    def _wait_for(self, there: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait until this is so; return False after the timeout."""
        if there():
            return True
        self._sleeping += 1
        try:
            return self._room.wait_for(there, timeout_s)
        finally:
            self._sleeping -= 1

    def _wake(self) -> None:
        """Let the threads that wait look again. Mostly there is none, and to tell nobody takes long."""
        if self._sleeping:
            self._room.notify_all()

    def _check_open(self) -> None:
        if self._closed:
            raise RingClosed("ring is closed: its stream was parked or stopped")

    def _available(self, size: int) -> bool:
        waiting = self.put_seq - self.get_seq
        if not waiting or size <= 0:
            return waiting > 0
        if self._batch_mode is BatchMode.ITEMSIZE:
            enough = waiting >= size
        else:
            enough = self._put_size - self._get_size >= size * self._mem_unit
        return enough or self._full

    def _taken(self, most_bytes: int) -> bool:
        waits = self.armed and not self._available(self.wanted)
        return waits or self.put_bytes - self.get_bytes <= most_bytes

    def _holds_too_much(self) -> bool:
        held = self.put_seq - self.ack_seq
        return held >= self._buffer_size or self.put_bytes - self.ack_bytes >= self._most_bytes

    def _admits(self) -> bool:
        """Return whether a put may proceed: there is room, or the client may wait for the rest of a transaction."""
        if not self._full:
            return True
        drained = self.get_seq == self.put_seq
        return drained and self._whole_seq <= self.ack_seq and len(self._in_flight) < IN_FLIGHT_MOST

    def _drop_held(self) -> None:
        """Drop all held entries, which are all handed out; the batches in flight stay known."""
        self._dropped_seq = self.get_seq
        self._free(len(self._segments))

    def _free(self, count: int) -> None:
        """Drop the oldest segments."""
        for segment in self._segments[:count]:
            if segment.buffers is not None:
                segment.recycle()
        del self._segments[:count], self._firsts[:count], self._before[:count]

    def _last_end(self, segment: Segment) -> int:
        """Return the last entry that ends a transaction, given the segment just put, which is cut."""
        index = segment.kinds.rfind(_END)  # not DDL: CREATE TABLE ... SELECT has one inside its transaction
        return self._ended_seq if index < 0 else self._firsts[-1] + index

    def _through(self, seq: int) -> tuple[int, int, int]:
        """Return the bytes of frames, bytes of entries and rows put up to and including the stored entry `seq`."""
        if seq == self.put_seq:
            return self.put_bytes, self._put_size, self.put_rows
        at = bisect_right(self._firsts, seq) - 1
        segment, index = self._segments[at], seq - self._firsts[at]
        frames, size, rows = self._before[at]
        return frames + segment.ends[index], size + segment.entry_ends[index], rows + segment.row_ends[index]

    def _pieces_to(self, first: int, last: int) -> list[Piece]:
        """Return what `_pieces` yields. At the end of the binlog it is a part of the newest segment."""
        base = self._firsts[-1] if self._firsts else last + 1
        if first >= base:
            return [Piece(self._segments[-1], first - base, last + 1 - base)]
        return list(self._pieces(first, last))

    def _pieces(self, first: int, last: int) -> Iterator[Piece]:
        """Yield entries first..last (sequences, last inclusive), segment by segment."""
        index = bisect_right(self._firsts, first) - 1
        assert index >= 0, "these entries were dropped"
        while first <= last:
            segment, base = self._segments[index], self._firsts[index]
            end = min(last + 1, base + len(segment.ends))
            yield Piece(segment, first - base, end - base)
            first = end
            index += 1

    def _takes_all(self, size: int) -> bool:
        """Return whether a GET of `size` can take all entries that wait."""
        if self._batch_mode is BatchMode.ITEMSIZE:
            return self.put_seq - self.get_seq <= size
        return self._put_size - self._get_size <= size * self._mem_unit

    def _whole(self, first: int) -> list[Segment]:
        """Return all segments from entry `first` on, if a batch takes them whole; none if that is not certain."""
        if self._firsts[-1] == first:
            segments = self._segments[-1:]
        else:
            index = bisect_right(self._firsts, first) - 1
            segments = self._segments[index:]
            source = segments[0].source
            if self._firsts[index] != first or any(segment.source is not source for segment in segments):
                return []
        if self._ddl_isolation and any(_DDL in segment.kinds for segment in segments):
            return []
        return segments

    def _next_pieces(self, first: int, size: int) -> Sequence[Piece]:
        """Return what a GET of `size` takes, from entry `first` on."""
        if self._takes_all(size):
            count = self.put_seq - self.get_seq
        else:
            count = self._count_items(size) if self._batch_mode is BatchMode.ITEMSIZE else self._count_bytes(size)
        if self.get_seq + count == self.put_seq and self._ended_seq >= first:
            count = self._ended_seq - self.get_seq
        pieces: Sequence[Piece] = self._pieces_to(first, self.get_seq + count)
        if self._ddl_isolation:
            pieces = self._pieces_to(first, self.get_seq + before_ddl(pieces))
        return of_one_server(pieces) if len(pieces) > 1 else pieces

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
    """Return whether the last entry of a piece ends its transaction."""
    segment, _, last = piece
    return segment.kinds[last - 1] == _END or (last == len(segment) and not segment.cut)
