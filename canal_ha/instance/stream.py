"""One client id's stream: its feed, ring, batches, waiting GETs and cursor. Reactor thread; the feed has its own.

A stream is parked until its client asks, open while it has a feed, failed when the feed ended for good. Parking keeps
the position and the batches in flight: an ACK still moves the cursor, the next GET re-opens behind the last batch
handed out, a ROLLBACK re-opens at the cursor. A failed stream hands out what was decoded before the failure, and
opens again when its client subscribes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import Any, Protocol

from twisted.internet.defer import Deferred

from canal_ha.config.model import InstanceConfig
from canal_ha.errors import CanalError, NotSubscribed, PositionLost, TooManyStreams
from canal_ha.instance.feed import Feed, FeedRequest, Move, OpenFeed
from canal_ha.instance.merged_feed import MergedFeed
from canal_ha.instance.skip import after
from canal_ha.instance.status import StreamStatus
from canal_ha.instance.wakeup import Wakeup
from canal_ha.meta.batch_ids import Numbers
from canal_ha.meta.batches import Batches
from canal_ha.meta.write_behind import Meta
from canal_ha.model.batch import EMPTY_BATCH_ID, GetAnswer
from canal_ha.model.get_request import GetRequest
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import Segment
from canal_ha.model.tell import Tell
from canal_ha.sink import Sink
from canal_ha.store.ring import Ring


class Timer(Protocol):
    """A call that waits for its time."""

    def active(self) -> bool: ...

    def cancel(self) -> None: ...


class Reactor(Protocol):
    """What streams use of Twisted's reactor."""

    def seconds(self) -> float: ...

    def callLater(self, delay: float, call: Callable[..., object], /) -> Timer: ...

    def callFromThread(self, call: Callable[..., object], /, *args: object) -> None: ...


class StreamState(Enum):
    """Where a stream stands."""

    PARKED = "parked"
    OPEN = "open"
    FAILED = "failed"


class _Waiting:
    """One GET that waits for data: woken at most once, by data, time or the end of the stream. until: reactor time."""

    def __init__(self, size: int, until: float | None) -> None:
        self.size = size
        self.until = until
        self.done: Deferred[None] = Deferred()

    def wake(self) -> None:
        if not self.done.called:
            self.done.callback(None)

    def fail(self, error: CanalError) -> None:
        if not self.done.called:
            self.done.errback(error)


Accept = Callable[[Segment], None]


class Remembered(Protocol):
    """What was acknowledged last, as text by which another server's binlog tells the place."""

    def copy(self, segment: Segment, first: int, last: int, /) -> Any:
        """What is needed of entries that are being handed out, without the ring's memory."""

    def add_copy(self, piece: Any, /) -> None:
        """Such entries were acknowledged next."""

    def trail(self) -> str: ...


