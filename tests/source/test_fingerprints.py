"""The fingerprints of a stream's transactions, which recognize the same transactions on another server."""

from __future__ import annotations

import gc
import itertools
import random
from array import array
from collections import deque
from dataclasses import dataclass, replace
from unittest.mock import ANY

import pytest

from canal_ha.config.model import InstanceConfig, SourceConfig
from canal_ha.model.buffers import Buffers
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import EntryKind, Segment, Source
from canal_ha.source.connection.flavor import Flavor
from canal_ha.source.positions import fingerprints, row_hashes
from canal_ha.source.positions.current_source import PIECES_LEAST, CurrentSource
from canal_ha.source.positions.delivered import Executed, ExpectedTransactions, both, own_gtid
from canal_ha.source.positions.fingerprints import (
    KEPT,
    NO_ORDER,
    ORIGINS,
    Fingerprint,
    Recent,
    Units,
    from_text,
    keep_small_copy,
    last_from_text,
    to_text,
)
from canal_ha.source.positions.gtids import Settled
from canal_ha.source.positions.matching import Matching
from canal_ha.source.positions.row_hashes import LARGE, rows_of
from canal_ha.source.server import switch
from canal_ha.source.server.switch import Failures, Role
from canal_ha.wire.proto import entry_protocol_pb2 as pb
from tests.segments import Item, segment

SECOND_MS = 1000


def rows_entry(values: list[str], *, table_id: int, mysql_type: str = "int") -> bytes:
    """Return the entry of a rows event with a row of one column for each value."""
    change = pb.RowChange(tableId=table_id, eventType=pb.INSERT)
    for value in values:
        change.rowDatas.add().afterColumns.add(index=0, value=value, mysqlType=mysql_type, name="id")
    header = pb.Header(schemaName="shop", tableName="t", logfileName=f"file {table_id}")
    return pb.Entry(header=header, storeValue=change.SerializeToString()).SerializeToString()


@dataclass
class Server:
    """A server that writes transactions into its own binlog."""

    table_id: int
    mysql_type: str = "int"
    offset: int = 4

    def transactions(self, *groups: list[list[str]], second: int = 100) -> Segment:
        """Return a segment: each group is a transaction, and each list in it has the rows of one event."""
        items = []
        for group in groups:
            parts = [(EntryKind.BEGIN, b"", 0)]
            parts += [
                (EntryKind.ROWS, rows_entry(values, table_id=self.table_id, mysql_type=self.mysql_type), len(values))
                for values in group
            ]
            parts += [(EntryKind.END, b"", 0)]
            for kind, body, rows in parts:
                items.append(Item(self.offset, kind, body, timestamp_ms=second * SECOND_MS, rows=rows))
                self.offset += 50 * self.table_id
        return segment(items)


def trail_of(*segments: Segment, start: str = "") -> tuple[Fingerprint, ...]:
    recent = Recent(start)
    for each in segments:
        recent.add(each)
    return recent.fingerprints()


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return the entries whose rows are hashed from now on."""
    found: list[bytes] = []

    def counted(entry: bytes) -> tuple[bytes, ...]:
        found.append(entry)
        return rows_of(entry)

    monkeypatch.setattr(fingerprints, "rows_of", counted)
    return found


ONE, TWO, THREE = [["1"]], [["2"]], [["3"]]


def test_another_server_writes_the_same_marks() -> None:
    """Fingerprints depend on rows and seconds, not on offsets, table ids, type texts and the split into events."""
    here = Server(1).transactions([["1", "2"], ["3", "4", "5", "6", "7"]], TWO)
    there = Server(7, "int(11)").transactions([["1"], ["2", "3", "4"], ["5"], ["6", "7"]], TWO)
    assert trail_of(here) == trail_of(there)
    assert trail_of(here) != trail_of(Server(7).transactions([["1", "2"], ["3", "4", "5", "6", "8"]], TWO))
    assert trail_of(here) != trail_of(Server(1).transactions([["1", "2"], ["3", "4", "5", "6", "7"]], TWO, second=101))


def test_a_transaction_that_does_not_end_hides_none_before_it() -> None:
    """The transactions before a huge one are known while it is being delivered, however much of it has come."""
    server = Server(1)
    recent = Recent()
    recent.add(server.transactions(ONE, TWO, THREE))
    wanted = trail_of(Server(1).transactions(ONE, TWO, THREE))
    huge = server.transactions([[str(number)] for number in range(10_000)])
    for first in range(0, len(huge) - 1, 500):
        recent.add(huge, first, min(first + 500, len(huge) - 1))
    assert recent.fingerprints() == wanted
    recent.add(huge, len(huge) - 1, len(huge))
    whole = Server(1).transactions(ONE, TWO, THREE, [[str(number)] for number in range(10_000)])
    assert recent.fingerprints() == (*wanted, trail_of(whole)[-1])


def test_the_time_of_the_commit_does_not_count() -> None:
    """A replica of MySQL gives the commit the time of the last rows, so a commit in the next second is the same one."""
    here = Server(1).transactions(ONE)
    there = Server(7).transactions(ONE)
    late = replace(here, timestamps=array("q", [*here.timestamps[:-1], here.timestamps[-1] + SECOND_MS]))
    assert late.timestamps[-1] != there.timestamps[-1]
    assert trail_of(late) == trail_of(there)


def test_pieces_and_restarts_do_not_show() -> None:
    """A segment cut anywhere, or a restart from the cursor's text, gives the same fingerprints as the whole."""
    whole = Server(1).transactions(ONE, [["2"], ["3"], ["4"]], THREE)
    for cut in range(len(whole) + 1):
        recent = Recent()
        recent.add(whole, 0, cut)
        recent.fingerprints()
        recent.add(whole, cut, len(whole))
        assert recent.fingerprints() == trail_of(whole)
    server = Server(1)
    first, second = server.transactions(ONE), server.transactions(TWO)
    assert trail_of(second, start=to_text(trail_of(first))) == trail_of(first, second)
    assert len(from_text(to_text(trail_of(*(server.transactions(ONE) for _ in range(50)))))) == KEPT


