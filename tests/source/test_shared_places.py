"""Where streams may join a shared dump, and what a follower's ring does to the others. Dumps without connections."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from canal_ha.config.model import BatchMode, InstanceConfig, SourceConfig
from canal_ha.decode.outputs import Output, Passed, Rotated, SourceHeartbeat, SourceSaid
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import EntryKind, Segment
from canal_ha.source.connection.identity import replica, shared_replica
from canal_ha.source.connection.reactor_reads import PIECE_BYTES, ReactorReads
from canal_ha.source.positions.delivered import ExpectedTransactions
from canal_ha.source.positions.fingerprints import Fingerprint
from canal_ha.source.positions.resume import FIRST_OFFSET, OFFSET_MAX
from canal_ha.source.server.calm import FAST_BYTES, LONG_S, NOT_LENT_S, QUIET_CHUNKS, Calm
from canal_ha.source.server.dump import Dump, Room, Sharing
from canal_ha.source.server.patience import ROOM_S, Patience
from canal_ha.source.server.shared import SharedDump, SharedDumps
from canal_ha.store.ring import Ring
from tests.segments import HERE, Item, segment

JOURNAL = "mysql-bin.000001"
CONFIG = InstanceConfig("example", SourceConfig("127.0.0.1"))
READS = ReactorReads(object())  # type: ignore[arg-type]  # no socket is lent here


class Decoder:
    """What a dump asks its decoder. outputs: of the next bytes."""

    gtid_set = ""
    outputs: tuple[Output, ...] = ()
    awaited = large_events = 0
    begun_bytes = 0

    def feed(self, data: memoryview) -> Iterator[Output]:
        """See DumpDecoder."""
        return iter(self.outputs)


class Connection:
    """What a dump asks its connection while it is lent. Nothing waits in it."""

    piece_bytes = PIECE_BYTES
    something_waits = False


class Thread:
    """The thread of a shared dump, which the test itself is."""

    received_bytes = 0

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def check(self) -> None: ...


class Roomy:
    """A ring that is never full."""

    patient = True
    full = False
    over_budget = False
    drained = True


class Shared:
    """A shared dump that begins at a position. feed: decodes outputs."""

    def __init__(self, start: LogPosition) -> None:
        self.shared = SharedDump(HERE.server)
        self._dump = dump_at(
            start, self.shared.segment, replica=shared_replica("example", "1"), may_move=False, lead=self.shared
        )
        self._dump._resume.begin()
        self.shared.start(Thread())

    def feed(self, *outputs: Output) -> None:
        """Decode outputs, as one chunk."""
        self._dump._decode(iter(outputs), 10)

    def at_once(self, *outputs: Output) -> list[Output]:
        """Decode outputs as the reactor does, without waiting. Return those that are left to the thread."""
        self.shared.patient = False
        _, left = piece(self._dump, *outputs)
        self.shared.patient = True
        return left


def dump_at(start: LogPosition, accept: Callable[[Segment], object], **more: Any) -> Dump:
    """Return a dump that has a decoder."""
    found = Dump(CONFIG, lambda: None, start=start, accept=accept, report=lambda event: None, **more)  # type: ignore[arg-type, return-value]  # it never connects
    found._decoder = Decoder()  # type: ignore[assignment]  # see there
    return found


def stream_at(
    offset: int, accept: Callable[[Segment], object], room: Room, client_id: int = 1, *, consumed: bool = False
) -> Dump:
    """Return the dump of a stream that may share one."""
    sharing = Sharing(SharedDumps(lambda kind, start, shared: Thread()), "kind")
    return dump_at(
        at(offset, consumed=consumed), accept, replica=replica("example", client_id), room=room, sharing=sharing
    )


def lendable(**more: Any) -> Dump:
    """Return a dump that the reactor may read."""
    return dump_at(at(0), lambda new: None, replica=replica("example", 1), room=Roomy(), reads=READS, **more)


def piece(dump: Dump, *outputs: Output, size: int = 10) -> tuple[bool, list[Output]]:
    """Decode a piece as the reactor does. Return whether it goes on, and the outputs that are left to the thread."""
    dump._decoder.outputs = outputs  # type: ignore[union-attr]  # see Decoder
    goes_on = dump._eat_piece(Connection(), bytes(size))  # type: ignore[arg-type]  # see there
    left, dump._rest = list(dump._rest or ()), None
    return goes_on, left


def at(offset: int, *, consumed: bool = False) -> LogPosition:
    return LogPosition(JOURNAL, offset, consumed=consumed, server=HERE.server)


def transaction(offset: int) -> Segment:
    """Return a transaction of two entries; it takes 100 bytes of binlog."""
    return segment([Item(offset, body=b"row"), Item(offset + 50, EntryKind.END)])


def ring(entries: int) -> Ring:
    return Ring(buffer_size=entries, mem_unit=1024, batch_mode=BatchMode.MEMSIZE, ddl_isolation=False)


def test_nobody_joins_before_the_place_of_a_shared_dump_beyond_4_gib() -> None:
    """The dump command cannot name that place, so the shared dump reads the journal again, and passes nothing on."""
    place = OFFSET_MAX + 1000
    got: list[int] = []
    behind = stream_at(1000, lambda new: got.extend(new.offsets), Roomy())
    shared = Shared(at(place))
    shared.feed(Rotated(JOURNAL, FIRST_OFFSET), transaction(900), Passed(JOURNAL, 1000, 1))
    assert not shared.shared.join(behind)
    shared.feed(transaction(1000), Passed(JOURNAL, 1100, 1), transaction(place - 100), Passed(JOURNAL, place, 1))
    there = stream_at(place, lambda new: got.extend(new.offsets), Roomy(), 2)
    assert shared.shared.join(there)
    shared.feed(transaction(place), Passed(JOURNAL, place + 100, 1))
    assert got == [place, place + 50]


def test_a_stream_that_lacks_a_statement_joins_no_dump_that_begins_behind_it() -> None:
    """The two places have one offset, and the shared dump's is behind the event there."""
    got: list[int] = []
    shared = Shared(at(1000, consumed=True))
    shared.feed(Rotated(JOURNAL, 1000))
    assert not shared.shared.join(stream_at(1000, lambda new: got.extend(new.offsets), Roomy()))
    shared.feed(segment([Item(1000, EntryKind.DDL)]), Passed(JOURNAL, 1100, 1))
    assert shared.shared.join(stream_at(1100, lambda new: got.extend(new.offsets), Roomy(), 2))


