"""The node that runs a destination, for `canal-ha cursor` with --zk: asked as any client asks it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from canal_ha.cli.data_login import ClientLogin, not_sent
from canal_ha.client.connector import SimpleConnector
from canal_ha.client.discovery import split_address
from canal_ha.client.http_access import HttpAccess
from canal_ha.client.node_http import post
from canal_ha.errors import CanalError, NodeUnreachable, PositionLost, ServerRefused
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.operations import Znode
from canal_ha.zookeeper.reading import BlockingZnodes

ASK_MS = 10_000
_LOST = "does not exist"  # a node's text for a position that its source does not have
_JAVA = re.compile(r".*?, exception: [\w.]+: ", re.DOTALL)  # before the reason, as canal's clients know it
_CURSOR_CHANGE = {"client_id": int, "before": str, "after": str}


@dataclass(frozen=True, slots=True)
class OwningNode:
    """The node that runs a destination.

    address: host:port.
    destination: its name.
    login: of an account there.
    open_paths: znodes that everybody may change, for which the login must not go to the address; () if it may.
    endpoint: address of its status endpoint; "" if it has none.
    endpoint_paths: as open_paths, for the endpoint.
    """

    address: str
    destination: str
    login: ClientLogin
    open_paths: tuple[str, ...] = ()
    endpoint: str = ""
    endpoint_paths: tuple[str, ...] = ()

    def check(self, client_id: int, place: str) -> str:
        """Return why the node could not tell whether its source has a position; "" if it has.

        The status endpoint tells accounts of the role admin, and the data port those of the role read.

        client_id: whose cursor is to be there.
        place: in a form of model.place.
        Raises PositionLost if it has not.
        """
        tells = [self._begin_reading]
        if self.endpoint and self.login.user:
            tells.insert(0, self._try_move)
        reasons = []
        for ask in tells:
            try:
                ask(client_id, place)
                return ""
            except ServerRefused as refused:
                reason = _JAVA.sub("", str(refused))
                if _LOST in reason:
                    raise PositionLost(reason) from refused
                reasons.append(reason)
            except (CanalError, ValueError, OSError) as error:
                reasons.append(str(error))
        return "; ".join(dict.fromkeys(reasons))

    def _try_move(self, client_id: int, place: str) -> None:
        """Let the status endpoint find the position for a cursor, and change nothing. Raises ServerRefused."""
        tls_ca = self.login.tls.ca_file if self.login.tls else ""
        access = HttpAccess(self.login.user, self.login.password, tls_ca)
        if not access.safe_for(self.endpoint, named_by_anybody=bool(self.endpoint_paths)):
            raise NodeUnreachable(not_sent(self.endpoint, self.endpoint_paths))
        body = {"client_id": client_id, "action": "set", "to": place, "dry_run": True}
        post(self.endpoint, access, self.destination, "cursor", body, _CURSOR_CHANGE, ServerRefused, ASK_MS / 1000)

    def _begin_reading(self, client_id: int, place: str) -> None:
        """Let the data port begin to read at a position. Raises ServerRefused, and the connector's other errors."""
        with self._connector(client_id) as connector:
            connector.read_from(place)

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
    address = tree.RunningData.from_bytes(node.data).address
    (member,) = znodes.get_all([tree.member(address)])
    return OwningNode(
        address,
        destination,
        login,
        login.open_paths(znodes, destination),
        member.data.decode(errors="replace") if isinstance(member, Znode) else "",
        znodes.open_to_all([tree.ROOT, tree.CLUSTER, tree.member(address)]) if login.user else (),
    )
