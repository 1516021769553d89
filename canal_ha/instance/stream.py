"""Stream: one client id's feed, ring, batches, waiting GETs and cursor.

Everything here runs on the reactor thread; the feed has a thread of its own.

A stream is parked until its client asks, open while it has a feed, and failed when the feed has ended for good. A
parked stream keeps its position and the batches in flight: an ACK still moves the cursor, the next GET re-opens the
stream behind the last batch delivered, and a ROLLBACK re-opens it at the cursor. A failed stream delivers what was
decoded before the failure. It opens again when its client subscribes.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from typing import Any, Protocol

from twisted.internet.defer import Deferred

from canal_ha.config.model import InstanceConfig
from canal_ha.errors import CanalError, FormsMixed, NoThread, NotSubscribed, PositionLost
from canal_ha.instance.feed import Feed, FeedRequest, Move, OpenFeed
from canal_ha.instance.feed_pace import FeedPace
from canal_ha.instance.merged_feed import MergedFeed
from canal_ha.instance.origin import Remembered
from canal_ha.instance.snapshot_rate import SnapshotRate
from canal_ha.instance.snapshot_retry import SnapshotRetry
from canal_ha.instance.status import StreamStatus
from canal_ha.instance.wake import Awaited
from canal_ha.instance.wakeup import Wakeup
from canal_ha.meta.batch_ids import Numbers
from canal_ha.meta.batches import Batches
from canal_ha.meta.write_behind import Meta, steps_back
from canal_ha.model.batch import EMPTY_BATCH_ID, Batch, GetAnswer, PositionRange
from canal_ha.model.clock import Clock, Timer
from canal_ha.model.get_request import GetRequest
from canal_ha.model.position import LogPosition
from canal_ha.model.privacy import ANYTHING, Within
from canal_ha.model.segment import Segment
from canal_ha.model.snapshot import SnapshotState, advanced, failed
from canal_ha.model.snapshot import read as read_snapshot
from canal_ha.model.tell import Tell
from canal_ha.sink import Sink
from canal_ha.store.ring import Ring


class Reactor(Clock, Protocol):
    """The part of Twisted's reactor that streams use."""

    def callFromThread(self, call: Callable[..., object], /, *args: object) -> None: ...


class StreamState(Enum):
    """The state of a stream; see the module."""

    PARKED = "parked"
    OPEN = "open"
    FAILED = "failed"


_NEVER = 1 << 62  # the size of a GET that only time ends
WAITING_MOST = 64  # GETs that wait at once; canal's clients have one
LATE_BYTES = 16 * 1024  # of the largest batch whose positions and fingerprints are looked at after it was sent
HELD_BACK_MS = 1000.0  # the longest wait of a GET for the ACKs of batches in flight
VOID_MOST = 1000  # void batches in flight, when more become void; each takes some 2 KB


class _Waiting:
    """One GET that waits. Data, time or the end of the stream wakes it, at most once.

    size: what it waits for, as the ring counts it.
    until: when it stops waiting, reactor time; None: never.
    done: ends the wait.
    """

    __slots__ = ("done", "size", "until")

    def __init__(self, size: int, until: float | None, done: Awaited) -> None:
        self.size = size
        self.until = until
        self.done = done

    def wake(self) -> None:
        if not self.done.called:
            self.done.callback(None)

    def fail(self, error: CanalError) -> None:
        if not self.done.called:
            self.done.errback(error)


Accept = Callable[[Segment], None]
FromFeed = Callable[..., None]


