"""The cursor store in znodes: fenced writes, writes without an answer, and edits by hand."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from twisted.internet.defer import Deferred, DeferredLock

from canal_ha.cluster.ownership import Ownership
from canal_ha.cluster.session import ClusterSession
from canal_ha.errors import Fenced, MetaUnreadable, MetaWriteFailed, TransactionRefused, ZooKeeperUnavailable
from canal_ha.meta import znodes
from canal_ha.meta.memory import MemoryBackend
from canal_ha.meta.repository import (
    Change,
    CursorLoss,
    CursorMoved,
    ServersChosen,
    Snapshot,
    StartForgotten,
    StartKept,
    Subscribed,
    Unsubscribed,
)
from canal_ha.meta.write_behind import Meta
from canal_ha.meta.znodes import FILTER_BYTES, Stored, ZnodeBackend
from canal_ha.model.excerpt import some
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.position import LogPosition
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.operations import Create, Delete, Operation, SetData, Znode
from tests.zookeeper.stage import MemoryStage, Stage

DESTINATION = tree.destination("example")
CURSOR = tree.cursor("example", 1001)


def at(offset: int) -> LogPosition:
    """Return a position in the only binlog."""
    return LogPosition("mysql-bin.000001", offset, timestamp_ms=5, server_id=1, address="localhost")


class Store:
    """A backend of the owner at the current epoch, and a session of an operator."""

    def __init__(self, stage: Stage | None = None, before: Stored | None = None, restore: bool = False) -> None:
        self.stage: Any = stage or MemoryStage()  # tests in memory also move its time and its tree
        self.session: ClusterSession = self.stage.session()
        self.operator: ClusterSession = self.stage.session()
        self.stage.do(lambda: self.operator.ensure(DESTINATION))
        node = self.read(DESTINATION)
        assert node is not None
        # When the connection is lost at the next write: "before" or "after" ZooKeeper does it, or "under way". Such a
        # write waits at another server and is done when it `lands`, at the latest before the next write that arrives.
        self.lose: str = ""
        self.lose_at = 0  # "after" at the write of this number, from 1
        self.lease_ends = False  # while ZooKeeper does the next write
        self.under_way: list[Sequence[Operation]] = []
        self.replaced: list[tuple[int, int]] = []
        self.heard: Callable[[int, LogPosition], object] = lambda client_id, cursor: None  # hears of edits too
        self.lost: list[tuple[int, CursorLoss]] = []
        self.skipped: list[str] = []
        self.mended: list[tuple[ClientIdentity, int | None]] = []
        self.fenced = 0
        self.holds = True
        self.delayed: list[Callable[[], None]] = []
        self.writes: list[Sequence[Operation]] = []
        self.ownership = Ownership(
            "example",
            node.version,
            self.session,
            holds=lambda: self.holds,
            write=self._write,
            fenced=self._on_fenced,
            failed=self._on_failed,
            later=lambda delay_s, call: self.delayed.append(call),
            before=before,
            restore=restore,
        )
        self.backend: ZnodeBackend = self.ownership.meta(
            replaced=self._on_replaced,
            lost=lambda *loss: self.lost.append(loss),
            skipped=self.skipped.append,
            mended=lambda identity, cursor: self.mended.append((identity, cursor.offset if cursor else None)),
        )

    def _on_replaced(self, client_id: int, cursor: LogPosition) -> None:
        self.replaced.append((client_id, cursor.offset))
        self.heard(client_id, cursor)

    def _on_fenced(self) -> None:
        self.fenced += 1

    def _on_failed(self, reason: str) -> None:
        raise AssertionError(reason)

    async def _write(self, operations: Sequence[Operation]) -> tuple[int, ...]:
        self.writes.append(operations)
        lose, self.lose = self.lose, ""
        lose = "after" if len(self.writes) == self.lose_at else lose
        if lose == "before":
            raise ZooKeeperUnavailable("connection lost")
        if lose == "under way":
            self.under_way.append(operations)
            raise ZooKeeperUnavailable("connection lost")
        await self.land()
        versions = await self.session.transaction(operations)
        self.holds = self.holds and not self.lease_ends
        if lose == "after":
            raise ZooKeeperUnavailable("connection lost")
        return versions

    async def land(self) -> None:
        """Let ZooKeeper do what is under way."""
        landing, self.under_way = self.under_way, []
        for operations in landing:
            with suppress(TransactionRefused):
                await self.session.transaction(operations)

    def load(self) -> Snapshot:
        """See MetaBackend."""
        found: Snapshot = self.stage.do(self.backend.load)
        return found

    def write(self, *changes: Change) -> None:
        """See MetaBackend."""
        self.stage.do(lambda: self.backend.write(changes))

    def read(self, path: str) -> Znode | None:
        """Return a znode as the operator sees it."""
        node: Znode | None = self.stage.do(lambda: self.operator.get(path))
        return node

    def cursor(self) -> int:
        """Return the offset in the cursor node."""
        node = self.read(CURSOR)
        assert node is not None
        return LogPosition.from_json(node.data.decode()).offset

    def edit(self, *operations: Operation) -> None:
        """Execute operations as the operator, and let time pass so that all sessions notice."""
        self.stage.do(lambda: self.operator.transaction(operations))
        self.stage.pass_time()


def subscribed() -> Store:
    """Return a store with one client at offset 4."""
    store = Store()
    store.load()
    store.write(Subscribed(ClientIdentity("example", 1001, r"a\..*")), CursorMoved(1001, at(4)))
    return store


def test_everything_written_is_read_by_the_next_owner() -> None:
    """The next owner loads clients and cursors. Cursors are canal's JSON with @type; the kept start has none."""
    store = Store()
    assert store.load() == Snapshot()
    store.write(StartKept(at(3)))
    node = store.read(tree.parse("example"))
    assert node is not None
    assert node.data.startswith(b'{"identity"')
    identity = ClientIdentity("example", 1001, r"a\..*")
    store.write(Subscribed(identity), CursorMoved(1001, at(3)), StartForgotten())
    assert len(store.writes) == 2
    assert store.read(tree.parse("example")) is None
    node = store.read(CURSOR)
    assert node is not None
    assert node.data == at(3).to_json(with_type=True).encode()
    store.write(Subscribed(ClientIdentity("example", 1002)))
    expected = Snapshot({1001: identity, 1002: ClientIdentity("example", 1002)}, {1001: at(3)})
    assert store.backend.durable == expected
    assert Store(store.stage).load() == expected


