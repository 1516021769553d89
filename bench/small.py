"""The small benchmark of `deploy/test.sh speed`: fails if ratios within one run are too low, with wide margins.

It compares the compiled kernel with the interpreted one, in memory. It also compares a node with the interpreted
kernel, and ingest with the installed kernel, with mysql-replication on the same rows.
"""

from __future__ import annotations

import statistics
import sys
import time

from bench import kernel, measure, workloads
from bench.suite import COUNT, Suite

ROWS = 50_000
ROUNDS = 3
BATCH_SIZE = 10_000
COMPILED_AT_LEAST = 8  # times the interpreted kernel; typical values are 20 to 100
NODE_AT_LEAST = 1.0  # times mysql-replication, with the interpreted kernel
INGEST_AT_LEAST = 3.0  # times mysql-replication; with few rows, most of the time is for connecting


def main() -> int:
    """Return 1 if a ratio is too small or was not measured."""
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {text}", file=sys.stderr, flush=True)

    good = kernel.main(["A", "C", "--scale", "0.2", "--rounds", "1", "--at-least", str(COMPILED_AT_LEAST)]) == 0
    for database in ("mariadb", "mysql"):
        samples = _measured(database, say)
        peer = _rate(samples, "mysql-replication")
        for reader, wanted in (("count", NODE_AT_LEAST), ("ingest", INGEST_AT_LEAST)):
            ratio = _rate(samples, reader) / peer if peer else 0.0
            good &= ratio >= wanted
            print(f"{database}: {reader} to mysql-replication: {ratio:.2f}, required {wanted:g}", flush=True)
    return 0 if good else 1


def _measured(database: str, say: measure.Say) -> measure.Samples:
    samples = measure.Samples()
    with workloads.server(database) as server:
        suite = Suite(server, frozenset(), ROUNDS, say, samples)
        written = workloads.write(server, "A", ROWS)
        takes: dict[str, measure.Take] = {
            "count": lambda: suite.through_node(COUNT, written, ROWS, BATCH_SIZE, {"CANAL_HA_KERNEL": "off"}),
            "ingest": suite.ingest(written),
            "mysql-replication": suite.mysql_replication(written, ROWS // 5),
        }
        measure.in_turns(takes, ROUNDS, samples, say)
    return samples


def _rate(samples: measure.Samples, reader: str) -> float:
    return statistics.median([one.rate for one in samples.taken if one.reader == reader] or [0.0])


if __name__ == "__main__":
    sys.exit(main())