def test_a_ring_that_fills_in_the_wrong_moment_blocks_no_other_stream() -> None:
    """A roll-back fills a ring whose client had taken everything."""
    shared = Shared(at(0))
    shared.feed(Rotated(JOURNAL, 0))
    slow, other = ring(4), ring(1000)
    got: list[int] = []

    def spend(new: Segment) -> None:
        other.put(new)
        got.extend(new.offsets)
        if len(got) == 7:
            slow.rollback()

    slow.patient = False  # as while a stream shares a dump
    streams = stream_at(0, spend, Roomy()), stream_at(0, slow.put, slow, 2)
    for stream in streams:
        assert shared.shared.join(stream)
    pieces = [
        replace(segment([Item(first + index, kind) for index, kind in enumerate(kinds)]), cut=True)
        for first, kinds in [
            (0, [EntryKind.BEGIN, EntryKind.ROWS, EntryKind.ROWS]),
            (3, [EntryKind.ROWS, EntryKind.ROWS]),
            (5, [EntryKind.ROWS, EntryKind.ROWS]),
        ]
    ]
    shared.feed(pieces[0])
    shared.feed(pieces[1])
    assert slow.get(1000)
    assert not slow.full
    shared.feed(pieces[2])
    assert (got, slow.put_seq, shared.shared.followers) == ([0, 1, 2, 3, 4, 5, 6], 4, 1)