def test_the_server_that_was_switched_to_is_read_by_the_next_owner() -> None:
    """It is a node of its own, as text, and the fence guards it like a cursor."""
    store = subscribed()
    store.write(ServersChosen(("db2:3306", "")))
    node = store.read(tree.source("example"))
    assert node is not None
    assert node.data == b"db2:3306,"
    assert Store(store.stage).load().servers == ("db2:3306", "")
    store.write(ServersChosen(("db1:3306", "db4:3306")))
    assert Store(store.stage).load().servers == ("db1:3306", "db4:3306")
    store.edit(SetData(DESTINATION, b""))
    with pytest.raises(Fenced):
        store.write(ServersChosen(("db2:3306", "")))


def many_changes(count: int) -> list[Change]:
    """Return the first subscriptions of clients 1 to `count`, with cursors as large as those of a GTID source."""
    return [
        change
        for client_id in range(1, count + 1)
        for change in (
            Subscribed(ClientIdentity("example", client_id, "")),
            CursorMoved(client_id, replace(at(client_id), gtid="x" * 300)),
        )
    ]


def test_thousands_of_cursors_are_put_back_in_pieces_that_zookeeper_takes() -> None:
    """The ensemble has come back empty. One transaction above 1 MB makes it drop the connection, again and again."""
    store = Store()
    store.load()
    store.write(*many_changes(3000))
    empty = Store(before=store.backend.stored, restore=True)
    assert len(empty.load().cursors) == 3000
    assert len(empty.writes) > 3
    for each in (store, empty):
        assert (
            max(sum(len(step.path) + len(getattr(step, "data", b"")) for step in write) for write in each.writes) < 5e5
        )