class Stream:
    """See the module."""

    def __init__(
        self,
        config: InstanceConfig,
        client_id: int,
        meta: Meta,
        open_feed: OpenFeed,
        reactor: Reactor,
        *,
        check_room: Callable[[], None],
        tell: Tell,
        batch_ids: Numbers,
        pace: FeedPace,
        soon: Callable[[Callable[[], None]], None],
        from_feed: FromFeed,
        filter_text: str = "",
        position_lost: Callable[[PositionLost], None] | None = None,
        read: str = "",
        cut: Callable[[Accept], Accept] = lambda accept: accept,
        remember: Callable[[LogPosition], Remembered] | None = None,
    ) -> None:
        """Make a parked stream.

        config: the destination's.
        client_id: the client's.
        meta: where the stream's cursor is.
        open_feed: opens a feed from a position on.
        reactor: Twisted's.
        check_room: raises QuotaReached if the destination has no room for this stream to open.
        tell: hears of failures, of each once until it is over.
        batch_ids: gives the ids of batches, which go on from one stream of the client to the next.
        pace: at which feeds may begin.
        soon: see RoundQueue.
        from_feed: calls on the reactor's thread, in order, from the thread on which the feed works.
        filter_text: the filter of the subscription.
        position_lost: looks for another cursor and calls `rewind` or `not_found`. The stream calls it when the journal
            of the cursor is gone and the client has acknowledged everything that was decoded.
        read: as in FeedRequest.
        cut: wraps the function that takes segments, to let through a part of them.
        remember: begins to remember what is acknowledged, from the fingerprints of a cursor on.
        """
        self.client_id = client_id
        self.era = object()  # replaced when the stream begins again although nobody asked on a connection
        self.state = StreamState.PARKED
        self.error: CanalError | None = None
        self._config = config
        self._meta = meta
        self._open_feed = open_feed
        self._reactor = reactor
        self._snapshot_rate = SnapshotRate(reactor.seconds)
        self._snapshot_retry = SnapshotRetry(reactor.seconds)
        self._check_room = check_room
        self._tell = tell
        self._batches = Batches(client_id, batch_ids)
        self._last_of_gone_rings = 0  # batches up to this id come from rings that are gone
        self._read_again_through = 0  # batches up to this id come from rings before the newest one
        self._void_through = 0  # the rows of the batches up to this id come again: their ACKs move no cursor
        # The ends of the last batch delivered and of the last batch acknowledged, since the stream began at its cursor.
        # They may lie inside a transaction. A cursor never does.
        self._delivered_end: PositionRange | LogPosition | None = None
        self._acked_end: PositionRange | LogPosition | None = None
        self._delivered_whole = True  # the last batch delivered ended with a whole transaction
        self._server = ""  # whose entries the client gets, as in LogPosition; "" if unknown
        self._place: LogPosition | None = None  # where the stream continued in the binlog of `_server`, after a move
        self._moves: deque[Move] = deque()  # of the feed; their entries are in the ring
        self._ring_moves: list[tuple[int, Move]] = []  # of the feed, with the ring's last entry before each
        # Batches in flight from behind a move. Their ACKs take the cursor back, too: rows that come again must not lie
        # before the cursor while the newer ones are still to come.
        self._behind_move: set[int] = set()
        self._ring_behind: LogPosition | None = None  # the ring leaves out everything up to here: it was delivered
        self._delivered_at: dict[int, float] = {}  # batch id -> monotonic seconds
        self._waiting: list[_Waiting] = []
        self._timer: Timer | None = None  # for the first GET whose time will be over, or for one answered meanwhile
        self._timer_at = 0.0
        self._asked_at = reactor.seconds()
        self._pace = pace
        self._soon = soon
        self._from_feed = from_feed
        self._beginning: Timer | None = None  # of a feed that has to wait
        self._failing_since = 0.0  # counts while there is an error
        self._filter = filter_text
        self.within = ANYTHING  # of the account that subscribed last
        self._exact = False  # the form of values that the client asked for last
        self._position_lost = position_lost
        self._read = read
        self._cut = cut
        self._remember = remember
        self._recent: Remembered | None = None  # up to the cursor; None before the stream was open
        self._copies: dict[int, Any] = {}  # of batches in flight, for `_recent`
        self._unsettled: tuple[int, Batch] | None = None  # the last batch; see _settle
        self._finding = False  # position_lost is at work
        self._feed: Feed | None = None
        self._ring: Ring | None = None
        self._sink: Sink | None = None

    # ---- requests of the client

    def subscribed(
        self, filter_text: str, *, exact: bool = False, within: Within = ANYTHING, opens: bool = True
    ) -> None:
        """The client has subscribed: open. Begin again at the cursor if a limit is new or the feed had ended.

        filter_text: the filter of the subscription.
        exact: the form of values that its GETs will ask for.
        within: the most that its account may read.
        opens: whether to open now; the next GET opens it otherwise.
        """
        changed = (filter_text, within) != (self._filter, self.within)
        self._filter, self.within = filter_text, within
        self._take_form(exact)
        self._asked_at = self._reactor.seconds()
        if self.state is StreamState.OPEN and not changed:
            return
        if changed:
            self._void_in_flight()  # the new filter may choose rows before their end that the old one left out
            self._abandon_ring()
            self._delivered = self._acked = None
        if opens:
            self._open()

    async def get(
        self,
        request: GetRequest,
        check: Callable[[], None] = lambda: None,
        awaited: Callable[[], Awaited] = Deferred,
    ) -> GetAnswer:
        """Return the next batch. Raises QuotaReached, or the error that ended the feed for good.

        check: called when the wait is over; raises an error if the client must not get a batch any more. A batch that
            were taken before that would be in flight without anybody who has it.
        awaited: makes what the caller's driver awaits.
        """
        self._asked_at = self._reactor.seconds()
        if self._unsettled is not None:
            self._settle()
        if request.exact != self._exact:
            self._check_form(request.exact)
            self._take_form(request.exact)
        if self.state is not StreamState.OPEN:
            self._ensure_open()
        enough = 0 if request.eager else request.fetch_size
        era = self.era
        held_back = self._held_back(request)
        if request.wait_ms != 0.0 and self.era is era:
            wait_ms = request.wait_ms
            if held_back:  # the ACK may come from the thread that waits here
                wait_ms = HELD_BACK_MS if wait_ms is None else min(wait_ms, HELD_BACK_MS)
            await self._wait(_NEVER if held_back else enough, wait_ms, awaited)
            self._asked_at = self._reactor.seconds()
            if request.exact != self._exact:  # another GET took the stream over
                raise FormsMixed(self._config.destination, self.client_id)
            if self.state is not StreamState.OPEN:
                self._ensure_open()
            held_back = self._held_back(request)
        check()
        ring = self._ring
        if held_back or ring is None:
            return GetAnswer(EMPTY_BATCH_ID)
        before = ring.get_seq
        batch = ring.get(request.fetch_size)
        if batch is None:
            return GetAnswer(EMPTY_BATCH_ID)
        behind_move = False
        if self._ring_moves:
            last = batch.range.end_seq
            behind_move = last > self._ring_moves[0][0]
            if behind_move:
                self._pass_moves([move for seq, move in self._ring_moves if before <= seq < last])
        batch_id = self._batches.open(batch.range, batch.entries)
        if behind_move:
            self._behind_move.add(batch_id)
        self._delivered_at[batch_id] = self._asked_at
        if self._unsettled is not None:
            self._settle()  # that of a GET that waited beside this one
        self._unsettled = batch_id, batch
        if batch.size_bytes > LATE_BYTES:
            self._settle()
        self._delivered_end = batch.range
        self._delivered_whole = ring.taken_whole()
        return GetAnswer(batch_id, batch)

    def ack(self, batch_id: int, mark: str = "") -> None:
        """Close the oldest batch. Its ack point becomes the cursor, with this mark; Meta makes it durable."""
        if self._unsettled is not None:
            self._settle()
        done = self._batches.ack(batch_id)
        self._delivered_at.pop(batch_id, None)
        copies = self._copies.pop(batch_id, None)
        if copies and self._recent:
            self._recent.add_copies(copies)
        if self._ring and batch_id > self._last_of_gone_rings:
            self._ring.ack_batch(done)
        move: Callable[[int, LogPosition], object] = self._meta.move  # which takes no step back
        if batch_id in self._behind_move:
            self._behind_move.discard(batch_id)
            move = self._meta.reset
        cursor = self._meta.cursor(self.client_id)
        if batch_id <= self._void_through:
            if cursor and batch_id > self._last_of_gone_rings:  # its feed goes on, so nobody reads its chunks again
                snapshot = self._snapshot_after(cursor, batch_id, done.snapshot)
                self._meta.move(self.client_id, replace(cursor, snapshot=snapshot))
            return
        self._acked_end = done
        ack = done.ack
        if ack:
            snapshot = self._snapshot_after(cursor, batch_id, done.snapshot) if cursor and cursor.snapshot else ""
            if mark or snapshot:
                ack = replace(ack, mark=mark, snapshot=snapshot)
            move(self.client_id, ack)

    def _snapshot_after(self, cursor: LogPosition, batch_id: int, progress: str) -> str:
        """Return the state of the client's snapshot once a batch with this progress is acknowledged; note its pace."""
        snapshot = advanced(cursor.snapshot, progress, read_again=batch_id <= self._read_again_through)
        if snapshot != cursor.snapshot:
            self._snapshot_moved(cursor.snapshot, snapshot)
        return snapshot

    def _snapshot_moved(self, before: str, after: str) -> None:
        old, new = read_snapshot(before), read_snapshot(after)
        if old and new:
            self._snapshot_rate.acknowledged(old, new)

    def rollback(self, batch_id: int, *, unasked: bool = False) -> None:
        """Forget all batches in flight, so that the next GET starts behind the last acknowledged batch.

        batch_id: 0, or the oldest batch. The ring rewinds as a whole, so this forgets the later batches too.
        unasked: the client has not asked for it, so its era ends.
        """
        if batch_id:
            self._batches.rollback(batch_id)
        if unasked:
            self.era = object()
        self._forget_batches()
        self._delivered = self._acked
        if self._ring is None:
            return
        reaches = self._ring_behind is None or (self._acked is not None and _reaches(self._acked, self._ring_behind))
        if reaches and self._ring.rollback():
            self._wake_waiting()  # a GET of another connection may wait
        else:  # the ring holds only a part of what is rolled back
            self._abandon_ring()
            self._open()

    # ---- life

    def restart(self) -> None:
        """Begin again at the cursor, as after a rollback. The client may still acknowledge the batches in flight.

        Such an ACK moves the cursor until the next GET, which begins at the cursor as it is then. From then on it moves
        nothing: the rows of these batches come again, and if the cursor were behind them, a crash in between would
        leave older values with the client. To refuse the ACKs would be worse: canal's Java client takes the error for
        the reply to its next request, and stays one reply behind (docs/protocol.md#out-of-step).

        A client that acknowledges each batch before its next GET gets on, however often this is called.
        """
        was_open = self.state is StreamState.OPEN
        self.era = object()
        self._abandon_ring()
        self._read_again_through = max(self._batches.ids, default=self._read_again_through)
        self._delivered = self._acked = self._place = None
        self._server = ""
        if was_open and (self._waiting or not self._batches.ids):
            with suppress(NoThread):  # an operator's edit gets no further by an error; the next GET tries again
                self._open()
        else:
            self._wake_waiting()

    def rewind(self) -> None:
        """Something else than an ACK moved the cursor: forget the batches in flight and begin at the new cursor."""
        self._finding = False
        self._forget_batches()
        self._recent = None
        self.restart()

    def not_found(self, error: CanalError) -> None:
        """Nobody could find another cursor; the next GET asks again."""
        self.search_over()
        self._fail_waiting(error)

    def search_over(self) -> None:
        """The search for another cursor has ended; a lost position begins the next one."""
        self._finding = False

    @property
    def silent_s(self) -> float:
        """Seconds since the last GET; 0.0 while one waits."""
        return 0.0 if self._waiting else self._reactor.seconds() - self._asked_at

    def park_if_idle(self) -> None:
        """Close the feed after canal.instance.stream.idle seconds without a GET. A waiting GET keeps the feed open."""
        if self.state is not StreamState.PARKED and self.silent_s >= self._config.stream_idle_s and not self._waiting:
            self._abandon_ring()

    def close(self, error: CanalError) -> None:
        """End for good and answer waiting GETs with `error`."""
        self._abandon_ring()
        self._fail_waiting(error)
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def with_trail(self, cursor: LogPosition) -> LogPosition:
        """Return the cursor with the fingerprints that tell its place in another server's binlog."""
        if self._recent is None:
            return cursor
        return replace(cursor, trail=self._recent.trail(), origins=self._recent.origins())

    def hash_trail(self) -> None:
        """Do the work of `with_trail` for all that is acknowledged by now."""
        if self._recent:
            self._recent.trail()

    def _check_form(self, exact: bool) -> None:
        """Raise FormsMixed if batches of the other form are in flight: each switch reads the source again."""
        if exact != self._exact and self._batches.ids:
            raise FormsMixed(self._config.destination, self.client_id)

    def _take_form(self, exact: bool) -> None:
        """Switch the form of values. Entries still in the ring are decoded again."""
        if exact == self._exact:
            return
        self._exact = exact
        if self.state is not StreamState.FAILED or self._holds_something():
            self._abandon_ring()

    def _held_back(self, request: GetRequest) -> bool:
        """Return whether a GET gets nothing yet, because the next entries are of another server."""
        if not self._ring_moves and not request.one_server:
            return False  # the usual case
        return self._waits_for_acks() or (request.one_server and self._holds_back())

    def _waits_for_acks(self) -> bool:
        """Return whether the next entries may come again from another server, behind some that are not acknowledged.

        If the client had them now, and the stream began anew, it could go on behind newer values than the client has:
        the cursor cannot go back to their place before it passes what is in flight. They do not wait inside a
        transaction; see _holds_back.
        """
        if not self._ring_moves or not self._batches.ids or not self._delivered_whole:
            return False
        ring, delivered = self._ring, self._delivered
        if ring is None or delivered is None:
            return False
        server = ring.next_server()
        if not server or server == delivered.server:
            return False
        return any(seq == ring.get_seq and move.again for seq, move in self._ring_moves)

    def _holds_back(self) -> bool:
        """Return whether the next entries are of another server than the one that the client's cursor names.

        They wait until the client has acknowledged all entries of the former server. Then the era ends, and the client
        subscribes again. So a position that it stores with the name of a server is of that server's binlog. They do not
        wait inside a transaction, because a client may acknowledge it only when it is whole: the new server sends it
        again.
        """
        server = self._ring.next_server() if self._ring else ""
        if not server or server == self._server:
            return False
        if self._batches.ids and not self._delivered_whole:
            return False
        if not self._server:
            self._server = server
            return False
        cursor = self._meta.cursor(self.client_id)
        known = cursor is not None and cursor.server == server
        if self._batches.ids or not (known or any(move.after.server in ("", server) for move in self._moves)):
            return True
        if known:
            self._place = None
        else:
            while (move := self._moves.popleft()).after.server not in ("", server):
                pass
            self._place = replace(move.after, server=server)
        self._server = server
        self.era = object()
        return True

    @property
    def _delivered(self) -> LogPosition | None:
        """See __init__."""
        end = self._delivered_end
        return end.end if isinstance(end, PositionRange) else end

    @_delivered.setter
    def _delivered(self, end: LogPosition | None) -> None:
        self._delivered_end = end

    @property
    def _acked(self) -> LogPosition | None:
        """See __init__."""
        end = self._acked_end
        return end.end if isinstance(end, PositionRange) else end

    @_acked.setter
    def _acked(self, end: LogPosition | None) -> None:
        self._acked_end = end

    def _settle(self, *, copies: bool = True) -> None:
        """Find the positions of the last batch: at the client's next request, or when the ring is gone.

        Until then the batch keeps its segments.

        copies: also copy what `_recent` needs of it.
        """
        if self._unsettled is None:
            return
        batch_id, batch = self._unsettled
        self._unsettled = None
        batch.range.settle()
        if copies and self._recent:
            pieces = [piece for piece in batch.pieces if piece[0].chunk_end is None]
            if pieces:
                self._copies[batch_id] = self._recent.copies(pieces)

    def _pass_moves(self, moves: list[Move]) -> None:
        """Take the cursor back to where the feed went on, because the first entries behind these moves are handed out.

        They can come again, and with them older values before the newer ones. If the stream then began behind the newer
        ones, for whatever reason, the client would keep the older ones.
        """
        for move in {move.after.part: move for move in moves}.values():
            self._pass_move(move)

    def _pass_move(self, move: Move) -> None:
        after = move.after
        cursor = self._meta.cursor(self.client_id)
        if cursor is None:
            return

        def comes_again(position: LogPosition | None) -> bool:
            own = position.of(after.part) if position is not None and after.part else position
            return own is not None and steps_back(own, after)

        if comes_again(cursor) or comes_again(self._delivered):
            self._void_in_flight()
            self._acked = None
        of_another = move.again and not (after.part or self._batches.ids) and cursor.server != after.server
        if of_another or comes_again(cursor):
            self._acked = None  # a roll-back begins at the cursor
            back = after.beside(cursor.parts) if after.part else after
            back = replace(back, mark="", snapshot=cursor.snapshot, trail="", origins="")
            self._meta.reset(self.client_id, back)
            self._recent = self._remember(back) if self._remember else None

    def _void_in_flight(self) -> None:
        """Let the batches in flight come again. Their ACKs succeed, and do not move the cursor.

        Nor do they move the snapshot, unless the feed that read their chunks goes on.
        Too many that were void before are forgotten, and with them all of them: their ACKs get an error.
        """
        if sum(batch_id <= self._void_through for batch_id in self._batches.ids) > VOID_MOST:
            self._forget_batches()
        self._void_through = max(self._batches.ids, default=self._void_through)
        self._settle(copies=False)
        self._copies.clear()

    def _forget_batches(self) -> None:
        self._batches.clear()
        self._delivered_at.clear()
        self._behind_move.clear()
        self._settle(copies=False)
        self._copies.clear()

    def _ensure_open(self) -> None:
        failed = self.state is StreamState.FAILED and not self._holds_something()
        if failed and self.error and not self._finds_another(self.error):
            raise self.error
        if self.state is StreamState.PARKED:
            self._open()

    def _finds_another(self, error: CanalError) -> bool:
        """Whether the error leads to a search for another cursor, at once or after the batches in flight are closed."""
        if self._position_lost is None or not isinstance(error, PositionLost):
            return False
        if not self._finding and not self._batches.ids:
            self._finding = True
            self._position_lost(error)
        return True

    def _open(self) -> None:
        cursor = self._meta.cursor(self.client_id)
        if cursor is None:
            raise NotSubscribed(self._config.destination, self.client_id)
        self._check_room()
        self._abandon_ring()
        if self._delivered is None:  # the new ring begins at the cursor, before what is in flight
            self._void_in_flight()
            self._acked = None
        self._server = self._server or cursor.server
        self._read_again_through = self._last_of_gone_rings
        if self._remember and self._recent is None:
            self._recent = self._remember(cursor)
        wakeup = Wakeup(lambda: self._from_feed(self._data_arrived, ring))
        ring = Ring(
            buffer_size=self._config.buffer_size,
            mem_unit=self._config.buffer_mem_unit,
            batch_mode=self._config.batch_mode,
            ddl_isolation=self._config.ddl_isolation,
            on_data=wakeup.data,
        )
        sink = Sink(ring.put, self._config.decode)
        ring_moves: list[tuple[int, Move]] = []
        self._ring_moves = ring_moves
        delivered = self._delivered
        if delivered and cursor.server and not cursor.part and delivered.server not in ("", cursor.server):
            # If the source is the cursor's server again, the feed begins there, and what the other one has sent comes
            # again. Else it tells of its move to the other one, which counts then.
            ring_moves.append((-1, Move(delivered, cursor, False, {})))
        unknown = self._batches.ids and delivered and delivered.server  # whose entries in flight the feed does not know

        def moved(move: Move) -> None:
            if unknown and ring.put_seq < 0 and move.after.server != unknown:
                move = replace(move, again=True)
            before = ring.put_seq
            ring_moves.append((before, move))  # a GET may come before the call on the reactor's thread
            self._from_feed(self._moved, ring, before, move)

        feed = self._open_feed(
            FeedRequest(
                client_id=self.client_id,
                read=self._read,
                filter=self._filter,
                start=self.with_trail(cursor),
                accept=_behind(self._delivered, self._cut(sink.accept)),
                connected=lambda version: self._from_feed(self._connected, ring, version),
                failed=lambda error, retry: self._from_feed(self._failed, ring, error, retry),
                moved=moved,
                behind=self._delivered,
                await_room=ring.await_room,
                await_taken=ring.await_taken,
                busy=wakeup.busy,
                room=None if self._read else ring,
                exact=self._exact,
                within=self.within,
                snapshot_ended=lambda state: self._from_feed(self._snapshot_ended, ring, state),
                snapshot_failing=lambda error, retry: self._from_feed(self._snapshot_failing, ring, error, retry),
                snapshot_goes_on=lambda: self._from_feed(self._snapshot_goes_on, ring),
            )
        )
        self._ring, self._sink, self._feed = ring, sink, feed
        self._ring_behind = self._delivered
        self.state, self.error = StreamState.OPEN, None
        self._arm()
        self._begin(feed)

    def _begin(self, feed: Feed) -> None:
        """Start a feed, later if too many have begun just now: a client can change its filter all the time.

        Raises NoThread, as the GETs that wait do; the next request tries again.
        """
        self._beginning = None
        if wait_s := self._pace.wait_s:
            self._beginning = self._reactor.callLater(wait_s, lambda: self._begin_late(feed))
            return
        self._pace.begins()
        try:
            feed.start()
        except RuntimeError as error:
            self._abandon_ring()
            no_thread = NoThread(self._config.destination, str(error))
            self._fail_waiting(no_thread)
            raise no_thread from error

    def _begin_late(self, feed: Feed) -> None:
        with suppress(NoThread):  # nobody else asks for it now
            self._begin(feed)

    def _abandon_ring(self) -> None:
        """Park: end the feed and drop the ring. Its entries come again; batches in flight may still be acknowledged."""
        if self._ring is None:
            self.state = StreamState.PARKED
            return
        self._settle()
        self._last_of_gone_rings = max(self._batches.ids, default=self._last_of_gone_rings)
        if self._beginning:
            self._beginning.cancel()
            self._beginning = None
        if self._feed:
            self._feed.stop()
        self._ring.close()
        self._ring = self._sink = self._feed = None
        self._snapshot_retry.goes_on()  # a new feed would try at once
        self._moves.clear()
        self.state = StreamState.PARKED

    # ---- reports of the feed's thread, carried over to the reactor

    def _connected(self, ring: Ring, version: str) -> None:
        if ring is self._ring and self.error:
            self.error = None
            self._tell("stream.connected", client_id=self.client_id)

    def _failed(self, ring: Ring, error: CanalError, retry_in_s: float | None) -> None:
        if ring is not self._ring:
            return
        if self.error is None:
            self._failing_since = self._reactor.seconds()
        if retry_in_s is None:
            self.state = StreamState.FAILED
            self._tell("stream.stopped", client_id=self.client_id, error=str(error), alarm=True)
            if self._holds_something():
                self._wake_waiting()
            elif not self._finds_another(error):
                self._fail_waiting(error)
        elif str(error) != str(self.error):
            self._tell("stream.failing", client_id=self.client_id, error=str(error), alarm=True)
        self.error = error

    def _moved(self, ring: Ring, before: int, move: Move) -> None:
        """The feed goes on with another server. Move a cursor that stands where the feed stood to the new position.

        before: the ring's last entry before the move. A feed can leave a server behind a transaction whose boundary it
            has not passed: then the cursor still stands there, and the client has to acknowledge the transaction first.
        """
        if ring is not self._ring:
            return
        self._moves.append(move)
        cursor = self._meta.cursor(self.client_id)
        acknowledged = not self._batches.ids and ring.ack_seq >= before
        if move.whole and acknowledged and cursor is not None and cursor == move.before:
            # both positions are one place, so the client's mark is still true
            after = replace(self.with_trail(move.after), mark=cursor.mark, snapshot=cursor.snapshot)
            self._meta.reset(self.client_id, after)
        facts = {"client_id": self.client_id, "before": str(move.before), "goes_on_at": str(move.after), **move.facts}
        self._tell("stream.moved", alarm=not move.whole, **facts)

    def _snapshot_ended(self, ring: Ring, state: str) -> None:
        """The client's snapshot cannot go on: keep its state with the cursor."""
        cursor = self._meta.cursor(self.client_id)
        if ring is self._ring and cursor is not None:
            self._meta.move(self.client_id, replace(cursor, snapshot=failed(cursor.snapshot, state)))
            ended = SnapshotState.from_text(state)
            facts = {"snapshot": ended.id, "rows": ended.rows, "error": ended.error} if ended else {}
            self._tell("snapshot.failed", client_id=self.client_id, **facts, alarm=True)

    def _snapshot_failing(self, ring: Ring, error: CanalError, retry_in_s: float) -> None:
        if ring is self._ring:
            self._snapshot_retry.failed(str(error), retry_in_s)

    def _snapshot_goes_on(self, ring: Ring) -> None:
        if ring is self._ring:
            self._snapshot_retry.goes_on()

    def _data_arrived(self, ring: Ring) -> None:
        if ring is self._ring and self._waiting:
            self._soon(lambda: self._wake_filled(ring))

    def _wake_filled(self, ring: Ring) -> None:
        if ring is not self._ring:
            return
        for waiting in tuple(self._waiting):
            if self._filled(waiting.size):
                waiting.wake()

    # ---- waiting

    def _filled(self, size: int) -> bool:
        if size == _NEVER:
            return False
        ring = self._ring
        return self.state is StreamState.FAILED or (ring is not None and ring.available(size))

    async def _wait(self, size: int, wait_ms: float | None, awaited: Callable[[], Awaited]) -> None:
        """Wait until there are so many entries. It arms the ring before it looks: a put behind that wakes it."""
        until = None if wait_ms is None else self._asked_at + wait_ms / 1000
        waiting = _Waiting(size, until, awaited())
        self._waiting.append(waiting)
        self._arm()
        try:
            if self._filled(size):
                return
            if len(self._waiting) > WAITING_MOST:
                for oldest in self._waiting[:-WAITING_MOST]:
                    oldest.wake()  # it ends without a batch
            if until is not None and (self._timer is None or self._timer_at > until):
                self._wake_by(until)
            await waiting.done
        finally:
            self._waiting.remove(waiting)
            self._arm()

    def _wake_by(self, until: float) -> None:
        """Set the timer to this time at the latest. It is set anew only when it runs out: most GETs leave it alone."""
        if self._timer:
            self._timer.cancel()
        self._timer_at = until
        self._timer = self._reactor.callLater(max(0.0, until - self._reactor.seconds()), self._time_over)

    def _time_over(self) -> None:
        self._timer = None
        over = max(self._reactor.seconds(), self._timer_at)  # rounding keeps the two apart
        for waiting in list(self._waiting):
            if waiting.until is not None and waiting.until <= over:
                waiting.wake()
        left = [waiting.until for waiting in self._waiting if waiting.until is not None]
        if left:
            self._wake_by(min(left))

    def _arm(self) -> None:
        """Ask the ring to report data as soon as it can answer the smallest GET that waits."""
        ring, waiting = self._ring, self._waiting
        if not ring:
            return
        if waiting:
            ring.wanted = waiting[0].size if len(waiting) == 1 else min([each.size for each in waiting])
            ring.armed = True
        else:
            ring.armed = False

    def _holds_something(self) -> bool:
        return self._ring is not None and self._ring.put_seq > self._ring.get_seq

    def _wake_waiting(self) -> None:
        for waiting in list(self._waiting):
            waiting.wake()

    def _fail_waiting(self, error: CanalError) -> None:
        for waiting in list(self._waiting):
            waiting.fail(error)

    # ---- status

    @property
    def lost(self) -> bool:
        """Whether it has stopped, because the journal of its cursor is purged."""
        return self.state is StreamState.FAILED and isinstance(self.error, PositionLost)

    @property
    def decoded(self) -> LogPosition | None:
        """Everything before this position is or was in the ring; None while no feed is open."""
        return self._feed.decoded if self._feed else None

    @property
    def cursor(self) -> LogPosition | None:
        """The client's cursor, or the same place in the binlog of the server whose entries the client gets."""
        cursor = self._meta.cursor(self.client_id)
        if cursor is None or self._place is None or cursor.server == self._server:
            return cursor
        return replace(self._place, mark=cursor.mark, snapshot=cursor.snapshot)

    @property
    def filter(self) -> str:
        """The filter of the client's subscription."""
        return self._filter

    @property
    def in_flight(self) -> tuple[int, ...]:
        """Ids of the batches in flight, oldest first."""
        return self._batches.ids

    @property
    def entries_in_flight(self) -> int:
        """How many entries the batches in flight have."""
        return self._batches.entries

    @property
    def drained(self) -> bool:
        """Whether the client got everything in the ring."""
        return not self._holds_something()

    @property
    def snapshot_error(self) -> str:
        """Why the client's snapshot has ended; "" if no error has ended it."""
        cursor = self._meta.cursor(self.client_id)
        state = SnapshotState.from_text(cursor.snapshot) if cursor else None
        return state.error if state else ""

    @property
    def rest(self) -> int | None:
        """How many entries the client has acknowledged, if it has all that the source sent; None if not."""
        ring, feed = self._ring, self._feed
        rests = ring is not None and feed is not None and feed.idle and not self.error and ring.put_seq == ring.ack_seq
        return ring.ack_seq if rests and ring is not None else None

    def status(self, newest: LogPosition | None) -> StreamStatus:
        """Return the figures of this moment. newest: where the binlog ended when the instance last asked."""
        ring, sink, feed = self._ring, self._sink, self._feed
        oldest = min(self._delivered_at.values(), default=None)
        cursor = self._meta.cursor(self.client_id)
        snapshot = read_snapshot(cursor.snapshot) if cursor else None
        common = {
            "client_id": self.client_id,
            "filter": self._filter,
            "state": self.state.value,
            "error": str(self.error or ""),
            "cursor": cursor,
            "snapshot": snapshot
            and {**snapshot.facts(), **self._snapshot_rate.of(snapshot), **self._snapshot_retry.of(snapshot)},
            "batches": self._batches.ids,
            "waiting": len(self._waiting),
            "oldest_unacked_s": -1.0 if oldest is None else self._reactor.seconds() - oldest,
        }
        if ring is None or sink is None or feed is None:
            return StreamStatus(**common)  # type: ignore[arg-type]  # one dict of mixed figures, checked by the tests
        return StreamStatus(
            **common,  # type: ignore[arg-type]  # as above
            decoded=feed.decoded,
            put_seq=ring.put_seq,
            get_seq=ring.get_seq,
            ack_seq=ring.ack_seq,
            put_bytes=ring.put_bytes,
            ack_bytes=ring.ack_bytes,
            put_rows=ring.put_rows,
            get_rows=ring.get_rows,
            ack_rows=ring.ack_rows,
            put_time_ms=ring.put_time_ms,
            get_time_ms=ring.get_time_ms,
            ack_time_ms=ring.ack_time_ms,
            transactions=sink.transactions,
            shared=feed.shared,
            tap=feed.tap,
            lent=feed.lent,
            received_bytes=feed.received_bytes,
            sink_blocking_ms=int(sink.blocked_ms),
            ring_entries=ring.put_seq - ring.ack_seq,
            ring_capacity=self._config.buffer_size,
            ring_bytes=ring.put_bytes - ring.ack_bytes,
            ring_bytes_budget=self._config.buffer_size * self._config.buffer_mem_unit,
            seconds_behind=_seconds_behind(feed, self._reactor.seconds() - self._failing_since if self.error else 0.0),
            bytes_behind=_bytes_behind(feed.decoded, newest),
            parts=feed.parts() if isinstance(feed, MergedFeed) else (),
        )


