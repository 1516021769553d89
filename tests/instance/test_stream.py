"""A client's stream through parking, roll-back, filter changes and failures. The feed runs in its own thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from canal_ha.config.model import BatchMode, InstanceConfig, SourceConfig
from canal_ha.errors import BatchNotFirst, CanalError, FormsMixed, MalformedEvent, NoThread, PositionLost, QuotaReached
from canal_ha.instance.feed import Feed, FeedRequest, Move
from canal_ha.instance.feed_pace import BEGUN_MOST, BEGUN_S, FeedPace
from canal_ha.instance.stream import VOID_MOST, WAITING_MOST, Stream, StreamState
from canal_ha.meta.batch_ids import Numbers
from canal_ha.meta.memory import MemoryBackend
from canal_ha.meta.write_behind import Meta
from canal_ha.model.batch import EMPTY_BATCH_ID, GetAnswer
from canal_ha.model.get_request import GetRequest
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import EntryKind, Segment, Source
from canal_ha.model.snapshot import SnapshotRange, SnapshotState
from tests.segments import Item, segment
from tests.sim.replay import ReplayFeed

T = TypeVar("T")
JOURNAL = "mysql-bin.000001"


class TestReactor(Clock):
    """Virtual time. Calls from threads run when `hop` is called. drift: seconds that each look at the time takes."""

    __test__ = False

    def __init__(self) -> None:
        super().__init__()
        self.drift = 0.0
        self._calls: list[Callable[[], object]] = []
        self._lock = threading.Lock()

    def seconds(self) -> float:
        self.rightNow += self.drift
        return self.rightNow

    def callLater(self, delay: float, callable: Callable[..., object], *args: object, **kw: object) -> Any:
        assert delay >= 0  # as Twisted's reactors do
        return super().callLater(delay, callable, *args, **kw)

    def callFromThread(self, call: Callable[..., object], /, *args: object) -> None:
        with self._lock:
            self._calls.append(lambda: call(*args))

    def hop(self) -> None:
        """Run the calls that threads have posted."""
        with self._lock:
            calls, self._calls = self._calls, []
        for call in calls:
            call()


def now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that does not wait."""
    deferred = Deferred.fromCoroutine(coroutine)
    results: list[Any] = []
    deferred.addBoth(results.append)
    assert results, "it waits"
    if isinstance(results[0], BaseException) or hasattr(results[0], "raiseException"):
        results[0].raiseException()
    return results[0]  # type: ignore[no-any-return]  # checked to be the coroutine's own result


def transactions(count: int, *, first: int = 0) -> Segment:
    """Return a segment with begin, rows and end of each transaction. A transaction starts every 100 bytes."""
    items = []
    for number in range(first, first + count):
        at = 100 + number * 100
        items += [
            Item(at, EntryKind.BEGIN, b"begin %d" % number),
            Item(at + 30, EntryKind.ROWS, b"rows %d" % number),
            Item(at + 60, EntryKind.END, b"end %d" % number),
        ]
    return segment(items, journal=JOURNAL)


class Remembering:
    """A trail that holds the text of each entry."""

    def __init__(self, cursor: LogPosition) -> None:
        self.said = cursor.trail.split(",") if cursor.trail else []
        self.last = cursor.origins

    @staticmethod
    def copies(pieces: Sequence[tuple[Segment, int, int]]) -> list[str]:
        return [segment.entry(at).decode() for segment, first, last in pieces for at in range(first, last)]

    def add_copies(self, copies: list[str]) -> None:
        self.said += copies
        self.last = copies[-1]

    def trail(self) -> str:
        return ",".join(self.said)

    def origins(self) -> str:
        return self.last


class Bench:
    """A stream on three transactions."""

    def __init__(self, *, room: bool = True, config: dict[str, Any] | None = None) -> None:
        self.reactor = TestReactor()
        self.feeds: list[ReplayFeed] = []
        self.requests: list[FeedRequest] = []
        self.segments = [transactions(1), transactions(2, first=1)]
        self.room = room
        self.meta = Meta("example", MemoryBackend(), turn=asyncio.Lock())
        settings = {"batch_mode": BatchMode.ITEMSIZE, "stream_idle_s": 300, **(config or {})}
        self.config = InstanceConfig("example", SourceConfig("127.0.0.1"), **settings)
        start = LogPosition(JOURNAL, 100)
        now(self.meta.load())
        now(self.meta.subscribe(ClientIdentity("example", 1001), start))
        self.told: list[str] = []
        self.stream = Stream(
            self.config,
            1001,
            self.meta,
            self.open_feed,
            self.reactor,
            check_room=self.check_room,
            tell=self.tell,
            batch_ids=Numbers(),
            pace=FeedPace(self.reactor.seconds),
            soon=lambda wake: wake(),
            from_feed=self.reactor.callFromThread,
            remember=Remembering,
        )

    def check_room(self) -> None:
        if not self.room:
            raise QuotaReached("example", 16, "open streams", "canal.instance.stream.max", "streams")

    def tell(self, name: str, /, *, alarm: bool = False, **facts: object) -> None:
        self.told.append(name)

    def open_feed(self, request: FeedRequest) -> Feed:
        self.requests.append(request)
        self.feeds.append(ReplayFeed(request, self.segments))
        return self.feeds[-1]

    def get(self, size: int = 100) -> GetAnswer:
        """Open a parked stream, and return the batch after the feed has pushed everything."""
        answers: list[GetAnswer] = []
        asked = Deferred.fromCoroutine(self.stream.get(GetRequest(size, 1000.0)))
        asked.addCallback(answers.append)
        if self.feeds:
            self.feeds[-1].join()
        self.reactor.hop()
        self.reactor.advance(1)
        if not answers:
            asked.addErrback(lambda failure: failure.raiseException())
        return answers[0]

    def get_slowly(self, size: int = 100) -> GetAnswer:
        """Return the next batch, while the feed may have to wait for room."""
        for _ in range(5000):
            message = now(self.stream.get(GetRequest(size, 0.0)))
            if message.batch is not None:
                return message
            time.sleep(0.001)
        raise AssertionError(f"nothing comes: {self.stream.status(None)}")

    def subscribe(self, filter_text: str = "") -> None:
        self.stream.subscribed(filter_text)

    @staticmethod
    def bodies(message: GetAnswer) -> list[str]:
        """Return the texts of a message's entries."""
        assert message.batch is not None
        data = b"".join(message.batch.views)
        out, at = [], 0
        while at < len(data):
            length = data[at + 1]
            out.append(data[at + 2 : at + 2 + length].decode())
            at += 2 + length
        return out


