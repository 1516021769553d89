"""Where a stream continues in another server's binlog: nothing is lost, in whatever order that server committed."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pytest

from canal_ha.model.segment import EntryKind, Segment
from canal_ha.source.positions.delivered import ExpectedTransactions
from canal_ha.source.positions.fingerprints import Fingerprint, Units
from canal_ha.source.positions.matching import Matching
from canal_ha.wire.proto import entry_protocol_pb2 as pb
from tests.segments import Item, segment

MASTER = 1


@dataclass(frozen=True)
class Transaction:
    """A transaction of one row. origin: the server that wrote it first."""

    name: str
    second: int = 100
    origin: int = MASTER

    def segment(self, offset: int) -> Segment:
        """Return its entries as a server writes them at this offset."""
        change = pb.RowChange(eventType=pb.INSERT)
        change.rowDatas.add().afterColumns.add(index=0, value=self.name)
        entry = pb.Entry(storeValue=change.SerializeToString()).SerializeToString()
        kinds = ((EntryKind.BEGIN, b""), (EntryKind.ROWS, entry), (EntryKind.END, self.name.encode()))
        items = [Item(offset + at, kind, body, 0, self.second * 1000) for at, (kind, body) in enumerate(kinds)]
        return segment(items, server_id=self.origin)


def named(names: str, **more: int) -> list[Transaction]:
    return [Transaction(name, **more) for name in names]


def fingerprints(transactions: Iterable[Transaction]) -> tuple[Fingerprint, ...]:
    units = Units()
    return tuple(unit.fingerprint() for each in transactions for unit in units.feed(each.segment(4)))


def again(
    delivered: Sequence[Transaction],
    there: Sequence[Transaction],
    later: Sequence[Transaction] = (),
    *,
    kept: int = 16,
    ordered: bool = True,
    seen_from: int = 0,
    last_of: Mapping[int, Fingerprint] | None = None,
) -> list[Transaction]:
    """Return what a stream gets from another server.

    delivered: what the stream got before.
    there: what the other server has when the stream looks for its place.
    later: what that server writes afterwards.
    kept: the number of transactions that the stream remembers.
    ordered: whether the other server says that it keeps the order.
    seen_from: the first transaction of the other server that the stream looks at.
    last_of: see Matching; of each origin the last delivered one if it is not given.
    """
    if last_of is None:
        last_of = {each.origin: fingerprints([each])[0] for each in delivered}
    matching = Matching(fingerprints(delivered[-kept:]), delivered[-1].origin, last_of, ordered=ordered)
    units = Units()
    binlog = [each.segment(10 * at) for at, each in enumerate((*there, *later))]
    for each in binlog[seen_from : len(there)]:
        for unit in units.feed(each):
            matching.see(unit)
    place = matching.place()
    assert place is not None
    first = seen_from if place.behind is None else place.behind.entries.offsets[0] // 10 + 1
    known = ExpectedTransactions(place.expected, place.new)
    offsets = [new.offsets[at] for each in binlog[first:] for new in known.new(each) for at in range(0, len(new), 3)]
    return [(*there, *later)[offset // 10] for offset in offsets]


def names(transactions: Iterable[Transaction]) -> str:
    return "".join(each.name for each in transactions)


def test_a_transaction_that_a_parallel_replica_committed_early_is_not_lost() -> None:
    """The replica committed D before C: reading begins at D, and C comes again because D may be an old one."""
    assert names(again(named("ABC"), named("ABDCE"))) == "DCE"


def test_a_transaction_that_is_certainly_new_brings_nothing_again() -> None:
    """D is later than everything before A can be: it is delivered alone, and the delivered C is dropped."""
    delivered = [*named("AB", second=100), *named("C", second=110)]
    there = [*named("AB", second=100), *named("D", second=110), *named("C", second=110), *named("E", second=111)]
    assert names(again(delivered, there)) == "DE"


def test_a_transaction_of_another_master_is_not_lost() -> None:
    """Masters 1 and 2 replicate from each other: what 2 wrote before it got a delivered transaction of 1 is new."""
    one, two = named("AC", origin=1), named("bd", origin=2)
    there = [two[0], two[1], one[0], one[1], *named("E")]
    assert names(again([one[0], two[0], one[1]], there)) == "dACE"
    assert names(again(one, [two[0], *one, *named("E")])) == "bACE"


def test_delivered_transactions_in_another_order_do_not_come_again() -> None:
    """If the replica has nothing else, reading continues behind all of them."""
    assert names(again(named("ABC"), named("ACB"), named("E"))) == "E"
    assert names(again(named("ABC"), named("AC"), named("BE"))) == "BE"


def test_a_transaction_that_the_replica_leaves_out_is_no_other_order() -> None:
    """A replica that filters B has A and C in the master's order: reading continues behind C."""
    assert names(again(named("ABC"), named("XAC"), named("E"))) == "E"


