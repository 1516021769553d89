"""A dump on a real server that keeps what it delivers, for the tests of this room."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

from canal_ha.config.model import DecodeOptions, InstanceConfig, SourceConfig, TlsConfig
from canal_ha.decode.decoder import Decoder
from canal_ha.decode.filters import FieldFilter, TableFilter
from canal_ha.decode.history.history import TableHistory
from canal_ha.decode.table_map import TableMap
from canal_ha.errors import CanalError, RingClosed
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import Segment, Source
from canal_ha.model.table import Column, TableSchema
from canal_ha.source.connection.identity import replica
from canal_ha.source.connection.large_events import OF_PROCESS, LargeEvents
from canal_ha.source.connection.reactor_reads import ReactorReads
from canal_ha.source.positions.locate import BinlogEnd
from canal_ha.source.server.dump import Dump, DumpEvent, DumpFailed, DumpStarted, Upstream
from canal_ha.source.server.tap import Taps
from canal_ha.wire.proto import entry_protocol_pb2 as pb
from lab import SqlServer
from tests.running_reactor import running_reactor
from tests.waiting import until


class ColumnsOfMetadata:
    """A table history for binlogs with FULL row metadata: the table map names the columns, and all are int."""

    lowers_names = False

    def table(self, table_map: TableMap, at: LogPosition) -> TableSchema:
        """Return the columns that the event itself names."""
        assert table_map.names is not None
        return TableSchema(table_map.schema, table_map.name, tuple(Column(name, "int") for name in table_map.names))

    def charset(self, schema: str) -> str:
        """Return nothing, because columns of type int have no charset."""
        return ""

    def apply(self, at: LogPosition, default_schema: str, sql: str) -> bool:
        """Do nothing, because each table map names its columns."""
        return True


class GateRoom:
    """Room for a segment as long as a gate is open."""

    over_budget = False
    drained = True

    def __init__(self, gate: threading.Event) -> None:
        self.patient = True
        self._gate = gate

    @property
    def full(self) -> bool:
        """See Room."""
        return not self._gate.is_set()


class Reading:
    """A context manager that runs one dump from `start` and keeps its segments and reports, in order.

    gate: while it is clear, `accept` blocks, as on a full ring. After close(), `accept` raises RingClosed.
    """

    def __init__(
        self,
        server: SqlServer,
        schema: str,
        start: LogPosition,
        *,
        client_id: int = 1001,
        server_id: int = 0,
        options: DecodeOptions | None = None,
        history: TableHistory | None = None,
        large: LargeEvents = OF_PROCESS,
        await_room: Callable[[], None] = lambda: None,
        reads: ReactorReads | None = None,
        taps: Taps | None = None,
        **config: Any,
    ) -> None:
        self.segments: list[Segment] = []
        self.events: list[DumpEvent] = []
        self.gate = threading.Event()
        self.gate.set()
        self.blocked = threading.Event()
        self.closed = False
        self.before_accept: Callable[[Segment], None] = lambda segment: None
        self._options = options or DecodeOptions()
        self._history = history or ColumnsOfMetadata()
        self._tables = TableFilter(rf"{schema}\..*", "")
        settings = config_of(server, **config)
        self.dump = Dump(
            settings,
            lambda: Upstream(settings, self._decoder),
            replica=replica("example", client_id, server_id=server_id),
            start=start,
            accept=self._accept,
            report=self.events.append,
            large=large,
            await_room=await_room,
            room=GateRoom(self.gate),
            reads=reads or ReactorReads(running_reactor()),
            taps=taps,
        )

    def __enter__(self) -> Self:
        self.dump.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self.dump.stop()
        assert self.dump.join(10)

    def close(self) -> None:
        """Refuse segments from now on, as the ring does when its stream ends."""
        self.closed = True
        self.gate.set()

    def rows(self) -> list[str]:
        """Return the value of the first column of every row delivered so far."""
        return [row for segment in list(self.segments) for row in first_columns(segment)]

    def offsets(self) -> list[tuple[str, int]]:
        """Return the journal and offset of every entry delivered so far."""
        return [(segment.journal, offset) for segment in list(self.segments) for offset in segment.offsets]

    def wait_rows(self, count: int, seconds: float = 30.0) -> list[str]:
        """Wait until this many rows are delivered; return the value of the first column of each row."""

        def enough() -> list[str] | None:
            rows = self.rows()
            return rows if len(rows) >= count else None

        try:
            return until(enough, seconds=seconds, what=f"delivery of {count} rows")
        except AssertionError as error:
            raise AssertionError(f"{error}: {len(self.rows())} rows, {self.events}") from error

    def connected(self) -> DumpStarted:
        """Wait for the first connection; return its report."""
        return until(
            lambda: next((event for event in self.events if isinstance(event, DumpStarted)), None), what="connection"
        )

    def failure(self, kind: type[CanalError], *, seconds: float = 20.0) -> DumpFailed:
        """Wait for a report of this kind of failure; return it."""
        return until(
            lambda: next(
                (event for event in self.events if isinstance(event, DumpFailed) and isinstance(event.error, kind)),
                None,
            ),
            seconds=seconds,
            what=f"{kind.__name__} among {self.events}",
        )

    def _decoder(
        self, source: Source, start: LogPosition, *, searching: bool = False, end: BinlogEnd | None = None
    ) -> Decoder:
        return Decoder(
            source=source,
            journal=start.journal,
            position=start.offset,
            options=self._options,
            tables=self._tables,
            fields=FieldFilter("", ""),
            history=self._history,
            gtid_set=start.gtid,
        )

    def _accept(self, segment: Segment) -> None:
        self.before_accept(segment)
        if not self.gate.is_set():
            self.blocked.set()
        self.gate.wait()
        if self.closed:
            raise RingClosed("closed")
        self.segments.append(segment)


def config_of(
    server: SqlServer, *, user: str = "canal", password: str = "canal", tls: TlsConfig | None = None, **more: Any
) -> InstanceConfig:
    """Return the configuration of a destination on this server."""
    source = SourceConfig(host="127.0.0.1", port=server.port, tls=tls or TlsConfig())
    return replace(InstanceConfig("example", source, username=user, password=password), **more)


def purge(server: SqlServer) -> str:
    """Begin a journal and purge those before it; return its name."""
    server.execute("FLUSH BINARY LOGS")
    journal = server.position()[0]

    def purged() -> bool:
        server.execute(f"PURGE BINARY LOGS TO '{journal}'")  # MariaDB keeps the journal of its checkpoint
        return server.journals() == [journal]

    until(purged, what="purging")
    return journal


def newest(server: SqlServer) -> LogPosition:
    """Return the end of the server's binlog."""
    journal, offset = server.position()
    return LogPosition(journal, offset, address="127.0.0.1", port=server.port)


def first_columns(segment: Segment) -> list[str]:
    """Return the value of the first column of each row of a segment: after the change or, for a deletion, before."""
    values = []
    for raw in segment.entries():
        entry = pb.Entry.FromString(raw)
        if entry.entryType == pb.ROWDATA:
            change = pb.RowChange.FromString(entry.storeValue)
            values += [(row.afterColumns or row.beforeColumns)[0].value for row in change.rowDatas]
    return values
