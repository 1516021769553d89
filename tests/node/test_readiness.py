"""Whether a node serves what it should: the rules, and a real node with ZooKeeper."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any

import pytest

from canal_ha.config.alarms import refused
from canal_ha.errors import ConfigError
from canal_ha.model.unready import Unready
from canal_ha.node import readiness
from canal_ha.zookeeper import tree
from lab import MariaDB, Node, ZooKeeper, follow
from lab.node import PROGRAM
from lab.ports import LOOPBACK
from lab.zookeeper import session
from tests.waiting import until


def test_alone_each_destination_has_to_run_here() -> None:
    """A node without ZooKeeper has nobody who helps."""
    assert not [*readiness.unready_alone(["a", "b"], ["b", "a"])]
    assert [*readiness.unready_alone(["a", "b"], ["b"])] == [Unready("a", "a does not run; its log says why")]


def test_in_a_cluster_each_destination_needs_an_owner() -> None:
    """Another node's destination is well; one that is claimed and has not started is not. A pause is no fault."""
    states = {
        "here": ("RUNNING", ""),
        "there": ("STANDBY", "10.0.0.2:11111"),
        "starts": ("RUNNING", ""),
        "paused": ("PAUSED", ""),
    }
    found = [*readiness.unready_in_cluster(["here", "there", "starts", "paused", "none"], ["here"], states)]
    assert [each.destination for each in found] == ["none", "starts"]
    (denied,) = readiness.unready_in_cluster(["none"], [], {}, [tree.destination("none")])
    assert "may not read" in denied.text


def test_a_destination_with_a_refused_file_is_missing_unless_it_runs() -> None:
    """The configuration that was read before may still run."""
    error = ConfigError("instance.properties", "canal.port", "x", "a port", 3)
    alarms = [refused(name, error, running=name == "old", scanned=True, now=1.0) for name in ("old", "new")]
    assert [each.destination for each in readiness.unready_files(alarms)] == ["new"]


@pytest.mark.parametrize(
    ("unready", "able", "serves"),
    [
        ((), (), True),
        ((Unready("a", "its file is refused"),), ("b",), True),
        ((Unready("a", "its file is refused"),), (), False),
        ((readiness.NO_ZOOKEEPER,), ("b",), False),
    ],
)
def test_a_node_takes_traffic_while_it_can_serve_any_destination(
    unready: tuple[Unready, ...], able: tuple[str, ...], serves: bool
) -> None:
    """One bad instance file took the whole node away from a load balancer. What the node itself lacks still does."""
    assert readiness.takes_traffic(unready, able) is serves


def probe(port: int, path: str = "readyz") -> tuple[int, Any]:
    """Return the code and the JSON that a port answers."""
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/{path}", timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@pytest.mark.real
def test_destinations_that_are_meant_not_to_run_are_no_destinations_without_owner(mariadb: MariaDB) -> None:
    """They had the state `stopped`, as one that should run has, and the alert for destinations without owner fired."""
    names = ("lazy", "paused", "both")
    properties = {"canal.instance.lazy.lazy": "true", "canal.instance.both.lazy": "true"}
    node = Node({name: follow(mariadb) for name in names}, properties=properties, wait_for=("paused",))
    with node:
        for name in ("paused", "both"):
            done = subprocess.run(
                [PROGRAM, "destination", "pause", name, "--yes", "--conf", str(node.conf)],
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert done.returncode == 0, done.stderr
        with urllib.request.urlopen(f"http://{LOOPBACK}:{node.metrics_port}/metrics") as answer:
            text = answer.read().decode()
        found = dict(re.findall(r'canal_destination_state{destination="(\w+)",state="(\w+)"} 1', text))
        assert found == {"lazy": "lazy", "paused": "paused", "both": "paused"}


def status(*options: str, program: Sequence[str] = (PROGRAM,)) -> subprocess.CompletedProcess[str]:
    """Run `canal-ha status`."""
    return subprocess.run([*program, "status", *options], capture_output=True, text=True, timeout=60)


@pytest.mark.real
def test_a_node_without_zookeeper_is_not_ready_and_status_says_so(mariadb: MariaDB) -> None:
    """It answered 0 and "no destination runs here". A node that is killed is missing until it is forgotten."""
    with (
        ZooKeeper() as server,
        Node({"example": follow(mariadb)}, zk_servers=server.hosts) as node,
        Node({"example": follow(mariadb)}, zk_servers=server.hosts) as other,
    ):
        hosts = server.hosts
        ports = (node.admin_port, node.metrics_port, other.admin_port)
        until(lambda: {probe(port)[0] for port in ports} == {200}, what="both nodes ready", seconds=30)
        assert probe(node.admin_port) == (200, {"ready": True, "reasons": []})
        assert probe(node.metrics_port, "healthz") == (200, {"alive": True})
        with urllib.request.urlopen(f"http://{LOOPBACK}:{node.metrics_port}/metrics") as answer:
            text = answer.read().decode()
        assert "canal_node_ready 1" in text
        assert "canal_zookeeper_connected 1" in text
        assert re.search(r'canal_destination_state{destination="example",state="(running|standby)"} 1', text)
        url = f"http://{LOOPBACK}:{node.admin_port}"
        assert status("--url", url).returncode == 0
        assert status("--zk", hosts).returncode == 0
        other.kill()
        until(lambda: "missing: it has ended without an orderly stop" in status("--zk", hosts).stdout, seconds=30)
        until(lambda: probe(node.admin_port)[0] == 200, what="the owner", seconds=30)
        done = status("--zk", hosts, "--json")
        assert done.returncode == 3
        assert {each["address"]: each["missing"] for each in json.loads(done.stdout)["nodes"]} == {
            node.address: False,
            other.address: True,
        }
        assert "is alive" in status("--zk", hosts, "--forget", node.address).stderr
        assert status("--zk", hosts, "--forget", other.address).returncode == 0
        assert "no node" in status("--zk", hosts, "--forget", other.address).stderr
        assert status("--zk", hosts).returncode == 0
        node.stop()
        with session(hosts) as znodes:
            assert znodes.get_children(tree.NODES) == []
        node.start()
        server.stop()
        until(lambda: probe(node.admin_port)[0] == 503, what="the loss of ZooKeeper", seconds=30)
        done = status("--url", f"http://{LOOPBACK}:{node.admin_port}")
        assert (done.returncode, "ZooKeeper is not connected" in done.stdout) == (3, True)
        impatient = "from canal_ha.zookeeper import reading; reading.CONNECT_MOST_S = 2.0"
        program = [sys.executable, "-c", f"{impatient}; from canal_ha.cli.main import main; main()"]
        assert status("--zk", hosts, program=program).returncode == 1
