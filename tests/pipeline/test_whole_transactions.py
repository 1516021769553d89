"""Whole transactions are taken at once, with the same result as entry by entry."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from canal_ha.decode.kernel.entries import Entries
from canal_ha.decode.kernel.transactions import WholeTransactions
from canal_ha.model.position import LogPosition
from canal_ha.pipeline.intake import Intake, SegmentDraft
from tests.spark.entries import begin, ddl, end, frames, insert

PIECES = st.lists(st.sampled_from(["begin", "insert", "other table", "ddl", "end", "same offset"]), max_size=40)


class _Never:
    """Finds no entry durable, and never ends looking: the intake takes every entry by itself."""

    over = False

    def has(self, entry: Entries, start: int, position: LogPosition) -> bool:
        return False


def entries_of(pieces: list[str]) -> list[bytes]:
    """Return entries; offsets rise, except before `same offset`."""
    made, offset = [], 100
    for piece in pieces:
        offset += 0 if piece == "same offset" else 10
        match piece:
            case "begin":
                made.append(begin(offset))
            case "end":
                made.append(end(offset))
            case "ddl":
                made.append(ddl(offset, "ALTER TABLE t ADD c INT"))
            case _:
                made.append(insert(offset, offset, table="u" if piece == "other table" else "t"))
    return made


def taken(entries: list[bytes], sizes: list[int], *, one_by_one: bool) -> list[tuple[object, ...]]:
    """Return the drafts of an intake that gets the entries in batches of these sizes."""
    intake = Intake(200)
    intake.connected("server", _Never() if one_by_one else None)
    found: list[tuple[object, ...]] = []
    left = list(entries)
    for number, size in enumerate([*sizes, len(entries)]):
        batch, left = left[:size], left[size:]
        data = frames(batch)
        intake.add(number, Entries(data, 0, len(data)))
        while (draft := intake.take()) is not None:
            intake.made_durable(draft)
            found.append(shown(draft))
        found.append(tuple(intake.acknowledged()))
        found.append((intake.held_bytes, intake.held_rows, intake.unfinished))
    return found


def shown(draft: SegmentDraft) -> tuple[object, ...]:
    """Return what counts of a draft."""
    return (draft.frames, draft.rows, draft.ddl, draft.last, draft.newest_ms, draft.closed, draft.digests)


@given(PIECES, st.lists(st.integers(1, 12), max_size=8))
def test_drafts_are_those_of_single_entries(pieces: list[str], sizes: list[int]) -> None:
    """Any entries, in any batches, give the same drafts and acknowledgements."""
    entries = entries_of(pieces)
    assert taken(entries, sizes, one_by_one=False) == taken(entries, sizes, one_by_one=True)


def test_it_stops_behind_the_last_end() -> None:
    """Rows without an end, and a statement, are left to the caller."""
    data = frames([begin(1), insert(2, 2), end(3), insert(4, 4, table="u"), end(5), begin(6), insert(7, 7)])
    entries = Entries(data, 0, len(data))
    found = WholeTransactions(entries)
    assert (found.count, found.offset, found.rows) == (5, 5, {b"s\0t": 1, b"s\0u": 1})
    assert WholeTransactions(entries).count == 0
    assert entries.next()
    assert (entries.number, entries.offset) == (5, 6)
