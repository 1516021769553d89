"""Filters out what a stream already delivered from another server. Pure.

A lagging standby writes these transactions into its binlog after the position where the stream continues.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol

from canal_ha.decode.kernel.gtid import Gtids
from canal_ha.model.gtid_set import GtidSet
from canal_ha.model.segment import EntryKind, Segment
from canal_ha.source.positions.fingerprints import Fingerprint, Unit, Units
from canal_ha.source.positions.matching import NOTHING, CertainlyNew

_HELD_MOST_BYTES = 8 << 20  # of a transaction whose end is awaited; larger ones are delivered
_OWN_GTID = b"\x0a\x08curtGtid\x12"  # the key of Header.props, and the tag of its value; the size of the value follows
_ALONE = (EntryKind.DDL, EntryKind.QUERY)  # statements that may be transactions of their own, without begin and end
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

    An entry of MySQL carries its own GTID, too. An entry of MariaDB does not: its GTID is what has moved in the set
    since the last entry, and has the entry's server id. A transaction without entries, such as FLUSH TABLES, may have
    moved other parts of the set.
    """

    def __init__(self, gtid_set: str) -> None:
        self.text = gtid_set
        self._set = GtidSet(gtid_set)
        self._text = Gtids(gtid_set).text
        self._last = _last_of(self._text)
        self._inside = False  # in a transaction, or among entries outside one that share a GTID
        self._dropping = False

    def new(self, segment: Segment) -> Sequence[Segment]:
        """See Delivered."""
        kept = []
        for run, first in enumerate(segment.run_starts):
            last = segment.run_starts[run + 1] if run + 1 < len(segment.run_starts) else len(segment)
            text, origin = segment.run_gtids[run], segment.run_server_ids[run]
            for index in range(first, last):
                kind = segment.kinds[index]
                begins = kind == EntryKind.BEGIN or not self._inside or text != self._text
                asks = bool(text) and (begins or kind in _ALONE)
                if own := own_gtid(segment.entry(index)) if asks else "":
                    self._dropping = self._set.has(own)
                elif begins:
                    self._dropping = self._was_executed(text, origin)
                self._inside = True
                self._text = text
                if not self._dropping:
                    kept.append(index)
                if kind == EntryKind.END:
                    self._inside = False
        if len(kept) == len(segment):
            return (segment,)
        return (segment.select(kept),) if kept else ()

    def _was_executed(self, text: str, origin: int) -> bool:
        """Return whether a transaction without its own GTID was already executed.

        text: the set including it, as the decoder counts it.
        origin: server id of its entries.
        """
        if not text:
            return False
        if text == self._text:
            return True
        before = _last_of(self._text)
        moved = {domain: last for domain, last in _last_of(text).items() if before.get(domain) != last}
        own = {domain: last for domain, last in moved.items() if last[0] == origin} or moved
        known = bool(own) and all(number <= self._last.get(domain, (0, 0))[1] for domain, (_, number) in own.items())
        if not known:
            self._last |= own
        return known


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
    """Return the GTID of an entry's transaction, as MySQL writes it; "" if the entry has none."""
    header = entry[: _header_end(entry)]
    at = header.find(_OWN_GTID)
    if at < 0:
        return ""
    at += len(_OWN_GTID)
    return header[at + 1 : at + 1 + header[at]].decode()


def _header_end(entry: bytes) -> int:
    """Return where the header of a serialized entry ends; 0 if the entry does not begin with one."""
    if not entry.startswith(b"\x0a"):
        return 0
    size = shift = 0
    for at in range(1, min(len(entry), 6)):
        size |= (entry[at] & 0x7F) << shift
        shift += 7
        if entry[at] < 0x80:
            return at + 1 + size
    return 0


def _last_of(text: str) -> dict[int, tuple[int, int]]:
    """Return server id and sequence number of the last GTID of each of MariaDB's domains; {} for a MySQL set."""
    items = [item.split("-") for item in text.split(",") if item.count("-") == 2 and ":" not in item]
    return {int(domain): (int(server), int(number)) for domain, server, number in items}