def test_a_statement_before_a_large_transaction_is_remembered() -> None:
    """A CREATE TABLE and a large insert in one segment give a fingerprint each."""
    rows = Server(1).transactions([["1", "2", "3", "4", "5"]])
    statement = pb.RowChange(eventType=pb.CREATE, isDdl=True, sql="CREATE TABLE t (id INT)").SerializeToString()
    items = [Item(4, EntryKind.DDL, pb.Entry(storeValue=statement).SerializeToString(), timestamp_ms=SECOND_MS, rows=0)]
    items += [
        Item(100 + rows.offsets[index], EntryKind(rows.kinds[index]), rows.entry(index), 0, 100 * SECOND_MS, count)
        for index, count in enumerate(rows.row_counts)
    ]
    assert [mark.second for mark in trail_of(segment(items))] == [1, 100]


def test_copies_outlive_the_frames() -> None:
    """Fingerprints do not change when the frames of their segment are overwritten."""
    whole = Server(1).transactions(ONE, TWO)
    wanted = trail_of(whole)
    frames = bytearray(whole.frames)
    recent = Recent()
    recent.add(replace(whole, frames=frames))
    frames[:] = b"\xff" * len(frames)
    assert recent.fingerprints() == wanted


def test_memory_of_what_is_remembered_is_free() -> None:
    """Recent keeps no reference to a segment's frames, so that their buffer can be reused."""
    buffers = Buffers()
    recent = Recent()
    frames = bytearray(Server(1).transactions(ONE).frames)
    recent.add(replace(Server(1).transactions(ONE), frames=frames))
    buffers.give(frames)
    known = id(frames)
    del frames
    assert id(buffers.take()) == known


def test_a_transaction_of_which_only_the_end_is_kept_has_its_fingerprint() -> None:
    """The first piece of a large transaction is not kept when much comes behind it, but its last rows are."""
    server = Server(1)
    large = server.transactions([[str(number)] for number in range(4080)])
    more = server.transactions(*[[[str(number)] for number in range(5)]] * (KEPT - 1))
    recent = Recent()
    recent.add(large, 0, len(large) - 2)
    recent.add(large, len(large) - 2)
    recent.add(more)
    assert recent.fingerprints() == (*trail_of(large), *trail_of(more))


def test_only_the_newest_are_looked_at() -> None:
    """The newest fingerprints are right for any number of transactions since the last look, whole or in pieces."""
    server = Server(1)
    many = [server.transactions([[str(number)], ["x"]]) for number in range(100)]
    kept = Recent(kept=1000)
    cut = Recent()
    for each in many:
        kept.add(each)
        cut.add(each, 0, 2)
        cut.add(each, 2)
    assert cut.fingerprints() == trail_of(*many) == kept.fingerprints()[-KEPT:]
    assert cut.fingerprints() == trail_of(*many)


def test_thousands_of_small_transactions_leave_few_objects() -> None:
    """Garbage collections visit every object: a feed whose fingerprints nobody asks for keeps few of them."""
    server = Server(1)
    recent = Recent(kept=1000, pieces_most=256)
    segments: deque[Segment] = deque(maxlen=KEPT)
    gc.collect()
    before = len(gc.get_objects())
    for number in range(1000):
        segments.append(server.transactions([[str(number)]]))
        recent.add(segments[-1])
    gc.collect()
    assert len(gc.get_objects()) - before < 2000
    assert recent.fingerprints()[-KEPT:] == trail_of(*segments)


