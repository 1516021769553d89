"""Shared dumps without a server: who may join, what a follower gets, who is waited for, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from canal_ha.decode.outputs import Output, Passed, SourceHeartbeat
from canal_ha.errors import RingClosed
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import EntryKind, Segment
from canal_ha.source.server.patience import GRACE_S
from canal_ha.source.server.shared import KEPT_BYTES, RETRY_S, UNUSED_S, SharedDump, SharedDumps
from tests.segments import HERE, Item, segment

JOURNAL = "mysql-bin.000001"
SERVER = HERE.server
STEP = 100  # bytes of binlog that a transaction takes


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let the time pass."""
        self.now += seconds


class Lead:
    """The dump of a shared dump. A test passes its outputs by hand."""

    def __init__(self) -> None:
        self.received_bytes = 0
        self.started = self.stopped = False

    def start(self) -> None:
        self.started = True

    def stop(self) -> None:
        self.stopped = True

    def check(self) -> None:
        if self.stopped:
            raise RingClosed("stopped")


class Stream:
    """A stream that has accepted everything before `at`, transactions of STEP bytes each."""

    def __init__(self, at: int = 0, gtid: str = "", server: str = SERVER) -> None:
        self.begin = self.at = at
        self.gtid = gtid
        self.server = server
        self.received_bytes = 0
        self.full = self.drained = self.over_budget = False
        self.inside = False
        self.released = 0
        self.got: list[int] = []
        self.failing = False

    @property
    def boundary(self) -> LogPosition | None:
        return None if self.inside else LogPosition(JOURNAL, self.at, gtid=self.gtid, server=self.server)

    def take(self, output: Output, gtid: str) -> None:
        if self.failing:
            raise RingClosed("the stream was parked")
        if isinstance(output, Segment):
            assert not self.full
            assert output.offsets[0] == self.at, "a transaction is missing or comes again"
            self.got.append(output.offsets[0])
            self.inside = True
        elif isinstance(output, Passed):
            self.at, self.inside = output.position, False
            self.gtid = gtid or self.gtid

    def release(self) -> None:
        self.released += 1


