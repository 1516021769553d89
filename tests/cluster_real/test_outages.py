"""ZooKeeper goes away and comes back, with and without its data."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from canal_ha.cluster.inputs import StopReason
from lab import Ensemble, ZooKeeper
from tests.cluster_real.nodes import Node, owner_of
from tests.zookeeper.stage import RealStage, wait_until

pytestmark = pytest.mark.real


@contextmanager
def pair(hosts: str, number: int, cursor: int, *, timeout_ms: int) -> Iterator[list[Node]]:
    """Yield two nodes; a client of the one that runs the destination has a cursor. number: of the first node."""
    stage = RealStage(hosts, timeout_ms=timeout_ms)
    stage.session()
    nodes = [Node(stage, number, ("example",)), Node(stage, number + 2, ("example",))]
    for node in nodes:
        node.begin()
    owner = owner_of(nodes, "example")
    owner.subscribe("example", 4)
    owner.move("example", cursor)
    yield nodes
    for node in nodes:
        node.end()
    stage.close()


def test_a_node_waits_for_zookeeper() -> None:
    """A node that is started before ZooKeeper waits, and runs the destination soon after ZooKeeper is up."""
    server = ZooKeeper()
    stage = RealStage(server.hosts, timeout_ms=2000)
    node = Node(stage, 21000, ("example",))
    node.begin()
    time.sleep(1.0)
    assert not node.held
    with server:
        took_s = wait_until(lambda: bool(node.held), 15.0)
        print(f"runs {took_s:.2f} s after ZooKeeper was ready")
        node.end()
        stage.close()


@pytest.mark.timed
def test_an_ensemble_changes_its_leader_and_loses_its_quorum() -> None:
    """After a change of leader a node runs, with the cursor.

    Without a quorum the owner stops before its session could end. Later exactly one node runs, with the cursor.
    """
    with Ensemble() as ensemble, pair(ensemble.hosts, 21100, 100, timeout_ms=4000) as nodes:
        leader = ensemble.leader()
        leader.kill()
        ensemble.leader()
        again = owner_of(nodes, "example", 20.0)
        wait_until(lambda: again.session.connected, 20.0)
        wait_until(lambda: "example" in again.held and again.held["example"].lease_ok(), 20.0)
        assert again.cursor("example") == 100
        leader.start()

        again = owner_of(nodes, "example", 20.0)
        stops = len(again.stops)
        leader = ensemble.leader()
        down = [node for node in ensemble.nodes if node is not leader]
        began = time.monotonic()
        for follower in down:
            follower.kill()
        wait_until(lambda: len(again.stops) > stops, 10.0)
        stopped_s = again.stops[-1][2] - began
        print(f"without quorum: stopped after {stopped_s:.2f} s of a 4 s session: {again.stops[-1][1].value}")
        assert stopped_s < 4.0
        time.sleep(1.0)
        assert not any(node.held for node in nodes)
        for follower in down:
            follower.start()
        began = time.monotonic()
        back = owner_of(nodes, "example", 40.0)
        print(f"runs {time.monotonic() - began:.2f} s after the quorum is back")
        assert back.cursor("example") == 100


def test_an_ensemble_that_lost_its_data_gets_the_cursors_back() -> None:
    """When ZooKeeper is back without data, the former owner registers again, claims first, and restores its cursors."""
    with ZooKeeper() as server, pair(server.hosts, 21200, 777, timeout_ms=2000) as nodes:
        owner = owner_of(nodes, "example")
        server.kill()
        wait_until(lambda: bool(owner.stops), 10.0)
        assert owner.stops[-1][1] is StopReason.LEASE_OVER
        shutil.rmtree(server.directory / "data" / "version-2")
        server.start()
        began = time.monotonic()
        again = owner_of(nodes, "example", 40.0)
        print(f"runs {time.monotonic() - began:.2f} s after ZooKeeper came back empty")
        assert again is owner
        assert again.cursor("example") == 777
        (client,) = again.metas["example"].clients()
        assert client.filter == r"shop\..*"


def test_an_ensemble_restored_from_an_older_backup_gets_newer_cursors_back() -> None:
    """The former owner claims first, sees that its cursor is older than it knows, and writes it again.

    The lease has to outlast a restart of ZooKeeper.
    """
    with ZooKeeper() as server, pair(server.hosts, 21300, 300, timeout_ms=4000) as nodes:
        owner = owner_of(nodes, "example")
        server.kill()
        data, backup = server.directory / "data", server.directory / "backup"
        shutil.copytree(data, backup)
        server.start()
        wait_until(lambda: all(node.session.connected for node in nodes), 20.0)
        owner = owner_of(nodes, "example", 20.0)
        wait_until(lambda: "example" in owner.held and owner.held["example"].lease_ok(), 20.0)
        assert owner.cursor("example") == 300
        owner.move("example", 777)
        stops = len(owner.stops)
        server.kill()
        wait_until(lambda: len(owner.stops) > stops, 10.0)
        shutil.rmtree(data)
        shutil.copytree(backup, data)
        server.start()
        began = time.monotonic()
        again = owner_of(nodes, "example", 40.0)
        print(f"runs {time.monotonic() - began:.2f} s after ZooKeeper came back from its backup")
        assert again is owner
        assert again.cursor("example") == 777
        assert not any(node.replaced for node in nodes)
