"""ZnodeBackend: stores cursors and subscriptions in canal's znodes; only the owner's writes succeed.

Every transaction begins with a check of `{d}` at the owner's epoch. Once another node claims the destination, ZooKeeper
refuses the old owner's writes. A write is one transaction, or several if ZooKeeper would not take it in one. Writing a
cursor also checks the last seen version of its znode, so an edit made with zkCli is noticed and taken over, not
overwritten. If ZooKeeper denies the right to read or to write the nodes of a client, the others go on without it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from canal_ha.errors import (
    ClientsRefused,
    Fenced,
    MetaUnreadable,
    MetaWriteFailed,
    TransactionRefused,
    ZnodeDenied,
    ZooKeeperUnavailable,
)
from canal_ha.meta.repository import (
    Change,
    CursorLoss,
    CursorMoved,
    ServersChosen,
    Snapshot,
    StartForgotten,
    StartKept,
    Subscribed,
    Unsubscribed,
    apply,
    same_or_filled,
)
from canal_ha.meta.write_behind import steps_back
from canal_ha.model.excerpt import excerpt, some
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.position import LogPosition
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.operations import Check, Create, Delete, Operation, SetData, Znode, Znodes

READ_AT_ONCE = 64  # clients whose nodes are asked for together; the owner's lease needs answers in between
FILTER_BYTES = 1 << 18  # canal limits no filter; a client of canal-ha may send far less
SERVERS_BYTES = 1 << 13
_SERVER = re.compile(r"(\S{1,255}:[0-9]{1,5})?")  # "" for a source that never switched
TRANSACTION_BYTES = 400_000  # ZooKeeper drops a connection that sends more than 1 MB at once (jute.maxbuffer)
OPERATION_BYTES = 60  # of an operation in a transaction, besides its path and data; rather more than less
ATTEMPTS = 8  # each new attempt means that somebody else created, changed or deleted a node meanwhile


@dataclass(frozen=True, slots=True)
class Stored:
    """What an owner knew to be in ZooKeeper when its ownership ended.

    snapshot: clients, filters and cursors.
    nodes: the nodes that held them, by path.
    """

    snapshot: Snapshot
    nodes: Mapping[str, Znode]


class ZnodeBackend:
    """A MetaBackend for one destination and one epoch; the node makes a new one each time it claims the destination.

    destination: its name.
    epoch: the owner's epoch, which fences every write.
    znodes: ZooKeeper.
    replaced: called when an operator wrote a client's cursor; continue from there.
    lost: called when a client's cursor was deleted, made unreadable from outside, or came back older; write it again.
    skipped: called with a text that names nodes which `load` cannot use. A client whose cursor or filter is among them
        is in Snapshot.unreadable.
    mended: called with such a client and its cursor once an operator has repaired the nodes.
    before: what this node's last ownership knew. It is written back if a cursor is older now: ZooKeeper has been
        restored from a backup.
    restore: write it back in any case, because ZooKeeper came back empty or older.
    """

    def __init__(
        self,
        destination: str,
        epoch: int,
        znodes: Znodes,
        *,
        replaced: Callable[[int, LogPosition], None],
        lost: Callable[[int, CursorLoss], None],
        skipped: Callable[[str], None],
        mended: Callable[[ClientIdentity, LogPosition | None], None],
        before: Stored | None = None,
        restore: bool = False,
    ) -> None:
        self.durable = Snapshot()  # the state known to be in ZooKeeper
        self._destination = destination
        self._znodes = znodes
        self._replaced = replaced
        self._lost = lost
        self._skipped = skipped
        self._mended = mended
        self._before = before
        self._restore = restore
        self._loaded = False
        self._fence = Check(tree.destination(destination), epoch)
        self._known: dict[str, Znode] = {}
        self._denied: dict[str, str] = {}  # why a node cannot be read, by path
        self._refused: dict[int, str] = {}  # clients that the write under way leaves out, and why
        # What a node holds if a write of ours without an answer succeeds. That can happen long after a reconnect, when
        # this session has read the node again. So it counts until a later write is answered.
        self._unanswered: dict[str, list[Znode | None]] = {}
        self._writing: set[str] = set()  # cursors that the write under way decides about
        self._seen_meanwhile: set[int] = set()  # clients whose cursor was looked at during that write
        self._watched: set[str] = set()

    @property
    def stored(self) -> Stored | None:
        """What is known to be in ZooKeeper; None before `load` has ended."""
        return Stored(self.durable, dict(self._known)) if self._loaded else None

    async def load(self) -> Snapshot:
        """Read everything and start to watch the cursors. Raises ZooKeeperUnavailable. What is unreadable is skipped.

        A cursor or a filter that cannot be read keeps only its own client waiting, until an operator corrects it. If
        this node was the last owner, it writes the client again.

        The session that claimed the destination reads after its claim, so it sees all writes of an earlier owner.
        """
        children = await self._znodes.children(self._fence.path)
        if strangers := tree.strangers(children):
            self._skipped(f"{self._fence.path} has children that are no client ids: {some(strangers)}")
        client_ids = tree.client_ids(children)
        for first in range(0, len(client_ids), READ_AT_ONCE):
            at_once = client_ids[first : first + READ_AT_ONCE]
            await self._read_all([path for client_id in at_once for path in self._paths(client_id)])
        start, servers = await self._start(), await self._servers()
        # From here on nothing waits: the first look of a watch compares with what `durable` holds, and tells the edits
        # that came after the reads above.
        self.durable = self._found(client_ids, start, servers)
        if self._before is not None:
            back = tuple(self._put_back(self._before))
            if back:
                with suppress(ClientsRefused):  # they stay unreadable, and the others are put back
                    await self.write(back)
        self._loaded = True
        return self.durable

    def _found(self, client_ids: Iterable[int], start: LogPosition | None, servers: tuple[str, ...]) -> Snapshot:
        """Return what was read, and watch its cursors and what is unreadable."""
        clients: dict[int, ClientIdentity] = {}
        cursors: dict[int, LogPosition] = {}
        unreadable: dict[int, str] = {}
        for client_id in client_ids:
            self._known[tree.client(self._destination, client_id)] = Znode(b"", 0)
            try:
                identity, cursor = self._stored_client(client_id)
            except MetaUnreadable as error:
                unreadable[client_id] = str(error)
                self._watch_unreadable(client_id)
                continue
            clients[client_id] = identity
            if cursor is not None:  # else the client's first write notices what an operator wrote
                cursors[client_id] = cursor
                self._watch(client_id)
        return Snapshot(clients, cursors, start, servers, unreadable)

    def _paths(self, client_id: int) -> tuple[str, str]:
        return tree.client_filter(self._destination, client_id), tree.cursor(self._destination, client_id)

    async def _read_all(self, paths: Sequence[str]) -> None:
        for path, node in zip(paths, await self._znodes.get_all(paths), strict=True):
            self._remember(path, node)

    def _stored_client(self, client_id: int) -> tuple[ClientIdentity, LogPosition | None]:
        """Return the client and its cursor as they were read. Raises MetaUnreadable for a damaged node of either."""
        path, cursor = self._paths(client_id)
        for each in (path, cursor):
            if each in self._denied:
                raise MetaUnreadable(f"{each}: {self._denied[each]}; correct its rights with zkCli, or delete it")
        stored = self._known.get(path)
        filter_text = _text(path, stored.data, FILTER_BYTES) if stored else ""
        return ClientIdentity(self._destination, client_id, filter_text), self._stored_position(cursor)

    def _stored_position(self, path: str) -> LogPosition | None:
        """Return the position that was read, if there is one. Raises MetaUnreadable."""
        node = self._known.get(path)
        return _position(path, node.data) if node is not None and node.data else None

    async def _start(self) -> LogPosition | None:
        """Return the kept start; None, after a report, if it is unreadable: the next one replaces it."""
        path = tree.parse(self._destination)
        await self._read(path)
        try:
            return self._stored_position(path)
        except MetaUnreadable as error:
            self._skipped(str(error))
            return None

    async def _servers(self) -> tuple[str, ...]:
        """Return the chosen servers; none, after a report, if the node is unreadable."""
        path = tree.source(self._destination)
        chosen = await self._read(path)
        try:
            servers = tuple(_text(path, chosen.data, SERVERS_BYTES).split(",")) if chosen and chosen.data else ()
        except MetaUnreadable as error:
            self._skipped(str(error))
            return ()
        if not all(_SERVER.fullmatch(server) for server in servers):
            self._skipped(f"{path}: {excerpt(ascii(','.join(servers)))} is not host:port")
            return ()
        return servers

    def _put_back(self, before: Stored) -> Iterable[Change]:
        """Yield the changes that put back what ZooKeeper has lost, if it has lost anything.

        No cursor steps back: a czxid says nothing about an ensemble that got copies of the znodes.
        """
        older = [
            client_id
            for client_id, cursor in before.snapshot.cursors.items()
            if _is_older(self._known.get(path := tree.cursor(self._destination, client_id)), before.nodes.get(path))
            and not ((there := self.durable.cursors.get(client_id)) and steps_back(there, cursor))
        ]
        if self._restore or older:
            yield from _differing(before.snapshot, self.durable)
            older = [client_id for client_id in older if client_id in self.durable.cursors]  # the others are put back
        else:
            older = [client_id for client_id in self.durable.unreadable if client_id in before.snapshot.cursors]
            yield from (Subscribed(before.snapshot.clients[client_id]) for client_id in older)
        yield from (CursorMoved(client_id, before.snapshot.cursors[client_id]) for client_id in older)

    async def holder(self, client_id: int) -> str:
        """See MetaBackend. The lock is a child of the client's node, and goes with it when the client is removed."""
        node = await self._znodes.get(tree.client_running(self._destination, client_id))
        return "" if node is None else tree.RunningData.from_bytes(node.data).address or "a process"

    async def write(self, changes: tuple[Change, ...]) -> None:
        """See MetaBackend. If an operator edited a cursor meanwhile, keep the edit and write the rest.

        A first cursor voids the kept start only if no client is refused, because it may be that client's.

        What is too large for one transaction is written in several, in the order of the changes.
        """
        due = list(changes)
        self._refused = {}
        self._writing = {
            tree.cursor(self._destination, change.client_id)
            for change in due
            if isinstance(change, CursorMoved | Unsubscribed)
        }
        try:
            for path in tuple(self._unanswered):
                await self._look_again(path, due)
            attempts = 0
            while not await self._tried(due):
                attempts += 1
                if attempts - len(self._refused) >= ATTEMPTS:
                    raise MetaWriteFailed(
                        f"{self._destination}: the znodes changed in all {ATTEMPTS} attempts to write"
                    )
        except ZooKeeperUnavailable as error:
            raise MetaWriteFailed(f"{self._destination}: {error}") from error
        finally:
            self._writing = set()
            seen, self._seen_meanwhile = self._seen_meanwhile, set()
            for client_id in seen:
                self._watch(client_id, again=True)  # look once more, now that it is known what we wrote
        self.durable = apply(self.durable, due)
        for change in due:
            if isinstance(change, CursorMoved):
                self._watch(change.client_id)
        if self._refused:
            raise ClientsRefused(self._refused)

    # ---- one transaction

    async def _tried(self, due: list[Change]) -> bool:
        """Send the changes. Return False if they are to be planned again."""
        operations, after = await self._plan(due)
        for piece in _pieces(operations):
            if not await self._done(piece, {each.path: after[each.path] for each in piece}, due):
                return False  # the rest of the plan may be wrong
        return True

    async def _plan(self, changes: Iterable[Change]) -> tuple[list[Operation], dict[str, bytes | None]]:
        """Return the operations for the changes, and the data of each node afterwards (None: deleted)."""
        operations: list[Operation] = []
        after: dict[str, bytes | None] = {}

        def put(path: str, data: bytes) -> None:
            known = self._known.get(path)
            if known is None:
                operations.append(Create(path, data))
            elif known.data != data or path in self._unanswered:
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
                    path = tree.client_filter(self._destination, identity.client_id)
                    text = same_or_filled(self.durable.clients.get(identity.client_id), identity).filter
                    if text.strip():
                        put(path, text.encode())
                    elif path in self._unanswered or ((there := self._known.get(path)) and there.data):
                        put(path, b"")  # else the filter of a refused SUBSCRIBE would count for the next owner
                case CursorMoved(client_id, position):
                    client(client_id)
                    put(tree.cursor(self._destination, client_id), position.to_json(with_type=True).encode())
                case Unsubscribed(client_id):
                    async for path in self._subtree(tree.client(self._destination, client_id)):
                        operations.append(Delete(path))
                        after[path] = None
                case StartKept(position):
                    put(tree.parse(self._destination), position.to_json(with_type=False).encode())
                case ServersChosen(addresses):
                    put(tree.source(self._destination), ",".join(addresses).encode())
                case StartForgotten():
                    path = tree.parse(self._destination)
                    if path in self._known:
                        operations.append(Delete(path))
                        after[path] = None
        return operations, after

    async def _subtree(self, path: str) -> AsyncIterator[str]:
        """Yield the paths of the node and all nodes below it, leaves first.

        A node that cannot be read can be deleted if nothing is below it: its parent's rights decide about that.
        """
        names: tuple[str, ...] = ()
        with suppress(ZnodeDenied):
            names = await self._znodes.children(path)
        for name in names:
            async for below in self._subtree(f"{path}/{name}"):
                yield below
        try:
            there = await self._znodes.get(path) is not None
        except ZnodeDenied:
            there = True
        if there:
            yield path

    async def _done(self, operations: list[Operation], after: dict[str, bytes | None], due: list[Change]) -> bool:
        """Send the transaction. Return False if a node was not as known: it has been read again.

        ZooKeeper does the writes of a session in order, so each answer settles the writes before it, even if it is a
        refusal. The server that answers is then up to date.
        """
        try:
            versions = await self._znodes.transaction([self._fence, *operations])
        except TransactionRefused as refused:
            if refused.index == 0:
                raise Fenced(f"{self._destination}: {refused}") from refused
            if refused.reason == "no rights":
                self._leave_out(refused.path, due)
                return False
            self._unanswered.setdefault(refused.path, [])
            await self._settle(due)
            return False
        except ZooKeeperUnavailable as error:
            for path, data in after.items():
                self._unanswered.setdefault(path, []).append(self._written(path, data))
            large = sum(map(_size, operations))
            if large > TRANSACTION_BYTES:
                text = f"{error}; {operations[0].path} makes a write of {large} bytes, and ZooKeeper takes 1 MB at most"
                raise ZooKeeperUnavailable(text) from error
            raise
        else:
            for operation, version in zip(operations, versions[1:], strict=True):
                data, known = after[operation.path], self._known.get(operation.path)
                created = 0 if known is None else known.created
                self._remember(operation.path, None if data is None else Znode(data, version, created=created))
                self._unanswered.pop(operation.path, None)
            with suppress(Fenced):  # a lease that ends while earlier writes are looked at does not undo this one
                await self._settle(due)
            return True

    def _written(self, path: str, data: bytes | None) -> Znode | None:
        """Return the node as our write leaves it, if it succeeds."""
        known = self._known.get(path)
        return None if data is None else Znode(data, 0 if known is None else known.version + 1)

    # ---- reading nodes

    async def _read(self, path: str) -> Znode | None:
        try:
            node = await self._znodes.get(path)
        except ZooKeeperUnavailable as error:
            raise type(error)(f"{path}: {error}") from error
        self._remember(path, node)
        return node

    def _remember(self, path: str, node: Znode | ZnodeDenied | None) -> None:
        self._denied.pop(path, None)
        if isinstance(node, ZnodeDenied):
            self._denied[path] = str(node)
        if node is None or isinstance(node, ZnodeDenied):
            self._known.pop(path, None)
        else:
            self._known[path] = node

    async def _settle(self, due: list[Change]) -> None:
        """Find out whether the writes without an answer succeeded, now that a later one is answered."""
        for path in tuple(self._unanswered):
            await self._look_again(path, due)
            del self._unanswered[path]

    async def _look_again(self, path: str, changes: list[Change]) -> None:
        """Read an unexpected node and its parent. If a cursor holds bytes that we did not write, it is an edit."""
        parent = path.rpartition("/")[0]
        try:
            if parent != self._fence.path:
                await self._read(parent)
            node = await self._znodes.get(path)
        except ZnodeDenied:
            self._leave_out(path, changes)
            return
        client_id = self._client_of(path)
        if client_id is not None and self._is_edit(path, node) and self._take_over(client_id, path, node):
            changes[:] = [
                change for change in changes if not (isinstance(change, CursorMoved) and change.client_id == client_id)
            ]
        self._remember(path, node)

    def _leave_out(self, path: str, changes: list[Change]) -> None:
        """Go on without the client of a node to which this session has no right. Raises MetaWriteFailed for others."""
        client_id = tree.client_id_of(path.removeprefix(f"{self._fence.path}/").partition("/")[0])
        reason = f"{path}: ZooKeeper denies the right to write it; correct its rights with zkCli"
        if client_id is None:
            raise MetaWriteFailed(reason)
        if any(_client_id(change) == client_id for change in changes):
            self._refused[client_id] = reason
            changes[:] = [
                change
                for change in changes
                if _client_id(change) != client_id and not isinstance(change, StartForgotten)
            ]

    def _client_of(self, path: str) -> int | None:
        """Return the client whose cursor this node is; None for any other node."""
        parent, _, name = path.rpartition("/")
        return tree.client_id_of(parent.rpartition("/")[2]) if name == "cursor" else None

    def _is_edit(self, path: str, node: Znode | None) -> bool:
        """Return whether somebody else wrote this cursor.

        The version decides: an edit may repeat the node's old data while the cursor in memory has moved on. A node that
        is older than it was has been restored from a backup.
        """
        known = self._known.get(path)
        ours = node == known or node in self._unanswered.get(path, ())
        return node is not None and not ours and not _is_older(node, known)

    def _take_over(self, client_id: int, path: str, node: Znode | None) -> bool:
        """Continue from a cursor written from outside; return False if it is unreadable."""
        try:
            position = _position(path, b"" if node is None else node.data)
        except MetaUnreadable:
            return False
        self.durable = apply(self.durable, (CursorMoved(client_id, position),))
        self._replaced(client_id, position)
        return True

    # ---- clients whose nodes are damaged

    def _watch_unreadable(self, client_id: int) -> None:
        for path in self._paths(client_id):
            self._znodes.watch(path, partial(self._look_at_unreadable, client_id, path))

    def _look_at_unreadable(self, client_id: int, path: str, node: Znode | None) -> None:
        """Take the client back if an operator has repaired or deleted the damaged node."""
        if client_id not in self.durable.unreadable:
            return
        self._remember(path, node)
        try:
            identity, cursor = self._stored_client(client_id)
        except MetaUnreadable:
            return
        moved = (CursorMoved(client_id, cursor),) if cursor is not None else ()
        self.durable = apply(self.durable, (Subscribed(identity), *moved))
        self._watch(client_id)
        self._mended(identity, cursor)

    # ---- edits on idle clients

    def _watch(self, client_id: int, *, again: bool = False) -> None:
        path = tree.cursor(self._destination, client_id)
        if again or path not in self._watched:
            self._watched.add(path)
            self._znodes.watch(path, lambda node: self._changed(client_id, path, node))

    def _changed(self, client_id: int, path: str, node: Znode | None) -> None:
        if path in self._writing:
            self._seen_meanwhile.add(client_id)
            if node == self._known.get(path):
                self._remember(path, node)  # with its czxid, which the write that made it did not tell
            return
        if client_id not in self.durable.clients:
            return
        known, edit = self._known.get(path), self._is_edit(path, node)
        self._remember(path, node)
        if node is None and known is not None:
            self._known.pop(tree.client_filter(self._destination, client_id), None)  # it may be gone too
            self._lost(client_id, CursorLoss.DELETED)
        elif _is_older(node, known):
            self._lost(client_id, CursorLoss.OLDER)
        elif edit and not self._take_over(client_id, path, node):
            self._lost(client_id, CursorLoss.MALFORMED)


