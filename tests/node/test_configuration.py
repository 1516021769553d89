"""Destinations that are added, changed and removed while a node runs; the precedence of settings; ports in use."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from canal_ha.errors import ServerRefused
from lab import MariaDB, Node, follow
from lab.ports import LOOPBACK
from tests.node.following import column, destination_of, following, read, stream_of
from tests.waiting import until

pytestmark = pytest.mark.real


class SetNode(Node):
    """A node with --set arguments."""

    sets: tuple[str, ...] = ()

    def command(self) -> Sequence[str]:
        return [*super().command(), *(word for text in self.sets for word in ("--set", text))]


@pytest.fixture(scope="module")
def node(mariadb: MariaDB) -> Iterator[Node]:
    """Run a node that scans its directory every 0.3 s. `idler` is lazy; `example` always runs."""
    properties = {
        "canal.auto.scan": "true",
        "canal.auto.scan.interval": "0.3",
        "canal.instance.idler.lazy": "true",
    }
    with Node(
        {"example": follow(mariadb), "idler": follow(mariadb)}, properties=properties, wait_for=["example"]
    ) as it:
        yield it


def write(node: Node, destination: str, properties: dict[str, str]) -> Path:
    """Write an instance.properties atomically and return its path."""
    path = node.conf / destination / "instance.properties"
    path.parent.mkdir(exist_ok=True)
    beside = path.with_suffix(".new")
    beside.write_text("".join(f"{key} = {value}\n" for key, value in properties.items()))
    return beside.replace(path)


def reloaded(node: Node) -> bool:
    """Return whether `added` runs with the size in its changed file. It does not run during the reload."""
    return any(each["destination"] == "added" and each["buffer_size"] == 512 for each in node.status()["destinations"])


def test_destinations_come_change_and_go(mariadb: MariaDB, node: Node, database: str) -> None:
    """A new file starts a destination, a changed file reloads it and keeps its cursors, a removed file stops it.

    An invalid file raises an alarm and changes nothing. `example` runs all the time.
    """
    mariadb.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY)")
    with following(node, "example", tables=rf"{database}\.t") as witness:
        path = write(node, "added", follow(mariadb))
        until(lambda: "added" in node.running(), what="the start")
        with following(node, "added", tables=rf"{database}\.t") as client:
            mariadb.execute(f"INSERT INTO {database}.t VALUES (1)")
            assert column(read(client, 1)) == [1]
        write(node, "added", follow(mariadb, {"canal.instance.memory.buffer.size": "512"}))
        until(lambda: reloaded(node), what="the reload")
        with following(node, "added", tables=rf"{database}\.t") as client:
            mariadb.execute(f"INSERT INTO {database}.t VALUES (2)")
            assert column(read(client, 1)) == [2]
            write(node, "added", follow(mariadb, {"canal.instance.memory.buffer.size": "lots"}))
            until(lambda: "scan.refused destination=added" in node.log_file(), what="the refusal")
            mariadb.execute(f"INSERT INTO {database}.t VALUES (3)")
            assert column(read(client, 1)) == [3]
        write(node, "added", follow(mariadb))
        until(lambda: "scan.refused_over destination=added" in node.log_file(), what="the end of the alarm")
        path.unlink()
        until(lambda: "added" not in node.running(), what="the stop")
        assert column(read(witness, 3)) == [1, 2, 3]
    assert node.log_file("example").count("instance.started") == 1
    assert (node.directory / "logs" / "added" / "added.log").exists()


def test_a_lazy_destination_starts_when_a_client_asks(node: Node) -> None:
    """The destination starts within the first SUBSCRIBE, and not before."""
    assert "idler" not in node.running()
    assert not (node.directory / "logs" / "idler").exists()
    with following(node, "idler"):
        assert stream_of(node, "idler")["state"] == "open"


@pytest.mark.nightly("tests/config: the order of layers")
def test_set_wins_over_environment_wins_over_files(mariadb: MariaDB) -> None:
    """One key comes from each of them. The log names an unknown key."""
    environment = {"CANAL_INSTANCE_STREAM_MAX": "1", "CANAL_INSTANCE_MEMORY_BUFFER_SIZE": "1024"}
    properties = {
        "canal.instance.memory.buffer.size": "512",
        "canal.instance.memory.batch.mode": "ITEMSIZE",
        "canal.instanze.typo": "1",
    }
    with SetNode({"example": follow(mariadb)}, properties=properties, environment=environment) as node:
        status = destination_of(node, "example")
        assert (status["buffer_size"], status["batch_mode"]) == (1024, "ITEMSIZE")
        assert "canal.instanze.typo" in node.log_file()
        node.stop()
        node.sets = ("canal.instance.memory.buffer.size=2048",)
        node.start()
        assert destination_of(node, "example")["buffer_size"] == 2048
        with following(node), pytest.raises(ServerRefused, match=r"stream\.max"), following(node, "example", 2):
            pass


@pytest.mark.nightly("tests/cli/test_server.py: a taken port")
def test_ports_that_are_taken(mariadb: MariaDB) -> None:
    """If the metrics or status port is in use, the node logs it and serves; status moves to another port.

    If the data port is in use, the node exits with code 2 and a message.
    """
    with SetNode({"example": follow(mariadb)}, wait_for=()) as node:
        node.stop()
        with socket.create_server((LOOPBACK, node.admin_port)), socket.create_server(("", node.metrics_port)):
            node.start()
            with following(node):
                log = node.log_file()
            assert f"metrics.port_taken port={node.metrics_port}" in log
            assert f"admin.port_taken wanted={node.admin_port}" in log
            port = log.rpartition("admin.listening")[2].partition("port=")[2].split()[0]
            with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/api/v1/status") as answer:
                assert answer.status == 200
        second = SetNode({"example": follow(mariadb)})
        second.sets = (f"canal.port={node.port}",)
        second.launch()
        until(lambda: second.exit_code is not None, what="its end")
        assert second.exit_code == 2
        assert f"canal.port = '{node.port}'" in second.log_tail()
        assert "Traceback" not in second.log_tail(100)
