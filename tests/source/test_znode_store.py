"""The table history in ZooKeeper: real ZooKeeper, one session for each owner."""

from __future__ import annotations

import itertools
import json
import random
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from canal_ha.decode.history.ranges import Range, edge
from canal_ha.decode.history.store import HistoryStore, Kept, Record, TableSnapshot
from canal_ha.errors import HistoryUnavailable, ZooKeeperUnavailable
from canal_ha.model.position import LogPosition
from canal_ha.source.history import parts, znode_store
from canal_ha.source.history.parts import PIECE_BYTES
from canal_ha.source.history.sql_store import in_file
from canal_ha.source.history.znode_store import ZnodeStore
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.operations import Check, Delete, Operation, SetData, Znode
from canal_ha.zookeeper.reading import BlockingZnodes
from lab import ZooKeeper

pytestmark = pytest.mark.real

TABLE = "CREATE TABLE t (a int)"
_names = itertools.count()


class Owners:
    """Claims one destination again and again, as nodes do."""

    def __init__(self, znodes: BlockingZnodes) -> None:
        self.znodes = znodes
        self.name = f"history{next(_names)}"
        self.path = tree.history(self.name)
        znodes.ensure(tree.destination(self.name))

    def next(self, through: FailingZnodes | None = None) -> ZnodeStore:
        """Return the store of a new owner; every earlier one is fenced."""
        path = tree.destination(self.name)
        (epoch,) = self.znodes.transaction([SetData(path, b"")])
        return ZnodeStore(self.path, Check(path, epoch), through or self.znodes)

    def again(self, through: FailingZnodes) -> ZnodeStore:
        """Return another store of the present owner, whose requests may fail."""
        path = tree.destination(self.name)
        node = self.znodes.get(path)
        assert node is not None
        return ZnodeStore(self.path, Check(path, node.version), through)

    def parts(self) -> list[bytes]:
        """Return the data of every part."""
        nodes = (self.znodes.get(f"{self.path}/{name}") for name in self.znodes.children(self.path))
        return [node.data for node in nodes if node is not None]

    def wipe(self) -> None:
        """Delete the history, as an operator or an emptied ensemble does."""
        parts = [Delete(f"{self.path}/{name}") for name in self.znodes.children(self.path)]
        self.znodes.transaction([*parts, Delete(self.path)])


class FailingZnodes:
    """Real ZooKeeper, except that requests fail when asked to.

    sent: whether a failing transaction succeeds all the same, and only its answer is lost.
    """

    def __init__(self, znodes: BlockingZnodes) -> None:
        self._znodes = znodes
        self.fails: Callable[[], bool] = lambda: False
        self.sent = False
        self.transactions = 0

    def get(self, path: str) -> Znode | None:
        """See WaitingZnodes."""
        self._maybe()
        return self._znodes.get(path)

    def children(self, path: str) -> tuple[str, ...]:
        """See WaitingZnodes."""
        self._maybe()
        return self._znodes.children(path)

    def transaction(self, operations: Sequence[Operation]) -> tuple[int, ...]:
        """See WaitingZnodes."""
        self.transactions += 1
        fails = self.fails()
        if not fails or self.sent:
            done = self._znodes.transaction(operations)
        if fails:
            raise ZooKeeperUnavailable("cut")
        return done

    def sent_more_than(self, transactions: int) -> bool:
        """Return whether it was asked for more transactions than this."""
        return self.transactions > transactions

    def _maybe(self) -> None:
        if self.fails():
            raise ZooKeeperUnavailable("cut")


@pytest.fixture(scope="module")
def znodes(zookeeper: ZooKeeper) -> Iterator[BlockingZnodes]:
    """Yield a session with ZooKeeper."""
    with BlockingZnodes(zookeeper.hosts, read_only=False) as session:
        yield session


@pytest.fixture
def owners(znodes: BlockingZnodes) -> Owners:
    """Return a destination of its own."""
    return Owners(znodes)


def at(offset: int) -> LogPosition:
    """Return a position; its time in milliseconds is its offset."""
    return LogPosition("bin.000001", offset, timestamp_ms=offset)


def stretch(start: int, end: int) -> Range:
    """Return a range."""
    return Range(edge(at(start)), edge(at(end)))


