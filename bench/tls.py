"""Compares TLS with plain connections: rows a second, processor time, and latency.

Ingest reads workloads A and B from the server. The counting client reads them from a node, whose source has no TLS. A
paced writer and a client measure latency. Plain and TLS take turns, each round with a new node and a new client. The
figures are medians of the rounds, and ratios of medians.

    python -m bench.tls [--rows N] [--rounds N] [--database mariadb|mysql]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench import latency, measure, workloads
from bench.suite import CLIENT_ID, COUNT, DESTINATION, Suite, settings
from bench.workloads import WORKLOADS, Written
from lab import Node
from lab.certificates import Authority

BATCH_SIZE = 10_000  # kilobytes
PACED = 8000  # transactions of a round
PLAIN, TLS = "plain", "TLS"


class Ports:
    """A node's client port in both ways."""

    def __init__(self, suite: Suite, directory: Path) -> None:
        authority = Authority(directory)
        self._suite = suite
        self._properties = {PLAIN: {}, TLS: {"canal.tls.cert": str(authority.sign("node"))}}
        self._environment = {PLAIN: {}, TLS: {"CANAL_HA_TLS_CA": str(authority.file)}}

    def count(self, way: str, written: Written) -> measure.Sample:
        """Read a workload."""
        with self._node(way, written) as node:
            command = measure.python(COUNT, node.address, DESTINATION, CLIENT_ID, written.rows, BATCH_SIZE)
            found, used, memory = measure.through(node, lambda: measure.run_reader(command, self._environment[way]))
        return measure.Sample(self._suite.database, written.workload, way, written.rows, found["seconds"], used, memory)

    def paced(self, way: str) -> latency.Latency:
        """Measure the latency of single-row transactions."""
        written = latency.begin(self._suite.server, PACED)
        with self._node(way, written) as node:
            return latency.paced(self._suite, way, "canal", node.address, PACED, self._environment[way])

    def _node(self, way: str, written: Written) -> Node:
        return Node({DESTINATION: settings(self._suite.server, written)}, properties=self._properties[way])


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line, run the rounds, print medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_200_000, help="of workload A; B has its share")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--database", default="mysql", choices=("mariadb", "mysql"))
    chosen = parser.parse_args(arguments)
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {text}", file=sys.stderr, flush=True)

    samples = measure.Samples()
    with workloads.server(chosen.database) as server, tempfile.TemporaryDirectory() as directory:
        suite = Suite(server, frozenset(), chosen.rounds, say, samples)
        ports = Ports(suite, Path(directory))
        for name in "AB":
            written = workloads.write(server, name, int(chosen.rows * WORKLOADS[name].share))
            source = measure.Samples()
            for mode in ("DISABLED", "REQUIRED") * chosen.rounds:
                sample = suite.ingest(written, mode)()
                source.taken.append(replace(sample, reader=TLS if mode == "REQUIRED" else PLAIN))
            _compare(source, server.flavor, name, "ingest")
            measure.in_turns({way: _taking(ports, way, written) for way in (PLAIN, TLS)}, chosen.rounds, samples, say)
            _compare(samples, server.flavor, name, "client")
        found = [ports.paced(way) for _ in range(chosen.rounds) for way in (PLAIN, TLS)]
        for title in ("p50_ms", "p99_ms"):
            medians = (
                statistics.median(getattr(each, title) for each in found if each.reader == way) for way in (PLAIN, TLS)
            )
            _print(f"latency {title}", *medians)
    print(f"{chosen.database}, {chosen.rounds} rounds", samples.failed or "")
    return 1 if samples.failed else 0


def _taking(ports: Ports, way: str, written: Written) -> measure.Take:
    return lambda: ports.count(way, written)


def _compare(samples: measure.Samples, database: str, workload: str, reader: str) -> None:
    for title, what in (("rows/s", _rate), ("processor, ns a row", _cost)):
        medians = (samples.median(database, workload, way, what) for way in (PLAIN, TLS))
        _print(f"{workload} {reader}: {title}", *medians)


def _rate(sample: measure.Sample) -> float:
    return sample.rate


def _cost(sample: measure.Sample) -> float:
    return sample.cpu_s / sample.rows * 1e9


def _print(title: str, plain: float | None, tls: float | None) -> None:
    if plain and tls:
        print(f"{title:<32} plain {plain:>12,.2f}   TLS {tls:>12,.2f}   ratio {tls / plain:.2f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
