"""A bad edit of the configuration on every node of a cluster."""

from __future__ import annotations

import time
from functools import partial

import pytest

from lab import MariaDB, Node, ZooKeeper, follow
from tests.node.following import column, following, read
from tests.waiting import until

pytestmark = pytest.mark.real


def refused(node: Node) -> bool:
    """Return whether the node's log has the refusal."""
    return "scan.refused destination=example" in node.log_file()


def test_a_bad_edit_on_every_node_leaves_the_owner_running(
    mariadb: MariaDB, zookeeper: ZooKeeper, database: str
) -> None:
    """The owner runs on without a new claim. The other node takes over with its old configuration; its alarm stays."""
    mariadb.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY)")
    hosts = f"{zookeeper.hosts}/edited{time.time_ns()}"
    scan = {"canal.auto.scan": "true", "canal.auto.scan.interval": "0.5"}
    made = {
        name: Node({"example": follow(mariadb)}, zk_servers=hosts, properties=scan, name=name) for name in ("a", "b")
    }
    with made["a"], made["b"]:
        nodes = list(made.values())
        owner = until(lambda: next((node for node in nodes if node.running()), None), what="an owner")
        other = next(node for node in nodes if node is not owner)
        until(lambda: "running.standby destination=example" in other.log_file(), what="the stand-by")
        with following(owner, tables=rf"{database}\.t") as client:
            for node in nodes:
                path = node.conf / "example" / "instance.properties"
                path.write_text(path.read_text() + "canal.instance.master.position = far\n")
            for node in nodes:
                until(partial(refused, node), what="the refusal")
            mariadb.execute(f"INSERT INTO {database}.t VALUES (1)")
            assert column(read(client, 1)) == [1]
        assert owner.log_file("example").count("instance.started") == 1
        assert "running.stopping" not in owner.log_file()
        owner.stop()
        until(lambda: other.running() == {"example"}, what="the take-over")
        with following(other, tables=rf"{database}\.t") as client:
            mariadb.execute(f"INSERT INTO {database}.t VALUES (2)")
            assert column(read(client, 1)) == [2]
        assert [(each["alarm"], each["running"]) for each in other.status()["alarms"]] == [("refused", True)]
