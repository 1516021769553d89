"""Restarts of a destination, and of all that a node serves, while a scan changes or ends destinations."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred

from canal_ha.config.load import load_usable
from canal_ha.node.node import Node
from lab import ZooKeeper
from lab.ports import LOOPBACK, free_port
from tests.running_reactor import running_reactor
from tests.waiting import until
from tests.zookeeper.stage import on_reactor, reactor


def made(tmp_path: Path, *lines: str) -> Node:
    """Return a node with two destinations, whose sources do not answer. lines: further ones of canal.properties."""
    running_reactor()
    conf = tmp_path / "conf"
    for name in ("example", "other"):
        (conf / name).mkdir(parents=True)
        address = f"canal.instance.master.address = {LOOPBACK}:{free_port()}\n"
        (conf / name / "instance.properties").write_text(address)
    (conf / "canal.properties").write_text(
        f"canal.ip = {LOOPBACK}\ncanal.port = {free_port()}\ncanal.metrics.pull.port = 0\ncanal.admin.http.port = -1\n"
        "canal.destinations = example,other\n" + "".join(f"{line}\n" for line in lines)
    )
    return Node(load_usable(conf, (), {}), reactor)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """Yield a node without ZooKeeper that runs both destinations."""
    found = made(tmp_path)
    on_reactor(found.start)
    assert found.running == ("example", "other")
    yield found
    on_reactor(found.stop)


def begun(node: Node) -> Deferred[None]:
    """Begin to restart a destination. Return a Deferred that ends with the restart, and has not ended yet."""
    restart = Deferred.fromCoroutine(node.renew("example"))
    assert not restart.called
    return restart


def test_a_destination_that_restarts_is_not_new_to_a_scan(node: Node) -> None:
    """A scan begins what the node does not know, and so would begin it a second time."""

    async def known() -> bool:
        restart = begun(node)
        found = "example" in node.configured
        await restart
        return found

    assert on_reactor(known)
    assert node.running == ("example", "other")


def test_a_destination_that_is_removed_during_its_restart_stays_away(node: Node) -> None:
    """The end is that of a scan which finds no file any more."""

    async def removed() -> None:
        restart = begun(node)
        await node.end("example")
        await restart

    on_reactor(removed)
    assert set(node.configured) == {"other"}
    assert node.running == ("other",)


def test_a_destination_that_is_changed_during_its_restart_runs_as_changed(node: Node) -> None:
    """A scan replaces the configuration meanwhile; the restart does not bring the old one back."""

    async def changed() -> None:
        new = replace(node.configured["example"], filter_regex=r"shop\..*")
        restart = begun(node)
        await node.end("example")
        await node.begin(new)
        await restart

    on_reactor(changed)
    assert node.configured["example"].filter_regex == r"shop\..*"
    instance = node.embedded.running("example")
    assert instance is not None
    assert instance.config.filter_regex == r"shop\..*"


def test_a_destination_that_is_removed_while_the_node_starts_to_serve_stays_away(node: Node) -> None:
    """The node begins its destinations in turn; the last one ends while it begins the first one."""

    async def removed() -> None:
        await node.halt()
        serving = Deferred.fromCoroutine(node.serve())
        assert not serving.called
        await node.end("other")
        await serving

    on_reactor(removed)
    assert set(node.configured) == {"example"}
    assert node.running == ("example",)


@pytest.mark.real
def test_a_destination_of_a_cluster_that_is_removed_during_its_restart_stays_away(
    tmp_path: Path, zookeeper: ZooKeeper
) -> None:
    """The node takes no further part in the race for it; the other destination goes on."""
    template = "canal.instance.global.spring.xml = classpath:spring/default-instance.xml"
    node = made(tmp_path, f"canal.zkServers = {zookeeper.hosts}/restarts{time.time_ns()}", template)
    on_reactor(node.start)
    until(lambda: node.running == ("example", "other"), seconds=20, what="the node runs both")

    async def removed() -> None:
        restart = begun(node)
        await node.end("example")
        await restart

    on_reactor(removed)
    assert set(node.configured) == {"other"}
    assert set(node.standing().states) == {"other"}
    on_reactor(node.stop)