def test_the_reactor_never_waits_for_a_follower_of_a_shared_dump() -> None:
    """What a full ring has no room for is left to the thread of the shared dump, in its order."""
    shared = Shared(at(0))
    shared.feed(Rotated(JOURNAL, 0))
    full = ring(2)
    full.patient = False
    got: list[int] = []
    for stream in (stream_at(0, full.put, full), stream_at(0, lambda new: got.extend(new.offsets), Roomy(), 2)):
        assert shared.shared.join(stream)
    outputs: list[Output] = [transaction(0), Passed(JOURNAL, 100, 1), transaction(100), Passed(JOURNAL, 200, 1)]
    rest = shared.at_once(*outputs)
    assert got == [0, 50]
    assert rest == outputs[2:]
    full.get(1000)
    full.ack(segment([Item(0), Item(50, EntryKind.END)]).position(1), 1)
    assert shared.at_once(*rest) == []
    assert got == [0, 50, 100, 150]
    assert shared.shared.followers == 2


def test_the_reactor_never_waits_for_a_stream_that_joins() -> None:
    """A stream that joins takes what the shared dump has kept, which may take long. A heartbeat would wait too."""
    shared = Shared(at(0))
    shared.feed(Rotated(JOURNAL, 0))
    joining, over = threading.Event(), threading.Event()

    def take(new: Segment) -> None:
        joining.set()
        over.wait(10)

    shared.feed(transaction(0), Passed(JOURNAL, 100, 1))
    thread = threading.Thread(target=lambda: shared.shared.join(stream_at(0, take, Roomy())))
    thread.start()
    assert joining.wait(10)
    try:
        assert len(shared.at_once(transaction(100))) == 1
        assert len(shared.at_once(Passed(JOURNAL, 150, 0), SourceHeartbeat(JOURNAL, 150))) == 2
    finally:
        over.set()
        thread.join(10)
    assert shared.at_once(transaction(100)) == []


@pytest.mark.parametrize("size", [10, PIECE_BYTES])
def test_the_reactor_goes_on_while_pieces_are_small(size: int) -> None:
    """Behind a whole piece, more waits."""
    dump = lendable()
    assert piece(dump, transaction(0), size=size) == (size < PIECE_BYTES, [])


def test_the_reactor_puts_no_large_event_together() -> None:
    """Over a slow line an event of 1 MiB comes in small parts, and would be decoded all at once."""
    dump = lendable()
    dump._decoder.begun_bytes = PIECE_BYTES  # type: ignore[union-attr, misc]  # see Decoder
    assert piece(dump)[0]
    dump._decoder.begun_bytes = PIECE_BYTES + 1  # type: ignore[union-attr, misc]  # as above
    assert not piece(dump)[0]
    dump._calm._quiet = 100
    assert not dump._lends()


def test_a_source_whose_small_pieces_take_long_is_not_lent_for_a_while() -> None:
    """Rows of a table with hundreds of empty columns take milliseconds, and so do long GTID sets."""
    now, used = [100.0], [0.0]
    dump = lendable(clock=lambda: now[0], calm=Calm(lambda: used[0]))

    def slow(new: Segment) -> None:
        used[0] += 2 * LONG_S
        now[0] += 2 * LONG_S

    dump._calm._quiet = QUIET_CHUNKS
    assert dump._lends()
    dump._accept = slow
    assert piece(dump, transaction(0))[0]  # it may have waited for a processor
    assert not piece(dump, transaction(50))[0]
    dump._accept = lambda new: None
    for passed_s, expected in ((0.0, False), (NOT_LENT_S - 1, False), (1.0, True)):
        now[0] += passed_s
        dump._decode(iter([transaction(100)]), 10)
        dump._calm._quiet = QUIET_CHUNKS
        assert dump._lends() is expected
    dump._accept = slow
    for number in (200, 300):
        dump._decode(iter([transaction(number)]), 10)
    dump._calm._quiet = QUIET_CHUNKS
    assert not dump._lends()