def test_equal_transactions_before_the_known_ones_are_no_other_order() -> None:
    """A delivered transaction that equals the oldest known one does not make the order differ."""
    assert names(again(named("AABC"), named("AABC"), named("E"), kept=3)) == "E"


def test_a_transaction_before_all_known_ones_is_not_lost_if_the_order_is_not_kept() -> None:
    """A replica that does not keep the order may have committed D or X before all that the cursor knows.

    X has the time at which its statement began, ten seconds before the others.
    """
    assert names(again(named("ABC"), named("DABC"), named("E"), ordered=False)) == "DABCE"
    old = named("X", second=90)
    assert names(again(named("ABC"), [*old, *named("ABC")], named("E"), ordered=False)) == "XABCE"


def test_a_transaction_that_the_old_server_held_back_is_not_lost() -> None:
    """The old server, a replica without an order, lacked X, but had more later transactions than are known."""
    there = [*named("AXB"), *(Transaction(f"{number}", 101 + number // 4) for number in range(20))]
    delivered = [each for each in there if each.name != "X"]
    assert again(delivered, there, named("E", second=110), ordered=False) == [*there, *named("E", second=110)]


def test_what_comes_late_is_dropped_only_while_nothing_comes_again() -> None:
    """B and C are delivered and late: an unknown transaction of their second ends the dropping, a new one does not."""
    assert names(again(named("ABC"), named("A"), named("BCE"))) == "E"
    assert names(again(named("ABC"), named("A"), named("BDCE"))) == "DCE"
    assert names(again(named("ABC"), named("A"), [*named("B"), *named("D", second=103), *named("CE")])) == "DE"
    assert names(again(named("ABC"), named("A"), [*named("D", second=200), *named("BC")])) == "DBC"


def reigns(*origins: int, each: int = 20, begun: int = 100) -> list[Transaction]:
    """Return the transactions of servers that wrote one after the other, one a second."""
    return [
        Transaction(f"{number}.{at}", begun + number * each + at, origin)
        for number, origin in enumerate(origins)
        for at in range(each)
    ]


def test_what_another_master_wrote_between_two_switches_does_not_come_again() -> None:
    """1, 2 and 1 wrote one after the other. The last 16 delivered transactions are of 1 alone."""
    delivered = reigns(1, 2, 1)
    new = named("E", second=200, origin=2)
    assert again(delivered, delivered, new) == new
    assert again([*delivered, *new], [*delivered, *new], named("F")) == named("F")
    assert again(reigns(1, 2, 1, 2), reigns(1, 2, 1, 2), new) == new
    assert again(delivered, delivered, new, ordered=False) == [*delivered, *new]


def test_of_what_a_replica_told_of_another_turn_only_its_end_comes_again() -> None:
    """1, 2 and 1 wrote one after the other, and the stream read all of it from 1: it knows a time of 2's own order."""
    delivered = reigns(1, 2, 1)
    new = named("E", second=200, origin=2)
    known = {2: Fingerprint.any_since(136)}
    assert again(delivered, delivered, new, last_of=known) == [*delivered[36:], *new]
    slow = named("S", second=121, origin=2)  # its rows are older than its commit, and it never reached the replica
    there = [*delivered[:39], *slow, *delivered[39:]]
    assert again(delivered, there, new, last_of=known) == [*there[36:], *new]
    assert again(delivered, there, new, last_of={2: Fingerprint.any_since(140)}) == [*there[20:], *new]


def test_an_undelivered_transaction_behind_the_last_one_of_its_origin_is_not_lost() -> None:
    """2 wrote X behind everything of it that was delivered: reading goes on there, wherever 1 has gone on meanwhile."""
    one, two, three = (reigns(1, 2, 1)[at : at + 20] for at in (0, 20, 40))
    missed = named("X", second=139, origin=2)
    assert again([*one, *two, *three], [*one, *two, *missed, *three]) == [*missed, *three]
    assert again([*one, *two, *three], [*one, *two, *three[:2], *missed, *three[2:]]) == [*missed, *three[2:]]


def test_a_last_transaction_that_the_server_lacks_or_that_lies_before_the_window_tells_nothing() -> None:
    """Then everything of that origin in the window may be undelivered."""
    one, two, three = (reigns(1, 2, 1)[at : at + 20] for at in (0, 20, 40))
    assert again([*one, *two, *three], [*one, *two[:-1], *three]) == [*two[:-1], *three]
    other = reigns(1, 2, 1, 2)[60:]
    assert again([*one, *two, *three], [*one, *two, *other, *three], seen_from=40) == [*other, *three]


def test_an_equal_transaction_behind_the_last_one_of_its_origin_is_not_lost() -> None:
    """The first of two equal ones counts. It does not count at the beginning of the window, which may part them."""
    one, two, three = (reigns(1, 2, 1)[at : at + 20] for at in (0, 20, 40))
    there = [*one, *two, two[-1], *three]
    assert again([*one, *two, *three], there) == [two[-1], *three]
    assert again([*one, *two, *three], there, seen_from=40) == [two[-1], *three]
    twins = [*named("Y", second=110, origin=3), replace(two[-1], origin=3)]
    assert again([*one, *two, *three], [*one, *twins, *two, *three]) == [*twins, *two, *three]


@pytest.mark.parametrize("seed", range(60))
def test_no_number_of_switches_loses_or_repeats_a_transaction(seed: int) -> None:
    """Servers write one after the other for at least 4 s each. Every server has the same order."""
    random.seed(seed)
    master: list[Transaction] = []
    for _ in range(random.randint(2, 8)):
        origin, begun = random.randint(1, 3), master[-1].second if master else 100
        lasted, rate = random.randint(4, 30), random.choice((1, 3))
        more = [Transaction(f"{len(master) + at}", begun + at // rate, origin) for at in range(lasted * rate)]
        master += more
    count = random.randint(len(master) // 2, len(master))
    seen = random.randint(count, len(master))
    assert again(master[:count], master[:seen], master[seen:]) == master[count:]


@pytest.mark.parametrize("seed", range(60))
def test_no_switch_between_two_masters_that_write_at_once_loses_a_transaction(seed: int) -> None:
    """One writes seldom, so that the last transactions are of the other. Equal ones come, and the window cuts."""
    random.seed(seed)
    writes = [
        [Transaction(f"{origin}.{at // random.choice((1, 3))}", 100 + at * 100 // count, origin) for at in range(count)]
        for origin, count in ((1, 100), (2, random.randint(1, 8)), (3, random.randint(1, 8)))
    ]

    def merged() -> list[Transaction]:
        lag = [random.uniform(0, 8) for _ in writes]
        turns = sorted((each.second + lag[at], at) for at, of_one in enumerate(writes) for each in of_one)
        sources = [iter(each) for each in writes]
        return [next(sources[at]) for _, at in turns]

    master, there = merged(), merged()
    delivered = master[: random.randint(40, 100)]
    needed = max(index for index, each in enumerate(there) if each in delivered)
    seen = random.randint(needed + 1, len(there))
    oldest = min(there.index(each) for each in delivered[-16:])
    seen_from = random.randint(0, oldest)
    if any(each not in delivered for each in there[:seen_from]):
        seen_from = 0
    got = again(delivered, there[:seen], there[seen:], seen_from=seen_from)
    for each in set(master):
        assert master.count(each) <= delivered.count(each) + got.count(each), "lost"


def checked(master: Sequence[Transaction], count: int, there: Sequence[Transaction], *, ordered: bool) -> None:
    """Assert that nothing is lost, and that whatever follows a repeated transaction is repeated too.

    master: in the order of the old server; the first `count` of them are delivered.
    there: the same in the order of the new server; only the first part of it is there when the stream looks.
    """
    delivered = master[:count]
    seen = next(at for at, each in enumerate(there) if each in delivered[-16:]) + 1
    seen = random.randint(seen, len(there))
    got = again(delivered, there[:seen], there[seen:], ordered=ordered)
    assert set(master) <= {*delivered, *got}, "lost"
    repeated = next((there.index(each) for each in got if each in delivered), len(there))
    assert set(there[repeated:]) <= set(got), "a newer one was dropped behind a repeated one"


@pytest.mark.parametrize("seed", range(40))
def test_no_order_of_a_parallel_replica_loses_a_transaction(seed: int) -> None:
    """Whatever the order of a replica that does not keep it, nothing is lost and repeats have no holes."""
    random.seed(seed)
    master = [Transaction(str(at), 100 + at // random.choice((2, 8))) for at in range(60)]
    master.sort(key=lambda each: each.second)
    reach = random.choice((1, 3, 10, 60))
    there = sorted(master, key=lambda each: master.index(each) + random.uniform(0, reach))
    checked(master, random.randint(20, 55), there, ordered=False)


@pytest.mark.parametrize("seed", range(40))
def test_no_order_of_two_masters_loses_a_transaction(seed: int) -> None:
    """However the transactions of two masters lie among each other in two binlogs, nothing is lost."""
    random.seed(seed)
    writes = [[Transaction(f"{origin}.{at}", 100 + at // 4, origin) for at in range(30)] for origin in (1, 2)]

    def merged() -> list[Transaction]:
        turns = [0] * 30 + [1] * 30
        at = random.randint(0, 30)
        turns[at : at + 30] = random.sample(turns[at : at + 30], 30)
        sources = [iter(each) for each in writes]
        return [next(sources[turn]) for turn in turns]

    checked(merged(), random.randint(5, 55), merged(), ordered=True)
