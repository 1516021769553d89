"""Measures a take-over with many tables: how long until the first row, and what the table history takes in ZooKeeper.

A node records the tables of a MySQL server with MINIMAL metadata. Its snapshot is repeated, each time with another
changed table, as if days had passed. A row is written, columns swap, and the node is killed together with its disk. The
clock runs from the claim of the second node until its client has the row, with the names of its own time.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

from canal_ha.client.connector import SimpleConnector
from canal_ha.client.rows import rows_of
from canal_ha.decode.history.store import TableSnapshot
from canal_ha.errors import CanalError
from canal_ha.source.history.znode_store import ZnodeStore
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.operations import Check
from canal_ha.zookeeper.reading import BlockingZnodes
from lab import MySQL, Node, SqlServer, ZooKeeper, follow
from lab.ports import LOOPBACK

DESTINATION = "example"
COLUMNS = 20
LOOK_S = 0.05


def create(server: SqlServer, tables: int) -> None:
    """Create tables that all differ, and the table with the row."""
    server.execute("CREATE DATABASE shop", "CREATE TABLE shop.item (id int PRIMARY KEY, price int, qty int)")
    for first in range(0, tables, 500):
        server.execute(
            *(
                f"CREATE TABLE shop.orders_{number} (id bigint PRIMARY KEY, "
                + ", ".join(
                    f"column_{number % 97}_{column} varchar({20 + number % 50})" for column in range(COLUMNS - 2)
                )
                + f", own_{number} decimal(10,2))"
                for number in range(first, min(first + 500, tables))
            )
        )


def subscribe(client: SimpleConnector) -> None:
    """Subscribe, when the node runs the destination."""
    while True:
        try:
            client.subscribe(r"shop\.item")
        except CanalError:
            client.disconnect()
            time.sleep(LOOK_S)
            client.connect()
        else:
            return


def next_row(client: SimpleConnector) -> dict[str, object]:
    """Return the next row that was inserted."""
    while True:
        message = client.get_without_ack(1000, 100)
        for row in rows_of(message.entries):
            if row.after is not None:
                client.ack(message.id)
                return dict(row.after)


def repeat_snapshots(znodes: BlockingZnodes, snapshots: int) -> None:
    """Store further snapshots of the only source, as if the node had run for days."""
    path = tree.destination(DESTINATION)
    claimed = znodes.get(path)
    assert claimed is not None
    store = ZnodeStore(tree.history(DESTINATION), Check(path, claimed.version), znodes)
    source = next(iter(store.sources()))
    kept = store.load(source)
    newest = max(kept.snapshots, key=lambda taken: taken.at.order)
    tables = dict(newest.tables)
    for number in range(1, snapshots):
        tables["shop", f"orders_{number}"] = f"CREATE TABLE `t` (`id` bigint, `day_{number}` int)"
        store.add_snapshot(
            source, TableSnapshot(replace(newest.at, offset=newest.at.offset + number), dict(tables), newest.left_out)
        )


def measure(tables: int, snapshots: int) -> None:
    """Run once and print the figures."""
    with MySQL(row_metadata="MINIMAL") as server, ZooKeeper() as zookeeper:
        create(server, tables)
        instance = {DESTINATION: follow(server)}
        one, two = (Node(instance, zk_servers=zookeeper.hosts, name=name) for name in ("one", "two"))
        with BlockingZnodes(zookeeper.hosts, read_only=False) as znodes:
            with one, SimpleConnector(LOOPBACK, one.port, DESTINATION) as client:
                began = time.monotonic()
                subscribe(client)
                print(f"first start: subscribed after {time.monotonic() - began:.1f} s, with a snapshot of all tables")
                server.execute("INSERT INTO shop.item VALUES (0, 100, 7)")
                next_row(client)
                time.sleep(2)  # until the cursor is flushed
                server.execute(
                    "INSERT INTO shop.item VALUES (1, 100, 7)", "ALTER TABLE shop.item MODIFY price int AFTER qty"
                )
                one.kill()
            repeat_snapshots(znodes, snapshots)
            sizes = [
                len(node.data)
                for name in znodes.children(tree.history(DESTINATION))
                if (node := znodes.get(f"{tree.history(DESTINATION)}/{name}"))
            ]
            with two, SimpleConnector(LOOPBACK, two.port, DESTINATION) as client:
                while (
                    running := znodes.get(tree.running(DESTINATION))
                ) is None or two.address.encode() not in running.data:
                    time.sleep(0.01)
                claimed = time.monotonic()
                subscribe(client)
                row = next_row(client)
                first_row_s = time.monotonic() - claimed
                if list(row.items()) != [("id", 1), ("price", 100), ("qty", 7)]:
                    raise SystemExit(f"the row has wrong names: {row}")
    print(
        f"{tables:,} tables of {COLUMNS} columns, {snapshots} snapshots: first row {first_row_s:.2f} s after the claim"
    )
    print(f"ZooKeeper: {len(sizes)} znodes, {sum(sizes):,} bytes, the largest {max(sizes):,}")


def main() -> None:
    """Parse the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="?", type=int, default=10_000)
    parser.add_argument("--snapshots", type=int, default=15)
    arguments = parser.parse_args()
    measure(arguments.tables, arguments.snapshots)


if __name__ == "__main__":
    main()
