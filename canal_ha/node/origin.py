"""FilesOrigin: a destination whose rows come from binlog files (local-instance). And what all origins share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, partial
from typing import Protocol

from canal_ha.config.model import InstanceConfig, LocalFiles, WhenXa
from canal_ha.decode.decoder import Decoder
from canal_ha.decode.filters import FieldFilter, TableFilter, effective
from canal_ha.decode.history.history import TableHistory
from canal_ha.decode.prepared import KeptParts
from canal_ha.decode.privacy import Privacy, privacy_of
from canal_ha.errors import FilterInvalid, SnapshotRefused
from canal_ha.instance.alarms import Outlook
from canal_ha.instance.feed import Feed, FeedRequest
from canal_ha.instance.origin import SourceSwitch
from canal_ha.model.position import LogPosition
from canal_ha.model.privacy import Within
from canal_ha.model.segment import Source
from canal_ha.source.connection.stop_signal import StopSignal
from canal_ha.source.connection.tables import Tables
from canal_ha.source.files.dump import LocalDump
from canal_ha.source.files.prepared import file_journals
from canal_ha.source.files.view import LocalTables, LocalView
from canal_ha.source.positions.prepared import PreparedReader
from canal_ha.source.server.dump import DumpEvent, DumpFailed, DumpStarted


class FilesOrigin:
    """A directory of binlog files. Implements instance.Origin."""

    def __init__(self, config: InstanceConfig, local: LocalFiles) -> None:
        """Read the table definitions. Raises SourceRefused when that fails."""
        self.view = LocalView(config, local)
        self.source_switch: SourceSwitch | None = None
        self._config = config
        self._local = local
        self._stop_signal = StopSignal()
        self._server = Tables(config, stop_signal=self._stop_signal) if config.master.host else None
        self._tables = LocalTables(config, local, self._server.fetch if self._server else _no_server)

    def open_feed(self, request: FeedRequest) -> Feed:
        """Return a reader of the files, not started."""
        decode = decoding(self._config, request)
        directory = self._local.directory
        reader = PreparedReader(str(directory), partial(file_journals, directory))
        prepared = kept_parts(self._config, reader, request.start)

        def make_decoder(source: Source, start: LogPosition) -> Decoder:
            history = self._tables.view(start)
            self._tables.follow(dump)
            return decode(source, start, history, start.gtid or None, prepared)

        dump = LocalDump(
            self._config,
            self._local,
            name=request.read or str(request.client_id),
            start=request.start,
            make_decoder=make_decoder,
            accept=request.accept,
            report=lambda event: report(request, event),
        )
        return dump

    def tables(self) -> Sequence[tuple[str, str]]:
        """Raise SnapshotRefused."""
        raise SnapshotRefused("its rows come from binlog files, which hold changes alone: a snapshot needs a server")

    def definition(self, schema: str, table: str) -> str | None:
        """See Origin."""
        return self._server.fetch(schema, table) if self._server else None

    def at_once(self, call: Callable[[], object]) -> None:
        """See Origin: its calls always wait."""

    def keep_house(self, cursors: Collection[LogPosition] | None, *, at_once: bool = False) -> bool:
        """Do nothing: the table history of files is read again after every start."""
        return True

    def outlook(self, cursors: Mapping[int, LogPosition]) -> Mapping[int, Outlook]:
        """Return nothing: nobody knows when a file will be deleted."""
        return {}

    def interrupt(self) -> None:
        """See Origin."""
        self._stop_signal.end()

    def close(self) -> None:
        """Close the connection that is asked for table definitions."""
        self.interrupt()
        if self._server:
            self._server.close()


class ToDecode(Protocol):
    """What a feed is to decode. Attributes: see FeedRequest."""

    @property
    def client_id(self) -> int: ...

    @property
    def filter(self) -> str: ...

    @property
    def exact(self) -> bool: ...

    @property
    def within(self) -> Within: ...


def filter_of(config: InstanceConfig, request: ToDecode) -> TableFilter:
    """Return which tables a feed delivers. Raises FilterInvalid."""
    try:
        return effective(
            config.filter_regex,
            config.filter_black_regex,
            request.filter,
            config.filter_client_mode,
            request.within.filter,
        )
    except FilterInvalid as error:
        raise FilterInvalid(f"{config.destination}, client {request.client_id}: {error}") from error


def decoding(
    config: InstanceConfig, request: ToDecode
) -> Callable[[Source, LogPosition, TableHistory, str | None, KeptParts | None], Decoder]:
    """Return a function that makes the decoders of one feed, with the filters of the instance and of the client.

    Its arguments: the source, the position to begin at, the tables as they were there, the GTID set executed before it
    (None if unknown), and what keeps the rows of prepared XA transactions (None if nothing does).

    The first decoder compiles the filters, on the feed's thread. A filter that an earlier version stored and this one
    cannot use raises FilterInvalid there, and ends this feed alone.
    """

    tables = cache(partial(filter_of, config, request))

    @cache
    def privacy() -> Privacy:
        try:
            return privacy_of(config.decode, request.within.privacy)
        except FilterInvalid as error:
            raise FilterInvalid(f"{config.destination}, client {request.client_id}: {error}") from error

    fields = FieldFilter(config.decode.field_filter, config.decode.field_black_filter)

    def decoder(
        source: Source, start: LogPosition, history: TableHistory, gtid_set: str | None, prepared: KeptParts | None
    ) -> Decoder:
        return Decoder(
            source=source,
            journal=start.journal,
            position=start.offset,
            options=config.decode,
            tables=tables(),
            fields=fields,
            privacy=privacy(),
            confined=bool(request.within.filter),
            history=history,
            gtid_set=gtid_set,
            exact=request.exact,
            prepared=prepared,
        )

    return decoder


def kept_parts(config: InstanceConfig, reader: PreparedReader, start: LogPosition) -> KeptParts | None:
    """Return what keeps the rows of prepared XA transactions; None if canal.instance.xa = prepare.

    config: of the destination.
    reader: reads them again.
    start: where the stream begins.
    """
    return KeptParts(config.xa_bytes, reader.read_again, start) if config.xa is WhenXa.COMMIT else None


def report(request: FeedRequest, event: DumpEvent) -> None:
    """Pass an event of a dump on to whoever asked for the feed."""
    match event:
        case DumpStarted():
            request.connected(event.version)
        case DumpFailed():
            request.failed(event.error, event.retry_in_s)


def _no_server(schema: str, table: str) -> None:
    """Answer SHOW CREATE TABLE where there is no server to ask."""
