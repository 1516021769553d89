"""The ring's rules one by one, and the ring with two threads."""

from __future__ import annotations

import json
import threading
import time
from array import array
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from canal_ha.config.model import BatchMode
from canal_ha.errors import AckUnmatched, RingClosed, StoreFull
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import EntryKind, Segment
from canal_ha.store.ring import Ring
from tests.segments import Item, segment

GOLDEN = Path(__file__).parent.parent / "golden" / "wire"


def ring(
    mode: BatchMode = BatchMode.ITEMSIZE, *, size: int = 1024, unit: int = 1024, isolation: bool = False, **more: Any
) -> Ring:
    return Ring(buffer_size=size, mem_unit=unit, batch_mode=mode, ddl_isolation=isolation, **more)


def rows(count: int, *, size: int = 5, first: int = 100) -> Segment:
    return segment([Item(first + index, body=b"x" * size) for index in range(count)])


def kinds(*wanted: EntryKind, gtid: str = "") -> Segment:
    return segment([Item(100 * (index + 1), kind) for index, kind in enumerate(wanted)], gtid=gtid)


def test_positions_are_found_when_they_are_needed() -> None:
    """A batch is there before its positions are. They are those of its entries, also when the ring has freed these."""
    store = ring()
    store.put(kinds(EntryKind.BEGIN, EntryKind.ROWS, EntryKind.END))
    asked: list[int] = []

    class Watched(Segment):
        def position(self, index: int, *, consumed: bool = False) -> LogPosition:
            asked.append(index)
            return super().position(index, consumed=consumed)

    whole = kinds(EntryKind.BEGIN, EntryKind.END)
    store.put(Watched(**{each.name: getattr(whole, each.name) for each in fields(Segment) if each.init}))
    first, second = store.get(3), store.get(10)
    assert first
    assert second
    assert not asked
    store.ack(first.range.end, first.range.end_seq)
    store.ack(second.range.end, second.range.end_seq)
    assert (first.range.end.offset, second.range.end.offset) == (300, 200)
    assert (first.range.ack, second.range.ack) == (
        replace(first.range.end, consumed=True),
        replace(second.range.end, consumed=True),
    )
    assert asked == [1]  # one that ends a transaction tells both


# ---- how much a GET takes


def test_empty() -> None:
    """An empty ring gives no batch, and every sequence is -1."""
    store = ring()
    assert store.get(10) is None
    assert not store.available(0)
    assert (store.put_seq, store.get_seq, store.ack_seq) == (-1, -1, -1)
    assert store.put(segment([])) == -1


def test_views_are_slices_of_the_segments() -> None:
    """A batch across segments has one view for each segment, on the same memory that was put."""
    store, pieces = ring(), [rows(3), rows(3), rows(3)]
    for piece in pieces:
        store.put(piece)
    store.get(1)
    batch = store.get(6)
    assert batch is not None
    assert [view.obj for view in batch.views] == [piece.frames for piece in pieces]
    assert [view.nbytes for view in batch.views] == [14, 21, 7]
    assert batch.entries == 6


@pytest.mark.parametrize(
    ("size_bytes", "fetch", "taken"),
    [(512, 1, 3), (1024, 1, 2), (1025, 1, 1), (1, 1, 1025), (5000, 1, 1), (5000, 0, 1), (100, 0, 1), (1, -1, 1)],
)
def test_memory_is_counted_before_each_entry(size_bytes: int, fetch: int, taken: int) -> None:
    """An entry is taken if the entries before it are not above the limit; at exactly the limit one more is taken."""
    store = ring(BatchMode.MEMSIZE, size=16384)
    store.put(rows(2000, size=size_bytes))
    batch = store.get(fetch)
    assert batch is not None
    assert batch.entries == taken


