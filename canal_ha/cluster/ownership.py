"""Ownership: what an instance holds while this node runs its destination. Reactor thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from canal_ha.cluster.session import ClusterSession
from canal_ha.errors import Fenced, TransactionRefused, ZooKeeperUnavailable
from canal_ha.meta.repository import Snapshot
from canal_ha.meta.znodes import ZnodeBackend
from canal_ha.model.position import LogPosition
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.operations import Check, Operation, Watch, Znode


class Ownership:
    """One destination, one epoch; void once the node has stepped down. Also the Znodes that its cursors live in."""

    def __init__(
        self,
        destination: str,
        epoch: int,
        session: ClusterSession,
        *,
        holds: Callable[[], bool],
        write: Callable[[Sequence[Operation]], Awaitable[tuple[int, ...]]],
        fenced: Callable[[], None],
        failed: Callable[[str], None],
        restore: Snapshot | None,
    ) -> None:
        self.destination = destination
        self.epoch = epoch
        self._session = session
        self._holds = holds
        self._write = write
        self._fenced = fenced
        self._failed = failed
        self._restore = restore
        self._over = False
        self._backend: ZnodeBackend | None = None
        self._watched: dict[str, tuple[Watch, Callable[[Znode | None], None]]] = {}

    def lease_ok(self) -> bool:
        """Whether this node may act as the owner at this very moment. Cheap; ask it before every GET and ACK."""
        return not self._over and self._holds()

    def failed(self, reason: str) -> None:
        """The instance cannot go on here: stop it and let another node try. This one holds back for a while."""
        if not self._over:
            self._failed(reason)

    def fenced(self) -> None:
        """A durable write was refused as Fenced: step down. Known already when the write went through `meta`."""
        if not self._over:
            self._fenced()

    def meta(self, *, replaced: Callable[[int, LogPosition], None], lost: Callable[[int], None]) -> ZnodeBackend:
        """The fenced cursor store of this epoch. replaced, lost: see ZnodeBackend."""
        self._backend = ZnodeBackend(
            self.destination, self.epoch, self, replaced=replaced, lost=lost, restore=self._restore
        )
        return self._backend

    @property
    def durable(self) -> Snapshot | None:
        """What the cursor store knows to be in ZooKeeper, None when none was asked for."""
        return None if self._backend is None else self._backend.durable

    def end(self) -> None:
        """The node has stepped down: nothing is written, and no watch is heard, any more."""
        self._over = True
        self._watched.clear()

    def watch_again(self) -> None:
        """Leave the watches once more, after a reconnect took them."""
        for path in tuple(self._watched):
            self._arm(path)

    # ---- Znodes

    async def get(self, path: str) -> Znode | None:
        """See Znodes."""
        return await self._session.get(path)

    async def children(self, path: str) -> tuple[str, ...]:
        """See Znodes."""
        return await self._session.children(path)

    async def transaction(self, operations: Sequence[Operation]) -> tuple[int, ...]:
        """See Znodes; raises Fenced without asking when this node has stepped down or its lease is over."""
        if not self.lease_ok():
            raise Fenced(f"{self.destination}: this node may not act as owner any more")
        try:
            return await self._write(operations)
        except TransactionRefused as refused:
            operation = operations[refused.index]
            if isinstance(operation, Check) and operation.path == tree.destination(self.destination):
                self.fenced()
            raise

    def watch(self, path: str, changed: Callable[[Znode | None], None]) -> None:
        """See Znodes; until this ownership ends."""
        self._watched[path] = (partial(self._fired, path), changed)
        self._arm(path)

    def _fired(self, path: str, deleted: bool) -> None:
        if path in self._watched:
            self._arm(path)

    def _arm(self, path: str) -> None:
        Deferred.fromCoroutine(self._look(path)).addErrback(self._broken)

    async def _look(self, path: str) -> None:
        watch, _ = self._watched[path]
        try:
            node = await self._session.get(path, watch)
        except ZooKeeperUnavailable:
            return  # left again when the connection is back
        if path in self._watched and not self._over:
            self._watched[path][1](node)

    def _broken(self, failure: Failure) -> None:
        self.failed(failure.getErrorMessage())
