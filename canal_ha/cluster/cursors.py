"""Reads and writes cursors in ZooKeeper for an operator; the destination's owner notices an edit and continues there.

For commands: it blocks. An edit needs no fence, because the owner's write requires the version that it last saw: of two
simultaneous writes, one sees the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from canal_ha.errors import CanalError, MetaUnreadable, MetaWriteFailed, TransactionRefused, ZnodeDenied
from canal_ha.model.position import LogPosition
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.operations import Check, Create, Delete, SetData, Znode
from canal_ha.zookeeper.reading import BlockingZnodes

ATTEMPTS = 20


class CursorNodes:
    """The cursors of all destinations. znodes: an open session that may write. Methods raise ZooKeeperUnavailable."""

    def __init__(self, znodes: BlockingZnodes) -> None:
        self._znodes = znodes

    def read(self, destination: str, client_id: int) -> LogPosition | None:
        """Return the cursor; None if this client has none. Raises MetaUnreadable."""
        path = tree.cursor(destination, client_id)
        node = self._znodes.get(path)
        return None if node is None else _position(path, node)

    def read_all(self, destination: str) -> tuple[dict[int, LogPosition], tuple[str, ...]]:
        """Return the cursors of all clients, and the paths of those that nobody can read."""
        client_ids = tree.client_ids(self._znodes.children(tree.destination(destination)))
        paths = [tree.cursor(destination, client_id) for client_id in client_ids]
        cursors: dict[int, LogPosition] = {}
        unreadable = []
        for client_id, path, node in zip(client_ids, paths, self._znodes.get_all(paths), strict=True):
            try:
                if isinstance(node, ZnodeDenied):
                    unreadable.append(path)
                elif node is not None and node.data:
                    cursors[client_id] = _position(path, node)
            except MetaUnreadable:
                unreadable.append(path)
        return cursors, tuple(unreadable)

    def servers(self, destination: str) -> tuple[str, ...]:
        """Return the servers that the destination was switched to last; see ServersChosen."""
        node = self._znodes.get(tree.source(destination))
        return tuple(node.data.decode(errors="replace").split(",")) if node is not None and node.data else ()

    def change(self, destination: str, client_id: int, moved: Callable[[LogPosition], LogPosition]) -> LogPosition:
        """Replace a cursor, and return the one before. Raises MetaUnreadable, and MetaWriteFailed if there is none.

        destination: its name.
        client_id: the client's id.
        moved: returns the new cursor for the one that is there; nothing comes between the two.
        """
        path = tree.cursor(destination, client_id)
        for _ in range(ATTEMPTS):
            node = self._znodes.get(path)
            if node is None:
                raise MetaWriteFailed(f"client {client_id} of {destination} has no cursor: it never subscribed")
            before = _position(path, node)
            data = moved(before).to_json(with_type=True).encode()
            try:
                self._znodes.transaction([SetData(path, data, node.version)])
                return before
            except TransactionRefused as refused:
                if refused.reason not in ("version", "missing"):
                    raise
                # the owner has just written or deleted it: read it again
        raise MetaWriteFailed(f"{path} changed in all {ATTEMPTS} attempts to write it")

    def clients(self, destination: str) -> tuple[int, ...]:
        """Return the client ids that have subscribed."""
        return tree.client_ids(self._znodes.children(tree.destination(destination)))

    def delete(self, destination: str, client_id: int) -> None:
        """Remove a client id with all znodes below it, while no node runs the destination. Raises MetaWriteFailed.

        The owner would write them again, so the transaction checks that nobody claims the destination meanwhile.
        """
        parent = self._znodes.get(tree.destination(destination))
        if parent is None or self._znodes.get(tree.running(destination)) is not None:
            raise MetaWriteFailed(f"a node claims {destination} just now: run the command again")
        below = list(_below(self._znodes, tree.client(destination, client_id)))
        if tree.client_running(destination, client_id) in below:
            raise MetaWriteFailed(f"a program uses client id {client_id} of {destination} just now: stop it first")
        try:
            self._znodes.transaction([Check(tree.destination(destination), parent.version), *map(Delete, below)])
        except TransactionRefused as refused:
            raise MetaWriteFailed(f"{destination}, client {client_id}: {refused}: run the command again") from refused

    def problems(self) -> list[str]:
        """Return what keeps a node from working here. Creates and deletes a test node in one transaction."""
        path = f"{tree.ROOT}/check"
        try:
            self._znodes.ensure(tree.ROOT)
            self._znodes.transaction([Create(path), Delete(path)])
        except TransactionRefused as refused:
            if refused.reason == "exists":  # somebody else's; ZooKeeper checks the right to write first
                return []
            if refused.reason == "no rights":
                return [f"no right to write below {tree.ROOT}: set canal.zookeeper.auth as on the node that made it"]
            return [f"writing below {tree.ROOT} failed: {refused}"]
        except CanalError as error:
            return [f"writing below {tree.ROOT} failed: {error}"]
        return []


def _below(znodes: BlockingZnodes, path: str) -> Iterator[str]:
    """Yield the paths of a node and of all nodes below it, leaves first."""
    for name in znodes.children(path):
        yield from _below(znodes, f"{path}/{name}")
    yield path


def _position(path: str, node: Znode) -> LogPosition:
    try:
        return LogPosition.from_json(node.data.decode())
    except ValueError as error:
        raise MetaUnreadable(f"{path}: {error}") from error