def statement(offset: int, schema: str = "s") -> Record:
    """Return a statement."""
    return Record(at(offset), schema, f"ALTER TABLE t ADD c{offset} int")


def content(kept: Kept) -> tuple[object, ...]:
    """Return everything that was kept, in the order of positions."""
    return (
        [(known.start.offset, known.end.offset) for known in kept.ranges],
        sorted(kept.records, key=lambda record: record.at.offset),
        kept.times,
        sorted(((taken.at, taken.tables, taken.left_out) for taken in kept.snapshots), key=lambda each: each[0].offset),
    )


def test_the_next_owner_finds_what_the_last_one_knew(owners: Owners) -> None:
    """Ranges, statements, settled tables and snapshots are equal after a change of owner."""
    settled = Record(at(120), "s", TABLE, "t", since=LogPosition("bin.000001", 90))
    surrogate = Record(at(130), "s", "ALTER TABLE t COMMENT '\udce9 é 𝄞'")
    snapshots = [
        TableSnapshot(at(50), {("s", "t"): TABLE, ("s", "u"): TABLE}, frozenset({("s", "v")})),
        TableSnapshot(at(150), {("s", "t"): TABLE + " COMMENT 'é'", ("r", "t"): TABLE}, None),
        TableSnapshot(at(180), {}, frozenset()),
    ]
    one = owners.next()
    assert one.load("u") == Kept()
    for snapshot in snapshots:
        one.add_snapshot("u", snapshot)
    one.add("u", [settled, surrogate])
    one.add("u", [settled])
    one.cover("u", [stretch(50, 200), stretch(500, 600)], {})
    one.close()
    kept = owners.next().load("u")
    assert content(kept) == content(Kept((stretch(50, 200), stretch(500, 600)), (settled, surrogate), tuple(snapshots)))


def test_an_earlier_owner_cannot_write(owners: Owners) -> None:
    """Once the next owner has read the history, every call of the earlier one fails, and nothing changes."""
    one = owners.next()
    one.add("u", [statement(100)])
    two = owners.next()
    before = content(two.load("u"))
    late: list[Callable[[], object]] = [
        lambda: one.add("u", [statement(200)]),
        lambda: one.add_snapshot("u", TableSnapshot(at(200), {("s", "t"): TABLE})),
        lambda: one.cover("u", [stretch(50, 900)], {}),
        lambda: one.expire("u", at(500), 0),
        lambda: one.clear("u"),
        lambda: one.load("u"),
    ]
    for call in late:
        with pytest.raises(HistoryUnavailable, match=owners.path):
            call()
    assert content(owners.next().load("u")) == before


def test_a_closed_store_writes_no_more(owners: Owners) -> None:
    """At a switch of the source the same owner opens another store, whose work a late call of the first would undo."""
    one = owners.next()
    one.add("u", [statement(100)])
    one.close()
    two = owners.again(FailingZnodes(owners.znodes))
    two.add("v", [statement(100)])
    with pytest.raises(HistoryUnavailable, match="another source"):
        one.expire("u", at(500), 0)
    assert [len(owners.next().load(source).records) for source in "uv"] == [1, 1]


def test_sources_stay_apart_and_old_ones_expire(owners: Owners) -> None:
    """clear() empties one source. A source expires with its last snapshot."""
    store = owners.next()
    for source, taken in (("u", 100), ("v", 100), ("w", 900)):
        store.add(source, [statement(taken)])
        store.add_snapshot(source, TableSnapshot(at(taken), {("s", source): TABLE}))
        store.cover(source, [stretch(taken, taken)], {})
    store.expire("u", at(50), 500)
    kept = owners.next()
    assert [len(kept.load(source).snapshots) for source in "uvw"] == [1, 0, 1]
    assert [len(kept.load(source).ranges) for source in "uvw"] == [1, 0, 1]
    assert kept.others("u") == {"w": kept.load("w")}
    assert kept.others("v") == {"u": kept.load("u"), "w": kept.load("w")}
    kept.clear("w")
    assert [len(owners.next().load(source).records) for source in "uvw"] == [1, 0, 0]
    assert len(owners.parts()) == 2


