"""Meta: what it answers, when that is durable, and what failures and crashes leave."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from twisted.internet.defer import CancelledError, Deferred, DeferredLock
from twisted.python.failure import Failure

from canal_ha.errors import Fenced, MetaWriteFailed, NotSubscribed
from canal_ha.meta.memory import MemoryBackend
from canal_ha.meta.repository import (
    Change,
    CursorMoved,
    ServersChosen,
    Snapshot,
    StartForgotten,
    StartKept,
    Subscribed,
    Unsubscribed,
)
from canal_ha.meta.write_behind import Meta, steps_back
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.position import LogPosition
from tests.sampling import examples

T = TypeVar("T")

A, B = ClientIdentity("example", 1), ClientIdentity("example", 2, "b\\..*")


def at(offset: int, timestamp_ms: int = 0, journal: str = "mysql-bin.000001", address: str = "db") -> LogPosition:
    return LogPosition(journal, offset, timestamp_ms, 1, "", address)


class Disk(MemoryBackend):
    """A backend that records its writes, refuses them when told to, and can hold one back."""

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        super().__init__(snapshot)
        self.writes: list[tuple[Change, ...]] = []
        self.refuse: Exception | None = None
        self.held: Deferred[None] | None = None

    async def write(self, changes: tuple[Change, ...]) -> None:
        if self.held is not None:
            await self.held
        if self.refuse is not None:
            raise self.refuse
        self.writes.append(changes)
        await super().write(changes)


def do(coroutine: Coroutine[Deferred[Any], Any, T]) -> T:
    """Return or raise the result of a coroutine that has nothing to wait for."""
    deferred = Deferred.fromCoroutine(coroutine)
    outcome: list[Any] = []
    deferred.addBoth(outcome.append)
    assert outcome, "the coroutine is still waiting"
    if isinstance(outcome[0], Failure):
        outcome[0].raiseException()
    result: T = outcome[0]
    return result


def meta(disk: Disk) -> Meta:
    made = Meta("example", disk, turn=DeferredLock())
    do(made.load())
    return made


# ---- subscribing


def test_first_cursor_is_durable() -> None:
    """Identity and first cursor are written in one step before SUBSCRIBE returns; the same step voids the start."""
    disk = Disk()
    clients = meta(disk)
    do(clients.keep_start(at(4)))
    do(clients.subscribe(A, at(120)))
    assert disk.writes == [(StartKept(at(4)),), (Subscribed(A), CursorMoved(1, at(120)), StartForgotten())]
    assert (clients.clients(), clients.cursor(1), clients.start) == ((A,), at(120), None)
    do(clients.subscribe(B, at(500)))
    assert disk.writes[2:] == [(Subscribed(B), CursorMoved(2, at(500)))]


def test_subscribe_again() -> None:
    """A client that comes back keeps its cursor; nothing is written unless its filter changed."""
    disk = Disk()
    clients = meta(disk)
    do(clients.subscribe(B, at(4)))
    do(clients.subscribe(B, at(999)))
    assert len(disk.writes) == 1
    assert clients.cursor(2) == at(4)
    changed = replace(B, filter="c")
    do(clients.subscribe(changed, None))
    assert disk.writes[1:] == [(Subscribed(changed),)]


@pytest.mark.parametrize("blank", ["", "  ", "\t"])
def test_blank_filter_keeps_the_old_one(blank: str) -> None:
    """A blank filter is not written; the stored one stays in force."""
    disk = Disk()
    clients = meta(disk)
    do(clients.subscribe(B, at(4)))
    do(clients.subscribe(replace(B, filter=blank), None))
    assert clients.clients() == (B,)
    assert len(disk.writes) == 1
    assert meta(disk).clients() == (B,)


def test_cursor_given_later() -> None:
    """A client without a cursor gets one with a later SUBSCRIBE that brings it, or with its first ACK."""
    disk = Disk()
    clients = meta(disk)
    do(clients.subscribe(A, None))
    do(clients.subscribe(B, None))
    assert clients.cursor(1) is None
    do(clients.keep_start(at(4)))
    do(clients.subscribe(A, at(7)))
    assert disk.writes[-1] == (CursorMoved(1, at(7)), StartForgotten())
    clients.move(2, at(9))
    assert do(clients.flush()) == ((2, at(9)),)
    assert meta(disk).cursor(2) == at(9)


def test_first_ack_voids_the_start() -> None:
    """The first cursor may also come from an ACK; it voids the kept start in the same write."""
    disk = Disk()
    clients = meta(disk)
    do(clients.subscribe(A, None))
    do(clients.keep_start(at(4)))
    clients.move(1, at(9))
    do(clients.flush())
    assert disk.writes[-1] == (CursorMoved(1, at(9)), StartForgotten())
    assert clients.start is None


def test_start_is_kept_once() -> None:
    """Only the first start is kept, and none when there is a cursor."""
    disk = Disk()
    clients = meta(disk)
    do(clients.keep_start(at(4)))
    do(clients.keep_start(at(99)))
    assert disk.snapshot.start == at(4)
    do(clients.subscribe(A, at(5)))
    do(clients.keep_start(at(99)))
    assert clients.start is None
    assert len(disk.writes) == 2


def test_failed_subscribe_changes_nothing() -> None:
    """If the write fails, the client gets an error and stays unknown. Trying again works."""
    disk = Disk()
    clients = meta(disk)
    do(clients.keep_start(at(4)))
    disk.refuse = MetaWriteFailed("full")
    with pytest.raises(MetaWriteFailed):
        do(clients.subscribe(A, at(5)))
    assert (clients.clients(), clients.cursor(1), clients.start) == ((), None, at(4))
    disk.refuse = None
    do(clients.subscribe(A, at(5)))
    assert meta(disk).cursor(1) == at(5)


def test_a_switch_whose_write_lands_late_is_taken_back() -> None:
    """The switch was refused because nothing answered, so the destination goes on with its old server."""
    disk = Disk()
    clients = meta(disk)
    do(clients.choose_servers(("one:3306",)))
    disk.refuse = MetaWriteFailed("no answer")
    with pytest.raises(MetaWriteFailed):
        do(clients.choose_servers(("two:3306",)))
    disk.refuse = None
    do(disk.write((ServersChosen(("two:3306",)),)))  # it lands late
    do(clients.flush())
    assert disk.snapshot.servers == clients.servers == ("one:3306",)


def test_a_filter_whose_write_lands_late_is_taken_back() -> None:
    """The SUBSCRIBE was refused because nothing answered, so the client goes on with its old filter."""
    disk = Disk()
    clients = meta(disk)
    old, new = ClientIdentity("example", 1, "a"), ClientIdentity("example", 1, "b")
    do(clients.subscribe(old, at(100)))
    disk.refuse = MetaWriteFailed("no answer")
    with pytest.raises(MetaWriteFailed):
        do(clients.subscribe(new, None))
    disk.refuse = None
    do(disk.write((Subscribed(new),)))  # it lands late
    do(clients.subscribe(old, None))
    assert disk.snapshot.clients == {1: old}


def test_a_client_whose_unsubscribe_was_not_answered_is_durable_again_when_it_subscribes() -> None:
    """The backend may remove the client later. Its next SUBSCRIBE is answered when client and cursor are written."""
    disk = Disk()
    clients = meta(disk)
    identity = ClientIdentity("example", 1, "a")
    do(clients.subscribe(identity, at(100)))
    disk.refuse = MetaWriteFailed("no answer")
    with pytest.raises(MetaWriteFailed):
        do(clients.unsubscribe(1))
    disk.refuse = None
    do(disk.write((Unsubscribed(1),)))  # it lands late
    do(clients.subscribe(identity, None))
    assert disk.snapshot.clients == {1: identity}
    assert disk.snapshot.cursors == {1: at(100)}


def test_unsubscribe() -> None:
    """Identity, filter and cursor are deleted. An ACK does not bring them back, and a new SUBSCRIBE starts afresh."""
    disk = Disk()
    clients = meta(disk)
    do(clients.subscribe(B, at(4)))
    clients.move(2, at(9))
    do(clients.unsubscribe(2))
    do(clients.unsubscribe(2))
    assert disk.writes[1:] == [(Unsubscribed(2),)]
    assert (clients.clients(), clients.cursor(2), clients.due) == ((), None, ())
    for call in (clients.move, clients.reset):
        with pytest.raises(NotSubscribed):
            call(2, at(10))
    assert not clients.replaced(2, at(10))
    do(clients.subscribe(replace(B, filter=""), at(50)))
    assert clients.clients() == (replace(B, filter=""),)
    assert clients.cursor(2) == at(50)


# ---- cursors


def test_flush_writes_the_latest_of_each() -> None:
    """Many moves cause one write with one value per client; then nothing is due."""
    disk = Disk()
    clients = meta(disk)
    for identity in (A, B):
        do(clients.subscribe(identity, at(4)))
    for offset in range(5, 100):
        clients.move(2, at(offset))
    clients.move(1, at(7))
    assert clients.due == (1, 2)
    assert do(clients.flush()) == ((1, at(7)), (2, at(99)))
    assert disk.writes[2:] == [(CursorMoved(1, at(7)), CursorMoved(2, at(99)))]
    assert do(clients.flush()) == ()
    assert len(disk.writes) == 3


@pytest.mark.parametrize("error", [MetaWriteFailed("no answer"), Fenced("epoch 8")])
def test_failed_flush_stays_due(error: Exception) -> None:
    """A failed write is raised, loses nothing, and is repeated by the next flush."""
    disk = Disk()
    clients = meta(disk)
    do(clients.subscribe(A, at(4)))
    clients.move(1, at(7))
    disk.refuse = error
    with pytest.raises(type(error)):
        do(clients.flush())
    assert (clients.cursor(1), clients.due) == (at(7), (1,))
    disk.refuse = None
    assert do(clients.flush()) == ((1, at(7)),)


def test_moved_while_written() -> None:
    """A cursor that an ACK moves during a flush stays due."""
    disk = Disk()
    clients = meta(disk)
    do(clients.subscribe(A, at(4)))
    clients.move(1, at(7))
    disk.held = Deferred()
    flushing = Deferred.fromCoroutine(clients.flush())
    clients.move(1, at(8))
    release(disk)
    assert flushing.result == ((1, at(7)),)
    assert clients.due == (1,)
    assert do(clients.flush()) == ((1, at(8)),)


def test_edited_while_written() -> None:
    """A cursor that is edited from outside during a flush stays as edited, and is not due."""
    disk = Disk()
    clients = meta(disk)
    do(clients.subscribe(A, at(4)))
    clients.move(1, at(70))
    disk.held = Deferred()
    flushing = Deferred.fromCoroutine(clients.flush())
    clients.replaced(1, at(5))
    release(disk)
    assert flushing.called
    assert (clients.cursor(1), clients.due) == (at(5), ())


def test_lost_while_written() -> None:
    """A cursor that the backend reports lost during a flush is written once more, whatever that flush wrote."""
    disk = Disk()
    clients = meta(disk)
    do(clients.subscribe(A, at(4)))
    clients.move(1, at(70))
    disk.held = Deferred()
    flushing = Deferred.fromCoroutine(clients.flush())
    clients.rewrite(1)
    release(disk)
    assert flushing.called
    assert do(clients.flush()) == ((1, at(70)),)


def test_second_flush_waits_for_the_first() -> None:
    """A flush waits for the one before it, and returns only when what was acknowledged before is durable."""
    disk = Disk()
    clients = meta(disk)
    do(clients.subscribe(A, at(4)))
    clients.move(1, at(70))
    disk.held = Deferred()
    first, second = Deferred.fromCoroutine(clients.flush()), Deferred.fromCoroutine(clients.flush())
    first.addErrback(lambda failure: failure.trap(MetaWriteFailed))
    assert not second.called
    disk.refuse = MetaWriteFailed("once")
    second.addErrback(lambda failure: failure.trap(MetaWriteFailed))
    release(disk)
    assert clients.due == (1,)
    disk.refuse = None
    assert do(clients.flush()) == ((1, at(70)),)


def test_writes_keep_their_order() -> None:
    """Writes run one after another. Each has the values that are current when its turn comes."""
    disk = Disk()
    clients = meta(disk)
    do(clients.subscribe(A, at(4)))
    clients.move(1, at(7))
    disk.held = Deferred()
    waiting = [Deferred.fromCoroutine(call) for call in (clients.flush(), clients.subscribe(B, at(9)), clients.flush())]
    waiting.append(Deferred.fromCoroutine(clients.unsubscribe(1)))
    clients.move(1, at(8))
    assert not any(deferred.called for deferred in waiting)
    release(disk)
    assert all(deferred.called for deferred in waiting)
    assert disk.writes[1:] == [
        (CursorMoved(1, at(7)),),
        (Subscribed(B), CursorMoved(2, at(9))),
        (CursorMoved(1, at(8)),),
        (Unsubscribed(1),),
    ]


def test_cancelled_while_waiting() -> None:
    """A caller that is cancelled while it waits for its turn does not stop the others."""
    disk = Disk()
    clients = meta(disk)
    disk.held = Deferred()
    first = Deferred.fromCoroutine(clients.subscribe(A, at(4)))
    second = Deferred.fromCoroutine(clients.subscribe(B, at(4)))
    third = Deferred.fromCoroutine(clients.subscribe(replace(B, client_id=3), at(4)))
    second.addErrback(lambda failure: failure.trap(CancelledError))
    second.cancel()
    release(disk)
    assert first.called
    assert third.called
    assert [identity.client_id for identity in clients.clients()] == [1, 3]


def test_step_back_is_ignored() -> None:
    """An ACK never moves a cursor back, and an ACK of the same position is not written."""
    clients = meta(Disk())
    do(clients.subscribe(A, at(100)))
    assert not clients.move(1, at(99))
    assert clients.move(1, at(100))
    assert (clients.cursor(1), clients.due) == (at(100), ())
    assert clients.move(1, replace(at(100), consumed=True))
    assert not clients.move(1, replace(at(100), sub_index=5))
    assert clients.cursor(1) == replace(at(100), consumed=True)


@pytest.mark.parametrize(
    ("cursor", "position", "back"),
    [
        (at(5), at(4), True),
        (at(5), at(5), False),
        (at(5, journal="mysql-bin.000010"), at(900, journal="mysql-bin.000009"), True),
        (at(5, journal="mysql-bin.999999"), at(4, journal="mysql-bin.1000000"), False),
        (at(5), at(4, address="other"), False),
        (at(5), at(4, journal="binlog.000001"), False),
        (at(5, 1000), at(4, 1000), True),
        (at(5, 1000), at(4, 0), True),
        (at(5, 1000), at(4, 2000), False),
        (replace(at(5, 2000), server="u-1"), replace(at(4, 1000), server="u-2"), False),
        (replace(at(5, 2000), server="u-1"), replace(at(4, 1000), server="u-1"), True),
    ],
)
def test_steps_back(cursor: LogPosition, position: LogPosition, back: bool) -> None:
    """A position is a step back if it is earlier in the same binlog, and not later in time."""
    assert steps_back(cursor, position) is back


def test_operator_may_go_back() -> None:
    """A cursor that is edited from outside counts at once, in either direction, and is not written again."""
    disk = Disk()
    clients = meta(disk)
    do(clients.subscribe(A, at(100)))
    clients.move(1, at(200))
    clients.replaced(1, at(50))
    assert (clients.cursor(1), clients.due) == (at(50), ())
    assert clients.move(1, at(60))


def test_rewrite() -> None:
    """The next flush writes again what the backend has lost: one client's cursor, or everything."""
    disk = Disk()
    clients = meta(disk)
    do(clients.keep_start(at(3)))
    clients.rewrite()
    assert do(clients.flush()) == ()
    assert disk.writes == [(StartKept(at(3)),)] * 2
    do(clients.subscribe(A, None))
    do(clients.subscribe(B, at(4)))
    disk.snapshot = Snapshot()
    disk.writes.clear()
    clients.rewrite()
    do(clients.flush())
    assert disk.writes == [(Subscribed(A), Subscribed(B), CursorMoved(2, at(4)))]
    assert disk.snapshot == Snapshot({1: A, 2: B}, {2: at(4)})
    clients.rewrite(2)
    assert do(clients.flush()) == ((2, at(4)),)