@pytest.mark.parametrize("begins", [True, False])
def test_any_pieces_of_any_origins_give_the_same_fingerprints(begins: bool) -> None:
    """However the entries are cut, and with or without entries of BEGIN, which not every server writes."""
    for seed in range(40):
        chosen = random.Random(seed)
        server = Server(1)
        parts = []
        for number in range(chosen.randrange(100, 400)):
            rows = [[f"{number}.{event}"] for event in range(chosen.choice((1, 1, 2, 6)))]
            whole = server.transactions(rows, second=number)
            parts.append((chosen.choice((1, 1, 1, 1, 2)), whole if begins else without_begins(whole)))
        wanted = tuple(trail_of(part)[-1] for _, part in parts)
        last = {origin: trail_of(part)[-1] for origin, part in parts}
        streams = [(Recent(), KEPT), (Recent(kept=300), 300)]
        each = chosen.choice((1, 5, 40))
        for first in range(0, len(parts), each):
            joined = of_origins(*parts[first : first + each])
            cuts = sorted({0, len(joined), *(chosen.randrange(len(joined)) for _ in range(chosen.randrange(3)))})
            for start, stop in itertools.pairwise(cuts):
                for recent, _ in streams:
                    recent.add(joined, start, stop)
        for recent, kept in streams:
            assert recent.fingerprints() == wanted[-kept:]
            assert recent.last_of_origins() == last


def without_begins(whole: Segment) -> Segment:
    """Return a transaction as MariaDB's binlog gives it."""
    return segment([item for item in items_of(whole) if item.kind != EntryKind.BEGIN])


@pytest.mark.parametrize("begins", [True, False])
def test_a_fast_stream_hashes_only_the_last_transactions(begins: bool, hashed: list[bytes]) -> None:
    """Pieces before those that are kept are dropped, and not hashed first."""
    server, recent = Server(1), Recent()
    for number in range(1000):
        whole = server.transactions([[str(number)]])
        recent.add(whole if begins else without_begins(whole))
    assert not hashed
    assert len(recent.fingerprints()) == len(hashed) == KEPT


