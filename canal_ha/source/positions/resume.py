"""Where a dump begins again after its connection broke, and which entries it has delivered already. Pure.

A dump always begins at a boundary between transactions. Of a large transaction pieces may have been delivered before
the break; they come again from the source and are cut off here.
"""

from __future__ import annotations

from dataclasses import replace

from canal_ha.model.position import LogPosition, split_journal
from canal_ha.model.segment import Segment
from canal_ha.sink import select

OFFSET_MAX = 2**32 - 1  # the dump command has 32 bits for the position
FIRST_OFFSET = 4  # behind the magic number of a binlog file

_LAST_SUB = 2**31


class Resume:
    """`at`: everything before it was decoded, and what came of it accepted. start: inclusive unless it is consumed."""

    def __init__(self, start: LogPosition) -> None:
        self.at = start
        self.delivered_any = False
        # journal, offset, sub-index of the last entry that must not be delivered (again)
        self._delivered = (start.journal, start.offset, _LAST_SUB) if start.consumed else None
        self._skip = self._delivered

    def begin(self) -> LogPosition:
        """Where to dump from now; entries that were delivered are cut off until the first one that was not."""
        self._skip = self._delivered
        if self.at.offset <= OFFSET_MAX:
            return self.at
        # Beyond what the command can say (one huge transaction makes such a file): read the journal from its beginning.
        before = (self.at.journal, self.at.offset - 1, _LAST_SUB)
        if self._skip is None or _is_later(before, self._skip):
            self._skip = before
        return replace(self.at, offset=FIRST_OFFSET, consumed=False)

    def new(self, segment: Segment) -> Segment | None:
        """What of a segment was not delivered yet."""
        if self._skip is None:
            return segment
        first = _first_behind(segment, self._skip)
        if first == len(segment):
            return None
        self._skip = None
        return select(segment, range(first, len(segment))) if first else segment

    def delivered(self, segment: Segment) -> None:
        """These entries were accepted."""
        self.delivered_any = True
        self._delivered = (segment.journal, segment.offsets[-1], segment.subs[-1])

    def passed(self, journal: str, position: int, timestamp_ms: int = 0, gtid: str = "") -> None:
        """The stream is at this boundary. It never moves back: a dump from an earlier place has to catch up first.

        timestamp_ms, gtid: 0 and "" keep those of the boundary before.
        """
        if _is_later((journal, position, 0), (self.at.journal, self.at.offset, 0)):
            self.at = LogPosition(
                journal=journal,
                offset=position,
                timestamp_ms=timestamp_ms or self.at.timestamp_ms,
                server_id=self.at.server_id,
                gtid=gtid or self.at.gtid,
                address=self.at.address,
                port=self.at.port,
                server=self.at.server,
            )


def _is_later(one: tuple[str, int, int], other: tuple[str, int, int]) -> bool:
    if one[0] == other[0]:
        return one[1:] > other[1:]
    base, number = split_journal(one[0])
    other_base, other_number = split_journal(other[0])
    return base != other_base or number > other_number  # a renamed binlog begins anew


def _first_behind(segment: Segment, last: tuple[str, int, int]) -> int:
    """Index of the first entry behind `last`; entries of a segment are in binlog order."""
    journal, offset, sub = last
    if segment.journal != journal:
        return 0 if _is_later((segment.journal, 0, 0), last) else len(segment)
    return segment.first_behind(offset, sub)
