"""The parts of a snapshot that several threads read: every row once, also when it goes on from any state."""

from __future__ import annotations

import threading
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal_ha.model.snapshot import (
    SnapshotAction,
    SnapshotPhase,
    SnapshotRange,
    SnapshotRequest,
    SnapshotState,
    advanced,
    changed,
    failed,
)
from canal_ha.source.snapshot.progress import SnapshotPart, SnapshotProgress
from tests.waiting import until

TABLES = {"shop.a": 40, "shop.b": 0, "shop.c": 1, "shop.d": 17}  # rows, with keys from 1


def state() -> SnapshotState:
    return SnapshotState("s", tuple(TABLES))


def every_index(tables: tuple[str, ...]) -> range:
    return range(len(tables))


def left(part: SnapshotRange) -> range:
    """Return the keys in a range."""
    first = int(part.after[0]) + 1 if part.after else 1
    return range(first, (int(part.until[0]) if part.until else [*TABLES.values()][part.table]) + 1)


class Readers:
    """Readers that take turns at random, and note what they put."""

    def __init__(self, begun: SnapshotState, random: Random) -> None:
        self.progress = SnapshotProgress(begun)
        self.random = random
        self.parts: list[SnapshotPart] = []
        self.put: list[tuple[int, int]] = []
        self.states = [begun]

    def run(self, most: int) -> None:
        """Let up to `most` readers read all."""
        while self.progress.state.active:
            free = len(self.parts) < most and (
                self.progress._free or self.progress.state.begun < len(TABLES) or not self.parts
            )
            if free and self.random.random() < 0.5:
                part = self.progress.take()
                assert part is not None
                self.parts.append(part)
            elif self.parts:
                self._step(self.random.choice(self.parts))

    def _step(self, part: SnapshotPart) -> None:
        keys = left(part.range)
        deed = self.random.random()
        if deed < 0.3 and len(keys) > 1:
            assert self.progress.split(part, (str(self.random.choice(keys[:-1])),))
            return
        if deed < 0.4:
            self.progress.give_back(part)
            self.parts.remove(part)
            return
        chunk = keys[: self.random.randrange(1, 6)]
        self.put += [(part.range.table, key) for key in chunk]
        ends = len(chunk) == len(keys)
        after = self.progress.put(part, len(chunk), None if ends else (str(chunk[-1]),))
        assert after is not None
        self.states.append(after)
        if ends:
            assert not self.progress.holds(part)
            self.parts.remove(part)


@given(st.integers(0, 2**32), st.integers(1, 5))
def test_every_row_comes_once_from_any_state_on(seed: int, readers: int) -> None:
    """However parts are split, given back and read, and wherever a crash ends the first run."""
    random = Random(seed)
    first = Readers(state(), random)
    first.run(readers)
    rows = sorted((table, key) for table, count in enumerate(TABLES.values()) for key in range(1, count + 1))
    assert sorted(first.put) == rows
    assert first.progress.state.phase is SnapshotPhase.DONE
    assert first.progress.state.rows == len(rows)
    kept = random.choice(first.states)
    again = SnapshotState.from_text(kept.text)
    assert again is not None
    second = Readers(again, random)
    if again.active:
        second.run(readers)
    assert sorted(first.put[: again.rows] + second.put) == rows


def test_a_table_that_begins_again_makes_its_parts_useless() -> None:
    """A reader of another part of the table puts nothing any more."""
    progress = SnapshotProgress(state())
    one = progress.take()
    assert one is not None
    assert progress.split(one, ("9",))
    two = progress.take()
    assert two is not None
    assert two.range == SnapshotRange(0, ("9",))
    progress.begin_again(one)
    progress.begin_again(two)
    assert progress.put(two, 3, None) is None
    assert not progress.holds(one)
    progress.give_back(one)
    assert progress.state.ranges == (SnapshotRange(0),)
    again = progress.take()
    assert again is not None
    assert again.range == SnapshotRange(0)


