"""Hold: where a stream stops while all rows of a table are put into it at one place. Pure.

The rows are those of one consistent read, and without a key none of them can be left out. So they stand for one place
of the stream: behind every change of the table that the read sees, and before every other one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable

from canal_ha.decode.kernel.entries import Entries
from canal_ha.decode.plans import table_names
from canal_ha.model.position import split_journal
from canal_ha.model.segment import EntryKind, Segment
from canal_ha.source.snapshot.statements import concerns
from canal_ha.source.snapshot.watermark import Reached

Touches = Callable[[Segment], Iterable[int]]


class Hold:
    """See the module.

    void: the read cannot be used: nobody knows whether it sees some change, or another server took over.
    """

    def __init__(self, touches: Touches) -> None:
        """touches: returns the indexes of those entries of a segment that may change the table."""
        self.void = False
        self.end: Reached | None = None
        self._touches = touches
        self._doubt: Reached | None = None

    def limit(self, doubt: Reached, end: Reached) -> None:
        """Say what the read sees.

        doubt: it sees every change before this place.
        end: it sees no change from this place on; between the two, nobody knows.
        """
        self._doubt, self.end = doubt, end

    def passes(self, segment: Segment) -> int:
        """Return how many of the segment's first entries may pass before all rows are in the stream."""
        count = len(segment)
        if self.void:
            return count
        touched = list(self._touches(segment))
        if self._doubt is None or self.end is None:
            return 0 if touched or segment.cut else count
        before = _before(segment, self.end)
        if any(_before(segment, self._doubt) <= index < before for index in touched):
            self.void = True
            return count
        # behind the end nothing may be cut: rows cannot enter inside a transaction
        if before < count and (segment.cut or any(index >= before for index in touched)):
            return before
        return count


def touching(schema: str, table: str) -> Touches:
    """Return a function that tells which entries of a segment change rows of a table, or may alter it."""
    names = table_names(schema, table)

    def touches(segment: Segment) -> Iterable[int]:
        frames = segment.frames
        named = names in (frames if isinstance(frames, bytes | bytearray) else bytes(frames))
        for index, kind in enumerate(segment.kinds):
            if kind == EntryKind.ROWS:
                if named and _is_of(segment.entry(index), names):
                    yield index
            elif kind in (EntryKind.DDL, EntryKind.QUERY) and concerns(
                segment.entry(index), schema=schema, table=table
            ):
                yield index

    return touches


def _is_of(raw: bytes, names: bytes) -> bool:
    """Return whether an entry is of the table whose names are encoded so."""
    if names not in raw:
        return False
    entry = Entries(b"", 0, 0)
    entry.only(raw)
    schema = entry.text(entry.schema_start, entry.schema_stop)
    return table_names(schema, entry.text(entry.table_start, entry.table_stop)) == names


def _before(segment: Segment, place: Reached) -> int:
    """Return how many entries of a segment start before a place."""
    here, there = split_journal(segment.journal), split_journal(place.journal)
    if here != there:
        return len(segment) if here < there else 0
    return bisect_left(segment.offsets, place.offset)
