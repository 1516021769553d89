"""canal's own clients read the same rows from a cluster of two nodes as our client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from difflib import unified_diff
from pathlib import Path

import pytest

from canal_ha.client.connector import SimpleConnector
from lab import Network, Node, SqlServer, ZooKeeper, follow
from lab.ports import LOOPBACK
from tests.node import workload
from tests.peers import lines
from tests.waiting import until

pytestmark = pytest.mark.real

CHANGES = 3000


@contextmanager
def cluster(zookeeper: ZooKeeper, server: SqlServer, database: str) -> Iterator[Node]:
    """Start two nodes; yield the one that runs the destination."""
    follows = {"example": follow(server)}
    hosts = f"{zookeeper.hosts}/peers-{server.flavor}-{database}"
    with ExitStack() as stack:
        nodes = [stack.enter_context(Node(follows, zk_servers=hosts, name=f"node{number}")) for number in range(2)]
        yield until(lambda: next((node for node in nodes if node.running()), None), what="an owner")


def ours(node: Node, tables: str, client_id: int, change: Callable[[], int]) -> list[str]:
    """Make a change, and return its rows as our client gets them, in the peers' form. change: returns how many rows."""
    found: list[str] = []
    with SimpleConnector(LOOPBACK, node.port, "example", client_id, exact=False) as connector:
        connector.subscribe(tables)
        count = change()
        while len(found) < count:
            message = connector.get_without_ack(1000, 200)
            if message:
                found += (line for entry in message.entries for line in lines.lines(entry))
                connector.ack(message.id)
    return found


def test_the_same_rows(zookeeper: ZooKeeper, source_server: SqlServer, database: str, tmp_path: Path) -> None:
    """canal-python and the Java client get the same rows of a mixed workload, value by value, in the same order."""
    workload.create(source_server, database)
    tables = rf"{database}\..*"
    with cluster(zookeeper, source_server, database) as node, ExitStack() as stack:
        # peers need the number of rows in advance: the same seed changes as many in another schema
        rehearsal = f"{database}_r"
        workload.create(source_server, rehearsal)
        count = workload.run(source_server, rehearsal, CHANGES)
        java = lines.java(tmp_path / "java", node.port, "example", tables, count, 100)
        stack.callback(java.kill)
        python = lines.python(tmp_path / "python", node.port, "example", 1002, tables, count)
        stack.callback(python.kill)
        mine = ours(node, tables, 1003, lambda: workload.run(source_server, database, CHANGES))
        theirs = [peer.read() for peer in (java, python)]
    assert len(mine) == count
    for name, got in zip(("java", "python"), theirs, strict=True):
        rows = [line for line in got if not line.startswith("batches ")]
        assert rows == mine, "\n".join([name, *list(unified_diff(mine, rows, lineterm="", n=0))[:6]])
    print(f"{source_server.flavor}: {count} rows, the same for our client, Java and Python; Java: {theirs[0][-1]}")


def test_the_java_client_is_acknowledged_at_once(mariadb: SqlServer, database: str, tmp_path: Path) -> None:
    """A batch to the Java client takes less than half the time when the node sends TCP ACKs at once.

    The client sends a request's body only when the header is acknowledged, which Linux by itself delays by 40 ms. The
    same node is reached once directly, and once over a link that acknowledges as Linux does.
    """
    mariadb.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY, v varchar(100))")
    taken: dict[str, float] = {}
    with Network() as network:
        for name in ("at once", "delayed"):
            with Node({"example": follow(mariadb)}) as node:
                port = node.port if name == "at once" else network.link(node.port).port
                reader = lines.java(tmp_path / name, port, "example", rf"{database}\.t", 300, 1)
                with mariadb.connect(database=database) as connection, connection.cursor() as cursor:
                    for start in range(0, 300, 2):
                        number = start + 1000 * len(taken)
                        cursor.execute(f"INSERT INTO t VALUES ({number}, REPEAT('x', 90)), ({number + 1}, 'y')")
                summary = reader.read()[-1].split()
                taken[name] = float(summary[3]) / int(summary[1])
                print(f"TCP acknowledged {name}: {taken[name]:.2f} ms a batch ({summary[1]} batches)")
    assert taken["at once"] < taken["delayed"] / 2