def test_another_form_of_values_goes_on_behind_what_was_handed_out() -> None:
    """The entries that wait in the ring come again in the form asked for; batches in flight stay, and none is lost."""
    bench = Bench()
    bench.stream.subscribed("", exact=True)
    assert [request.exact for request in bench.requests] == [True]
    first = bench.get(4)  # of a client that does not know the exact form
    assert [request.exact for request in bench.requests] == [True, False]
    answers: list[GetAnswer] = []
    bench.stream.subscribed("", exact=True)  # batches in flight stay; a GET alone would be refused
    asked = Deferred.fromCoroutine(bench.stream.get(GetRequest(100, 1000.0, exact=True)))
    asked.addCallback(answers.append)
    assert [request.exact for request in bench.requests] == [True, False, True]
    bench.feeds[-1].join()
    bench.reactor.hop()
    bench.reactor.advance(1)
    everything = bench.bodies(first) + bench.bodies(answers[0])
    assert everything == [f"{what} {n}" for n in range(3) for what in ("begin", "rows", "end")]
    bench.stream.ack(first.batch_id)
    bench.stream.ack(answers[0].batch_id)
    cursor = bench.meta.cursor(1001)
    assert cursor is not None
    assert cursor.offset == 360


def test_gets_that_ask_for_both_forms_in_turn_do_not_read_the_source_again_and_again() -> None:
    """The first GET of the other form is refused while a batch is in flight. Nothing is lost."""
    bench = Bench()
    bench.subscribe()
    first = bench.get(4)
    feeds = len(bench.feeds)
    for _ in range(5):
        with pytest.raises(FormsMixed, match="in flight: acknowledge them or roll them back"):
            now(bench.stream.get(GetRequest(4, 0.0, exact=True)))
    assert len(bench.feeds) == feeds
    bench.stream.ack(first.batch_id)
    answer = now(bench.stream.get(GetRequest(4, 0.0, exact=True)))
    assert bench.requests[-1].exact
    assert answer.batch_id != first.batch_id


def test_a_parked_stream_goes_on_behind_what_it_handed_out() -> None:
    """The stream parks inside a transaction with a batch in flight: the ACK counts, and the next GET has the rest."""
    bench = Bench()
    bench.subscribe()
    first = bench.get(4)
    assert bench.bodies(first) == ["begin 0", "rows 0", "end 0", "begin 1"]
    bench.reactor.advance(301)
    bench.stream.park_if_idle()
    assert bench.stream.state is StreamState.PARKED
    bench.stream.ack(first.batch_id)
    cursor = bench.meta.cursor(1001)
    assert cursor is not None
    assert cursor.offset == 200  # the begin of transaction 1, the last possible cursor
    rest = bench.get(100)
    assert bench.bodies(rest)[-1] == "end 2"
    everything = bench.bodies(first) + bench.bodies(rest)
    assert everything == [f"{what} {n}" for n in range(3) for what in ("begin", "rows", "end")]


def test_the_end_of_a_broken_read_does_not_end_the_read_that_took_its_place() -> None:
    """A table without a key is read again after parking. An acknowledgement of the read before does not count then."""
    bench = Bench()
    begun = SnapshotState("s", ("shop.log",), without_key=True)
    whole = SnapshotRange(0)
    attempts = [begun.begin_table().new_attempt(whole, number).with_piece(1) for number in (1, 2)]
    ends = [each.behind(whole, 9) for each in attempts]
    chunks = [replace(transactions(1), chunk_end=LogPosition(JOURNAL, 170, snapshot=end.text)) for end in ends]
    bench.meta.move(1001, LogPosition(JOURNAL, 100, snapshot=begun.text))

    def stored() -> str:
        cursor = bench.meta.cursor(1001)
        assert cursor is not None
        return cursor.snapshot

    bench.segments = [chunks[0]]
    bench.subscribe()
    first = bench.get()
    bench.reactor.advance(301)
    bench.stream.park_if_idle()
    bench.segments = [chunks[1]]
    second = bench.get()
    bench.stream.ack(first.batch_id)
    assert stored() == begun.text
    bench.stream.ack(second.batch_id)
    assert stored() == ends[1].text


def test_the_end_of_a_read_that_was_begun_again_does_not_count_while_the_stream_is_parked() -> None:
    """The client has thrown the rows of the first read away when those of the second one came."""
    bench = Bench()
    begun = SnapshotState("s", ("shop.log",), without_key=True)
    first, part = (begun.new_attempt(SnapshotRange(0), number).with_piece(1) for number in (1, 2))
    whole = first.behind(SnapshotRange(0), 9)
    bench.meta.move(1001, LogPosition(JOURNAL, 100, snapshot=begun.text))
    batches = []
    for state in (whole, part):
        bench.segments = [replace(transactions(1), chunk_end=LogPosition(JOURNAL, 170, snapshot=state.text))]
        if state is whole:
            bench.subscribe()
        batches.append(bench.get().batch_id)
        bench.reactor.advance(301)
        bench.stream.park_if_idle()
    for batch_id in batches:
        bench.stream.ack(batch_id)
    cursor = bench.meta.cursor(1001)
    assert cursor is not None
    assert cursor.snapshot == part.text


def test_rollback_after_parking_hands_out_again_from_the_cursor() -> None:
    """A batch in flight during parking comes again after a roll-back, though the new ring started later."""
    bench = Bench()
    bench.subscribe()
    bench.get(3)
    bench.reactor.advance(301)
    bench.stream.park_if_idle()
    assert bench.bodies(bench.get())[0] == "begin 1"
    bench.stream.rollback(0)
    assert bench.stream.status(None).batches == ()
    assert bench.bodies(bench.get())[0] == "begin 0"


def test_a_client_that_rests_inside_a_transaction_gets_on() -> None:
    """Entries acknowledged inside a transaction do not come again, neither after parking nor after a roll-back."""
    bench = Bench()
    bench.subscribe()
    for expected in (["begin 0", "rows 0"], ["end 0", "begin 1"], ["rows 1", "end 1"]):
        batch = bench.get(2)
        assert bench.bodies(batch) == expected
        bench.stream.ack(batch.batch_id)
        bench.reactor.advance(301)
        bench.stream.park_if_idle()
        assert bench.stream.state is StreamState.PARKED
        bench.stream.rollback(0)
    in_flight = bench.get(2)
    assert bench.bodies(in_flight) == ["begin 2", "rows 2"]
    bench.reactor.advance(301)
    bench.stream.park_if_idle()
    assert bench.bodies(bench.get(2)) == ["end 2"]
    bench.stream.rollback(0)
    assert bench.bodies(bench.get(2)) == ["begin 2", "rows 2"]


