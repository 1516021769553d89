"""Measures what a node spends on one client id, and on eight of one destination, at the tip of the binlog.

A paced writer commits single-row transactions. Counting clients with equal filters, each with its own client id, follow
the destination: one; eight that share a dump; and eight with a dump each. The ways take turns, each round with a new
node. The figures are medians: processor time of the node and of the database for a transaction, and the dumps that the
database sends.

    python -m bench.client_ids [--rows N] [--rounds N] [--pace N] [--database mariadb|mysql]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import latency, measure, workloads
from bench.paced import TABLE
from bench.suite import BATCH_SIZES, CLIENT_ID, COUNT, DESTINATION, settings
from bench.workloads import SCHEMA
from lab import Node, SqlServer

MANY = 8
OPEN_S = 30.0  # until the streams stand at the tip


@dataclass(frozen=True, slots=True)
class Way:
    """How many client ids read, and whether their streams may share a dump."""

    clients: int
    shared: bool


WAYS = {"one": Way(1, True), "eight, shared": Way(MANY, True), "eight, apart": Way(MANY, False)}


@dataclass(frozen=True, slots=True)
class Cost:
    """What one way takes. Times: microseconds of processor time a transaction."""

    node_us: float
    database_us: float
    dumps: int


def measured(server: SqlServer, way: Way, rows: int, pace: int) -> Cost:
    """Write `rows` transactions while the clients follow. Raises measure.ReaderFailed."""
    written = latency.begin(server, rows)
    instance = {**settings(server, written), "canal.instance.stream.shared": str(way.shared).lower()}
    with Node({DESTINATION: instance}) as node, TemporaryDirectory() as directory:
        ids = range(CLIENT_ID, CLIENT_ID + way.clients)
        readers = [
            measure.start_reader(measure.python(COUNT, node.address, DESTINATION, number, rows + 1, BATCH_SIZES[0]))
            for number in ids
        ]
        try:
            server.execute(f"INSERT INTO {SCHEMA}.{TABLE} VALUES (0, 0, 'first')")
            _await_tip(node, way)
            before = measure.cpu_seconds(node.pid), measure.cpu_seconds(server.pid)
            writer = measure.python("bench.paced", server.port, pace, rows, str(Path(directory, "times")))
            measure.run_reader(writer)
            dumps = sum("Binlog Dump" in row["Command"] for row in server.query("SHOW PROCESSLIST"))
            for reader in readers:
                measure.finish(reader)
            after = measure.cpu_seconds(node.pid), measure.cpu_seconds(server.pid)
        finally:
            for reader in readers:
                reader.kill()
    node_us, database_us = ((late - early) / rows * 1e6 for early, late in zip(before, after, strict=True))
    return Cost(node_us, database_us, dumps)


def _await_tip(node: Node, way: Way) -> None:
    """Wait until each stream has the first row, and shares a dump if it is to."""
    until = time.monotonic() + OPEN_S
    while time.monotonic() < until:
        streams = node.status()["destinations"][0]["streams"]
        ready = [each for each in streams if each["get_rows"] and each["shared"] == (way.shared and way.clients > 1)]
        if len(ready) == way.clients:
            return
        time.sleep(0.1)
    raise measure.ReaderFailed(f"the streams do not stand at the tip after {OPEN_S:g} s: {node.log_tail(10)}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line, run the rounds, print medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000, help="transactions of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pace", type=int, default=500, help="transactions a second")
    parser.add_argument("--database", default="mysql", choices=("mariadb", "mysql"))
    chosen = parser.parse_args(arguments)
    found: dict[str, list[Cost]] = {name: [] for name in WAYS}
    with workloads.server(chosen.database) as server:
        for _ in range(chosen.rounds):
            for name, way in WAYS.items():
                cost = measured(server, way, chosen.rows, chosen.pace)
                found[name].append(cost)
                print(f"{name:<15} {cost}", file=sys.stderr, flush=True)
    alone = statistics.median(cost.node_us for cost in found["one"])
    print(f"{chosen.database}, {chosen.rounds} rounds, {chosen.pace} transactions a second; µs of processor time each")
    for name, costs in found.items():
        node_us, database_us = (
            statistics.median(getattr(cost, it) for cost in costs) for it in ("node_us", "database_us")
        )
        dumps = max(cost.dumps for cost in costs)
        ratio = f"{node_us / alone:5.2f} of one"
        print(f"{name:<15} node {node_us:8.1f}  {ratio}   database {database_us:8.1f}   dumps {dumps}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
