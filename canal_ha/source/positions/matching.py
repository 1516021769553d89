"""Finds where a stream continues among the transactions of another server's binlog. Pure.

Usually both servers commit in one order. Then reading continues behind the newest delivered transaction that the other
server has. The order differs where a replica applies in parallel without keeping the commit order, and where two
masters write and replicate from each other. There a transaction that nobody delivered can lie before a delivered one.
Then reading continues before the first transaction that may be undelivered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from canal_ha.model.segment import Segment
from canal_ha.source.positions.fingerprints import Fingerprint, Unit

SLACK_S = 2  # event times are whole seconds, and can be a second out of order


@dataclass(frozen=True, slots=True)
class CertainlyNew:
    """Tells that a transaction is certainly new, although its fingerprint is unknown.

    Only the last transactions are known by fingerprint. A transaction without one is older than these or new. It is
    new if it ended later than everything before them can have.

    origin: server id of the delivered transactions, whose clock gave the times; None: nothing is certain.
    after_s: seconds since 1970.
    """

    origin: int | None = None
    after_s: int = 0

    def has(self, unit: Unit[Segment]) -> bool:
        """Return whether a transaction without a known fingerprint is certainly new."""
        return self.origin is not None and unit.second > self.after_s and unit.origin == self.origin


NOTHING = CertainlyNew()


@dataclass(frozen=True, slots=True)
class Match:
    """Where to continue.

    behind: the transaction after which to continue; None: at the first transaction that was seen.
    expected: delivered transactions that may come after this place, oldest first.
    new: which of the others are certainly new.
    missing: how many delivered transactions behind the newest known one the other server does not have (yet).
    again: at most how many transactions are repeated.
    """

    behind: Unit[Segment] | None
    expected: tuple[Fingerprint, ...]
    new: CertainlyNew
    missing: int
    again: int = 0


@dataclass(frozen=True, slots=True)
class _Before:
    """A place before an unknown transaction.

    number: of that transaction.
    behind: the transaction before it; None if it is the first one.
    left: fingerprints that were not seen before it.
    """

    number: int
    behind: Unit[Segment] | None
    left: Counter[Fingerprint]


class Matching:
    """Compares the last delivered transactions with the units of another binlog, seen in order.

    A unit is known if its fingerprint is one of theirs. If a fingerprint occurs more than once, the longest run up to
    it counts, then the first: repeating rows is better than losing them.
    """

    def __init__(
        self,
        fingerprints: Sequence[Fingerprint],
        origin: int | None = None,
        last_of: Mapping[int, Fingerprint] | None = None,
        *,
        ordered: bool = True,
    ) -> None:
        """Start without any unit.

        fingerprints: of the last delivered transactions, oldest first.
        origin: server id where the last one was first written; None if unknown.
        last_of: by server id, a transaction of each origin; all that the origin wrote before it were delivered, and it
            was, too, unless it is any since a time.
        ordered: whether both servers keep the order of the transactions of each origin.
        """
        self._wanted = fingerprints
        self._origin = origin
        self._ordered = ordered
        self._seconds = {each.second for each in fingerprints}
        self._places: dict[Fingerprint, list[int]] = {}
        for place, fingerprint in enumerate(fingerprints):
            self._places.setdefault(fingerprint, []).append(place)
        self._late_s = max(self._seconds, default=0) - SLACK_S
        self._last_of = dict(last_of or {})
        self._seconds |= {each.second for each in self._last_of.values()}
        self._number = 0  # of the unit seen last
        self._previous: Unit[Segment] | None = None
        # the best run
        self._runs: dict[int, int] = {}
        self._best = (-1, 0)  # its last place, its length
        self._end: tuple[int, Unit[Segment] | None] = (0, None)  # its last unit
        # known units, each fingerprint as often as it was delivered
        self._left = Counter(fingerprints)
        self._last: tuple[int, Unit[Segment] | None] = (0, None)
        self._last_place = -1
        self._mixed = False  # they came in another order, or with an unknown unit between them
        self._origins: set[int] = set()
        # the first unknown unit of each kind
        self._between: _Before | None = None  # the first one after a known one
        # the first one about as new as the newest known one; without an order, the first of all
        self._late: _Before | None = None
        self._of_origin: dict[int, _Before] = {}
        self._oldest_s: dict[int, int] = {}  # of the units of each origin

    def see(self, unit: Unit[Segment]) -> None:
        """Look at the next unit of the binlog."""
        self._number += 1
        fingerprint = unit.fingerprint() if unit.second in self._seconds else None
        places = self._places.get(fingerprint, []) if fingerprint else []
        self._pass_delivered(unit)
        delivered = self._ends_delivered(unit, fingerprint)
        self._runs = {place: self._runs.get(place - 1, 0) + 1 for place in places}
        for place, run in self._runs.items():
            if (place, run) > self._best:
                self._best, self._end = (place, run), (self._number, unit)
        if fingerprint and self._left[fingerprint]:
            place = places[len(places) - self._left[fingerprint]]
            self._left[fingerprint] -= 1
            self._mixed |= place < self._last_place or self._between is not None
            self._last, self._last_place = (self._number, unit), place
            self._origins.add(unit.origin)
        else:
            self._unknown(unit)
        if delivered:
            self._of_origin.pop(unit.origin, None)
        self._previous = unit

    def _pass_delivered(self, unit: Unit[Segment]) -> None:
        """Note that all units of an origin before this one were delivered, if it is the first since the known time."""
        last = self._last_of.get(unit.origin)
        if last and last.is_any and unit.second >= last.second:
            del self._last_of[unit.origin]
            self._of_origin.pop(unit.origin, None)

    def _ends_delivered(self, unit: Unit[Segment], fingerprint: Fingerprint | None) -> bool:
        """Return whether this is the last delivered unit of its origin, so that all before it were delivered.

        An equal unit can come behind that one. So the first one counts, and only if the origin has units here that are
        older: otherwise that one may lie before the first unit seen.
        """
        origin, second = unit.origin, unit.second
        oldest_s = self._oldest_s[origin] = min(second, self._oldest_s.get(origin, second))
        if fingerprint is None or self._last_of.get(origin) != fingerprint:
            return False
        del self._last_of[origin]
        return oldest_s < second - SLACK_S

    def _unknown(self, unit: Unit[Segment]) -> None:
        if self._between is None and self._last[1] is not None:
            self._between = self._here()
        if self._late is None and (not self._ordered or unit.second >= self._late_s):
            self._late = self._here()
        if unit.origin not in self._of_origin:
            self._of_origin[unit.origin] = self._here()

    def _here(self) -> _Before:
        return _Before(self._number, self._previous, +self._left)

    def place(self) -> Match | None:
        """Return where to continue; None if no unit is known.

        In the same order: behind the newest known unit. Otherwise before the first unknown unit that may be
        undelivered, if it is earlier. An origin of which no unit is known may have written any of its units since the
        last delivered transaction, but none before its own last delivered one.
        """
        if self._last[1] is None:
            return None
        maybe = [before for origin, before in self._of_origin.items() if origin not in self._origins]
        missing = len(self._wanted) - 1 - self._best[0]
        if self._ordered and (self._best[1] == self._best[0] + 1 or not self._mixed):
            number, unit = self._end
            expected = tuple(self._wanted[self._best[0] + 1 :])
        else:
            number, unit = self._last
            expected = self._single(self._left)
            maybe += [before for before in (self._between, self._late) if before is not None]
        first = min(maybe, key=lambda before: before.number, default=None)
        if first is None or first.number > number:
            return Match(unit, expected, self._new(), missing)
        return Match(first.behind, self._single(first.left), self._new(), missing, number - first.number + 1)

    def _single(self, left: Counter[Fingerprint]) -> tuple[Fingerprint, ...]:
        """Return what is left of the fingerprints that were delivered once; equal ones could be new transactions."""
        return tuple(each for each in self._wanted if left[each] and len(self._places[each]) == 1)

    def _new(self) -> CertainlyNew:
        """Every known unit is of one origin: then its clock tells what is later than the oldest known ones."""
        if self._origins != {self._origin}:
            return NOTHING
        oldest = self._wanted[: (len(self._wanted) + 1) // 2]  # several, because a long statement ends with its start
        return CertainlyNew(self._origin, max(each.second for each in oldest) + SLACK_S)