def test_batches_of_another_filter_move_no_cursor() -> None:
    """Such batches can be acknowledged, but rows that the new filter selects before their end must not be skipped."""
    bench = Bench()
    bench.subscribe()
    batch = bench.get(6)
    before = bench.meta.cursor(1001)
    bench.subscribe("shop\\..*")
    bench.stream.ack(batch.batch_id)
    assert bench.meta.cursor(1001) == before
    again = bench.get(6)
    assert bench.bodies(again)[0] == "begin 0"
    bench.stream.ack(again.batch_id)
    assert bench.meta.cursor(1001) != before


def test_a_client_with_older_values_again_does_not_move_the_cursor_behind_the_newer_ones() -> None:
    """A request for a snapshot begins the stream again. If the node crashed then, no newer value would ever come."""
    bench = Bench()
    bench.subscribe()
    first, second = bench.get(3), bench.get(6)
    begun = bench.meta.cursor(1001)
    bench.stream.restart()
    older = bench.get(3)
    assert bench.bodies(older) == bench.bodies(first)
    bench.stream.ack(first.batch_id)
    bench.stream.ack(second.batch_id)
    assert bench.meta.cursor(1001) == begun
    newer = bench.get(6)
    assert bench.bodies(newer) == bench.bodies(second)
    bench.stream.ack(older.batch_id)
    bench.stream.ack(newer.batch_id)
    cursor = bench.meta.cursor(1001)
    assert cursor is not None
    assert cursor.offset == 360


def test_a_chunk_in_flight_counts_no_more_when_its_rows_come_again() -> None:
    """The client has a chunk of a snapshot, and a row behind it. A GET waits while the stream begins again."""
    bench = Bench()
    begun = SnapshotState("s", ("shop.orders",))
    over = replace(begun.begin_table().behind(SnapshotRange(0), 9), chunks=1, rows=1)
    bench.meta.move(1001, LogPosition(JOURNAL, 100, snapshot=begun.text))
    bench.segments = [replace(transactions(1), chunk_end=LogPosition(JOURNAL, 170, snapshot=over.text))]
    bench.subscribe()
    chunk = bench.get()
    again: list[GetAnswer] = []
    Deferred.fromCoroutine(bench.stream.get(GetRequest(3, None))).addCallback(again.append)
    bench.stream.restart()
    bench.feeds[-1].join()
    bench.reactor.hop()
    assert bench.bodies(again[0]) == bench.bodies(chunk)
    bench.stream.ack(chunk.batch_id)
    cursor = bench.meta.cursor(1001)
    assert cursor is not None
    assert cursor.snapshot == begun.text
    bench.stream.ack(again[0].batch_id)
    cursor = bench.meta.cursor(1001)
    assert cursor is not None
    assert cursor.snapshot == over.text


def test_a_client_gets_on_while_somebody_asks_for_snapshots_all_the_time() -> None:
    """The stream begins again between each GET and its ACK. Each ACK comes before the next GET, so it counts."""
    bench = Bench()
    bench.subscribe()
    got = []
    for _ in range(3):
        message = bench.get(3)
        got += bench.bodies(message)
        bench.stream.restart()
        bench.stream.restart()
        bench.stream.ack(message.batch_id)
    assert got == [f"{what} {n}" for n in range(3) for what in ("begin", "rows", "end")]
    cursor = bench.meta.cursor(1001)
    assert cursor is not None
    assert cursor.offset == 360


def test_a_part_of_a_transaction_that_comes_again_is_not_left_out_behind_a_roll_back() -> None:
    """The client has acknowledged the part before the stream began again, so the cursor is before it."""
    bench = Bench(config={"buffer_size": 2})
    items = [Item(100, EntryKind.BEGIN, b"begin"), *(Item(101 + n, body=b"row %d" % n) for n in range(8))]
    items.append(Item(200, EntryKind.END, b"end"))
    bench.segments = [replace(segment([item], journal=JOURNAL), cut=item.kind is not EntryKind.END) for item in items]
    bench.subscribe()
    part = [bench.get_slowly(1) for _ in range(3)]
    bench.stream.restart()
    for each in part:
        bench.stream.ack(each.batch_id)
    again = [bench.get_slowly(1) for _ in range(5)]
    assert bench.bodies(again[0]) == ["begin"]
    bench.stream.rollback(0)
    assert len(bench.feeds) == 3
    assert bench.bodies(bench.get_slowly(1)) == ["begin"]


def test_a_client_with_thousands_of_batches_in_flight_gets_no_error_for_their_acks() -> None:
    """A Java client would take the error for the reply to its next request."""
    bench = Bench()
    bench.segments = [transactions(VOID_MOST)]
    bench.subscribe()
    batches = [bench.get(1).batch_id for _ in range(VOID_MOST + 1)]
    bench.stream.restart()
    batches.append(bench.get(1).batch_id)
    for batch_id in batches:
        bench.stream.ack(batch_id)


def test_a_waiting_get_keeps_the_stream_open_and_is_woken_by_data() -> None:
    """The stream stays open however long the GET waits. Enough data ends the wait before the timeout."""
    bench = Bench()
    bench.segments = []
    bench.subscribe()
    bench.feeds[-1].join()
    answers: list[GetAnswer] = []
    Deferred.fromCoroutine(bench.stream.get(GetRequest(2, 900_000.0))).addCallback(answers.append)
    bench.reactor.advance(600)
    bench.stream.park_if_idle()
    assert bench.stream.state is StreamState.OPEN
    assert answers == []
    bench.requests[-1].accept(transactions(1))
    bench.reactor.hop()
    assert bench.bodies(answers[0]) == ["begin 0", "rows 0"]


@pytest.mark.parametrize("mode", BatchMode)
def test_an_eager_get_is_answered_by_whatever_comes(mode: BatchMode) -> None:
    """Fewer entries than requested are enough, in both batch modes. Without entries it waits until its timeout."""
    bench = Bench(config={"batch_mode": mode})
    bench.segments = []
    bench.subscribe()
    bench.feeds[-1].join()
    answers: list[GetAnswer] = []
    Deferred.fromCoroutine(bench.stream.get(GetRequest(1000, 500.0, eager=True))).addCallback(answers.append)
    bench.requests[-1].accept(transactions(1))
    bench.reactor.hop()
    assert bench.bodies(answers[0]) == ["begin 0", "rows 0", "end 0"]
    Deferred.fromCoroutine(bench.stream.get(GetRequest(1000, 500.0, eager=True))).addCallback(answers.append)
    bench.reactor.advance(0.4)
    assert len(answers) == 1
    bench.reactor.advance(0.1)
    assert answers[1].batch_id == EMPTY_BATCH_ID


