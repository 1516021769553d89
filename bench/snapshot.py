"""Measures a snapshot of one table, beside the C client that reads the same rows and drops them, and beside peers.

The snapshot goes from the server through a node to a client that counts rows, over one connection and over several. The
C client, mysql or mariadb, runs one SELECT without a buffer of its own. All readers take turns, each round with a new
node. The figures are medians.

    python -m bench.snapshot [--rows N] [--rounds N] [--connections N ...] [--database mariadb|mysql ...]
                             [--peers debezium|mydumper ...]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench import measure, workloads
from bench.peers import snapshots as peers
from bench.suite import CLIENT_ID, COUNT, DESTINATION, settings
from bench.workloads import SCHEMA, Written
from lab import MySQL, Node, SqlServer
from lab.mysql import ADMIN
from lab.ports import LOOPBACK

BATCH_SIZE = 10_000  # kilobytes
SNAPSHOT, C_CLIENT = "snapshot", "C client"
HEADER = f"{'database':<10}{'reader':<22}{'rows/s':>12}{'snapshot is':>14}{'CPU us/row':>13}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line, run the rounds, print medians; return 1 if a reader failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_200_000, help="of workload A")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--database", nargs="+", default=["mariadb", "mysql"], choices=("mariadb", "mysql"))
    parser.add_argument("--connections", type=int, nargs="*", default=[4], help="of the snapshot, besides one")
    parser.add_argument("--peers", nargs="*", default=[], choices=peers.NAMES, help="installed if missing")
    chosen = parser.parse_args(arguments)
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {text}", file=sys.stderr, flush=True)

    samples = measure.Samples()
    missing = peers.install(chosen.peers)
    rows = []
    for database in chosen.database:
        with workloads.server(database) as server:
            written = workloads.write(server, "A", chosen.rows)
            takes = {SNAPSHOT: _snapshot(server, written, SNAPSHOT, 1), C_CLIENT: _c_client(server, written)}
            for count in chosen.connections:
                name = f"{SNAPSHOT}, {count} conn."
                takes[name] = _snapshot(server, written, name, count)
            takes |= peers.takes(server, written, [name for name in chosen.peers if name not in missing])
            measure.in_turns(takes, chosen.rounds, samples, say)
            rows += [row(samples, server.flavor, reader) for reader in takes]
    print(HEADER, *rows, sep="\n")
    for name, reason in (missing | samples.failed).items():
        print(f"not measured: {name}: {reason}")
    return 1 if samples.failed.keys() & {SNAPSHOT, C_CLIENT} else 0


def row(samples: measure.Samples, database: str, reader: str) -> str:
    """Return a reader's line under HEADER: its rate, the snapshot's rate divided by it, and processor time a row.

    The processor time is that of the node, or of the peer's process; "-" stands for what was not measured.
    """
    rate, ours = (samples.median(database, "A", name, lambda each: each.rate) for name in (reader, SNAPSHOT))
    cost = samples.median(database, "A", reader, lambda each: each.cpu_s / each.rows * 1e6)
    cells = (
        f"{rate:,.0f}" if rate else "-",
        f"{ours / rate:.2f} x" if ours and rate else "-",
        f"{cost:.2f}" if cost else "-",
    )
    return f"{database:<10}{reader:<22}{cells[0]:>12}{cells[1]:>14}{cells[2]:>13}"


def _snapshot(server: SqlServer, written: Written, name: str, connections: int) -> measure.Take:
    """Return a snapshot of a workload's table, which begins with a client's first subscription."""
    properties = settings(server, written)
    for key in ("canal.instance.master.journal.name", "canal.instance.master.position"):
        del properties[key]  # the stream begins at the end of the binlog
    properties["canal.instance.snapshot.connections"] = str(connections)

    def take() -> measure.Sample:
        with Node({DESTINATION: properties}) as node:
            command = measure.python(COUNT, node.address, DESTINATION, CLIENT_ID, written.rows, BATCH_SIZE)
            environment = {"CANAL_HA_SNAPSHOT": f"{SCHEMA}.{written.table}"}
            found, used, memory = measure.through(node, lambda: measure.run_reader(command, environment))
        return measure.Sample(server.flavor, written.workload, name, written.rows, found["seconds"], used, memory)

    return take


def _c_client(server: SqlServer, written: Written) -> measure.Take:
    """Return the server's own client with the SELECT of a whole table."""
    program = ["mariadb", "--no-defaults"]
    if isinstance(server, MySQL):
        *loader, daemon = server.binary()
        program = [*loader, str(Path(daemon).parent.parent / "bin" / "mysql"), "--no-defaults"]
        program += ["--ssl-mode=DISABLED", "--get-server-public-key"]  # without TLS, as the node reads
    command = [
        *program,
        *("--quick", "--skip-column-names", f"--host={LOOPBACK}", f"--port={server.port}"),
        *(f"--user={ADMIN}", f"--password={ADMIN}", f"--execute=SELECT * FROM {SCHEMA}.{written.table}"),
    ]

    def take() -> measure.Sample:
        began = time.perf_counter()
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        seconds = time.perf_counter() - began
        if done.returncode:
            raise measure.ReaderFailed(done.stderr)
        return measure.Sample(server.flavor, written.workload, C_CLIENT, written.rows, seconds)

    return take


if __name__ == "__main__":
    sys.exit(main())