def test_random_calls_give_what_a_file_gives(owners: Owners, tmp_path: Path) -> None:
    """The store equals the store in SQLite after any calls, also if answers are lost and owners change."""
    chance = random.Random(14)
    through = FailingZnodes(owners.znodes)
    store: HistoryStore = owners.next(through)
    file = in_file("example", tmp_path)
    now = 10
    for _ in range(150):
        now += chance.randrange(1, 50)
        source = chance.choice("uv")
        records = [statement(now, chance.choice("st")) for _ in range(chance.randrange(3))]
        tables = {("s", f"t{table}"): f"CREATE TABLE t (c{chance.randrange(3)} int)" for table in range(5)}
        snapshot = TableSnapshot(at(now), dict(list(tables.items())[: now % 6]), frozenset({("s", "w")}))
        calls: list[tuple[str, tuple[object, ...]]] = [
            ("add", (source, records)),
            ("cover", (source, [stretch(now - 5, now + 5)], {"bin.000001": now})),
            ("add_snapshot", (source, snapshot)),
        ]
        name, values = chance.choice(calls)
        if chance.random() < 0.1:
            name, values = "expire", (source, at(now - 40), 0)
        elif chance.random() < 0.03:
            name, values = "clear", (source,)
        getattr(file, name)(*values)
        through.fails = lambda: chance.random() < 0.2
        done = False
        while not done:
            through.sent = chance.random() < 0.5
            try:
                getattr(store, name)(*values)
                done = True
            except HistoryUnavailable:
                pass
        through.fails = lambda: False
        if chance.random() < 0.1:
            store = owners.next(through)
            store.load(source)
        if chance.random() < 0.03 and owners.parts():
            owners.wipe()
            for each in (store, file):
                each.add("u", [statement(now + 1)])
        for source in "uv":
            assert content(owners.again(through).load(source)) == content(file.load(source))
    file.close()


def test_a_write_that_breaks_off_leaves_the_history_before_it(owners: Owners) -> None:
    """A node that dies in the middle of a snapshot leaves a readable history, and its successor removes the rest."""
    first = TableSnapshot(at(50), {("s", "t"): TABLE}, frozenset())
    for transactions in range(1, 12):
        through = FailingZnodes(owners.znodes)
        store = owners.next(through)
        store.clear("u")
        store.add_snapshot("u", first)
        tables = {("s", f"t{table}"): f"CREATE TABLE t (a_{table}_{random.random()} int)" for table in range(9000)}
        through.fails = partial(through.sent_more_than, through.transactions + transactions)
        with suppress(HistoryUnavailable):
            store.add_snapshot("u", TableSnapshot(at(150), tables, frozenset()))
            store.add("u", [statement(number) for number in range(3000)])
        successor = owners.next()
        kept = successor.load("u")
        assert content(Kept(snapshots=kept.snapshots[:1])) == content(Kept(snapshots=(first,)))
        assert [len(taken.tables) for taken in kept.snapshots] in ([1], [1, 9000])
        successor.cover("u", [], {})
        index = owners.znodes.get(owners.path)
        assert index is not None
        (source,) = json.loads(index.data)["sources"].values()
        named = itertools.chain(
            *source["statements"], *(names for taken in source["snapshots"] for names in taken["parts"])
        )
        assert sorted(owners.znodes.children(owners.path)) == sorted(named)


