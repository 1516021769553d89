"""A client that acknowledges only whole transactions makes progress, for any size of its batches and of the ring."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, replace

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from canal_ha.config.model import BatchMode
from canal_ha.errors import StoreFull
from canal_ha.model.batch import Batch
from canal_ha.model.segment import EntryKind, Segment
from canal_ha.store.ring import Ring
from tests.sampling import examples
from tests.segments import Item, segment

UNIT = 64  # bytes of buffer.memunit


@dataclass
class Plan:
    """The source's data: the sizes of the rows of each transaction, and the numbers of entries of its segments."""

    transactions: list[list[int]]
    cuts: list[int]


PLANS = st.builds(
    Plan,
    st.lists(st.lists(st.integers(0, 200), min_size=1, max_size=40), min_size=1, max_size=25),
    st.lists(st.integers(1, 30), min_size=1, max_size=20),
)


def segments(plan: Plan) -> list[Segment]:
    """Return segments as a decoder makes them: those that end inside a transaction are marked as cut."""
    items: list[Item] = []
    for number, sizes in enumerate(plan.transactions):
        at = 1000 * number
        items.append(Item(at, EntryKind.BEGIN))
        items += [Item(at + 1 + index, EntryKind.ROWS, b"x" * size) for index, size in enumerate(sizes)]
        items.append(Item(at + 999, EntryKind.END))
    made, first, turn = [], 0, 0
    while first < len(items):
        last = min(first + plan.cuts[turn % len(plan.cuts)], len(items))
        made.append(replace(segment(items[first:last]), cut=items[last - 1].kind is not EntryKind.END))
        first, turn = last, turn + 1
    return made


class WholeTransactions:
    """A client that acknowledges a batch as soon as every transaction in it has ended.

    patient: it acknowledges nothing while any transaction is open.
    """

    def __init__(self, ring: Ring, *, patient: bool) -> None:
        self._ring = ring
        self._patient = patient
        self._in_flight: deque[tuple[int, Batch]] = deque()  # entries up to the batch's end
        self._ended = 0
        self.offsets: list[int] = []

    def get(self, size: int) -> bool:
        batch = self._ring.get(size)
        if batch is None:
            return False
        for piece, first, last in batch.pieces:
            for index in range(first, last):
                self.offsets.append(piece.offsets[index])
                if piece.kinds[index] == EntryKind.END:
                    self._ended = len(self.offsets)
        self._in_flight.append((len(self.offsets), batch))
        if self._patient and self._ended < len(self.offsets):
            return True
        while self._in_flight and self._in_flight[0][0] <= self._ended:
            _, done = self._in_flight.popleft()
            self._ring.ack(done.range.end, done.range.end_seq)
        return True


@settings(max_examples=examples(400), deadline=None)
@given(
    plan=PLANS,
    mode=st.sampled_from(BatchMode),
    isolation=st.booleans(),
    buffer_size=st.integers(1, 64),
    size=st.integers(0, 100),
    puts=st.lists(st.integers(0, 5), min_size=1, max_size=10).filter(any),
    patient=st.booleans(),
)
def test_acknowledging_whole_transactions_always_gets_on(
    plan: Plan, mode: BatchMode, isolation: bool, buffer_size: int, size: int, puts: list[int], patient: bool
) -> None:
    """Source and client take turns until neither can go on; then every entry has arrived once and in order."""
    ring = Ring(buffer_size=buffer_size, mem_unit=UNIT, batch_mode=mode, ddl_isolation=isolation)
    client = WholeTransactions(ring, patient=patient)
    left = deque(segments(plan))
    expected = [offset for piece in left for offset in piece.offsets]
    turn, idle = 0, 0
    while idle <= len(puts):
        idle += 1
        for _ in range(puts[turn % len(puts)]):
            if not left:
                break
            try:
                ring.put(left[0], timeout_s=0.0)
            except StoreFull:
                break
            left.popleft()
            idle = 0
        if client.get(size):
            idle = 0
        turn += 1
    assert not left, f"{len(left)} segments wait for room: {ring.put_seq=} {ring.get_seq=} {ring.ack_seq=}"
    assert client.offsets == expected
    assert ring.ack_seq == ring.put_seq == len(expected) - 1


def test_a_batch_that_ends_inside_a_transaction_leaves_room_for_its_end() -> None:
    """A full ring whose entries are all in flight, in a batch that ends at a row, admits the transaction's end."""
    ring = Ring(buffer_size=4, mem_unit=1024, batch_mode=BatchMode.MEMSIZE, ddl_isolation=False)
    opened = [Item(100, EntryKind.BEGIN), *(Item(101 + index) for index in range(4))]
    ring.put(replace(segment(opened), cut=True))
    batch = ring.get(4096)
    assert batch is not None
    assert batch.entries == 5
    ring.put(segment([Item(200, EntryKind.END)]), timeout_s=0.0)
    rest = ring.get(4096)
    assert rest is not None
    assert rest.range.end.offset == 200
    for each in (batch, rest):
        ring.ack(each.range.end, each.range.end_seq)
    assert ring.ack_seq == ring.put_seq == 5


