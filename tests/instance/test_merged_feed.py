"""The feed of several sources: threads, queues, failures, and reading a source again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from canal_ha.errors import PositionLost, RingClosed, SourceUnavailable
from canal_ha.instance.feed import Feed, FeedRequest, Move
from canal_ha.instance.merge import QUEUE_BYTES
from canal_ha.instance.merged_feed import MergedFeed, MergedSource
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import EntryKind, Segment
from tests.instance.test_merge import bodies, ends, of, start
from tests.segments import Item
from tests.waiting import until


class Source:
    """A source whose feed the test drives. requests: one for each time that it was opened."""

    def __init__(self) -> None:
        self.requests: list[FeedRequest] = []
        self.decoded: LogPosition | None = None
        self.received_bytes = 0
        self.last_event_ms = 0
        self.idle = False
        self.idle_at = 0.0
        self.shared = self.lent = False
        self.tap = ""
        self.stopped = 0

    def open(self, request: FeedRequest) -> Feed:
        self.requests.append(request)
        self.decoded = request.start
        return self

    def start(self) -> None:
        pass

    def stop(self) -> None:
        self.stopped += 1

    def rests(self) -> None:
        """Report that there is nothing newer."""
        self.idle, self.idle_at = True, time.monotonic()


class Bench:
    """Two merged sources, the segments that came of them, and the events."""

    def __init__(self, wait_s: float = 30.0, *, accept: Callable[[Segment], None] | None = None) -> None:
        self.sources = [Source(), Source()]
        self.came: list[Segment] = []
        self.failures: list[tuple[str, float | None]] = []
        self.connected: list[str] = []
        self.moves: list[Move] = []
        self.told: list[str] = []
        request = FeedRequest(
            client_id=1001,
            read="",
            filter="",
            start=start(1),
            accept=accept or self.came.append,
            connected=self.connected.append,
            failed=lambda error, retry_in_s: self.failures.append((str(error), retry_in_s)),
            moved=self.moves.append,
        )
        members = [
            MergedSource(f"source{part}", source.open, start(part)) for part, source in enumerate(self.sources, start=1)
        ]
        self.feed = MergedFeed(request, members, name="test", wait_s=wait_s, tell=self._tell)
        self.feed.start()

    def _tell(self, name: str, **facts: Any) -> None:
        self.told.append(name)

    def texts(self) -> list[str]:
        """Return all entries that came, as texts."""
        return [text for segment in self.came for text in bodies(segment)]

    def brings(self, part: int, items: list[Item]) -> None:
        """Deliver a segment of this source, as its thread does."""
        self.sources[part - 1].requests[-1].accept(of(part, items))

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self.feed.stop()


def now_transaction(part: int, number: int, rows: int = 1) -> list[Item]:
    """Return a transaction that is committed now."""
    time_ms = int(time.time() * 1000)
    at = 1000 * (number + 1)
    rest = [
        Item(at + 1 + row, EntryKind.ROWS, b"%d row %d" % (part, number), timestamp_ms=time_ms) for row in range(rows)
    ]
    return [
        Item(at, EntryKind.BEGIN, b"%d begin %d" % (part, number), timestamp_ms=time_ms),
        *rest,
        Item(at + 500, EntryKind.END, b"%d end %d" % (part, number), timestamp_ms=time_ms),
    ]


def test_an_idle_source_lets_the_other_pass() -> None:
    """A transaction waits for the other source's next heartbeat; the position covers both sources."""
    with Bench() as bench:
        bench.brings(1, now_transaction(1, 0))
        bench.sources[1].rests()
        until(lambda: ends(bench.texts()) == ["1.0"], what="the transaction")
        until(lambda: bench.feed.decoded is not None, what="a position")
        at = bench.feed.decoded
        assert at
        assert (at.of(1), at.of(2)) == (replace(at.parts[0], others=()), start(2))
        assert bench.came[0].part == 1


def test_a_full_queue_stops_its_source_alone() -> None:
    """A source that is ahead waits for the other one, which continues."""
    with Bench() as bench:
        heavy = [Item(10, EntryKind.QUERY, bytes(QUEUE_BYTES), timestamp_ms=int(time.time() * 1000))]
        bench.brings(1, heavy)
        thread = threading.Thread(target=bench.brings, args=(1, now_transaction(1, 0)), daemon=True)
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        bench.sources[1].rests()
        thread.join(10)
        assert not thread.is_alive()


