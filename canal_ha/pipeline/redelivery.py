"""Recognises entries that come again after a (re)connect; see Intake. Pure.

A spool is compared with what comes: an entry is known if the spool has an equal one behind the cursor. Equal means all
bytes, so journal, offset, server id, time, GTIDs and rows. Positions alone prove nothing: binary logs can be reset,
the source can switch to another server, and the servers of a merged stream can have journals of the same names. Clocks
prove nothing either.

After a switch to another server, the same transactions have other positions. In GTID mode they are known by their
GTIDs, unless the last durable entry ends no transaction: its GTID says nothing about the rest. On MariaDB, CREATE TABLE
... SELECT is such a statement. Otherwise rows come twice.

With one source, everything that comes again comes before anything new. So a new entry ends the comparison; the order of
changes is kept even if a part of what comes again is unknown, because the spool has removed it. Sources of a merged
stream begin again each at a place of its own. There the comparison goes on, but only if the spool goes back to the
cursor.

A target keeps no entries. There an entry is known only if server, position and time all say so, or, from another
server, its GTID. One that contradicts makes it new: a row that comes twice is better than a lost one. This counts on
commits without a gap, which positions cannot show, because filters leave out rows between two of them; see Flow.

An entry of a merged stream does not name its source, and a source can switch to another server while the connection
goes on. So the servers of all sources have to be those of the last commit, the source of the writer's server has to be
read from no later position on, and a GTID that the target lacks contradicts, too. If two sources have the same server
id, GTIDs alone tell what is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

import canal_ha.decode.kernel.codes as k
from canal_ha.decode.kernel.entries import Entries
from canal_ha.model.gtid_set import KnownTransactions
from canal_ha.model.position import LogPosition, split_journal
from canal_ha.pipeline.intake import digest_of, snapshot_digest

MOST_BYTES = 32 << 20  # of entries that are compared; more than is in flight, also after a crash of a node


class UpTo:
    """Knows the entries up to a position. Only for reads of one server's binlog that end when the source switches."""

    def __init__(self, last: LogPosition | None) -> None:
        self._last = last
        self.over = last is None

    def has(self, entry: Entries, start: int, position: LogPosition) -> bool:
        """See Redelivery."""
        self.over = self._last is None or position.order > self._last.order
        return not self.over


class Spooled:
    """Knows the entries of a spool.

    segments: frames of its segments that may come again, newest first; read no further than needed.
    cursor: the server's cursor; None from a server that does not send it.
    gtids: set of the transactions that the spool has whole; "" if that is unknown. See ends_whole.
    """

    def __init__(self, segments: Iterable[bytes], cursor: LogPosition | None, gtids: str) -> None:
        self._merged = cursor is not None and bool(cursor.part)
        self._gtids = KnownTransactions(gtids) if gtids and not self._merged else None
        self._digests, reached = _behind(segments, cursor)
        if self._merged and not reached:
            self._digests.clear()
        self.over = not (self._digests or self._gtids)

    def has(self, entry: Entries, start: int, position: LogPosition) -> bool:
        """See Redelivery."""
        digest = digest_of(entry, start)
        if self._digests[digest]:
            self._digests[digest] -= 1
            if not self._digests[digest]:
                del self._digests[digest]
            self.over = not (self._digests or self._gtids)
            return True
        if _is_known(self._gtids, entry, start, position):
            return True
        self.over = not self._merged
        return False