def test_load_leaves_out_cursors_without_client() -> None:
    """Loading ignores the cursor of a client that is not subscribed."""
    clients = meta(Disk(Snapshot({1: A}, {1: at(4), 9: at(5)})))
    assert (clients.clients(), clients.cursor(1), clients.cursor(9)) == ((A,), at(4), None)


def test_cursor_from_outside_voids_the_start() -> None:
    """A first cursor that an operator writes, before or after loading, voids the kept start with the next flush."""
    disk = Disk(Snapshot({1: A}, {}, at(3)))
    clients = meta(disk)
    clients.replaced(1, at(4))
    do(clients.flush())
    assert disk.writes == [(StartForgotten(),)]
    disk = Disk(Snapshot({1: A}, {1: at(4)}, at(3)))
    clients = meta(disk)
    do(clients.flush())
    assert disk.writes == [(StartForgotten(),)]
    assert clients.start is None


def test_a_flush_under_way_counts_as_a_change() -> None:
    """Else cursors that wait for a disk that hangs would look as if they were flushed just now."""
    disk = Disk()
    clients = meta(disk)
    do(clients.subscribe(A, at(120)))
    seen = [clients.changed]
    clients.move(1, at(130))
    seen.append(clients.changed)
    disk.held = Deferred()
    flushing = Deferred.fromCoroutine(clients.flush())
    assert not clients.due
    seen.append(clients.changed)
    disk.held.callback(None)
    assert flushing.called
    seen.append(clients.changed)
    assert seen == [False, True, True, False]