def test_a_busy_feed_wakes_the_reactor_when_it_is_done() -> None:
    """Entries that arrive meanwhile are announced once, at the end; a full ring is announced at once."""
    bench = Bench(config={"buffer_size": 16})
    bench.segments = []
    bench.subscribe()
    bench.feeds[-1].join()
    request, answers = bench.requests[-1], list[GetAnswer]()

    def ask() -> None:
        Deferred.fromCoroutine(bench.stream.get(GetRequest(100, 900_000.0, eager=True))).addCallback(answers.append)

    ask()
    request.busy(True)
    for number in range(2):
        request.accept(transactions(1, first=number))
        bench.reactor.hop()
        assert answers == []
    request.busy(False)
    bench.reactor.hop()
    assert [answer.batch.entries for answer in answers if answer.batch] == [6]
    ask()
    request.busy(True)
    request.accept(transactions(4, first=2))
    bench.reactor.hop()
    assert [answer.batch.entries for answer in answers if answer.batch] == [6, 12]


def test_each_waiting_get_has_its_own_time() -> None:
    """GETs end in the order of their timeouts. The timeout of an answered GET affects no other GET."""
    bench = Bench()
    bench.segments = []
    bench.subscribe()
    bench.feeds[-1].join()
    over: list[str] = []

    async def ask(name: str, size: int, wait_ms: float | None) -> None:
        await bench.stream.get(GetRequest(size, wait_ms))
        over.append(name)

    for name, wait_ms in (("long", 3000.0), ("short", 1000.0), ("endless", None), ("middle", 2000.0)):
        Deferred.fromCoroutine(ask(name, 1000, wait_ms))
    for expected in (["short"], ["short", "middle"], ["short", "middle", "long"], ["short", "middle", "long"]):
        bench.reactor.advance(1)
        assert over == expected
    Deferred.fromCoroutine(ask("answered", 1, 1000.0))
    bench.requests[-1].accept(transactions(1))
    bench.reactor.hop()
    bench.reactor.advance(0.5)
    Deferred.fromCoroutine(ask("later", 1000, 1000.0))
    bench.reactor.advance(0.5)
    assert over[3:] == ["answered"]
    bench.reactor.advance(0.5)
    assert over[3:] == ["answered", "later"]


def test_the_oldest_wait_ends_when_too_many_gets_wait() -> None:
    """Each GET that wakes looks at all that wait, so thousands would block the reactor."""
    bench = Bench()
    bench.segments = []
    bench.subscribe()
    bench.feeds[-1].join()
    over: list[int] = []

    async def ask(number: int) -> None:
        answer = await bench.stream.get(GetRequest(1000, None))
        assert answer.batch_id == EMPTY_BATCH_ID
        over.append(number)

    for number in range(WAITING_MOST + 3):
        Deferred.fromCoroutine(ask(number))
    assert over == [0, 1, 2]


