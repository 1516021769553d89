"""What is stored of a snapshot whose tables are swapped is of the tables that have the names at the cursor."""

from __future__ import annotations

from dataclasses import dataclass, replace
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


@dataclass(frozen=True)
class Piece:
    """What a feed puts into its ring: up to which statement the stream has come, and a state."""

    at: int
    snapshot: str = ""


class Feed:
    """A feed from a cursor on. It passes statements, and reads if its snapshot runs."""

    def __init__(self, at: int, state: SnapshotState) -> None:
        self.at = at
        self.progress = SnapshotProgress(state)
        self.parts: list[SnapshotPart] = []
        self.ring: list[Piece] = []

    def passes(self, swapped: str) -> None:
        """Pass a statement on."""
        if self.progress.begin_tables_again(lambda table, key: table == swapped, swapped.__eq__) is not None:
            self.ring.append(Piece(self.at, self.progress.state.text))
        self.at += 1
        self.ring.append(Piece(self.at))


class World:
    """A server, a node and a client that take turns at random.

    swaps: the tables that were swapped, in order. A position is a number of statements.
    asked: the tables of the snapshot.
    Keys begin with the number of the swap that the table of the rows came with. The conditions of a state have the same
    for the tables that are read to their end.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.swaps: list[str] = []
        self.ids = iter(range(1 << 30))
        self.asked = set(TABLES)
        self.cursor = Piece(0, SnapshotState("first", TABLES).text)
        self.batches: list[tuple[list[Piece], Feed]] = []
        self.open()

    def version(self, table: str, at: int) -> str:
        return str(self.swaps[:at].count(table))

    def state(self) -> SnapshotState:
        found = SnapshotState.from_text(self.cursor.snapshot)
        assert found is not None
        return found

    def open(self) -> None:
        self.feed = Feed(self.cursor.at, self.state())

    # ---- turns

    def swap(self) -> None:
        self.swaps.append(self.random.choice(TABLES))

    def pass_on(self) -> None:
        if self.feed.at < len(self.swaps):
            self.feed.passes(self.swaps[self.feed.at])

    def read(self) -> None:
        """Put a chunk: it enters when the stream has passed all that the SELECT saw."""
        feed, progress = self.feed, self.feed.progress
        if feed.at < len(self.swaps) or not progress.state.active:
            return
        feed.parts = [part for part in feed.parts if progress.holds(part)]
        if not feed.parts or (progress.state.begun < len(progress.state.tables) and self.random.random() < 0.3):
            part = progress.take()
            assert part is not None
            feed.parts.append(part)
        part = self.random.choice(feed.parts)
        number = part.range.table
        if number == len(progress.state.tables):
            feed.ring.append(Piece(feed.at, progress.end().text))
            return
        table = progress.state.tables[number]
        version = self.version(table, feed.at)
        key = int(part.range.after[0].rpartition("=")[2]) + 1 if part.range.after else 1
        last = key == ROWS
        if last:
            progress.state = replace(progress.state, where={**progress.state.where, table: version})
        after = progress.put(part, 1, None if last else (f"{version}={key}",))
        assert after is not None
        feed.ring.append(Piece(feed.at, after.text))

    def get(self) -> None:
        count = self.random.randrange(1, 4)
        if taken := self.feed.ring[:count]:
            del self.feed.ring[:count]
            self.batches.append((taken, self.feed))

    def ack(self) -> None:
        if not self.batches:
            return
        pieces, feed = self.batches.pop(0)
        at = pieces[-1].at
        progress = next((piece.snapshot for piece in reversed(pieces) if piece.snapshot), "")
        snapshot = advanced(self.cursor.snapshot, progress, read_again=feed is not self.feed)
        if at >= self.cursor.at:
            self.cursor = Piece(at, snapshot)
            self.check()

    def fail(self) -> None:
        if ended := self.feed.progress.fail("no right"):
            self.cursor = Piece(self.cursor.at, failed(self.cursor.snapshot, ended.text))

    def restart(self) -> None:
        self.open()

    def crash(self) -> None:
        self.batches.clear()
        self.open()

    def ask(self) -> None:
        action = self.random.choice((SnapshotAction.PAUSE, SnapshotAction.RESUME, SnapshotAction.ADD))
        tables = (self.random.choice(TABLES),) if action is SnapshotAction.ADD else ()
        remaining, over = self.state().remaining, self.state().over
        leave = action is SnapshotAction.RESUME and len(remaining) > 1 and self.random.random() < 0.2
        request = SnapshotRequest(action, tables, leave_out=remaining[:1] if leave else ())
        try:
            asked = changed(self.cursor.snapshot, request, f"s{next(self.ids)}", 0)
        except SnapshotRefused:
            return
        self.asked = (set() if over and tables else self.asked - set(request.leave_out)) | set(tables)
        self.cursor = Piece(self.cursor.at, replace(asked, where=self.state().where).text)
        self.check()
        self.open()

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
                assert text.partition("=")[0] == self.version(table, at), (state, at, self.swaps)
        for table in set(state.tables) - set(state.remaining):
            assert state.where[table] == self.version(table, at), (state, at, self.swaps)

    def end(self) -> None:
        """The snapshot ends, if somebody lets it."""
        self.restart()
        for _ in range(500):
            if self.state().over:
                return
            if self.state().phase is not SnapshotPhase.RUNNING:
                resumed = changed(self.cursor.snapshot, SnapshotRequest(SnapshotAction.RESUME), "", 0)
                self.cursor = Piece(self.cursor.at, resumed.text)
                self.open()
            for turn in (self.pass_on, self.read, self.get, self.ack):
                turn()
        pytest.fail(f"{self.state()}")


@given(st.integers(0, 2**32))
def test_no_stored_state_is_of_a_table_that_was_swapped_before_the_cursor(seed: int) -> None:
    """Whatever the client has in flight, and however often the snapshot pauses, fails and changes its tables."""
    random = Random(seed)
    world = World(random)
    often = [world.pass_on, world.read, world.get, world.ack]
    turns = [*often * 6, world.swap, world.swap, world.fail, world.restart, world.ask, world.crash]
    for _ in range(200):
        random.choice(turns)()
    world.end()
    assert world.state().ranges == () or world.state().phase is SnapshotPhase.CANCELLED
