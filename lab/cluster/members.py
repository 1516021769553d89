"""A node of a cluster together with its links to ZooKeeper."""

from __future__ import annotations

from collections.abc import Mapping

from lab.node import Node
from lab.proxy import Link
from lab.waiting import until
from lab.zookeeper import ZooKeeper

MOVED_WITHIN_S = 60.0


class Member:
    """A node and its links to the three ZooKeepers. address: of the node as in the znodes, if it is not its own."""

    def __init__(self, node: Node, links: Mapping[ZooKeeper, Link], address: str = "") -> None:
        self.node = node
        self.links = links
        self.address = address or node.address

    def connected_to(self, zookeeper: ZooKeeper) -> bool:
        """Return whether the node's session is on this server."""
        return self.links[zookeeper].connections > 0

    def move_to(self, zookeeper: ZooKeeper) -> None:
        """Make the node use this server: refuse it the others for a moment."""
        others = [link for server, link in self.links.items() if server is not zookeeper]
        for link in others:
            link.refuse()
        until(lambda: self.connected_to(zookeeper), seconds=MOVED_WITHIN_S, what="the node's move to another ZooKeeper")
        for link in others:
            link.heal()

    def cut_off(self) -> None:
        """Cut the node off from all of ZooKeeper. The database stays reachable."""
        for link in self.links.values():
            link.cut()

    def heal(self) -> None:
        """Undo cut_off."""
        for link in self.links.values():
            link.heal()