def test_a_late_chunk_of_one_feed_does_not_count_after_the_new_beginning_that_another_one_saw() -> None:
    """Both feeds went on from one stored state, and saw different statements swap the table."""
    stored = state()
    chunks = []
    for now_ms in (1000, 2000):
        progress = SnapshotProgress(stored, lambda now_ms=now_ms: now_ms)  # type: ignore[misc]  # bound in each turn
        assert (
            progress.begin_tables_again(every_index, lambda table, key: table == "shop.a", lambda table: False)
            is not None
        )
        chunks.append(progress.state)
        part = progress.take()
        assert part is not None
        assert progress.put(part, 3, ("3",)) is not None
        chunks.append(progress.state)
    _, late, ending, _ = chunks
    failure = failed(stored.text, ending.ended(SnapshotPhase.FAILED, 9, "no table").text)
    resumed = changed(failure, SnapshotRequest(SnapshotAction.RESUME), "r", 10)
    after = SnapshotState.from_text(advanced(resumed.text, late.text, read_again=True))
    assert after is not None
    assert (after.remaining, after.ranges) == (tuple(TABLES), ())


def test_new_beginnings_for_which_the_text_has_no_room_are_those_of_all_tables() -> None:
    """One statement can swap all of them. The state has to be stored before the statement passes."""
    tables = tuple(f"shop.{number:04}" for number in range(2000))
    ranges = (SnapshotRange(0, ("id=7",)),)
    progress = SnapshotProgress(replace(state(), tables=tables, table=1899, ranges=ranges))
    swapped = tables[100:]
    told = progress.begin_tables_again(every_index, lambda table, key: table in swapped, swapped.__contains__)
    assert told == list(tables[:1900])
    assert progress.state.remaining == tables
    assert progress.state.ranges == ()
    assert SnapshotState.from_text(progress.state.text) == progress.state
    assert progress.take() is not None


def test_a_thread_waits_for_a_part_until_the_end() -> None:
    """It gets what another gives away; an error ends the wait."""
    progress = SnapshotProgress(replace(state(), tables=("shop.a",)))
    one = progress.take()
    assert one is not None
    taken: list[SnapshotPart | None] = []
    threads = [threading.Thread(target=lambda: taken.append(progress.take())) for _ in range(2)]
    for thread in threads:
        thread.start()
    until(lambda: progress.wanted, what="a wish")
    progress.split(one, ("9",))
    until(lambda: taken, what="a part")
    ended = progress.fail("no right")
    assert ended is not None
    assert (ended.phase, ended.error) == (SnapshotPhase.FAILED, "no right")
    assert progress.fail("another one") is None
    for thread in threads:
        thread.join(5)
    assert taken[1] is None
    assert progress.put(one, 1, None) is None


def test_keys_too_long_for_the_text_are_not_split() -> None:
    """A state of many long keys could not be stored."""
    progress = SnapshotProgress(state())
    part = progress.take()
    assert part is not None
    assert not progress.split(part, ("k=0x" + "61" * 10_000,))
    assert part.range == SnapshotRange(0)


def test_long_keys_leave_no_room_for_another_table() -> None:
    """It begins when the first one is read."""
    long = replace(state(), ranges=(SnapshotRange(0, ("k=0x" + "61" * 10_000,), ("k=0x" + "62" * 10_000,)),))
    progress = SnapshotProgress(long)
    part = progress.take()
    assert part is not None
    assert progress._next() is None
    assert progress.put(part, 1, None)
    following = progress.take()
    assert following is not None
    assert following.range == SnapshotRange(1)


@pytest.mark.parametrize("phase", [SnapshotPhase.PAUSED, SnapshotPhase.RUNNING])
def test_behind_the_last_table_only_the_end_is_left(phase: SnapshotPhase) -> None:
    """A snapshot that was paused behind its last chunk ends when it runs again."""
    progress = SnapshotProgress(replace(state(), table=len(TABLES), phase=phase))
    part = progress.take()
    if phase is SnapshotPhase.PAUSED:
        assert part is None
        return
    assert part is not None
    assert part.range.table == len(TABLES)
    assert progress.end().phase is SnapshotPhase.DONE
    assert progress.take() is None


