"""canal's Java client, which cannot speak TLS, reads through stunnel from nodes whose client port speaks only TLS.

The configurations are those of docs/how-to/tls-side-car.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from canal_ha.wire.scramble import secret_of
from lab import MariaDB, Node, StartFailed, ZooKeeper, follow, free_port
from lab.certificates import Authority
from lab.cluster.delivery import Delivery
from lab.cluster.java import JavaClient
from lab.ports import LOOPBACK
from lab.stunnel import Stunnel
from tests.peers import lines
from tests.waiting import until

pytestmark = pytest.mark.real

LOGIN = ("billing", "geheim")
ACCOUNT = f"""[accounts.billing]
passwords = ["{secret_of(LOGIN[1]).hex()}"]
roles = ["read"]
destinations = ["example"]
"""


class Certified:
    """The authorities of the nodes' certificates and of the clients'."""

    def __init__(self, directory: Path) -> None:
        self.nodes, self.clients = Authority(directory), Authority(directory, "clients")

    def node(self, server: MariaDB, database: str, name: str = "canal1", zk_servers: str = "") -> Node:
        """Return a node that has this name in its certificate and in ZooKeeper. It is not started."""
        properties = {
            "canal.register.ip": name,
            "canal.accounts.file": "../conf/accounts.toml",
            "canal.tls.cert": str(self.nodes.sign(name)),
            "canal.tls.ca": str(self.clients.file),
        }
        settings = follow(server, {"canal.instance.filter.regex": rf"{database}\..*"})
        node = Node({"example": settings}, properties=properties, name=name, zk_servers=zk_servers, login=LOGIN)
        (node.conf / "accounts.toml").write_text(ACCOUNT)
        return node

    def side_car(self, services: Mapping[str, tuple[str, str]], account: str = "") -> Stunnel:
        """Return a side-car that shows a certificate of this account, or none. It is not started."""
        settings = [f"CAfile = {self.nodes.file}", "verifyChain = yes"]
        if account:
            settings.append(f"cert = {self.clients.sign(account)}")
        return Stunnel(services, settings)


@pytest.fixture
def certified(tmp_path: Path) -> Certified:
    return Certified(tmp_path)


def to(node: Node) -> tuple[str, str]:
    """Return a free address for a side-car, and that of the node."""
    return f"{LOOPBACK}:{free_port()}", node.address


def test_the_simple_java_client_through_a_side_car(
    mariadb: MariaDB, database: str, certified: Certified, tmp_path: Path
) -> None:
    """The password or the side-car's certificate names the account. A node of another name gets no byte."""
    mariadb.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY)")
    tables = rf"{database}\.t"
    with certified.node(mariadb, database) as node:
        ways = (("", LOGIN), ("billing", lines.NO_LOGIN))
        for number, (account, login) in enumerate(ways):
            with certified.side_car({"canal1": to(node)}, account) as car:
                java = lines.java(tmp_path / "java", car.port, "example", tables, 3, 100, login)
                mariadb.execute(*(f"INSERT INTO {database}.t VALUES ({10 * number + at})" for at in range(3)))
                *rows, summary = java.read()
                assert len(rows) == 3, rows
                print(f"{login}: {summary}")
        with certified.side_car({"canal1": to(node)}) as car, pytest.raises(StartFailed, match="auth failed for user:"):
            lines.java(tmp_path / "nobody", car.port, "example", tables, 1, 100)
        with certified.side_car({"canal2": to(node)}) as car:
            with pytest.raises(StartFailed, match="CanalClientException"):
                lines.java(tmp_path / "elsewhere", car.port, "example", tables, 1, 100, LOGIN)
            assert "certificate verify failed" in car.log_tail(100)


def test_canal_python_through_a_side_car(mariadb: MariaDB, database: str, certified: Certified, tmp_path: Path) -> None:
    """It cannot log in with a password. A certificate names its account, with this account's rights."""
    mariadb.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY)")
    tables = rf"{database}\.t"
    with certified.node(mariadb, database) as node:
        with certified.side_car({"canal1": to(node)}) as car, pytest.raises(StartFailed, match="Could not read bytes"):
            lines.python(tmp_path / "password", car.port, "example", 1001, tables, 1, LOGIN)
        with certified.side_car({"canal1": to(node)}, "billing") as car:
            with pytest.raises(StartFailed, match="no right on destination:elsewhere"):
                lines.python(tmp_path / "elsewhere", car.port, "elsewhere", 1001, tables, 1)
            python = lines.python(tmp_path / "python", car.port, "example", 1001, tables, 1)
            mariadb.execute(f"INSERT INTO {database}.t VALUES (1)")
            assert len(python.read()) == 1


@pytest.mark.nightly("the test above: side-cars; tests/cluster_faults/test_java_client.py: fail-overs")
def test_the_java_cluster_client_through_side_cars(
    zookeeper: ZooKeeper, mariadb: MariaDB, database: str, certified: Certified, tmp_path: Path
) -> None:
    """The nodes register by name. The client's hosts file leads each name to a side-car, also after a fail-over."""
    mariadb.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int, txn int, nth int, size int)")
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.1.1 canal1\n127.0.1.2 canal2\n")
    zk_servers = f"{zookeeper.hosts}/side-car-{database}"
    delivery = Delivery(inferred=False)
    with ExitStack() as stack:
        nodes = [
            stack.enter_context(certified.node(mariadb, database, name, zk_servers)) for name in ("canal1", "canal2")
        ]
        places = {node.name: (f"127.0.1.{number}:{node.port}", node.address) for number, node in enumerate(nodes, 1)}
        stack.enter_context(certified.side_car(places, "billing"))
        client = JavaClient(zk_servers, "example", delivery, tmp_path / "java", hosts_file=hosts)
        stack.callback(client.kill)
        until(lambda: client.subscribed or client.process.poll() is not None, seconds=60, what="the subscription")
        assert client.subscribed, (tmp_path / "java").read_text()
        for number in (1, 2):
            owner = until(lambda: next((node for node in nodes if node.running()), None), what="an owner")
            mariadb.execute(f"INSERT INTO {database}.t VALUES ({number}, {number}, 1, 1)")
            until(lambda: delivery.highest == number, seconds=60, what=f"row {number}")  # noqa: B023 # called at once
            owner.kill()
