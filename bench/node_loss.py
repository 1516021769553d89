"""Measures how fast the other nodes take over a node's share of many destinations, and what a stream beside it notices.

Real nodes share the destinations over one real ZooKeeper. One node is killed. The clock runs from the SIGKILL until
`running` of each of its destinations names another node; the session time-out is part of it. Meanwhile a client reads
a row every tenth of a second from a destination of another node.

    python -m bench.node_loss [--destinations N] [--nodes N] [--session-timeout MS]
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from bench import measure, workloads
from bench.suite import CLIENT_ID
from canal_ha.client.connector import SimpleConnector
from canal_ha.client.rows import rows_of
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.operations import Znode
from canal_ha.zookeeper.reading import BlockingZnodes
from lab import Node, SqlServer, ZooKeeper, follow
from lab.ports import LOOPBACK

TABLE = "bench.beats"
LOOK_S = 0.1
LOOKING = 0.05  # the share of the time that looks may take, because they take a processor from the nodes
SETTLE_S = 10.0
EVEN_SOON = {"canal.cluster.rebalance.delay": "1", "canal.cluster.rebalance.interval": "0.1"}
BEATS_S = 0.1
QUIET_S = 5.0
QUIET = 0.5  # of a processor, in that time: what all nodes use when nothing happens
LONGEST_S = 600.0


class Beats:
    """One thread writes rows; another one reads them from a node.

    delays: for each row, monotonic seconds of its INSERT, and seconds until the client had it.
    """

    def __init__(self, server: SqlServer, node: Node, destination: str) -> None:
        self.delays: list[tuple[float, float]] = []
        self._server, self._over = server, threading.Event()
        self._written: dict[int, float] = {}
        self._connector = SimpleConnector(LOOPBACK, node.port, destination, CLIENT_ID)
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._write, self._read)]

    def __enter__(self) -> Beats:
        self._connector.connect()
        self._connector.subscribe(TABLE.replace(".", r"\."))
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        self._connector.disconnect()

    def _write(self) -> None:
        with self._server.connect(autocommit=True) as connection, connection.cursor() as cursor:
            number = 0
            while not self._over.wait(BEATS_S):
                number += 1
                self._written[number] = time.monotonic()
                cursor.execute(f"INSERT INTO {TABLE} VALUES ({number})")

    def _read(self) -> None:
        while not self._over.is_set():
            message = self._connector.get_without_ack(100, 200, eager=True)
            for row in rows_of(message.entries):
                if row.after is not None:
                    at = self._written[int(str(row.after["id"]))]
                    self.delays.append((at, time.monotonic() - at))
            if message.id != -1:
                self._connector.ack(message.id)

    def of(self, begin: float, end: float) -> str:
        """Return the figures of the rows that were written in a time."""
        found = [delay * 1000 for at, delay in self.delays if begin <= at < end]
        if not found:
            return "no row"
        p50, p99 = (measure.percentile(found, share) for share in (0.5, 0.99))
        return f"p50 {p50:.1f} ms, p99 {p99:.0f} ms, longest {max(found):.0f} ms of {len(found)} rows"


def owners(znodes: BlockingZnodes, names: Sequence[str]) -> dict[str, str]:
    """Return the address of the node that runs each destination, of those that run."""
    found = zip(names, znodes.get_all([tree.running(name) for name in names]), strict=True)
    return {name: tree.RunningData.from_bytes(each.data).address for name, each in found if isinstance(each, Znode)}


def spread(counts: Counter[str]) -> str:
    """Return how many destinations the nodes run."""
    return " + ".join(str(count) for _, count in sorted(counts.items()))


def all_owned(znodes: BlockingZnodes, names: Sequence[str], but: str = "") -> dict[str, str]:
    """Wait until each destination has had an owner other than `but`; return these owners."""
    deadline = time.monotonic() + LONGEST_S
    found: dict[str, str] = {}
    while True:
        began = time.monotonic()
        seen = owners(znodes, [name for name in names if name not in found])
        found |= {name: owner for name, owner in seen.items() if owner != but}
        if len(found) == len(names):
            return found
        if time.monotonic() > deadline:
            raise SystemExit(f"{len(found)} of {len(names)} destinations run after {LONGEST_S:.0f} s")
        time.sleep(max(LOOK_S, (time.monotonic() - began) / LOOKING))


def quiet(members: Sequence[Node]) -> None:
    """Wait until the nodes have stored the first table histories, which they do after the start."""
    deadline = time.monotonic() + LONGEST_S
    used_s = sum(measure.cpu_seconds(node.pid) for node in members)
    while time.monotonic() < deadline:
        time.sleep(QUIET_S)
        before_s, used_s = used_s, sum(measure.cpu_seconds(node.pid) for node in members)
        if used_s - before_s < QUIET_S * QUIET:
            return


def measured(server: SqlServer, count: int, nodes: int, timeout_ms: int) -> None:
    """Print the figures of one cluster."""
    server.execute("CREATE DATABASE IF NOT EXISTS bench", f"CREATE TABLE {TABLE} (id INT PRIMARY KEY)")
    names = [f"d{number:05}" for number in range(count)]
    instances = dict.fromkeys(names, follow(server))
    properties = {"canal.zookeeper.session.timeout": str(timeout_ms), **EVEN_SOON}
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZooKeeper())
        znodes = stack.enter_context(BlockingZnodes(zookeeper.hosts))
        began = time.monotonic()
        members = [
            Node(instances, zk_servers=zookeeper.hosts, properties=properties, name=f"node-{number}")
            for number in range(nodes)
        ]
        with ThreadPoolExecutor(nodes) as starting:
            list(starting.map(stack.enter_context, members))
        placed = all_owned(znodes, names)
        took, used_s = time.monotonic() - began, sum(measure.cpu_seconds(node.pid) for node in members)
        print(
            f"{count} destinations run on {nodes} nodes after {took:.1f} s;"
            f" {used_s:.1f} s of processor time of the nodes",
            flush=True,
        )
        deadline = time.monotonic() + LONGEST_S
        while len(shares := Counter(placed.values())) < nodes or max(shares.values()) - min(shares.values()) > nodes:
            if time.monotonic() > deadline:
                raise SystemExit(f"the nodes stay uneven: {spread(shares)}")
            time.sleep(5)
            placed = owners(znodes, names)
        print(f"each node runs {spread(Counter(placed.values()))}", flush=True)
        quiet(members)
        placed = owners(znodes, names)
        lost = members[0]
        share = [name for name, owner in placed.items() if owner == lost.address]
        watched = next(name for name, owner in placed.items() if owner != lost.address)
        beside = next(node for node in members if node.address == placed[watched])
        with Beats(server, beside, watched) as beats:
            time.sleep(SETTLE_S)
            used = {node.pid: measure.cpu_seconds(node.pid) for node in members[1:]}
            killed = time.monotonic()
            lost.kill()
            found = all_owned(znodes, share, but=lost.address)
            taken = time.monotonic()
            time.sleep(5)
            used_s = sum(measure.cpu_seconds(pid) - before for pid, before in used.items())
        print(
            f"a node with {len(share)} destinations was killed; the session time-out is {timeout_ms / 1000:g} s:"
            f" all run elsewhere after {taken - killed:.1f} s ({spread(Counter(found.values()))});"
            f" {used_s:.1f} s of processor time of the other nodes"
        )
        print(f"a stream of another node before: {beats.of(killed - SETTLE_S, killed)}")
        print(f"meanwhile: {beats.of(killed, taken)}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--destinations", type=int, default=2000)
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--session-timeout", type=int, default=5000, metavar="MS")
    chosen = parser.parse_args(arguments)
    with workloads.server("mysql") as server:
        server.execute("SET GLOBAL max_connections = 100000")
        measured(server, chosen.destinations, chosen.nodes, chosen.session_timeout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