def test_a_part_ends_beside_an_empty_one_at_its_end() -> None:
    """The key that halves a part can be its last one. The end of the second half failed."""
    progress = SnapshotProgress(replace(state(), tables=("shop.a",)))
    one = progress.take()
    assert one is not None
    assert progress.split(one, ("9",))
    assert progress.split(one, ("9",))
    assert progress.put(one, 9, ("9",))
    assert progress.put(one, 0, None)
    assert not progress.holds(one)
    for rows in (31, 0):
        part = progress.take()
        assert part is not None
        assert progress.put(part, rows, None)
    assert progress.state.phase is SnapshotPhase.DONE


# ---- tables without a key


def test_a_table_without_a_key_is_read_alone() -> None:
    """When what is begun is read, and before anything else begins; also after its read broke."""
    progress = SnapshotProgress(state())
    one, two = progress.take(), progress.take()
    assert one is not None
    assert two is not None
    assert not progress.read_alone(one)
    progress.give_back(one)
    taken: list[SnapshotPart | None] = []
    thread = threading.Thread(target=lambda: taken.append(progress.take()))
    thread.start()
    until(lambda: progress.wanted, what="a wish")  # the other table can be split
    assert progress.split(two, ("9",))
    until(lambda: taken, what="a part")
    thread.join(5)
    (half,) = taken
    assert half is not None
    assert progress.put(half, 3, None)
    assert progress.put(two, 3, None)
    for _ in range(2):
        again = progress.take()
        assert again is one
        assert progress.read_alone(one)
        assert progress._next() is None
        progress.give_back(one)
    assert progress.take() is one
    attempt = progress.state.new_attempt(one.range, 7).with_piece(5)
    assert progress.put_piece(one, attempt)
    assert progress.holds(one)
    assert progress.put_piece(one, attempt.behind(one.range, 9))
    assert not progress.holds(one)
    following = progress.take()
    assert following is not None
    assert following.range == SnapshotRange(2)


def test_a_table_that_lost_its_key_is_read_from_its_first_row() -> None:
    """None of its parts counts any more."""
    progress = SnapshotProgress(state())
    one = progress.take()
    assert one is not None
    assert progress.split(one, ("9",))
    assert progress.put(one, 3, ("3",))
    assert not progress.read_alone(one)
    whole = progress.take()
    assert whole is not None
    assert whole is not one
    assert whole.range == SnapshotRange(0)
    assert progress.read_alone(whole)
    assert progress.state.ranges == (SnapshotRange(0),)


def test_a_table_that_got_a_key_lets_others_begin() -> None:
    """The rows of its broken read do not count."""
    begun = replace(state(), rows=10).begin_table().new_attempt(SnapshotRange(0), 7).with_piece(5)
    progress = SnapshotProgress(begun)
    one = progress.take()
    assert one is not None
    assert progress.read_alone(one)
    assert progress._next() is None
    progress.read_beside_others(one, ("id",))
    two = progress.take()
    assert two is not None
    assert two.range == SnapshotRange(1)
    after = progress.put(two, 2, None)
    assert after is not None
    assert (after.rows, after.attempt, after.attempt_rows) == (12, 0, 0)


@pytest.mark.parametrize(
    ("begun", "total"),
    [
        (replace(state(), table=1, rows=40), 58),
        (replace(state(), ranges=(SnapshotRange(0, ("7",)),), rows=7), 58),
        (replace(state(), rows=40), 98),
        (replace(state(), table=1, rows=40 + 18), 40 + 18 + 18),
    ],
    ids=["some are read", "in a table", "added again", "one is added again"],
)
def test_the_rows_of_tables_that_are_read_are_estimated_once(begun: SnapshotState, total: int) -> None:
    """Tables were added behind them, so the rows are estimated anew."""
    progress = SnapshotProgress(begun)
    progress.count(lambda table: TABLES[table])
    assert progress.state.total == total