def test_memory_counts_entries_not_frames() -> None:
    """The limit counts entries without their tags and lengths, for any mix of sizes."""
    sizes = [60, 300, 60, 20000, 127, 128, 16383, 16384, 0, 1] * 50
    store = ring(BatchMode.MEMSIZE, size=1 << 24, unit=1)
    pieces = [segment([Item(i, body=b"x" * size) for i, size in enumerate(sizes)]) for _ in range(2)]
    for piece in pieces:
        store.put(piece)
    total = 0
    for count, size in enumerate(sizes + sizes):
        store.rollback()
        batch = store.get(total)
        assert batch is not None
        zeros = next(n for n, size in enumerate([*(sizes + sizes)[count:], 1]) if size)  # empty entries weigh nothing
        assert batch.entries == min(count + zeros + 1, len(sizes) * 2)
        total += size


def test_limits_beyond_32_bits() -> None:
    """The largest fetch size times a large unit does not overflow."""
    store = ring(BatchMode.MEMSIZE, size=4194304, unit=1024)
    store.put(rows(10))
    batch = store.get(2**31 - 1)
    assert batch is not None
    assert batch.entries == 10
    store.put(rows(10), timeout_s=0.0)


def test_ddl_alone() -> None:
    """With ddl_isolation a DDL ends the batch before it and comes alone; a QUERY does not."""
    store = ring(isolation=True)
    store.put(kinds(EntryKind.BEGIN, EntryKind.ROWS, EntryKind.END, EntryKind.QUERY))
    store.put(kinds(EntryKind.DDL, EntryKind.DDL, EntryKind.BEGIN, EntryKind.ROWS, EntryKind.END))
    taken = []
    while batch := store.get(100):
        taken.append(batch.entries)
    assert taken == [4, 1, 1, 3]


# ---- waiting


def test_available_when_full() -> None:
    """A full ring answers a waiting GET with the entries that it has, even if more were asked for."""
    for mode in BatchMode:
        store = ring(mode, size=4, unit=1024)
        store.put(rows(3))
        assert not store.available(1000)
        store.put(rows(1))
        assert store.available(1000)


def test_items_are_bounded_in_bytes_too() -> None:
    """In ITEMSIZE mode, too, few large entries fill the ring, so that memory is bounded."""
    store = ring(BatchMode.ITEMSIZE, size=1024, unit=10)
    store.put(rows(3, size=4000))
    with pytest.raises(StoreFull, match="3 entries, 12009 bytes"):
        store.put(rows(1), timeout_s=0.0)


def test_oversized_segment_is_admitted() -> None:
    """A segment larger than the ring is admitted when there is any room."""
    store = ring(BatchMode.MEMSIZE, size=4, unit=10)
    store.put(rows(3, size=1))
    store.put(rows(5000, size=100))
    batch = store.get(1)
    with pytest.raises(StoreFull):
        store.put(rows(1), timeout_s=0.0)
    while batch:
        store.ack(batch.range.end, batch.range.end_seq)
        batch = store.get(1000)
    store.put(rows(1), timeout_s=0.0)


# ---- ack points


@pytest.mark.parametrize(
    ("piece", "offset", "consumed"),
    [
        (kinds(EntryKind.BEGIN, EntryKind.ROWS, EntryKind.END), 300, True),
        (kinds(EntryKind.END, EntryKind.BEGIN, EntryKind.ROWS), 200, False),
        (kinds(EntryKind.END, EntryKind.BEGIN, EntryKind.ROWS, gtid="0-1-7"), 100, True),
        (kinds(EntryKind.BEGIN, EntryKind.DDL, EntryKind.ROWS, EntryKind.QUERY), 200, True),
        (kinds(EntryKind.END, EntryKind.DDL, EntryKind.QUERY), 200, True),
        (kinds(EntryKind.ROWS, EntryKind.QUERY), None, None),
        (kinds(EntryKind.BEGIN, EntryKind.ROWS, gtid="0-1-7"), None, None),
        (kinds(EntryKind.END, EntryKind.BEGIN, EntryKind.DDL, EntryKind.ROWS, gtid="0-1-7"), 100, True),
        (replace(kinds(EntryKind.BEGIN, EntryKind.DDL, gtid="0-1-7"), cut=True), None, None),
        (kinds(EntryKind.DDL, gtid="0-1-7"), 100, True),
    ],
)
def test_ack_point(piece: Segment, offset: int | None, consumed: bool | None) -> None:
    """The ack point is the last end, DDL, or begin without GTID; only ends and DDLs are marked as consumed.

    With a GTID, a DDL inside a transaction is none. Its set has the rest, which another server would not send.
    """
    store = ring()
    store.put(piece)
    batch = store.get(100)
    assert batch is not None
    ack = batch.range.ack
    assert (ack and ack.offset, ack and ack.consumed) == (offset, consumed)
    assert not batch.range.end.consumed


