"""The audit of a cluster: who owns a destination when, and cursors that an operator moves or deletes."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

import pytest
from twisted.internet.task import Clock

from canal_ha.node.instance_log import BY, InstanceLog
from canal_ha.server.audit import Audit
from lab import MariaDB, Node, ZooKeeper, follow
from lab.node import PROGRAM
from tests.node.following import column, following, read
from tests.waiting import until


def test_events_of_cursors_and_sources_reach_the_audit() -> None:
    """A deleted cursor is an edit of a znode; the facts of the log line are details. Other events are no actions."""
    written: list[bytes] = []
    log = InstanceLog(Audit(Clock(), written.append))
    log.event("example", "instance.started", clients=1)
    assert not written
    for name in BY:
        log.event("example", name, client_id=1001, action="written again")
    deleted = next(line for line in map(json.loads, written) if line["action"] == "cursor deleted")
    assert (deleted["destination"], deleted["client_id"]) == ("example", 1001)
    assert deleted["details"] == {"by": "znode edit", "action": "written again"}


@pytest.mark.real
def test_an_operators_edit_of_a_cursor_is_in_the_owners_audit(
    mariadb: MariaDB, zookeeper: ZooKeeper, database: str
) -> None:
    """The claim, the edit by `canal-ha cursor`, and the release are there, each once, with the epoch and the place."""
    mariadb.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY)")
    hosts = f"{zookeeper.hosts}/audited{time.time_ns()}"
    node = Node({"example": follow(mariadb)}, zk_servers=hosts, properties={"canal.audit": "on"}, wait_for=["example"])

    def found(action: str) -> list[dict[str, Any]]:
        lines = (node.directory / "logs" / "audit" / "audit.log").read_text().splitlines()
        return [line for line in map(json.loads, lines) if line["action"] == action]

    with node:
        with following(node, tables=rf"{database}\.t") as client:
            mariadb.execute(f"INSERT INTO {database}.t VALUES (1)")
            assert column(read(client, 1)) == [1]
            where = ("--conf", node.conf, "--destination", "example", "--client-id", "1001")
            subprocess.run([PROGRAM, "cursor", "set", *where, "--to", "latest", "--yes"], check=True, timeout=60)
            (moved,) = until(lambda: found("cursor moved"), what="the edit")
        assert (moved["client_id"], moved["details"]["by"]) == (1001, "znode edit")
        assert "mysql-bin" in moved["details"]["position"]
        (claim,) = found("claim")
        assert (claim["destination"], claim["details"]["epoch"] >= 0) == ("example", True)
        assert [line["client_id"] for line in found("subscribe")] == [1001]
        assert not found("release")
        node.stop()
        assert len(found("release")) == 1