def test_an_expiry_that_breaks_off_takes_no_statement_from_a_covered_range(owners: Owners) -> None:
    """A node that dies while it drops old statements leaves each range with all its statements."""
    for transactions in range(8):
        through = FailingZnodes(owners.znodes)
        store = owners.next(through)
        store.clear("u")
        store.add("u", [statement(number) for number in range(100, 900, 100)])
        for place in (50, 500):
            store.add_snapshot("u", TableSnapshot(at(place), {("s", "t"): f"CREATE TABLE t (a{place} int)"}, None))
        store.cover("u", [stretch(50, 900)], {})
        through.fails = partial(through.sent_more_than, through.transactions + transactions)
        with suppress(HistoryUnavailable):
            store.expire("u", at(500), 0)
        kept = owners.next().load("u")
        (covered,) = kept.ranges
        expected = range(100 * -(-covered.start.offset // 100), 900, 100)
        assert sorted(record.at.offset for record in kept.records) == list(expected)
        assert min(taken.at.offset for taken in kept.snapshots) == covered.start.offset


def test_an_answer_that_is_lost_makes_nothing_else_be_written_again(owners: Owners) -> None:
    """The next write finds that the lost one succeeded, and goes on from there."""
    through = FailingZnodes(owners.znodes)
    store = owners.next(through)
    store.add_snapshot("u", TableSnapshot(at(50), {("s", "t"): TABLE}, frozenset()))
    store.add("u", [statement(100)])
    through.sent, through.fails = True, lambda: True
    with pytest.raises(HistoryUnavailable):
        store.add("u", [statement(200)])
    through.fails = lambda: False
    before = through.transactions
    store.add("u", [statement(300)])
    assert through.transactions - before <= 3
    assert len(owners.next().load("u").records) == 3


def test_ten_thousand_tables_and_fifteen_snapshots_stay_small(owners: Owners) -> None:
    """No znode is larger than half a megabyte, and a snapshot stores only what changed."""
    columns = ",\n".join(f"  `a_column_of_this_table_{column}` varchar(64) DEFAULT NULL" for column in range(20))
    tables = {("shop", f"t{table}"): f"CREATE TABLE t ({columns}, `own_{table}` int)" for table in range(10_000)}
    store = owners.next()
    for number in range(15):
        tables[("shop", f"t{number}")] = TABLE
        store.add_snapshot("u", TableSnapshot(at(50 + number), dict(tables), frozenset()))
    sizes = [len(data) for data in owners.parts()]
    assert max(sizes) <= PIECE_BYTES
    assert sum(sizes) < 2 << 20
    kept = owners.next().load("u").snapshots
    assert [taken.tables[("shop", "t14")] == TABLE for taken in kept] == [False] * 14 + [True]
    assert kept[14].tables == tables
    store = owners.next()
    store.expire("u", at(64), 0)
    assert [taken.tables == tables for taken in owners.next().load("u").snapshots] == [True]


def test_what_does_not_compress_is_cut(owners: Owners) -> None:
    """No znode is above the limit, whatever the length of a definition or a statement."""
    chance = random.Random(3)
    long = chance.randbytes(2 * PIECE_BYTES).hex()
    tables = {("s", "wide"): f"CREATE TABLE t (a int) COMMENT '{long}'", ("s", "t"): TABLE}
    alter = Record(at(500), "s", f"ALTER TABLE t ADD a int /* {long} */")
    store = owners.next()
    store.add_snapshot("u", TableSnapshot(at(50), tables, frozenset()))
    store.add("u", [statement(100), alter, statement(600)])
    sizes = [len(data) for data in owners.parts()]
    assert max(sizes) <= PIECE_BYTES
    assert sum(sizes) > 4 * PIECE_BYTES
    kept = owners.next().load("u")
    assert kept.snapshots[0].tables == tables
    assert sorted(kept.records, key=lambda record: record.at.offset) == [statement(100), alter, statement(600)]
    store = owners.next()
    store.expire("u", at(600), 0)
    assert sum(len(data) for data in owners.parts()) < 1000


def test_statements_behind_long_ones_stay_cheap(owners: Owners) -> None:
    """Long statements that compress well are not compressed again for each statement behind them."""
    store = owners.next()
    for number in range(4):
        store.add("u", [Record(at(100 + number), "s", f"ALTER TABLE t ADD a int /* {'x' * 15_000_000} */")])
    began = time.process_time()
    for number in range(50):
        store.add("u", [statement(200 + number)])
    assert time.process_time() - began < 1.0  # 35 s before
    assert len(owners.next().load("u").records) == 54


def test_a_part_that_inflates_without_end_is_refused(owners: Owners, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who may write znodes cannot fill a node's memory."""
    monkeypatch.setattr(parts, "INFLATED_BYTES", 1 << 20)
    store = owners.next()
    store.add("u", [statement(100)])
    (name,) = owners.znodes.children(owners.path)
    owners.znodes.transaction([SetData(f"{owners.path}/{name}", zlib.compress(b"[" * (1 << 24)))])
    with pytest.raises(HistoryUnavailable, match="larger than"):
        owners.next().load("u")


def test_a_history_above_the_limit_is_refused(owners: Owners, monkeypatch: pytest.MonkeyPatch) -> None:
    """ZooKeeper keeps every znode in memory, so a history above the limit belongs into MySQL."""
    monkeypatch.setattr(znode_store, "MOST_BYTES", 1000)
    store = owners.next()
    with pytest.raises(HistoryUnavailable, match=r"canal\.instance\.tsdb\.url"):
        store.add("u", [statement(chance) for chance in random.Random(1).sample(range(1 << 30), 900)])


def test_an_unreadable_index_names_the_remedy(owners: Owners) -> None:
    """An operator's slip in zkCli is refused with the path and what to do."""
    owners.next().add("u", [statement(100)])
    owners.znodes.transaction([SetData(owners.path, b"{")])
    with pytest.raises(HistoryUnavailable, match=rf"{owners.path} is unreadable.*deleteall"):
        owners.next().load("u")


def claimed(owners: Owners, before: HistoryStore) -> ZnodeStore:
    """Return the store of a new owner that kept its history elsewhere before."""
    path = tree.destination(owners.name)
    (epoch,) = owners.znodes.transaction([SetData(path, b"")])
    return ZnodeStore(owners.path, Check(path, epoch), owners.znodes, before)


def test_the_history_of_an_earlier_version_moves_in(owners: Owners, tmp_path: Path) -> None:
    """A node that kept its history in a file takes it along, and the next owner finds it in ZooKeeper."""
    file = in_file("example", tmp_path)
    file.add("u", [statement(100)])
    file.add_snapshot("u", TableSnapshot(at(50), {("s", "t"): TABLE}, frozenset()))
    file.cover("u", [stretch(50, 200)], {})
    expected = content(file.load("u"))
    store = claimed(owners, file)
    assert content(store.load("u")) == expected
    store.close()
    assert content(owners.next().load("u")) == expected


def test_the_history_of_an_earlier_version_moves_in_once(owners: Owners, tmp_path: Path) -> None:
    """After the binlog is reset, or an operator deletes the history, the file is not read again."""
    file = in_file("example", tmp_path)
    file.add_snapshot("u", TableSnapshot(at(50), {("s", "t"): TABLE}, frozenset()))
    file.cover("u", [stretch(50, 200)], {})
    store = claimed(owners, file)
    assert store.load("u").ranges
    store.clear("u")
    assert content(claimed(owners, file).load("u")) == content(Kept())
    owners.wipe()
    assert content(claimed(owners, file).load("u")) == content(Kept())


def test_an_unreadable_file_of_an_earlier_version_does_not_stop_the_destination(owners: Owners, tmp_path: Path) -> None:
    """The history begins anew in ZooKeeper."""
    (tmp_path / "taken").write_text("a file where a directory should be")
    store = claimed(owners, in_file("example", tmp_path / "taken"))
    assert content(store.load("u")) == content(Kept())
    store.add("u", [statement(100)])
    assert len(owners.next().load("u").records) == 1


@pytest.mark.parametrize("data", [b"[]", b"null", b'{"sources":[]}', b'{"sources":{"u":{}}}'])
def test_a_malformed_index_names_the_remedy(owners: Owners, data: bytes) -> None:
    """JSON of another shape is refused like text that is no JSON."""
    owners.next().add("u", [statement(100)])
    owners.znodes.transaction([SetData(owners.path, data)])
    with pytest.raises(HistoryUnavailable, match=rf"{owners.path} is unreadable.*deleteall"):
        owners.next().load("u")


def test_a_group_keeps_a_history_for_each_source(znodes: BlockingZnodes) -> None:
    """The histories of a group's sources stand side by side, and one of them does not tidy up the other."""
    znodes.ensure(tree.destination("merged"))
    fence = Check(tree.destination("merged"), 0)
    stores = [ZnodeStore(tree.history(f"merged/{number}"), fence, znodes) for number in (1, 2)]
    alone = ZnodeStore(tree.history("merged"), fence, znodes)
    for number, store in enumerate((*stores, alone)):
        store.add("u", [statement(100 + number)])
    for number, name in enumerate(("merged/1", "merged/2", "merged")):
        (record,) = ZnodeStore(tree.history(name), fence, znodes).load("u").records
        assert record.at.offset == 100 + number
