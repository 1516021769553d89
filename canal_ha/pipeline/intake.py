"""Intake: turns batches into segments for the spool and decides which batches may be acknowledged. Pure.

A segment ends at the end of a transaction. Only a transaction larger than a segment is split, and never between entries
that share an offset (a compressed payload). Such a part may be acknowledged, so that the server's ring has room for the
rest, but no micro-batch ends with it.

After a (re)connect the server delivers again what it does not know to be acknowledged. Entries that are durable are
dropped; see Redelivery.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Protocol

import canal_ha.decode.kernel.codes as k
from canal_ha.decode.kernel.entries import Entries
from canal_ha.decode.kernel.primitives import Broken
from canal_ha.decode.kernel.transactions import WholeTransactions
from canal_ha.errors import RemoteProtocolError
from canal_ha.model.entry import DDL_TYPES, EntryType, EventType
from canal_ha.model.position import LogPosition

_KEPT = frozenset({EntryType.TRANSACTIONBEGIN, EntryType.ROWDATA, EntryType.TRANSACTIONEND})
_ALONE = DDL_TYPES | {EventType.XACOMMIT, EventType.XAROLLBACK}


@dataclass(slots=True)
class SegmentDraft:
    """A segment that is being collected.

    stretches: bytes, start and stop of its frames; adjacent frames are joined.
    size_bytes: bytes of its frames.
    rows: number of rows by `schema.table`; a statement counts as one.
    ddl: latest statement by `schema.table`.
    last: position of the last entry.
    newest_ms: newest time of its entries, ms since 1970.
    first: number of entries of the connection before it.
    closed: it ends at the end of a transaction, or with what counts as one.
    whole: its last entry ends a transaction.
    statements: it has an entry without rows: DDL, or a change of rows that the source logged as a statement.
    digests: of its entries with rows of a snapshot.
    """

    stretches: list[tuple[bytes, int, int]] = field(default_factory=list)
    size_bytes: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    ddl: dict[str, str] = field(default_factory=dict)
    last: LogPosition | None = None
    newest_ms: int = 0
    first: int = 0
    closed: bool = False
    whole: bool = False
    statements: bool = False
    digests: list[bytes] = field(default_factory=list)

    @property
    def frames(self) -> bytes:
        """A copy of the frames: field 2 of Messages, once for each entry."""
        return b"".join(self.views)

    @property
    def views(self) -> list[memoryview]:
        """The frames in pieces, without a copy."""
        return [memoryview(data)[start:stop] for data, start, stop in self.stretches]

    def put(self, data: bytes, start: int, stop: int) -> None:
        """Append frames."""
        self.size_bytes += stop - start
        if self.stretches:
            before, begun, end = self.stretches[-1]
            if before is data and end == start:
                self.stretches[-1] = (data, begun, stop)
                return
        self.stretches.append((data, start, stop))

    def join(self, later: SegmentDraft) -> None:
        """Append another draft."""
        if not self.stretches:
            self.first = later.first
        for data, start, stop in later.stretches:
            self.put(data, start, stop)
        for name, count in later.rows.items():
            self.rows[name] = self.rows.get(name, 0) + count
        self.ddl |= later.ddl
        self.statements = self.statements or later.statements
        self.digests += later.digests
        if later.stretches:
            self.last, self.whole = later.last, later.whole
        self.newest_ms = max(self.newest_ms, later.newest_ms)


class Redelivery(Protocol):
    """Recognises entries that are durable. They come in the order in which they came before."""

    def has(self, entry: Entries, start: int, position: LogPosition) -> bool:
        """Return whether an entry is durable. start: of its frame. position: of the entry."""

    @property
    def over(self) -> bool:
        """Whether no other durable entry can come."""


class Intake:
    """The intake of one spool. segment_bytes: a larger transaction is split."""

    def __init__(self, segment_bytes: int) -> None:
        self._segment_bytes = segment_bytes
        self.durable: LogPosition | None = None  # the last position that `made_durable` was told
        self.connected()

    def connected(self, server: str = "", again: Redelivery | None = None) -> None:
        """Start with a new connection: entries that are not durable are delivered again, and durable ones may be.

        server: whose binlog is read, as in LogPosition; "" if it is unknown or if there are several.
        again: recognises the durable entries; None if no entry is durable.
        """
        self._server = server
        self._again = again
        self._cut: LogPosition | None = None
        self._before_cut = SegmentDraft()
        self._whole = SegmentDraft()  # entries up to the last end of a transaction, behind the cut if there was one
        self._open = SegmentDraft()  # entries after that, up to the last change of offset
        self._run = SegmentDraft()  # entries of the current offset
        self._batches: deque[tuple[int, int]] = deque()
        self._count = 0
        self._in_transaction = False
        self._spilling = False
        self._ends_seen = False
        self._place: tuple[str, int] = ("", -1)
        self._sub = 0

    def cut_at(self, place: LogPosition) -> None:
        """End a segment before the first transaction at or behind this place in the binlog of the connection."""
        self._cut = place

    @property
    def held_bytes(self) -> int:
        """Bytes that arrived and are not durable."""
        return sum(piece.size_bytes for piece in self._pieces)

    @property
    def held_rows(self) -> int:
        """Rows and statements that arrived and are not durable."""
        return sum(sum(piece.rows.values()) for piece in self._pieces)

    @property
    def newest_ms(self) -> int:
        """Newest time of what arrived and is not durable, ms since 1970; 0 without any."""
        return max(piece.newest_ms for piece in self._pieces)

    @property
    def unfinished(self) -> LogPosition | None:
        """Position of the last entry of an unfinished transaction; None without one."""
        return self._run.last or self._open.last

    def add(self, batch_id: int, entries: Entries) -> None:
        """Add a batch, from its first entry. Raises RemoteProtocolError for an invalid entry."""
        try:
            self._whole_transactions(entries)
            start = entries.pos
            while entries.next():
                self._count += 1
                if entries.kind in _KEPT:  # heartbeats are not in the binlog
                    self._entry(entries, start)
                    if entries.kind == EntryType.TRANSACTIONEND:
                        self._whole_transactions(entries)
                start = entries.pos
        except Broken as error:
            raise RemoteProtocolError(f"invalid entry: {error}") from error
        self._batches.append((batch_id, self._count))

    def quiet(self) -> None:
        """Handle a pause. It ends a transaction if the server never sends transaction ends."""
        if not self._ends_seen and not self._in_transaction:
            self._close()

    def overdue(self) -> None:
        """Handle a long pause: pass the entries on to the spool, so that their batches can be acknowledged.

        After a transaction begin, the rest is still awaited. Without one, the server may omit most begins and ends
        (canal.instance.filter.transaction.entry), so the pause counts as an end.
        """
        if self._in_transaction:
            self._spilling = True
        else:
            self._close()

    def ended(self) -> None:
        """Handle the end of a read: what has come is complete."""
        self._close()

    def take(self) -> SegmentDraft | None:
        """Return the next draft to make durable; None if there is none."""
        if self._before_cut.stretches:
            piece, self._before_cut = self._before_cut, SegmentDraft()
            piece.closed = True
            return piece
        if self._whole.stretches:
            piece, self._whole = self._whole, SegmentDraft()
            piece.closed = True
            return piece
        large = self._open.size_bytes + self._run.size_bytes >= self._segment_bytes
        if self._open.stretches and (large or self._spilling):
            piece, self._open = self._open, SegmentDraft()
            return piece
        self._spilling = False
        return None

    def made_durable(self, piece: SegmentDraft) -> None:
        """Note that a draft from `take` is in the spool."""
        self.durable = piece.last

    def acknowledged(self) -> list[int]:
        """Return the batches whose entries are all durable or dropped; each batch once, oldest first."""
        done = []
        while self._batches and self._batches[0][1] <= self._durable_count:
            done.append(self._batches.popleft()[0])
        return done

    @property
    def _durable_count(self) -> int:
        """The number of entries of this connection before the first that is not durable."""
        return min((piece.first for piece in self._pieces if piece.stretches), default=self._count)

    @property
    def _pieces(self) -> tuple[SegmentDraft, ...]:
        return self._before_cut, self._whole, self._open, self._run

    def _whole_transactions(self, entries: Entries) -> None:
        """Take whole transactions at once, if none of their entries can be durable and no cut is due."""
        if self._cut is not None or (self._again is not None and not self._again.over):
            return
        found = WholeTransactions(entries)
        if not found.count:
            return
        self._close()  # what came of the first one before
        self._in_transaction = False
        place = _place_of(entries, found)
        same = place == self._place and found.sub + 1 == found.count  # all of them are at the place before
        self._sub = found.sub + self._sub + 1 if same else found.sub
        self._place = place
        self._ends_seen = True
        piece = SegmentDraft(
            rows={".".join(name.decode().split("\0", 1)): rows for name, rows in found.rows.items()},
            last=self._position(entries, found),
            newest_ms=found.newest_ms,
            first=self._count,
            whole=True,
        )
        piece.put(entries.src, found.start, found.stop)
        self._count += found.count
        self._whole.join(piece)

    def _entry(self, entry: Entries, start: int) -> None:
        place = _place_of(entry, entry)
        self._sub = self._sub + 1 if place == self._place else 0
        self._place = place
        position = self._position(entry, entry)
        rows = entry.change() if entry.kind == k.ROWDATA else 0
        if self._again is not None and self._again.over:
            self._again = None
        if self._again is None or not self._again.has(entry, start, position):
            self._keep(entry, start, rows, position)
        self._follow_transaction(entry, rows)

    def _position(self, entries: Entries, header: Entries | WholeTransactions) -> LogPosition:
        """Return the position of the entry at the current place. header: its fields, with texts in `entries`."""
        journal, offset = self._place
        return LogPosition(
            journal=journal,
            offset=offset,
            sub_index=self._sub,
            timestamp_ms=header.time_ms,
            server_id=header.server_id,
            gtid=entries.text(header.gtid_start, header.gtid_stop),
            server=self._server,
        )

    def _keep(self, entry: Entries, start: int, rows: int, position: LogPosition) -> None:
        if self._cut is not None and not self._in_transaction and position.order >= self._cut.order:
            self._close()
            self._before_cut, self._whole, self._cut = self._whole, SegmentDraft(), None
        before = self._run.last
        if before is not None and (before.offset, before.journal) != (position.offset, position.journal):
            self._open.join(self._run)
            self._run = SegmentDraft()
        run = self._run
        if not run.stretches:
            run.first = self._count - 1
        run.put(entry.src, start, entry.pos)
        run.last, run.whole = position, entry.kind == EntryType.TRANSACTIONEND
        run.newest_ms = max(run.newest_ms, position.timestamp_ms)
        if digest := snapshot_digest(entry, start):
            run.digests.append(digest)
        if entry.kind == k.ROWDATA:
            schema = entry.text(entry.schema_start, entry.schema_stop)
            name = f"{schema}.{entry.text(entry.table_start, entry.table_stop)}"
            run.rows[name] = run.rows.get(name, 0) + max(rows, 1)
            run.statements = run.statements or not rows
            if entry.event_type in DDL_TYPES:
                run.ddl[name] = entry.text(entry.sql_start, entry.sql_stop)

    def _follow_transaction(self, entry: Entries, rows: int) -> None:
        if entry.kind == EntryType.TRANSACTIONBEGIN:
            self._in_transaction = True
        elif entry.kind == EntryType.TRANSACTIONEND:
            self._in_transaction, self._ends_seen = False, True
            self._close()
        elif not self._in_transaction and not rows and (entry.is_ddl or entry.event_type in _ALONE):
            self._close()  # the statement of a row change is QUERY too, but not DDL

    def _close(self) -> None:
        for piece in (self._open, self._run):
            if piece.stretches:
                self._whole.join(piece)
        self._open, self._run = SegmentDraft(), SegmentDraft()


def _place_of(entries: Entries, header: Entries | WholeTransactions) -> tuple[str, int]:
    """Return journal and offset of a header, with texts in `entries`."""
    return entries.text(header.journal_start, header.journal_stop), header.offset


def snapshot_digest(entry: Entries, start: int) -> bytes:
    """Return the digest of an entry with rows of a snapshot; b"" for any other. start: of its frame."""
    return digest_of(entry, start) if entry.snapshot_stop > entry.snapshot_start else b""


def digest_of(entry: Entries, start: int) -> bytes:
    """Return the digest of the entry's frame. start: of the frame."""
    return blake2b(memoryview(entry.src)[start : entry.pos], digest_size=16).digest()
