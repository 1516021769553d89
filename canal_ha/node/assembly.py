"""One destination, assembled: source, decoder, table history, cursors and instance, from its configuration."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.threads import deferToThread

from canal_ha.cluster.ownership import Ownership
from canal_ha.config.model import CanalConfig, CursorPlace, InstanceConfig
from canal_ha.errors import CanalError, NotRunningHere
from canal_ha.instance.instance import Instance
from canal_ha.instance.stream import Reactor
from canal_ha.meta.batch_ids import BatchIds
from canal_ha.meta.files import FileBackend
from canal_ha.meta.memory import MemoryBackend
from canal_ha.meta.repository import CursorEdits, MetaBackend
from canal_ha.node import group, upstreams
from canal_ha.node.instance_log import InstanceLog
from canal_ha.node.origin import files as origin_files


def assemble(
    node: CanalConfig,
    config: InstanceConfig,
    reactor: Reactor,
    told: InstanceLog,
    batch_ids: BatchIds,
    ownership: Ownership | None,
    lost: Callable[[CanalError], None],
) -> Instance:
    """An instance, not started. batch_ids, lost: see Instance; ownership: None on a node without ZooKeeper."""

    def tell(name: str, /, *, alarm: bool = False, **facts: object) -> None:
        reactor.callFromThread(lambda: told.event(config.destination, name, alarm=alarm, **facts))

    if config.local:
        origin = origin_files(config, config.local)
    else:
        origin = group.servers(config, tell) if config.group else upstreams.server(config, tell)

    def guard() -> None:
        if ownership is not None and not ownership.lease_ok():
            raise NotRunningHere(config.destination)

    return Instance(
        config,
        lambda edits: _backend(config, ownership, edits),
        origin.view,
        origin.open_feed,
        reactor,
        run_blocking=deferToThread,
        told=told,
        flush_period_ms=node.zk_flush_period_ms if ownership else config.file_flush_period_ms,
        batch_ids=batch_ids,
        guard=guard,
        lost=lost,
        close_source=origin.close,
        keep_house=origin.keep_house,
        outlook=origin.outlook,
        switch=origin.switch,
    )


def _backend(config: InstanceConfig, ownership: Ownership | None, edits: CursorEdits) -> MetaBackend:
    """Where this destination's cursors live. Without ZooKeeper the default template keeps them in files."""
    if ownership is not None and config.cursor_place is CursorPlace.ZOOKEEPER:
        return ownership.meta(replaced=edits.cursor_replaced, lost=edits.cursor_deleted)
    if config.cursor_place is CursorPlace.MEMORY:
        return MemoryBackend()
    return FileBackend(config.data_dir, config.destination, deferToThread)
