"""Which nodes live: this node's own ephemeral nodes, and the list of all. Reactor thread.

A node of ours that belongs to another session is a leftover of an earlier process with our address. It would vanish
some time after we have started and take us from the list for good, so it is replaced at once (canal leaves it).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from twisted.internet.defer import Deferred

from canal_ha.cluster.session import ClusterSession
from canal_ha.errors import TransactionRefused, ZooKeeperUnavailable
from canal_ha.meta.zookeeper import Create, Delete, Operation
from canal_ha.model import znode_tree as tree

STABLE_S = 0.300
ATTEMPTS = 10


class Members:
    """node: registerIp:port. status_address: host:port of our status endpoint, kept as the data of our node."""

    def __init__(
        self, node: str, session: ClusterSession, status_address: Callable[[], str], *, clock: Any, log: Any
    ) -> None:
        self.names: tuple[str, ...] = ()
        self._node = node
        self._session = session
        self._status_address = status_address
        self._clock = clock
        self._log = log
        self._destinations: set[str] = set()
        self._changed_at: float | None = None  # None: the list of this session was not read yet
        self._stopping = False

    def connected(self) -> None:
        """Register everything again and read the list; after every (re)connect, since the session may be new."""
        self._changed_at = None
        self._spawn(self._register(tree.member(self._node), self._status_address().encode()))
        self._spawn(self._read())
        for destination in self._destinations:
            self.register(destination)

    def register(self, destination: str) -> None:
        """Say that this node could run the destination; again after it was deleted."""
        self._destinations.add(destination)
        if self._session.connected:
            self._spawn(self._register(tree.destination_member(destination, self._node), b""))

    async def unregister(self, destination: str) -> None:
        """This node will not run the destination any more."""
        self._destinations.discard(destination)
        await self._remove(tree.destination_member(destination, self._node))

    async def stop(self) -> None:
        """Take this node from every list."""
        self._stopping = True
        for destination in sorted(self._destinations):
            await self._remove(tree.destination_member(destination, self._node))
        await self._remove(tree.member(self._node))

    def stable_in(self, now: float) -> float | None:
        """Seconds until the list has been the same for long enough, 0.0 when it has; None: not read yet."""
        return None if self._changed_at is None else max(0.0, self._changed_at + STABLE_S - now)

    async def nodes(self) -> dict[str, str]:
        """Live nodes and the addresses of their status endpoints ("" for a Java node). Raises ZooKeeperUnavailable."""
        found: dict[str, str] = {}
        for name in await self._session.children(tree.CLUSTER):
            node = await self._session.get(tree.member(name))
            if node is not None:
                found[name] = node.data.decode(errors="replace")
        return found

    # ---- inside

    async def _register(self, path: str, data: bytes) -> None:
        await self._session.ensure(path.rpartition("/")[0])
        for _ in range(ATTEMPTS):
            found = await self._session.get(path)
            operations: list[Operation] = [Create(path, data, ephemeral=True)]
            if found is not None:
                if found.owner == self._session.id:
                    return
                operations.insert(0, Delete(path, found.version))
            try:
                await self._session.transaction(operations)
                return
            except TransactionRefused:
                await self._session.ensure(path.rpartition("/")[0])
        self._log.warning("members.not_registered", path=path)

    async def _remove(self, path: str) -> None:
        try:
            found = await self._session.get(path)
            if found is not None and found.owner == self._session.id:
                await self._session.transaction([Delete(path, found.version)])
        except (TransactionRefused, ZooKeeperUnavailable):
            return  # it goes with the session

    async def _read(self) -> None:
        await self._session.ensure(tree.CLUSTER)
        names = await self._session.children(tree.CLUSTER, self._fired)
        if names != self.names or self._changed_at is None:
            self._changed_at = self._clock.seconds()
            self.names = names
        if self._node not in names and not self._stopping:
            await self._register(tree.member(self._node), self._status_address().encode())

    def _fired(self, deleted: bool) -> None:
        if self._session.connected:
            self._spawn(self._read())

    def _spawn(self, work: Coroutine[Deferred[Any], Any, None]) -> None:
        Deferred.fromCoroutine(self._tried(work))

    async def _tried(self, work: Coroutine[Deferred[Any], Any, None]) -> None:
        try:
            await work
        except ZooKeeperUnavailable:
            return  # everything is done again when the connection is back
