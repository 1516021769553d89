"""One destination, assembled: source, decoder, table history, cursors and instance, from its configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from twisted.internet.defer import DeferredLock
from twisted.internet.threads import deferToThread

from canal_ha.cluster.ownership import Ownership
from canal_ha.config.model import CanalConfig, CursorPlace, InstanceConfig
from canal_ha.decode.decoder import Decoder
from canal_ha.decode.filters import FieldFilter, effective
from canal_ha.errors import CanalError, NotRunningHere
from canal_ha.instance.alarms import Outlook
from canal_ha.instance.feed import Feed, FeedRequest
from canal_ha.instance.instance import Instance
from canal_ha.instance.stream import Reactor
from canal_ha.meta.files import FileBackend
from canal_ha.meta.memory import MemoryBackend
from canal_ha.meta.repository import MetaBackend
from canal_ha.meta.write_behind import Meta
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import Source
from canal_ha.node.origin import Origin, report
from canal_ha.node.origin import files as origin_files
from canal_ha.node.told import Told
from canal_ha.source.chronicle import Chronicle, Tell
from canal_ha.source.dump import Dump
from canal_ha.source.ending import Ending
from canal_ha.source.history_sql import history_store
from canal_ha.source.identity import replica
from canal_ha.source.tables import Tables
from canal_ha.source.view import View


def assemble(
    node: CanalConfig,
    config: InstanceConfig,
    reactor: Reactor,
    told: Told,
    ownership: Ownership | None,
    lost: Callable[[CanalError], None],
) -> Instance:
    """An instance, not started. ownership: None on a node without ZooKeeper; lost: see Instance."""
    made: list[Instance] = []

    def tell(name: str, /, *, alarm: bool = False, **facts: object) -> None:
        reactor.callFromThread(lambda: told.event(config.destination, name, alarm=alarm, **facts))

    origin = origin_files(config, config.local) if config.local else _server(config, tell)

    def guard() -> None:
        if ownership is not None and not ownership.lease_ok():
            raise NotRunningHere(config.destination)

    meta = Meta(config.destination, _backend(config, ownership, told, made), turn=DeferredLock())
    instance = Instance(
        config,
        meta,
        origin.view,
        origin.open_feed,
        reactor,
        run_blocking=deferToThread,
        told=told,
        flush_period_ms=node.zk_flush_period_ms if ownership else config.file_flush_period_ms,
        guard=guard,
        lost=lost,
        close_source=origin.close,
        keep_house=origin.keep_house,
        outlook=origin.outlook,
    )
    made.append(instance)
    return instance


def _server(config: InstanceConfig, tell: Tell) -> Origin:
    """A MySQL or MariaDB server."""
    slave_id_holder: dict[int, int] = {}  # the configured slaveId serves the first stream that opens
    ending = Ending()
    tables_now = Tables(config, opening=ending.opened)

    view = View(config, warn=lambda text: tell("start.replaced", text=text, alarm=True), opening=ending.opened)
    chronicle = Chronicle(config, tables_now.fetch, history_store(config), tell, opening=ending.opened)

    def close_source() -> None:
        ending.end()
        view.close()
        chronicle.close()
        tables_now.close()

    def open_feed(request: FeedRequest) -> Feed:
        tables = effective(config.filter_regex, config.filter_black_regex, request.filter, config.filter_client_mode)
        fields = FieldFilter(config.decode.field_filter, config.decode.field_black_filter)

        def make_decoder(source: Source, start: LogPosition) -> Decoder:
            tables_then = chronicle.view(start)
            chronicle.follow(dump)
            return Decoder(
                source=source,
                journal=start.journal,
                position=start.offset,
                options=config.decode,
                tables=tables,
                fields=fields,
                history=tables_then,
                gtid_set=start.gtid,
            )

        first_stream = not request.read and slave_id_holder.setdefault(0, request.client_id) == request.client_id
        dump = Dump(
            config,
            config.master,
            replica=replica(
                config.destination,
                request.client_id,
                server_id=config.server_id if first_stream else 0,
                read=request.read,
            ),
            start=request.start,
            make_decoder=make_decoder,
            accept=request.accept,
            report=lambda event: report(request, event),
        )
        return dump

    def outlook(cursors: Mapping[int, LogPosition]) -> Mapping[int, Outlook]:
        return {client_id: Outlook(*found) for client_id, found in view.kept_for(cursors).items()}

    return Origin(view, open_feed, close_source, chronicle.look, outlook)


def _backend(config: InstanceConfig, ownership: Ownership | None, told: Told, made: list[Instance]) -> MetaBackend:
    """Where this destination's cursors live. Without ZooKeeper the default template keeps them in files."""
    if ownership is not None and config.cursor_place is CursorPlace.ZOOKEEPER:

        def lost(client_id: int) -> None:
            told.event(config.destination, "cursor.deleted", client_id=client_id, action="written again", alarm=True)
            made[0].meta.rewrite(client_id)

        return ownership.meta(replaced=lambda *edit: made[0].cursor_replaced(*edit), lost=lost)
    if config.cursor_place is CursorPlace.MEMORY:
        return MemoryBackend()
    return FileBackend(config.data_dir, config.destination, deferToThread)