def test_a_batch_ends_with_a_transaction_when_one_fits() -> None:
    """A batch leaves the begin of an open transaction to the next batch, so that the client can acknowledge it."""
    ring = Ring(buffer_size=64, mem_unit=1024, batch_mode=BatchMode.ITEMSIZE, ddl_isolation=False)
    begun = [Item(100, EntryKind.BEGIN), Item(101), Item(102, EntryKind.END), Item(200, EntryKind.BEGIN), Item(201)]
    ring.put(replace(segment(begun), cut=True))
    batch = ring.get(100)
    assert batch is not None
    assert batch.range.end.offset == 102
    batch = ring.get(100)
    assert batch is not None
    assert batch.range.end.offset == 201


def test_a_client_that_never_acknowledges_is_sent_no_more_than_the_ring_and_one_transaction() -> None:
    """A full ring admits only the rest of the transaction in flight; the next transaction waits for an ACK."""
    ring = Ring(buffer_size=4, mem_unit=1024, batch_mode=BatchMode.ITEMSIZE, ddl_isolation=False)
    ring.put(replace(segment([Item(1, EntryKind.BEGIN), Item(2), Item(3), Item(4)]), cut=True))
    assert ring.get(100)
    for at in range(10, 30):
        ring.put(replace(segment([Item(at)]), cut=True), timeout_s=0.0)
        assert ring.get(100)
    ring.put(replace(segment([Item(40, EntryKind.END), Item(50, EntryKind.BEGIN), Item(51)]), cut=True), timeout_s=0.0)
    while ring.get(100):
        pass
    with pytest.raises(StoreFull):
        ring.put(segment([Item(52, EntryKind.END)]), timeout_s=0.0)


class Slow(Ring):
    """A ring whose source thread pauses while it makes room."""

    def __init__(self) -> None:
        super().__init__(buffer_size=4, mem_unit=1024, batch_mode=BatchMode.ITEMSIZE, ddl_isolation=False)
        self.letting_go = threading.Event()

    def _drop_held(self) -> None:
        self.letting_go.set()
        time.sleep(0.05)
        super()._drop_held()


def test_a_roll_back_while_the_ring_lets_go_says_that_it_cannot() -> None:
    """rollback() returns False while the source's thread drops the begin of the transaction in flight."""
    ring = Slow()
    ring.put(replace(segment([Item(1, EntryKind.BEGIN), *(Item(at) for at in range(2, 7))]), cut=True))
    rest = replace(segment([Item(at) for at in range(7, 9)]), cut=True)
    assert ring.get(100)
    source = threading.Thread(target=ring.put, args=(rest,))
    source.start()
    assert ring.letting_go.wait(5)
    assert not ring.rollback()
    source.join()


def test_a_ring_that_does_not_wait_takes_a_segment_behind_a_roll_back() -> None:
    """A shared dump checks that a ring is not full before it puts. A put that is refused after that could be lost."""
    ring = Ring(buffer_size=4, mem_unit=1024, batch_mode=BatchMode.ITEMSIZE, ddl_isolation=False)
    ring.patient = False
    ring.put(replace(segment([Item(1, EntryKind.BEGIN), *(Item(at) for at in range(2, 6))]), cut=True))
    full = [ring.full]
    assert ring.get(100)
    full.append(ring.full)  # not any more: its client may wait for the rest of the transaction
    assert ring.rollback()
    full.append(ring.full)
    assert full == [True, False, True]
    ring.put(segment([Item(6), Item(7, EntryKind.END)]))
    batch = ring.get(100)
    assert batch
    assert batch.range.end.offset == 7
    assert ring.rollback()  # nothing was dropped


def test_a_ddl_inside_a_transaction_ends_nothing() -> None:
    """A DDL inside a transaction, as in CREATE TABLE ... SELECT, does not end it: a full ring admits the rest."""
    ring = Ring(buffer_size=2, mem_unit=1024, batch_mode=BatchMode.ITEMSIZE, ddl_isolation=False)
    ring.put(replace(segment([Item(1, EntryKind.BEGIN), Item(2, EntryKind.DDL)]), cut=True))
    assert ring.get(100)
    ring.put(replace(segment([Item(3), Item(4)]), cut=True), timeout_s=0.0)
    assert ring.get(100)
    ring.put(segment([Item(5, EntryKind.END)]), timeout_s=0.0)


def test_entries_in_flight_beyond_the_ring_are_drop_held() -> None:
    """The ring drops entries in flight beyond its size, because they can be read again; rollback() is then refused."""
    ring = Ring(buffer_size=4, mem_unit=1024, batch_mode=BatchMode.ITEMSIZE, ddl_isolation=False)
    for at in range(1, 100):
        ring.put(replace(segment([Item(at, EntryKind.BEGIN if at == 1 else EntryKind.ROWS)]), cut=True), timeout_s=0.0)
        assert ring.get(100)
    assert sum(map(len, ring._segments)) <= 5
    assert not ring.rollback()
