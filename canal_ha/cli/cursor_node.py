"""The node that runs a destination, for `canal-ha cursor` with --zk: asked as any client asks it."""

from __future__ import annotations

from dataclasses import dataclass

from canal_ha.cli.data_login import ClientLogin, not_sent
from canal_ha.client.connector import SimpleConnector
from canal_ha.client.discovery import split_address
from canal_ha.errors import CanalError, NodeUnreachable, PositionLost, ServerRefused
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.reading import BlockingZnodes

ASK_MS = 10_000
_LOST = "does not exist"  # a node's text for a position that its source does not have


@dataclass(frozen=True, slots=True)
class OwningNode:
    """The node that runs a destination.

    address: host:port.
    destination: its name.
    login: of an account there.
    open_paths: znodes that everybody may change, for which the login must not go to the address; () if it may.
    """

    address: str
    destination: str
    login: ClientLogin
    open_paths: tuple[str, ...] = ()

    def check(self, place: str) -> str:
        """Return why the node could not tell whether its source has a position; "" if it has.

        place: in a form of model.place.
        Raises PositionLost if it has not.
        """
        try:
            with self._connector(1001) as connector:
                connector.read_from(place)
        except ServerRefused as refused:
            if _LOST in str(refused):
                raise PositionLost(str(refused)) from refused
            return str(refused)
        except (CanalError, ValueError, OSError) as error:
            return str(error)
        return ""

    def forget(self, client_id: int) -> None:
        """Let the node delete a client id with its cursor and filter.

        Raises the connector's errors, and NodeUnreachable if the login must not go there.
        """
        with self._connector(client_id) as connector:
            connector.unsubscribe()

    def _connector(self, client_id: int) -> SimpleConnector:
        if self.open_paths:
            raise NodeUnreachable(not_sent(self.address, self.open_paths))
        return SimpleConnector(
            *split_address(self.address),
            self.destination,
            client_id,
            self.login.user,
            self.login.password,
            so_timeout_ms=ASK_MS,
            rollback_on_connect=False,
            tls=self.login.tls,
        )


def owner_of(znodes: BlockingZnodes, destination: str, login: ClientLogin) -> OwningNode | None:
    """Return the node that runs a destination; None if no node does. Raises ZooKeeperUnavailable."""
    path = tree.running(destination)
    node = znodes.get(path)
    if node is None:
        return None
    open_paths = login.open_paths(znodes, destination)
    return OwningNode(tree.RunningData.from_bytes(node.data).address, destination, login, open_paths)