class Stream:
    """See the module. filter_text: of its subscription; `may_open` says whether the destination has room for one more
    open stream; `tell` hears of failures, each once until it is over. position_lost: asked to find another cursor when
    the journal of this one is gone and all that was decoded is acknowledged; it calls `rewind` or `not_found`.
    batch_ids: where the ids of its batches come from, which go on from one stream of the client to the next;
    read: as in FeedRequest; cut: lets through what is wanted of the segments; remember: begins to remember what is
    acknowledged, from the trail of a cursor on.
    """

    def __init__(
        self,
        config: InstanceConfig,
        client_id: int,
        meta: Meta,
        open_feed: OpenFeed,
        reactor: Reactor,
        *,
        may_open: Callable[[], bool],
        tell: Tell,
        batch_ids: Numbers,
        filter_text: str = "",
        position_lost: Callable[[PositionLost], None] | None = None,
        read: str = "",
        cut: Callable[[Accept], Accept] = lambda accept: accept,
        remember: Callable[[str], Remembered] | None = None,
    ) -> None:
        self.client_id = client_id
        self.era = object()  # another one as soon as the cursor is anywhere but where acknowledgements have put it
        self.state = StreamState.PARKED
        self.error: CanalError | None = None
        self._config = config
        self._meta = meta
        self._open_feed = open_feed
        self._reactor = reactor
        self._may_open = may_open
        self._tell = tell
        self._batches = Batches(client_id, batch_ids)
        self._last_of_gone_rings = 0  # batches up to this id come from rings that are gone
        self._void_through = 0  # batches up to this id were chosen by another filter: their ACKs move no cursor
        # Ends of the last batch handed out and of the last acknowledged one, since the stream began at its cursor. They
        # may lie inside a transaction, where a cursor never does.
        self._handed_out: LogPosition | None = None
        self._acked: LogPosition | None = None
        self._ring_behind: LogPosition | None = None  # what the ring left out, because it was handed out before
        self._opened_at: dict[int, float] = {}  # batch id -> monotonic seconds
        self._waiting: list[_Waiting] = []
        self._ringing: Timer | None = None  # for the first GET whose time is over, or for one that was answered
        self._rings_at = 0.0
        self._asked_at = reactor.seconds()
        self._failing_since = 0.0  # while there is an error
        self._filter = filter_text
        self._position_lost = position_lost
        self._read = read
        self._cut = cut
        self._remember = remember
        self._recent: Remembered | None = None  # as of the cursor, once the stream was open
        self._copies: dict[int, list[Any]] = {}  # of batches in flight, for `_recent`
        self._finding = False  # position_lost was called, and is at work
        self._feed: Feed | None = None
        self._ring: Ring | None = None
        self._sink: Sink | None = None

    # ---- requests of the client

    def subscribed(self, filter_text: str) -> None:
        """SUBSCRIBE is good: open, or start again from the cursor when the filter changed or the feed had ended."""
        changed = filter_text != self._filter
        self._filter = filter_text
        self._asked_at = self._reactor.seconds()
        if self.state is StreamState.OPEN and not changed:
            return
        if changed:
            self._void_through = max(self._batches.ids, default=self._void_through)
            self._abandon_ring()
            self._handed_out = self._acked = None
        self._open()

    async def get(self, request: GetRequest) -> GetAnswer:
        """Return the next batch. Raises TooManyStreams, or the error that ended the feed for good."""
        self._asked_at = self._reactor.seconds()
        self._ensure_open()
        enough = 0 if request.eager else request.fetch_size
        if request.wait_ms != 0.0 and not self._filled(enough):
            await self._wait(enough, request.wait_ms)
            self._asked_at = self._reactor.seconds()
            self._ensure_open()
        batch = self._ring.get(request.fetch_size) if self._ring else None
        if batch is None:
            return GetAnswer(EMPTY_BATCH_ID)
        batch_id = self._batches.open(batch.range)
        self._opened_at[batch_id] = self._reactor.seconds()
        if self._recent:
            self._copies[batch_id] = [self._recent.copy(*piece) for piece in batch.pieces]
        self._handed_out = batch.range.end
        return GetAnswer(batch_id, batch)

    def ack(self, batch_id: int, mark: str = "") -> None:
        """Close the oldest batch: its ack point becomes the cursor, with this mark (Meta makes it durable)."""
        done = self._batches.ack(batch_id)
        self._opened_at.pop(batch_id, None)
        copies = self._copies.pop(batch_id, ())
        if self._recent and batch_id > self._void_through:
            for copy in copies:
                self._recent.add_copy(copy)
        if self._ring and batch_id > self._last_of_gone_rings:
            self._ring.ack(done.end, done.end_seq)
        if batch_id <= self._void_through:
            return
        self._acked = done.end
        if done.ack:
            self._meta.move(self.client_id, replace(done.ack, mark=mark) if mark else done.ack)

    def rollback(self, batch_id: int) -> None:
        """Forget all batches in flight, so that the next GET starts behind the last acknowledged one.

        batch_id: 0, or the oldest; the ring rewinds as a whole, so the later batches go with it.
        """
        if batch_id:
            self._batches.rollback(batch_id)
        self._forget_batches()
        self._handed_out = self._acked
        if self._ring is None:
            return
        reaches = self._ring_behind is None or (self._acked is not None and _reaches(self._acked, self._ring_behind))
        if not (reaches and self._ring.rollback()):  # it begins behind what is rolled back, or has let go of it
            self._abandon_ring()
            self._open()

    # ---- life

    def restart(self) -> None:
        """Begin again at the cursor, as after a rollback of everything; batches in flight may still be acknowledged."""
        was_open = self.state is StreamState.OPEN
        self._abandon_ring()
        self._handed_out = self._acked = None
        if was_open:
            self._open()
        else:
            self._wake_waiting()

    def rewind(self) -> None:
        """The cursor was written from outside: what is in flight belongs to the old one, begin again at the new."""
        self._finding = False
        self.era = object()
        self._forget_batches()
        self._recent = None
        self.restart()

    def not_found(self, error: CanalError) -> None:
        """No other cursor could be found; the next GET asks again."""
        self._finding = False
        self._fail_waiting(error)

    def park_if_idle(self) -> None:
        """Close the feed when no GET came for canal.instance.stream.idle seconds; a waiting GET counts as one."""
        if self.state is StreamState.PARKED or self._waiting:
            return
        if self._reactor.seconds() - self._asked_at >= self._config.stream_idle_s:
            self._abandon_ring()

    def close(self, error: CanalError) -> None:
        """End for good; waiting GETs are answered with `error`."""
        self._abandon_ring()
        self._fail_waiting(error)
        if self._ringing:
            self._ringing.cancel()
            self._ringing = None

    def with_trail(self, cursor: LogPosition) -> LogPosition:
        """The cursor, with what it takes to find its place in another server's binlog."""
        return replace(cursor, trail=self._recent.trail()) if self._recent else cursor

    def _forget_batches(self) -> None:
        self._batches.clear()
        self._opened_at.clear()
        self._copies.clear()

    def _ensure_open(self) -> None:
        failed = self.state is StreamState.FAILED and not self._holds_something()
        if failed and self.error and not self._finds_another(self.error):
            raise self.error
        if self.state is StreamState.PARKED:
            self._open()

    def _finds_another(self, error: CanalError) -> bool:
        """Whether another cursor is being looked for, or will be once the batches in flight are acknowledged."""
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
        if not self._may_open():
            raise TooManyStreams(
                f"destination:{self._config.destination} has {self._config.stream_max} open streams already"
                " (canal.instance.stream.max); unsubscribe a client id or raise the limit"
            )
        self._abandon_ring()
        if self._remember and self._recent is None:
            self._recent = self._remember(cursor.trail)
        wakeup = Wakeup(lambda: self._reactor.callFromThread(self._data_arrived, ring))
        ring = Ring(
            buffer_size=self._config.buffer_size,
            mem_unit=self._config.buffer_mem_unit,
            batch_mode=self._config.batch_mode,
            ddl_isolation=self._config.ddl_isolation,
            on_data=wakeup.data,
        )
        sink = Sink(ring.put, self._config.decode)
        feed = self._open_feed(
            FeedRequest(
                client_id=self.client_id,
                read=self._read,
                filter=self._filter,
                start=self.with_trail(cursor),
                accept=_behind(self._handed_out, self._cut(sink.accept)),
                connected=lambda version: self._reactor.callFromThread(self._connected, ring, version),
                failed=lambda error, retry: self._reactor.callFromThread(self._failed, ring, error, retry),
                moved=lambda move: self._reactor.callFromThread(self._moved, ring, move),
                behind=self._handed_out,
                busy=wakeup.busy,
            )
        )
        self._ring, self._sink, self._feed = ring, sink, feed
        self._ring_behind = self._handed_out
        self.state, self.error = StreamState.OPEN, None
        self._arm()
        feed.start()

    def _abandon_ring(self) -> None:
        """Park: the feed ends, what the ring held is dropped (it comes again), batches in flight may still be acked."""
        if self._ring is None:
            self.state = StreamState.PARKED
            return
        self._last_of_gone_rings = max(self._batches.ids, default=self._last_of_gone_rings)
        if self._feed:
            self._feed.stop()
        self._ring.close()
        self._ring = self._sink = self._feed = None
        self.state = StreamState.PARKED

    # ---- what the feed's thread reports, hopped to the reactor

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

    def _moved(self, ring: Ring, move: Move) -> None:
        """The feed goes on with another server. A cursor that stands where the feed stood goes along at once."""
        if ring is not self._ring:
            return
        cursor = self._meta.cursor(self.client_id)
        if move.whole and not self._batches.ids and cursor is not None and cursor == move.before:
            # the same place in another binlog: what the client said of it holds
            self._meta.reset(self.client_id, replace(self.with_trail(move.after), mark=cursor.mark))
        facts = {"client_id": self.client_id, "before": str(move.before), "goes_on_at": str(move.after), **move.facts}
        self._tell("stream.moved", alarm=not move.whole, **facts)

    def _data_arrived(self, ring: Ring) -> None:
        if ring is not self._ring:
            return
        for waiting in list(self._waiting):
            if self._filled(waiting.size):
                waiting.wake()

    # ---- waiting

    def _filled(self, size: int) -> bool:
        return self.state is StreamState.FAILED or (self._ring is not None and self._ring.available(size))

    async def _wait(self, size: int, wait_ms: float | None) -> None:
        until = None if wait_ms is None else self._reactor.seconds() + wait_ms / 1000
        waiting = _Waiting(size, until)
        self._waiting.append(waiting)
        self._arm()
        try:
            if self._filled(size):  # a put between the first look and arming told nobody
                return
            if until is not None:
                self._ring_by(until)
            await waiting.done
        finally:
            self._waiting.remove(waiting)
            self._arm()

    def _ring_by(self, until: float) -> None:
        """Have a timer ring by then. There is one, set anew only when it rings, so that most GETs touch none."""
        if self._ringing:
            if self._rings_at <= until:
                return
            self._ringing.cancel()
        self._rings_at = until
        self._ringing = self._reactor.callLater(max(0.0, until - self._reactor.seconds()), self._rang)

    def _rang(self) -> None:
        self._ringing = None
        over = max(self._reactor.seconds(), self._rings_at)  # which rounding keeps apart
        for waiting in list(self._waiting):
            if waiting.until is not None and waiting.until <= over:
                waiting.wake()
        left = [waiting.until for waiting in self._waiting if waiting.until is not None]
        if left:
            self._ring_by(min(left))

    def _arm(self) -> None:
        """Have the ring tell when the most modest GET that waits can be answered."""
        if self._ring:
            sizes = [waiting.size for waiting in self._waiting]
            self._ring.wanted = min(sizes, default=0)
            self._ring.armed = bool(sizes)

    def _holds_something(self) -> bool:
        return self._ring is not None and self._ring.put_seq > self._ring.get_seq

    def _wake_waiting(self) -> None:
        for waiting in list(self._waiting):
            waiting.wake()

    def _fail_waiting(self, error: CanalError) -> None:
        for waiting in list(self._waiting):
            waiting.fail(error)

    # ---- looking in

    @property
    def decoded(self) -> LogPosition | None:
        """Everything before it is in the ring, or was; None while no feed is open."""
        return self._feed.decoded if self._feed else None

    @property
    def drained(self) -> bool:
        """Whether everything in the ring was handed out."""
        return not self._holds_something()

    def status(self, newest: LogPosition | None) -> StreamStatus:
        """Figures of this moment. newest: where the source's binlog stood when last asked."""
        ring, sink, feed = self._ring, self._sink, self._feed
        oldest = min(self._opened_at.values(), default=None)
        common = {
            "client_id": self.client_id,
            "filter": self._filter,
            "state": self.state.value,
            "error": str(self.error or ""),
            "cursor": self._meta.cursor(self.client_id),
            "batches": self._batches.ids,
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
    """Whether a ring that begins behind one position holds everything since the other one; False when in doubt."""
    of_one = all(mine.server == other.server for mine, other in zip(acked.parts, behind.parts, strict=False))
    return of_one and acked.covers(behind)


def _behind(last: LogPosition | None, accept: Callable[[Segment], None]) -> Callable[[Segment], None]:
    """`accept` for what lies behind `last`, the end of the last batch handed out before the stream was parked."""
    if last is None:
        return accept

    def accept_rest(segment: Segment) -> None:
        rest = after(segment, last)
        if rest is not None:
            accept(rest)

    return accept_rest


def _seconds_behind(feed: Feed, failing_s: float) -> float:
    """Source time to now; when the source has said that there is nothing newer, the time it could not say so since.

    failing_s: how long the feed has been without its source; -1 before anything was heard.
    """
    if feed.idle:
        return failing_s
    if not feed.last_event_ms:
        return -1.0
    return max(0.0, time.time() - feed.last_event_ms / 1000)


def _bytes_behind(decoded: LogPosition | None, newest: LogPosition | None) -> int:
    """Bytes of binlog not decoded yet, when both lie in one journal; -1 when that cannot be told."""
    if decoded is None or newest is None:
        return -1
    pairs = [(each, newest.of(each.part)) for each in decoded.parts]
    if any(end is None or each.journal != end.journal for each, end in pairs):
        return -1
    return sum(max(0, end.offset - each.offset) for each, end in pairs if end)