def test_ack_point_in_an_earlier_segment() -> None:
    """The ack point of a batch that ends inside a large transaction is the end of the transaction before it."""
    store = ring()
    store.put(kinds(EntryKind.BEGIN, EntryKind.END))
    store.put(segment([Item(900, EntryKind.BEGIN), Item(950)], gtid="0-1-8"))
    store.put(segment([Item(960), Item(970)], gtid="0-1-8"))
    batch = store.get(100)
    assert batch is not None
    assert batch.range.ack == replace(store_end(200), consumed=True)


def store_end(offset: int) -> LogPosition:
    return LogPosition("mysql-bin.000001", offset, 1000, 1, "", "127.0.0.1", 3306)


def test_compressed_payload_is_consumed_as_a_whole() -> None:
    """An end in a compressed payload is marked as consumed only if it is the payload's last entry."""
    payload = [Item(500, EntryKind.BEGIN), Item(500, sub=1), Item(500, EntryKind.END, sub=2)]
    for following, consumed in (([], True), ([Item(800, EntryKind.BEGIN)], True), ([Item(500, sub=3)], False)):
        store = ring()
        store.put(segment(payload + following))
        batch = store.get(3)
        assert batch is not None
        assert batch.range.ack is not None
        assert (batch.range.ack.sub_index, batch.range.ack.consumed) == (2, consumed)


def test_a_chunk_of_a_snapshot_moves_the_cursor_at_its_end_only() -> None:
    """Its entries are at the place of the transaction before it, so no other entry of it is a place to begin."""
    end = replace(store_end(200), consumed=True, snapshot='{"chunks":1}')
    chunk = [Item(200, EntryKind.BEGIN), Item(200), Item(200), Item(200, EntryKind.END)]
    store = ring()
    store.put(kinds(EntryKind.BEGIN, EntryKind.END))
    store.put(replace(segment(chunk), chunk_end=end))
    store.put(segment([Item(900, EntryKind.BEGIN), Item(950)], gtid="0-1-8"))
    ranges = [batch.range for batch in (store.get(4), store.get(1), store.get(3)) if batch]
    assert [each.ack for each in ranges] == [replace(store_end(200), consumed=True), None, end]
    assert [each.ack.snapshot if each.ack else "" for each in ranges] == ["", "", end.snapshot]
    assert [each.snapshot for each in ranges] == ["", "", end.snapshot]


# ---- ack, rollback, positions


def test_ack_frees_whole_segments() -> None:
    """The ring keeps a segment until its last entry is acknowledged."""
    store = ring()
    pieces = [rows(2, first=100), rows(2, first=200)]
    for piece in pieces:
        store.put(piece)
    for expected_held in ([0, 1], [1], [1], []):
        batch = store.get(1)
        assert batch is not None
        store.ack(batch.range.end, batch.range.end_seq)
        held = [index for index, piece in enumerate(pieces) if any(piece is kept for kept in store._segments)]
        assert held == expected_held


def test_ack_text() -> None:
    """The error has canal's text, with canal's form of the position."""
    store = ring()
    position = LogPosition("b", 4, 5, None, None, "127.0.0.1", 3306)
    with pytest.raises(AckUnmatched) as refusal:
        store.ack(position, 3)
    assert str(refusal.value) == (
        "no match ack positionLogPosition[identity=LogIdentity[sourceAddress=127.0.0.1:3306,slaveId=-1],postion="
        "EntryPosition[included=false,journalName=b,position=4,serverId=<null>,gtid=<null>,timestamp=5]]"
    )


