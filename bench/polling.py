"""Measures the latency of canal's own Java client, which polls, at a node and at canal's Java server, in turns.

The client sends GETs that do not wait, and pauses for a millisecond after an empty answer. Single-row transactions
come at an even pace. The figures: milliseconds from sending COMMIT until the client has parsed the row, medians of the
rounds.

    python -m bench.polling [--rows N] [--rounds N] [--paces N ...]

`bash bench/peers/install.sh java` installs the client and the server. The server follows MariaDB.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence

from bench import measure, peers, workloads
from bench.latency import PACES, WARM_UP, Latency, begin, observed
from bench.suite import DESTINATION, Suite, settings
from bench.workloads import Written
from lab import Node

KILOBYTES = 1000  # of a batch
CONNECTS_S = 5.0  # a virtual machine of Java, its connection, and a server that finds its place


def measured(suite: Suite, rows: int, pace: int) -> dict[str, Latency]:
    """Measure one round. rows: transactions, with those that warm up. Raises measure.ReaderFailed, StartFailed."""

    def client(port: int, written: Written, name: str) -> Latency:
        def command(file: str) -> list[str]:
            return peers.java_arrivals(port, written.rows, KILOBYTES, file)

        return observed(suite, name, command, written.rows, pace=pace, connects_s=CONNECTS_S)

    written = begin(suite.server, rows)
    with Node({DESTINATION: settings(suite.server, written)}) as node:
        ours = client(node.port, written, "canal-ha")
    written = begin(suite.server, rows)
    with peers.JavaServer(suite.server, written) as server:
        theirs = client(server.port, written, "canal (Java)")
    return {each.reader: each for each in (ours, theirs)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rows", type=int, default=10_000, help="transactions at the slowest pace; more at a faster one"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--paces", type=int, nargs="+", default=PACES, help="transactions a second")
    chosen = parser.parse_args(arguments)
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {text}", file=sys.stderr, flush=True)

    with workloads.server("mariadb") as server:
        suite = Suite(server, frozenset(), chosen.rounds, say, measure.Samples(), {})
        for pace in chosen.paces:
            rounds = [
                measured(suite, WARM_UP + chosen.rows * pace // min(chosen.paces), pace) for _ in range(chosen.rounds)
            ]
            for name in rounds[0]:
                samples = [each[name] for each in rounds]
                p50, p99 = (_median(samples, what) for what in (lambda each: each.p50_ms, lambda each: each.p99_ms))
                print(f"{pace:,} transactions/s through {name}: p50 {p50:.2f} ms, p99 {p99:.2f} ms", flush=True)
    return 0


def _median(samples: Sequence[Latency], what: Callable[[Latency], float]) -> float:
    return statistics.median(map(what, samples))


if __name__ == "__main__":
    sys.exit(main())