def test_stopping_wakes_whoever_waits() -> None:
    """A source's thread that waits for room is released, and both sources stop."""
    with Bench() as bench:
        bench.brings(1, [Item(10, EntryKind.QUERY, bytes(QUEUE_BYTES), timestamp_ms=int(time.time() * 1000))])
        ended = threading.Event()

        def brings() -> None:
            with pytest.raises(RingClosed):
                bench.brings(1, now_transaction(1, 0))
            ended.set()

        threading.Thread(target=brings, daemon=True).start()
        bench.feed.stop()
        assert ended.wait(10)
        assert [source.stopped > 0 for source in bench.sources] == [True, True]


def test_a_closed_ring_ends_everything() -> None:
    """When the stream is parked, no source is read any longer."""

    def closed(segment: Segment) -> None:
        raise RingClosed("parked")

    with Bench(accept=closed) as bench:
        bench.sources[1].rests()
        bench.brings(1, now_transaction(1, 0))
        bench.sources[1].rests()
        until(lambda: all(source.stopped for source in bench.sources), what="the end of both")


def test_failures() -> None:
    """A failure is reported until no source fails. A source that fails for good ends the stream."""
    with Bench() as bench:
        first, second = (source.requests[0] for source in bench.sources)
        first.failed(SourceUnavailable("one is down"), 1.0)
        second.failed(SourceUnavailable("two is down"), 1.0)
        second.connected("11")
        assert bench.failures[-1] == ("one is down", 0.0)
        assert not len(bench.connected)
        assert [part.error for part in bench.feed.parts()] == ["one is down", ""]
        first.connected("9")
        assert bench.connected == ["9"]
        second.failed(PositionLost("two is purged"), None)
        assert bench.failures[-1:] == [("two is purged", None)]
        assert all(source.stopped for source in bench.sources)


def test_a_transaction_is_read_again() -> None:
    """A source that is silent inside a transaction is left behind, and then read again from the begin.

    The new feed delivers the whole transaction once.
    """
    with Bench(wait_s=0.3) as bench:
        large = now_transaction(1, 0, rows=4)
        bench.brings(1, large[:3])
        bench.sources[1].rests()
        until(lambda: len(bench.texts()) == 3, what="the first piece")
        until(lambda: len(bench.sources[0].requests) == 2, what="reading again")
        old, new = bench.sources[0].requests
        assert "source.left_behind" in bench.told
        assert (new.start.offset, new.start.others) == (large[0].offset, ())
        bench.brings(2, now_transaction(2, 0))
        until(lambda: ends(bench.texts()) == ["2.0"], what="the other source's going on")
        bench.brings(1, large)
        bench.sources[1].rests()
        until(lambda: ends(bench.texts()) == ["2.0", "1.0"], what="the whole transaction")
        assert "source.waited_for_again" in bench.told
        assert old is not new


def test_moving_to_another_server() -> None:
    """The move of one source is reported under the source's number, and the position follows."""
    with Bench() as bench:
        elsewhere = LogPosition("other.000001", 99, address="standby", server="b")
        bench.sources[0].requests[0].moved(Move(start(1), elsewhere, True, {}))
        assert bench.moves[0].after == replace(elsewhere, part=1)
        until(lambda: bench.feed.decoded is not None, what="a look")
        until(lambda: bench.feed.decoded and bench.feed.decoded.of(1) == replace(elsewhere, part=1), what="its place")


def test_a_merged_stream_with_no_thread_for_one_source_stops_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream hears of it, so its next request begins all of them again."""
    begun: list[Source] = []

    def start(self: Source) -> None:
        if begun:
            raise RuntimeError("can't start new thread")
        begun.append(self)

    monkeypatch.setattr(Source, "start", start)
    with pytest.raises(RuntimeError, match="new thread"):
        Bench()
    assert [source.stopped for source in begun] == [1]


def test_what_breaks_is_told() -> None:
    """An unforeseen error ends the stream with its text."""

    def broken(segment: Segment) -> None:
        raise ZeroDivisionError("oops")

    with Bench(accept=broken) as bench:
        bench.brings(1, now_transaction(1, 0))
        bench.sources[1].rests()
        until(lambda: bool(bench.failures), what="the failure")
        assert "oops" in bench.failures[0][0]
        assert bench.failures[0][1] is None
