"""Filters out what a stream already delivered from another server. Pure.

A lagging standby writes these transactions into its binlog after the position where the stream continues.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol

from canal_ha.decode.kernel.entries import Entries, own_gtid_ranges
from canal_ha.decode.kernel.gtid import Gtids
from canal_ha.model.gtid_set import GtidSet
from canal_ha.model.position import LogPosition, split_journal
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
    """Drops the transactions of a GTID set, `text`, wherever they come. Needs entries that carry their set.

    An entry of MySQL also carries the GTID of its own transaction, unless that is anonymous: then it is new.
    """

    def __init__(self, gtid_set: str, kept: LogPosition | None = None, until: tuple[str, int] | None = None) -> None:
        """Begin before the next transaction.

        kept: where a transaction begins that comes all the same; None for none.
        until: journal and offset behind which no transaction of the set can come; None if any can.
        """
        self.text = gtid_set
        self._kept = kept and (kept.journal, kept.offset)
        self._until = until and (split_journal(until[0]), until[1])
        self._over = False
        self._domains = _Domains(gtid_set) if _last_of(gtid_set) else None
        self._set = GtidSet(gtid_set)
        self._inside = False  # a transaction of MySQL has begun and not ended
        self._dropping = False

    def new(self, segment: Segment) -> Sequence[Segment]:
        """See Delivered."""
        if self._over:
            return (segment,)
        kept = range(len(segment)) if self._all_new(segment) else self._new_entries(segment)
        end = split_journal(segment.journal), segment.offsets[-1]
        self._over = self._until is not None and end >= self._until and not segment.cut
        if len(kept) == len(segment):
            return (segment,)
        return (segment.select(kept),) if kept else ()

    def _all_new(self, segment: Segment) -> bool:
        """Return whether a segment certainly has no transaction of the set. Most segments have none."""
        if self._domains or (self._inside and self._dropping):
            return False
        kinds = segment.kinds
        if self._set.meets(own_gtid_ranges(segment.frames, segment.ends, kinds, self._inside)):
            return False
        begin, end = kinds.rfind(EntryKind.BEGIN), kinds.rfind(EntryKind.END)
        self._inside = begin > end or (end < 0 and self._inside)
        self._dropping = False
        return True

    def _new_entries(self, segment: Segment) -> list[int]:
        kept = []
        for run, first in enumerate(segment.run_starts):
            last = segment.run_starts[run + 1] if run + 1 < len(segment.run_starts) else len(segment)
            text, origin = segment.run_gtids[run], segment.run_server_ids[run]
            for index in range(first, last):
                kind = segment.kinds[index]
                drops = self._domains.has(kind, text, origin) if self._domains else self._has(segment, index, kind)
                if not drops:
                    kept.append(index)
        return kept

    def _has(self, segment: Segment, index: int, kind: int) -> bool:
        if kind == EntryKind.BEGIN or not self._inside:
            own = own_gtid(segment.entry(index))
            here = segment.journal, segment.offsets[index]
            self._dropping = bool(own) and self._set.has(own) and here != self._kept
        if kind in (EntryKind.BEGIN, EntryKind.END):
            self._inside = kind == EntryKind.BEGIN
        return self._dropping


class _Domains:
    """Which transactions a GTID set of MariaDB has.

    An entry carries the set that its transaction has made. Its own GTID is what has moved in it since the last entry,
    and has the entry's server id. A transaction without entries, such as FLUSH TABLES, may have moved other domains. If
    that leaves a choice, the transaction counts as new, and so do all later ones of these domains: a target that
    applies an old row again must apply the newer rows again.
    """

    def __init__(self, gtid_set: str) -> None:
        self._text = Gtids(gtid_set).text
        self._last = _last_of(self._text)
        self._inside = False  # in a transaction, or among entries outside one that share a GTID
        self._has = True  # of the set's last transaction

    def has(self, kind: int, text: str, origin: int) -> bool:
        """Return whether the set has the transaction of the next entry.

        kind: of the entry.
        text: the set including its transaction, as the decoder counts it; "" if there is none.
        origin: server id of the entry.
        """
        if kind == EntryKind.BEGIN or not self._inside or text != self._text:
            self._has = bool(text) and (self._has if text == self._text else self._had(text, origin))
            self._inside = True
            self._text = text
        if kind == EntryKind.END:
            self._inside = False
        return self._has

    def _had(self, text: str, origin: int) -> bool:
        before = _last_of(self._text)
        moved = {domain: last for domain, last in _last_of(text).items() if before.get(domain) != last}
        own = {domain: last for domain, last in moved.items() if last[0] == origin} or moved
        had = bool(own) and all(number <= self._last.get(domain, (0, 0))[1] for domain, (_, number) in own.items())
        if not had:
            self._last |= {domain: last for domain, last in own.items() if last[1] < self._last.get(domain, last)[1]}
        return had


def both(one: str, other: str) -> str:
    """Join two GTID sets of one stream: for MariaDB the later GTID of each domain, for MySQL `one`.

    A MySQL set `one` already includes `other`, because it grew from it.
    """
    last, items = _last_of(one), {item.split("-")[0]: item for item in one.split(",")}
    if not last:
        return one
    for item in other.split(","):
        for domain, (_, number) in _last_of(item).items():
            if number > last.get(domain, (0, 0))[1]:
                items[str(domain)] = item
    return ",".join(items.values())


def own_gtid(entry: bytes) -> str:
    """Return the GTID of an entry's transaction, as MySQL writes it; "" if the header of the entry has none."""
    walk = Entries(entry, 0, 0)
    walk.only(entry)
    return walk.text(walk.own_gtid_start, walk.own_gtid_stop)


def _last_of(text: str) -> dict[int, tuple[int, int]]:
    """Return server id and sequence number of the last GTID of each of MariaDB's domains; {} for a MySQL set."""
    items = [item.split("-") for item in text.split(",") if item.count("-") == 2 and ":" not in item]
    return {int(domain): (int(server), int(number)) for domain, server, number in items}
