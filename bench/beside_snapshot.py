"""Measures what the snapshot of a large table costs a node and its streams: memory, and the latency of other rows.

Single-row transactions are committed at an even pace all the time. Two clients read them: the one whose stream the
snapshot is put into, and another one. Latency is from sending a COMMIT to the client that has parsed the row, before
the snapshot begins and until it ends. The time until the database answers the COMMIT is measured, too: a node cannot
shorten it.

    python -m bench.beside_snapshot [--rows N] [--rows-per-second N] [--database mariadb|mysql ...]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from bench import measure, workloads
from bench.paced import TABLE
from bench.suite import CLIENT_ID, DESTINATION
from bench.workloads import POOL, SCHEMA
from lab import Node, SqlServer, follow
from lab.node import PROGRAM
from lab.process import memory_mib, spawn
from lab.waiting import until

PACE = 200  # transactions a second
IDLE_S = 15.0
WARM_UP_S = 3.0  # not counted
OTHER_CLIENT = CLIENT_ID + 1
RING_MIB = 16  # canal's default
ALLOWED_MIB = RING_MIB + 64
PATIENCE_S = 3600.0
_DOUBLED_AT_ONCE = 200_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line, measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000, help="of workload A (default: 10,000,000)")
    parser.add_argument("--rows-per-second", type=int, default=0, help="canal.instance.snapshot.rowsPerSecond")
    parser.add_argument("--database", nargs="+", default=["mariadb", "mysql"], choices=("mariadb", "mysql"))
    chosen = parser.parse_args(arguments)
    for database in chosen.database:
        with workloads.server(database) as server:
            began = time.monotonic()
            rows = fill(server, chosen.rows)
            print(f"{database}: {rows:,} rows written in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
            measured(server, rows, chosen.rows_per_second)
    return 0


def fill(server: SqlServer, rows: int) -> int:
    """Write the table of workload A; the rows are not in the binlog. Return how many it has."""
    table = f"{SCHEMA}.{workloads.write(server, 'A', POOL).table}"
    server.execute(f"CREATE TABLE {SCHEMA}.{TABLE} (id INT NOT NULL PRIMARY KEY, k INT NOT NULL, text VARCHAR(20))")
    there = POOL
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_log_bin = 0")
        while there < rows:
            count = min(there, rows - there, _DOUBLED_AT_ONCE)
            cursor.execute(f"INSERT INTO {table} SELECT id + {there}, k, c, pad FROM {table} WHERE id <= {count}")
            there += count
        cursor.execute(f"ANALYZE TABLE {table}")
    return there


def measured(server: SqlServer, rows: int, most: int = 0) -> None:
    """Read the table in a snapshot, beside paced transactions, and print what it cost.

    most: rows a second that the snapshot may read; 0 for as many as it can.
    """
    table = f"{SCHEMA}.{workloads.table_of('A')}"
    chosen = {
        "canal.instance.filter.regex": rf"{SCHEMA}\\.({workloads.table_of('A')}|{TABLE})",
        "canal.instance.snapshot.rowsPerSecond": str(most),
    }
    settings = follow(server, chosen)
    with (
        Node({DESTINATION: settings}) as node,
        _arrivals(node, CLIENT_ID) as own,
        _arrivals(node, OTHER_CLIENT) as others,
    ):
        with _paced(server) as committed:
            time.sleep(WARM_UP_S + IDLE_S)
            before_mib, cpu_s, began = memory_mib(node.pid), measure.cpu_seconds(node.pid), time.monotonic_ns()
            command = [PROGRAM, "snapshot", "start", "--conf", str(node.conf), "--destination", DESTINATION]
            subprocess.run([*command, "--client-id", str(CLIENT_ID), "--table", table], check=True, capture_output=True)
            peak_mib = _watched(node)
            ended, cpu_s = time.monotonic_ns(), measure.cpu_seconds(node.pid) - cpu_s
        last = max(committed.sent)
        until(lambda: last in own and last in others, seconds=60, what="the last row")
    seconds = (ended - began) / 1e9
    grown = peak_mib - before_mib
    print(f"{server.flavor}: {rows:,} rows in {seconds:.0f} s, {rows / seconds:,.0f} rows/s, beside {PACE} commits/s")
    print(f"    memory {before_mib:.0f} MiB, at most {peak_mib:.0f}: grown by {grown:.0f}, allowed {ALLOWED_MIB} MiB;")
    print(f"    processor {cpu_s / seconds:.0%} of one core")
    first = min(committed.sent.values()) + WARM_UP_S * 1e9
    answers = {"the same client": own, "another client": others, "the COMMIT alone": committed.answered}
    for name, arrived in answers.items():
        idle = _latency(committed.sent, arrived, first, began)
        beside = _latency(committed.sent, arrived, began, ended)
        print(f"    latency of {name:17}  idle p50 {idle[0]:.1f}, p99 {idle[1]:.1f} ms;", end="")
        print(f"  during the snapshot p50 {beside[0]:.1f}, p99 {beside[1]:.1f} ms", flush=True)


def _watched(node: Node) -> float:
    """Wait for the end of the snapshot; return the most memory that the node had meanwhile, MiB."""
    peak, until_s = 0.0, time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        for _ in range(10):
            peak = max(peak, memory_mib(node.pid))
            time.sleep(0.05)
        snapshot = _snapshot(node)
        if snapshot["phase"] != "running":
            assert snapshot["phase"] == "done", snapshot
            return peak
    raise measure.ReaderFailed(f"the snapshot did not end within {PATIENCE_S:.0f} s")


def _snapshot(node: Node) -> dict[str, Any]:
    (destination,) = node.status()["destinations"]
    return next(dict(stream["snapshot"]) for stream in destination["streams"] if stream["client_id"] == CLIENT_ID)


@dataclass(frozen=True, slots=True)
class _Commits:
    """When each COMMIT was sent, and when the database had answered it; monotonic ns by id."""

    sent: dict[int, int] = field(default_factory=dict)
    answered: dict[int, int] = field(default_factory=dict)


@contextmanager
def _paced(server: SqlServer) -> Iterator[_Commits]:
    """Commit transactions until the block ends."""
    committed = _Commits()
    ending = threading.Event()

    def write() -> None:
        with server.connect(autocommit=False, database=SCHEMA) as connection, connection.cursor() as cursor:
            began, number = time.monotonic(), 0
            while not ending.is_set():
                number += 1
                time.sleep(max(0.0, began + number / PACE - time.monotonic()))
                cursor.execute(f"INSERT INTO {TABLE} VALUES ({number}, {number % 1000}, 'paced')")
                committed.sent[number] = time.monotonic_ns()
                connection.commit()
                committed.answered[number] = time.monotonic_ns()

    writer = threading.Thread(target=write, name="paced")
    writer.start()
    try:
        yield committed
    finally:
        ending.set()
        writer.join()


@contextmanager
def _arrivals(node: Node, client_id: int) -> Iterator[dict[int, int]]:
    """Run a client. Yield when each row arrived, monotonic ns by id."""
    arrived: dict[int, int] = {}
    command = measure.python("bench.readers.beside", node.address, DESTINATION, client_id)
    process = spawn(command, stdout=subprocess.PIPE, text=True)

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            number, at = map(int, line.split())
            arrived.setdefault(number, at)  # the beginning of the snapshot may deliver rows again

    reader = threading.Thread(target=read, name=f"arrivals-{client_id}")
    reader.start()
    try:
        until(lambda: _reads(node, client_id), seconds=60, what="the client")
        yield arrived
    finally:
        process.kill()
        process.wait()
        reader.join()


def _reads(node: Node, client_id: int) -> bool:
    (destination,) = node.status()["destinations"]
    return any(stream["client_id"] == client_id for stream in destination["streams"])


def _latency(sent: dict[int, int], arrived: dict[int, int], first: float, last: float) -> tuple[float, float]:
    """Return p50 and p99 of the transactions committed in this time, ms."""
    delays = [(arrived[number] - at) / 1e6 for number, at in sent.items() if first <= at < last]
    return measure.percentile(delays, 0.5), measure.percentile(delays, 0.99)


if __name__ == "__main__":
    raise SystemExit(main())
