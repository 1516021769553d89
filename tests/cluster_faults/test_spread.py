"""Destinations spread over real nodes by themselves."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from lab import MySQL, Network, Node, ZooKeeper, follow
from tests.waiting import until

pytestmark = pytest.mark.real

DESTINATIONS = [f"d{number}" for number in range(12)]


def test_twelve_destinations_spread_over_three_nodes_and_over_two(
    zookeeper: ZooKeeper, mysql: MySQL, database: str
) -> None:
    """Three nodes that begin at once run 4 destinations each, give or take one. After a crash the others run 6 each."""
    with ExitStack() as stack:
        network = stack.enter_context(Network())
        link = network.link(zookeeper.port)
        link.cut()
        nodes = [
            Node(
                {name: follow(mysql) for name in DESTINATIONS},
                zk_servers=f"{link.address}/spread-{database}",
                properties={"canal.zookeeper.session.timeout": "2000"},
                name=f"node{number}",
            )
            for number in range(3)
        ]
        for node in nodes:
            node.launch()
        for node in nodes:
            stack.enter_context(node)
        # a machine under load starts processes seconds apart; the link lets them reach ZooKeeper at once
        until(lambda: link.connections >= len(nodes), what="their connections")
        link.heal()
        print(f"spread over three: {settled(nodes, 3, 5)}")
        nodes[0].kill()
        print(f"spread over two: {settled(nodes[1:], 5, 7)}")


def settled(nodes: list[Node], least: int, most: int) -> list[int]:
    """Wait until all destinations run, so many on each node, and return the numbers.

    On a busy machine a node can be late to the race, and runs its share after canal.cluster.rebalance.delay.
    """

    def counts() -> list[int] | None:
        running = [node.running() for node in nodes]
        found = [len(names) for names in running]
        even = all(least <= count <= most for count in found)
        return found if even and sum(found) == len(DESTINATIONS) == len(frozenset().union(*running)) else None

    return until(counts, seconds=40.0, what=f"{least} to {most} destinations on each node")