def test_with_asyncio() -> None:
    """Meta needs nothing of Twisted: it also works with asyncio's lock and loop."""

    async def story() -> tuple[Meta, Disk]:
        disk = Disk()
        clients = Meta("example", disk, turn=asyncio.Lock())
        await asyncio.gather(*(clients.subscribe(ClientIdentity("example", n), at(n)) for n in range(5)))
        for n in range(5):
            clients.move(n, at(100 + n))
        await asyncio.gather(clients.flush(), clients.flush())
        return clients, disk

    clients, disk = asyncio.run(story())
    assert disk.snapshot.cursors == {n: at(100 + n) for n in range(5)}
    assert clients.due == ()


def release(disk: Disk) -> None:
    """Let a held write continue, and all later ones."""
    held, disk.held = disk.held, None
    assert held is not None
    held.callback(None)


# ---- anything, in any order


class MetaMachine(RuleBasedStateMachine):
    """Meta on a backend that sometimes fails, compared with dicts of the current and the durable values."""

    clients = st.integers(1, 3)
    offsets = st.integers(1, 50)

    @initialize()
    def start(self) -> None:
        self.disk = Disk()
        self.meta = meta(self.disk)
        self.filters: dict[int, str] = {}
        self.cursors: dict[int, LogPosition] = {}
        self.durable: dict[int, LogPosition] = {}
        self.kept: LogPosition | None = None
        self.lost: set[int] = set()  # clients that the backend may have lost

    def write(self, call: Coroutine[Deferred[Any], Any, object]) -> bool:
        try:
            do(call)
        except MetaWriteFailed:
            return False
        return True

    @rule(fails=st.booleans())
    def weather(self, fails: bool) -> None:
        self.disk.refuse = MetaWriteFailed("for now") if fails else None

    @rule(client=clients, filter=st.sampled_from(["", " ", "a", "b"]), start=st.none() | offsets)
    def subscribe(self, client: int, filter: str, start: int | None) -> None:
        position = None if start is None else at(start)
        if not self.write(self.meta.subscribe(ClientIdentity("example", client, filter), position)):
            return
        if filter.strip() or client not in self.filters:
            self.filters[client] = filter
        if position is not None and client not in self.cursors:
            self.cursors[client] = self.durable[client] = position
            self.kept = None
        if client in self.lost and client in self.cursors:
            self.durable[client] = self.cursors[client]
        self.lost.discard(client)

    @rule(client=clients)
    def unsubscribe(self, client: int) -> None:
        if self.write(self.meta.unsubscribe(client)):
            for known in (self.filters, self.cursors, self.durable):
                known.pop(client, None)
            self.lost.discard(client)
        elif client in self.filters:
            self.lost.add(client)

    @rule(client=clients, offset=offsets, consumed=st.booleans())
    def move(self, client: int, offset: int, consumed: bool) -> None:
        position = replace(at(offset), consumed=consumed)
        if client not in self.filters:
            with pytest.raises(NotSubscribed):
                self.meta.move(client, position)
            return
        before = self.cursors.get(client)
        ahead = before is None or (offset, consumed) >= (before.offset, before.consumed)
        assert self.meta.move(client, position) is ahead
        if ahead:
            self.cursors[client] = position

    @rule(client=clients, offset=offsets)
    def edit(self, client: int, offset: int) -> None:
        if client in self.filters:
            self.disk.snapshot.cursors[client] = at(offset)
            self.meta.replaced(client, at(offset))
            self.cursors[client] = self.durable[client] = at(offset)

    @rule(offset=offsets)
    def keep_start(self, offset: int) -> None:
        if self.write(self.meta.keep_start(at(offset))) and self.kept is None and not self.cursors:
            self.kept = at(offset)

    @rule(everything=st.booleans(), client=clients)
    def rewrite(self, everything: bool, client: int) -> None:
        self.meta.rewrite(None if everything else client)
        self.lost |= self.filters.keys() & (self.filters.keys() if everything else {client})

    @rule()
    def flush(self) -> None:
        if self.write(self.meta.flush()):
            self.lost.clear()
            if self.cursors:
                self.kept = None
            self.durable = dict(self.cursors)

    @rule()
    def crash(self) -> None:
        self.disk.refuse = None
        self.meta = meta(self.disk)
        self.cursors = dict(self.durable)
        self.lost.clear()

    @invariant()
    def counts(self) -> None:
        assert {identity.client_id: identity.filter for identity in self.meta.clients()} == self.filters
        assert {client: self.meta.cursor(client) for client in self.cursors} == self.cursors
        assert all(self.meta.cursor(client) is None for client in range(1, 4) if client not in self.cursors)

    @invariant()
    def is_durable(self) -> None:
        assert {client: identity.filter for client, identity in self.disk.snapshot.clients.items()} == self.filters
        assert self.disk.snapshot.cursors == self.durable
        assert self.disk.snapshot.start == self.meta.start == self.kept

    @invariant()
    def due(self) -> None:
        unwritten = {client for client, cursor in self.cursors.items() if self.durable.get(client) != cursor}
        assert unwritten <= set(self.meta.due) <= self.cursors.keys()


TestMeta = MetaMachine.TestCase
TestMeta.settings = settings(max_examples=examples(80), stateful_step_count=30, deadline=None)
