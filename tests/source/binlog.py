"""A server whose binlog and tables exist in memory only, for tests of a history.

`installed` replaces the connections that a history opens; the histories and the stores are real.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from canal_ha.config.model import InstanceConfig, SourceConfig
from canal_ha.decode.ddl.create_table import create_table
from canal_ha.decode.history.history import TableHistory
from canal_ha.decode.history.store import HistoryStore
from canal_ha.decode.table_map import TableMap
from canal_ha.decode.types import LONG
from canal_ha.errors import PositionLost, TableUnknown
from canal_ha.model.position import LogPosition
from canal_ha.model.table import Column
from canal_ha.source.connection import recent_answers
from canal_ha.source.connection.flavor import Flavor
from canal_ha.source.history import destination_history
from canal_ha.source.history.destination_history import DestinationHistory
from canal_ha.source.positions import locate
from canal_ha.source.positions.locate import BinlogEnd

SCHEMA = "s"
FIRST = 4


@dataclass(frozen=True)
class Event:
    """A statement, or a row of a table with the columns that it had then. named: the event carries their names."""

    at: LogPosition
    sql: str = ""
    table: str = ""
    columns: tuple[str, ...] = ()
    named: bool = False

    @property
    def table_map(self) -> TableMap:
        """Return the table map; all columns are int, so that only names tell them apart."""
        count = len(self.columns)
        return TableMap(
            table_id=1,
            schema=SCHEMA,
            name=self.table,
            types=bytes([LONG] * count),
            metas=(0,) * count,
            nullable=(True,) * count,
            names=self.columns if self.named else None,
            primary_key=() if self.named else None,
        )


@dataclass
class Binlog:
    """A server's binlog and tables.

    tables: the present column names of each table.
    purged: the number of purged journals.
    reads: the number of events that were read for a history.
    asking: called after a definition was read, before it is returned.
    reading: called before events are read.
    early: this many reads stop before the end, as if the server had not yet written everything to its disk.
    asked: how often a history has taken a session.
    """

    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    metadata: str = "MINIMAL"
    uuid: str = "u"
    created_ms: int = 0
    purged: int = 0
    reads: int = 0
    asking: Callable[[], None] = lambda: None
    reading: Callable[[], None] = lambda: None
    early: int = 0
    asked: int = 0
    _journal: int = 1
    _offset: int = FIRST

    @property
    def newest(self) -> LogPosition:
        """Return the end of the binlog."""
        return LogPosition(f"bin.{self._journal:06d}", self._offset, timestamp_ms=1000)

    @property
    def flavor(self) -> Flavor:
        """Return the server's settings."""
        return Flavor("8.4.0", False, (8, 4, 0), 1, uuid=self.uuid, row_metadata=self.metadata)

    @property
    def end(self) -> BinlogEnd:
        """Return the end of the binlog, asked for now."""
        return BinlogEnd(time.monotonic(), self.flavor, self.newest, self.created_ms + self._journal)

    def rotate(self, times: int = 1) -> None:
        """Begin this many journals."""
        self._journal += times
        self._offset = FIRST

    def begin_anew(self, **tables: tuple[str, ...]) -> None:
        """Empty the binlog, as RESET MASTER does; set the tables."""
        self.created_ms += 1000
        self.events, self.tables = [], tables
        self._journal, self._offset = 1, FIRST

    def run(self, sql: str, **tables: tuple[str, ...] | None) -> None:
        """Log a statement. tables: the columns of the tables after it; None drops a table."""
        self.events.append(Event(self._next(), sql=sql))
        for table, columns in tables.items():
            self.tables.pop(table, None)
            if columns is not None:
                self.tables[table] = columns

    def insert(self, table: str) -> Event:
        """Log a row."""
        event = Event(self._next(), table=table, columns=self.tables[table], named=self.metadata == "FULL")
        self.events.append(event)
        return event

    def between(self, start: LogPosition, end: LogPosition) -> list[Event]:
        """Return the events from `start` on and before `end`."""
        first = bisect_left(self.events, start.order, key=_order)
        return self.events[first : bisect_left(self.events, end.order, key=_order)]

    def definition(self, table: str) -> str | None:
        """Return the text of SHOW CREATE TABLE; None without such a table."""
        columns = self.tables.get(table)
        found = None if columns is None else create_table(table, [Column(name, "int") for name in columns])
        self.asking()
        return found

    def history(self, store: HistoryStore | None = None, **more: Any) -> DestinationHistory:
        """Return a node's history over this binlog. more: arguments of DestinationHistory."""
        config = InstanceConfig("example", SourceConfig("127.0.0.1"))

        def fetch(schema: str, table: str, server: str = "") -> str | None:
            return self.definition(table)

        return DestinationHistory(config, fetch, store, _silent, **more)

    def _next(self) -> LogPosition:
        """Return the position of the next event, behind the event that names its transaction."""
        at = replace(self.newest, offset=self._offset + 10)
        self._offset += 20
        return at


