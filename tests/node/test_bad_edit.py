"""Invalid configuration files: a running node keeps the settings that it read before."""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import MariaDB, Node, follow
from lab.ports import LOOPBACK
from tests.node.following import column, following, read
from tests.waiting import until

pytestmark = pytest.mark.real

INTERVAL_S = 0.5
SCAN = {"canal.auto.scan": "true", "canal.auto.scan.interval": str(INTERVAL_S)}
SIZE = "canal.instance.memory.buffer.size"


@pytest.fixture
def node(mariadb: MariaDB) -> Iterator[Node]:
    """Run a node that scans its directory twice a second."""
    with Node({"example": follow(mariadb)}, properties=SCAN) as it:
        yield it


def instance_file(node: Node, destination: str = "example") -> Path:
    """Return the path of the destination's instance.properties."""
    return node.conf / destination / "instance.properties"


def edit(path: Path, *lines: str, base: str) -> None:
    """Write in place, as many editors do: `base`, then more lines."""
    path.write_text(base + "".join(f"{line}\n" for line in lines))


def alarms(node: Node) -> list[dict[str, Any]]:
    """Return the configuration alarms of /api/v1/status."""
    return list(node.status()["alarms"])


def started(node: Node, destination: str = "example") -> int:
    """Return how often the destination has started."""
    return node.log_file(destination).count("instance.started")


def metrics(node: Node) -> str:
    """Return the text that Prometheus scrapes."""
    with urllib.request.urlopen(f"http://{LOOPBACK}:{node.metrics_port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


def test_a_bad_edit_does_not_stop_a_running_destination(mariadb: MariaDB, node: Node, database: str) -> None:
    """Rows keep flowing on the same connection after invalid edits, and the next valid edit takes effect.

    Until the file is valid again, log and status name the file, line, key and reason, and a metric shows the alarm.
    Each error is logged once.
    """
    mariadb.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY)")
    path = instance_file(node)
    good = path.read_text()
    with following(node, tables=rf"{database}\.t") as client:
        edit(path, f"{SIZE} = lots", base=good)
        until(lambda: "scan.refused destination=example" in node.log_file(), what="the refusal")
        mariadb.execute(f"INSERT INTO {database}.t VALUES (1)")
        assert column(read(client, 1)) == [1]
        (alarm,) = alarms(node)
        expected = {"alarm": "refused", "destination": "example", "file": str(path), "line": 4, "key": SIZE}
        assert {key: alarm[key] for key in expected} == expected
        assert f"{path}:4: {SIZE} = 'lots': expected a whole number" in alarm["text"]
        assert f"{path}:4: {SIZE} = 'lots': expected a whole number" in node.log_file()
        assert 'canal_configuration_alarm{destination="example",alarm="refused"} 1' in metrics(node)
        os.utime(path)
        edit(path, f"{SIZE} = many", base=good)
        until(lambda: "'many'" in node.log_file(), what="the second refusal")
        edit(path, r"canal.instance.filter.regex = shop\\.(", base=good)
        until(lambda: "canal.instance.filter.regex" in node.log_file(), what="the refusal of a filter")
        edit(path, base="")
        until(lambda: "canal.instance.master.address" in node.log_file(), what="the refusal of an empty file")
        mariadb.execute(f"INSERT INTO {database}.t VALUES (2)")
        assert column(read(client, 1)) == [2]
        edit(path, base=good)
        until(lambda: not alarms(node), what="the end of the alarm")
        assert node.log_file().count("scan.refused ") == 4
        assert node.log_file().count("scan.refused_over destination=example") == 1
        assert "canal_configuration_alarm" not in metrics(node)
        mariadb.execute(f"INSERT INTO {database}.t VALUES (3)")
        assert column(read(client, 1)) == [3]
        assert started(node) == 1
    edit(path, f"{SIZE} = 512", base=good)
    until(lambda: [each["buffer_size"] for each in node.status()["destinations"]] == [512], what="the reload")
    assert started(node) == 2


def test_what_changes_nothing_does_not_restart_a_destination(node: Node) -> None:
    """A new modification time, a comment, or a key with its default value does not restart the destination."""
    path = instance_file(node)
    good = path.read_text()
    os.utime(path)
    until(lambda: node.log_file().count("scan.same destination=example") == 1, what="the first look")
    edit(path, "# a comment", f"{SIZE} = 16384", base=good)
    until(lambda: node.log_file().count("scan.same destination=example") == 2, what="the second look")
    assert started(node) == 1


