"""The ring compared with a plain list that works entry by entry, like canal's MemoryEventStoreWithBuffer."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from canal_ha.config.model import BatchMode
from canal_ha.errors import AckUnmatched, StoreFull
from canal_ha.model.batch import Batch
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import EntryKind, Segment
from canal_ha.store.ring import Ring
from tests.sampling import examples
from tests.segments import Item, segment

SIZES = st.one_of(st.integers(0, 300), st.sampled_from([127, 128, 129, 16383, 16384]))
KINDS = st.sampled_from(
    [EntryKind.BEGIN, EntryKind.ROWS, EntryKind.ROWS, EntryKind.END, EntryKind.DDL, EntryKind.QUERY]
)
GTIDS = st.sampled_from(["", "", "0-1-7"])


@dataclass(frozen=True)
class Stored:
    """One entry as the model keeps it.

    whole: no entry of the same event follows it; closes: it ends a transaction; goes_on: entries of its set follow it.
    """

    position: LogPosition
    kind: EntryKind
    body: bytes
    frame: bytes
    rows: int
    whole: bool
    closes: bool
    goes_on: bool


class RingMachine(RuleBasedStateMachine):
    """A ring and a list that must agree after any sequence of calls."""

    @initialize(mode=st.sampled_from(BatchMode), isolation=st.booleans(), size=st.integers(1, 40))
    def start(self, mode: BatchMode, isolation: bool, size: int) -> None:
        self.ended = self.let_go = 0
        self.mode, self.isolation, self.size, self.unit = mode, isolation, size, 64
        self.told = 0
        self.ring = Ring(
            buffer_size=size, mem_unit=self.unit, batch_mode=mode, ddl_isolation=isolation, on_data=self.tell
        )
        self.journal, self.offset = 1, 4
        self.stored: list[Stored] = []
        self.get_next = self.ack_next = 0
        self.got_rows = 0
        self.open: list[Batch] = []

    def tell(self, full: bool) -> None:
        self.told += 1

    # ---- the model

    def full(self) -> bool:
        held = self.stored[self.ack_next :]
        return len(held) >= self.size or sum(len(entry.frame) for entry in held) >= self.size * self.unit

    def admits(self) -> bool:
        """Return whether there is room, or every entry is in flight and no batch in flight ends a transaction."""
        drained = self.get_next == len(self.stored)
        return not self.full() or (drained and not any(self.stored[each.range.end_seq].closes for each in self.open))

    def expected(self, size: int) -> list[Stored]:
        """Return the entries of canal's doGet, without an open transaction at the end if it takes everything."""
        taken = self.asked(size)
        ended = self.ended - self.get_next
        whole = taken[:ended] if ended > 0 and len(taken) == len(self.stored) - self.get_next else taken
        return self.isolated(whole)

    def isolated(self, taken: list[Stored]) -> list[Stored]:
        """Return the entries before the first DDL, or that DDL alone."""
        first = next(
            (at for at, entry in enumerate(taken) if self.isolation and entry.kind is EntryKind.DDL), len(taken)
        )
        return taken[: max(first, 1)]

    def asked(self, size: int) -> list[Stored]:
        """Return as many entries as `size` asks for."""
        taken: list[Stored] = []
        used = 0
        for entry in self.stored[self.get_next :]:
            if self.mode is BatchMode.ITEMSIZE and len(taken) >= max(size, 1):
                break
            if self.mode is BatchMode.MEMSIZE and used > max(size, 0) * self.unit:
                break
            taken.append(entry)
            used += len(entry.body)
        return taken

    # ---- calls

    @rule(
        data=st.data(),
        kinds=st.lists(st.tuples(KINDS, SIZES, st.booleans()), min_size=1, max_size=12),
        gtid=GTIDS,
        cut=st.booleans(),
    )
    def put(self, data: st.DataObject, kinds: list[tuple[EntryKind, int, bool]], gtid: str, cut: bool) -> None:
        if data.draw(st.integers(0, 9)) == 0:
            self.journal, self.offset = self.journal + 1, 4
        items: list[Item] = []
        for kind, size, shares in kinds:
            before = items[-1] if items else None
            joins = shares and before is not None
            self.offset += 0 if joins else 50
            items.append(
                Item(
                    offset=self.offset,
                    kind=kind,
                    body=bytes([len(items)]) * size,
                    sub=before.sub + 1 if joins and before else 0,
                    timestamp_ms=1000 + self.offset,
                    rows=size % 7,
                )
            )
        piece = replace(two_runs(segment(items, journal=f"mysql-bin.{self.journal:06}"), gtid), cut=cut)
        told = self.told
        if not self.admits():
            with pytest.raises(StoreFull):
                self.ring.put(piece, timeout_s=0.0)
            assert self.told == told
            return
        if self.full():
            self.let_go = self.get_next
        assert self.ring.put(piece) == len(self.stored) + len(items) - 1
        closing = [at for at, (kind, _, _) in enumerate(kinds) if kind is EntryKind.END] if cut else [len(kinds) - 1]
        if closing:
            self.ended = len(self.stored) + closing[-1] + 1
        assert self.told == told + self.ring.armed
        for index, item in enumerate(items):
            last = index + 1 == len(items)
            self.stored.append(
                Stored(
                    position=piece.position(index),
                    kind=item.kind,
                    body=item.body,
                    frame=bytes(piece.frames_view(index, index + 1)),
                    rows=piece.row_counts[index],
                    whole=last or items[index + 1].offset != item.offset,
                    closes=item.kind is EntryKind.END or (last and not cut),
                    goes_on=cut if last else piece.position(index + 1).gtid == piece.position(index).gtid,
                )
            )

    @rule(size=st.integers(-1, 30))
    def get(self, size: int) -> None:
        taken = self.expected(size)
        batch = self.ring.get(size)
        if not taken:
            assert batch is None
            return
        assert batch is not None
        self.get_next += len(taken)
        assert (batch.entries, batch.rows) == (len(taken), sum(entry.rows for entry in taken))
        frames = b"".join(batch.views)
        assert frames == b"".join(entry.frame for entry in taken)
        assert batch.size_bytes == len(frames)
        self.got_rows += batch.rows
        begin, first, _ = batch.pieces[0]
        assert (begin.position(first), batch.range.end) == (taken[0].position, taken[-1].position)
        assert batch.range.end_seq == self.get_next - 1
        assert batch.range.ack == ack_of(taken)
        self.open.append(batch)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        for _ in range(data.draw(st.integers(1, len(self.open)), label="batches")):  # an ACK covers earlier batches
            batch = self.open.pop(0)
        if data.draw(st.booleans(), label="as a batch"):
            self.ring.ack_batch(batch.range)
        else:
            self.ring.ack(batch.range.end, batch.range.end_seq)
        self.ack_next = batch.range.end_seq + 1

    @precondition(lambda self: self.open)
    @rule(wrong=st.sampled_from(["offset", "time", "journal", "sequence"]))
    def ack_of_something_else(self, wrong: str) -> None:
        end, end_seq = self.open[0].range.end, self.open[0].range.end_seq
        position = {
            "offset": replace(end, offset=end.offset + 1),
            "time": replace(end, timestamp_ms=7),
            "journal": replace(end, journal="other.000001"),
            "sequence": end,
        }[wrong]
        with pytest.raises(AckUnmatched, match=r"^no match ack positionLogPosition\[identity="):
            self.ring.ack(position, self.get_next if wrong == "sequence" else end_seq)

    @rule()
    def rollback(self) -> None:
        whole = self.let_go <= self.ack_next
        assert self.ring.rollback() == whole
        if not whole:
            return
        self.get_next = self.ack_next
        self.open.clear()

    @rule(armed=st.booleans())
    def arm(self, armed: bool) -> None:
        self.ring.armed = armed

    # ---- invariants

    @invariant()
    def sequences_and_sums(self) -> None:
        ring, stored = self.ring, self.stored
        assert (ring.put_seq, ring.get_seq, ring.ack_seq) == (len(stored) - 1, self.get_next - 1, self.ack_next - 1)
        assert ring.put_bytes == sum(len(entry.frame) for entry in stored)
        assert ring.ack_bytes == sum(len(entry.frame) for entry in stored[: self.ack_next])
        assert ring.put_rows == sum(entry.rows for entry in stored)
        assert ring.get_rows == self.got_rows
        assert ring.ack_rows == sum(entry.rows for entry in stored[: self.ack_next])
        assert ring.put_time_ms == (stored[-1].position.timestamp_ms if stored else 0)
        assert ring.ack_time_ms == (stored[self.ack_next - 1].position.timestamp_ms if self.ack_next else 0)

    @invariant()
    def what_is_held(self) -> None:
        """The ring holds all entries that are neither acknowledged nor dropped."""
        held = [piece.position(at) for piece in self.ring._segments for at in range(len(piece))]
        kept = self.stored[max(self.ack_next, self.let_go) :]
        assert held[len(held) - len(kept) :] == [entry.position for entry in kept]

    @invariant()
    def availability(self) -> None:
        waiting = self.stored[self.get_next :]
        for size in (1, 2, 3, 10, 1000):
            if self.mode is BatchMode.ITEMSIZE:
                enough = len(waiting) >= size
            else:
                enough = sum(len(entry.body) for entry in waiting) >= size * self.unit
            assert self.ring.available(size) == (bool(waiting) and (enough or self.full()))


def two_runs(piece: Segment, gtid: str) -> Segment:
    """Return the segment with `gtid` on its second half and none on the first."""
    middle = len(piece) // 2
    if not middle:
        return replace(piece, run_gtids=(gtid,))
    return replace(piece, run_starts=array("q", [0, middle]), run_server_ids=array("q", [1, 2]), run_gtids=("", gtid))


def ack_of(taken: list[Stored]) -> LogPosition | None:
    """Return canal's ack point: the last end, DDL or begin without GTID; an end or DDL of a whole event is consumed.

    Other than canal's, it is no DDL inside a transaction with a GTID.
    """
    for entry in reversed(taken):
        if entry.kind is EntryKind.DDL and entry.position.gtid and entry.goes_on:
            continue
        if entry.kind in (EntryKind.END, EntryKind.DDL):
            return replace(entry.position, consumed=entry.whole)
        if entry.kind is EntryKind.BEGIN and not entry.position.gtid:
            return entry.position
    return None


TestRing = RingMachine.TestCase
TestRing.settings = settings(max_examples=examples(150), stateful_step_count=30, deadline=None)