@pytest.mark.parametrize(("kept", "pieces_most"), [(KEPT, 64), (1024, 256), (1024, 2048)])
def test_no_transaction_waits_while_many_earlier_ones_are_hashed_or_dropped(
    kept: int, pieces_most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a thousand transactions a second, one in sixteen was late, because sixteen were hashed at once."""
    server, recent = Server(1), Recent(kept=kept, pieces_most=pieces_most)
    steps: list[str] = []

    def counted(name: str) -> None:
        plain = getattr(Recent, name)

        def count(*of: object) -> object:
            steps.append(name)
            return plain(*of)

        monkeypatch.setattr(Recent, name, count)

    counted("_pop")
    counted("_remember")
    most = 0
    for number in range(3000):
        recent.add(server.transactions([[str(number)]]))
        most = max(most, steps.count("_pop"))
        assert steps.count("_remember") <= 1
        steps.clear()
    assert most == (1 if pieces_most == 256 else 0)  # a stream that hashes none drops many in one step
    assert len(recent.fingerprints()) == kept


@pytest.mark.parametrize("row", [["1"], ["x" * 2000]])
@pytest.mark.parametrize("events", [1, 8])
@pytest.mark.parametrize("pieces_most", [64, 256, 2048])
def test_a_stream_finds_its_place_by_as_many_transactions_however_large_they_are(
    row: list[str], events: int, pieces_most: int
) -> None:
    """A stream that may keep more copies dropped the oldest ones when they became too large, and lost their hashes."""
    server, recent = Server(1), Recent(kept=1024, pieces_most=pieces_most)
    for number in range(3000):
        recent.add(server.transactions([[f"{number}{row[0]}"]] * events))
    assert len(recent.fingerprints()) == 1024


@pytest.mark.parametrize("begins", [True, False])
def test_the_first_streams_of_a_process_hash_nothing(begins: bool, hashed: list[bytes]) -> None:
    """A hash delays the thread that serves the row. Hundreds of streams would need too much memory without."""
    server, many = Server(1), 4000
    transactions = [server.transactions([[str(number)]]) for number in range(many)]
    transactions = transactions if begins else list(map(without_begins, transactions))
    first, *others = (CurrentSource(LogPosition("b.1", 4)) for _ in range(200))
    for each in transactions:
        first.delivered(each)
    assert not hashed
    for each in transactions:
        others[-1].delivered(each)
    assert many - PIECES_LEAST <= len(hashed) <= many


def test_a_segment_that_is_made_of_another_one_has_no_copy_of_it() -> None:
    """The copy tells from which server the rows came, and whether it keeps the order of its source."""
    first = Server(1).transactions(ONE, TWO)
    keep_small_copy(first)
    kept = first.copied
    keep_small_copy(first)
    assert Recent.copy(first, 0, len(first)) is kept is first.copied
    other = replace(first, source=Source("replica", 3306, "", 78, keeps_order=False))
    assert Recent.copy(other, 0, len(other)).source == other.source
    assert first.slice(1, len(first)).copied is first.select(range(len(first))).copied is None


def test_much_is_forgotten_and_nothing_mistaken() -> None:
    """A large transaction in many pieces keeps its fingerprint; a malformed text gives no fingerprints."""
    server = Server(1)
    large = server.transactions([[str(number)] for number in range(10_000)])
    recent = Recent()
    for first in range(0, len(large), 100):
        recent.add(large, first, min(first + 100, len(large)))
    assert recent.fingerprints() == trail_of(large)
    assert from_text("no trail!") == from_text("abc") == ()


def items_of(whole: Segment) -> list[Item]:
    """Return the entries of a segment, to build another one with them."""
    return [
        Item(whole.offsets[at], EntryKind(whole.kinds[at]), whole.entry(at), 0, whole.timestamps[at], rows)
        for at, rows in enumerate(whole.row_counts)
    ]


def of_origins(*parts: tuple[int, Segment]) -> Segment:
    """Return one segment of these, each with the server id of its origin, as if read from that server itself."""
    items: list[Item] = []
    starts = array("q")
    for _, each in parts:
        starts.append(len(items))
        items += items_of(each)
    ids = array("q", [origin for origin, _ in parts])
    own = Source("here", 3306, "", ANY)
    return replace(segment(items), source=own, run_starts=starts, run_server_ids=ids, run_gtids=("",) * len(parts))


def test_the_last_transaction_of_each_origin_is_known_however_long_ago_it_was() -> None:
    """Also if it lies deep in a segment, or among pieces that are not kept, and after a restart."""
    server = Server(1)
    two = server.transactions(THREE, TWO)
    many = of_origins((1, server.transactions(*([[str(number)], ["x"]] for number in range(2000)))))
    wanted = {2: trail_of(two)[-1], 1: trail_of(many)[-1]}
    recent = Recent()
    recent.add(of_origins((1, server.transactions(ONE)), (2, two), (1, many)))
    assert recent.trail()
    assert recent.last_of_origins() == wanted
    assert recent.fingerprints() == trail_of(many)

    cut = of_origins((2, server.transactions([["1"], ["2"]])))
    for last in (400, len(many)):
        recent = Recent()
        recent.add(cut, 0, 2)
        recent.add(cut, 2)
        recent.add(many, 0, last)
        assert recent.trail()
        assert recent.last_of_origins()[2] == trail_of(cut)[0]

    recent = Recent()
    recent.add(of_origins((2, two)))
    for first in range(0, len(many), 100):
        recent.add(many, first, first + 100)
    recent = Recent(recent.trail(), recent.origins())
    assert recent.last_of_origins() == wanted
    recent.add(of_origins((1, server.transactions(TWO))))
    assert recent.trail()
    assert recent.last_of_origins() == {**wanted, 1: trail_of(server.transactions(TWO))[0]}


@pytest.mark.parametrize("seed", range(30))
def test_the_last_transactions_of_all_origins_are_those_of_a_list(seed: int) -> None:
    """Pieces, looks and restarts at any place do not show."""
    chance = random.Random(seed)
    server = Server(1)
    recent = Recent()
    wanted: dict[int, Fingerprint] = {}
    origin = 1
    for number in range(200):
        if chance.random() < chance.choice((0.01, 0.5)):
            origin = chance.randint(1, 3)
        parts = []
        for at in range(chance.randint(1, 3)):
            one = server.transactions([[f"{number}.{at}"], ["x"]][: chance.randint(1, 2)], second=100 + number)
            parts.append((origin, one))
            wanted[origin] = trail_of(one)[-1]
            origin = chance.randint(1, 3) if chance.random() < 0.1 else origin
        whole = of_origins(*parts)
        cut = chance.randint(0, len(whole))
        recent.add(whole, 0, cut)
        if chance.random() < 0.05:
            recent.trail()
        recent.add(whole, cut)
        if chance.random() < 0.05:
            recent = Recent(recent.trail(), recent.origins(), chance.choice((KEPT, 1000)))
    assert recent.trail()
    assert recent.last_of_origins() == wanted


def test_the_origins_that_are_kept_have_a_bound() -> None:
    """The one that wrote longest ago is forgotten; a text that is not one gives none."""
    server = Server(1)
    recent = Recent()
    for origin in (*range(1, ORIGINS + 1), 1, 4_294_967_295):
        recent.add(of_origins((origin, server.transactions(ONE))))
        recent.trail()
    assert list(recent.last_of_origins()) == [*range(3, ORIGINS + 1), 1, 4_294_967_295]
    assert last_from_text(recent.origins()) == recent.last_of_origins()
    assert len(recent.origins()) == 150
    assert last_from_text("no text!") == last_from_text("abc") == last_from_text("") == {}


@pytest.mark.parametrize("ordered", [True, False])
def test_a_replica_tells_only_a_time_of_another_server_s_transactions(ordered: bool) -> None:
    """A replica may have another order, so one before the last may still come. Of its own the last one is known."""
    server = Server(1)
    first, second, own = (
        server.transactions(each, second=at) for each, at in ((ONE, 1000), (TWO, 1060), (THREE, 1061))
    )
    late, back = server.transactions(ONE, second=1061), server.transactions(TWO, second=1100)
    there = Source("there", 3306, "", 2, ordered)
    recent = Recent()
    recent.add(of_origins((1, first)))
    recent.add(replace(of_origins((1, second), (2, own)), source=there))
    assert recent.fingerprints() == trail_of(first, second, own)
    no_order = {} if ordered else {NO_ORDER: Fingerprint.any_since(1060)}
    assert recent.last_of_origins() == {1: trail_of(first)[0], 2: trail_of(own)[0], **no_order}
    recent.add(replace(of_origins((1, late), (3, late), (1, first)), source=there))
    recent = Recent(recent.trail(), recent.origins())
    since = Fingerprint.any_since(1001)
    told = {3: since, 1: since} if ordered else {1: trail_of(first)[0], NO_ORDER: Fingerprint.any_since(1000)}
    assert recent.last_of_origins() == {2: trail_of(own)[0], **told}
    assert since.is_any
    recent.add(of_origins((1, back)))
    assert recent.trail()
    assert recent.last_of_origins()[1] == trail_of(back)[0]
    assert NO_ORDER not in recent.last_of_origins()


def test_a_replica_without_an_order_is_remembered_until_another_server_is_read() -> None:
    """Also through restarts, its own transactions, and pieces of a transaction of the next server."""
    server = Server(1)
    one = server.transactions(ONE)
    large = server.transactions([["1"], ["2"]])
    there = Source("there", 3306, "", 2, keeps_order=False)
    recent = Recent()
    recent.add(replace(of_origins((2, one)), source=there))
    assert recent.trail()
    assert NO_ORDER not in recent.last_of_origins(), "what a server wrote itself is in order"
    recent.add(replace(of_origins((1, one)), source=there))
    for _ in range(ORIGINS):
        recent.add(replace(of_origins((2, one)), source=there))
        assert recent.trail()
        recent = Recent(recent.trail(), recent.origins())
        assert NO_ORDER in recent.last_of_origins()
    recent.add(large, 0, 2)
    assert recent.trail()
    assert NO_ORDER in recent.last_of_origins(), "no transaction of another server has ended"
    recent.add(large, 2)
    assert recent.trail()
    assert NO_ORDER not in recent.last_of_origins()


def found(trail: tuple[Fingerprint, ...], *there: Segment) -> tuple[int, int] | None:
    """Return the offset of the entry after which to go on, and the number of missing transactions."""
    matching = Matching(trail)
    units = Units()
    for each in there:
        for unit in units.feed(each):
            matching.see(unit)
    place = matching.place()
    if place is None:
        return None
    assert place.behind is not None
    return place.behind.entries.offsets[place.behind.index], place.missing


def test_the_newest_that_is_there_counts() -> None:
    """The newest transaction that the other server has is found, even if later ones were never replicated."""
    trail = trail_of(Server(1).transactions(ONE, TWO, THREE))
    other = Server(2)
    there = other.transactions(ONE, TWO)
    assert found(trail, there, other.transactions([["9"]], second=10)) == (there.offsets[-1], 1)
    assert found(trail, Server(2).transactions([["9"]])) is None
    assert found((), there) is None


def test_of_equal_ones_the_longest_run_then_the_first() -> None:
    """Of equal transactions, the longest run and then the first one is found, so that none is skipped."""
    trail = trail_of(Server(1).transactions(ONE, TWO, ONE, TWO, ONE, TWO))
    there = Server(2).transactions(ONE, TWO, ONE, TWO)
    assert found(trail, there) == (there.offsets[-1], 0)
    longer = Server(2).transactions(*(ONE, TWO) * 4)
    assert found(trail, longer) == (longer.offsets[6 * 3 - 1], 0)


def kept(known: Executed | ExpectedTransactions, *segments: Segment) -> list[int]:
    return [offset for each in segments for new in known.new(each) for offset in new.offsets]


def test_a_standby_that_lags_is_not_delivered_twice() -> None:
    """Delivered transactions that come later on a standby are dropped, up to the first new transaction."""
    trail = trail_of(Server(1).transactions(ONE, TWO))
    other = Server(2)
    late, new = other.transactions(ONE, TWO), other.transactions(THREE, ONE)
    assert kept(ExpectedTransactions(trail), late, new) == list(new.offsets)
    together = Server(2).transactions(ONE, TWO, THREE)
    assert kept(ExpectedTransactions(trail), together) == list(together.offsets[6:])
    assert kept(ExpectedTransactions(trail), new, late) == [*new.offsets, *late.offsets]
    large = Server(2).transactions([["1"], ["2"]])
    pieces = [Item(large.offsets[index], EntryKind(large.kinds[index]), large.entry(index)) for index in range(4)]
    cut = [segment(pieces[:2]), segment(pieces[2:])]
    assert kept(ExpectedTransactions(trail), *cut) == list(large.offsets)


@pytest.mark.parametrize(
    ("start", "gtids", "new"),
    [
        ("0-1-5", ["0-1-4", "0-1-5", "0-1-6"], [2]),
        ("0-1-5", ["0-1-4", "0-2-5", "0-2-6", "0-2-6"], [2, 3]),
        ("0-1-5", ["0-1-6", "0-2-6", "0-1-5"], [0, 1]),
    ],
)
def test_what_a_gtid_set_has_is_dropped_wherever_it_comes(start: str, gtids: list[str], new: list[int]) -> None:
    """A transaction whose GTID set adds nothing to the executed set is dropped, wherever it comes."""
    server = Server(1)
    each = [server.transactions(ONE) for _ in gtids]
    known = Executed(start)
    seen = []
    for number, (one, gtid) in enumerate(zip(each, gtids, strict=True)):
        if known.new(replace(one, run_gtids=(gtid,))):
            seen.append(number)
    assert seen == new


def with_own_gtid(gtid: str, kind: EntryKind = EntryKind.BEGIN, size: int = 0) -> Item:
    """Return an entry that carries its transaction's GTID, as the decoder writes it. size: of its body."""
    header = pb.Header(
        schemaName="shop", props=[pb.Pair(key="rowsCount", value="1"), pb.Pair(key="curtGtid", value=gtid)]
    )
    entry = pb.Entry(header=header, storeValue=b"\x0a\x08curtGtid\x12\x03a:1" + bytes(size))
    return Item(4, kind, entry.SerializeToString())


@pytest.mark.parametrize("size", [0, 100_000])
def test_a_gtid_is_read_from_the_header_alone(size: int) -> None:
    """The text of a statement may look like the GTID of an entry."""
    assert own_gtid(with_own_gtid("u:blue:17", size=size).body) == "u:blue:17"
    without = pb.Entry(header=pb.Header(schemaName="s" * 200), storeValue=b"\x0a\x08curtGtid\x12\x03a:1")
    assert own_gtid(without.SerializeToString()) == ""
    assert own_gtid(b"") == ""
    named = pb.Header(
        schemaName="s", tableName="\n\x08curtGtid\x12\x03abc", props=[pb.Pair(key="curtGtid", value="u:9")]
    )
    assert own_gtid(pb.Entry(header=named).SerializeToString()) == "u:9"
    del named.props[:]
    assert own_gtid(pb.Entry(header=named).SerializeToString()) == ""


def test_a_transaction_without_entries_brings_no_old_one_again() -> None:
    """The standby ran FLUSH TABLES between transactions that it replicated. The set of the next one has its GTID."""
    known = Executed("u:1-7")
    sets = ["u:1-7,s:1", "u:1-7,s:1", "u:1-8,s:1", "u:1-8,s:1"]
    own = ["u:6", "u:7", "u:8", "u:5"]
    each = [segment([with_own_gtid(gtid)], gtid=text) for gtid, text in zip(own, sets, strict=True)]
    assert [bool(known.new(one)) for one in each] == [False, False, True, False]


@pytest.mark.parametrize("seed", range(200))
def test_segments_without_old_transactions_are_passed_on_whole(seed: int) -> None:
    """A look at the least and the greatest number of each source never passes an old transaction on."""
    chance = random.Random(seed)
    known = Executed("t:blue:4-6,u:1-3:7-9")
    old = {f"u:{number}" for number in (1, 2, 3, 7, 8, 9)} | {f"t:blue:{number}" for number in (4, 5, 6)}
    offset, items, wanted = 4, list[Item](), list[int]()
    for _ in range(chance.randrange(1, 12)):
        gtid = chance.choice(["", *(f"{source}:{chance.randrange(1, 12)}" for source in ("u", "t:blue", "v"))])
        kinds = chance.choice([[EntryKind.BEGIN, EntryKind.ROWS, EntryKind.END], [EntryKind.DDL], [EntryKind.ROWS]])
        for kind in kinds:
            made = with_own_gtid(gtid, kind) if gtid and kind is kinds[0] else Item(offset, kind, b"")
            items.append(replace(made, offset=offset))
            if gtid not in old:
                wanted.append(offset)
            offset += 1
    cuts = sorted(chance.randrange(len(items) + 1) for _ in range(2))
    parts = [items[first:last] for first, last in itertools.pairwise([0, *cuts, len(items)]) if first < last]
    passed = [new for part in parts for new in known.new(segment(part, gtid="u:1-9"))]
    assert [at for each in passed for at in each.offsets] == wanted


def test_an_anonymous_transaction_is_not_dropped() -> None:
    """GTIDs are turned off behind the switch. An anonymous transaction leaves the set as it is, and is new."""
    known = Executed("u:1-7")
    begin, row, end = (Item(4, kind, b"") for kind in (EntryKind.BEGIN, EntryKind.ROWS, EntryKind.END))
    old = with_own_gtid("u:7", EntryKind.DDL)
    (kept_part,) = known.new(segment([old, Item(4, EntryKind.DDL, b""), begin, row, end], gtid="u:1-7"))
    assert bytes(kept_part.kinds) == bytes([EntryKind.DDL, EntryKind.BEGIN, EntryKind.ROWS, EntryKind.END])


def test_an_old_statement_behind_a_new_one_is_dropped() -> None:
    """Statements that are transactions of their own have no begin, and an old one adds nothing to the set."""
    known = Executed("u:1-7")
    new, old, again = (with_own_gtid(gtid, EntryKind.DDL) for gtid in ("s:1", "u:6", "s:1"))
    (kept_part,) = known.new(segment([new, old, again], gtid="u:1-7,s:1"))
    assert [own_gtid(entry) for entry in kept_part.entries()] == ["s:1", "s:1"]


def test_nothing_is_dropped_behind_the_place_up_to_which_a_server_has_written_the_set() -> None:
    """A stream that does not lag looks at no entry there."""
    known = Executed("u:1-7", until=("mysql-bin.000001", 100))
    old, again = (replace(with_own_gtid("u:7"), offset=offset) for offset in (50, 150))
    new = replace(with_own_gtid("u:8"), offset=100)
    assert [bool(known.new(segment([item], gtid="u:1-8"))) for item in (old, new, again)] == [False, True, True]


def test_the_transaction_of_a_cursor_that_is_not_consumed_comes() -> None:
    """Its set includes that transaction, of which the client has only a part."""
    known = Executed("u:1-7", LogPosition("mysql-bin.000001", 4))
    later = replace(with_own_gtid("u:6"), offset=104)
    assert [bool(known.new(segment([item], gtid="u:1-7"))) for item in (with_own_gtid("u:7"), later)] == [True, False]


@pytest.mark.parametrize(("server", "comes"), [("s-2", False), ("", True)])
def test_the_set_of_a_cursor_counts_unless_somebody_has_edited_the_cursor(server: str, comes: bool) -> None:
    """An edit of the place leaves the old set, and takes the name of the server away."""
    current = CurrentSource(LogPosition("mysql-bin.000001", 4, gtid="u:1-7", consumed=True, server=server))
    lagging = Flavor("8.4.0", False, (8, 4, 0), 2, uuid="s-2")
    current.begins(lagging, Settled(LogPosition("mysql-bin.000001", 4), True, ("mysql-bin.000001", 100)))
    late = segment([replace(with_own_gtid("u:7"), offset=200)], gtid="u:1-7")
    assert bool(current.new(late)) is comes


def test_a_transaction_counts_as_delivered_only_at_its_end() -> None:
    """The DDL of a CREATE TABLE ... SELECT has the GTID of its rows. Another server would not send them again."""
    current = CurrentSource(LogPosition("mysql-bin.000001", 4, gtid="u:1-7"))
    at = LogPosition("mysql-bin.000001", 50, gtid="u:1-7")
    begun = segment([Item(100, EntryKind.BEGIN, rows=0), Item(110, EntryKind.DDL, rows=0)], gtid="u:1-8")
    current.delivered(replace(begun, cut=True))
    assert current._executed(at) == "u:1-7"
    current.delivered(segment([Item(120), Item(130, EntryKind.END, rows=0)], gtid="u:1-8"))
    assert current._executed(at) == "u:1-8"


def test_a_new_transaction_that_comes_again_is_not_dropped() -> None:
    """The connection breaks after its first entry. Its GTID was counted then, but the entry is not in the known set."""
    known = Executed("u:1-7")
    begun = segment([with_own_gtid("u:8")], gtid="u:1-8")
    assert known.new(begun)
    assert known.new(begun)


def test_a_transaction_without_entries_in_another_domain_brings_no_old_one_again() -> None:
    """MariaDB's entries do not carry their own GTID. The server id tells which domain theirs is."""
    known = Executed("0-1-7")
    each = [
        segment([Item(4, EntryKind.BEGIN)], gtid="1-2-1,0-1-6", server_id=1),
        segment([Item(4, EntryKind.BEGIN)], gtid="1-2-1,0-1-7", server_id=1),
        segment([Item(4, EntryKind.BEGIN)], gtid="1-2-2,0-1-7", server_id=2),
        segment([Item(4, EntryKind.BEGIN)], gtid="1-2-2,0-1-8", server_id=1),
    ]
    assert [bool(known.new(one)) for one in each] == [False, False, True, True]


def test_sets_of_mariadb_are_joined_by_domain() -> None:
    """both() joins sets of MariaDB by domain, with the greater number of each; a set of MySQL contains the other."""
    assert both("0-1-4,1-1-9", "0-1-7,2-5-1") == "0-1-7,1-1-9,2-5-1"
    assert both("0-2-8", "0-1-7") == "0-2-8"
    assert both("u:1-5", "u:1-4") == "u:1-5"


def test_failures_are_counted_strictly() -> None:
    """As in canal, a switch needs more failures in a row than the threshold (docs/protocol.md#source-switch)."""
    failures = Failures(3)
    assert [failures.failed() for _ in range(5)] == [False, False, False, True, False]
    assert failures.succeeded()
    assert not failures.succeeded()
    assert [failures.failed() for _ in range(4)] == [False, False, False, True]


def test_a_destination_begins_where_its_newest_cursor_is() -> None:
    """A destination begins at the standby if its newest cursor is there, and otherwise at the master."""
    alone = InstanceConfig("example", SourceConfig("master", 3306))
    config = replace(alone, standby=SourceConfig("standby", 3307))
    old = LogPosition("b.1", 4, timestamp_ms=1, address="master", port=3306)
    new = LogPosition("b.1", 4, timestamp_ms=2, address="standby", port=3307)
    assert switch.first(config, [old, new]) is Role.STANDBY
    assert switch.first(config, [old]) is Role.MASTER
    assert switch.first(config, []) is Role.MASTER
    assert switch.first(alone, [new]) is Role.MASTER


def test_a_destination_begins_where_it_was_switched_to_last() -> None:
    """The choice counts more than the cursors, unless the configuration does not name that server any more."""
    alone = InstanceConfig("example", SourceConfig("master", 3306))
    config = replace(alone, standby=SourceConfig("standby", 3307))
    at_master = LogPosition("b.1", 4, timestamp_ms=1, address="master", port=3306)
    at_standby = replace(at_master, address="standby", port=3307)
    assert switch.first(config, [at_master], "standby:3307") is Role.STANDBY
    assert switch.first(config, [at_standby], "master:3306") is Role.MASTER
    assert switch.first(config, [at_standby], "gone:3306") is Role.STANDBY
    assert switch.first(config, [at_master], "gone:3306") is Role.MASTER
    assert switch.first(alone, [at_master], "standby:3307") is Role.MASTER


LONG = "é" * LARGE


def test_a_large_row_has_one_fingerprint_however_it_is_read() -> None:
    """A large entry read in place gives what parsing it gives, and every character of its value counts."""
    columns = [pb.Column(index=0, value="7"), pb.Column(index=1, isNull=True), pb.Column(index=3, value=LONG)]
    change = pb.RowChange(eventType=pb.DELETE)
    for after in (columns[:1], columns, columns[:2], columns, columns[1:]):
        change.rowDatas.add(beforeColumns=columns[:2], afterColumns=after)
    header = pb.Header(schemaName="läden", tableName="t", props=[pb.Pair(key="rowsCount", value="5")])
    entry = pb.Entry(header=header, storeValue=change.SerializeToString()).SerializeToString()
    parts = row_hashes.rows_of(entry)
    assert len(parts) == row_hashes.ROWS
    assert sum(map(len, parts)) < 1000
    for at, row in enumerate(reversed(change.rowDatas)):
        if at < row_hashes.ROWS:
            images = [
                [row_hashes._Value(each.index, each.isNull, each.value.encode()) for each in side]
                for side in (row.beforeColumns, row.afterColumns)
            ]
            assert parts[at] == row_hashes._row("\0läden.t\0003".encode(), *images)
    for row in change.rowDatas:
        for column in (*row.beforeColumns, *row.afterColumns):
            column.value = column.value[:1000]
    small = pb.Entry(header=header, storeValue=change.SerializeToString()).SerializeToString()
    assert len(small) < LARGE
    assert row_hashes.rows_of(small) == row_hashes._rows_in_place(memoryview(small))
    half = len(LONG) // 2
    other = LONG[:half] + "à" + LONG[half + 1 :]
    assert trail_of(Server(1).transactions([[LONG]])) == trail_of(Server(7).transactions([[LONG]]))
    assert trail_of(Server(1).transactions([[LONG]])) != trail_of(Server(1).transactions([[other]]))


def test_no_copy_of_a_large_row_is_kept() -> None:
    """Between a GET and the next switch a stream keeps some bytes of each large row, wherever a batch is cut."""
    server = Server(1)
    whole = server.transactions([["1"], [LONG], ["2", LONG, "3"], ["4"]], ONE, [[LONG]], TWO)
    spans = ((0, 6), (6, 9), (9, 12), (12, 15))
    plain = tuple(mark for first, last in spans for mark in trail_of(whole.slice(first, last)))
    hashed = row_hashes.with_hashed_rows(whole)
    assert sorted(hashed.hashed_rows) == [2, 3, 10]
    assert trail_of(hashed) == plain
    for cut in range(1, len(hashed)):
        pieces = [Recent.copy(hashed, 0, cut), Recent.copy(hashed, cut, len(hashed))]
        assert sum(len(piece.frames) for piece in pieces) < 2000
        recent = Recent()
        for piece in pieces:
            recent.add_copy(piece)
        assert recent.fingerprints() == plain
        assert trail_of(hashed.slice(0, cut), hashed.slice(cut, len(hashed))) == plain
    chosen = [index for index in range(len(hashed)) if hashed.kinds[index] == EntryKind.ROWS]
    assert sorted(hashed.select(chosen).hashed_rows) == [1, 2, 5]
