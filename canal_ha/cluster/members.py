"""Live nodes: this node's own ephemeral nodes, and the list of all. Reactor thread.

A persistent znode lasts from a node's start to its orderly stop. If it exists without the ephemeral one, the node is
missing. Nobody waits for it: a node that cannot create or delete it works as well.

If another session owns one of our nodes, an earlier process with our address left it behind. It would vanish some time
after our start and remove us from the list for good, so we replace it at once (canal does not).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred

from canal_ha.cluster.session import ClusterSession
from canal_ha.errors import TransactionRefused, ZooKeeperUnavailable
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.operations import Create, Delete, Operation

STABLE_S = 0.300
ATTEMPTS = 10
REGISTER_AGAIN_S = 0.5  # after somebody deleted our node: lets a deleteall finish


class Members:
    """This node's registration and the list of live nodes.

    node: registerIp:port.
    session: the ZooKeeper session.
    status_address: host:port of our status endpoint, stored as the data of our node.
    clock: seconds and callLater of a reactor.
    log: structlog's.
    """

    def __init__(
        self, node: str, session: ClusterSession, status_address: Callable[[], str], *, clock: Any, log: Any
    ) -> None:
        self.names: tuple[str, ...] = ()
        self._node = node
        self._session = session
        self._status_address = status_address
        self._clock = clock
        self._log = log
        self._wanted: dict[str, bytes] = {}  # our nodes: path -> data
        self._unwanted: set[str] = set()  # our nodes that could not be deleted while ZooKeeper was away
        self._watches: dict[str, Callable[[bool], None]] = {}
        self._changed_at: float | None = None  # None until the list has been read in this session

    def connected(self) -> None:
        """Register everything again and read the list; call it after every connect, since the session may be new."""
        self._changed_at = None
        self._wanted[tree.member(self._node)] = self._status_address().encode()
        for path in self._wanted:
            self._spawn(self._register(path))
        for path in tuple(self._unwanted):
            self._spawn(self._delete(path))
        self._spawn(self._session.ensure(tree.known_node(self._node)))
        self._spawn(self._read())

    def register(self, destination: str, data: bytes) -> None:
        """Register this node as able to run the destination. data: of its node, for those who place destinations."""
        path = tree.destination_member(destination, self._node)
        self._wanted[path] = data
        self._unwanted.discard(path)
        if self._session.connected:
            self._spawn(self._register(path))

    async def unregister(self, destination: str) -> None:
        """Remove this node from those able to run the destination."""
        await self._remove(tree.destination_member(destination, self._node))

    async def stop(self) -> None:
        """Remove this node from every list."""
        for path in tuple(self._wanted):
            await self._remove(path)
        with suppress(ZooKeeperUnavailable, TransactionRefused):
            await self._session.transaction([Delete(tree.known_node(self._node))])

    def stable_in(self, now: float, stable_s: float = STABLE_S) -> float | None:
        """Return the seconds until the list has been the same for stable_s, 0.0 then, None before it has been read."""
        return None if self._changed_at is None else max(0.0, self._changed_at + stable_s - now)

    # ---- inside

    async def _register(self, path: str) -> None:
        """Create one of our nodes and watch it. Two simultaneous calls do no harm."""
        watch = self._watches.setdefault(path, partial(self._gone, path))
        for _ in range(ATTEMPTS):
            found = await self._session.get(path, watch)
            if path not in self._wanted or (found is not None and found.owner == self._session.id):
                return
            operations: list[Operation] = [Create(path, self._wanted[path], ephemeral=True)]
            if found is not None:
                operations.insert(0, Delete(path, found.version))
            try:
                await self._session.transaction(operations)
            except TransactionRefused:
                await self._session.ensure(path.rpartition("/")[0])
        self._log.warning("members.not_registered", path=path)

    def _gone(self, path: str, deleted: bool) -> None:
        if self._session.connected and path in self._wanted:
            self._clock.callLater(REGISTER_AGAIN_S if deleted else 0.0, self._again, path)

    def _again(self, path: str) -> None:
        if self._session.connected and path in self._wanted:
            self._spawn(self._register(path))

    async def _remove(self, path: str) -> None:
        if self._wanted.pop(path, None) is not None:
            self._unwanted.add(path)
            await self._delete(path)

    async def _delete(self, path: str) -> None:
        """Delete one of our nodes that nobody wants. Without ZooKeeper, the next connect does it."""
        try:
            found = await self._session.get(path)
            if path not in self._unwanted:
                return  # registered again meanwhile
            if found is not None and found.owner == self._session.id:
                await self._session.transaction([Delete(path, found.version)])
        except ZooKeeperUnavailable:
            return
        except TransactionRefused:
            pass  # somebody else deleted it
        self._unwanted.discard(path)

    async def _read(self) -> None:
        await self._session.ensure(tree.CLUSTER)
        names = await self._session.children(tree.CLUSTER, self._fired)
        if names != self.names or self._changed_at is None:
            self._changed_at = self._clock.seconds()
            self.names = names

    def _fired(self, deleted: bool) -> None:
        if self._session.connected:
            self._spawn(self._read())

    def _spawn(self, work: Coroutine[Deferred[Any], Any, None]) -> None:
        Deferred.fromCoroutine(self._tried(work))

    async def _tried(self, work: Coroutine[Deferred[Any], Any, None]) -> None:
        try:
            await work
        except ZooKeeperUnavailable:
            return  # the next connect repeats everything