def test_a_source_that_sends_much_in_small_chunks_is_not_lent() -> None:
    """A stream that catches up as fast as its source can send takes less processor time on its thread."""
    now = [100.0]
    dump = lendable(clock=lambda: now[0])

    def goes_on(passed_s: float) -> bool:
        found = False
        for _ in range(20):
            now[0] += passed_s / 20
            found, _ = piece(dump, size=PIECE_BYTES - 1)
        return found

    assert goes_on(2.0)
    assert not goes_on(20 * PIECE_BYTES / (2 * FAST_BYTES))
    dump._calm._quiet = QUIET_CHUNKS
    assert not dump._lends()
    assert goes_on(2.0)
    assert dump._lends()


def test_a_stream_that_may_join_a_shared_dump_is_not_lent() -> None:
    """Only its own thread may join."""
    dumps = SharedDumps(lambda kind, start, shared: Thread())
    streams = [lendable(sharing=Sharing(dumps, "kind")) for _ in range(2)]
    dumps.offer("kind", streams[0])
    streams[0]._calm._quiet = QUIET_CHUNKS
    assert streams[0]._lends()
    assert piece(streams[0], transaction(0))[0]
    dumps.offer("kind", streams[1])
    assert not streams[0]._lends()
    assert not piece(streams[0], transaction(100))[0]


def test_a_get_is_answered_before_the_rest_of_the_work() -> None:
    """The client has its row while the stream still notes what it has delivered."""
    order: list[str] = []
    dump = lendable()
    dump._accept = lambda new: order.append("accepted")
    dump._answer = lambda: order.append(f"answered, {dump._resume.delivered_any}")
    piece(dump, transaction(0))
    assert order == ["accepted", "answered, False"]
    assert dump._resume.delivered_any


def test_a_transaction_larger_than_all_rings_separates_no_streams() -> None:
    """Their clients acknowledge whole transactions, so every ring is over its budget until the end of this one."""
    shared = Shared(at(0))
    shared.feed(Rotated(JOURNAL, 0))
    rings = [ring(4), ring(4)]
    for client_id, each in enumerate(rings, 1):
        each.patient = False
        assert shared.shared.join(stream_at(0, each.put, each, client_id))
    for piece in range(4):
        items = [Item(piece * 8 + index) for index in range(7)]
        end = Item(piece * 8 + 7, EntryKind.END if piece == 3 else EntryKind.ROWS)
        shared.feed(replace(segment([*items, end]), cut=piece < 3))
        for each in rings:
            while each.get(1000):
                pass
    assert shared.shared.followers == 2
    assert [each.get_seq for each in rings] == [31, 31]


@pytest.mark.timed
@pytest.mark.parametrize("delays_s", [(0.001, 0.001), (0.005, 0.008), (0.02, 0.025)])
def test_clients_of_unequal_pace_stay_together_in_a_large_transaction(delays_s: tuple[float, float]) -> None:
    """The first one that has taken a piece was ready within 2 ms, and all others were released."""
    shared = Shared(at(0))
    shared.feed(Rotated(JOURNAL, 0))
    rings = [ring(4) for _ in delays_s]
    for client_id, each in enumerate(rings, 1):
        each.patient = False
        assert shared.shared.join(stream_at(0, each.put, each, client_id))
    over = threading.Event()

    def follow(ring: Ring, delay_s: float) -> None:
        while not over.is_set():
            time.sleep(delay_s)
            ring.get(1000)

    clients = [threading.Thread(target=follow, args=each) for each in zip(rings, delays_s, strict=True)]
    for client in clients:
        client.start()
    for piece in range(40):
        shared.feed(replace(segment([Item(piece * 8 + index) for index in range(8)]), cut=True))
    over.set()
    for client in clients:
        client.join()
    assert shared.shared.followers == 2


