"""What a client has applied: whether changes came in the order of the binlog, and no row of a snapshot out of its time.

A new connection may begin with changes that came before, and so may another server's binlog: from there on the changes
come again in the same order. A row of a snapshot must have the version that its key has at this place of the stream.
Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from lab.exactness.table import FIRST_VERSION

Version = tuple[int, int]  # key, version
Change = tuple[Version | None, Version | None]  # before, after


@dataclass(frozen=True, slots=True)
class Applied:
    """One row that a client has applied.

    connection: on which it came.
    snapshot: whether a snapshot has read it.
    old, new: key and version before and after the change; None without this side.
    """

    connection: str
    snapshot: bool
    old: Version | None
    new: Version | None


@dataclass(slots=True)
class Verdict:
    """What was found.

    older: rows that came although the copy had, or had removed, a newer version of this place of the binlog.
    ahead: rows of a snapshot that were newer than their place, so that the stream brought older values after them.
    out_of_order: changes that came too early.
    changes, repeated: of the binlog, that came for the first time, or again.
    snapshot_rows: that were judged.
    turns: how often rows of a snapshot went back to a lower key within a connection. A table that is read in the order
        of its key has none; parts that are read side by side have one at nearly every chunk.
    rewinds: how often changes began to come again on a new connection.
    moves: how often they did within a connection, as after a move to another server.
    """

    older: list[str] = field(default_factory=list)
    ahead: list[str] = field(default_factory=list)
    out_of_order: list[str] = field(default_factory=list)
    changes: int = 0
    repeated: int = 0
    snapshot_rows: int = 0
    turns: int = 0
    rewinds: int = 0
    moves: int = 0


def judge(applied: Iterable[Applied]) -> Verdict:
    """Return the verdict. applied: by all processes of one client, in order."""
    judging = _Judging()
    for row in applied:
        if row.connection != judging.connection:
            judging.begin(row.connection)
        if row.snapshot:
            judging.read(row)
            if not judging.fresh:
                judging.settle()
        else:
            judging.change(row)
    judging.settle()
    return judging.found


class _Judging:
    """The changes of the binlog as far as they are known, and the place that the client has reached.

    fresh: the connection has brought no change yet, so its place is unknown.
    waiting: rows of the snapshot whose place is unknown.
    """

    def __init__(self) -> None:
        self.found = Verdict()
        self.connection = ""
        self.fresh = True
        self.waiting: list[Applied] = []
        self._key = 0  # of the snapshot's last row on this connection
        self._at = 0  # how many changes are behind the client
        self._numbers: dict[Change, int] = {}
        self._versions: dict[int, list[tuple[int, int]]] = defaultdict(list)  # key -> (number, state) of its changes

    def begin(self, connection: str) -> None:
        """Take a new connection."""
        self.connection, self.fresh, self._key = connection, True, 0

    def read(self, row: Applied) -> None:
        """Take a row of the snapshot."""
        assert row.new is not None
        self.found.turns += row.new[0] < self._key
        self._key = row.new[0]
        self.waiting.append(row)

    def change(self, row: Applied) -> None:
        """Take a change of the binlog."""
        change = (row.old, row.new)
        number = self._numbers.get(change)
        if number is None:
            number = len(self._numbers)
            if self._at != number:
                self.found.out_of_order.append(f"{change} is new, and {number - self._at} changes had to come again")
            self._learn(change, number)
        else:
            self.found.repeated += 1
            if number > self._at:
                self.found.out_of_order.append(
                    f"{change} came again, and {number - self._at} changes before it did not"
                )
            elif number < self._at:
                self.found.rewinds += self.fresh
                self.found.moves += not self.fresh
        self.fresh = False
        self._at = number
        self.settle()
        self._at = number + 1

    def _learn(self, change: Change, number: int) -> None:
        self._numbers[change] = number
        self.found.changes += 1
        old, new = change
        if old is not None and (new is None or new[0] != old[0]):
            self._met(old[0], number, _state(old[1], removed=True))
        if new is not None:
            self._met(new[0], number, _state(new[1]))

    def _met(self, key: int, number: int, state: int) -> None:
        before = self._versions[key]
        if before and before[-1][1] > state:
            self.found.older.append(f"the stream brought {_told(state)} of key {key} behind {_told(before[-1][1])}")
        before.append((number, state))

    def settle(self) -> None:
        """Judge the rows of the snapshot that have come since the last change, at the place of now."""
        for row in self.waiting:
            self.found.snapshot_rows += 1
            assert row.new is not None
            key, version = row.new
            changes = self._versions.get(key, [])
            index = bisect_left(changes, (self._at, 0))
            due, is_ = changes[index - 1][1] if index else _state(FIRST_VERSION), _state(version)
            if is_ != due:
                told = f"the snapshot brought {_told(is_)} of key {key}, the stream was at {_told(due)}"
                (self.found.older if is_ < due else self.found.ahead).append(told)
        self.waiting.clear()


def _state(version: int, *, removed: bool = False) -> int:
    """Return a number that grows with the changes of a key."""
    return 2 * version + removed


def _told(state: int) -> str:
    return f"version {state // 2}{' (removed)' if state % 2 else ''}"
