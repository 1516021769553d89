"""DestinationHolders: which live nodes have a destination. It deletes what ZooKeeper keeps of one that none has."""

from __future__ import annotations

from collections.abc import Sequence

from canal_ha.cluster.session import ClusterSession
from canal_ha.errors import PlacementRefused, TransactionRefused
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.operations import Delete

AT_ONCE = 100  # znodes that one transaction deletes


class DestinationHolders:
    """See the module. session: with ZooKeeper. Every method raises ZooKeeperUnavailable."""

    def __init__(self, session: ClusterSession) -> None:
        self._session = session

    async def having(self, destination: str) -> tuple[str, ...]:
        """Return the live nodes that could run a destination, by name."""
        return tuple(sorted(await self._session.children(tree.destination_members(destination))))

    async def lacking(self, destination: str) -> tuple[str, ...]:
        """Return the live nodes that could not run a destination, by name."""
        having = await self.having(destination)
        return tuple(sorted(set(await self._session.children(tree.CLUSTER)) - set(having)))

    async def kept(self, destination: str) -> tuple[int, ...] | None:
        """Return the clients whose cursors ZooKeeper keeps; None if it knows nothing of the destination."""
        if await self._session.get(tree.destination(destination)) is None:
            return None
        return tree.client_ids(await self._session.children(tree.destination(destination)))

    async def delete(self, destination: str) -> None:
        """Delete all znodes of a destination. Raises PlacementRefused if a node has it, or comes to have it.

        The znode of the members goes first: it cannot go while a node is registered below it.
        """
        having = await self.having(destination)
        if having:
            raise PlacementRefused(f"{', '.join(having)} could still run {destination}: remove it there first")
        root, members = tree.destination(destination), tree.destination_members(destination)
        if await self._session.get(root) is None:
            return
        found = [path for path in await self._below(root) if path != members]
        if await self._session.get(members) is not None:
            found = [*found, members]
        order = [*reversed(found), root]  # parents last; the members' znode first
        try:
            for first in range(0, len(order), AT_ONCE):
                await self._session.transaction([Delete(path) for path in order[first : first + AT_ONCE]])
        except TransactionRefused as refused:
            raise PlacementRefused(
                f"{refused.path} was not deleted ({refused.reason}): a node began to use {destination} at the same"
                " moment, or this node has no right to delete it; what was before it is deleted"
            ) from refused

    async def _below(self, path: str) -> Sequence[str]:
        """Return all paths below one; parents come before their children."""
        found: list[str] = []
        for child in await self._session.children(path):
            found.append(f"{path}/{child}")
            found += await self._below(f"{path}/{child}")
        return found
