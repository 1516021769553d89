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

from canal_ha.cluster.denials import Denials
from canal_ha.cluster.session import ClusterSession
from canal_ha.errors import TransactionRefused, ZnodeDenied, ZooKeeperUnavailable
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.operations import Create, Delete, Operation

STABLE_S = 0.300
ATTEMPTS = 10
REGISTER_AGAIN_S = 0.5  # after somebody deleted our node: lets a deleteall finish
DENIED_AGAIN_S = 5.0  # after ZooKeeper denied us a node: somebody can correct its rights

Work = Callable[[], Coroutine[Deferred[Any], Any, None]]


class Members:
    """This node's registration and the list of live nodes.

    node: registerIp:port.
    session: the ZooKeeper session.
    status_address: host:port of our status endpoint, stored as the data of our node.
    clock: seconds and callLater of a reactor.
    denials: gets what ZooKeeper denies.
    log: structlog's.
    """

    def __init__(
        self,
        node: str,
        session: ClusterSession,
        status_address: Callable[[], str],
        *,
        clock: Any,
        denials: Denials,
        log: Any,
    ) -> None:
        self.names: tuple[str, ...] = ()
        self._node = node
        self._session = session
        self._status_address = status_address
        self._clock = clock
        self._denials = denials
        self._log = log
        self._wanted: dict[str, bytes] = {}  # our nodes: path -> data
        self._unwanted: set[str] = set()  # our nodes that could not be deleted while ZooKeeper was away
        self._watches: dict[str, Callable[[bool], None]] = {}
        self._denied: dict[str, Any] = {}  # path -> the timer that tries again
        self._changed_at: float | None = None  # None until the list has been read in this session

    def connected(self) -> None:
        """Register everything again and read the list; call it after every connect, since the session may be new."""
        self._changed_at = None
        self._wanted[tree.member(self._node)] = self._status_address().encode()
        for path in self._wanted:
            self._spawn(path, partial(self._register, path))
        for path in tuple(self._unwanted):
            self._spawn(path, partial(self._delete, path))
        known = tree.known_node(self._node)
        self._spawn(known, partial(self._session.ensure, known))
        self._spawn(tree.CLUSTER, self._read)

    def register(self, destination: str, data: bytes) -> None:
        """Register this node as able to run the destination. data: of its node, for those who place destinations."""
        path = tree.destination_member(destination, self._node)
        self._wanted[path] = data
        self._unwanted.discard(path)
        if self._session.connected:
            self._spawn(path, partial(self._register, path))

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
        reason = ""
        for _ in range(ATTEMPTS):
            try:
                found = await self._session.get(path, watch)
            except ZnodeDenied:
                if path not in self._wanted:
                    return  # given up meanwhile
                raise
            if path not in self._wanted or (found is not None and found.owner == self._session.id):
                return
            operations: list[Operation] = [Create(path, self._wanted[path], ephemeral=True)]
            if found is not None:
                operations.insert(0, Delete(path, found.version))
            try:
                await self._session.transaction(operations)
            except TransactionRefused as refused:
                reason = str(refused)
                if refused.reason == "no rights" and path in self._wanted:
                    raise ZnodeDenied(reason) from refused
                await self._session.ensure(path.rpartition("/")[0])
        self._log.warning("members.not_registered", path=path, reason=reason)

    def _gone(self, path: str, deleted: bool) -> None:
        if self._session.connected and path in self._wanted:
            self._clock.callLater(REGISTER_AGAIN_S if deleted else 0.0, self._again, path)

    def _again(self, path: str) -> None:
        if self._session.connected and path in self._wanted:
            self._spawn(path, partial(self._register, path))

    async def _remove(self, path: str) -> None:
        if self._wanted.pop(path, None) is not None:
            self._forget_denial(path)
            self._denials.allowed(path)
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
            self._spawn(tree.CLUSTER, self._read)

    def _spawn(self, path: str, work: Work) -> None:
        self._forget_denial(path)
        Deferred.fromCoroutine(self._tried(path, work))

    async def _tried(self, path: str, work: Work) -> None:
        try:
            await work()
        except ZnodeDenied as error:
            self._denials.denied(path, error)
            self._forget_denial(path)
            self._denied[path] = self._clock.callLater(DENIED_AGAIN_S, self._try_again, path, work)
        except ZooKeeperUnavailable:
            return  # the next connect repeats everything
        else:
            self._denials.allowed(path)

    def _try_again(self, path: str, work: Work) -> None:
        if self._session.connected:
            self._spawn(path, work)

    def _forget_denial(self, path: str) -> None:
        """Try no second time beside the first."""
        timer = self._denied.pop(path, None)
        if timer is not None and timer.active():
            timer.cancel()