def test_a_write_in_pieces_goes_on_where_it_was_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is lost in the middle of it. The same changes again write what is missing."""
    monkeypatch.setattr(znodes, "TRANSACTION_BYTES", 4000)
    store = Store()
    store.load()
    changes = many_changes(30)
    store.lose_at = 2
    with pytest.raises(MetaWriteFailed):
        store.write(*changes)
    store.write(*changes)
    assert store.read(tree.cursor("example", 30)) is not None
    assert len(store.backend.durable.cursors) == 30


def test_a_late_writer_is_refused() -> None:
    """After the next claim, a write of an earlier epoch is refused, and the election is told."""
    store = subscribed()
    store.edit(SetData(DESTINATION, b""))
    with pytest.raises(Fenced):
        store.write(CursorMoved(1001, at(9)))
    assert store.cursor() == 4
    assert store.fenced == 1


@pytest.mark.parametrize("lose", ["before", "after"])
def test_a_write_without_answer_is_found_out(lose: str) -> None:
    """The caller gets an error. The next write finds out whether this one succeeded, and reports no edit."""
    store = subscribed()
    store.lose = lose
    with pytest.raises(MetaWriteFailed):
        store.write(CursorMoved(1001, at(5)))
    store.stage.pass_time()
    store.write(CursorMoved(1001, at(6)))
    assert store.cursor() == 6
    assert store.replaced == []
    store.lose = lose
    with pytest.raises(MetaWriteFailed):
        store.write(Subscribed(ClientIdentity("example", 7)), CursorMoved(7, at(5)))
    store.write(Subscribed(ClientIdentity("example", 7)), CursorMoved(7, at(5)))
    assert store.backend.durable.cursors == {1001: at(6), 7: at(5)}


def test_a_switch_is_done_although_the_lease_ends_before_its_answer() -> None:
    """A flush before it had no answer, so the node looks what that one did, which it may not do any more."""
    store = subscribed()
    store.lose = "after"
    with pytest.raises(MetaWriteFailed):
        store.write(CursorMoved(1001, at(5)))
    store.stage.pass_time()
    store.lease_ends = True
    store.write(ServersChosen(("db2:3306",)))
    assert store.backend.durable.servers == ("db2:3306",)
    assert Store(store.stage).load().servers == ("db2:3306",)


def lost_under_way(store: Store, *changes: Change) -> None:
    """Write, and lose the connection while the write is on its way to the leader."""
    store.lose = "under way"
    with pytest.raises(MetaWriteFailed):
        store.write(*changes)
    store.stage.pass_time()


def test_a_flush_that_lands_after_the_next_one_has_looked_is_no_edit() -> None:
    """The cursor does not go back: the server of the new connection had not heard of the flush when it was asked."""
    store = subscribed()
    lost_under_way(store, CursorMoved(1001, at(200)))
    store.write(CursorMoved(1001, at(300)))
    store.stage.pass_time()
    assert (store.cursor(), store.replaced) == (300, [])


def test_a_flush_that_lands_between_two_others_is_no_edit() -> None:
    """Two flushes are lost under way, and the first one lands when the second one has been sent."""
    store = subscribed()
    lost_under_way(store, CursorMoved(1001, at(200)))
    lost_under_way(store, CursorMoved(1001, at(300)))
    store.write(CursorMoved(1001, at(400)))
    store.stage.pass_time()
    assert (store.cursor(), store.replaced) == (400, [])
    lost_under_way(store, CursorMoved(1001, at(500)))
    lost_under_way(store, CursorMoved(1001, at(600)))
    store.stage.do(store.land)
    store.stage.pass_time()
    assert (store.cursor(), store.replaced) == (500, [])
    store.write(CursorMoved(1001, at(700)))
    assert (store.cursor(), store.replaced) == (700, [])


def test_a_flush_that_lands_while_its_client_is_idle_is_no_edit() -> None:
    """The watch shows our own late write, also after a write of another client that was answered."""
    store = subscribed()
    lost_under_way(store, CursorMoved(1001, at(200)))
    store.stage.do(store.land)
    store.stage.pass_time()
    assert (store.cursor(), store.replaced) == (200, [])
    lost_under_way(store, CursorMoved(1001, at(300)))
    store.write(Subscribed(ClientIdentity("example", 7)), CursorMoved(7, at(5)))
    store.stage.pass_time()
    assert (store.cursor(), store.replaced) == (300, [])


@pytest.mark.parametrize("lose", ["before", "after", "under way"])
@pytest.mark.parametrize("again", ["flush", "blank subscribe"])
def test_the_filter_of_a_refused_subscribe_does_not_come_back_with_the_next_owner(lose: str, again: str) -> None:
    """The client reads all tables, asks for some, and gets an error. Later its rows of other tables would be left out.

    lose: when the connection was lost.
    again: which write comes next.
    """
    store = Store()
    meta = Meta("example", store.backend, turn=DeferredLock())
    store.stage.do(meta.load)
    everything = ClientIdentity("example", 1001)
    store.stage.do(lambda: meta.subscribe(everything, at(4)))
    store.lose = lose
    with pytest.raises(MetaWriteFailed):
        store.stage.do(lambda: meta.subscribe(ClientIdentity("example", 1001, r"a\..*"), None))
    store.stage.pass_time()
    store.stage.do(meta.flush if again == "flush" else lambda: meta.subscribe(everything, None))
    store.stage.do(store.land)
    assert meta.clients() == (everything,)
    assert Store(store.stage).load().clients == {1001: everything}


def test_the_filter_of_a_refused_first_subscribe_does_not_come_back_with_the_next_owner() -> None:
    """The client was not known before, and subscribes again without a filter."""
    store = Store()
    store.load()
    store.lose = "after"
    with pytest.raises(MetaWriteFailed):
        store.write(Subscribed(ClientIdentity("example", 1001, r"a\..*")), CursorMoved(1001, at(4)))
    store.write(Subscribed(ClientIdentity("example", 1001)), CursorMoved(1001, at(4)))
    assert store.backend.durable == Store(store.stage).load()


def edited_behind_a_refused_first_subscribe() -> tuple[Store, Meta]:
    """Return the parts after a first SUBSCRIBE without an answer whose cursor an operator has moved."""
    store = Store()
    meta = Meta("example", store.backend, turn=DeferredLock())
    store.heard = meta.replaced
    store.stage.do(meta.load)
    store.lose = "after"
    with pytest.raises(MetaWriteFailed):
        store.stage.do(lambda: meta.subscribe(ClientIdentity("example", 1001, r"a\..*"), at(4)))
    store.edit(SetData(CURSOR, at(100).to_json(with_type=True).encode()))
    return store, meta


def test_an_edit_of_what_a_refused_first_subscribe_left_wins() -> None:
    """The first SUBSCRIBE of a client had no answer, and an operator moves its cursor. The next one begins there."""
    store, meta = edited_behind_a_refused_first_subscribe()
    store.stage.do(lambda: meta.subscribe(ClientIdentity("example", 1001), at(200)))
    assert (meta.cursor(1001), store.cursor()) == (at(100), 100)


@pytest.mark.parametrize("lose", ["before", "after"])
def test_an_edit_of_what_a_refused_first_subscribe_left_wins_also_behind_a_second_refusal(lose: str) -> None:
    """The second SUBSCRIBE finds the edit, and gets no answer either. The edit is told once, so the node keeps it."""
    store, meta = edited_behind_a_refused_first_subscribe()
    store.lose = lose
    with pytest.raises(MetaWriteFailed):
        store.stage.do(lambda: meta.subscribe(ClientIdentity("example", 1001, r"b\..*"), at(200)))
    store.stage.do(lambda: meta.subscribe(ClientIdentity("example", 1001, r"b\..*"), at(300)))
    assert (meta.cursor(1001), store.cursor()) == (at(100), 100)


def test_the_last_of_two_edits_of_what_a_refused_first_subscribe_left_wins() -> None:
    """The node hears of the second one between two SUBSCRIBEs. After an UNSUBSCRIBE neither counts."""
    meta = Meta("example", MemoryBackend(), turn=DeferredLock())
    MemoryStage().do(meta.load)
    meta._edited[1001] = at(100)
    assert meta.replaced(1001, at(50))
    meta._edited[1002] = at(100)
    MemoryStage().do(lambda: meta.unsubscribe(1002))
    for identity in (ClientIdentity("example", 1001), ClientIdentity("example", 1002)):
        MemoryStage().do(partial(meta.subscribe, identity, at(300)))
    assert (meta.cursor(1001), meta.cursor(1002)) == (at(50), at(300))


def test_a_blank_filter_keeps_the_stored_one() -> None:
    """Also if a write of the stored one got no answer."""
    store = subscribed()
    store.write(Subscribed(ClientIdentity("example", 1001)))
    assert Store(store.stage).load().clients == {1001: ClientIdentity("example", 1001, r"a\..*")}
    store = subscribed()
    lost_under_way(store, Subscribed(ClientIdentity("example", 1001, r"b\..*")))
    store.write(Subscribed(ClientIdentity("example", 1001)))
    store.stage.do(store.land)
    assert Store(store.stage).load().clients == {1001: ClientIdentity("example", 1001, r"a\..*")}


def test_a_cursor_put_back_while_a_flush_is_under_way_stays_there() -> None:
    """The flush that lands late does not win over a later write, though the node seemed to hold its bytes already."""
    store = subscribed()
    lost_under_way(store, CursorMoved(1001, at(200)))
    store.write(CursorMoved(1001, at(4)))
    store.stage.pass_time()
    assert (store.cursor(), store.replaced) == (4, [])


def test_an_edit_is_told_while_a_flush_has_no_answer() -> None:
    """The edit comes before the flush, which ZooKeeper then refuses. It may even hold the bytes of the flush."""
    for edited in (100, 200):
        store = subscribed()
        lost_under_way(store, CursorMoved(1001, at(200)))
        store.edit(SetData(CURSOR, at(100).to_json(with_type=True).encode()))
        store.edit(SetData(CURSOR, at(edited).to_json(with_type=True).encode()))
        assert store.replaced[-1] == (1001, edited)
        store.write(CursorMoved(1001, at(300)))
        assert store.cursor() == 300


@pytest.mark.parametrize("delay_s", [0.0, 0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05])
def test_an_edit_during_the_flush_after_a_lost_one_wins(delay_s: float) -> None:
    """The cursor stays as edited or moves on from there, at whichever step of the flush the edit is noticed."""
    store = subscribed()
    lost_under_way(store, CursorMoved(1001, at(200)))
    edit = SetData(CURSOR, at(100).to_json(with_type=True).encode())

    async def at_the_same_time() -> None:
        Deferred.fromCoroutine(store.backend.write((CursorMoved(1001, at(300)),)))
        pause: Deferred[None] = Deferred()
        store.stage.world.callLater(delay_s, pause.callback, None)
        await pause
        await store.operator.transaction([edit])

    store.stage.do(at_the_same_time)
    store.stage.pass_time()
    assert (store.cursor(), store.replaced) == (100, [(1001, 100)])


def test_an_edit_on_an_idle_client_is_told_at_once() -> None:
    """An edit is reported at once, also when it moves the cursor back. The owner's own writes are not reported."""
    store = subscribed()
    store.write(CursorMoved(1001, at(900)))
    store.stage.pass_time()
    store.edit(SetData(CURSOR, at(100).to_json(with_type=True).encode()))
    assert store.replaced == [(1001, 100)]
    store.write(CursorMoved(1001, at(200)))
    assert store.cursor() == 200


