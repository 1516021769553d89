"""Skipping what a client has in hand already, when a stream re-opens before the end of its last batch."""

from __future__ import annotations

from array import array
from bisect import bisect_right

from canal_ha.model.position import LogPosition
from canal_ha.model.segment import Segment


def after(segment: Segment, last: LogPosition) -> Segment | None:
    """The part of `segment` that lies behind the entry at `last`; None when nothing does.

    Both come from one source; entries of a segment are in binlog order, so a search finds the cut.
    """
    head = LogPosition(journal=segment.journal, offset=0).order[:2]
    if head > last.order[:2]:
        return segment
    if head < last.order[:2]:
        return None
    target = (last.offset, last.sub_index)
    cut = bisect_right(range(len(segment)), target, key=lambda index: (segment.offsets[index], segment.subs[index]))
    if cut == 0:
        return segment
    return None if cut == len(segment) else _from(segment, cut)


def _from(segment: Segment, cut: int) -> Segment:
    base = segment.ends[cut - 1]
    run = segment.run_of(cut)
    return Segment(
        source=segment.source,
        journal=segment.journal,
        frames=memoryview(segment.frames)[base:],
        ends=array("q", [end - base for end in segment.ends[cut:]]),
        offsets=segment.offsets[cut:],
        subs=segment.subs[cut:],
        timestamps=segment.timestamps[cut:],
        event_lengths=segment.event_lengths[cut:],
        row_counts=segment.row_counts[cut:],
        kinds=segment.kinds[cut:],
        run_starts=array("q", [0, *(start - cut for start in segment.run_starts[run + 1 :])]),
        run_server_ids=segment.run_server_ids[run:],
        run_gtids=segment.run_gtids[run:],
    )