def test_ack_twice() -> None:
    """A batch that was acknowledged or rolled back cannot be acknowledged."""
    store = ring()
    store.put(rows(4))
    batch = store.get(2)
    assert batch is not None
    store.ack_batch(batch.range)
    with pytest.raises(AckUnmatched):
        store.ack(batch.range.end, batch.range.end_seq)
    with pytest.raises(AckUnmatched):
        store.ack_batch(batch.range)
    later = store.get(2)
    assert later is not None
    store.rollback()
    with pytest.raises(AckUnmatched):
        store.ack(later.range.end, later.range.end_seq)
    with pytest.raises(AckUnmatched):
        store.ack_batch(later.range)
    assert store.ack_seq == 1


def test_positions_name_their_run() -> None:
    """The server id and GTID of a position are those of its run."""
    piece = replace(
        rows(4),
        run_starts=array("q", [0, 1, 3]),
        run_server_ids=array("q", [1, 2, 3]),
        run_gtids=("a:1", "a:1-2", "a:1-3"),
    )
    store = ring()
    store.put(piece)
    ends = []
    while batch := store.get(1):
        ends.append((batch.range.end.server_id, batch.range.end.gtid))
    assert ends == [(1, "a:1"), (2, "a:1-2"), (2, "a:1-2"), (3, "a:1-3")]


# ---- two threads


def test_producer_and_consumer() -> None:
    """All entries of a fast source arrive once and in order, and the ring exceeds its size by one put at most."""
    store = ring(BatchMode.ITEMSIZE, size=64)
    total, most = 20_000, 0

    def produce() -> None:
        at = 0
        while at < total:
            count = min(1 + at % 17, total - at)
            store.put(rows(count, first=at))
            at += count

    source = threading.Thread(target=produce, daemon=True)
    source.start()
    got: list[int] = []
    deadline = time.monotonic() + 30
    while len(got) < total and time.monotonic() < deadline:
        most = max(most, store.put_seq - store.ack_seq)
        batch = store.get(50)
        if batch is None:
            time.sleep(0.0005)
            continue
        if len(got) % 3 == 2:  # sometimes the client rolls back and asks for the batch again
            store.rollback()
            batch = store.get(batch.entries)
            assert batch is not None
        begin, first, _ = batch.pieces[0]
        got.extend(range(begin.offsets[first], batch.range.end.offset + 1))
        store.ack(batch.range.end, batch.range.end_seq)
    source.join(10)
    assert got == list(range(total))
    assert most <= 64 + 17


def test_full_ring_blocks_until_ack() -> None:
    """put() waits while the ring is full and goes on when an ACK makes room."""
    store = ring(size=2)
    store.put(rows(2))
    source, done = in_thread(lambda: store.put(rows(1)))
    assert not done.wait(0.05)
    batch = store.get(1)
    assert batch is not None
    store.ack(batch.range.end, batch.range.end_seq)
    assert done.wait(5)
    source.join()
    assert store.put_seq == 2


def test_full_ring_times_out() -> None:
    """put() raises StoreFull after its time-out and stores nothing."""
    store = ring(size=2)
    store.put(rows(2))
    since = time.monotonic()
    with pytest.raises(StoreFull):
        store.put(rows(1), timeout_s=0.05)
    assert time.monotonic() - since >= 0.05
    assert store.put_seq == 1


def test_close_wakes_a_waiting_put() -> None:
    """close() ends a waiting put and refuses later ones; stored entries can still be got and acknowledged."""
    store, raised = ring(size=2), []
    store.put(rows(2))

    def put() -> None:
        try:
            store.put(rows(1))
        except RingClosed as error:
            raised.append(error)

    source, done = in_thread(put)
    assert not done.wait(0.05)
    store.close()
    assert done.wait(5)
    source.join()
    assert len(raised) == 1
    with pytest.raises(RingClosed):
        store.put(rows(1))
    batch = store.get(10)
    assert batch is not None
    store.ack(batch.range.end, batch.range.end_seq)


def test_told_from_the_putting_thread_while_armed() -> None:
    """on_data runs once for each put, in the source's thread, and only while armed."""
    told: list[threading.Thread] = []
    store = ring(on_data=lambda full: told.append(threading.current_thread()))
    store.put(rows(1))
    store.armed = True
    source, done = in_thread(lambda: [store.put(rows(3)) for _ in range(2)])
    assert done.wait(5)
    source.join()
    store.armed = False
    store.put(rows(1))
    assert told == [source, source]