def test_an_edit_while_a_new_owner_loads_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The edit comes after the new owner has read the cursor, and before it has read everything."""
    store = Store(subscribed().stage)
    get, edit = store.ownership.get, SetData(CURSOR, at(100).to_json(with_type=True).encode())

    async def edited_meanwhile(path: str) -> Znode | None:
        if path == tree.parse("example"):
            await store.operator.transaction((edit,))
        return await get(path)

    monkeypatch.setattr(store.ownership, "get", edited_meanwhile)
    assert store.load().cursors[1001] == at(4)
    store.stage.pass_time()
    assert store.replaced == [(1001, 100)]


def test_an_edit_while_the_lease_is_over_is_told_if_the_lease_goes_on() -> None:
    """An answer that is under way can extend the lease after it was over for a moment."""
    store = subscribed()
    store.stage.pass_time()
    store.holds = False
    store.edit(SetData(CURSOR, at(100).to_json(with_type=True).encode()))
    assert store.replaced == []
    store.holds = True
    for call in store.delayed:
        call()
    store.stage.pass_time()
    assert store.replaced == [(1001, 100)]


@pytest.mark.parametrize("edited", [100, 4], ids=["elsewhere", "to-what-the-node-holds"])
def test_an_edit_in_the_way_of_a_flush_wins(edited: int) -> None:
    """The cursor stays as edited, and the flush writes its other changes."""
    store = subscribed()
    store.write(Subscribed(ClientIdentity("example", 7)), CursorMoved(7, at(4)))
    edit = SetData(CURSOR, at(edited).to_json(with_type=True).encode())

    async def at_the_same_time() -> None:
        await store.operator.transaction([edit])
        await store.backend.write((CursorMoved(1001, at(500)), CursorMoved(7, at(500))))

    store.stage.do(at_the_same_time)
    store.stage.pass_time()
    assert store.cursor() == edited
    assert store.replaced == [(1001, edited)]
    assert store.backend.durable.cursors == {1001: at(edited), 7: at(500)}


def test_an_edit_to_what_the_node_holds_is_told_too() -> None:
    """An edit that changes nothing is reported, because the cursor in memory may be ahead of the node."""
    store = subscribed()
    store.edit(SetData(CURSOR, at(4).to_json(with_type=True).encode()))
    assert store.replaced == [(1001, 4)]


def test_a_cursor_deleted_or_spoilt_by_hand_is_told_and_can_be_written_again() -> None:
    """A deleted or unreadable cursor is reported as that, and the owner can write it again."""
    store = subscribed()
    store.edit(SetData(CURSOR, b"{"))
    assert store.lost == [(1001, CursorLoss.MALFORMED)]
    store.write(CursorMoved(1001, at(5)))
    store.stage.pass_time()
    store.edit(Delete(CURSOR))
    assert store.lost[1:] == [(1001, CursorLoss.DELETED)]
    store.write(CursorMoved(1001, at(5)))
    assert store.cursor() == 5
    assert store.replaced == []


def with_a_filter() -> tuple[Store, ClientIdentity]:
    """Return a store that has written a client with a filter, and this client."""
    store = Store()
    store.load()
    client = ClientIdentity("example", 1001, r"shop\..*")
    store.write(Subscribed(client), CursorMoved(1001, at(4)))
    store.stage.pass_time()
    return store, client


def test_a_client_deleted_by_hand_keeps_its_filter() -> None:
    """The owner writes the whole client again. Without its filter, the next owner would send the rows of all tables."""
    store, client = with_a_filter()
    store.edit(Delete(CURSOR), Delete(tree.client_filter("example", 1001)), Delete(tree.client("example", 1001)))
    assert store.lost == [(1001, CursorLoss.DELETED)]
    store.write(Subscribed(client), CursorMoved(1001, at(5)))
    assert store.cursor() == 5
    node = store.read(tree.client_filter("example", 1001))
    assert node is not None
    assert node.data == client.filter.encode()


def test_a_cursor_deleted_by_hand_leaves_the_filter_alone() -> None:
    """The filter is still there when the owner writes the client again."""
    store, client = with_a_filter()
    store.edit(Delete(CURSOR))
    store.write(Subscribed(client), CursorMoved(1001, at(5)))
    assert store.cursor() == 5


def test_a_client_node_made_by_a_client_first_is_no_obstacle() -> None:
    """The store writes into a client's node that canal's client has created as the parent of its `running`."""
    store = Store()
    store.load()
    store.edit(
        Create(tree.client("example", 1001)), Create(tree.client_running("example", 1001), b"{}", ephemeral=True)
    )
    store.write(Subscribed(ClientIdentity("example", 1001)), CursorMoved(1001, at(4)))
    assert store.cursor() == 4


def test_unsubscribing_deletes_the_whole_subtree() -> None:
    """Nodes of other meta modes and of the client itself are deleted, too. An unknown client is no error."""
    store = subscribed()
    client = tree.client("example", 1001)
    store.edit(Create(f"{client}/mark"), Create(f"{client}/mark/0000000001"), Create(f"{client}/running", b"{}", True))
    store.write(Unsubscribed(1001))
    assert store.read(client) is None
    store.stage.pass_time()
    assert store.lost == []
    store.write(Unsubscribed(1001))
    assert store.backend.durable == Snapshot()


def test_cursors_that_zookeeper_lost_are_put_back() -> None:
    """An owner that restores a snapshot writes its clients and cursors to a ZooKeeper that lacks them."""
    before = Snapshot(
        {1001: ClientIdentity("example", 1001, "f"), 7: ClientIdentity("example", 7)}, {1001: at(77), 7: at(5)}
    )
    store = Store(before=Stored(before, {}), restore=True)
    assert store.load() == before
    assert store.cursor() == 77


def restored(store: Store, offset: int) -> None:
    """Let the ensemble come back from a backup in which the cursor was here, at an earlier version."""
    tree_ = store.stage.ensemble.tree
    node = tree_[CURSOR]
    data = at(offset).to_json(with_type=True).encode()
    tree_[CURSOR] = replace(node, data=data, version=node.version - 1)


def test_a_cursor_older_than_this_node_knew_is_put_back() -> None:
    """A backup restores an earlier version of the cursor; the node that flushed the later one writes it again."""
    store = subscribed()
    store.write(CursorMoved(1001, at(100)))
    store.write(CursorMoved(1001, at(200)))
    store.stage.pass_time()
    before = store.backend.stored
    restored(store, 100)
    again = Store(store.stage, before)
    assert again.load().cursors == {1001: at(200)}
    assert again.cursor() == 200


@pytest.mark.parametrize("restore", [False, True])
def test_a_backup_does_not_bring_an_old_server_or_an_old_filter_back(restore: bool) -> None:
    """They are those that the last owner knew, as the cursors are.

    restore: whether the backup had another epoch; else only the cursor shows that data is lost.
    """
    store = subscribed()
    store.write(ServersChosen(("db1:3306",)), CursorMoved(1001, at(100)))
    store.stage.pass_time()
    backup = dict(store.stage.ensemble.tree)
    identity = ClientIdentity("example", 1001, r"a\..*,b\..*")
    store.write(ServersChosen(("db2:3306",)), Subscribed(identity), CursorMoved(1001, at(200)))
    store.stage.pass_time()
    before = store.backend.stored
    store.stage.ensemble.tree.update(backup)
    wanted = Snapshot({1001: identity}, {1001: at(200)}, None, ("db2:3306",))
    assert Store(store.stage, before, restore=restore).load() == wanted
    assert Store(store.stage).load() == wanted


def test_a_cursor_that_another_owner_or_an_operator_moved_is_not_put_back() -> None:
    """It is newer than this node knew, though it may stand at an earlier position."""
    store = subscribed()
    store.write(CursorMoved(1001, at(200)))
    store.stage.pass_time()
    before = store.backend.stored
    store.edit(SetData(CURSOR, at(100).to_json(with_type=True).encode()))
    again = Store(store.stage, before)
    assert again.load().cursors == {1001: at(100)}
    store.edit(Delete(CURSOR), Create(CURSOR, at(50).to_json(with_type=True).encode()))
    again = Store(store.stage, before)
    assert again.load().cursors == {1001: at(50)}


def test_an_ensemble_with_copied_znodes_does_not_move_cursors_back() -> None:
    """The copies are younger than what this node knew, by their czxid, but another owner has moved the cursor on."""
    store = subscribed()
    store.write(CursorMoved(1001, at(100)))
    store.stage.pass_time()
    known = store.backend.stored
    assert known is not None
    nodes = {path: replace(node, created=node.created + 10**6) for path, node in known.nodes.items()}
    store.write(CursorMoved(1001, at(100_000)))
    store.stage.pass_time()
    again = Store(store.stage, Stored(known.snapshot, nodes))
    assert again.load().cursors == {1001: at(100_000)}
    assert again.cursor() == 100_000


def test_a_backup_restored_under_the_owner_is_no_edit() -> None:
    """The owner's session goes on. The cursor in memory stays, and the next flush writes it again."""
    store = subscribed()
    store.write(CursorMoved(1001, at(100)))
    store.write(CursorMoved(1001, at(200)))
    store.stage.pass_time()
    restored(store, 100)
    store.write(CursorMoved(1001, at(300)))
    assert (store.cursor(), store.replaced) == (300, [])
    store.stage.pass_time()
    restored(store, 200)
    store.ownership.watch_again()
    store.stage.pass_time()
    assert (store.lost, store.replaced) == ([(1001, CursorLoss.OLDER)], [])


