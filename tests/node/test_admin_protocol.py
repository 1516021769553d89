"""canal's admin protocol on real nodes: what canal-admin can look at, stop, start and hand over."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from canal_ha.wire.scramble import secret_of
from lab import MySQL, Node, ZooKeeper, follow
from lab.admin_peer import AdminPeer
from lab.mysql import cache_directory
from lab.node import PROGRAM
from lab.ports import LOOPBACK, free_port, listens
from tests.node.following import following, read
from tests.node.slow_reader import leave_unread, released_s
from tests.server.raw_client import RawClient
from tests.waiting import until

pytestmark = pytest.mark.real

PASSWORD = "console"
ADMIN = {"canal.admin.user": "admin", "canal.admin.passwd": secret_of(PASSWORD).hex()}
JAVA = Path(__file__).parents[1] / "peers" / "java" / "Admin.java"


@dataclass(frozen=True, slots=True)
class Managed:
    """A node with an admin port. console: a peer that has logged in."""

    node: Node
    port: int
    console: AdminPeer

    def ask(self, kind: str, destination: str = "", **more: str) -> str:
        """Return the message of an answer without an error."""
        code, text = self.console.request(kind, destination, **more)  # type: ignore[arg-type] # lines is not among them
        assert code == 0, text
        return text


def made(database: MySQL, names: tuple[str, ...] = ("example",), zk_servers: str = "") -> tuple[Node, int]:
    """Return a node that is not started, and the port of its admin protocol."""
    port = free_port()
    properties = {"canal.admin.port": str(port), "canal.cluster.rebalance.delay": "-1", **ADMIN}
    return Node(dict.fromkeys(names, follow(database)), properties=properties, zk_servers=zk_servers), port


def actions(audit: Path) -> list[tuple[str, str, str]]:
    """Return action, result and destination of each line of the audit log. It is there although no key asks for it."""
    lines = audit.read_text().splitlines() if audit.exists() else []
    return [(line["action"], line["result"], line["destination"]) for line in map(json.loads, lines)]


@pytest.fixture
def managed(mysql: MySQL) -> Iterator[Managed]:
    node, port = made(mysql, ("example", "other"))
    with node, AdminPeer(port) as console:
        assert console.log_in("admin", PASSWORD) == (0, "")
        yield Managed(node, port, console)


def test_a_console_stops_and_starts_a_destination(managed: Managed) -> None:
    """A stop is a pause, which the command shows and a second node process would respect; a start ends it."""
    node = managed.node
    assert managed.ask("SERVER check") == "1"
    assert managed.ask("SERVER list") == "example,other"
    assert managed.ask("INSTANCE check", "example") == "1"
    assert managed.ask("INSTANCE stop", "example") == "1"
    assert managed.ask("INSTANCE check", "example") == "0"
    assert managed.ask("SERVER list") == "other"
    assert (node.conf / "example" / "paused").exists()
    assert managed.ask("INSTANCE restart", "example") == "0"
    assert managed.ask("INSTANCE start", "example") == "1"
    assert managed.ask("INSTANCE check", "example") == "1"
    assert managed.ask("INSTANCE restart", "example") == "1"
    until(lambda: managed.ask("INSTANCE check", "example") == "1", seconds=20, what="the destination runs again")
    assert managed.ask("INSTANCE release", "example") == "0"  # there is no other node
    assert managed.ask("INSTANCE stop", "nobody's") == "0"
    assert "admin_protocol.not_done" in node.log_file()
    audit = node.directory / "logs" / "audit" / "audit.log"
    stops = {("INSTANCE stop", "ok", "example"), ("INSTANCE stop", "failed", "nobody's")}
    until(lambda: stops <= {*actions(audit)}, what="the audit has both")


def test_a_console_stops_and_starts_the_node(managed: Managed, mysql: MySQL, database: str) -> None:
    """All but the admin port ends; probes say so; a client that comes back gets the rows of the time between."""
    node = managed.node
    mysql.execute(f"CREATE DATABASE {database}")
    mysql.execute(f"CREATE TABLE {database}.t (id int PRIMARY KEY)")
    with following(node, tables=rf"{database}\.t") as client:
        read(client, 1)  # the statement
    assert managed.ask("SERVER start") == "0"
    assert managed.ask("SERVER stop") == "1"
    assert managed.ask("SERVER check") == "0"
    assert managed.ask("SERVER stop") == "0"
    assert managed.ask("SERVER list") == ""
    assert not listens(node.port)
    with pytest.raises(urllib.error.HTTPError) as answer:
        urllib.request.urlopen(f"http://{LOOPBACK}:{node.admin_port}/readyz", timeout=10)
    assert answer.value.code == 503
    assert managed.ask("INSTANCE start", "example") == "1"
    assert node.running() == frozenset()
    mysql.execute(f"INSERT INTO {database}.t VALUES (7)")
    assert managed.ask("SERVER start") == "1"
    assert managed.ask("SERVER check") == "1"
    until(lambda: node.running() == {"example", "other"}, seconds=20, what="both destinations run again")
    with following(node, tables=rf"{database}\.t") as client:
        assert [row.after for row in read(client, 1)] == [{"id": 7}]
    assert managed.ask("SERVER restart") == "1"
    until(lambda: node.running() == {"example", "other"}, seconds=20, what="both destinations run again")


def test_a_console_reads_logs_and_no_other_file(managed: Managed) -> None:
    """Names of files lead nowhere else, not even to the operator's token beside the node's log."""
    node = managed.node
    assert managed.ask("LOG server", action="list") == "canal.log"
    assert "node.starting" in managed.ask("LOG server")
    assert managed.console.request("LOG server", lines=1)[1] == node.log_file().splitlines()[-1]
    assert "example.log" in managed.ask("LOG instance", "example", action="list").split(",")
    text = managed.ask("LOG instance", "example", file="example.log")
    assert text
    assert text == managed.ask("LOG instance", "example")
    assert (node.directory / "logs" / "canal" / "operator.token").exists()
    for file in ("../canal/canal.log", "operator.token", "/etc/passwd", "..", "a\0b"):
        assert managed.ask("LOG instance", "example", file=file) == ""
    for destination in ("..", "canal", "audit", "", "../conf", "nobody's"):
        assert managed.console.request("LOG instance", destination)[0] in (400, 403)


def test_a_console_hands_a_destination_to_another_node(mysql: MySQL, zookeeper: ZooKeeper) -> None:
    """A release is done by the node that runs it; the other one runs it then. A stop holds for both."""
    servers = f"{zookeeper.hosts}/console{time.time_ns()}"
    one, port = made(mysql, zk_servers=servers)
    two, other_port = made(mysql, zk_servers=servers)
    with one:
        until(lambda: one.running() == {"example"}, seconds=30, what="the first node runs it")
        with two, AdminPeer(port) as first, AdminPeer(other_port) as second:
            first.log_in("admin", PASSWORD)
            second.log_in("admin", PASSWORD)
            until(lambda: "running.standby" in two.log_file(), seconds=30, what="the second node stands by")
            assert second.request("INSTANCE release", "example") == (0, "0")
            assert first.request("INSTANCE release", "example") == (0, "1")
            until(lambda: two.running() == {"example"}, seconds=30, what="the second node runs it")
            assert first.request("INSTANCE check", "example") == (0, "0")
            assert first.request("INSTANCE stop", "example") == (0, "1")
            assert second.request("INSTANCE check", "example") == (0, "0")
            assert second.request("INSTANCE start", "example") == (0, "1")
            until(lambda: bool(one.running() | two.running()), seconds=30, what="a node runs it again")
            owner, standby = (first, two) if one.running() else (second, one)
            assert owner.request("SERVER stop") == (0, "1")
            until(lambda: standby.running() == {"example"}, seconds=30, what="the other node takes over")


@pytest.mark.timed
def test_a_reader_that_takes_nothing_does_not_delay_the_hand_over_of_a_halted_node(
    zookeeper: ZooKeeper, mysql: MySQL, database: str
) -> None:
    """`SERVER stop` kept the destination for 5 s while a reply of 20 MB to this client was leaving."""
    mysql.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (v longtext)")
    node, port = made(mysql, zk_servers=f"{zookeeper.hosts}/{database}")
    with node, RawClient(node) as client, AdminPeer(port) as console:
        assert console.log_in("admin", PASSWORD) == (0, "")
        until(lambda: node.running() == {"example"}, what="the destination")
        leave_unread(mysql, database, client)
        answers: list[tuple[int, str]] = []
        assert released_s(node, lambda: answers.append(console.request("SERVER stop"))) < 3
        assert answers == [(0, "1")]
        assert node.running() == frozenset()


def test_the_port_without_a_password_is_refused_beyond_this_machine(mysql: MySQL) -> None:
    """As every listener, also on a node that opens no data port."""
    node = Node({"example": follow(mysql)})
    (node.conf / "canal.properties").write_text(
        f"canal.ip =\ncanal.withoutNetty = true\ncanal.metrics.pull.port = 0\ncanal.admin.port = {free_port()}\n"
        "canal.destinations = example\n"
    )
    found = subprocess.run([PROGRAM, "server", "--conf", str(node.conf)], capture_output=True, text=True, timeout=60)
    assert found.returncode == 2
    assert "opens a port to other machines without accounts (canal.ip = every address)" in found.stderr
    assert "canal.admin.passwd" in found.stderr


def test_canals_java_messages_drive_a_node(managed: Managed) -> None:
    """Login, actions and logs with the classes of canal's own jar."""
    libraries = cache_directory() / "java" / "lib"
    assert libraries.exists(), "run: bash deploy/install.sh java"
    requests = (
        "SERVER:check",
        "SERVER:list",
        "INSTANCE:example:stop",
        "INSTANCE:example:check",
        "INSTANCE:example:start",
        "INSTANCE:example:check",
        "INSTANCE:example:explode",
        "LOG:server:list::0",
        "LOG:instance:file:example:1",
        "SERVER:restart",
    )
    command = ["java", "-cp", f"{libraries}/*", str(JAVA), str(managed.port), "admin", PASSWORD, *requests]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stderr
    lines = found.stdout.splitlines()
    assert lines[:9] == [
        "0 ",
        "0 1",
        "0 example,other",
        "0 1",
        "0 0",
        "0 1",
        "0 1",
        "301 InstanceAdmin action: explode is unknown",
        "0 canal.log",
    ]
    assert len(lines) == 11
    assert lines[9].startswith("0 20")  # one line of the log, with its time
    assert lines[10] == "0 1"
    command[6] = "wrong"
    found = subprocess.run(command[:8], capture_output=True, text=True, timeout=120)
    assert found.stdout.splitlines()[0] == "300 auth failed for user:admin"