def test_a_client_that_is_much_slower_leaves_a_large_transaction() -> None:
    """The others wait for it half of the time at most."""
    now = 0.0
    patience = Patience(lambda: now)
    waited = 0
    for _ in range(1000):  # 2 ms of work, and the others have to wait for 6 ms
        now += 0.002
        patience.ends(ROOM_S, waits=True)
        now += 0.006
        waited += 1
        if patience.ends(ROOM_S, waits=True):
            break
        patience.ends(ROOM_S, waits=False)
    assert 0.9 < waited * 0.004 < 1.1


def test_a_stream_that_expects_transactions_of_another_server_shares_nothing() -> None:
    """It puts one transaction after the other, so a shared dump could not know whether they have room."""
    stream = stream_at(0, lambda new: None, Roomy())
    stream._decode(iter([Rotated(JOURNAL, 0)]), 1 << 20)
    seen = [stream.boundary]

    class Nothing:
        def has(self, unit: object) -> bool:
            return True

    expected = ExpectedTransactions([Fingerprint.any_since(10)], Nothing())  # type: ignore[arg-type]  # see there
    stream._current_source._delivered_before = expected
    seen.append(stream.boundary)
    expected.new(transaction(0))
    expected._expected.clear()
    seen.append(stream.boundary)
    assert seen == [at(0), None, at(0)]


def test_what_a_follower_has_accepted_does_not_come_again() -> None:
    """After a switch a segment goes into the ring in parts. The second one finds no room, and comes again alone."""
    got: list[int] = []
    full = False

    def accept(new: Segment) -> None:
        nonlocal full
        if full:
            raise RuntimeError("no room")
        full = True
        got.extend(new.offsets)

    class InParts:
        def new(self, whole: Segment) -> list[Segment]:
            return [whole.slice(first, first + 2) for first in range(0, len(whole), 2)]

    stream = stream_at(0, accept, Roomy())
    stream._current_source._delivered_before = InParts()
    whole = segment([Item(offset, kind) for offset, kind in enumerate([EntryKind.ROWS, EntryKind.END] * 3)])
    for _ in range(3):
        full = False
        stream._resume.begin()
        with suppress(RuntimeError):
            stream.take(whole, "")
    assert got == [0, 1, 2, 3, 4, 5]


def test_a_stream_goes_on_alone_if_there_is_no_thread_for_a_shared_dump() -> None:
    """Nothing is wrong with its own dump."""

    class Threadless(Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    dumps = SharedDumps(lambda kind, start, shared: Threadless())
    streams = [stream_at(0, lambda new: None, Roomy(), client_id) for client_id in (1, 2)]
    for stream in streams:
        stream._resume.begin()
    assert [dumps.offer("kind", stream) for stream in streams] == [None, None]


def test_a_connection_that_the_source_ended_leaves_no_decoder_behind() -> None:
    """The error that ends it holds its decoder, with megabytes of a large event or of prepared transactions."""
    dump = stream_at(0, lambda new: None, Roomy())
    dump._report = lambda event: dump._awake.set()
    decoders: list[weakref.ref[Decoder]] = []
    left: list[Decoder | None] = []

    class Ending(Decoder):
        def feed(self, data: memoryview) -> Iterator[Output]:
            yield SourceSaid(0, "end of the binlog")

    def connect() -> None:
        if decoders:
            gc.collect()
            left.append(decoders[0]())
            dump._stopping.set()
            return
        decoder = Ending()
        dump._decoder = decoder  # type: ignore[assignment]  # see there
        decoders.append(weakref.ref(decoder))
        dump._eat(memoryview(b"packet"))

    dump._dump = connect  # type: ignore[method-assign]
    dump._run_connections()
    assert left == [None]