def _client_id(change: Change) -> int | None:
    """Return whose nodes a change writes; None for those of the destination."""
    if isinstance(change, Subscribed):
        return change.identity.client_id
    return change.client_id if isinstance(change, CursorMoved | Unsubscribed) else None


def _size(operation: Operation) -> int:
    """Return about how many bytes an operation adds to a transaction."""
    data = operation.data if isinstance(operation, Create | SetData) else b""
    return OPERATION_BYTES + len(operation.path) + len(data)


def _pieces(operations: Iterable[Operation]) -> Iterator[list[Operation]]:
    """Yield the operations in transactions of a size that ZooKeeper takes."""
    piece: list[Operation] = []
    size = 0
    for operation in operations:
        if piece and size + _size(operation) > TRANSACTION_BYTES:
            yield piece
            piece, size = [], 0
        piece.append(operation)
        size += _size(operation)
    if piece:
        yield piece


def _is_older(node: Znode | None, known: Znode | None) -> bool:
    """Return whether a node is in an earlier state than it was. Within one history of ZooKeeper that cannot be."""
    if node is None or known is None or not node.created or not known.created:
        return False
    return (node.created, node.version) < (known.created, known.version)


def _differing(wanted: Snapshot, there: Snapshot) -> Iterable[Change]:
    """Yield the changes that put back what is missing, and the filters and servers that differ."""
    for client_id, identity in wanted.clients.items():
        if there.clients.get(client_id) != identity:
            yield Subscribed(identity)
    for client_id, cursor in wanted.cursors.items():
        if client_id not in there.cursors:
            yield CursorMoved(client_id, cursor)
    if wanted.start is not None and there.start is None and not there.cursors and not wanted.cursors:
        yield StartKept(wanted.start)
    if wanted.servers and wanted.servers != there.servers:
        yield ServersChosen(wanted.servers)


def _position(path: str, data: bytes) -> LogPosition:
    try:
        return LogPosition.from_json(data.decode())
    except ValueError as error:
        raise MetaUnreadable(f"{path}: {error}; correct it with zkCli, or delete the node to start afresh") from error


def _text(path: str, data: bytes, most_bytes: int) -> str:
    """Return the text of a node. Raises MetaUnreadable."""
    if len(data) > most_bytes:
        raise MetaUnreadable(f"{path}: {len(data)} bytes, at most {most_bytes} are read; delete the node")
    try:
        return data.decode()
    except ValueError as error:
        raise MetaUnreadable(f"{path}: {error}; correct it with zkCli, or delete the node") from error