def transaction(at: int, size: int = 5) -> Segment:
    """Return the transaction that begins here."""
    return segment([Item(at, body=b"x" * size), Item(at + STEP // 2, EntryKind.END)])


def leading(clock: Callable[[], float]) -> tuple[SharedDump, Lead]:
    """Return a shared dump that has begun."""
    shared, lead = SharedDump(SERVER, clock=clock), Lead()
    shared.start(lead)
    return shared, lead


def send(shared: SharedDump, at: int, size: int = 5, gtid: str = "") -> int:
    """Pass the transaction that begins here; return where the next one begins."""
    shared.segment(transaction(at, size))
    shared.passed(Passed(JOURNAL, at + STEP, 1000), gtid)
    return at + STEP


def test_a_stream_that_joins_gets_what_the_shared_dump_has_decoded_since_its_place() -> None:
    """A stream that is behind gets the kept outputs first. Then it gets each transaction once."""
    shared, _ = leading(Clock())
    first = send(shared, 0)
    behind, at_the_end = Stream(first), Stream(first + 2 * STEP)
    at = send(shared, send(shared, first))
    assert shared.join(behind)
    assert shared.join(at_the_end)
    send(shared, at)
    assert behind.got == [100, 200, 300]
    assert at_the_end.got == [300]
    assert not behind.released


@pytest.mark.parametrize(
    "stream",
    [
        Stream(50),
        Stream(STEP, server="another"),
        Stream(STEP, gtid="other-uuid:1"),
        Stream(10 * STEP),
    ],
    ids=["not a boundary", "another server", "another GTID set", "ahead"],
)
def test_a_stream_at_another_place_does_not_join(stream: Stream) -> None:
    """A stream joins only at a boundary that the shared dump has passed, with the same GTID set, on the same server."""
    shared, _ = leading(Clock())
    send(shared, 0, gtid="uuid:1")
    assert not shared.join(stream)
    send(shared, STEP, gtid="uuid:1-2")
    assert not stream.got


def test_a_stream_inside_a_transaction_does_not_join() -> None:
    """A stream that has accepted a part of a transaction goes on by itself."""
    shared, _ = leading(Clock())
    send(shared, 0)
    stream = Stream(STEP)
    stream.inside = True
    assert not shared.join(stream)


def test_a_place_that_is_too_far_back_is_not_kept() -> None:
    """The kept outputs have a bound in bytes. A stream behind them goes on by itself."""
    shared, _ = leading(Clock())
    at = send(shared, 0)
    early = at
    for _ in range(3):
        at = send(shared, at, size=KEPT_BYTES // 2)
    assert not shared.join(Stream(early))
    assert shared.join(Stream(at))


def test_a_slow_follower_is_waited_for_while_nobody_else_starves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full ring delays a client that has nothing to take for 20 ms at most."""
    clock = Clock()
    shared, _ = leading(clock)
    at = send(shared, 0)
    slow, other = Stream(at), Stream(at)
    assert shared.join(slow)
    assert shared.join(other)
    slow.full = True
    looks: list[float] = []

    def looked(seconds: float) -> None:
        looks.append(seconds)
        slow.full = len(looks) < 5  # its client acknowledges

    monkeypatch.setattr("canal_ha.source.server.shared.time.sleep", looked)
    at = send(shared, at)
    assert len(looks) == 5
    assert slow.got == other.got == [100]

    slow.full = other.drained = True
    began = clock()
    monkeypatch.setattr("canal_ha.source.server.shared.time.sleep", clock.sleep)
    send(shared, at)
    assert clock() - began == pytest.approx(GRACE_S, abs=0.003)
    assert (slow.got, slow.released) == ([100], 1)
    assert other.got == [100, 200]


def test_no_follower_is_waited_for_longer_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that never acknowledges does not stop the shared dump, even if it is the only one."""
    clock = Clock()
    shared, _ = leading(clock)
    at = send(shared, 0)
    stuck = Stream(at)
    assert shared.join(stuck)
    stuck.full = True

    monkeypatch.setattr("canal_ha.source.server.shared.time.sleep", clock.sleep)
    send(shared, at)
    assert (stuck.got, stuck.released, shared.followers) == ([], 1, 0)


def test_a_stream_whose_ring_fills_while_it_joins_reads_for_itself() -> None:
    """It has taken a part of the kept outputs, so its own decoder is behind: it is released at once."""
    shared, _ = leading(Clock())
    at = first = send(shared, 0)
    for _ in range(3):
        at = send(shared, at)
    stream = Stream(first)
    taken = stream.take

    def take(output: Output, gtid: str) -> None:
        taken(output, gtid)
        stream.full = stream.at == first + STEP

    stream.take = take  # type: ignore[method-assign]
    assert shared.join(stream)
    assert (stream.got, stream.released, shared.followers) == ([100], 1, 0)


def test_a_follower_that_fails_leaves_alone() -> None:
    """The error of one stream, such as a ring that was closed, does not reach the others."""
    shared, _ = leading(Clock())
    at = send(shared, 0)
    failing, other = Stream(at), Stream(at)
    assert shared.join(failing)
    assert shared.join(other)
    failing.failing = True
    send(shared, at)
    assert (failing.released, other.released, other.got) == (1, 0, [100])


def test_no_ring_gives_the_memory_of_a_shared_segment_back() -> None:
    """Several rings hold one segment, so the first ACK must not make its memory free for reuse."""
    shared, _ = leading(Clock())
    at = send(shared, 0)
    stream = Stream(at)
    taken: list[Output] = []
    stream.take = lambda output, gtid: taken.append(output)  # type: ignore[method-assign]
    assert shared.join(stream)
    shared.segment(replace(transaction(at), buffers=object()))  # type: ignore[arg-type]
    assert [each.buffers for each in taken if isinstance(each, Segment)] == [None]


def test_the_shared_dump_and_its_followers_have_one_copy_of_the_rows() -> None:
    """Each of them keeps what it needs to find its place on another server."""
    shared, _ = leading(Clock())
    at = send(shared, 0)
    stream = Stream(at)
    taken: list[Output] = []
    stream.take = lambda output, gtid: taken.append(output)  # type: ignore[method-assign]
    assert shared.join(stream)
    piece = transaction(at)
    shared.segment(piece)
    assert piece.copied is not None
    assert [each.copied is piece.copied for each in taken if isinstance(each, Segment)] == [True]


def test_received_bytes_count_once() -> None:
    """The sum over all streams is what the shared dump received while somebody followed it."""
    shared, lead = leading(Clock())
    lead.received_bytes = 10
    at = send(shared, 0)
    streams = [Stream(at), Stream(at)]
    assert all(map(shared.join, streams))
    lead.received_bytes = 75
    send(shared, at)
    assert sum(stream.received_bytes for stream in streams) == 75


def test_all_followers_leave_when_the_shared_dump_ends() -> None:
    """The dump stops, each follower is released once, and nobody joins any more."""
    ends: list[str] = []
    shared, lead = SharedDump(SERVER, ended=lambda: ends.append("ended"), clock=Clock()), Lead()
    shared.start(lead)
    at = send(shared, 0)
    streams = [Stream(at), Stream(at)]
    assert all(map(shared.join, streams))
    shared.end()
    shared.end()
    assert lead.stopped
    assert ends == ["ended"]
    assert [stream.released for stream in streams] == [1, 1]
    assert not shared.join(Stream(at))


def test_a_shared_dump_that_ends_before_it_begins_is_not_started() -> None:
    """The destination can stop while the dump is being made."""
    shared, lead = SharedDump(SERVER, clock=Clock()), Lead()
    shared.end()
    shared.start(lead)
    assert not lead.started


def test_a_shared_dump_ends_with_its_last_follower() -> None:
    """Clients that change their filters all the time cost the source no more dumps than streams."""
    shared, lead = leading(Clock())
    at = send(shared, 0)
    streams = [Stream(at), Stream(at)]
    assert all(map(shared.join, streams))
    shared.leave(streams[0])
    assert [lead.stopped, shared.followers] == [False, 1]
    shared.leave(streams[1])
    assert lead.stopped
    assert [stream.released for stream in streams] == [0, 0]


def test_a_shared_dump_that_nobody_follows_ends() -> None:
    """Heartbeats tell it that time passes."""
    clock = Clock()
    shared, lead = leading(clock)
    send(shared, 0)
    assert not lead.stopped
    clock.now += UNUSED_S + 1
    shared.passed(SourceHeartbeat(JOURNAL, STEP), "")
    assert lead.stopped


def test_nothing_is_kept_of_filters_that_nobody_uses() -> None:
    """A shared dump ends with the last stream of its kind, and the kind is forgotten."""
    leads: list[Lead] = []

    def make(kind: int, at: LogPosition, shared: SharedDump) -> Lead:
        leads.append(Lead())
        return leads[-1]

    dumps = SharedDumps(make, Clock())
    for kind in range(50):
        streams = [Stream(100), Stream(200)]
        for stream in streams:
            dumps.offer(kind, stream)
        for stream in streams:
            dumps.gone(kind, stream)
    assert [lead.stopped for lead in leads] == [True] * 50
    assert dumps.kinds == 0


def test_the_second_stream_of_a_kind_starts_a_shared_dump() -> None:
    """One stream alone keeps its own dump. After a shared dump has ended, the next one waits."""
    clock, leads = Clock(), []

    def make(kind: str, at: LogPosition, shared: SharedDump) -> Lead:
        leads.append((kind, at.offset))
        return Lead()

    dumps = SharedDumps(make, clock)
    one, other, alone = Stream(100), Stream(200), Stream(100)
    assert dumps.offer("a", one) is None
    assert dumps.offer("b", alone) is None
    shared = dumps.offer("a", other)
    assert shared is not None
    assert dumps.offer("a", one) is shared
    assert leads == [("a", 200)]

    shared.end()
    assert dumps.offer("a", one) is None
    clock.now += RETRY_S
    dumps.gone("a", other)
    assert dumps.offer("a", one) is None, "one stream is left"
    assert dumps.offer("a", other) is not None
    dumps.end(close=True)
    clock.now += RETRY_S
    assert dumps.offer("a", one) is None


@pytest.mark.parametrize("seed", range(200))
def test_random_streams_get_every_transaction_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams join, leave, fill up, starve and fail at random, read for themselves meanwhile, and miss nothing."""
    rng, clock = Random(seed), Clock()
    monkeypatch.setattr("canal_ha.source.server.shared.time.sleep", clock.sleep)
    shared, lead = leading(clock)
    end = send(shared, 0)  # of the binlog
    streams = [Stream(rng.randrange(0, end + 1, STEP)) for _ in range(4)]
    following: set[Stream] = set()
    joined = 0
    for _ in range(200):
        stream = rng.choice(streams)
        match rng.randrange(6):
            case 0 | 1:
                end = send(shared, end, size=rng.choice([5, 5, 5, KEPT_BYTES // 3]))
            case 2 if stream not in following and shared.join(stream):
                following.add(stream)
                joined += 1
            case 3 if stream in following:
                shared.leave(stream)
                following.discard(stream)
            case 4:
                stream.full, stream.drained = rng.choice([(False, False), (True, False), (False, True)])
            case 5 if stream not in following:  # it reads by itself
                while stream.at < end and rng.random() < 0.98:
                    stream.got.append(stream.at)
                    stream.at += STEP
        for each in streams:
            if each.released:
                each.released = 0
                following.discard(each)
                each.inside = False
        if lead.stopped:
            assert not following
            shared, lead = leading(clock)
        clock.now += 0.1
    for stream in streams:
        assert stream.got == list(range(stream.begin, stream.at, STEP))
    assert joined
