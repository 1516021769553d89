"""Alarms that last: what begins and ends them, and what the status of a node in a cluster shows."""

from __future__ import annotations

import time

import pytest
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from canal_ha.config.model import ZooKeeperAccess
from canal_ha.model.alarm import SOURCE
from canal_ha.node.lasting import (
    HISTORY,
    QUEUE,
    STANDBY,
    UNLOADABLE,
    UNWRITTEN,
    WAIT_MOST_S,
    LastingAlarms,
    LastingWait,
)
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.operations import Create
from canal_ha.zookeeper.reading import BlockingZnodes
from lab import MariaDB, Node, ZooKeeper, follow
from lab.zookeeper import session
from tests.waiting import until


def test_an_alarm_lasts_from_its_event_to_the_event_that_ends_it() -> None:
    """It keeps the time of its beginning. A source of a group ends its own alarms, and a stop ends all."""
    alarms = LastingAlarms()
    alarms.event("a", "cursor.write_failed", "full", "", 1.0)
    alarms.event("a", "cursor.write_failed", "still full", "", 2.0)
    for source in ("g/1", "g/2"):
        alarms.event("g", "source.standby_behind", "it lags", source, 3.0)
    assert [(each.alarm, each.text, each.since) for each in alarms.at(9.0)] == [
        (UNWRITTEN, "a: still full", 1.0),
        (STANDBY, "g/1: it lags", 3.0),
        (STANDBY, "g/2: it lags", 3.0),
    ]
    alarms.event("g", "source.switched", "", "g/2", 4.0)
    alarms.event("a", "cursor.written_again", "", "", 4.0)
    assert [each.text for each in alarms.at(9.0)] == ["g/1: it lags"]
    alarms.event("g", "history.unavailable", "no room", "g/1", 5.0)
    assert [each.alarm for each in alarms.at(9.0)] == [HISTORY, STANDBY]
    alarms.event("g", "instance.stopped", "", "", 6.0)
    assert alarms.at(9.0) == ()


def test_a_destination_that_this_node_no_longer_tries_to_load_is_no_alarm() -> None:
    """Another node ran it for days. When ZooKeeper was lost, this node told its own failure of long ago again."""
    alarms = LastingAlarms()
    for at in (1.0, 61.0, 121.0):  # each try fails
        alarms.event("a", "instance.unloadable", "denied", "", at)
    alarms.event("a", "history.unavailable", "no room", "", 121.0)
    assert [(each.alarm, each.since) for each in alarms.at(400.0)] == [(HISTORY, 121.0), (UNLOADABLE, 1.0)]
    assert [each.alarm for each in alarms.at(500.0)] == [HISTORY]
    alarms.event("a", "instance.unloadable", "denied", "", 9000.0)
    assert [(each.alarm, each.since) for each in alarms.at(9000.0)] == [(HISTORY, 121.0), (UNLOADABLE, 9000.0)]


def test_a_source_that_fails_for_long_is_an_alarm() -> None:
    """It was none without a detecting statement, which is the default. A restart of the source is none."""
    alarms = LastingAlarms()
    alarms.event("a", "source.unhealthy", "db:3306: refused", "", 1.0)
    alarms.event("a", "source.unhealthy", "db:3306: timed out", "", 20.0)
    assert alarms.at(30.0) == ()
    assert [(each.alarm, each.text, each.since) for each in alarms.at(31.0)] == [(SOURCE, "a: db:3306: timed out", 1.0)]
    alarms.event("a", "source.healthy", "", "", 32.0)
    assert alarms.at(99.0) == ()


def test_a_queue_that_waits_for_long_is_an_alarm() -> None:
    """A short wait is none. A wait for something else is the same alarm with another text; work ends it."""
    wait = LastingWait()
    assert [wait.tells(*each) for each in (("a", 0.0), ("b", WAIT_MOST_S - 1), ("", WAIT_MOST_S))] == [False] * 3
    assert [wait.tells("a", at) for at in (40.0, 40 + WAIT_MOST_S, 45 + WAIT_MOST_S)] == [False, True, False]
    assert (wait.tells("b", 50 + WAIT_MOST_S), wait.told) == (True, "b")
    alarms = LastingAlarms()
    alarms.event("a", "queue.waiting", "it waits", "", 1.0)
    assert [(each.alarm, each.text) for each in alarms.at(9.0)] == [(QUEUE, "a: it waits")]
    alarms.event("a", "queue.active", "", "", 2.0)
    assert alarms.at(9.0) == ()


