"""Cluster in virtual time: destinations added and removed while ZooKeeper or an instance is slow."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from twisted.internet.defer import Deferred

from canal_ha.cluster.cluster import Cluster
from canal_ha.cluster.inputs import StopReason
from canal_ha.config.model import CanalConfig
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.operations import Create, Delete
from lab.simulation.session import Link
from lab.simulation.time import Process, World
from lab.simulation.zookeeper import Ensemble
from tests.cluster.test_election import TIMEOUT_S, D, LateSession, Log, Owner, spawn


class Node:
    """A process with the real Cluster, on its own ensemble, that runs one destination."""

    def __init__(self) -> None:
        self.world = World()
        self.ensemble = Ensemble(self.world)
        random = Random(7)
        self.process = Process(self.world, random)
        self.session = LateSession(self.ensemble, self.process, random, timeout_s=TIMEOUT_S)
        self.owner = Owner()
        config = CanalConfig(Path("."), (), ip="10.0.0.1", port=11111)
        self.cluster = Cluster(config, self.process, self.session, self.owner, lambda: "", random=random, log=Log())
        spawn(self.cluster.start())
        self.cluster.add(D)
        self.run(5.0)
        assert self.cluster.runs(D)

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.world.run(self.world.seconds() + seconds)

    @property
    def listed(self) -> bool:
        """Whether ZooKeeper lists this node for the destination, so that clients connect to it."""
        return self.ensemble.tree.get(tree.destination_member(D, self.cluster.node)) is not None


def test_a_destination_added_again_during_its_removal_stays_listed() -> None:
    """A removal that ends after an addition does not delete what the addition has registered."""
    node = Node()
    node.owner.stopping = Deferred()
    spawn(node.cluster.remove(D))
    node.run(0.1)
    node.cluster.add(D)
    node.owner.end()
    node.run(10.0)
    assert node.cluster.runs(D)
    assert node.listed


def test_a_stop_waits_for_a_removal_under_way() -> None:
    """The session ends after the instance has stopped, so that the instance can flush its acknowledged rows."""
    node = Node()
    node.owner.stopping = Deferred()
    stopped: list[object] = []
    spawn(node.cluster.remove(D))
    node.run(0.1)
    Deferred.fromCoroutine(node.cluster.stop()).addCallback(stopped.append)
    node.run(1.0)
    assert (stopped, node.session.connected) == ([], True)
    node.owner.end()
    node.run(1.0)
    assert stopped == [None]
    assert node.ensemble.tree.get(tree.running(D)) is None


def test_a_destination_removed_while_zookeeper_is_away_is_not_listed_when_it_is_back() -> None:
    """The node deletes its listing when ZooKeeper is back: the session lives on, and clients would be refused."""
    node = Node()
    assert node.listed
    node.session.cut(Link.DOWN, 0.0)
    spawn(node.cluster.remove(D))
    node.run(0.2)
    session_id = node.session.id
    node.session.heal()
    node.run(2.0)
    assert node.session.id == session_id
    assert not node.listed


@pytest.mark.parametrize("notice_s", [0.05, 0.3])
def test_an_orderly_stop_while_zookeeper_reconnects_gives_the_destination_away_at_once(notice_s: float) -> None:
    """The node waits for its session and releases `running`, which would stay until the session expires."""
    node = Node()
    node.session.cut(Link.DOWN, notice_s)
    node.world.callLater(0.5, node.session.heal)
    node.run(0.1)
    stopped: list[None] = []
    Deferred.fromCoroutine(node.cluster.stop()).addCallback(stopped.append)
    node.run(0.2)
    assert stopped == []
    node.run(1.0)
    assert stopped == [None]
    assert tree.running(D) not in node.ensemble.tree
    assert node.owner.reasons == [StopReason.SHUTDOWN]


def test_an_orderly_stop_without_zookeeper_ends_with_the_session() -> None:
    """The node waits no longer than its session lives without an answer."""
    node = Node()
    node.session.cut(Link.DOWN, 0.05)
    node.run(0.2)
    stopped: list[None] = []
    Deferred.fromCoroutine(node.cluster.stop()).addCallback(stopped.append)
    node.run(TIMEOUT_S)
    assert stopped == [None]


def test_a_node_that_only_stands_by_stops_at_once_without_zookeeper() -> None:
    """It holds nothing that ZooKeeper would have to release."""
    node = Node()
    spawn(node.cluster.remove(D))
    node.run(1.0)
    node.ensemble.transaction(
        4711, [Create(tree.running(D), tree.RunningData("10.0.0.2:11111").to_bytes(), ephemeral=True)]
    )
    node.cluster.add(D)
    node.run(1.0)
    assert not node.cluster.runs(D)
    node.session.cut(Link.DOWN, 0.05)
    node.run(0.2)
    stopped: list[None] = []
    Deferred.fromCoroutine(node.cluster.stop()).addCallback(stopped.append)
    node.run(0.1)
    assert stopped == [None]


def test_a_removal_during_a_registration_leaves_no_error() -> None:
    """The registration ends when its answer comes and nobody wants it any more."""
    node = Node()
    members, path = node.cluster.members, tree.destination_member(D, node.cluster.node)
    node.ensemble.transaction(0, [Delete(path)])
    node.run(0.4)
    failures: list[object] = []
    Deferred.fromCoroutine(members._register(path)).addErrback(failures.append)
    spawn(members.unregister(D))
    node.run(1.0)
    assert failures == []
    assert not node.listed
