"""`canal-ha status --zk` on a real cluster."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request

import pytest
from kazoo.client import KazooClient

from canal_ha.cli.status import PROBLEM
from canal_ha.client.cluster import ClusterConnector
from canal_ha.errors import ZooKeeperUnavailable
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.reading import BlockingZnodes
from lab import MariaDB, Node, ZooKeeper, follow, free_port
from lab.node import PROGRAM
from lab.ports import LOOPBACK
from tests.waiting import until

pytestmark = pytest.mark.real


def status(*options: str) -> str:
    """Run the command, which shows the state with or without problems, and return its output."""
    done = subprocess.run([PROGRAM, "status", *options], capture_output=True, text=True, encoding="utf-8", timeout=60)
    assert done.returncode in (0, PROBLEM), done.stderr
    return done.stdout


def test_a_cluster_with_a_client(mariadb: MariaDB, zookeeper: ZooKeeper) -> None:
    """The command shows two nodes, one destination and its active client; then it shows a node that was killed."""
    hosts = f"{zookeeper.hosts}/status{time.time_ns()}"
    properties = {"canal.zookeeper.session.timeout": "20000"}
    with (
        Node({"example": follow(mariadb)}, zk_servers=hosts, properties=properties) as first,
        Node({"example": follow(mariadb)}, zk_servers=hosts, properties=properties) as second,
        ClusterConnector(hosts, "example") as client,
    ):
        client.subscribe("")
        client.get_without_ack()
        until(lambda: client.check_valid())
        seen = json.loads(status("--zk", hosts, "--json"))
        assert {node["address"] for node in seen["nodes"]} == {first.address, second.address}
        assert all(node["version"] and not node["problem"] for node in seen["nodes"])
        (example,) = seen["destinations"]
        assert {example["runs_on"], *example["stand_by"]} == {first.address, second.address}
        assert example["runs_on"] == client.node
        assert example["source_address"] == mariadb.address
        (told,) = example["clients"]
        assert told["active"].startswith("127.0.0.1:")
        assert told["stream"]["state"] == "open"
        text = status("--zk", hosts)
        assert "1001" in text
        assert told["active"] in text
        running = first if first.address == client.node else second
        running.kill()
        text = status("--zk", hosts)
        assert "not reached" in text
        assert f"{running.address}: its figures are missing: no node answers at http://127.0.0.1:" in text
        assert told["active"] in text


def test_a_lazy_destination_without_a_client_is_no_problem(mariadb: MariaDB, zookeeper: ZooKeeper) -> None:
    """It was one, "no owner", for as long as no client came, so that scripts saw a cluster in trouble."""
    hosts = f"{zookeeper.hosts}/lazy{time.time_ns()}"
    properties = {"canal.instance.later.lazy": "true"}
    nodes = [
        Node({"later": follow(mariadb)}, zk_servers=hosts, properties=properties, name=name) for name in ("a", "b")
    ]
    with nodes[0] as first, nodes[1] as second, BlockingZnodes(hosts) as znodes:
        members = [tree.destination_member("later", node.address) for node in nodes]
        until(lambda: all(znodes.get_all(members)), what="both nodes")
        done = subprocess.run([PROGRAM, "status", "--zk", hosts], capture_output=True, text=True, timeout=60)
        assert "later" in done.stdout
        assert "nobody (starts at the first client)" in done.stdout
        assert (done.returncode, done.stderr, "no owner" in done.stdout) == (0, "", False)
        with urllib.request.urlopen(f"http://{LOOPBACK}:{first.admin_port}/api/v1/cluster") as answer:
            (later,) = json.load(answer)["destinations"]
        assert (later["state"], later["owner"]) == ("lazy", "")
        with ClusterConnector([second.address], "later") as client:
            client.subscribe("")
        (told,) = json.loads(status("--zk", hosts, "--json"))["destinations"]
        assert (told["runs_on"], told["lazy"]) == (second.address, False)


def test_another_node_behind_the_same_endpoint_is_not_believed(mariadb: MariaDB, zookeeper: ZooKeeper) -> None:
    """The endpoint of a remote node is a loopback address.

    Another node answers there, and is not taken for the first.
    """
    hosts = f"{zookeeper.hosts}/elsewhere{time.time_ns()}"
    with Node({"example": follow(mariadb)}, zk_servers=hosts) as node:
        operator = KazooClient(hosts)
        operator.start()
        until(lambda: operator.exists(tree.member(node.address)))
        operator.create(tree.member("10.9.9.9:11111"), f"127.0.0.1:{node.admin_port}".encode(), ephemeral=True)
        nodes = {each["address"]: each for each in json.loads(status("--zk", hosts, "--json"))["nodes"]}
        assert nodes[node.address]["version"]
        assert nodes["10.9.9.9:11111"]["version"] == ""
        assert "seen from here" in nodes["10.9.9.9:11111"]["problem"]
        operator.stop()
        operator.close()


def test_watching(zookeeper: ZooKeeper) -> None:
    """--watch --json prints a line each time, and ends with code 0 when it is interrupted."""
    hosts = f"{zookeeper.hosts}/watched{time.time_ns()}"
    process = subprocess.Popen(
        [PROGRAM, "status", "--zk", hosts, "--watch", "--json"], stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )
    assert process.stdout is not None
    for _ in range(2):
        assert json.loads(process.stdout.readline()) == {"nodes": [], "destinations": []}
    process.send_signal(2)
    assert process.wait(10) == 0
    process.stdout.close()


def test_no_zookeeper(monkeypatch: pytest.MonkeyPatch) -> None:
    """If no ZooKeeper answers, the error names its address."""
    monkeypatch.setattr("canal_ha.zookeeper.reading.CONNECT_MOST_S", 0.5)
    port = free_port()
    with pytest.raises(ZooKeeperUnavailable, match=f"no ZooKeeper answers at 127.0.0.1:{port}"):
        BlockingZnodes(f"127.0.0.1:{port}").__enter__()


def test_an_empty_ensemble_is_an_error_that_says_what_was_seen(zookeeper: ZooKeeper) -> None:
    """A script or a person at night must not take it for a healthy cluster."""
    hosts = f"{zookeeper.hosts}/empty{time.time_ns()}"
    for options in ((), ("--json",)):
        done = subprocess.run([PROGRAM, "status", "--zk", hosts, *options], capture_output=True, text=True, timeout=60)
        assert done.returncode == 1
        assert "has no destination and no node below /otter/canal/cluster" in done.stderr
