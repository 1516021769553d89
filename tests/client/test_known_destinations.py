"""Whoever mistypes a destination learns which ones there are."""

from __future__ import annotations

import time

import pytest
from click.testing import CliRunner

from canal_ha.cli import refused
from canal_ha.cli.main import group
from canal_ha.client.cluster import ClusterConnector
from canal_ha.client.known_destinations import not_found
from canal_ha.errors import ConnectionLost, ServerRefused, WaitedTooLong
from lab import MariaDB, Node, ZooKeeper, follow, free_port


def test_few_names_and_the_near_one_are_shown() -> None:
    """A cluster with many destinations makes no long error, and neither do names of strangers."""
    many = [f"shop{number}" for number in range(5000)]
    text = not_found("exampel", "ZooKeeper", [*many, "example", "\x1b[2J" * 300])
    assert text.startswith("no node has the destination exampel, did you mean example?; ZooKeeper has ")
    assert "and 4997 more" in text
    assert len(text) < 1500
    assert "\x1b" not in text
    assert not_found("a", "ZooKeeper", []) == "no node has the destination a; ZooKeeper has no other"


@pytest.mark.real
def test_a_mistyped_destination_is_told_from_zookeeper(mariadb: MariaDB, zookeeper: ZooKeeper, database: str) -> None:
    """The error of a call that ends, and the log of one that waits, name what the cluster has."""
    hosts = f"{zookeeper.hosts}/{database}"
    expected = "no node has the destination exampel, did you mean example.; ZooKeeper has example"
    with Node({"example": follow(mariadb)}, zk_servers=hosts, wait_for=["example"]):
        with pytest.raises(WaitedTooLong, match=expected):
            ClusterConnector(hosts, "exampel", call_timeout_s=5.0).connect()
        with pytest.raises(ConnectionLost, match=expected):
            ClusterConnector(hosts, "exampel", 1002, retry_times=1, retry_interval_ms=500).connect()
        begun = time.monotonic()
        with ClusterConnector(hosts, "example", call_timeout_s=20.0) as right:
            right.subscribe(r".*\..*")
        assert time.monotonic() - begun < 20


@pytest.mark.real
def test_a_mistyped_destination_is_told_from_the_status_of_the_node(
    mariadb: MariaDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    """canal's text stays in front. A node that tells strangers nothing, and another one's status, name nothing."""
    other = free_port()

    def refusal() -> str:
        command = ["client", "--server", node.address, "--destination", "exampel", "--filter", ".*"]
        error = CliRunner().invoke(group, command).exception
        assert isinstance(error, ServerRefused), error
        assert "destination:exampel should start first: " in str(error)
        return str(error)

    with Node({"example": follow(mariadb)}) as node:
        monkeypatch.setattr(refused, "STATUS_PORT", node.admin_port)
        assert f"{node.address} does not run exampel, did you mean example?; it runs example" in refusal()
        monkeypatch.setattr(refused, "STATUS_PORT", other)
        assert "does not run it: `canal-ha destination list` shows which node does" in refusal()
        assert refused.run_by("127.0.0.1", other) is None