@pytest.mark.real
def test_a_node_without_rights_at_zookeeper_says_so_until_it_has_them(mariadb: MariaDB, zookeeper: ZooKeeper) -> None:
    """A typo in its password: it ran, claimed nothing, and its log was silent."""
    hosts = f"{zookeeper.hosts}/denied{time.time_ns()}"
    with BlockingZnodes(hosts, ZooKeeperAccess("canal:secret"), read_only=False) as znodes:
        znodes.ensure(tree.destination_members("example"))
        znodes.ensure(tree.NODES)
        znodes.ensure(tree.CLUSTER)
    properties = {"canal.zookeeper.auth": "canal:sceret"}
    with (
        session(hosts, auth_data=[("digest", "canal:secret")]) as operator,
        Node({"example": follow(mariadb)}, properties=properties, zk_servers=hosts, wait_for=[]) as node,
    ):
        (alarm,) = until(lambda: node.status()["alarms"] or None, what="the alarm")
        assert alarm["alarm"] == "no_rights"
        assert "canal.zookeeper.auth" in alarm["text"]
        until(
            lambda: tree.member(node.address) in node.status()["alarms"][0]["text"],
            what="the registration in the alarm",
        )
        assert "may not read" in str(node.status()["unready"])
        for path in (tree.ROOT, tree.DESTINATIONS, tree.destination("example"), tree.destination_members("example")):
            operator.set_acls(path, OPEN_ACL_UNSAFE)
        for path in (tree.CLUSTER, tree.NODES):
            operator.set_acls(path, OPEN_ACL_UNSAFE)
        until(lambda: node.running() == {"example"}, what="the start")
        until(lambda: node.status()["alarms"] == [], what="the end of the alarm")
        assert operator.get_children(tree.destination_members("example")) == [node.address]


@pytest.mark.real
def test_a_destination_that_cannot_be_loaded_names_the_znode_and_starts_when_it_is_corrected(
    mariadb: MariaDB, zookeeper: ZooKeeper
) -> None:
    """The alarm is in the status while the node tries again with a growing pause."""
    hosts = f"{zookeeper.hosts}/unloadable{time.time_ns()}"
    path = tree.source("example")
    with BlockingZnodes(hosts, read_only=False) as znodes, session(hosts) as operator:
        znodes.ensure(tree.destination("example"))
        znodes.transaction([Create(path, b"")])
        operator.set_acls(path, [make_digest_acl("somebody", "else", all=True)])
        with Node({"example": follow(mariadb)}, zk_servers=hosts, wait_for=[]) as node:
            (alarm,) = until(lambda: node.status()["alarms"] or None, what="the alarm")
            assert alarm["alarm"] == "unloadable"
            assert path in alarm["text"]
            until(lambda: node.log_file().count("running.released") >= 2, what="the second release")
            operator.add_auth("digest", "somebody:else")
            operator.set_acls(path, OPEN_ACL_UNSAFE)
            until(lambda: node.running() == {"example"}, what="the start")
            assert node.status()["alarms"] == []


@pytest.mark.real
def test_a_node_that_takes_over_tells_the_alarms_of_the_destination(mariadb: MariaDB, zookeeper: ZooKeeper) -> None:
    """It stood by before, and an alarm counts only while no other node runs the destination."""
    hosts = f"{zookeeper.hosts}/taken{time.time_ns()}"
    path = tree.cursor("example", 1001)
    with (
        session(hosts) as operator,
        Node({"example": follow(mariadb)}, zk_servers=hosts, wait_for=["example"]) as first,
        Node({"example": follow(mariadb)}, zk_servers=hosts, wait_for=[]) as second,
    ):
        until(lambda: second.address in operator.get_children(tree.destination_members("example")), what="the second")
        until(lambda: "running.standby" in second.log_file(), what="the second stands by")
        operator.create(path, b"no cursor", makepath=True)
        first.stop()
        until(lambda: second.running() == {"example"}, what="the fail-over")
        (alarm,) = until(lambda: second.status()["alarms"] or None, what="the alarm")
        assert alarm["alarm"] == "unreadable"
        assert path in alarm["text"]