def test_batches_of_many_filters_do_not_fill_the_memory() -> None:
    """Each new filter makes a new ring with a whole budget. Too many batches of the old ones are forgotten."""
    bench = Bench()
    bench.subscribe()
    kept = 0
    for number in range(4 * VOID_MOST // 9):
        for _ in range(9):
            if bench.get(1).batch is None:
                break
        kept = max(kept, len(bench.stream.in_flight))
        bench.reactor.advance(10)
        bench.subscribe(f"shop\\.t{number}")
    assert VOID_MOST < kept <= VOID_MOST + 18
    batch = bench.get(9)
    bench.stream.rollback(0)
    assert bench.bodies(bench.get(9)) == bench.bodies(batch)


def test_a_client_that_changes_its_filter_all_the_time_opens_few_feeds() -> None:
    """A feed makes several connections to the source. After a burst, the next one begins later, and gets every row."""
    bench = Bench()
    started: list[ReplayFeed] = []
    open_feed = bench.open_feed

    def opened(request: FeedRequest) -> Feed:
        feed = open_feed(request)
        start = feed.start

        def began() -> None:
            started.append(feed)  # type: ignore[arg-type]
            start()

        feed.start = began  # type: ignore[method-assign]
        return feed

    bench.stream._open_feed = opened
    for number in range(500):
        bench.subscribe(f"shop\\.t{number}")
    assert len(started) == BEGUN_MOST
    bench.reactor.advance(BEGUN_S)
    assert len(started) == BEGUN_MOST + 1
    assert started[-1] is bench.feeds[-1]
    assert len(bench.bodies(bench.get())) == 9


def without_threads(bench: Bench) -> None:
    """Let the feeds that are opened from now on get no thread."""

    def opened(request: FeedRequest) -> Feed:
        feed = bench.open_feed(request)

        def start() -> None:
            raise RuntimeError("can't start new thread")

        feed.start = start  # type: ignore[method-assign]
        return feed

    bench.stream._open_feed = opened


def failures_of_a_get_that_waits(bench: Bench) -> list[object]:
    """Let a GET wait without limit; return the list of its failures."""
    failures: list[object] = []
    Deferred.fromCoroutine(bench.stream.get(GetRequest(1, None))).addErrback(failures.append)
    return failures


def test_a_stream_for_which_there_is_no_thread_begins_with_the_next_request() -> None:
    """The client gets an error. The stream must not count as open: nothing would ever come."""
    bench = Bench()
    without_threads(bench)
    with pytest.raises(NoThread, match="ulimit -u"):
        bench.subscribe()
    with pytest.raises(NoThread):
        now(bench.stream.get(GetRequest(1, 0.0)))
    bench.stream._open_feed = bench.open_feed
    assert len(bench.bodies(bench.get())) == 9


def test_a_get_that_waits_hears_that_there_is_no_thread_for_its_stream() -> None:
    """An operator has moved the cursor, so nobody else asks for the stream. The next GET begins it."""
    bench = Bench()
    bench.segments = []
    bench.subscribe()
    failures = failures_of_a_get_that_waits(bench)
    without_threads(bench)
    bench.stream.rewind()
    assert len(failures) == 1
    bench.stream._open_feed = bench.open_feed
    bench.segments = [transactions(3)]
    assert len(bench.bodies(bench.get())) == 9


def test_a_stream_for_which_there_is_no_thread_later_tells_the_gets_that_wait() -> None:
    """It begins later because the client has changed its filter too often."""
    bench = Bench()
    for number in range(BEGUN_MOST):
        bench.subscribe(f"shop\\.t{number}")
    without_threads(bench)
    bench.subscribe("shop\\.last")
    failures = failures_of_a_get_that_waits(bench)
    bench.reactor.advance(BEGUN_S)
    assert len(failures) == 1
    bench.stream._open_feed = bench.open_feed
    assert len(bench.bodies(bench.get())) == 9


def test_a_wait_that_is_over_at_once_disturbs_no_other() -> None:
    """Microseconds pass while the short GET is registered; the longer wait still ends in time."""
    bench = Bench()
    bench.segments = []
    bench.subscribe()
    bench.feeds[-1].join()
    bench.reactor.drift = 2e-6
    over: list[str] = []

    async def ask(name: str, wait_ms: float) -> None:
        await bench.stream.get(GetRequest(1000, wait_ms))
        over.append(name)

    for name, wait_ms in (("long", 1000.0), ("short", 0.001)):
        Deferred.fromCoroutine(ask(name, wait_ms))
    bench.reactor.advance(0.1)
    assert over == ["short"]
    bench.reactor.advance(1)
    assert over == ["short", "long"]


def test_a_get_takes_what_is_there_when_its_time_is_up() -> None:
    """With fewer entries than requested, the GET waits until its timeout and then takes them."""
    bench = Bench()
    bench.subscribe()
    bench.feeds[-1].join()
    answers: list[GetAnswer] = []
    Deferred.fromCoroutine(bench.stream.get(GetRequest(1000, 500.0))).addCallback(answers.append)
    bench.reactor.hop()
    assert answers == []
    bench.reactor.advance(0.5)
    assert len(bench.bodies(answers[0])) == 9


def test_a_get_that_is_cancelled_takes_nothing() -> None:
    """If a connection closes while its GET waits, the data stays for the next GET."""
    bench = Bench()
    bench.subscribe()
    bench.feeds[-1].join()
    waiting = Deferred.fromCoroutine(bench.stream.get(GetRequest(1000, 500.0)))
    waiting.addErrback(lambda failure: None)
    waiting.cancel()
    bench.reactor.advance(1)
    assert len(bench.bodies(bench.get())) == 9


def test_a_changed_filter_starts_again_at_the_cursor() -> None:
    """Entries of the old filter are dropped, and the new dump starts at the cursor. The same filter changes nothing."""
    bench = Bench()
    bench.subscribe()
    batch = bench.get(3)
    bench.stream.ack(batch.batch_id)
    bench.get(3)
    bench.subscribe("shop\\..*")
    assert [request.filter for request in bench.requests] == ["", "shop\\..*"]
    assert bench.requests[-1].start.offset == 160
    assert bench.bodies(bench.get())[0] == "begin 1"
    bench.subscribe("shop\\..*")
    assert len(bench.requests) == 2


def test_acks_go_in_order() -> None:
    """Only the oldest batch can be acknowledged, and a wrong ACK changes nothing."""
    bench = Bench()
    bench.subscribe()
    first, second = bench.get(3), bench.get(3)
    with pytest.raises(BatchNotFirst, match=f"batchId:{second.batch_id} is not the firstly:{first.batch_id}"):
        bench.stream.ack(second.batch_id)
    bench.stream.ack(first.batch_id)
    bench.stream.ack(second.batch_id)
    cursor = bench.meta.cursor(1001)
    assert cursor is not None
    assert (cursor.offset, cursor.consumed) == (260, True)


def test_a_mark_stays_with_the_cursor_until_something_else_moves_it() -> None:
    """An ACK without a mark drops it, and so does an operator who replaces the cursor."""
    bench = Bench()
    bench.subscribe()

    def mark() -> str:
        cursor = bench.meta.cursor(1001)
        assert cursor is not None
        return cursor.mark

    bench.stream.ack(bench.get(3).batch_id, "spool a")
    assert mark() == "spool a"
    [(_, written)] = now(bench.meta.flush())
    assert written.mark == "spool a"
    bench.stream.ack(bench.get(3).batch_id)
    assert mark() == ""
    bench.stream.ack(bench.get(3).batch_id, "spool b")
    assert mark() == "spool b"
    bench.meta.replaced(1001, LogPosition(JOURNAL, 100))
    assert mark() == ""


def test_a_feed_that_ended_for_good_says_so_until_the_client_subscribes_again() -> None:
    """A lost position fails the waiting GET and every later one. A SUBSCRIBE tries again."""
    bench = Bench()
    bench.segments = []
    bench.subscribe()
    bench.feeds[-1].join()
    failures: list[CanalError] = []

    def failed(failure: Failure) -> None:
        assert isinstance(failure.value, CanalError)
        failures.append(failure.value)

    Deferred.fromCoroutine(bench.stream.get(GetRequest(5, None))).addErrback(failed)
    bench.requests[-1].failed(PositionLost("mysql-bin.000001 is purged"), None)
    bench.reactor.hop()
    assert [str(error) for error in failures] == ["mysql-bin.000001 is purged"]
    assert bench.stream.status(None).state == "failed"
    with pytest.raises(PositionLost):
        now(bench.stream.get(GetRequest(5, 0.0)))
    bench.subscribe()
    assert bench.stream.state is StreamState.OPEN


def test_what_was_decoded_before_a_failure_is_handed_out() -> None:
    """An invalid event follows three good transactions: GETs return the transactions, and then the error."""
    bench = Bench()
    bench.subscribe()
    bench.feeds[-1].join()
    waiting: list[GetAnswer] = []
    Deferred.fromCoroutine(bench.stream.get(GetRequest(1000, None))).addCallback(waiting.append)
    bench.requests[-1].failed(MalformedEvent(JOURNAL, 400, "CRC32 differs"), None)
    bench.reactor.hop()
    assert len(bench.bodies(waiting[0])) == 9
    bench.stream.ack(waiting[0].batch_id)
    with pytest.raises(MalformedEvent):
        now(bench.stream.get(GetRequest(1000, None)))
    assert bench.told == ["stream.stopped"]


def test_lag_while_the_source_is_away() -> None:
    """The stream had caught up before the connection broke, so it is behind by the time since then."""
    bench = Bench()
    bench.subscribe()
    bench.feeds[-1].join()
    bench.reactor.hop()
    assert bench.stream.status(None).seconds_behind == 0.0
    for _ in range(2):
        bench.requests[-1].failed(CanalError("connection refused"), 0.5)
        bench.reactor.hop()
        bench.reactor.advance(3)
    assert bench.stream.status(None).seconds_behind == 6.0
    assert bench.told == ["stream.failing"]
    bench.requests[-1].connected("9.7")
    bench.reactor.hop()
    assert bench.stream.status(None).seconds_behind == 0.0
    assert bench.told == ["stream.failing", "stream.connected"]


def test_an_error_that_is_tried_again_leaves_the_client_waiting() -> None:
    """While MySQL is away, GETs are empty and the status shows the error. The next connection clears it."""
    bench = Bench()
    bench.segments = []
    bench.subscribe()
    bench.feeds[-1].join()
    bench.reactor.hop()
    bench.requests[-1].failed(CanalError("connection refused"), 0.5)
    bench.reactor.hop()
    assert bench.get().batch_id == EMPTY_BATCH_ID
    assert bench.stream.status(None).error == "connection refused"
    bench.requests[-1].connected("9.7")
    bench.reactor.hop()
    assert bench.stream.status(None).error == ""


def test_one_stream_too_many_is_refused() -> None:
    """The stream stays parked, and the error names the key of the destination's limit."""
    bench = Bench(room=False)
    with pytest.raises(QuotaReached, match=r"canal\.instance\.stream\.max"):
        bench.subscribe()
    assert bench.stream.state is StreamState.PARKED


def test_the_trail_is_that_of_the_cursor() -> None:
    """The trail covers acknowledged entries. A feed that opens again starts with it; a new cursor brings its own."""
    bench = Bench()
    bench.subscribe()
    message = bench.get(3)
    bench.get(3)
    cursor = bench.meta.cursor(1001)
    assert cursor is not None
    assert bench.stream.with_trail(cursor).trail == ""
    bench.stream.ack(message.batch_id)
    assert bench.stream.with_trail(cursor).trail == "begin 0,rows 0,end 0"
    bench.stream.restart()
    bench.get(3)
    assert bench.requests[-1].start.trail == "begin 0,rows 0,end 0"
    assert bench.requests[-1].start.origins == "end 0"
    bench.meta.replaced(1001, LogPosition(JOURNAL, 200, trail="mine", origins="too"))
    bench.stream.rewind()
    assert (bench.requests[-1].start.trail, bench.requests[-1].start.origins) == ("mine", "too")


def test_a_cursor_goes_along_when_the_source_changes() -> None:
    """The cursor moves if it is where the feed is, but not with batches in flight or to an uncertain position.

    Nor does it move if rows wait that the client has not got: the feed has left behind them, before their boundary.
    """
    there = LogPosition("mysql-bin.000007", 4, server="u-2")

    def moved(*, whole: bool = True, wait: bool = False, get: bool = False, mark: str = "") -> LogPosition | None:
        bench = Bench()
        bench.segments = [transactions(1)] if wait or get else []
        bench.meta.replaced(1001, LogPosition(JOURNAL, 100, mark=mark))
        bench.subscribe()
        bench.feeds[-1].join()
        if get:
            bench.get(3)
        bench.requests[-1].moved(Move(LogPosition(JOURNAL, 100), there, whole, {"how": "content"}))
        bench.reactor.hop()
        assert bench.told[-1:] == ["stream.moved"]
        return bench.meta.cursor(1001)

    assert moved() == there
    with_mark = moved(mark="spool a")
    assert with_mark == there
    assert with_mark is not None
    assert with_mark.mark == "spool a"
    assert moved(whole=False) == moved(wait=True) == moved(get=True) == LogPosition(JOURNAL, 100)


HERE = Source("127.0.0.1", 3306, uuid="u-1")


def moves(bench: Bench, after: LogPosition) -> None:
    """Let the feed visit another server, which sends nothing, and go on at a place. Neither move is whole."""
    elsewhere = LogPosition("mysql-bin.000007", 4, server="u-2")
    bench.requests[-1].moved(Move(LogPosition(JOURNAL, 400, server="u-1"), elsewhere, False, {}))
    bench.requests[-1].moved(Move(elsewhere, after, False, {}))


def at_first() -> Bench:
    """Return a stream whose client has got and acknowledged nothing of three transactions."""
    bench = Bench()
    bench.segments = [replace(transactions(3), source=HERE)]
    bench.meta.replaced(1001, LogPosition(JOURNAL, 100, server="u-1"))
    bench.subscribe()
    return bench


def gone_back(*, acknowledged: bool = True) -> Bench:
    """Return a stream that goes on before what its client has, in the same binlog.

    The client has the third one of three transactions in flight, and behind it the second one, which comes again.

    acknowledged: whether it has acknowledged the first two, or has all of them in flight.
    """
    bench = at_first()
    first = bench.get(6)
    if acknowledged:
        bench.stream.ack(first.batch_id)
    moves(bench, LogPosition(JOURNAL, 200, address="127.0.0.1", port=3306, server="u-1"))
    bench.requests[-1].accept(replace(transactions(2, first=1), source=HERE))
    assert bench.bodies(bench.get(3)) == ["begin 2", "rows 2", "end 2"]
    assert bench.bodies(bench.get(3)) == ["begin 1", "rows 1", "end 1"]
    return bench


def offset_of(bench: Bench) -> int:
    """Return where the client's cursor is."""
    cursor = bench.meta.cursor(1001)
    assert cursor is not None
    return cursor.offset


def test_a_late_ack_does_not_leave_the_cursor_behind_rows_that_come_again() -> None:
    """The client acknowledges what it got before the move when it has the older row again."""
    bench = gone_back(acknowledged=False)
    offsets = []
    for batch_id in (*bench.stream.in_flight, bench.get(3).batch_id):
        bench.stream.ack(batch_id)
        offsets.append(offset_of(bench))
    assert offsets == [100, 100, 260, 360]


def test_a_roll_back_before_the_move_does_not_leave_the_cursor_behind_rows_that_come_again() -> None:
    """The ring goes back to before the move, so the client passes it once more."""
    bench = gone_back()
    bench.stream.rollback(0)
    offsets = []
    for _ in range(3):
        bench.stream.ack(bench.get(3).batch_id)
        offsets.append(offset_of(bench))
    assert offsets == [360, 260, 360]


def test_a_chunk_in_flight_at_a_move_counts() -> None:
    """Its feed goes on, and does not read it again."""
    bench = at_first()
    bench.stream.ack(bench.get(9).batch_id)
    begun = SnapshotState("s", ("shop.orders",))
    over = replace(begun.begin_table().behind(SnapshotRange(0), 9), chunks=1, rows=1)
    cursor = bench.meta.cursor(1001)
    assert cursor is not None
    bench.meta.move(1001, replace(cursor, snapshot=begun.text))
    chunk = replace(transactions(1, first=2), source=HERE, chunk_end=replace(cursor, snapshot=over.text))
    bench.requests[-1].accept(chunk)
    in_flight = bench.get(9)
    moves(bench, LogPosition(JOURNAL, 200, address="127.0.0.1", port=3306, server="u-1"))
    bench.requests[-1].accept(replace(transactions(2, first=1), source=HERE))
    bench.get(9)
    bench.stream.ack(in_flight.batch_id)
    cursor = bench.meta.cursor(1001)
    assert cursor is not None
    assert (cursor.offset, cursor.snapshot) == (200, over.text)


def test_a_client_with_an_older_row_of_another_server_does_not_go_on_behind_the_newer_one() -> None:
    """The client has acknowledged everything before the move. The other server sends older rows again."""
    bench = at_first()
    bench.stream.ack(bench.get(9).batch_id)
    there = LogPosition(JOURNAL, 200, address="127.0.0.2", port=3306, server="u-2")
    bench.requests[-1].moved(Move(LogPosition(JOURNAL, 400, server="u-1"), there, False, {}))
    bench.requests[-1].accept(replace(transactions(2, first=1), source=Source("127.0.0.2", 3306, uuid="u-2")))
    bench.get(3)
    cursor = bench.meta.cursor(1001)
    assert cursor is not None
    assert (cursor.server, cursor.offset, cursor.trail) == ("u-2", 200, "")


def moved_away(bench: Bench, *, again: bool = True) -> None:
    """Let the feed go on with another server, which sends the second transaction and the third one, again or not."""
    there = LogPosition(JOURNAL, 200, address="127.0.0.2", port=3306, server="u-2")
    bench.requests[-1].moved(Move(LogPosition(JOURNAL, 400, server="u-1"), there, False, {}, again))
    bench.requests[-1].accept(replace(transactions(2, first=1), source=Source("127.0.0.2", 3306, uuid="u-2")))


def test_older_rows_of_another_server_wait_for_the_acks_of_those_before() -> None:
    """If they came at once, ACKs from before the move would leave the cursor behind the newer rows.

    The stream would go on there if it was parked, for example, once the other server has caught up.
    """
    bench = at_first()
    batches = [bench.get(3).batch_id for _ in range(3)]
    moved_away(bench)
    for batch_id in batches:
        assert bench.get(3).batch is None
        bench.stream.ack(batch_id)
    assert bench.bodies(bench.get(3)) == ["begin 1", "rows 1", "end 1"]
    bench.reactor.advance(301)
    bench.stream.park_if_idle()
    bench.get(3)
    start = bench.requests[-1].start
    assert (start.server, start.offset) == ("u-2", 200)


def test_a_get_without_a_limit_waits_a_second_for_the_acks_before_a_move() -> None:
    """Its client may acknowledge from the thread that waits."""
    bench = at_first()
    bench.get(9)
    moved_away(bench)
    answers: list[GetAnswer] = []
    Deferred.fromCoroutine(bench.stream.get(GetRequest(3, None))).addCallback(answers.append)
    bench.reactor.advance(0.9)
    assert not answers
    bench.reactor.advance(0.2)
    assert [answer.batch for answer in answers] == [None]


def test_rows_that_do_not_come_again_leave_the_mark_with_the_cursor() -> None:
    """The other server lacks some transactions, and sends none that was delivered. The fingerprints stay true, too."""
    bench = at_first()
    bench.stream.ack(bench.get(9).batch_id, "mine")
    moved_away(bench, again=False)
    bench.get(3)
    cursor = bench.meta.cursor(1001)
    assert cursor is not None
    assert (cursor.server, cursor.offset, cursor.mark) == ("u-1", 360, "mine")
    assert bench.stream.with_trail(cursor).trail.endswith("end 2")


def test_a_client_that_was_parked_gets_what_a_former_server_sends_again() -> None:
    """The other server has sent an older row in between. The newer ones lie where the client was when it was parked."""
    bench = at_first()
    bench.stream.ack(bench.get(9).batch_id)
    bench.reactor.advance(301)
    bench.stream.park_if_idle()
    assert bench.get(3).batch is None
    there = LogPosition(JOURNAL, 200, address="127.0.0.2", port=3306, server="u-2")
    back = LogPosition(JOURNAL, 200, address="127.0.0.1", port=3306, server="u-1")
    feed = bench.requests[-1]
    feed.moved(Move(LogPosition(JOURNAL, 400, server="u-1"), there, False, {}))
    feed.accept(replace(transactions(1, first=1), source=Source("127.0.0.2", 3306, uuid="u-2")))
    feed.moved(Move(there, back, False, {}))
    feed.accept(replace(transactions(2, first=1), source=HERE))
    got = []
    for _ in range(3):
        message = bench.get(3)
        got += bench.bodies(message)[1:2]
        bench.stream.ack(message.batch_id)
    assert got == ["rows 1", "rows 1", "rows 2"]


def test_a_roll_back_behind_older_rows_of_another_server_leaves_nothing_out() -> None:
    """A new feed begins at the cursor. What the former server sent before the move may have to come again, too."""
    bench = at_first()
    bench.stream.ack(bench.get(9).batch_id)
    moved_away(bench)
    bench.get(3)
    bench.reactor.advance(301)
    bench.stream.park_if_idle()
    bench.stream.rollback(0)
    bench.get(3)
    assert bench.requests[-1].behind is None


def test_rows_in_flight_come_again_if_the_source_moves_while_the_client_is_parked() -> None:
    """The feed knows only what is acknowledged, so the other server sends those rows for new ones."""
    bench = at_first()
    bench.stream.ack(bench.get(3).batch_id)
    in_flight = bench.get(9)
    bench.reactor.advance(301)
    bench.stream.park_if_idle()
    assert bench.get(3).batch is None
    moved_away(bench, again=False)
    assert bench.get(3).batch is None
    bench.stream.ack(in_flight.batch_id)
    assert bench.bodies(bench.get(3)) == ["begin 1", "rows 1", "end 1"]
    cursor = bench.meta.cursor(1001)
    assert cursor is not None
    assert (cursor.server, cursor.offset) == ("u-2", 200)


def test_rows_come_again_if_the_source_goes_back_while_the_client_is_parked() -> None:
    """It has a batch of another server in flight. Its ACK must not leave the cursor behind what comes again."""
    bench = at_first()
    bench.stream.ack(bench.get(6).batch_id)
    bench.stream.ack(bench.get(3).batch_id)
    bench.meta.reset(1001, LogPosition(JOURNAL, 200, address="127.0.0.1", port=3306, server="u-1"))
    moved_away(bench, again=False)
    there = bench.get(9)
    bench.reactor.advance(301)
    bench.stream.park_if_idle()
    assert bench.get(3).batch is None
    bench.stream.ack(there.batch_id)
    assert bench.bodies(bench.get(3)) == ["begin 1", "rows 1", "end 1"]
    cursor = bench.meta.cursor(1001)
    assert cursor is not None
    assert (cursor.server, cursor.offset) == ("u-1", 200)


def test_rows_that_come_again_from_a_former_server_take_the_cursor_back() -> None:
    """The cursor goes back before the client has the older row. An ACK from before the move does not move it on."""
    bench = gone_back()
    offsets = [offset_of(bench)]
    for batch_id in (*bench.stream.in_flight, bench.get(3).batch_id):
        bench.stream.ack(batch_id)
        offsets.append(offset_of(bench))
    assert offsets == [200, 200, 260, 360]


@pytest.mark.parametrize("how", ["parked", "parked and rolled back", "begun again", "another filter", "rolled back"])
def test_a_client_with_an_older_row_gets_the_newer_one_however_the_stream_goes_on(how: str) -> None:
    """No node dies. The client applies the second transaction again, and must get the third one again, too."""
    bench = gone_back()
    if "parked" in how:
        bench.reactor.advance(301)
        bench.stream.park_if_idle()
    if "rolled back" in how:
        bench.stream.rollback(0)
    if how == "begun again":
        bench.stream.restart()
    if how == "another filter":
        bench.subscribe(r"shop\.t")
    got = []
    while (message := bench.get(9)).batch is not None:
        got += bench.bodies(message)
        while bench.stream.in_flight:
            bench.stream.ack(bench.stream.in_flight[0])
        if "rows 2" in got:
            break
    assert got[-3:] == ["begin 2", "rows 2", "end 2"]
    assert offset_of(bench) == 360


def test_a_transaction_larger_than_the_ring_comes_again_after_a_roll_back() -> None:
    """The client acknowledges nothing before the end, so the ring has dropped the begin, which is read again."""
    bench = Bench(config={"buffer_size": 4})
    items = [Item(100, EntryKind.BEGIN, b"begin"), *(Item(101 + n, body=b"row %d" % n) for n in range(30))]
    items.append(Item(200, EntryKind.END, b"end"))
    cuts = range(0, len(items), 3)
    bench.segments = [replace(segment(items[at : at + 3], journal=JOURNAL), cut=at + 3 < len(items)) for at in cuts]
    expected = [item.body.decode() for item in items]
    bench.subscribe()

    def everything() -> list[str]:
        got: list[str] = []
        while not got or got[-1] != "end":
            message = bench.get_slowly()
            got += bench.bodies(message)
        return got

    assert everything() == expected
    assert len(bench.stream.status(None).batches) > 4
    bench.stream.rollback(0)
    assert everything() == expected
    for batch_id in bench.stream.status(None).batches:
        bench.stream.ack(batch_id)
    cursor = bench.meta.cursor(1001)
    assert cursor is not None
    assert (cursor.offset, cursor.consumed) == (200, True)
    assert len(bench.feeds) == 2


def test_a_client_that_was_told_its_cursor_gets_the_rows_of_another_server_after_it_subscribes_again() -> None:
    """First it acknowledges those of the server that it knows. The cursor that it is told then is in the new binlog."""
    bench = Bench()
    there = LogPosition("mysql-bin.000007", 4, server="u-2")
    elsewhere = Source("127.0.0.1", 3307, uuid="u-2")
    bench.segments = [
        replace(transactions(1), source=Source("127.0.0.1", 3306, uuid="u-1")),
        replace(transactions(1, first=1), source=elsewhere, journal=there.journal),
    ]
    bench.meta.replaced(1001, LogPosition(JOURNAL, 100, server="u-1", mark="mine"))
    bench.subscribe()
    bench.feeds[-1].join()
    era = bench.stream.era

    def get() -> GetAnswer:
        return now(bench.stream.get(GetRequest(100, 0.0, one_server=True)))

    first = get()
    assert bench.bodies(first) == ["begin 0", "rows 0", "end 0"]
    assert get().batch is None
    bench.requests[-1].moved(Move(LogPosition(JOURNAL, 200), there, False, {}))
    bench.reactor.hop()
    assert get().batch is None
    assert bench.stream.era is era
    bench.stream.ack(first.batch_id, "mine")
    assert get().batch is None
    assert bench.stream.era is not era
    cursor = bench.stream.cursor
    assert cursor is not None
    assert (cursor, cursor.server, cursor.mark) == (there, "u-2", "mine")
    assert bench.bodies(get()) == ["begin 1", "rows 1", "end 1"]


def test_a_client_gets_a_transaction_of_another_server_if_it_has_a_part_of_one() -> None:
    """It may acknowledge the part only when the transaction is whole, so the rows of the new server do not wait."""
    bench = Bench()
    there = LogPosition("mysql-bin.000007", 4, server="u-2")
    part = segment([Item(100, EntryKind.BEGIN, b"begin 0"), Item(130, EntryKind.ROWS, b"rows 0")], journal=JOURNAL)
    bench.segments = [
        replace(part, source=Source("127.0.0.1", 3306, uuid="u-1"), cut=True),
        replace(transactions(1), source=Source("127.0.0.1", 3307, uuid="u-2"), journal=there.journal),
    ]
    bench.meta.replaced(1001, LogPosition(JOURNAL, 100, server="u-1"))
    bench.subscribe()
    bench.feeds[-1].join()
    era = bench.stream.era
    bench.requests[-1].moved(Move(LogPosition(JOURNAL, 100), there, False, {}))
    bench.reactor.hop()
    answers = [now(bench.stream.get(GetRequest(100, 0.0, one_server=True))) for _ in range(2)]
    assert [bench.bodies(each) for each in answers] == [["begin 0", "rows 0"], ["begin 0", "rows 0", "end 0"]]
    assert bench.stream.era is era
    for each in answers:
        bench.stream.ack(each.batch_id)
    cursor = bench.stream.cursor
    assert cursor is not None
    assert cursor.server == "u-2"