def _reaches(acked: LogPosition, behind: LogPosition) -> bool:
    """Whether a ring that begins behind `behind` holds everything since `acked`; False when in doubt."""
    of_one = all(mine.server == other.server for mine, other in zip(acked.parts, behind.parts, strict=False))
    return of_one and acked.covers(behind)


def _behind(last: LogPosition | None, accept: Callable[[Segment], None]) -> Callable[[Segment], None]:
    """Return `accept`, limited to entries behind `last`: the end of the last batch delivered before parking.

    The limit ends with the first of them. What a source sends again behind that, because the feed went to another
    server and back, has to come again: older values can have come in between.
    """
    if last is None:
        return accept
    reached = set[int]()  # numbers of the sources; see Segment.part

    def accept_rest(segment: Segment) -> None:
        if segment.chunk_end or segment.part in reached:
            accept(segment)
        elif (rest := segment.behind(last)) is not None:
            reached.add(segment.part)
            accept(rest)

    return accept_rest


def _seconds_behind(feed: Feed, failing_s: float) -> float:
    """Return the time from the newest event to now, or `failing_s` if the source has said that nothing is newer.

    The result is -1 before the feed has seen any event.

    failing_s: for how long the feed has been without its source.
    """
    if feed.idle:
        return failing_s
    if not feed.last_event_ms:
        return -1.0
    return max(0.0, time.time() - feed.last_event_ms / 1000)


def _bytes_behind(decoded: LogPosition | None, newest: LogPosition | None) -> int:
    """Return the bytes of binlog that are not decoded yet; -1 if the two positions lie in different journals."""
    if decoded is None or newest is None:
        return -1
    pairs = [(each, newest.of(each.part)) for each in decoded.parts]
    if any(end is None or each.journal != end.journal for each, end in pairs):
        return -1
    return sum(max(0, end.offset - each.offset) for each, end in pairs if end)
