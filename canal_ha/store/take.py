"""Which entries a GET takes from the segments, and the positions of its batch. Pure (docs/protocol.md#batches).

These functions read no entry's bytes and do not visit every entry.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import partial
from itertools import takewhile
from typing import NamedTuple

from canal_ha.model.batch import Batch, PositionRange
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import EntryKind, Segment

_BEGIN, _END, _DDL = map(int, (EntryKind.BEGIN, EntryKind.END, EntryKind.DDL))  # found faster than the members


class Piece(NamedTuple):
    """Entries first..last of a segment, last exclusive; never empty."""

    segment: Segment
    first: int
    last: int


def take_bytes(piece: Piece, left: int) -> tuple[int, int]:
    """Return how many entries from the front of `piece` fit a limit of `left` bytes, and how much of the limit remains.

    An entry is taken while `left` is not negative before it, so the last one may exceed the limit. `left` then comes
    back negative and no more entries may be taken.
    """
    segment, first, last = piece
    if left < 0:
        return 0, left
    before = segment.entry_bytes(0, first)
    stop = min(last, bisect_right(segment.entry_ends, before + left, first, last) + 1)
    return stop - first, left - segment.entry_bytes(first, stop)


def before_ddl(pieces: Sequence[Piece]) -> int:
    """Return how many leading entries go into one batch: those before the first DDL, or that DDL alone."""
    count = 0
    for segment, first, last in pieces:
        ddl = segment.kinds.find(_DDL, first, last)
        if ddl >= 0:
            return max(count + ddl - first, 1)
        count += last - first
    return count


def of_one_server(pieces: Sequence[Piece]) -> Sequence[Piece]:
    """Return the leading pieces from the same server. In a merged stream, pieces of several servers alternate."""
    first = pieces[0].segment
    if first.part:
        return pieces
    server = first.source.server
    return list(takewhile(lambda piece: piece.segment.source.server == server, pieces))


def ack_point(pieces: Sequence[Piece]) -> LogPosition | None:
    """Return where a cursor may go once these entries are acknowledged; None if they end no transaction.

    This is the last entry that is a transaction's end, a DDL, or a transaction's begin without a GTID. A DDL inside a
    transaction with a GTID does not count; see Segment.last_end. The first two are marked consumed, unless more entries
    of the same event (a compressed payload) follow; those are read again.
    A snapshot's chunk is at the transaction before it, so only its end counts.
    """
    for segment, first, last in reversed(pieces):
        kinds = segment.kinds
        if segment.chunk_end:
            if last == len(segment):
                return segment.chunk_end
            continue
        if kinds[last - 1] == _END:  # the usual case
            if last == len(kinds):
                return segment.end_consumed()
            return segment.position(last - 1, consumed=segment.ends_event(last - 1))
        done = segment.last_end(first, last)
        begin = kinds.rfind(_BEGIN, max(done, first), last)
        while begin >= 0 and segment.run_gtids[segment.run_of(begin)]:
            begin = kinds.rfind(_BEGIN, max(done, first), begin)
        if begin >= 0:
            return segment.position(begin)
        if done >= 0:
            return segment.position(done, consumed=segment.ends_event(done))
    return None


def batch_of(pieces: Sequence[Piece], end_seq: int) -> Batch:
    """Return the batch made of these consecutive pieces. end_seq: ring sequence of their last entry."""
    views = []
    entries = rows = 0
    for segment, first, last in pieces:
        views.append(segment.frames_view(first, last))
        entries += last - first
        rows += segment.rows(first, last)
    positions = PositionRange(end_seq, _progress(pieces), partial(_positions, pieces))
    return Batch(positions, tuple(views), entries, rows, sum(map(len, views)), tuple(pieces))


def batch_of_whole(segments: Sequence[Segment], end_seq: int) -> Batch:
    """Return the batch made of all entries of some segments. end_seq: ring sequence of their last entry."""
    views, pieces = [], []
    entries = rows = size_bytes = 0
    progress = ""
    for segment in segments:
        ends = segment.ends
        count, size = len(ends), ends[-1]
        views.append(memoryview(segment.frames)[:size])
        pieces.append(Piece(segment, 0, count))
        entries += count
        rows += segment.row_ends[-1]
        size_bytes += size
        if segment.chunk_end:
            progress = segment.chunk_end.snapshot
    plain = segment.kinds[-1] == _END and not segment.chunk_end
    positions = PositionRange(end_seq, progress, partial(_end_of, segment) if plain else partial(_positions, pieces))
    return Batch(positions, tuple(views), entries, rows, size_bytes, tuple(pieces))


def _positions(pieces: Sequence[Piece]) -> tuple[LogPosition | None, LogPosition | None]:
    """Return the position of the last entry and the ack point. None for the first if they differ only in `consumed`."""
    segment, _, last = pieces[-1]
    ack = ack_point(pieces)
    if ack is not None and segment.kinds[last - 1] == _END and not segment.chunk_end:
        return None, ack
    return segment.position(last - 1), ack


def _end_of(segment: Segment) -> tuple[None, LogPosition]:
    """Return what `_positions` does of all entries of a segment that ends with the end of a transaction."""
    return None, segment.end_consumed()


def _progress(pieces: Sequence[Piece]) -> str:
    """Return the progress of the newest chunk of a snapshot that ends in these pieces; "" if none does."""
    for segment, _, last in reversed(pieces):
        if segment.chunk_end and last == len(segment):
            return segment.chunk_end.snapshot
    return ""


def canal_text(position: LogPosition) -> str:
    """Return a position in the text form of canal's error messages."""
    unknown = "<null>"
    server_id = unknown if position.server_id is None else position.server_id
    gtid = unknown if position.gtid is None else position.gtid
    return (
        f"LogPosition[identity=LogIdentity[sourceAddress={position.address}:{position.port},slaveId=-1],"
        f"postion=EntryPosition[included=false,journalName={position.journal},position={position.offset},"
        f"serverId={server_id},gtid={gtid},timestamp={position.timestamp_ms}]]"
    )
