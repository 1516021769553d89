"""Where a destination's rows come from, as its instance sees it; here: binlog files (local-instance)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from canal_ha.config.model import InstanceConfig, LocalFiles
from canal_ha.decode.decoder import Decoder
from canal_ha.decode.filters import FieldFilter, TableFilter, effective
from canal_ha.decode.history.history import TableHistory
from canal_ha.errors import FilterInvalid
from canal_ha.instance.alarms import Outlook
from canal_ha.instance.feed import Feed, FeedRequest, OpenFeed
from canal_ha.instance.instance import SourceSwitch, SourceView
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import Source
from canal_ha.source.connection.stop_signal import StopSignal
from canal_ha.source.connection.tables import Tables
from canal_ha.source.files.dump import LocalDump
from canal_ha.source.files.view import LocalTables, LocalView
from canal_ha.source.server.dump import DumpEvent, DumpFailed, DumpStarted


@dataclass(frozen=True, slots=True)
class Origin:
    """What an instance is given of its source; see Instance for each."""

    view: SourceView
    open_feed: OpenFeed
    close: Callable[[], None]
    keep_house: Callable[[LogPosition | None], None]
    outlook: Callable[[Mapping[int, LogPosition]], Mapping[int, Outlook]]
    switch: SourceSwitch | None = None


def files(config: InstanceConfig, local: LocalFiles) -> Origin:
    """A directory of binlog files. Raises SourceRefused when its table definitions cannot be read."""
    ending = StopSignal()
    server = Tables(config, opening=ending.opened) if config.master.host else None
    tables_then = LocalTables(config, local, server.fetch if server else _no_server)

    def close() -> None:
        ending.end()
        if server:
            server.close()

    def open_feed(request: FeedRequest) -> Feed:
        decode = decoding(config, request)

        def make_decoder(source: Source, start: LogPosition) -> Decoder:
            history = tables_then.view(start)
            tables_then.follow(dump)
            return decode(source, start, history, start.gtid or None)

        dump = LocalDump(
            config,
            local,
            name=request.read or str(request.client_id),
            start=request.start,
            make_decoder=make_decoder,
            accept=request.accept,
            report=lambda event: report(request, event),
        )
        return dump

    return Origin(LocalView(config, local), open_feed, close, lambda oldest: None, lambda cursors: {})


def decoding(
    config: InstanceConfig, request: FeedRequest
) -> Callable[[Source, LogPosition, TableHistory, str | None], Decoder]:
    """Decoders of one feed, with the instance's filters and its own: from a position on, with the tables as they were
    there and the GTID set executed before it, None where that is not known.

    The filters are compiled with the first decoder, on the feed's thread. One that was stored by an earlier version and
    cannot be used raises FilterInvalid there, which ends this feed alone.
    """

    @cache
    def tables() -> TableFilter:
        try:
            return effective(config.filter_regex, config.filter_black_regex, request.filter, config.filter_client_mode)
        except FilterInvalid as error:
            raise FilterInvalid(f"{config.destination}, client {request.client_id}: {error}") from error

    fields = FieldFilter(config.decode.field_filter, config.decode.field_black_filter)

    def decoder(source: Source, start: LogPosition, history: TableHistory, gtid_set: str | None) -> Decoder:
        return Decoder(
            source=source,
            journal=start.journal,
            position=start.offset,
            options=config.decode,
            tables=tables(),
            fields=fields,
            history=history,
            gtid_set=gtid_set,
        )

    return decoder


def report(request: FeedRequest, event: DumpEvent) -> None:
    """Hand on what a dump tells."""
    match event:
        case DumpStarted():
            request.connected(event.version)
        case DumpFailed():
            request.failed(event.error, event.retry_in_s)


def _no_server(schema: str, table: str) -> None:
    """SHOW CREATE TABLE where there is nobody to ask."""
