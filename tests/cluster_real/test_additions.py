"""Destinations come to nodes that run and go again: `canal-ha destination add` and `remove`."""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from canal_ha.cli.status import PROBLEM
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.reading import BlockingZnodes
from lab import MariaDB, Node, ZooKeeper, follow
from lab.node import PROGRAM, Client
from tests.admin.test_openapi import check
from tests.cluster_real.test_page import Browser
from tests.cluster_real.test_placement import destination
from tests.waiting import until

pytestmark = pytest.mark.real

SCANNED = {"canal.auto.scan": "true", "canal.auto.scan.interval": "1", "canal.zookeeper.session.timeout": "4000"}


def given(mariadb: MariaDB) -> list[str]:
    """Return the options that say where a new destination reads."""
    return [part for key, value in follow(mariadb).items() for part in ("--set", f"{key}={value}")]


def test_a_destination_comes_to_each_node_that_is_asked_and_goes_again(
    zookeeper: ZooKeeper, mariadb: MariaDB, database: str
) -> None:
    """Each answer names the nodes that lack it. Only the last node that has it may delete its cursors."""
    mariadb.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.orders (id INT PRIMARY KEY)")
    hosts = f"{zookeeper.hosts}/additions{database}"
    with ExitStack() as stack:
        owner, other = (
            stack.enter_context(Node({}, zk_servers=hosts, properties=SCANNED, name=name)) for name in ("one", "two")
        )
        file = owner.conf / "shop" / "instance.properties"
        refused = destination(owner, "add", "shop", "--set", "canal.instance.dbUsername=x", "--yes", fails=True)
        assert str(file) in refused
        assert "canal.instance.master.address" in refused
        dry = destination(owner, "add", "shop", *given(mariadb), "--dry-run")
        assert f"{owner.address} gets {file}" in dry
        assert not file.parent.exists()
        done = destination(owner, "add", "shop", *given(mariadb), "--yes")
        assert f"not yet on {other.address}" in done
        assert file.stat().st_mode & 0o077 == 0
        until(lambda: owner.running() == {"shop"})
        assert "already" in destination(owner, "add", "shop", *given(mariadb), "--yes", fails=True)
        assert "not yet" not in destination(other, "add", "shop", *given(mariadb), "--yes")

        with Client(owner.address, "shop", "--filter", rf"{database}\..*") as client:
            until(lambda: owner.status()["destinations"][0]["streams"])
            mariadb.execute(f"INSERT INTO {database}.orders VALUES (1)")
            assert any(row["table"] == "orders" for row in client.rows())

        assert "remove it there first" in destination(owner, "remove", "shop", "--purge", "--yes", fails=True)
        removed = destination(owner, "remove", "shop", "--yes")
        assert f"still on {other.address}" in removed
        assert "cursors of the clients 1001" in removed
        assert file.with_name("instance.properties.removed").is_file()
        until(lambda: other.running() == {"shop"})
        assert owner.running() == frozenset()

        purged = destination(other, "remove", "shop", "--purge", "--yes")
        assert "deleted: the cursors of the clients 1001" in purged
        assert not (other.conf / "shop").exists()
        with BlockingZnodes(hosts) as znodes:
            assert znodes.get(tree.destination("shop")) is None
        assert "has no destination shop" in destination(other, "remove", "shop", "--yes", fails=True)


def test_a_removed_destination_stays_a_problem_for_ever(zookeeper: ZooKeeper, mariadb: MariaDB) -> None:
    """Its cursors are kept. It is not configured, which is no problem, unless a missing node could have it."""
    hosts = f"{zookeeper.hosts}/removed{time.time_ns()}"

    def status(*options: str) -> Any:
        return subprocess.run([PROGRAM, "status", "--zk", hosts, *options], capture_output=True, text=True, timeout=60)

    with ExitStack() as stack:
        nodes = [stack.enter_context(Node({}, zk_servers=hosts, properties=SCANNED, name=name)) for name in "ab"]
        for node in nodes:
            destination(node, "add", "shop", *given(mariadb), "--yes")
        until(lambda: any(node.running() for node in nodes))
        for node in nodes:
            destination(node, "remove", "shop", "--yes")
        done = status()
        assert done.returncode == 0, done.stdout
        assert "nobody (not configured)" in done.stdout
        (shop,) = json.loads(status("--json").stdout)["destinations"]
        assert shop["configured"] is False
        browser = Browser(nodes[0])
        (shop,) = until(lambda: (found := browser.json("/api/v1/cluster"))["nodes"][1:] and found["destinations"])
        assert shop["state"] == "not configured"
        check("/api/v1/cluster", 200, browser.json("/api/v1/cluster"))
        text = browser.open("/destinations/shop")
        assert "remove shop --purge" in text
        assert 'id="curve"' not in text
        nodes[1].kill()
        done = until(lambda: ": missing:" in (found := status()).stdout and found)
        assert done.returncode == PROBLEM
        assert "shop: no owner; eligible nodes: 0" in done.stdout


