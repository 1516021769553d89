"""Nodes of a cluster in this process, each with its own session. They hold ownerships and cursors, but no instances."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random
from typing import Any

from twisted.internet.defer import DeferredLock

from canal_ha.cluster.cluster import Cluster
from canal_ha.cluster.inputs import StopReason
from canal_ha.cluster.ownership import Ownership
from canal_ha.config.model import CanalConfig
from canal_ha.meta.write_behind import Meta
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.position import LogPosition
from tests.zookeeper.stage import RealStage, on_reactor, reactor, wait_until

CLIENT = 1001


def position(offset: int) -> LogPosition:
    """Return a position in the only binlog."""
    return LogPosition("mysql-bin.000001", offset, timestamp_ms=1, address="127.0.0.1", port=3306)


class Node:
    """An Owner and its Cluster. number: its port; held: the ownership of each destination that runs here."""

    def __init__(self, stage: RealStage, number: int, destinations: tuple[str, ...], *, session: Any = None) -> None:
        self.session = session or stage.open()
        self.held: dict[str, Ownership] = {}
        self.metas: dict[str, Meta] = {}
        self.replaced: list[tuple[int, LogPosition]] = []
        self.lost: list[int] = []
        self.mended: list[ClientIdentity] = []
        self.stops: list[tuple[str, StopReason, float]] = []
        self.starts: list[tuple[str, float]] = []
        self.destinations = destinations
        config = CanalConfig(Path("conf"), (), register_ip="127.0.0.1", port=number)
        self.cluster = Cluster(config, reactor, self.session, self, lambda: f"127.0.0.1:{number + 1}", random=Random())

    async def start(self, destination: str, ownership: Ownership) -> None:
        """Load the cursors. See Owner."""
        backend = ownership.meta(
            replaced=lambda *edit: self.replaced.append(edit),
            lost=lambda client_id, _: self.lost.append(client_id),
            skipped=print,
            mended=lambda identity, cursor: self.mended.append(identity),
        )
        meta = Meta(destination, backend, turn=DeferredLock())
        await meta.load()
        self.metas[destination], self.held[destination] = meta, ownership  # tests look at `held` first
        self.starts.append((destination, time.monotonic()))

    async def stop(self, destination: str, reason: StopReason) -> None:
        """Flush the cursors if the reason allows it. See Owner."""
        self.held.pop(destination, None)
        meta = self.metas.pop(destination, None)
        self.stops.append((destination, reason, time.monotonic()))
        if meta is not None and reason.orderly:
            await meta.flush()

    # ---- from the test's thread

    def begin(self) -> None:
        """Start, and race for every destination."""

        async def work() -> None:
            await self.cluster.start()
            for destination in self.destinations:
                self.cluster.add(destination)

        on_reactor(work)

    def end(self) -> None:
        """Stop in good order."""
        on_reactor(self.cluster.stop)

    def subscribe(self, destination: str, offset: int) -> None:
        """Subscribe a client whose cursor is at `offset`; durable on return."""
        identity = ClientIdentity(destination, CLIENT, r"shop\..*")
        on_reactor(lambda: self.metas[destination].subscribe(identity, position(offset)))

    def move(self, destination: str, offset: int) -> None:
        """Move the client's cursor to `offset`; durable on return."""

        async def work() -> None:
            self.metas[destination].move(CLIENT, position(offset))
            await self.metas[destination].flush()

        on_reactor(work)

    def cursor(self, destination: str) -> int:
        """Return the offset of the cursor as this node has it; -1 if there is none."""
        cursor = self.metas[destination].cursor(CLIENT)
        return -1 if cursor is None else cursor.offset


def owner_of(nodes: list[Node], destination: str, timeout_s: float = 15.0) -> Node:
    """Wait until exactly one node runs the destination, and return that node."""
    wait_until(lambda: sum(destination in node.held for node in nodes) == 1, timeout_s)
    return next(node for node in nodes if destination in node.held)