def test_a_file_that_cannot_be_looked_at_does_not_stop_its_destination(node: Node) -> None:
    """A link to itself in place of the file and a missing configuration directory raise an alarm and stop nothing."""
    path = instance_file(node)
    kept = path.rename(path.with_name("kept"))
    path.symlink_to(path)
    until(lambda: [each["alarm"] for each in alarms(node)] == ["unreadable"], what="the alarm for a link")
    path.unlink()
    kept.rename(path)
    until(lambda: not alarms(node), what="its end")
    away = node.conf.rename(node.conf.with_name("away"))
    until(lambda: [each["alarm"] for each in alarms(node)] == ["unreadable"], what="the alarm for the directory")
    assert "canal.properties" in alarms(node)[0]["text"]
    away.rename(node.conf)
    until(lambda: not alarms(node), what="the end of that")
    assert node.running() == {"example"}
    assert started(node) == 1


def test_a_listed_destination_without_its_file_is_an_alarm(node: Node) -> None:
    """The destination stops, as in canal, and the alarm names canal.destinations. It starts when the file is back."""
    path = instance_file(node)
    kept = path.rename(path.with_name("kept"))
    (alarm,) = until(lambda: alarms(node) or None, what="the alarm")
    assert not node.running()
    assert (alarm["alarm"], alarm["destination"]) == ("gone", "example")
    assert "canal.destinations" in alarm["text"]
    kept.rename(path)
    until(lambda: node.running() == {"example"}, what="the start")
    until(lambda: not alarms(node), what="the end of the alarm")


def test_a_changed_main_file_is_told(node: Node) -> None:
    """Each change that needs a restart is logged once; an alarm names the key and both values until it is undone.

    If the file cannot be used, an alarm has line, key and reason, and nothing changes.
    """
    path = node.conf / "canal.properties"
    good = path.read_text()
    edit(path, "canal.user = eve", base=good)
    until(lambda: "scan.restart " in node.log_file(), what="the word about the main file")
    (alarm,) = alarms(node)
    assert (alarm["alarm"], alarm["key"]) == ("restart", "canal.user")
    assert alarm["reason"] == "needs a restart: canal.user (running: blank, file: eve)"
    assert 'canal_configuration_alarm{destination="",alarm="restart"} 1' in metrics(node)
    edit(path, "canal.port = eleven", base=good)
    line = len(good.splitlines()) + 1
    until(lambda: f"{path}:{line}: canal.port = 'eleven'" in node.log_file(), what="the reason")
    assert [(each["alarm"], each["line"]) for each in alarms(node)] == [("refused", line)]
    edit(path, base=good)
    until(lambda: not alarms(node), what="its end")
    assert node.log_file().count("scan.restart ") == 1
    assert node.log_file().count("scan.refused_over") == 1


def test_defaults_in_the_main_file_reach_running_destinations(node: Node) -> None:
    """A changed default restarts the destination once; an invalid one leaves it untouched."""
    path = node.conf / "canal.properties"
    good = path.read_text()
    edit(path, f"{SIZE} = lots", base=good)
    until(lambda: [each["key"] for each in alarms(node)] == [SIZE], what="the alarm")
    assert started(node) == 1
    edit(path, f"{SIZE} = 512", base=good)
    until(lambda: [each["buffer_size"] for each in node.status()["destinations"]] == [512], what="the reload")
    assert not alarms(node)
    assert started(node) == 2


def test_a_node_that_starts_with_a_bad_file_runs_the_others(mariadb: MariaDB) -> None:
    """The destination with the invalid file has the same alarm, and starts when the file is valid."""
    bad = follow(mariadb, {SIZE: "lots"})
    with Node({"example": follow(mariadb), "broken": bad}, properties=SCAN, wait_for=["example"]) as node:
        (alarm,) = alarms(node)
        assert (alarm["destination"], alarm["line"], alarm["running"]) == ("broken", 4, False)
        assert "scan.refused destination=broken" in node.log_file()
        path = instance_file(node, "broken")
        path.write_text(path.read_text().replace("lots", "512"))
        until(lambda: node.running() == {"example", "broken"}, what="the start")
        until(lambda: not alarms(node), what="the end of the alarm")
        assert node.log_file().count("scan.refused ") == 1
