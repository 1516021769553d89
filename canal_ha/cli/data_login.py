"""The login of an account at data ports whose addresses ZooKeeper names: whether it may go there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from canal_ha.client.tls import ClientTls
from canal_ha.model.excerpt import some
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.reading import BlockingZnodes


@dataclass(frozen=True, slots=True)
class ClientLogin:
    """How to log in at the data port.

    user, password: of an account; "" for none.
    tls: TLS to the node; None for none.
    """

    user: str = ""
    password: str = ""
    tls: ClientTls | None = None

    @property
    def safe_anywhere(self) -> bool:
        """Whether it may go to an address that a stranger named; only a certificate tells that it is a node."""
        return not self.user or bool(self.tls and self.tls.ca_file)

    def open_paths(self, znodes: BlockingZnodes, destination: str) -> tuple[str, ...]:
        """Return the znodes that name nodes to clients and that everybody may change; () if the login is safe anyway.

        znodes: an open session.
        destination: its name.
        Raises ZooKeeperUnavailable.
        """
        if self.safe_anywhere:
            return ()
        own = (tree.destination(destination), tree.destination_members(destination), tree.running(destination))
        return znodes.open_to_all((tree.ROOT, tree.DESTINATIONS, *own))


def not_sent(to: str, open_paths: Sequence[str]) -> str:
    """Return the text that says why a login does not go to an address, and what to do.

    to: the address.
    open_paths: see ClientLogin.
    """
    return (
        f"the login was not sent to {to}, because everybody may change {some(open_paths)} in ZooKeeper: run zk/acl.sh,"
        " or use TLS and give --tls-ca"
    )