def poisoned(path: str, data: bytes) -> Store:
    """Return a new owner's store; client 1001 has an orderly cursor, and a stranger wrote this node beside it."""
    store = subscribed()
    if store.read(path.rpartition("/")[0]) is None:
        store.edit(Create(path.rpartition("/")[0]))
    store.edit(SetData(path, data) if store.read(path) else Create(path, data))
    return Store(store.stage)


NESTED = b"[" * 100_000
QUOTES = b'\\"' * 20_000
UNREADABLE = (b"what?", b"\xff", b"{}", b"[]", NESTED, QUOTES, b'{"postion":' + NESTED, b'{"postion":{"position":1e9}}')


@pytest.mark.parametrize("name", ["²", "٣", "00001001", "+1002", "-0", "99999999999999999999", "1002 ", "nothing"])
def test_a_child_that_is_no_client_id_stops_no_claim(name: str) -> None:
    """The destination goes on with its clients; the child is named."""
    store = poisoned(f"{DESTINATION}/{name}", b"")
    assert list(store.load().clients) == [1001]
    assert store.skipped == [f"{DESTINATION} has children that are no client ids: {some([name])}"]


def test_ten_thousand_strange_children_are_one_line() -> None:
    """The log names five of them, and how many more there are."""
    store = subscribed()
    for first in range(0, 10_000, 1000):
        strange = [Create(f"{DESTINATION}/x{number:05}") for number in range(first, first + 1000)]
        store.stage.do(partial(store.operator.transaction, strange))
    again = Store(store.stage)
    assert list(again.load().clients) == [1001]
    assert [text.partition("ids: ")[2] for text in again.skipped] == [
        "x00000, x00001, x00002, x00003, x00004 and 9995 more"
    ]