class Committed:
    """Knows the entries that a target has, by its progress.

    Rows of a snapshot have offset and time of the transaction end before them, as many chunks as come there. Those
    before the last committed offset are known: a chunk that is read again comes at the end of the binlog. Those at that
    offset are known by their digests. After a crash of the node, a chunk can be cut in another way; then its rows are
    new, and some of them come twice.

    last: position of the last committed entry.
    newest_ms: newest time of any committed entry, ms since 1970.
    whole: whether the last entry ends a transaction.
    digests: of committed rows of a snapshot.
    cursor: the server's cursor; None from a server that does not send it.
    sources: of the connection from which the last entry came (see sources_of); "" if they are unknown.
    """

    def __init__(
        self,
        last: LogPosition,
        newest_ms: int,
        digests: Collection[bytes],
        cursor: LogPosition | None,
        *,
        whole: bool,
        sources: str = "",
    ) -> None:
        self._last = last
        self._newest_ms = newest_ms
        self._digests = digests
        parts = [] if cursor is None else [each for each in cursor.parts if _base(each) == _base(last)]
        of_writer = [each for each in parts if each.server_id == last.server_id]
        self._from = min((each.order[:3] for each in of_writer or parts), default=None)
        server = server_of(cursor)
        self._servers_known = bool(server and last.server)
        moved = self._servers_known and server != last.server
        # without the mark, the cursor may be in binary logs that were reset, with GTIDs that began again
        by_gtid = moved and whole and last.gtid and cursor and cursor.mark
        self._gtids = KnownTransactions(last.gtid or "") if by_gtid else None
        merged = cursor is not None and cursor.part
        self._source_known = not merged or len(of_writer) == 1
        self._merged_gtids = KnownTransactions(last.gtid) if merged and last.gtid else None
        same_sources = sources in ("", sources_of(cursor))
        self._positions_count = not moved and same_sources and not (self._from and self._from > last.order[:3])
        self.over = not (self._positions_count or self._gtids)

    def has(self, entry: Entries, start: int, position: LogPosition) -> bool:
        """See Redelivery."""
        known = self._positions_count and self._is_behind(entry, start, position)
        known = known or _is_known(self._gtids, entry, start, position)
        self.over = not known
        return known

    def _is_behind(self, entry: Entries, start: int, position: LogPosition) -> bool:
        last = self._last
        if _base(position) != _base(last) or position.timestamp_ms > self._newest_ms:
            return False
        if not self._servers_known and position.server_id != last.server_id:
            return False
        if self._from is not None and position.order[:3] < self._from:
            return False  # of another binlog, because the server reads this one from the cursor on
        if self._merged_gtids and self._merged_gtids.lacks(position.gtid or "", _own_gtid(entry)):
            return False
        if not (self._source_known or _has(self._merged_gtids, entry, position)):
            return False
        digest = snapshot_digest(entry, start)
        if digest and position.order[:3] >= last.order[:3]:
            return digest in self._digests
        return position.order <= last.order


def _is_known(known: KnownTransactions | None, entry: Entries, start: int, position: LogPosition) -> bool:
    """Return whether the transaction of an entry is known. Rows of a snapshot have the set of what is before them."""
    return _has(known, entry, position) and not snapshot_digest(entry, start)


def _has(known: KnownTransactions | None, entry: Entries, position: LogPosition) -> bool:
    return known is not None and known.has(position.gtid or "", _own_gtid(entry))


def _own_gtid(entry: Entries) -> str:
    return entry.text(entry.own_gtid_start, entry.own_gtid_stop)


def server_of(cursor: LogPosition | None) -> str:
    """Return whose binlog is read from the cursor; "" if that is unknown or if there are several servers."""
    return cursor.server if cursor is not None and not cursor.part else ""


def sources_of(cursor: LogPosition | None) -> str:
    """Return whose binlogs a merged stream reads from the cursor, with commas; "" of one source."""
    return ",".join(each.server for each in cursor.parts) if cursor is not None and cursor.part else ""


def _base(position: LogPosition) -> str:
    """Return the journal's name without its number."""
    return split_journal(position.journal)[0]


def _behind(segments: Iterable[bytes], cursor: LogPosition | None) -> tuple[Counter[bytes], bool]:
    """Return the digests of a spool's entries at and behind the cursor, and whether the spool goes back so far."""
    digests: Counter[bytes] = Counter()
    size, reached = 0, False
    for frames in segments:
        size += len(frames)
        for digest, is_cursor in reversed(list(_entries(frames, cursor))):
            if reached and not is_cursor:
                return digests, True
            reached = is_cursor
            digests[digest] += 1
        if size >= MOST_BYTES:
            break
    return digests, reached


def ends_whole(frames: bytes) -> bool:
    """Return whether the last entry ends a transaction. frames: of a segment."""
    entries, kind = Entries(frames, 0, len(frames)), 0
    while entries.next():
        kind = entries.kind
    return kind == k.TRANSACTIONEND


def _entries(frames: bytes, cursor: LogPosition | None) -> Iterator[tuple[bytes, bool]]:
    """Yield the digest of each entry, and whether the cursor is at its place."""
    entries, start = Entries(frames, 0, len(frames)), 0
    while entries.next():
        yield digest_of(entries, start), cursor is not None and _is_at(entries, cursor)
        start = entries.pos


def _is_at(entry: Entries, cursor: LogPosition) -> bool:
    return (
        entry.offset == cursor.offset
        and entry.text(entry.journal_start, entry.journal_stop) == cursor.journal
        and (not cursor.part or cursor.server_id in (None, entry.server_id))
    )
