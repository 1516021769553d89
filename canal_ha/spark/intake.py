"""Intake: batches in, pieces for the spool out, and which batches are acknowledged after each. Pure.

A piece ends where a transaction ends. Only a transaction that outgrows a segment is cut, and never between entries that
share an offset (a compressed payload): such a piece may be acknowledged, so that the server's ring has room for the
rest, but no micro-batch ends with it.

After a (re)connect the server delivers again what it does not know to be acknowledged. Entries are dropped until the
first one that is new: of another server id, or behind the last durable position, or newer than every durable entry
(after a reset of the binary logs positions begin anew). The newest time counts, not the last one's: a long transaction
is logged with old times.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from canal_ha.client.message import parse
from canal_ha.client.rows import row_change
from canal_ha.model.entry import DDL_TYPES, EventType
from canal_ha.model.position import LogPosition, split_journal
from canal_ha.wire.messages import varint
from canal_ha.wire.proto.entry_protocol_pb2 import ROWDATA, TRANSACTIONBEGIN, TRANSACTIONEND, Entry, Header

_FRAME_TAG = b"\x12"  # field 2 of Messages, length-delimited
_ROWS = frozenset({EventType.INSERT, EventType.UPDATE, EventType.DELETE})
_XA = frozenset({EventType.XACOMMIT, EventType.XAROLLBACK})
_ROWS_COUNT = "rowsCount"


@dataclass(slots=True)
class Piece:
    """What becomes one segment. first: how many entries of the connection came before it."""

    frames: list[bytes] = field(default_factory=list)
    size_bytes: int = 0
    rows: Counter[str] = field(default_factory=Counter)
    ddl: dict[str, str] = field(default_factory=dict)
    last: LogPosition | None = None
    newest_ms: int = 0
    first: int = 0
    closed: bool = False

    def join(self, later: Piece) -> None:
        """Append another piece."""
        if not self.frames:
            self.first = later.first
        self.frames += later.frames
        self.size_bytes += later.size_bytes
        self.rows += later.rows
        self.ddl |= later.ddl
        self.last = later.last or self.last
        self.newest_ms = later.newest_ms


class Intake:
    """last, newest_ms: of the spool's manifest; segment_bytes: when a transaction is cut."""

    def __init__(self, last: LogPosition | None, newest_ms: int, segment_bytes: int) -> None:
        self._durable = last
        self._newest_ms = newest_ms
        self._segment_bytes = segment_bytes
        self.connected()

    def connected(self) -> None:
        """A new connection: what is held comes again, and what is durable may."""
        self._trimming = self._durable is not None
        self._whole = Piece()  # up to the last end of a transaction
        self._open = Piece()  # behind it, up to the last change of offset
        self._run = Piece()  # entries of the present offset
        self._batches: deque[tuple[int, int]] = deque()
        self._count = 0
        self._in_transaction = False
        self._ends_seen = False
        self._place: tuple[str, int] = ("", -1)
        self._sub = 0
        self._seen_ms = self._newest_ms
        self._seen_server = self._durable.server_id if self._durable else None

    @property
    def held_bytes(self) -> int:
        """What arrived and is not durable."""
        return self._whole.size_bytes + self._open.size_bytes + self._run.size_bytes

    @property
    def unfinished(self) -> bool:
        """Whether a transaction's end is awaited."""
        return bool(self._open.frames or self._run.frames)

    def add(self, batch_id: int, entries: Iterable[bytes]) -> None:
        """A batch as it came. Raises RemoteProtocolError for what is no entry."""
        for raw in entries:
            self._count += 1
            self._entry(raw)
        self._batches.append((batch_id, self._count))

    def quiet(self) -> None:
        """Nothing came for a while. Where the server sends no ends of transactions at all, this is one."""
        if not self._ends_seen:
            self._close()

    def take(self) -> Piece | None:
        """What is to be made durable now."""
        if self._whole.frames:
            piece, self._whole = self._whole, Piece()
            piece.closed = True
            return piece
        if self._open.frames and self._open.size_bytes + self._run.size_bytes >= self._segment_bytes:
            piece, self._open = self._open, Piece()
            return piece
        return None

    def made_durable(self, piece: Piece) -> None:
        """A piece that `take` gave is in the spool."""
        assert piece.last is not None
        self._durable = piece.last
        self._newest_ms = piece.newest_ms

    def acknowledged(self) -> list[int]:
        """Batches of which every entry is durable, or dropped because it was; each is told once, oldest first."""
        done = []
        while self._batches and self._batches[0][1] <= self._durable_count:
            done.append(self._batches.popleft()[0])
        return done

    @property
    def _durable_count(self) -> int:
        """How many entries of this connection came before the first that is held."""
        firsts = [piece.first for piece in (self._whole, self._open, self._run) if piece.frames]
        return min(firsts, default=self._count)

    def _entry(self, raw: bytes) -> None:
        entry = parse(raw)
        kind, header = entry.entryType, entry.header
        if kind not in (TRANSACTIONBEGIN, ROWDATA, TRANSACTIONEND):
            return  # heartbeats are nowhere in the binlog
        place = (header.logfileName, header.logfileOffset)
        self._sub = self._sub + 1 if place == self._place else 0
        self._place = place
        position = LogPosition(
            journal=place[0],
            offset=place[1],
            sub_index=self._sub,
            timestamp_ms=header.executeTime,
            server_id=header.serverId,
            gtid=header.gtid,
        )
        if not self._trimming or self._is_new(position):
            self._trimming = False
            self._keep(raw, entry, position)
        self._follow_transaction(entry)

    def _is_new(self, position: LogPosition) -> bool:
        last = self._durable
        assert last is not None
        same_source = position.server_id == last.server_id and base(position) == base(last)
        return not same_source or position.order > last.order or position.timestamp_ms > self._newest_ms

    def _keep(self, raw: bytes, entry: Entry, position: LogPosition) -> None:
        before = self._run.last
        if before is not None and (before.journal, before.offset) != (position.journal, position.offset):
            self._open.join(self._run)
            self._run = Piece()
        run = self._run
        same_source = position.server_id == self._seen_server
        self._seen_ms = max(self._seen_ms, position.timestamp_ms) if same_source else position.timestamp_ms
        self._seen_server = position.server_id
        frame = _FRAME_TAG + varint(len(raw)) + raw
        if not run.frames:
            run.first = self._count - 1
        run.frames.append(frame)
        run.size_bytes += len(frame)
        run.last = position
        run.newest_ms = self._seen_ms
        if entry.entryType == ROWDATA:
            header = entry.header
            name = f"{header.schemaName}.{header.tableName}"
            run.rows[name] += rows_count(header)
            if EventType(header.eventType) in DDL_TYPES:
                run.ddl[name] = row_change(entry).sql

    def _follow_transaction(self, entry: Entry) -> None:
        kind = entry.entryType
        if kind == TRANSACTIONBEGIN:
            self._in_transaction = True
        elif kind == TRANSACTIONEND:
            self._in_transaction, self._ends_seen = False, True
            self._close()
        elif not self._in_transaction and self._stands_alone(entry):
            self._close()

    @staticmethod
    def _stands_alone(entry: Entry) -> bool:
        event = EventType(entry.header.eventType)
        if event in DDL_TYPES or event in _XA:
            return True
        return event not in _ROWS and row_change(entry).isDdl  # a row's own statement is QUERY as well, but no DDL

    def _close(self) -> None:
        for piece in (self._open, self._run):
            if piece.frames:
                self._whole.join(piece)
        self._open, self._run = Piece(), Piece()


def base(position: LogPosition) -> str:
    """The journal's name without its number."""
    return split_journal(position.journal)[0]


def rows_count(header: Header) -> int:
    """Rows of an entry as its header tells them; a statement is one."""
    for prop in header.props:
        if prop.key == _ROWS_COUNT and prop.value.isdigit():
            return int(prop.value)
    return 1