@pytest.mark.parametrize("client_id", [-1, -32768, 0, 32767])
def test_every_client_id_of_canal_is_loaded(client_id: int) -> None:
    """canal's client ids are 16 bits with a sign."""
    store = subscribed()
    store.write(Subscribed(ClientIdentity("example", client_id)), CursorMoved(client_id, at(7)))
    again = Store(store.stage)
    assert again.load().cursors == {1001: at(4), client_id: at(7)}
    assert again.skipped == []


@pytest.mark.parametrize("data", UNREADABLE, ids=lambda data: repr(data[:12]))
def test_an_unreadable_cursor_refuses_its_client_alone(data: bytes) -> None:
    """The other clients are loaded. The node stays as it is, and the refusal names it."""
    store = poisoned(tree.cursor("example", 7), data)
    began = time.monotonic()
    snapshot = store.load()
    assert time.monotonic() - began < 1.0
    assert (list(snapshot.clients), list(snapshot.unreadable)) == ([1001], [7])
    assert snapshot.unreadable[7].startswith(tree.cursor("example", 7))
    assert len(snapshot.unreadable[7]) < 600
    node = store.read(tree.cursor("example", 7))
    assert node is not None
    assert node.data == data
    store.write(CursorMoved(1001, at(50)))


@pytest.mark.parametrize("data", [b"\xff", b"x" * (FILTER_BYTES + 1)], ids=["no text", "long"])
def test_an_unreadable_filter_refuses_its_client_alone(data: bytes) -> None:
    """Without its filter the client would get other tables than it asked for."""
    store = poisoned(tree.client_filter("example", 7), data)
    assert list(store.load().unreadable) == [7]


