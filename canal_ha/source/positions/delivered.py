"""Filters out what a stream already delivered from another server. Pure.

A lagging standby writes these transactions into its binlog after the position where the stream continues.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol

from canal_ha.decode.kernel.gtid import Gtids
from canal_ha.model.segment import EntryKind, Segment
from canal_ha.source.positions.fingerprints import Fingerprint, Unit, Units
from canal_ha.source.positions.matching import NOTHING, CertainlyNew

_HELD_MOST_BYTES = 8 << 20  # of a transaction whose end is awaited; larger ones are delivered
_LATE_S = 60  # an expected transaction that is later than this by its origin's clock is lost


class Delivered(Protocol):
    """Takes segments and returns their new parts, in the same order."""

    def new(self, segment: Segment) -> Sequence[Segment]: ...


class ExpectedTransactions:
    """Drops these transactions until another one comes that may have been delivered before them.

    That one and all later ones are delivered: a target that applies an old row again must apply the newer rows again
    too. A transaction that is certainly new does not end the dropping.
    """

    def __init__(self, expected: Iterable[Fingerprint], new: CertainlyNew = NOTHING) -> None:
        self._expected = Counter(expected)
        self._seconds = {each.second for each in self._expected}
        self._until_s = max(self._seconds, default=0) + _LATE_S
        self._new = new
        self._units = Units()
        self._held: list[Segment] = []  # of a transaction that has not ended

    @property
    def over(self) -> bool:
        """Whether no transaction is expected any more."""
        return not self._expected

    def new(self, segment: Segment) -> Sequence[Segment]:
        """See Delivered. Holds the pieces of a transaction until its end."""
        if not self._expected:
            return (segment,)
        new: list[Segment] = []
        first = 0  # entry behind the last unit
        for unit in self._units.feed(segment):
            if not self._expected:
                break
            held, self._held = self._held, []
            if not self._drops(unit):
                new += [*held, segment.slice(first, unit.index + 1)]
            first = unit.index + 1
        if first < len(segment):
            self._held.append(segment.slice(first, len(segment)))
        if sum(held.ends[-1] for held in self._held) > _HELD_MOST_BYTES:
            self._expected.clear()
        if not self._expected:
            new += self._held
            self._held = []
        return new

    def _drops(self, unit: Unit[Segment]) -> bool:
        """Return whether a unit was delivered; if it may have been, expect nothing more."""
        fingerprint = unit.fingerprint() if unit.second in self._seconds else None
        if fingerprint and self._expected[fingerprint]:
            self._expected -= Counter((fingerprint,))
            return True
        if unit.second > self._until_s or not self._new.has(unit):
            self._expected.clear()
        return False


class Executed:
    """Drops the transactions of a GTID set, `text`, wherever they come. Needs entries that carry their set."""

    def __init__(self, gtid_set: str) -> None:
        self.text = gtid_set
        self._text = Gtids(gtid_set).text
        self._numbers = _numbers(self._text)
        self._inside = False  # in a transaction, or among entries outside one that share a GTID
        self._dropping = False

    def new(self, segment: Segment) -> Sequence[Segment]:
        """See Delivered."""
        kept = []
        for run, first in enumerate(segment.run_starts):
            last = segment.run_starts[run + 1] if run + 1 < len(segment.run_starts) else len(segment)
            text = segment.run_gtids[run]
            for index in range(first, last):
                kind = segment.kinds[index]
                if kind == EntryKind.BEGIN or not self._inside or text != self._text:
                    self._dropping = self._is_known(text)
                    self._inside = True
                    self._text = text
                if not self._dropping:
                    kept.append(index)
                if kind == EntryKind.END:
                    self._inside = False
        if len(kept) == len(segment):
            return (segment,)
        return (segment.select(kept),) if kept else ()

    def _is_known(self, text: str) -> bool:
        """Return whether a transaction was already executed. text: the set including it, as the decoder counts it."""
        if not text:
            return False
        if text == self._text:
            return True
        before = _numbers(self._text)
        moved = {domain: number for domain, number in _numbers(text).items() if before.get(domain) != number}
        known = bool(moved) and all(number <= self._numbers.get(domain, 0) for domain, number in moved.items())
        if not known:
            self._numbers |= moved
        return known


def both(one: str, other: str) -> str:
    """Join two GTID sets of one stream: for MariaDB the later GTID of each domain, for MySQL `one`.

    A MySQL set `one` already includes `other`, because it grew from it.
    """
    numbers, items = _numbers(one), {item.split("-")[0]: item for item in one.split(",")}
    if not numbers:
        return one
    for item in other.split(","):
        for domain, number in _numbers(item).items():
            if number > numbers.get(domain, 0):
                items[str(domain)] = item
    return ",".join(items.values())


def _numbers(text: str) -> dict[int, int]:
    """Return MariaDB's sequence numbers by domain; {} for a MySQL set."""
    items = [item.split("-") for item in text.split(",") if item.count("-") == 2 and ":" not in item]
    return {int(domain): int(number) for domain, _, number in items}
