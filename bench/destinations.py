"""Measures a node with many destinations of one server, each with an open stream, on an idle source.

One thread has a client for each destination. All of them wait in a GET. The figures: how long all streams need to
open, the node's memory, threads and connections to the database, its processor time while nothing comes, and how long
one row needs to reach every client.

    python -m bench.destinations [--destinations N] [--database mariadb|mysql] [--idle SECONDS] [--rows N]
        [--pause SECONDS]
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

from bench import measure, workloads
from bench.suite import CLIENT_ID
from bench.waiting_clients import WaitingClients
from lab import Node, SqlServer, follow

TABLE = "bench.everywhere"
OPEN_S = 600.0  # longest wait for all streams
ROW_S = 60.0  # longest wait for one row


def row(clients: WaitingClients, server: SqlServer, number: int) -> list[float]:
    """Write a row; return after how many seconds each client has it, sorted. Raises TimeoutError."""
    clients.arrived.clear()
    committed = time.monotonic()
    with ThreadPoolExecutor(1) as writer:
        written = writer.submit(server.execute, f"INSERT INTO {TABLE} VALUES ({number})")
        arrived = clients.until_arrived(ROW_S, give_up=lambda: written.done() and written.exception() is not None)
        written.result()
    if not arrived:
        raise TimeoutError(f"row {number} has not reached all clients after {ROW_S:g} s")
    return sorted(at - committed for at in clients.arrived.values())


def measured(server: SqlServer, count: int, idle_s: float, rows: int, pause_s: float) -> None:
    """Print the figures of one node."""
    server.execute("CREATE DATABASE IF NOT EXISTS bench", f"CREATE TABLE IF NOT EXISTS {TABLE} (id INT PRIMARY KEY)")
    names = [f"d{number:04}" for number in range(count)]
    began = time.monotonic()
    with Node(dict.fromkeys(names, follow(server)), wait_for=names[-1:]) as node, ExitStack() as stack:
        print(f"the node runs {count} destinations after {time.monotonic() - began:.1f} s", flush=True)
        clients = stack.enter_context(closing(WaitingClients(node.port, names, CLIENT_ID)))
        began = time.monotonic()
        if not clients.until_connected(OPEN_S):
            raise TimeoutError(f"the clients could not connect within {OPEN_S:g} s")
        server.execute(f"INSERT INTO {TABLE} VALUES (0)")
        clients.until_arrived(OPEN_S)
        opened_s = time.monotonic() - began
        print(
            f"{len(clients.arrived)} streams have a first row after {opened_s:.1f} s;"
            f" {measure.cpu_seconds(node.pid):.1f} s of processor time of the node since its start",
            flush=True,
        )
        clients.pause(10)  # what follows the opening
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
        clients.pause(idle_s)
        used = (measure.cpu_seconds(node.pid) - before) / idle_s
        print(f"idle: {used:.1%} of a core", flush=True)
        threads = len(list(Path(f"/proc/{node.pid}/task").iterdir()))
        print(f"threads after that: {threads}", flush=True)
        before = measure.cpu_seconds(node.pid)
        found = []
        for number in range(1, rows + 1):
            found.append(row(clients, server, number))
            clients.pause(pause_s)
        used = (measure.cpu_seconds(node.pid) - before) / rows
        last = [times[-1] * 1000 for times in found]
        middle = [statistics.median(times) * 1000 for times in found]
        print(
            f"a row reaches half of the clients after {statistics.median(middle):.0f} ms,"
            f" all of them after {statistics.median(last):.0f} ms (at most {max(last):.0f}; {rows} rows);"
            f" {used * 1000:.0f} ms of the node's processor time for each, with the {pause_s:g} s behind it"
        )


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
        measured(server, chosen.destinations, chosen.idle, chosen.rows, chosen.pause)
    return 0


if __name__ == "__main__":
    sys.exit(main())
