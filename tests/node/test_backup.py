"""A backup that docs/how-to/back-up.md describes is restored: no row is missing, and what came since comes again."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from canal_ha.client.connector import SimpleConnector
from lab import MariaDB, Node, ZooKeeper, follow
from lab.ports import LOOPBACK
from tests.node.following import column, read, stream_of
from tests.waiting import until

pytestmark = pytest.mark.real


@contextmanager
def client_of(node: Node, table: str) -> Iterator[SimpleConnector]:
    """Yield a subscribed client."""
    with SimpleConnector(LOOPBACK, node.port, "example", 1001) as client:
        client.subscribe(table.replace(".", r"\."))
        yield client


def table_of(mariadb: MariaDB, database: str) -> str:
    """Create a table; return its name."""
    mariadb.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY)")
    return f"{database}.t"


def read_all(client: SimpleConnector, count: int) -> list[int]:
    """Read this many rows and the end of their last transaction, where the cursor then is; return the ids."""
    ids = column(read(client, count))
    while message := client.get_without_ack(1000, 500):
        client.ack(message.id)
    return ids


def insert(mariadb: MariaDB, table: str, *ids: int) -> None:
    """Insert rows, each in a transaction of its own."""
    mariadb.execute(*(f"INSERT INTO {table} VALUES ({number})" for number in ids))


def test_a_lost_disk_of_a_lone_node(mariadb: MariaDB, database: str, tmp_path: Path) -> None:
    """meta.dat, copied while the node runs, is put back while it is stopped."""
    table = table_of(mariadb, database)
    with Node({"example": follow(mariadb)}) as node:
        with client_of(node, table) as client:
            insert(mariadb, table, 1, 2)
            assert read_all(client, 2) == [1, 2]
            file = node.conf / "example" / "meta.dat"
            offset = stream_of(node, "example")["cursor"]["offset"]
            until(lambda: file.exists() and f'"position":{offset},' in file.read_text(), what="the cursor in the file")
            shutil.copy2(file, tmp_path / "meta.dat")
            insert(mariadb, table, 3, 4)
            assert read_all(client, 2) == [3, 4]
        node.stop()
        for each in (node.conf / "example").iterdir():
            if each.name != "instance.properties":
                each.unlink()
        shutil.copy2(tmp_path / "meta.dat", file)
        node.start()
        insert(mariadb, table, 5)
        with client_of(node, table) as client:
            assert read_all(client, 3) == [3, 4, 5]


def test_a_lost_ensemble_and_lost_nodes(mariadb: MariaDB, database: str, tmp_path: Path) -> None:
    """The data directory of a ZooKeeper server, copied while it runs, is put back before the nodes start."""
    table = table_of(mariadb, database)
    with ZooKeeper() as zookeeper:
        properties = {"canal.zookeeper.flush.period": "0"}
        settings = {"example": follow(mariadb)}
        with Node(settings, zk_servers=zookeeper.hosts, properties=properties, wait_for={"example"}) as node:
            with client_of(node, table) as client:
                insert(mariadb, table, 1, 2)
                assert read_all(client, 2) == [1, 2]
                data = zookeeper.directory / "data"
                shutil.copytree(data / "version-2", tmp_path / "version-2")
                insert(mariadb, table, 3, 4)
                assert read_all(client, 2) == [3, 4]
            node.kill()
            zookeeper.kill()
            shutil.rmtree(data / "version-2")
            shutil.copytree(tmp_path / "version-2", data / "version-2")
            zookeeper.start()
            node.start()
            insert(mariadb, table, 5)
            with client_of(node, table) as client:
                assert read_all(client, 3) == [3, 4, 5]
