"""Ownership: an instance's proof that this node runs its destination. Reactor thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from twisted.internet.defer import Deferred, FirstError, gatherResults
from twisted.python.failure import Failure

from canal_ha.cluster.session import ClusterSession
from canal_ha.errors import Fenced, TransactionRefused, ZnodeDenied, ZooKeeperUnavailable
from canal_ha.meta.repository import CursorLoss
from canal_ha.meta.znodes import Stored, ZnodeBackend
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.position import LogPosition
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.operations import Check, Operation, Watch, Znode

DENIED_AGAIN_S = 30.0  # no watch tells that the rights of a node have changed
LEASE_AGAIN_S = 0.1  # when to look again at a node that changed while the lease was over


class Ownership:
    """One destination at one epoch; void once the node has stepped down. It is also the Znodes of its cursor store.

    destination: its name.
    epoch: the data version of `{d}` after the claim.
    session: the ZooKeeper session.
    holds: whether the node may act as the owner now.
    write: makes a quorum write, whose answer extends the lease.
    fenced: called when ZooKeeper refused a write of this epoch.
    failed: called with the reason when the instance cannot continue here.
    later: runs a call after that many seconds.
    before, restore: see ZnodeBackend.
    """

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
        later: Callable[[float, Callable[[], None]], object],
        before: Stored | None,
        restore: bool,
    ) -> None:
        self.destination = destination
        self.epoch = epoch
        self._session = session
        self._holds = holds
        self._write = write
        self._fenced = fenced
        self._failed = failed
        self._later = later
        self._before = before
        self._restore = restore
        self._over = False
        self._backend: ZnodeBackend | None = None
        self._watched: dict[str, tuple[Watch, Callable[[Znode | None], None]]] = {}
        self._denied: set[str] = set()  # watched nodes that wait for DENIED_AGAIN_S

    def lease_ok(self) -> bool:
        """Return whether this node may act as the owner now. Cheap; call it before every GET and ACK."""
        return not self._over and self._holds()

    def failed(self, reason: str) -> None:
        """Report that the instance cannot continue here: another node takes over; this one waits before it races."""
        if not self._over:
            self._failed(reason)

    def meta(
        self,
        *,
        replaced: Callable[[int, LogPosition], None],
        lost: Callable[[int, CursorLoss], None],
        skipped: Callable[[str], None],
        mended: Callable[[ClientIdentity, LogPosition | None], None],
    ) -> ZnodeBackend:
        """Return the fenced cursor store of this epoch. replaced, lost, skipped, mended: see ZnodeBackend."""
        self._backend = ZnodeBackend(
            self.destination,
            self.epoch,
            self,
            replaced=replaced,
            lost=lost,
            skipped=skipped,
            mended=mended,
            before=self._before,
            restore=self._restore,
        )
        return self._backend

    @property
    def stored(self) -> Stored | None:
        """What the cursor store knows to be in ZooKeeper; None before it has loaded."""
        return None if self._backend is None else self._backend.stored

    def end(self) -> None:
        """End the ownership: from now on nothing is written and watches are ignored."""
        self._over = True
        self._watched.clear()

    def watch_again(self) -> None:
        """Set the watches again after a reconnect, which removed them."""
        for path in tuple(self._watched):
            self._arm(path)

    # ---- Znodes

    async def get(self, path: str) -> Znode | None:
        """See Znodes. Raises Fenced if the lease is over when the answer comes: a newer owner may have written it."""
        node = await self._session.get(path)
        self._check_lease()
        return node

    async def get_all(self, paths: Sequence[str]) -> tuple[Znode | ZnodeDenied | None, ...]:
        """See Znodes."""
        try:
            asked = [Deferred.fromCoroutine(self._get_or_denied(path)) for path in paths]
            return tuple(await gatherResults(asked, consumeErrors=True))
        except FirstError as error:
            return error.subFailure.raiseException()

    async def _get_or_denied(self, path: str) -> Znode | ZnodeDenied | None:
        try:
            return await self._session.get(path)
        except ZnodeDenied as denied:
            return denied

    async def children(self, path: str) -> tuple[str, ...]:
        """See Znodes."""
        return await self._session.children(path)

    async def transaction(self, operations: Sequence[Operation]) -> tuple[int, ...]:
        """See Znodes. Raises Fenced without a request if this node has stepped down or its lease is over.

        The race hears of it: from here if ZooKeeper has refused the epoch, else from the lease itself.
        """
        self._check_lease()
        try:
            return await self._write(operations)
        except TransactionRefused as refused:
            operation = operations[refused.index]
            if isinstance(operation, Check) and operation.path == tree.destination(self.destination):
                self._report_fenced()
            raise

    def _check_lease(self) -> None:
        if not self.lease_ok():
            raise Fenced(f"{self.destination}: this node is not its owner any more")

    def _report_fenced(self) -> None:
        if not self._over:
            self._fenced()

    def watch(self, path: str, changed: Callable[[Znode | None], None]) -> None:
        """See Znodes. The watch lasts until this ownership ends. A path has one, so that each change is told once."""
        watch, _ = self._watched.get(path) or (partial(self._fired, path), None)
        self._watched[path] = (watch, changed)
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
        except ZnodeDenied:
            if path not in self._denied:
                self._denied.add(path)
                self._later(DENIED_AGAIN_S, partial(self._look_again, path))
            return
        except ZooKeeperUnavailable:
            return  # the next connect sets the watch again
        if path not in self._watched:
            return
        if self.lease_ok():
            self._watched[path][1](node)
        else:  # a newer owner may have written the node; or an answer that is under way extends the lease
            self._later(LEASE_AGAIN_S, partial(self._fired, path, deleted=False))

    def _look_again(self, path: str) -> None:
        self._denied.discard(path)
        self._fired(path, deleted=False)

    def _broken(self, failure: Failure) -> None:
        self.failed(failure.getErrorMessage())
