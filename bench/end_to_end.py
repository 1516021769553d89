"""Rows per second from a database through a node to a counting client, beside mysql-replication on the same rows.

Rounds are interleaved, every figure is a median, and each reader starts as a fresh process; its start is not counted.
CANAL_HA_KERNEL chooses the kernel of the node.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

from bench import rows as workload
from tests.real import MariaDB, MySQL, Node, SqlServer, follow

DESTINATION = "bench"


def run_reader(module: str, *arguments: object) -> float:
    """Run a reader as a process of its own; return the seconds it measured."""
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)], stdout=subprocess.PIPE, text=True, check=True
    )
    return float(done.stdout)


def node_round(server: SqlServer, start: tuple[str, int], rows: int) -> tuple[float, float]:
    """Start a node, count the rows with a client; return seconds, and seconds of processor time the node took."""
    settings = {
        "canal.instance.master.journal.name": start[0],
        "canal.instance.master.position": str(start[1]),
        "canal.instance.filter.regex": rf"{workload.SCHEMA}\\..*",
    }
    with Node({DESTINATION: follow(server, settings)}) as node:
        before = _cpu_seconds(node.pid)
        seconds = run_reader("bench.count", node.address, DESTINATION, rows)
        return seconds, _cpu_seconds(node.pid) - before


def _cpu_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Read the command line, run the rounds, print medians and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=int, nargs="?", default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--database", choices=["mariadb", "mysql", "both"], default="both")
    parser.add_argument("--at-least", type=float, default=0.0, help="fail when a ratio is below this")
    arguments = parser.parse_args()
    kernel = os.environ.get("CANAL_HA_KERNEL", "auto")
    print(f"{arguments.rows:,} rows, {arguments.rounds} rounds, kernel {kernel}, {os.cpu_count()} cores")
    print(
        f"\n{'rows/s, median':<16}{'canal-ha':>12}{'mysql-repl.':>12}{'ratio':>8}{'node CPU s':>12}   rounds (rows/s)"
    )
    good = True
    for name, server in (
        ("mariadb", MariaDB(extra=["--binlog-annotate-row-events=OFF"])),  # the statements would double the bytes
        ("mysql", MySQL()),
    ):
        if arguments.database in (name, "both"):
            good &= _compare(server, arguments.rows, arguments.rounds) >= arguments.at_least
    return 0 if good else 1


def _compare(server: SqlServer, rows: int, rounds: int) -> float:
    ours: list[float] = []
    peers: list[float] = []
    cpu: list[float] = []
    with server:
        start = workload.write(server, rows)
        time.sleep(1)
        for _ in range(rounds):
            seconds, node_cpu = node_round(server, start, rows)
            ours.append(rows / seconds)
            cpu.append(node_cpu)
            peers.append(rows / run_reader("bench.peer", server.port, *start, rows))
    ratio = statistics.median(ours) / statistics.median(peers)
    print(
        f"{server.flavor + ' ' + server.version:<16}{statistics.median(ours):>12,.0f}{statistics.median(peers):>12,.0f}"
        f"{ratio:>8.2f}{statistics.median(cpu):>12.2f}   "
        + " ".join(f"{a:,.0f}/{b:,.0f}" for a, b in zip(ours, peers, strict=True)),
        flush=True,
    )
    return ratio


if __name__ == "__main__":
    sys.exit(main())
