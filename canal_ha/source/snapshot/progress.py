"""SnapshotProgress: how far a snapshot has come, and who reads which part. The threads of its connections share it.

A part is what is left of a table, or of a range of its keys. Each part has one reader at a time. Chunks enter the
stream one after the other, and each one advances the state, so the cursor of every chunk is true for all parts.

A table without a key is read alone: when the other tables that are begun are read, and before another one begins.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from canal_ha.errors import SnapshotRefused
from canal_ha.model.snapshot import MOST_CHARACTERS, SnapshotPhase, SnapshotRange, SnapshotState
from canal_ha.source.snapshot.key import column_names


class SnapshotPart:
    """A part that is read, or waits for a reader. Only SnapshotProgress changes it.

    range: what is left of it.
    alone: it is a table without a key, as far as known.
    chunks: how many of it have entered the stream.
    """

    __slots__ = ("alone", "chunks", "range")

    def __init__(self, range: SnapshotRange) -> None:
        self.range = range
        self.alone = False
        self.chunks = 0


class SnapshotProgress:
    """See the module. state: with everything that was put into the stream. now_ms: tells the wall time."""

    def __init__(self, state: SnapshotState, now_ms: Callable[[], int] | None = None) -> None:
        self.state = state
        self._now_ms = now_ms or _now_ms
        self._changed = threading.Condition()
        self._counting = threading.Lock()
        self._free = [SnapshotPart(each) for each in state.ranges]
        self._held: list[SnapshotPart] = []
        self._columns: dict[str, set[str]] = {}  # of the keys by which tables were read
        self._waiting = 0  # threads without a part
        self._stopped = False

    def take(self) -> SnapshotPart | None:
        """Return a part that nobody reads; wait for one. Return None once nothing is left, or after `stop`.

        The part behind the last table stands for the end of a snapshot that was paused there.
        """
        with self._changed:
            while self.state.active and not self._stopped:
                if part := self._next():
                    self._held.append(part)
                    return part
                self._waiting += 1
                self._changed.wait()
                self._waiting -= 1
        return None

    def read_alone(self, part: SnapshotPart) -> bool:
        """Note that a part is a table without a key; return whether it can be read now, or has to be given back.

        Other parts of the table, if it had a key before, count no more: the table begins again.
        """
        with self._changed:
            if part not in self._held:
                return False
            whole = SnapshotRange(part.range.table)
            if not self._is_whole(whole.table):
                self._begin_again(whole.table)
                part = next((each for each in self._free if each.range == whole), part)
            part.alone = True
            return self._held == [part] and all(each.alone for each in self._free)

    def read_beside_others(self, part: SnapshotPart, columns: Collection[str]) -> None:
        """Note that a part is of a table with a key of these columns."""
        with self._changed:
            self._columns.setdefault(self.state.tables[part.range.table], set()).update(columns)
            if part.alone:
                part.alone = False
                self._changed.notify_all()

    def give_back(self, part: SnapshotPart) -> None:
        """Let others read the rest of a part; nothing happens if it has none."""
        with self._changed:
            if part in self._held:
                self._held.remove(part)
                self._free.insert(0, part)
                self._changed.notify_all()

    def stop(self) -> None:
        """End every wait."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    @property
    def wanted(self) -> bool:
        """Whether a thread waits for a part, and there is none that it can read beside others."""
        with self._changed:
            return self._waiting > sum(not each.alone for each in self._free)

    def holds(self, part: SnapshotPart) -> bool:
        """Return whether a part that was taken is to be read on."""
        with self._changed:
            return self.state.active and part in self._held

    def split(self, part: SnapshotPart, middle: tuple[str, ...]) -> bool:
        """Leave what is behind a key to others; return False if the text of the state has no room for more keys."""
        with self._changed:
            if part not in self._held:
                return True
            old = part.range
            first, second = replace(old, until=middle), replace(old, after=middle)
            state = self.state.put(old, (first, second))
            if not _has_room(state):
                return False
            self.state, part.range = state, first
            self._free.append(SnapshotPart(second))
            self._changed.notify_all()
            return True

    def begin_again(self, part: SnapshotPart) -> bool:
        """Let the whole table of a part be read again: it has another key now, or is gone.

        Return whether some of it had been read.
        """
        with self._changed:
            if part not in self._held:
                return False
            read = not self._is_whole(part.range.table)
            self._begin_again(part.range.table)
            return read

    def begin_tables_again(
        self,
        named: Callable[[tuple[str, ...]], Iterable[int]],
        replaced: Callable[[str, Collection[str] | None], bool],
        refilled: Callable[[str], bool],
    ) -> list[str] | None:
        """Begin tables again whose rows were replaced. Return those that were begun; None if no table was replaced.

        A table that is not begun counts, too: the client may acknowledge parts of it that an earlier feed has read. A
        table without a key is left out: while it is read, the server lets no statement change it.

        named: gets all tables, and tells the indices of those for which the other two are to be asked.
        replaced: tells whether a table is another one now. It gets the name, and the columns of the key by which the
            table is being read; None if the table is not begun, because then it can have any key.
        refilled: tells whether a table that is read to its end has rows now that the stream does not bring. If the
            table is gone, nothing is left to read.
        """
        with self._changed:
            state = self.state
            if state.over:
                return None
            alone = {part.range.table for part in (*self._held, *self._free) if part.alone}
            left = frozenset(state.left)
            again = [
                number
                for number in named(state.tables)
                if number not in alone
                and (
                    replaced(state.tables[number], self._key(number))
                    if number in left
                    else refilled(state.tables[number])
                )
            ]
            if not again:
                return None
            self._begin_again(*again)
            return [name for name in state.tables[: state.begun] if self.state.beginning(name) > state.beginning(name)]

    def put(self, part: SnapshotPart, rows: int, after: tuple[str, ...] | None) -> SnapshotState | None:
        """Return the state once the next rows of a part are acknowledged; None if nobody is to read the part.

        after: the key of the last row; None at the end of the part.
        Raises SnapshotRefused for a key that is too long to be stored.
        """
        with self._changed:
            if part not in self._held or not self.state.active:
                return None
            state = self.state.without_attempt()
            state = replace(state, chunks=state.chunks + 1, rows=state.rows + rows)
            rest = part.range if after is None else replace(part.range, after=after)
            state = state.behind(rest, self._now_ms()) if after is None else state.put(part.range, (rest,))
            try:
                state.text  # noqa: B018  # it raises
            except ValueError as error:
                table = state.tables[part.range.table]
                raise SnapshotRefused(
                    f"{table}: the key of a row is too long to be kept with the cursor ({error}): leave the table out"
                ) from error
            part.range = rest
            self._entered(part, state, last=after is None)
            return state

    def put_piece(self, part: SnapshotPart, state: SnapshotState) -> bool:
        """Take the state behind a piece of a part that is read alone; return False if nobody is to read the part."""
        with self._changed:
            if part not in self._held:
                return False
            self._entered(part, state, last=part.range not in state.ranges)
            return True

    def end(self) -> SnapshotState:
        """Return the state at the end."""
        return self._ended(SnapshotPhase.DONE)

    def fail(self, error: str) -> SnapshotState | None:
        """Return the state after an error; None if the snapshot had ended before."""
        with self._changed:
            return self._ended(SnapshotPhase.FAILED, error) if self.state.active else None

    def count(self, estimate: Callable[[str], int]) -> None:
        """Let the number of rows be estimated, once. estimate: of a table."""
        with self._counting:
            if not self.state.total:
                state = self.state
                inside = any(each.after for each in state.ranges)  # nobody knows how many rows of these tables are left
                total = sum(map(estimate, state.tables if inside else state.remaining))
                with self._changed:
                    self.state = replace(self.state, total=total if inside else total + state.rows)

    # ---- holding the lock

    def _is_whole(self, table: int) -> bool:
        """Return whether a table that is begun is left from its first row to its last one."""
        return [each for each in self.state.ranges if each.table == table] == [SnapshotRange(table)]

    def _key(self, table: int) -> Collection[str] | None:
        """Return the columns of the key by which a table is being read; None if it is not begun."""
        if table >= self.state.begun:
            return None
        ranges = [each for each in self.state.ranges if each.table == table]
        names = column_names(text for each in ranges for text in (*each.after, *each.until))
        return names | self._columns.get(self.state.tables[table], set())

    def _next(self) -> SnapshotPart | None:
        """Return what a reader can take now."""
        if any(each.alone for each in self._held):
            return None
        behind = self.state.begun == len(self.state.tables)
        if not self._free and not behind and (not self._held or _has_room(self.state)):
            self.state = self.state.begin_table()
            return SnapshotPart(self.state.ranges[-1])
        beside = [each for each in self._free if not each.alone]
        if not beside and self._held:
            return None
        if not self._free:
            return SnapshotPart(SnapshotRange(len(self.state.tables)))
        part = (beside or self._free)[0]
        self._free.remove(part)
        return part

    def _begin_again(self, *tables: int) -> None:
        """Let tables be read from their first row; those that are begun wait for a reader. See the state's function."""
        self.state = self.state.begin_again(*tables, now_ms=self._now_ms())

        def stays(part: SnapshotPart) -> bool:
            return part.range.table not in tables and part.range in self.state.ranges

        self._held = [*filter(stays, self._held)]
        new = [SnapshotPart(each) for each in self.state.ranges if each.table in tables]
        self._free = [*new, *filter(stays, self._free)]
        self._changed.notify_all()

    def _entered(self, part: SnapshotPart, state: SnapshotState, *, last: bool) -> None:
        """Take the state behind a chunk of a part. last: it was the part's last one."""
        self.state = state
        part.chunks += 1
        if last:
            self._held.remove(part)
            self._changed.notify_all()

    def _ended(self, phase: SnapshotPhase, error: str = "") -> SnapshotState:
        with self._changed:
            self.state = self.state.ended(phase, self._now_ms(), error)
            self._held.clear()
            self._changed.notify_all()
            return self.state


def _has_room(state: SnapshotState) -> bool:
    """Return whether the text of a state has room for more keys."""
    return 2 * len(state.text) <= MOST_CHARACTERS


def _now_ms() -> int:
    return int(time.time() * 1000)
