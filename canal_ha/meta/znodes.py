"""ZnodeBackend: stores cursors and subscriptions in canal's znodes; only the owner's writes succeed.

Every write is one transaction that begins with a check of `{d}` at the owner's epoch. Once another node claims the
destination, ZooKeeper refuses the old owner's writes. Writing a cursor also checks the last seen version of its
znode, so an edit made with zkCli is noticed and taken over, not overwritten.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable

from canal_ha.errors import Fenced, MetaUnreadable, MetaWriteFailed, TransactionRefused, ZooKeeperUnavailable
from canal_ha.meta.repository import (
    Change,
    CursorMoved,
    Snapshot,
    StartForgotten,
    StartKept,
    Subscribed,
    Unsubscribed,
    apply,
)
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.position import LogPosition
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.operations import Check, Create, Delete, Operation, SetData, Znode, Znodes

ATTEMPTS = 8  # each new attempt means that somebody else created, changed or deleted a node meanwhile


class ZnodeBackend:
    """A MetaBackend for one destination and one epoch; the node makes a new one each time it claims the destination.

    destination: its name.
    epoch: the owner's epoch, which fences every write.
    znodes: ZooKeeper.
    replaced: called when an operator wrote a client's cursor; continue from there.
    lost: called when a client's cursor was deleted or made unreadable from outside; write it again.
    restore: state to write back if ZooKeeper lost it and came back empty.
    """

    def __init__(
        self,
        destination: str,
        epoch: int,
        znodes: Znodes,
        *,
        replaced: Callable[[int, LogPosition], None],
        lost: Callable[[int], None],
        restore: Snapshot | None = None,
    ) -> None:
        self.durable = Snapshot()  # the state known to be in ZooKeeper
        self._destination = destination
        self._znodes = znodes
        self._replaced = replaced
        self._lost = lost
        self._restore = restore
        self._fence = Check(tree.destination(destination), epoch)
        self._known: dict[str, Znode] = {}
        self._unsure: dict[str, bytes | None] = {}  # writes without an answer: the node's data if they succeeded
        self._watched: set[str] = set()

    async def load(self) -> Snapshot:
        """Read everything and start to watch the cursors. Raises MetaUnreadable or ZooKeeperUnavailable.

        The session that claimed the destination reads after its claim, so it sees all writes of an earlier owner.
        """
        clients: dict[int, ClientIdentity] = {}
        cursors: dict[int, LogPosition] = {}
        for name in await self._znodes.children(self._fence.path):
            if not name.isdigit():
                continue
            client_id = int(name)
            self._known[tree.client(self._destination, client_id)] = Znode(b"", 0)
            stored = await self._read(tree.client_filter(self._destination, client_id))
            clients[client_id] = ClientIdentity(self._destination, client_id, stored.data.decode() if stored else "")
            cursor = await self._read(tree.cursor(self._destination, client_id))
            if cursor is not None and cursor.data:
                cursors[client_id] = _position(tree.cursor(self._destination, client_id), cursor.data)
            self._watch(client_id)
        kept = await self._read(tree.parse(self._destination))
        start = _position(tree.parse(self._destination), kept.data) if kept is not None and kept.data else None
        self.durable = Snapshot(clients, cursors, start)
        if self._restore is not None:
            await self.write(tuple(_missing(self._restore, self.durable)))
        return self.durable

    async def write(self, changes: tuple[Change, ...]) -> None:
        """See MetaBackend. If an operator edited a cursor meanwhile, keep the edit and write the rest."""
        due = list(changes)
        try:
            await self._settle(due)
            for _ in range(ATTEMPTS):
                operations, after = await self._plan(due)
                if not operations:
                    break
                try:
                    versions = await self._transact(operations, after)
                except TransactionRefused as refused:
                    if refused.index == 0:
                        raise Fenced(f"{self._destination}: {refused}") from refused
                    await self._look_again(refused.path, due)
                    continue
                for operation, version in zip(operations, versions[1:], strict=True):
                    data = after[operation.path]
                    self._remember(operation.path, None if data is None else Znode(data, version))
                break
            else:
                raise MetaWriteFailed(f"{self._destination}: the znodes changed in all {ATTEMPTS} attempts to write")
        except ZooKeeperUnavailable as error:
            raise MetaWriteFailed(f"{self._destination}: {error}") from error
        self.durable = apply(self.durable, due)
        for change in due:
            if isinstance(change, CursorMoved):
                self._watch(change.client_id)

    # ---- one transaction

    async def _plan(self, changes: Iterable[Change]) -> tuple[list[Operation], dict[str, bytes | None]]:
        """Return the operations for the changes, and the data of each node afterwards (None: deleted)."""
        operations: list[Operation] = []
        after: dict[str, bytes | None] = {}

        def put(path: str, data: bytes) -> None:
            known = self._known.get(path)
            if known is None:
                operations.append(Create(path, data))
            elif known.data != data:
                operations.append(SetData(path, data, known.version))
            else:
                return
            after[path] = data

        def client(client_id: int) -> None:
            path = tree.client(self._destination, client_id)
            if path not in after and path not in self._known:
                put(path, b"")

        for change in changes:
            match change:
                case Subscribed(identity):
                    client(identity.client_id)
                    if identity.filter.strip():
                        path = tree.client_filter(self._destination, identity.client_id)
                        put(path, identity.filter.encode())
                case CursorMoved(client_id, position):
                    client(client_id)
                    put(tree.cursor(self._destination, client_id), position.to_json(with_type=True).encode())
                case Unsubscribed(client_id):
                    async for path in self._subtree(tree.client(self._destination, client_id)):
                        operations.append(Delete(path))
                        after[path] = None
                case StartKept(position):
                    put(tree.parse(self._destination), position.to_json(with_type=False).encode())
                case StartForgotten():
                    path = tree.parse(self._destination)
                    if path in self._known:
                        operations.append(Delete(path))
                        after[path] = None
        return operations, after

    async def _subtree(self, path: str) -> AsyncIterator[str]:
        """Yield the paths of the node and all nodes below it, leaves first."""
        for name in await self._znodes.children(path):
            async for below in self._subtree(f"{path}/{name}"):
                yield below
        if await self._znodes.get(path) is not None:
            yield path

    async def _transact(self, operations: list[Operation], after: dict[str, bytes | None]) -> tuple[int, ...]:
        """Send the transaction. If no answer comes, keep its expected result, to compare with the nodes later."""
        self._unsure |= after
        try:
            return await self._znodes.transaction([self._fence, *operations])
        except ZooKeeperUnavailable:
            after = {}
            raise
        finally:
            for path in after:  # ZooKeeper answered: all operations succeeded or none
                self._unsure.pop(path, None)

    # ---- reading nodes

    async def _read(self, path: str) -> Znode | None:
        node = await self._znodes.get(path)
        self._remember(path, node)
        return node

    def _remember(self, path: str, node: Znode | None) -> None:
        if node is None:
            self._known.pop(path, None)
        else:
            self._known[path] = node

    async def _settle(self, changes: list[Change]) -> None:
        """Find out whether the writes without an answer succeeded: they did if the nodes hold the same bytes."""
        for path in tuple(self._unsure):
            await self._look_again(path, changes)

    async def _look_again(self, path: str, changes: list[Change]) -> None:
        """Read an unexpected node and its parent. If a cursor holds bytes that we did not write, it is an edit."""
        parent = path.rpartition("/")[0]
        if parent != self._fence.path:
            await self._read(parent)
        node = await self._znodes.get(path)
        client_id = self._client_of(path)
        if client_id is not None and self._is_edit(path, node) and self._take_over(client_id, path, node):
            changes[:] = [
                change for change in changes if not (isinstance(change, CursorMoved) and change.client_id == client_id)
            ]
        self._remember(path, node)
        self._unsure.pop(path, None)

    def _client_of(self, path: str) -> int | None:
        """Return the client whose cursor this node is; None for any other node."""
        parent, _, name = path.rpartition("/")
        owner = parent.rpartition("/")[2]
        return int(owner) if name == "cursor" and owner.isdigit() else None

    def _is_edit(self, path: str, node: Znode | None) -> bool:
        """Return whether somebody else wrote this cursor.

        The version decides: an edit may repeat the node's old data while the cursor in memory has moved on.
        """
        return node is not None and node != self._known.get(path) and node.data != self._unsure.get(path)

    def _take_over(self, client_id: int, path: str, node: Znode | None) -> bool:
        """Continue from a cursor written from outside; return False if it is unreadable."""
        try:
            position = _position(path, b"" if node is None else node.data)
        except MetaUnreadable:
            return False
        self.durable = apply(self.durable, (CursorMoved(client_id, position),))
        self._replaced(client_id, position)
        return True

    # ---- edits on idle clients

    def _watch(self, client_id: int) -> None:
        path = tree.cursor(self._destination, client_id)
        if path not in self._watched:
            self._watched.add(path)
            self._znodes.watch(path, lambda node: self._changed(client_id, path, node))

    def _changed(self, client_id: int, path: str, node: Znode | None) -> None:
        if client_id not in self.durable.clients or path in self._unsure:
            return  # the client is gone, or our own write is under way and its answer will decide
        if node is None:
            if self._known.pop(path, None) is not None:
                self._lost(client_id)
        elif self._is_edit(path, node):
            self._known[path] = node
            if not self._take_over(client_id, path, node):
                self._lost(client_id)


def _missing(wanted: Snapshot, there: Snapshot) -> Iterable[Change]:
    """Yield the changes that put back what is missing."""
    for client_id, identity in wanted.clients.items():
        if client_id not in there.clients:
            yield Subscribed(identity)
    for client_id, cursor in wanted.cursors.items():
        if client_id not in there.cursors:
            yield CursorMoved(client_id, cursor)
    if wanted.start is not None and there.start is None and not there.cursors and not wanted.cursors:
        yield StartKept(wanted.start)


def _position(path: str, data: bytes) -> LogPosition:
    try:
        return LogPosition.from_json(data.decode())
    except ValueError as error:
        raise MetaUnreadable(f"{path}: {error}; correct it with zkCli, or delete the node to start afresh") from error
