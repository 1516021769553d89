"""A source in memory: two servers with one sequence of transactions, and what an instance sees of them.

Rows are numbered from 1, in the order of their commits. The two servers write the same transactions at different
places. An entry's bytes are its number and, for the begin and the end of a transaction, a flag.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random

from canal_ha.config.model import InstanceConfig, WhenLost
from canal_ha.errors import LocalProtocolError, RingClosed, SourceUnavailable
from canal_ha.instance.alarms import Outlook
from canal_ha.instance.feed import FeedRequest, Move
from canal_ha.instance.origin import KeepServers
from canal_ha.instance.status import SourceFacts
from canal_ha.model.place import Place
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import EntryKind, Segment
from canal_ha.model.segment import Source as SegmentSource
from canal_ha.source.server.switch import Role, first
from lab.simulation.threads import ANSWERS, Blocked
from lab.simulation.time import Process, Timer

PIECE_ROWS = 12  # a larger transaction becomes visible in pieces of so many rows
JOURNAL_TRANSACTIONS = 25
STEP = 10  # bytes from one entry to the next
BOUNDARY = 1 << 31  # marks begins and ends in an entry's bytes
BLOCKED_S = 0.020  # how often a feed looks whether the ring has room again
RETRY_S = 0.3  # between two connections of a feed

FILTERS = {"": "ab", "shop\\.a": "a", "shop\\.b": "b"}
"""Client filters, and the tables that they choose."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """Rows first..last, last inclusive. tables: of each row. ddl: a single statement, which is no transaction."""

    first: int
    last: int
    tables: str
    ddl: bool = False


class Log:
    """What was committed, in order."""

    def __init__(self) -> None:
        self.transactions: list[Transaction] = []
        self.tables = "-"  # of row n at index n
        self._first: list[int] = []

    @property
    def last(self) -> int:
        """The number of the last row."""
        return len(self.tables) - 1

    def commit(self, tables: str, *, ddl: bool = False) -> Transaction:
        """Append a transaction with these rows."""
        first = len(self.tables)
        self.tables += tables
        done = Transaction(first, self.last, tables, ddl)
        self.transactions.append(done)
        self._first.append(first)
        return done

    def begin_of(self, row: int) -> int:
        """Return the first row of the transaction of this row."""
        return self.transactions[bisect_right(self._first, row) - 1].first

    def missing(self, first: int, last: int, tables: str, rows: Collection[int]) -> int | None:
        """Return the first of the rows first..last of these tables that is not in `rows`; None if all are."""
        here = self.tables
        for row in range(first, last + 1):
            if here[row] in tables and row not in rows:
                return row
        return None


class Server:
    """A server's binlog with the transactions of the log."""

    def __init__(self, log: Log, name: str, *, skew: int) -> None:
        self.log = log
        self.name = name
        self.down = False
        self._skew = skew
        self._source = SegmentSource(name, 3306, f"uuid-of-{name}", 1)
        self._begins: list[tuple[int, int]] = []
        self._ends: list[tuple[int, int]] = []
        self._next = (1 + skew, 4 + skew)
        self._segments: dict[tuple[int, str], list[Segment]] = {}

    def write(self) -> None:
        """Write the transactions that are in the log and not here yet."""
        for index in range(len(self._begins), len(self.log.transactions)):
            done = self.log.transactions[index]
            journal, offset = self._next
            if index % JOURNAL_TRANSACTIONS == JOURNAL_TRANSACTIONS - 1 - self._skew:
                journal, offset = journal + 1, 4
            entries = 0 if done.ddl else len(done.tables) + 1
            end = offset + STEP * entries
            self._begins.append((journal, offset))
            self._ends.append((journal, end))
            self._next = (journal, end + STEP + self._skew)

    def newest(self) -> LogPosition:
        """Return where the binlog ends."""
        journal, offset = self._next
        return LogPosition(_journal(journal), offset, 0, 1, "", self.name, 3306, server=self._source.server)

    def wrote(self, position: LogPosition) -> bool:
        """Return whether the position is in this server's binlog."""
        return position.server == self._source.server

    def index(self, position: LogPosition) -> int:
        """Return how many transactions lie before a position."""
        place = (int(position.journal.rpartition(".")[2]), position.offset)
        at = bisect_right(self._begins, place) - 1
        if at < 0:
            return 0
        if place == self._begins[at]:
            return at + (self.log.transactions[at].ddl and position.consumed)
        return at + (place >= self._ends[at])

    def row(self, position: LogPosition) -> int:
        """Return the last row before a position."""
        index = self.index(position)
        before = self.log.transactions[index - 1].last if index else 0
        return before + max(0, self._inside(position, index) // STEP - 1)

    def _inside(self, position: LogPosition, index: int) -> int:
        """Return how many bytes of a transaction lie before a position; 0 if it is in another one."""
        if index == len(self._begins) or position.offset <= self._begins[index][1]:
            return 0
        return (position.offset - self._begins[index][1]) * (position.journal == _journal(self._begins[index][0]))

    def end_of(self, index: int) -> LogPosition:
        """Return the cursor of a client that has acknowledged this many transactions."""
        if not index:
            return LogPosition("mysql-bin.000001", 4, 0, 1, "", self.name, 3306, server=self._source.server)
        last = self.segments(index - 1, "ab")[-1]
        return last.position(len(last) - 1, consumed=True)

    def rest(self, index: int, tables: str, start: LogPosition) -> list[Segment]:
        """Return what a feed that starts at this position reads of the transaction there, with these tables alone."""
        segments = self.segments(index, tables)
        if not self._inside(start, index):
            return segments
        pieces = ((each, bisect_left(each.offsets, start.offset)) for each in segments)
        return [each.slice(first, len(each)) for each, first in pieces if first < len(each)]

    def segments(self, index: int, tables: str) -> list[Segment]:
        """Return a transaction as a decoder with a filter of these tables passes it on: none without rows."""
        key = (index, tables)
        if key not in self._segments:
            self._segments[key] = self._make(index, tables)
        return self._segments[key]

    def _make(self, index: int, tables: str) -> list[Segment]:
        done, (journal, offset) = self.log.transactions[index], self._begins[index]
        rows = [row for row in range(done.first, done.last + 1) if self.log.tables[row] in tables]
        if not rows:
            return []
        if done.ddl:
            return [self._segment(journal, [(offset, EntryKind.DDL, done.first)], index)]
        entries = [(offset, EntryKind.BEGIN, BOUNDARY)]
        entries += [(offset + STEP * (row - done.first + 1), EntryKind.ROWS, row) for row in rows]
        entries.append((self._ends[index][1], EntryKind.END, BOUNDARY))
        size = PIECE_ROWS if len(rows) > 2 * PIECE_ROWS else len(entries)
        pieces = [entries[at : at + size] for at in range(0, len(entries), size)]
        return [self._segment(journal, piece, index, cut=piece is not pieces[-1]) for piece in pieces]

    def _segment(
        self, journal: int, entries: Sequence[tuple[int, EntryKind, int]], index: int, *, cut: bool = False
    ) -> Segment:
        count = len(entries)
        rows = array("i", [int(kind in (EntryKind.ROWS, EntryKind.DDL)) for _, kind, _ in entries])
        return Segment(
            source=self._source,
            journal=_journal(journal),
            frames=b"".join(_ENTRY.pack(0x12, 4, number) for _, _, number in entries),
            ends=array("q", range(_ENTRY.size, _ENTRY.size * count + 1, _ENTRY.size)),
            offsets=array("q", [offset for offset, _, _ in entries]),
            subs=array("i", bytes(4 * count)),
            timestamps=array("q", [1000 + index] * count),
            event_lengths=array("q", [STEP] * count),
            row_counts=rows,
            kinds=bytes(kind for _, kind, _ in entries),
            run_starts=array("q", [0]),
            run_server_ids=array("q", [1]),
            run_gtids=("",),
            entry_ends=array("q", range(4, 4 * count + 1, 4)),
            row_ends=array("q", accumulate(rows)),
            cut=cut,
        )


_ENTRY = struct.Struct("<BBI")


def rows_of(views: Sequence[memoryview]) -> tuple[int, ...]:
    """Return the numbers of the rows in a batch."""
    return tuple(number for view in views for _, _, number in _ENTRY.iter_unpack(view) if not number & BOUNDARY)


def _journal(number: int) -> str:
    return f"mysql-bin.{number:06}"


class Source:
    """The two servers of one destination."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.log = Log()
        self.servers = (Server(self.log, "master", skew=0), Server(self.log, "standby", skew=3))
        self.feeds: list[MemoryFeed] = []

    def commit(self, tables: str, *, ddl: bool = False) -> None:
        """Commit a transaction on both servers, and let the feeds read it."""
        self.log.commit(tables, ddl=ddl)
        for server in self.servers:
            server.write()
        for feed in self.feeds:
            feed.wake()

    def server_of(self, position: LogPosition) -> Server:
        """Return the server whose binlog a position is in: the master's if it does not say."""
        return self.servers[self.servers[1].wrote(position)]

    def row(self, position: LogPosition) -> int:
        """Return the last row before a position."""
        return self.server_of(position).row(position)


class MemoryFeed:
    """A Feed on the calls of its process."""

    received_bytes = 0
    last_event_ms = 0
    idle = False
    idle_at = 0.0
    shared = lent = False
    tap = ""

    def __init__(self, origin: MemoryOrigin, request: FeedRequest) -> None:
        self.request = request
        self.decoded: LogPosition | None = None
        self.stopped = False
        self._origin = origin
        self._process = origin.process
        self._random = origin.source.random
        self._server: Server | None = None  # None: not connected
        self._start = request.start
        self._tables = FILTERS[request.filter]
        self._index = 0  # of the transaction to read next,
        self._piece = 0  # and of its piece
        self._timer: Timer | None = None

    def start(self) -> None:
        """See Feed."""
        self._origin.source.feeds.append(self)
        self._go_on(0.001)

    def stop(self) -> None:
        """See Feed."""
        self.stopped = True
        if self in self._origin.source.feeds:
            self._origin.source.feeds.remove(self)

    def wake(self) -> None:
        """Read what is new, some time later."""
        self._go_on(self._random.uniform(0.0, 0.004))

    def _go_on(self, delay_s: float) -> None:
        if self._timer is None:
            self._timer = self._process.callLater(delay_s, self._read)

    def _read(self) -> None:
        self._timer = None
        if self.stopped:
            return
        server = self._origin.server
        if server.down or self._origin.cut_off:
            self._server = None
            self.request.failed(SourceUnavailable(f"{server.name} does not answer"), RETRY_S)
            self._go_on(RETRY_S)
            return
        try:
            if self._server is not server:
                self._connect(server)
            self._pass_on(server)
        except Blocked:
            self._go_on(BLOCKED_S)
        except RingClosed:
            self.stop()

    def _connect(self, server: Server) -> None:
        """Find the place to go on in the binlog of this server."""
        self.request.connected("8.0")
        old = self._origin.source.server_of(self._start)
        self._index = old.index(self._start)
        if old is not server:
            whole = self._piece == 0
            after = server.end_of(self._index)
            self.request.moved(Move(self._start, after, whole, {}))
            self._start = after
            self._piece = 0
        self._server = server

    def _pass_on(self, server: Server) -> None:
        self.request.busy(True)
        try:
            while self._index < len(server.log.transactions):
                segments = server.rest(self._index, self._tables, self._start)
                while self._piece < len(segments):
                    self.request.accept(segments[self._piece])
                    self._piece += 1
                self._index, self._piece = self._index + 1, 0
                self._start = self.decoded = server.end_of(self._index)
        finally:
            self.request.busy(False)


class NothingRemembered:
    """Implements Remembered: the servers know the places of each other's transactions."""

    def copies(self, pieces: Sequence[tuple[Segment, int, int]], /) -> None:
        """See Remembered."""

    def add_copies(self, copies: object, /) -> None:
        """See Remembered."""

    def trail(self) -> str:
        """See Remembered."""
        return ""

    def origins(self) -> str:
        """See Remembered."""
        return ""


class MemoryOrigin:
    """The source of one instance. Implements Origin, SourceView and SourceSwitch. process: of the instance.

    config: the destination's, with both servers.
    """

    version = "8.0"

    def __init__(self, source: Source, process: Process, config: InstanceConfig) -> None:
        self.source = source
        self._config = config
        self.process = process
        self.server = source.servers[0]
        self.cut_off = False
        self.closed = False
        self._interrupted = False
        self.opened: list[MemoryFeed] = []
        self._switches = 0
        self.switching = False  # one switch at a time
        self._keep: KeepServers | None = None  # None before `begin`

    @property
    def view(self) -> MemoryOrigin:
        """See Origin."""
        return self

    def definition(self, schema: str, table: str) -> str | None:
        """See Origin."""
        return None

    def tables(self) -> Sequence[tuple[str, str]]:
        """Return nothing: the simulated source has no tables."""
        return ()

    @property
    def source_switch(self) -> MemoryOrigin:
        """See Origin."""
        return self

    def open_feed(self, request: FeedRequest) -> MemoryFeed:
        """See Origin."""
        feed = MemoryFeed(self, request)
        self.opened.append(feed)
        return feed

    @property
    def leaks(self) -> bool:
        """Whether a feed goes on although the origin is closed."""
        return self.closed and not all(feed.stopped for feed in self.opened)

    def at_once(self, call: Callable[[], object]) -> None:
        """See Origin: its calls always wait."""

    def keep_house(self, cursors: Collection[LogPosition] | None, *, at_once: bool = False) -> bool:
        """See Origin."""
        return True

    def outlook(self, cursors: Mapping[int, LogPosition]) -> Mapping[int, Outlook]:
        """See Origin."""
        return {}

    def interrupt(self) -> None:
        """See Origin."""
        self._interrupted = True

    def close(self) -> None:
        """See Origin."""
        self.closed = True

    # ---- SourceView

    def newest(self) -> LogPosition:
        """See SourceView."""
        if self.server.down or self.cut_off:
            raise SourceUnavailable(f"{self.server.name} does not answer")
        return self.server.newest()

    def start(self, kept: LogPosition | None) -> LogPosition:
        """See SourceView."""
        return self.newest() if kept is None else kept

    def find(self, place: Place) -> LogPosition:
        """See SourceView."""
        return self.newest()

    def instead(self, cursor: LogPosition, when: WhenLost) -> LogPosition:
        """See SourceView."""
        return self.newest()

    # ---- SourceSwitch

    def begin(self, cursors: tuple[LogPosition, ...], chosen: tuple[str, ...], keep: KeepServers, /) -> None:
        """See SourceSwitch."""
        role = first(self._config, cursors, chosen[0] if chosen else "")
        self.server = self.source.servers[role is Role.STANDBY]
        self._keep = keep

    def facts(self) -> SourceFacts:
        """See SourceSwitch."""
        return SourceFacts(self.server.name, switches=self._switches)

    def switch(self, to: str, reason: str, /) -> str:
        """See SourceSwitch. The whole call is made again when the answer to `_keep` is there."""
        other = next(server for server in self.source.servers if server is not self.server)
        if not ANSWERS.given:
            if self._interrupted:
                raise LocalProtocolError(f"{self._config.destination} is stopping")
            if other.down:
                raise SourceUnavailable(f"{other.name} does not answer")
        if self._keep:
            self._keep((f"{other.name}:3306",))
        if not self._interrupted:
            self.server = other
            self._switches += 1
            for feed in self.opened:
                if not feed.stopped:
                    feed.wake()
        return other.name

    def remember(self, cursor: LogPosition, /) -> NothingRemembered:
        """See SourceSwitch."""
        return NothingRemembered()