@pytest.mark.parametrize("data", [b"\xff", b"nobody", b"a:1,b", b"a:1" * 10_000, b"a b:1", b"h:123456"])
def test_unreadable_servers_are_skipped(data: bytes) -> None:
    """The configured server is read, and the node is named."""
    store = poisoned(tree.source("example"), data)
    assert store.load().servers == ()
    assert tree.source("example") in store.skipped[0]
    store.write(ServersChosen(("db2:3306",)))
    assert Store(store.stage).load().servers == ("db2:3306",)


@pytest.mark.parametrize("data", UNREADABLE, ids=lambda data: repr(data[:12]))
def test_an_unreadable_start_is_skipped(data: bytes) -> None:
    """The next start replaces it."""
    store = poisoned(tree.parse("example"), data)
    assert store.load().start is None
    assert tree.parse("example") in store.skipped[0]
    store.write(StartKept(at(9)))
    assert Store(store.stage).load().start == at(9)


def test_a_repaired_client_is_taken_back() -> None:
    """As soon as an operator corrects the cursor, or deletes it, the client counts as subscribed."""
    store = poisoned(tree.cursor("example", 7), b"what?")
    store.load()
    store.stage.pass_time()
    store.edit(SetData(tree.cursor("example", 7), b"worse"))
    assert store.mended == []
    store.edit(SetData(tree.cursor("example", 7), at(77).to_json(with_type=True).encode()))
    assert store.mended == [(ClientIdentity("example", 7), 77)]
    assert store.backend.durable.unreadable == {}
    store.write(CursorMoved(7, at(80)))
    store.edit(SetData(tree.cursor("example", 7), at(60).to_json(with_type=True).encode()))
    assert store.replaced == [(7, 60)]
    deleted = poisoned(tree.cursor("example", 7), b"what?")
    deleted.load()
    deleted.stage.pass_time()
    deleted.edit(Delete(tree.cursor("example", 7)))
    assert deleted.mended == [(ClientIdentity("example", 7), None)]


