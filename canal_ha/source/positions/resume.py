"""Where a dump resumes after its connection broke, and which entries it already delivered. Pure.

A dump always begins at a transaction boundary. If pieces of a large transaction were delivered before the break, the
source sends them again, and they are removed here.
"""

from __future__ import annotations

from dataclasses import replace

from canal_ha.model.position import LogPosition, split_journal
from canal_ha.model.segment import Segment

OFFSET_MAX = 2**32 - 1  # the dump command has 32 bits for the position
FIRST_OFFSET = 4  # behind the magic number of a binlog file

_LAST_SUB = 2**31
_Place = tuple[str, int, int, str | None, LogPosition]  # journal, offset, time in ms, GTID set; its server as here


def dump_offset(offset: int) -> int:
    """Return where a dump has to begin for this offset: the journal's first event if the command cannot name it."""
    return offset if offset <= OFFSET_MAX else FIRST_OFFSET


class Resume:
    """Everything before `at` was decoded and accepted. start: inclusive unless it is consumed."""

    def __init__(self, start: LogPosition) -> None:
        self._now: LogPosition | _Place  # `at`, or what it is made of: one object, so no thread sees a mixture of two
        self._made: tuple[_Place, LogPosition] | None = None  # of which place it was made
        self.at = start
        self.delivered_any = False
        # journal, offset, sub-index of the last entry that must not be delivered (again)
        self._delivered = (start.journal, start.offset, _LAST_SUB) if start.consumed else None
        self._skip = self._delivered

    @property
    def at(self) -> LogPosition:
        """The newest boundary. Any thread: it is made when somebody asks, because each transaction moves it."""
        now, made = self._now, self._made
        if not isinstance(now, tuple):
            return now
        if made is not None and made[0] is now:
            return made[1]
        journal, offset, timestamp_ms, gtid, base = now
        at = LogPosition(
            journal=journal,
            offset=offset,
            timestamp_ms=timestamp_ms,
            server_id=base.server_id,
            gtid=gtid,
            address=base.address,
            port=base.port,
            server=base.server,
        )
        self._made = now, at  # the boundary may have moved meanwhile: then nobody takes this one
        return at

    @at.setter
    def at(self, at: LogPosition) -> None:
        self._now = at

    @property
    def all_before(self) -> bool:
        """Whether everything that was delivered lies before `at`; a break may leave `at` behind."""
        last = (self.at.journal, self.at.offset, _LAST_SUB if self.at.consumed else -1)
        return self._delivered is None or not _is_later(self._delivered, last)

    @property
    def last_delivered(self) -> LogPosition | None:
        """The event delivered last, consumed; None if nothing is known to be delivered."""
        if self._delivered is None:
            return None
        journal, offset, _ = self._delivered
        return LogPosition(journal, offset, consumed=True, server=self.at.server)

    def begin(self) -> LogPosition:
        """Return where to dump from. From then on `new` removes entries up to the last one delivered."""
        self._skip = self._delivered
        if self.at.offset <= OFFSET_MAX:
            return self.at
        # The command cannot express this offset (one huge transaction makes such a file): read the whole journal.
        before = (self.at.journal, self.at.offset - 1, _LAST_SUB)
        if self._skip is None or _is_later(before, self._skip):
            self._skip = before
        return replace(self.at, offset=FIRST_OFFSET, consumed=False)

    def shows(self, journal: str, position: int) -> bool:
        """Return whether everything behind this boundary is new, so that `new` removes nothing of it."""
        return self._skip is None or _is_later((journal, position, 0), self._skip)

    def new(self, segment: Segment) -> Segment | None:
        """Return the part of a segment that was not delivered yet; None if there is none."""
        if self._skip is None:
            return segment
        first = _first_behind(segment, self._skip)
        if first == len(segment):
            return None
        self._skip = None
        return segment.slice(first, len(segment))

    def delivered(self, segment: Segment) -> None:
        """Record that these entries were accepted."""
        self.delivered_any = True
        self._delivered = (segment.journal, segment.offsets[-1], segment.subs[-1])

    def passed(self, journal: str, position: int, timestamp_ms: int = 0, gtid: str = "") -> None:
        """Record a boundary. It never moves back: a dump from an earlier position has to catch up first.

        journal, position: the boundary.
        timestamp_ms, gtid: 0 and "" keep those of the boundary before.
        """
        now = self._now
        if not isinstance(now, tuple):
            now = now.journal, now.offset, now.timestamp_ms, now.gtid, now
        at_journal, at_offset, at_ms, at_gtid, base = now
        if position > at_offset if journal == at_journal else _is_later((journal, position, 0), (at_journal, 0, 0)):
            self._now = journal, position, timestamp_ms or at_ms, gtid or at_gtid, base
        elif gtid and not self.at.consumed and (journal, position) == (self.at.journal, self.at.offset):
            self.at = replace(self.at, gtid=gtid)  # behind a ROTATE, whose own boundary came without a set


def _is_later(one: tuple[str, int, int], other: tuple[str, int, int]) -> bool:
    if one[0] == other[0]:
        return one[1:] > other[1:]
    base, number = split_journal(one[0])
    other_base, other_number = split_journal(other[0])
    return base != other_base or number > other_number  # a renamed binlog starts its numbers again


def _first_behind(segment: Segment, last: tuple[str, int, int]) -> int:
    """Return the index of the first entry behind `last`; a segment's entries are in binlog order."""
    journal, offset, sub = last
    if segment.journal != journal:
        return 0 if _is_later((segment.journal, 0, 0), last) else len(segment)
    return segment.first_behind(offset, sub)
