"""Measures a node with many destinations of one server, each with an open stream, on an idle source.

One process has a client for each destination. All of them wait in a GET. The figures: how long all streams need to
open, the node's memory, threads and connections to the database, its processor time while nothing comes, and how long
one row needs to reach every client.

    python -m bench.destinations [--destinations N] [--database mariadb|mysql] [--idle SECONDS] [--rows N]
        [--pause SECONDS]
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench import measure, workloads
from bench.suite import CLIENT_ID
from canal_ha.client.async_connector import AsyncConnector
from lab import Node, SqlServer, follow
from lab.ports import LOOPBACK

TABLE = "bench.everywhere"
OPEN_S = 600.0  # longest wait for all streams
CONNECTS_AT_ONCE = 50
WAIT_MS = 600_000
ONE_ENTRY = 2  # of a GET by entries: the row and its transaction's end


class Clients:
    """One client for each destination. arrived: monotonic seconds at which each of them has the newest row."""

    def __init__(self, node: Node, names: Sequence[str]) -> None:
        self._connectors = [
            AsyncConnector(LOOPBACK, node.port, name, CLIENT_ID, so_timeout_ms=int(OPEN_S * 1000)) for name in names
        ]
        self.arrived: list[float] = []
        self._all = asyncio.Event()

    async def open(self) -> None:
        """Subscribe all of them."""
        gate = asyncio.Semaphore(CONNECTS_AT_ONCE)

        async def one(connector: AsyncConnector) -> None:
            async with gate:
                await connector.connect()
                await connector.subscribe("")

        await asyncio.gather(*map(one, self._connectors))

    async def read(self) -> None:
        """Get batches until cancelled."""
        await asyncio.gather(*map(self._read, self._connectors))

    async def _read(self, connector: AsyncConnector) -> None:
        while True:
            message = await connector.get_without_ack(ONE_ENTRY, WAIT_MS, eager=True)
            if not message.entries:
                continue
            self.arrived.append(time.monotonic())
            if len(self.arrived) == len(self._connectors):
                self._all.set()
            await connector.ack(message.id)

    async def row(self, server: SqlServer, number: int) -> list[float]:
        """Write a row; return after how many seconds each client has it, sorted."""
        self.arrived.clear()
        self._all.clear()
        committed = time.monotonic()
        await asyncio.to_thread(server.execute, f"INSERT INTO {TABLE} VALUES ({number})")
        await asyncio.wait_for(self._all.wait(), 60)
        return sorted(at - committed for at in self.arrived)


async def measured(server: SqlServer, count: int, idle_s: float, rows: int, pause_s: float) -> None:
    """Print the figures of one node."""
    server.execute("CREATE DATABASE IF NOT EXISTS bench", f"CREATE TABLE IF NOT EXISTS {TABLE} (id INT PRIMARY KEY)")
    names = [f"d{number:04}" for number in range(count)]
    began = time.monotonic()
    with Node(dict.fromkeys(names, follow(server)), wait_for=names[-1:]) as node:
        print(f"the node runs {count} destinations after {time.monotonic() - began:.1f} s", flush=True)
        clients = Clients(node, names)
        began = time.monotonic()
        await clients.open()
        reading = asyncio.create_task(clients.read())
        server.execute(f"INSERT INTO {TABLE} VALUES (0)")
        while len(clients.arrived) < count and time.monotonic() < began + OPEN_S:
            await asyncio.sleep(0.05)
        opened_s = time.monotonic() - began
        print(
            f"{len(clients.arrived)} streams have a first row after {opened_s:.1f} s;"
            f" {measure.cpu_seconds(node.pid):.1f} s of processor time of the node since its start",
            flush=True,
        )
        await asyncio.sleep(10)  # what follows the opening
        kinds = [str(row["Command"]) for row in server.query("SHOW PROCESSLIST")]
        dumps = sum("Binlog Dump" in kind for kind in kinds)
        others = len(kinds) - dumps - 2  # without the event scheduler and this question
        lines = Path(f"/proc/{node.pid}/status").read_text().splitlines()
        facts = {line.split(":")[0]: line.split()[1] for line in lines if line.split()[1:]}
        print(
            f"memory {int(facts['VmRSS']) / 1024:.0f} MB, threads {facts['Threads']}, dumps {dumps},"
            f" other connections {others}",
            flush=True,
        )
        before = measure.cpu_seconds(node.pid)
        await asyncio.sleep(idle_s)
        used = (measure.cpu_seconds(node.pid) - before) / idle_s
        print(f"idle: {used:.1%} of a core", flush=True)
        threads = len(list(Path(f"/proc/{node.pid}/task").iterdir()))
        print(f"threads after that: {threads}", flush=True)
        before = measure.cpu_seconds(node.pid)
        found = []
        for number in range(1, rows + 1):
            found.append(await clients.row(server, number))
            await asyncio.sleep(pause_s)
        used = (measure.cpu_seconds(node.pid) - before) / rows
        last = [times[-1] * 1000 for times in found]
        middle = [statistics.median(times) * 1000 for times in found]
        print(
            f"a row reaches half of the clients after {statistics.median(middle):.0f} ms,"
            f" all of them after {statistics.median(last):.0f} ms (at most {max(last):.0f}; {rows} rows);"
            f" {used * 1000:.0f} ms of the node's processor time for each, with the {pause_s:g} s behind it"
        )
        reading.cancel()


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--destinations", type=int, default=1000)
    parser.add_argument("--database", default="mysql", choices=("mariadb", "mysql"))
    parser.add_argument("--idle", type=float, default=20.0, help="seconds")
    parser.add_argument("--rows", type=int, default=20)
    parser.add_argument("--pause", type=float, default=3.0, help="seconds between two rows")
    chosen = parser.parse_args(arguments)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # the node inherits it
    with workloads.server(chosen.database) as server:
        server.execute("SET GLOBAL max_connections = 100000")
        asyncio.run(measured(server, chosen.destinations, chosen.idle, chosen.rows, chosen.pause))
    return 0


if __name__ == "__main__":
    sys.exit(main())