@pytest.mark.parametrize("restore", [False, True])
def test_the_last_owner_writes_a_cursor_again_that_cannot_be_read(restore: bool) -> None:
    """It knows the cursor. Without this it could keep the destination for ever, and never serve it."""
    store = subscribed()
    store.write(CursorMoved(1001, at(200)))
    before = store.backend.stored
    store.stage.do(lambda: store.operator.transaction([SetData(CURSOR, b"what?")]))
    again = Store(store.stage, before, restore=restore)
    found = again.load()
    assert (found.cursors, found.unreadable) == ({1001: at(200)}, {})
    assert again.cursor() == 200


def test_the_last_owner_makes_a_client_without_a_filter_readable_again() -> None:
    """Somebody has written a filter into ZooKeeper that cannot be read; the client had none."""
    store = Store()
    store.load()
    store.write(Subscribed(ClientIdentity("example", 7)), CursorMoved(7, at(5)))
    before = store.backend.stored
    path = tree.client_filter("example", 7)
    store.stage.do(lambda: store.operator.transaction([Create(path, b"\xff")]))
    wanted = Snapshot({7: ClientIdentity("example", 7)}, {7: at(5)})
    assert Store(store.stage, before).load() == wanted
    assert Store(store.stage).load() == wanted


def test_the_process_with_the_lock_of_a_client_id_is_known() -> None:
    """The client writes its address there; it may be one that nobody can read."""
    store = Store()
    store.stage.do(store.backend.load)
    path = tree.client_running("example", 1001)
    assert store.stage.do(lambda: store.backend.holder(1001)) == ""
    store.stage.do(lambda: store.operator.ensure(tree.client("example", 1001)))
    for data, holder in (
        (tree.RunningData("10.0.0.7:52011", client_id=1001).to_bytes(), "10.0.0.7:52011"),
        (b"x", "a"),
    ):
        store.stage.do(lambda data=data: store.operator.transaction([Create(path, data)]))
        assert store.stage.do(lambda: store.backend.holder(1001)).startswith(holder)
        store.stage.do(lambda: store.operator.transaction([Delete(path)]))


def test_an_unreadable_client_can_unsubscribe() -> None:
    """Its damaged nodes are deleted."""
    store = poisoned(tree.cursor("example", 7), b"what?")
    meta = Meta("example", store.backend, turn=DeferredLock())
    store.stage.do(meta.load)
    with pytest.raises(MetaUnreadable, match=tree.cursor("example", 7)):
        store.stage.do(lambda: meta.subscribe(ClientIdentity("example", 7), at(1)))
    store.stage.do(lambda: meta.unsubscribe(7))
    assert store.read(tree.client("example", 7)) is None
    store.stage.do(lambda: meta.subscribe(ClientIdentity("example", 7), at(1)))
    assert meta.cursor(7) == at(1)
