"""Destinations of real nodes move, pause and stay even; `canal-ha destination` asks for it."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from random import Random
from statistics import median
from types import MappingProxyType
from typing import Any

import pytest

from canal_ha.zookeeper import tree
from canal_ha.zookeeper.reading import BlockingZnodes
from lab import MariaDB, Network, Node, ZooKeeper, follow
from lab.node import PROGRAM
from tests.waiting import until

pytestmark = pytest.mark.real

PROPERTIES = {"canal.zookeeper.session.timeout": "2000", "canal.cluster.rebalance.delay": "1"}


@contextmanager
def cluster(
    zookeeper: ZooKeeper,
    mariadb: MariaDB,
    destinations: Sequence[str],
    instance: dict[str, str] | None = None,
    zones: str = "abc",
    properties: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[list[Node]]:
    """Start a node in each zone, one after the other, so that the first runs every destination at first.

    properties: further lines of each canal.properties.
    """
    hosts = f"{zookeeper.hosts}/placement{time.time_ns()}"
    settings = follow(mariadb, instance)
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                Node(
                    dict.fromkeys(destinations, settings),
                    zk_servers=hosts,
                    properties={**PROPERTIES, **properties, "canal.node.labels": f"zone={zone}"},
                    name=f"node-{zone}",
                )
            )
            for zone in zones
        ]


def destination(node: Node, *arguments: str, fails: bool = False) -> str:
    """Run the command with a node's configuration. Return its output, or its error if it fails."""
    done = subprocess.run(
        [PROGRAM, "destination", *arguments, "--conf", str(node.conf)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert (done.returncode == 1) == fails, done.stderr
    return done.stderr if fails else done.stdout


def placed(node: Node) -> dict[str, Any]:
    """Return the list of destinations by name."""
    return {each["destination"]: each for each in json.loads(destination(node, "list", "--json"))}


def spread(nodes: Sequence[Node], total: int) -> list[int] | None:
    """Return how many destinations each node runs; None while not all of them run once."""
    running = [node.running() for node in nodes]
    names = frozenset[str]().union(*running)
    counts = [len(each) for each in running]
    return counts if sum(counts) == len(names) == total else None


def test_a_destination_of_two_nodes_moves_and_pauses(zookeeper: ZooKeeper, mariadb: MariaDB) -> None:
    """A move names its gap. A paused destination runs nowhere until it is resumed."""
    with cluster(zookeeper, mariadb, ["d0"], zones="ab") as nodes:
        owner, taker = nodes
        moved = json.loads(destination(taker, "move", "d0", "--to", taker.address, "--yes", "--json"))
        assert (moved["moved_from"], moved["moved_to"], moved["seconds"] < 5.0) == (owner.address, taker.address, True)
        assert "d0: paused" in destination(owner, "pause", "d0", "--yes")
        assert placed(owner)["d0"] == {
            "destination": "d0",
            "runs_on": "",
            "paused": True,
            "stand_by": sorted(node.address for node in nodes),
            "preferred": sorted(node.address for node in nodes),
        }


def test_a_look_that_fails_delays_moves_by_seconds_and_not_by_a_minute(zookeeper: ZooKeeper, mariadb: MariaDB) -> None:
    """ZooKeeper does not answer when a node looks at the cluster, and answers again before the sessions end."""
    names = {f"d{number}": follow(mariadb) for number in range(4)}
    properties = {"canal.zookeeper.session.timeout": "10000", "canal.cluster.rebalance.delay": "2"}
    chroot = f"placement{time.time_ns()}"
    with ExitStack() as stack:
        link = stack.enter_context(Network()).link(zookeeper.port)
        nodes = []
        for name in ("one", "two"):
            hosts = f"{link.address}/{chroot}"
            nodes.append(stack.enter_context(Node(names, zk_servers=hosts, properties=properties, name=name)))
            until(lambda: spread(nodes, 4), what="all four on the first node")
        with BlockingZnodes(f"{zookeeper.hosts}/{chroot}") as znodes:
            until(lambda: len(znodes.children(tree.CLUSTER)) == 2, what="both nodes")
        time.sleep(0.5)  # the nodes know of each other
        link.cut()
        balances = min(nodes, key=lambda node: node.address)
        until(lambda: "placement.not_moved" in balances.log_file(), what="a look that fails")
        link.heal()
        until(lambda: spread(nodes, 4) == [2, 2], seconds=30.0, what="two destinations on each node")


@pytest.mark.nightly("tests/sim/test_placement.py in virtual time; the first test with two nodes")
def test_destinations_spread_move_pause_and_resume(zookeeper: ZooKeeper, mariadb: MariaDB) -> None:
    """Nodes that join get their share by themselves; a move names its gap; a pause lasts over a restart."""
    names = [f"d{number}" for number in range(6)]
    with cluster(zookeeper, mariadb, names) as nodes:
        until(lambda: spread(nodes, 6) == [2, 2, 2], seconds=40.0, what="two destinations on each node")
        asked = nodes[0]
        before = placed(asked)["d3"]
        owner = next(node for node in nodes if node.address == before["runs_on"])
        taker = next(node for node in nodes if node is not owner)
        assert taker.address in before["stand_by"]

        arguments = ("move", "d3", "--to", taker.address)
        assert destination(asked, *arguments, "--dry-run") == f"d3 moves from {owner.address} to {taker.address}\n"
        assert placed(asked)["d3"]["runs_on"] == owner.address
        moved = json.loads(destination(asked, *arguments, "--yes", "--json"))
        print(f"gap of a move: {moved['seconds']} s")
        assert moved["seconds"] < 5.0
        until(lambda: "d3" in taker.running(), what="d3 on the chosen node")
        log = taker.log_file()
        assert "running.claimed destination=d3" in log
        assert "no node 127.0.0.9:1 is alive" in destination(
            asked, "move", "d3", "--to", "127.0.0.9:1", "--yes", fails=True
        )

        assert "d0: paused" in destination(asked, "pause", "d0", "--yes")
        assert "d0 is paused: resume it first" in destination(
            asked, "move", "d0", "--to", taker.address, "--yes", fails=True
        )
        taker.restart()
        until(lambda: spread(nodes, 5), seconds=40.0, what="the other five")
        assert placed(asked)["d0"]["runs_on"] == ""
        text = destination(asked, "list")
        assert next(line for line in text.splitlines() if line.startswith("d0")).split()[1] == "paused"
        assert "d0: resumed, runs on 127.0.0.1:" in destination(asked, "resume", "d0", "--yes")
        until(lambda: spread(nodes, 6), what="all six")


@pytest.mark.nightly("tests/sim/test_placement.py: the same in virtual time")
def test_a_preferred_node_runs_all_destinations_that_want_it(zookeeper: ZooKeeper, mariadb: MariaDB) -> None:
    """They go to the node with the label, and elsewhere while it is away."""
    prefer = {"canal.instance.placement.prefer": "zone=c"}
    with cluster(zookeeper, mariadb, ["d0", "d1"], prefer) as nodes:
        until(lambda: spread(nodes, 2) == [0, 0, 2], seconds=40.0, what="both on the node of zone c")
        nodes[2].stop()
        until(lambda: spread(nodes[:2], 2), seconds=40.0, what="both elsewhere")


@pytest.mark.nightly("tests/node/test_lone_placements.py: the same without a restart")
def test_a_node_without_zookeeper_keeps_a_pause_in_a_file(mariadb: MariaDB) -> None:
    """The destination stays stopped over a restart, until it is resumed."""
    with Node({"d0": follow(mariadb)}, wait_for=()) as node:
        until(lambda: "d0" in node.running(), what="d0")
        assert "d0: paused" in destination(node, "pause", "d0", "--yes")
        node.restart()
        assert f"d0: resumed, runs on {node.address}" in destination(node, "resume", "d0", "--yes")


@pytest.mark.nightly("tests/sim/test_placement.py: the same in virtual time")
def test_sixty_destinations_stay_even_over_fifty_random_restarts(zookeeper: ZooKeeper, mariadb: MariaDB) -> None:
    """After each restart the spread becomes even by itself: no node runs more than 21.

    A restart moves 20 destinations. One second between two moves, which is the default, makes 20 minutes of this test.
    """
    random = Random(1)
    quick = {"canal.cluster.rebalance.interval": "0.1"}
    with cluster(zookeeper, mariadb, [f"d{number}" for number in range(60)], properties=quick) as nodes:
        most, starts, settles = [], [], []
        for _ in range(50):
            node = random.choice(nodes)
            if random.random() < 0.5:
                node.kill()
            else:
                node.stop()
            time.sleep(random.uniform(0.0, 4.0))
            node.start()
            started = time.monotonic()
            counts = until(
                lambda: found if (found := spread(nodes, 60)) and max(found) <= 21 else None,
                seconds=180.0,
                what="an even spread",
            )
            most.append(max(counts))
            starts.append(node.start_seconds)
            settles.append(time.monotonic() - started)
        moves = sum(node.log_file().count("placement.moved") for node in nodes)
        print(f"most on one node: {max(most)}; moves: {moves}")
        for what, took in (("start of a node", starts), ("even after it", settles)):
            print(f"{what}: median {median(took):.1f} s, longest {max(took):.1f} s")