@dataclass
class Stream:
    """A dump that reads a binlog with a view of a history. seen: the columns of each row; None if it was refused."""

    binlog: Binlog
    history: DestinationHistory
    decoded: LogPosition | None
    seen: list[tuple[Event, tuple[str, ...] | None]] = field(default_factory=list)
    view: TableHistory | None = None

    __hash__ = object.__hash__

    def open(self) -> Stream:
        """Open a view at the stream's position; return the stream."""
        assert self.decoded is not None
        self.view = self.history.view(self.decoded, self)
        return self

    def read(self, events: int = 1_000_000) -> Stream:
        """Read at most this many events; return the stream."""
        assert self.view is not None
        assert self.decoded is not None
        for event in self.binlog.between(self.decoded, self.binlog.newest)[:events]:
            if event.sql:
                self.view.apply(event.at, SCHEMA, event.sql)
            else:
                self.seen.append((event, names(self.view, event)))
            self.decoded = replace(event.at, offset=event.at.offset + 10)
        return self


def look(node: DestinationHistory, cursor: LogPosition | None) -> None:
    """Let a node look after its history. cursor: of the only client; None if it is unknown."""
    node.look(None if cursor is None else [cursor])


def names(view: TableHistory, event: Event) -> tuple[str, ...] | None:
    """Return the column names that a history gives a row; None if it refuses."""
    try:
        return tuple(column.name for column in view.table(event.table_map, event.at).columns)
    except TableUnknown:
        return None


@contextmanager
def installed(patch: pytest.MonkeyPatch, binlog: Binlog) -> Iterator[Binlog]:
    """Let the histories that are created in this block read this binlog."""

    class Asked:
        """A session, Tables and Scanner in one."""

        def __init__(self, *_: object, **__: object) -> None:
            self.session = self
            self.server = examined(self)

        @property
        def where(self) -> SimpleNamespace:
            return SimpleNamespace(address="127.0.0.1:3306")

        def alive(self) -> bool:
            return True

        def close(self) -> None:
            return None

        @contextmanager
        def lent(self) -> Iterator[Asked]:
            binlog.asked += 1
            yield self

        def query(self, sql: str) -> list[dict[str, str]]:
            if "user_privileges" in sql:
                return [{"may": "1"}]
            if sql == "SHOW BINARY LOGS":
                journals = range(binlog.purged + 1, binlog._journal + 1)
                return [{"Log_name": f"bin.{number:06d}", "File_size": "4"} for number in journals]
            return [{"s": SCHEMA, "t": table} for table in binlog.tables]

        def began_ms(self, journal: str, *, recent_s: float = 0.0) -> int:
            return binlog.created_ms + int(journal.rpartition(".")[2])

        def charset(self, schema: str, server: str = "") -> str:
            return "utf8mb4"

        def fetch_all(
            self, names: Sequence[tuple[str, str]], server: str = ""
        ) -> list[tuple[tuple[str, str], str | None]]:
            return [(name, binlog.definition(name[1])) for name in names]

        def statements(
            self, start: LogPosition, end: LogPosition, told: Callable[[LogPosition, str, str], None]
        ) -> LogPosition:
            binlog.reading()
            if int(start.journal.rpartition(".")[2]) <= binlog.purged:
                raise PositionLost(f"{start.journal} is purged")
            events = binlog.between(start, end)
            reached = end
            if binlog.early and events:
                binlog.early -= 1
                events = events[: len(events) // 2]
                reached = replace(events[-1].at, offset=events[-1].at.offset + 10) if events else start
            for event in events:
                binlog.reads += 1
                if event.sql:
                    told(event.at, SCHEMA, event.sql)
            return reached

    def examined(session: object) -> Flavor:
        return binlog.flavor

    with patch.context() as patched:
        patched.setattr(destination_history, "examine", examined)
        patched.setattr(recent_answers, "OF_PROCESS", recent_answers.RecentAnswers())  # of this server alone
        for name in ("SourceSessions", "Tables", "Scanner"):
            patched.setattr(destination_history, name, Asked)
        patched.setattr(locate, "newest", lambda *_: binlog.newest)
        patched.setattr(locate, "oldest", lambda *_: LogPosition(f"bin.{binlog.purged + 1:06d}", FIRST))
        yield binlog


def _order(event: Event) -> tuple[str, int, int, bool, int]:
    return event.at.order


def _silent(name: str, /, *, alarm: bool = False, **facts: object) -> None:
    """Report nothing."""
