"""A node that is cut off from ZooKeeper for a moment, while its clients stay connected to it."""

from __future__ import annotations

import time
from threading import Thread

import pytest

from canal_ha.client.connector import SimpleConnector
from canal_ha.client.message import Message
from canal_ha.client.rows import rows_of
from canal_ha.errors import ServerRefused
from lab import MariaDB, Network, Node, ZooKeeper, follow
from lab.ports import LOOPBACK
from tests.waiting import until

pytestmark = pytest.mark.real


def ids(message: Message) -> list[int]:
    """Return the inserted ids of a batch."""
    return [int(str(row.after["id"])) for row in rows_of(message.entries) if row.after]


def next_rows(client: SimpleConnector) -> Message:
    """Return the next batch with rows; acknowledge those without."""

    def look() -> Message | None:
        message = client.get_without_ack(100, 1000)
        if ids(message):
            return message
        client.ack(message.id)
        return None

    return until(look, what="rows")


def test_an_old_ack_skips_no_row_after_the_node_loses_and_regains_its_destination(
    zookeeper: ZooKeeper, mariadb: MariaDB, database: str
) -> None:
    """The node stops serving when its lease ends, and claims again. A late ACK is refused, and every row arrives."""
    mariadb.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id BIGINT PRIMARY KEY)")
    with Network() as network:
        link = network.link(zookeeper.port)
        chroot = f"regained{time.time_ns()}"
        hosts = f"{link.address}/{chroot}"
        properties = {"canal.zookeeper.session.timeout": "3000", "canal.instance.memory.batch.mode": "ITEMSIZE"}
        with Node({"example": follow(mariadb)}, zk_servers=hosts, properties=properties) as node:
            until(lambda: "example" in node.running(), what="the first claim")
            client = SimpleConnector(LOOPBACK, node.port, "example", filter=rf"{database}\..*")
            with client:
                for number in (1, 2):
                    mariadb.execute(f"INSERT INTO {database}.t VALUES ({number})")
                old: list[Message] = []
                while len(old) < 2:
                    message = client.get_without_ack(3, 1000)
                    if ids(message):
                        old.append(message)
                    else:
                        client.ack(message.id)
                connection = client.local_address
                link.cut()
                until(lambda: "example" not in node.running(), what="the end of the lease")
                mariadb.execute(f"INSERT INTO {database}.t VALUES (3), (4)")
                link.heal()
                until(lambda: "example" in node.running(), what="the second claim")
                new = until(lambda: client.get_without_ack(100, 1000) or None, what="rows")
                assert client.local_address == connection
                assert set(ids(new)) >= {1, 2}
                client.ack(old[0].id)
                with pytest.raises(ServerRefused, match=f"batchId:{old[0].id} is not exist"):
                    client.get_without_ack(100)
                client.connect()
                seen: list[int] = []
                while len(seen) < 4:
                    message = client.get_without_ack(100, 1000)
                    seen += ids(message)
                    client.ack(message.id)
                assert seen == [1, 2, 3, 4]


def test_no_acknowledged_row_comes_again_after_an_orderly_stop_while_zookeeper_reconnects(
    zookeeper: ZooKeeper, mariadb: MariaDB, database: str
) -> None:
    """The node stops with the cursor written and `running` released, though the connection was cut for a moment."""
    mariadb.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id BIGINT PRIMARY KEY)")
    with Network() as network:
        link = network.link(zookeeper.port)
        chroot = f"stopping{time.time_ns()}"
        properties = {"canal.zookeeper.flush.period": "60000"}
        destination = {"example": follow(mariadb)}
        with (
            Node(destination, zk_servers=f"{link.address}/{chroot}", properties=properties) as first,
            Node(destination, zk_servers=f"{zookeeper.address}/{chroot}") as second,
        ):
            owner = until(lambda: next((node for node in (first, second) if node.running()), None), what="an owner")
            if owner is second:
                second.stop()
                until(lambda: "example" in first.running(), what="the first node's claim")
                second.start()
            with SimpleConnector(LOOPBACK, first.port, "example", filter=rf"{database}\..*") as client:
                mariadb.execute(f"INSERT INTO {database}.t VALUES (1)")
                message = next_rows(client)
                client.ack(message.id)
                client.get_without_ack(100)  # the node has read the ACK when it answers
            link.cut()
            stop = Thread(target=first.stop)
            began = time.monotonic()
            stop.start()
            time.sleep(0.5)
            link.heal()
            until(lambda: "example" in second.running(), what="the take-over")
            took_s = time.monotonic() - began
            stop.join()
            mariadb.execute(f"INSERT INTO {database}.t VALUES (2)")
            with SimpleConnector(LOOPBACK, second.port, "example", filter=rf"{database}\..*") as client:
                message = next_rows(client)
                assert ids(message) == [2]
            assert took_s < 4.5