def in_thread(call: Any) -> tuple[threading.Thread, threading.Event]:
    done = threading.Event()

    def run() -> None:
        call()
        done.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, done


# ---- compared with the Java server


def test_batches_of_the_recorded_session() -> None:
    """The batches of a session recorded with different fetch sizes have the same entries and bytes."""
    frames = [json.loads(line) for line in (GOLDEN / "java_1.1.8_get_sizes.jsonl").read_text().splitlines()]
    store = ring(BatchMode.MEMSIZE, size=16384)
    answers = [frame for frame in frames if frame.get("decoded", {}).get("type") == "MESSAGES"]
    full = next(answer for answer in answers if answer["decoded"]["body"]["messages"])
    payload = bytes.fromhex(full["hex"])
    messages = payload[payload.index(b"\x12") :]  # after the batch id every field of the body is an entry
    items: list[Item] = []
    while messages:
        size, head = (messages[1], 2) if messages[1] < 128 else (messages[1] % 128 + messages[2] * 128, 3)
        items.append(Item(len(items), EntryKind.ROWS, messages[head : head + size]))
        messages = messages[head + size :]
    asked, empty = None, True
    for frame in frames:
        decoded = frame.get("decoded", {})
        if decoded.get("type") == "GET":
            asked = decoded["body"]["fetch_size"]
        elif decoded.get("type") == "CLIENTROLLBACK":
            store.rollback()
        elif decoded.get("type") == "MESSAGES" and asked is not None:
            expected = decoded["body"]["messages"]
            if expected and empty:
                store.put(segment(items))
                empty = False
            batch = store.get(asked)
            assert (batch.entries if batch else 0) == len(expected)
            if batch:
                assert bytes.fromhex(frame["hex"]).endswith(b"".join(batch.views))


def test_told_when_what_is_wanted_is_there() -> None:
    """put() calls on_data only when the entries that a waiting GET wants are there, or when the ring is full."""
    told: list[tuple[int, bool]] = []
    store: Ring = ring(size=4, on_data=lambda full: told.append((store.put_seq, full)))
    store.armed, store.wanted = True, 3
    for number in range(3):
        store.put(segment([Item(number)]))
    assert told == [(2, False)]
    store.wanted = 100
    store.put(segment([Item(3)]))
    assert told == [(2, False), (3, True)]


def test_room_is_awaited_like_a_put() -> None:
    """`await_room` returns when a put would not block, also for the rest of a transaction, and ends with the ring."""
    store = ring(size=3)
    store.await_room()
    store.put(rows(3))
    waiting = threading.Thread(target=store.await_room)
    waiting.start()
    batch = store.get(3)
    assert batch is not None
    waiting.join(0.05)
    assert waiting.is_alive()
    store.ack(batch.range.end, batch.range.end_seq)
    waiting.join(10)
    assert not waiting.is_alive()
    store.put(replace(rows(3, first=200), cut=True))
    store.get(3)
    store.await_room()
    store.close()
    with pytest.raises(RingClosed):
        store.await_room()


def test_a_snapshot_waits_for_what_no_get_has_taken() -> None:
    """`await_taken` returns when few bytes wait, or a GET waits for more, and ends with the ring."""
    store = ring()
    store.await_taken(0)
    store.put(rows(3))  # 21 bytes
    store.await_taken(21)
    waiting = threading.Thread(target=store.await_taken, args=(7,))
    waiting.start()
    store.get(1)
    waiting.join(0.05)
    assert waiting.is_alive()
    store.get(1)
    waiting.join(10)
    assert not waiting.is_alive()
    waiting = threading.Thread(target=store.await_taken, args=(0,))
    waiting.start()
    store.wanted, store.armed = 2, True
    assert not store.available(2)
    waiting.join(10)
    assert not waiting.is_alive()
    store.armed = False
    closing = threading.Timer(0.05, store.close)
    closing.start()
    with pytest.raises(RingClosed):
        store.await_taken(0)
