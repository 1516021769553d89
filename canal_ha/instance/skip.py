"""Skipping what a client has in hand already, when a stream re-opens before the end of its last batch."""

from __future__ import annotations

from canal_ha.model.position import LogPosition, split_journal
from canal_ha.model.segment import Segment
from canal_ha.sink import select


def after(segment: Segment, last: LogPosition) -> Segment | None:
    """The part of `segment` that lies behind the entry at `last`; None when nothing does, all of another server's.

    last: of a merged stream it tells of every source.
    """
    if segment.part:
        stood = last.of(segment.part)
        if stood is None:
            return segment
        last = stood
    if last.server and segment.source.server and last.server != segment.source.server:
        return segment  # the positions of two servers say nothing of each other
    here, there = split_journal(segment.journal), split_journal(last.journal)
    if here > there:
        return segment
    cut = len(segment) if here < there else segment.first_behind(last.offset, last.sub_index)
    if cut == 0:
        return segment
    return None if cut == len(segment) else select(segment, range(cut, len(segment)))
