"""The node that runs a destination, for `canal-ha cursor` with --zk: asked as any client asks it."""

from __future__ import annotations

from dataclasses import dataclass

from canal_ha.client.connector import SimpleConnector
from canal_ha.client.discovery import split_address
from canal_ha.client.tls import ClientTls
from canal_ha.errors import CanalError, PositionLost, ServerRefused
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.reading import BlockingZnodes

ASK_MS = 10_000
_LOST = "does not exist"  # a node's text for a position that its source does not have


@dataclass(frozen=True, slots=True)
class ClientLogin:
    """How to log in at the data port.

    user, password: of an account; "" for none.
    tls: TLS to the node; None for none.
    """

    user: str = ""
    password: str = ""
    tls: ClientTls | None = None


@dataclass(frozen=True, slots=True)
class OwningNode:
    """The node that runs a destination. address: host:port; destination: its name."""

    address: str
    destination: str
    login: ClientLogin

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
        """Let the node delete a client id with its cursor and filter. Raises the connector's errors."""
        with self._connector(client_id) as connector:
            connector.unsubscribe()

    def _connector(self, client_id: int) -> SimpleConnector:
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
    node = znodes.get(tree.running(destination))
    running = tree.RunningData.from_bytes(node.data) if node else None
    return OwningNode(running.address, destination, login) if running else None