def test_without_a_scan_the_list_changes_and_a_restart_is_asked_for(mariadb: MariaDB, tmp_path: Path) -> None:
    """The lines of canal.properties around the list stay. A directory that is no destination's is left alone."""
    with Node({"a": follow(mariadb)}, properties={"canal.auto.scan": "false"}) as node:
        main = node.conf / "canal.properties"
        lines = main.read_text().splitlines()
        (node.conf / "precious").mkdir()
        refused = destination(node, "remove", "precious", "--purge", "--yes", fails=True)
        assert "has no destination precious" in refused
        assert "restart the node" in destination(node, "add", "b", *given(mariadb), "--yes")
        changed = {*main.read_text().splitlines()} ^ {*lines}
        assert changed == {"canal.destinations = a", "canal.destinations = a,b"}
        assert node.running() == {"a"}
        node.stop()
        node.start()
        until(lambda: node.running() == {"a", "b"})
        assert "restart the node" in destination(node, "remove", "b", "--yes")
        assert main.read_text().splitlines() == lines
        assert "no name of a destination" in destination(node, "add", "../b", *given(mariadb), "--yes", fails=True)
        assert "cannot be called" in destination(node, "add", ".b", *given(mariadb), "--yes", fails=True)


def test_a_node_of_its_own_purges_the_files_of_cursors(mariadb: MariaDB) -> None:
    """What is kept without --purge, a later add or purge finds. The audit names who did it, and not the file's text."""
    with Node({}, properties={**SCANNED, "canal.audit": "on"}) as node:
        answer = destination(node, "add", "shop", *given(mariadb), "--yes", "--json")
        assert json.loads(answer)["missing_on"] == []
        until(lambda: node.running() == {"shop"})
        assert f"kept: its file, as {node.conf / 'shop'}" in destination(node, "remove", "shop", "--yes")
        assert "listed" in destination(node, "add", "shop", *given(mariadb), "--yes", "--json")
        until(lambda: node.running() == {"shop"})
        assert f"deleted: {node.conf / 'shop'}" in destination(node, "remove", "shop", "--purge", "--yes")
        assert not (node.conf / "shop").exists()
        audit = (node.directory / "logs" / "audit" / "audit.log").read_text()
        lines = [json.loads(line) for line in audit.splitlines()]
        done = [(line["action"], line["details"]) for line in lines if line["action"] in ("add", "remove")]
        assert ("add", {"dry_run": False}) in done
        assert ("remove", {"purge": True, "dry_run": False}) in done
        assert "master.address" not in audit


def test_a_list_that_nobody_can_change_safely_is_left_alone(mariadb: MariaDB) -> None:
    """Nothing is written when canal.destinations has a placeholder."""
    properties = {"canal.auto.scan": "false", "canal.destinations": "${env:NO_SUCH_NAME:a}"}
    with Node({"a": follow(mariadb)}, properties=properties) as node:
        refused = destination(node, "add", "b", *given(mariadb), "--yes", fails=True)
        assert "canal.destinations does not come from" in refused
        assert not (node.conf / "b").exists()


def first_id(client: Client) -> str:
    """Return the id of the first row that a client gets."""
    return str(next(row["after"]["id"] for row in client.rows() if row["after"]))


def test_a_purge_after_the_removal_forgets_the_cursor(mariadb: MariaDB, database: str, tmp_path: Path) -> None:
    """The cursors are in a directory of their own, as with the systemd unit. A new destination begins at the newest."""
    mariadb.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.orders (id INT PRIMARY KEY)")
    data = tmp_path / "data" / "shop"
    with Node({}, properties={**SCANNED, "canal.file.data.dir": str(data.parent)}) as node:
        destination(node, "add", "shop", *given(mariadb), "--yes")
        until(lambda: node.running() == {"shop"})
        with Client(node.address, "shop", "--filter", rf"{database}\..*") as client:
            until(lambda: node.status()["destinations"][0]["streams"])
            mariadb.execute(f"INSERT INTO {database}.orders VALUES (1)")
            assert first_id(client) == "1"
        assert f"kept: {data}" in destination(node, "remove", "shop", "--yes")
        assert (data / "meta.dat").exists()
        assert f"deleted: {data}" in destination(node, "remove", "shop", "--purge", "--yes")
        assert not data.exists()
        assert not (node.conf / "shop").exists()
        mariadb.execute(f"INSERT INTO {database}.orders VALUES (2)")
        destination(node, "add", "shop", *given(mariadb), "--yes")
        until(lambda: node.running() == {"shop"})
        with Client(node.address, "shop", "--filter", rf"{database}\..*") as client:
            until(lambda: node.status()["destinations"][0]["streams"])
            mariadb.execute(f"INSERT INTO {database}.orders VALUES (3)")
            assert first_id(client) == "3"
