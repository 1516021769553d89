"""Intake: turns batches into segments for the spool and decides which batches may be acknowledged. Pure.

A segment ends at the end of a transaction. Only a transaction larger than a segment is split, and never between entries
that share an offset (a compressed payload). Such a part may be acknowledged, so that the server's ring has room for the
rest, but no micro-batch ends with it.

After a (re)connect the server delivers again what it does not know to be acknowledged. Entries are dropped until the
first new one. A known entry lies between the cursor and the last durable position, has the server id of that position,
and is not newer than every durable entry. Any other entry is new. After a switch to a standby, or a reset of the binary
logs, positions start again; an entry before the cursor shows that. If the cursor belongs to another server than the
last durable position, nothing is dropped: a duplicate row is better than a lost one. The newest time counts instead of
the last one, because a long transaction is logged with old times.

The rows of a snapshot have offset and time of the transaction end before them, as many chunks as come there. Those
that come before the last durable offset are known: a chunk that is read again comes at the end of the binlog. Those at
that offset are known if an equal entry is durable. No two entries of a snapshot are equal, because each has other keys.
Those of a table without a key name their piece. Equal ones of a piece share an offset, so they become durable together.
After a crash of the node, a chunk can be cut in another way; then its rows are kept, and some of them are doubled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice

import canal_ha.decode.kernel.codes as k
from canal_ha.decode.kernel.entries import Entries
from canal_ha.decode.kernel.primitives import Broken
from canal_ha.errors import RemoteProtocolError
from canal_ha.model.entry import DDL_TYPES, EntryType, EventType
from canal_ha.model.position import LogPosition, split_journal

Order = tuple[str, int, int, bool, int]  # LogPosition.order

DIGESTS_KEPT = 10_000  # entries, far more than are in flight
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
    newest_ms: newest time of any entry so far, ms since 1970.
    first: number of entries of the connection before it.
    closed: it ends at the end of a transaction.
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
    digests: list[bytes] = field(default_factory=list)

    @property
    def frames(self) -> bytes:
        """A copy of the frames: field 2 of Messages, once for each entry."""
        return b"".join([memoryview(data)[start:stop] for data, start, stop in self.stretches])

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
        self.digests += later.digests
        self.last = later.last or self.last
        self.newest_ms = later.newest_ms


class Intake:
    """The intake of one spool; call `connected` before the first `add`.

    last: last position in the spool; None for an empty spool.
    newest_ms: newest time of any entry in the spool, ms since 1970.
    segment_bytes: a larger transaction is split.
    digests: of the entries with rows of a snapshot at the end of the spool, oldest first; see `snapshot_digests`.
    """

    def __init__(
        self, last: LogPosition | None, newest_ms: int, segment_bytes: int, digests: Iterable[bytes] = ()
    ) -> None:
        self._durable = last
        self._newest_ms = newest_ms
        self._segment_bytes = segment_bytes
        self._digests = dict.fromkeys(digests)  # durable, oldest first
        self.connected(None)

    def connected(self, cursor: LogPosition | None) -> None:
        """Start with a new connection: entries that are not durable are delivered again, and durable ones may be.

        cursor: the server's cursor; None from a server that does not send it.
        """
        self._server = (
            cursor.server if cursor is not None and not cursor.part else ""
        )  # entries of one of several sources do not name their server
        self._from = self._first_again(cursor)
        self._trimming = self._may_come_again()
        self._whole = SegmentDraft()  # entries up to the last end of a transaction
        self._open = SegmentDraft()  # entries after that, up to the last change of offset
        self._run = SegmentDraft()  # entries of the current offset
        self._batches: deque[tuple[int, int]] = deque()
        self._count = 0
        self._in_transaction = False
        self._spilling = False
        self._ends_seen = False
        self._place: tuple[str, int] = ("", -1)
        self._sub = 0
        self._seen_ms = self._newest_ms
        self._seen_server = self._durable.server_id if self._durable else None

    @property
    def held_bytes(self) -> int:
        """Bytes that arrived and are not durable."""
        return self._whole.size_bytes + self._open.size_bytes + self._run.size_bytes

    @property
    def unfinished(self) -> LogPosition | None:
        """Position of the last entry of an unfinished transaction; None without one."""
        return self._run.last or self._open.last

    def add(self, batch_id: int, entries: Entries) -> None:
        """Add a batch, from its first entry. Raises RemoteProtocolError for an invalid entry."""
        try:
            start = entries.pos
            while entries.next():
                self._count += 1
                if entries.kind in _KEPT:  # heartbeats are not in the binlog
                    self._entry(entries, start)
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
        assert piece.last is not None
        self._durable = piece.last
        self._newest_ms = piece.newest_ms
        self._digests.update(dict.fromkeys(piece.digests))
        for digest in list(islice(self._digests, max(len(self._digests) - DIGESTS_KEPT, 0))):
            del self._digests[digest]

    def acknowledged(self) -> list[int]:
        """Return the batches whose entries are all durable or dropped; each batch once, oldest first."""
        done = []
        while self._batches and self._batches[0][1] <= self._durable_count:
            done.append(self._batches.popleft()[0])
        return done

    @property
    def _durable_count(self) -> int:
        """The number of entries of this connection before the first that is not durable."""
        firsts = [piece.first for piece in (self._whole, self._open, self._run) if piece.stretches]
        return min(firsts, default=self._count)

    def _entry(self, entry: Entries, start: int) -> None:
        place = (entry.text(entry.journal_start, entry.journal_stop), entry.offset)
        self._sub = self._sub + 1 if place == self._place else 0
        self._place = place
        position = LogPosition(
            journal=place[0],
            offset=place[1],
            sub_index=self._sub,
            timestamp_ms=entry.time_ms,
            server_id=entry.server_id,
            gtid=entry.text(entry.gtid_start, entry.gtid_stop),
            server=self._server,
        )
        rows = entry.change() if entry.kind == k.ROWDATA else 0
        digest = _digest(entry, start)
        if not self._trimming or self._is_new(position, digest):
            self._trimming = False
            self._keep(entry, start, rows, position)
            if digest:
                self._run.digests.append(digest)
        self._follow_transaction(entry, rows)

    def _first_again(self, cursor: LogPosition | None) -> Order | None:
        """Return the position from which durable entries may be delivered again; None if unknown."""
        last = self._durable
        if last is None or cursor is None:
            return None
        return min((each.order for each in cursor.parts if base(each) == base(last)), default=None)

    def _may_come_again(self) -> bool:
        """Return whether durable entries may be delivered again."""
        last = self._durable
        if last is None:
            return False
        if last.server and self._server and last.server != self._server:
            return False  # positions of two servers cannot be compared
        return self._from is None or self._from <= last.order

    def _is_new(self, position: LogPosition, digest: bytes) -> bool:
        last = self._durable
        assert last is not None
        if position.server_id != last.server_id or base(position) != base(last):
            return True
        if self._from is not None and _event(position.order) < _event(self._from):
            return True  # of another binlog, because the server reads this one from the cursor on
        if digest and _event(position.order) >= _event(last.order):
            return digest not in self._digests
        return position.order > last.order or position.timestamp_ms > self._newest_ms

    def _keep(self, entry: Entries, start: int, rows: int, position: LogPosition) -> None:
        before = self._run.last
        if before is not None and (before.offset, before.journal) != (position.offset, position.journal):
            self._open.join(self._run)
            self._run = SegmentDraft()
        run = self._run
        same_source = position.server_id == self._seen_server
        self._seen_ms = max(self._seen_ms, position.timestamp_ms) if same_source else position.timestamp_ms
        self._seen_server = position.server_id
        if not run.stretches:
            run.first = self._count - 1
        run.put(entry.src, start, entry.pos)
        run.last = position
        run.newest_ms = self._seen_ms
        if entry.kind == k.ROWDATA:
            schema = entry.text(entry.schema_start, entry.schema_stop)
            name = f"{schema}.{entry.text(entry.table_start, entry.table_stop)}"
            run.rows[name] = run.rows.get(name, 0) + max(rows, 1)
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


def snapshot_digests(frames: bytes) -> list[bytes]:
    """Return the digests of a segment's entries with rows of a snapshot, in order."""
    found = []
    entries, start = Entries(frames, 0, len(frames)), 0
    while entries.next():
        found.append(_digest(entries, start))
        start = entries.pos
    return [digest for digest in found if digest]


def _digest(entry: Entries, start: int) -> bytes:
    """Return the digest of an entry with rows of a snapshot; b"" for any other. start: of its frame."""
    if entry.snapshot_stop <= entry.snapshot_start:
        return b""
    return blake2b(memoryview(entry.src)[start : entry.pos], digest_size=16).digest()


def _event(order: Order) -> tuple[str, int, int]:
    """Return journal and offset of the event."""
    return order[:3]


def base(position: LogPosition) -> str:
    """Return the journal's name without its number."""
    return split_journal(position.journal)[0]
