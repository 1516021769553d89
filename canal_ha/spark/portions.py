"""Portions: cuts consecutive segments into parts of bounded size; memory does not grow with a micro-batch. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from canal_ha.spark.manifest import SegmentInfo
from canal_ha.spark.offsets import transactions

PORTION_ROWS = 100_000
PORTION_BYTES = 64 << 20  # of raw entries


def split(segments: Sequence[SegmentInfo]) -> list[tuple[SegmentInfo, ...]]:
    """Split consecutive segments into portions.

    A transaction that fits into a portion is in one. A larger one begins a portion of its own.
    """
    parts: list[list[SegmentInfo]] = [[]]
    rows = size = 0

    def fits(more: Sequence[SegmentInfo]) -> bool:
        return (
            rows + sum(each.rows for each in more) <= PORTION_ROWS
            and size + sum(each.raw_bytes for each in more) <= PORTION_BYTES
        )

    for group in transactions(tuple(segments), unfinished=True):
        whole = fits(group)
        for number, segment in enumerate(group):
            if not (fits([segment]) and (whole or number)):
                parts.append([])
                rows = size = 0
            parts[-1].append(segment)
            rows, size = rows + segment.rows, size + segment.raw_bytes
    return [tuple(part) for part in parts if part]
