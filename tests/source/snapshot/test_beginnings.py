"""What is stored of a snapshot whose tables are swapped is of the tables that have the names at the cursor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal_ha.errors import SnapshotRefused
from canal_ha.model.snapshot import (
    SnapshotAction,
    SnapshotPhase,
    SnapshotRequest,
    SnapshotState,
    advanced,
    changed,
    failed,
)
from canal_ha.source.snapshot.progress import SnapshotPart, SnapshotProgress

TABLES = ("s.a", "s.b", "s.c")
ROWS = 4

Row = tuple[str, int]  # a table and a key


@dataclass(frozen=True)
class Event:
    """What the binlog has: an update of a row, or a statement that gives a table other rows, which it does not have."""

    table: str
    key: int = 0
    value: int = 0

    @property
    def swaps(self) -> bool:
        return not self.key


@dataclass(frozen=True)
class Piece:
    """What a feed puts into its ring: up to which event the stream has come, a state, and a row with its value."""

    at: int
    snapshot: str = ""
    row: Row | None = None
    value: int = 0


@dataclass
class Batch:
    """A batch in flight. late: the stream has begun again since. void: its rows come again."""

    pieces: list[Piece]
    feed: Feed
    late: bool = False
    void: bool = False


@dataclass
class Feed:
    """A feed from a cursor on. It passes events, and reads if its snapshot runs. behind: what the client has."""

    at: int
    progress: SnapshotProgress
    behind: int
    parts: list[SnapshotPart] = field(default_factory=list)
    ring: list[Piece] = field(default_factory=list)

    def passes(self, event: Event) -> None:
        """Pass an event on."""
        if event.swaps:
            begins = self.progress.begin_tables_again(
                lambda tables: range(len(tables)), lambda table, key: table == event.table, event.table.__eq__
            )
            if begins is not None:
                self.ring.append(Piece(self.at, self.progress.state.text))
        self.at += 1
        if self.at > self.behind:
            row = None if event.swaps else (event.table, event.key)
            self.ring.append(Piece(self.at, row=row, value=event.value))


class World:
    """A server, a node and a client that take turns at random. The node's stream is a model of instance.Stream.

    A position is a number of events.
    values: those that each row has had, which grow, and from which position on.
    asked: the tables of the snapshot.
    copy: the client's; `applies` says whether it applies a batch at once or when it acknowledges it.
    Keys begin with the number of the swap that the table of the rows came with. The conditions of a state have the same
    for the tables that are read to their end.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.events: list[Event] = []
        self.numbers = iter(range(1, 1 << 30))
        self.values = {(table, 1 + key): [(0, next(self.numbers))] for table in TABLES for key in range(ROWS)}
        self.copy: dict[Row, int] = {}
        self.applies = random.random() < 0.5
        self.asked = set(TABLES)
        self.ended_at: dict[int, int] = {}  # where a snapshot ended in the stream, by the time in its state
        self.cursor = self.durable = Piece(0, SnapshotState("first", TABLES).text)
        self.batches: list[Batch] = []
        self.feed: Feed | None = None
        self.newest: Feed | None = None
        self.delivered: int | None = None
        self.acked: int | None = None

    def version(self, table: str, at: int) -> str:
        return str(self.events[:at].count(Event(table)))

    def state(self) -> SnapshotState:
        found = SnapshotState.from_text(self.cursor.snapshot)
        assert found is not None
        return found

    def open(self) -> Feed:
        if self.delivered is None:
            self.acked = None
            for batch in self.batches:
                batch.void = True
        progress = SnapshotProgress(self.state(), lambda: next(self.numbers))
        self.feed = self.newest = Feed(self.cursor.at, progress, self.delivered or 0)
        return self.feed

    # ---- turns of the server and the feed

    def swap(self) -> None:
        table = self.random.choice(TABLES)
        self.events.append(Event(table))
        for row, values in self.values.items():
            if row[0] == table:
                values.append((len(self.events), next(self.numbers)))

    def update(self) -> None:
        """Update one row, often several times."""
        for _ in range(self.random.choice((1, 3))):
            table, key = self.random.choice((TABLES[0], self.random.choice(TABLES))), 1
            value = next(self.numbers)
            self.events.append(Event(table, key, value))
            self.values[table, key].append((len(self.events), value))

    def pass_on(self) -> None:
        if self.feed:
            for event in self.events[self.feed.at :][: self.random.randrange(1, 8)]:
                self.feed.passes(event)

    def read(self) -> None:
        """Put a chunk: it enters when the stream has passed all that the SELECT saw."""
        feed = self.feed
        if feed is None or feed.at < len(self.events) or not feed.progress.state.active:
            return
        progress = feed.progress
        feed.parts = [part for part in feed.parts if progress.holds(part)]
        if not feed.parts or (progress.state.begun < len(progress.state.tables) and self.random.random() < 0.3):
            part = progress.take()
            assert part is not None
            feed.parts.append(part)
        part = self.random.choice(feed.parts)
        number = part.range.table
        if number == len(progress.state.tables):
            feed.ring.append(Piece(feed.at, progress.end().text))
            self.ended_at[progress.state.ended_ms] = feed.at
            return
        table = progress.state.tables[number]
        version = self.version(table, feed.at)
        key = int(part.range.after[0].rpartition("=")[2]) + 1 if part.range.after else 1
        last = key == ROWS
        if last:
            progress.state = replace(progress.state, where={**progress.state.where, table: version})
        after = progress.put(part, 1, None if last else (f"{version}={key}",))
        assert after is not None
        feed.ring.append(Piece(feed.at, after.text, (table, key), self.values[table, key][-1][1]))
        self.ended_at[after.ended_ms] = feed.at

    def fail(self) -> None:
        if self.feed and (ended := self.feed.progress.fail("no right")):
            self.cursor = Piece(self.cursor.at, failed(self.cursor.snapshot, ended.text))

    # ---- turns of the client

    def get(self) -> None:
        feed = self.feed or self.open()
        count = self.random.choice((1, 1, 2, 5))
        if taken := feed.ring[:count]:
            del feed.ring[:count]
            self.batches.append(Batch(taken, feed))
            self.delivered = taken[-1].at
            if self.applies:
                self.apply(taken)
                self.check_copy(self.cursor)

    def apply(self, pieces: list[Piece]) -> None:
        self.copy |= {piece.row: piece.value for piece in pieces if piece.row}

    def ack(self) -> None:
        if not self.batches:
            return
        batch = self.batches.pop(0)
        if not self.applies:
            self.apply(batch.pieces)
        if batch.void:
            return
        at = self.acked = batch.pieces[-1].at
        progress = next((piece.snapshot for piece in reversed(batch.pieces) if piece.snapshot), "")
        snapshot = advanced(self.cursor.snapshot, progress, read_again=batch.late or batch.feed is not self.newest)
        if at >= self.cursor.at:
            self.cursor = Piece(at, snapshot)
            self.check()
            self.check_copy(self.cursor)

    def roll_back(self) -> None:
        taken = [piece for batch in self.batches if batch.feed is self.feed for piece in batch.pieces]
        self.batches.clear()
        self.delivered = self.acked
        if self.feed is None:
            return
        if self.feed.behind <= (self.acked or 0):
            self.feed.ring[:0] = taken
        else:
            self.open()

    # ---- turns of the node

    def flush(self) -> None:
        self.durable = self.cursor

    def park(self) -> None:
        self.feed = None

    def restart(self) -> None:
        """Begin again, at once if a GET waits."""
        was_open = self.feed is not None
        self.feed = self.delivered = self.acked = None
        for batch in self.batches:
            batch.late = True
        if was_open and (not self.batches or self.random.random() < 0.6):
            self.open()

    def crash(self) -> None:
        """Another node takes over, perhaps just behind a flush."""
        if self.random.random() < 0.7:
            self.flush()
        self.batches.clear()
        self.feed = self.delivered = self.acked = None
        self.cursor = self.durable

    def ask(self) -> None:
        action = self.random.choice((SnapshotAction.PAUSE, SnapshotAction.RESUME, SnapshotAction.ADD))
        if self.state().phase in (SnapshotPhase.PAUSED, SnapshotPhase.FAILED) and self.random.random() < 0.5:
            action = SnapshotAction.RESUME
        tables = (self.random.choice(TABLES),) if action is SnapshotAction.ADD else ()
        remaining, over = self.state().remaining, self.state().over
        leave = action is SnapshotAction.RESUME and len(remaining) > 1 and self.random.random() < 0.2
        request = SnapshotRequest(action, tables, leave_out=remaining[:1] if leave else ())
        try:
            asked = changed(self.cursor.snapshot, request, f"s{next(self.numbers)}", 0)
        except SnapshotRefused:
            return
        self.asked = (set() if over and tables else self.asked - set(request.leave_out)) | set(tables)
        self.cursor = self.durable = Piece(self.cursor.at, replace(asked, where=self.state().where).text)
        self.check()
        self.restart()

    # ---- what must hold

    def check(self) -> None:
        """What is stored is of the tables that have the names at the cursor."""
        state, at = self.state(), self.cursor.at
        assert set(state.tables) == self.asked
        if state.over:
            return
        for each in state.ranges:
            for text in (*each.after, *each.until):
                table = state.tables[each.table]
                assert text.partition("=")[0] == self.version(table, at), (state, at, self.events)
        for table in set(state.tables) - set(state.remaining):
            assert state.where[table] == self.version(table, at), (state, at, self.events)

    def check_copy(self, stored: Piece) -> None:
        """Of each row that counts as read, the client has the value of the cursor or a newer one: no other may come."""
        state = SnapshotState.from_text(stored.snapshot)
        assert state is not None
        ended_at = self.ended_at[state.ended_ms] if state.over else stored.at
        after = {state.tables[each.table]: each.after for each in state.ranges}
        for row, values in self.values.items():
            table, key = row
            if table not in after and table in (*state.remaining, *(TABLES if table not in state.tables else ())):
                continue
            if Event(table) in self.events[ended_at : stored.at]:
                continue  # nobody looked at the statement
            if table not in after or (after[table] and key <= int(after[table][0].rpartition("=")[2])):
                least = max(value for at, value in values if at <= stored.at)
                assert self.copy.get(row, 0) >= least, (row, self.copy, values, state, self.events)

    def end(self) -> None:
        """The snapshot ends, if somebody lets it, and the client gets all the rest."""
        self.restart()
        for _ in range(500):
            if self.state().over and self.cursor.at == len(self.events) and not self.batches:
                break
            if self.state().phase in (SnapshotPhase.PAUSED, SnapshotPhase.FAILED):
                resumed = changed(self.cursor.snapshot, SnapshotRequest(SnapshotAction.RESUME), "", 0)
                self.cursor = Piece(self.cursor.at, resumed.text)
                self.restart()
            for turn in (self.pass_on, self.read, self.get, self.ack):
                turn()
        else:
            pytest.fail(f"{self.state()}")
        self.check_copy(self.cursor)


def run(seed: int) -> None:
    """Let a world take turns, and then end."""
    random = Random(seed)
    world = World(random)
    often = (world.pass_on, world.read, world.get, world.ack)
    seldom = (world.update, world.swap, world.fail, world.park, world.restart, world.ask, world.crash, world.roll_back)
    turns: list[Callable[[], None]] = [*often * random.randrange(4, 24), world.update, world.flush]
    for turn in seldom:
        turns += [turn] * random.choice((0, 0, 1, 4))
    for _ in range(200):
        random.choice(turns)()
    world.end()
    assert world.state().ranges == () or world.state().phase is SnapshotPhase.CANCELLED


@given(st.integers(0, 2**32))
def test_no_stored_state_is_of_a_table_that_was_swapped_before_the_cursor(seed: int) -> None:
    """Whatever breaks and whoever asks. In the end the client's copy has the newest value of each row."""
    run(seed)
