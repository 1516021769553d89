"""Measures pipelines without Spark from a database's binlog into their targets, each beside a peer on the same machine.

    python -m bench.pipelines [--rows N ...] [--rounds N] [--workloads AB] [--readers NAME ...] [--database NAME]
    python -m bench.pipelines --transaction N    one transaction of N rows into Delta; prints the most memory that was
                                                 resident. --engine spark: on Spark, all its processes together
    python -m bench.pipelines --visible N        N single-row transactions, PACE a second; prints the time from sending
                                                 a COMMIT until the target has its row

All readers read the same rows from the same server, in turns, each into a new place. With two numbers of rows, the
slope between them is the rate without the start. B has a share of the rows; see workloads.

reader              what it does
delta changelog     a node and a pipeline; every change is a row of a Delta table
delta mirror        the same into a copy of the table
parquet changelog   the same into Parquet files
kafka canal-json    the same into Kafka, in transactions; one partition; many rows a message
kafka debezium-json the same, with a message for each row
kafka avro          the same as Avro, with a schema registry in this process
debezium kafka      Debezium's embedded engine into the same broker, JSON without schemas, idempotent, not transactional

The time runs from the start of the engine, after its libraries are loaded, to the commit with the last row. Processor
time a row is that of the pipeline, the node, the database and the broker. Memory is the pipeline's peak.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from deltalake import DeltaTable

from bench import measure, workloads
from bench.latency import begin
from bench.peers import HERE, JAVA_HEAP, installed
from bench.suite import DESTINATION, settings
from bench.workloads import SCHEMA, Written
from lab import Node, SqlServer
from lab.kafka import Kafka
from lab.mysql import ADMIN
from lab.node import PROGRAM
from lab.process import family_mib, spawn, temporary_directory
from lab.registry import Registry

PIPELINES: Mapping[str, Mapping[str, str]] = {
    "delta changelog": {"type": "delta", "mode": "changelog"},
    "delta mirror": {"type": "delta", "mode": "mirror"},
    "parquet changelog": {"type": "parquet", "mode": "changelog"},
    "kafka canal-json": {"type": "kafka", "mode": "events"},
    "kafka debezium-json": {"type": "kafka", "mode": "events", "format": "debezium-json"},
    "kafka avro": {"type": "kafka", "mode": "events", "format": "avro"},
}
DEBEZIUM = "debezium kafka"
READERS = (*PIPELINES, DEBEZIUM)
PARTS = ("pipeline", "node", "database", "broker")
TIMEOUT_S = 1800
PACE = 200  # transactions a second
SPARK_HEAP = "1g"  # of the driver and its executor
START_S = 10.0  # until a pipeline is connected; not required, because its position is fixed


@dataclass(frozen=True, slots=True)
class Taken:
    """One measurement.

    cpu_s: seconds of processor time by part of PARTS.
    """

    workload: str
    rows: int
    reader: str
    seconds: float
    cpu_s: Mapping[str, float]
    memory_bytes: int
    commits: int


@dataclass(slots=True)
class Bench:
    """A server with rows, and a broker and a schema registry if a reader needs them."""

    server: SqlServer
    broker: Kafka | None
    registry: Registry | None = None
    taken: list[Taken] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    def take(self, reader: str, written: Written) -> Taken:
        """Measure once. Raises ReaderFailed."""
        return self._debezium(written) if reader == DEBEZIUM else self._pipeline(reader, written)

    def _pipeline(self, reader: str, written: Written) -> Taken:
        directory = temporary_directory("bench-pipeline")
        with Node({DESTINATION: settings(self.server, written)}) as node:
            file = directory / "pipeline.yaml"
            file.write_text(json.dumps(self.description(reader, written, node, directory)))  # JSON is YAML
            pids = {"node": node.pid, **self._servers()}
            found, used = _spent(pids, lambda: run(measure.python("bench.readers.pipeline", file, written.rows)))
        used["pipeline"] = found["cpu_s"]
        return Taken(
            written.workload,
            written.rows,
            reader,
            found["seconds"],
            used,
            int(found["memory_bytes"]),
            int(found["commits"]),
        )

    def on_spark(self, written: Written) -> tuple[float, float]:
        """Read once into Delta on Spark. Return seconds with the start, and the most memory of all processes, MiB.

        Raises ReaderFailed.
        """
        directory = temporary_directory("bench-pipeline")
        with Node({DESTINATION: settings(self.server, written)}) as node, (directory / "log").open("wb") as log:
            description = {**self.description("delta changelog", written, node, directory), "engine": "spark"}
            file = directory / "pipeline.yaml"
            file.write_text(json.dumps({**description, "spark": {"settings": {"spark.driver.memory": SPARK_HEAP}}}))
            began, peak_mib = time.perf_counter(), 0.0
            process = spawn([PROGRAM, "pipeline", "run", str(file), "--once"], stdout=log, stderr=subprocess.STDOUT)
            while process.poll() is None:
                peak_mib = max(peak_mib, family_mib(process.pid))
                time.sleep(0.1)
            seconds = time.perf_counter() - began
        if process.returncode:
            raise measure.ReaderFailed((directory / "log").read_text(errors="replace")[-2000:])
        (table,) = (directory / "lake").rglob(written.table)
        there = DeltaTable(table).count()
        if there != written.rows:
            raise measure.ReaderFailed(f"the table has {there:,} rows of {written.rows:,}")
        return seconds, peak_mib

    def description(self, reader: str, written: Written, node: Node, directory: Path) -> Mapping[str, Any]:
        """Return the content of a pipeline's file."""
        target: dict[str, Any] = dict(PIPELINES[reader])
        if target["type"] == "kafka":
            assert self.broker is not None
            target |= {"servers": self.broker.address, "topic": f"bench-{time.time_ns()}"}
            if target.get("format") == "avro":
                assert self.registry is not None
                target["schemaRegistry"] = {"url": self.registry.url}
        else:
            target["path"] = str(directory / "lake")
        return {
            "name": f"bench-{time.time_ns()}",
            "state": str(directory / "state"),
            "engine": "embedded",
            "tables": [f"{SCHEMA}.{written.table}"],
            "source": {"servers": node.address, "destination": DESTINATION},
            "target": target,
        }

    def _debezium(self, written: Written) -> Taken:
        assert self.broker is not None
        directory = installed() / "debezium"
        table = f"{SCHEMA}.{written.table}"
        command = [
            *("java", *JAVA_HEAP, "-cp", f"{directory}/classes:{directory}/lib/*", "ToKafka"),
            *(self.server.flavor, str(self.server.port), ADMIN, ADMIN, table, written.journal, str(written.offset)),
            *(self.broker.address, str(written.rows)),
        ]
        if self.server.flavor == "mariadb":
            place = f"SELECT BINLOG_GTID_POS('{written.journal}', {written.offset}) AS gtids"
            command += [str(self.server.query(place)[0]["gtids"])]
        found, used = _spent(self._servers(), lambda: run(command))
        used["pipeline"] = found["cpu_s"]
        return Taken(written.workload, written.rows, DEBEZIUM, found["seconds"], used, 0, 0)

    def _servers(self) -> dict[str, int]:
        pids = {"database": self.server.pid}
        return pids if self.broker is None else {**pids, "broker": self.broker.pid}


def run(command: Sequence[str]) -> dict[str, float]:
    """Run a reader; return the JSON object in its last line. Raises ReaderFailed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        raise measure.ReaderFailed(f"{command[0]} ended with code {done.returncode}\n{done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(lines[-1])
    return found


def _spent(pids: Mapping[str, int], take: Callable[[], dict[str, float]]) -> tuple[dict[str, float], dict[str, float]]:
    """Return what `take` does, and the processor time of processes meanwhile."""
    before = {name: measure.cpu_seconds(pid) for name, pid in pids.items()}
    found = take()
    return found, {name: measure.cpu_seconds(pid) - before[name] for name, pid in pids.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line, run the rounds, print medians; return 1 if a reader failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[300_000], help="of workload A")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workloads", default="AB")
    parser.add_argument("--readers", nargs="+", default=list(READERS), choices=READERS)
    parser.add_argument("--database", default="mariadb", choices=("mariadb", "mysql"))
    parser.add_argument("--visible", type=int, default=0, help="measure the latency of so many transactions instead")
    parser.add_argument("--transaction", type=int, default=0, help="measure one transaction of so many rows instead")
    parser.add_argument("--engine", default="embedded", choices=("embedded", "spark"), help="of --transaction")
    chosen = parser.parse_args(arguments)
    if DEBEZIUM in chosen.readers and not chosen.transaction and not chosen.visible:
        subprocess.run(["bash", str(HERE / "install.sh"), "debezium"], check=True)
    needs_broker = not chosen.transaction and any("kafka" in reader for reader in chosen.readers)
    broker = Kafka() if needs_broker else None
    if broker is not None:
        broker.start()
    try:
        with workloads.server(chosen.database) as server, Registry() as registry:
            if chosen.transaction:
                return _transaction(Bench(server, None), chosen.transaction, chosen.engine)
            bench = Bench(server, broker, registry)
            if chosen.visible:
                return _visible(bench, [reader for reader in chosen.readers if reader in PIPELINES], chosen.visible)
            for rows in chosen.rows:
                for workload in chosen.workloads:
                    share = workloads.WORKLOADS[workload].share
                    written = workloads.write(server, workload, int(rows * share))
                    _rounds(bench, written, chosen.readers, chosen.rounds)
                    workloads.forget(server)
    finally:
        if broker is not None:
            broker.stop()
    print(report(bench))
    return 1 if bench.failed else 0


def _rounds(bench: Bench, written: Written, readers: Sequence[str], rounds: int) -> None:
    left = [reader for reader in readers if reader not in bench.failed]
    for number in range(rounds):
        for reader in list(left):
            try:
                taken = bench.take(reader, written)
            except (measure.ReaderFailed, subprocess.TimeoutExpired, OSError) as error:
                bench.failed[reader] = str(error).strip()
                left.remove(reader)
                continue
            bench.taken.append(taken)
            rate, load = taken.rows / taken.seconds, os.getloadavg()[0]
            what = f"{written.workload} {written.rows:,} round {number + 1}: {reader}"
            print(f"{what}: {rate:,.0f} rows/s, load {load:.1f}", file=sys.stderr, flush=True)


def report(bench: Bench) -> str:
    """Return the medians as a table of Markdown."""
    head = (
        "workload",
        "rows",
        "reader",
        "rows/s",
        *(f"{part}, µs a row" for part in PARTS),
        "peak memory, MB",
        "commits",
    )
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for key in dict.fromkeys((each.workload, each.rows, each.reader) for each in bench.taken):
        found = [each for each in bench.taken if (each.workload, each.rows, each.reader) == key]
        rows = key[1]
        costs = [median(each.cpu_s.get(part, 0.0) for each in found) / rows * 1e6 for part in PARTS]
        rate = rows / median(each.seconds for each in found)
        memory = median(each.memory_bytes for each in found) / 2**20
        shown = [*(f"{cost:.2f}" for cost in costs), f"{memory:.0f}", f"{median(each.commits for each in found):.0f}"]
        lines.append(f"| {key[0]} | {rows:,} | {key[2]} | {rate:,.0f} | {' | '.join(shown)} |")
    lines += _slopes(bench)
    lines += [f"\nnot measured: {name}: {reason}" for name, reason in bench.failed.items()]
    return "\n".join(lines)


def _slopes(bench: Bench) -> list[str]:
    """Return, for readers with two numbers of rows, rows a second between the smallest and the largest."""
    lines = []
    for workload, reader in dict.fromkeys((each.workload, each.reader) for each in bench.taken):
        found = [each for each in bench.taken if (each.workload, each.reader) == (workload, reader)]
        times = {
            rows: median(each.seconds for each in found if each.rows == rows) for rows in {each.rows for each in found}
        }
        few, many = min(times), max(times)
        if many > few and times[many] > times[few]:
            rate = (many - few) / (times[many] - times[few])
            start_s = times[few] - few / rate
            lines.append(f"\n{workload}, {reader}: slope {rate:,.0f} rows/s, start {start_s:.1f} s")
    return lines


def _transaction(bench: Bench, rows: int, engine: str) -> int:
    """Read one transaction into Delta; print its figures."""
    written = workloads.write_transaction(bench.server, rows)
    if engine == "spark":
        seconds, peak_mib = bench.on_spark(written)
        print(
            f"{written.rows:,} rows in one transaction on Spark: {written.rows / seconds:,.0f} rows/s, the start"
            f" included; peak memory of all its processes {peak_mib:.0f} MB, of them a heap of at most {SPARK_HEAP}"
        )
        return 0
    taken = bench.take("delta changelog", written)
    print(
        f"{rows:,} rows in one transaction: {taken.rows / taken.seconds:,.0f} rows/s,"
        f" peak memory {taken.memory_bytes / 2**20:.0f} MB, {taken.commits} commits"
    )
    return 0


def _visible(bench: Bench, readers: Sequence[str], rows: int) -> int:
    """Print the latency of each pipeline."""
    for reader in readers:
        directory = temporary_directory("bench-visible")
        written = begin(bench.server, rows)
        with Node({DESTINATION: settings(bench.server, written)}) as node:
            file, visible, committed = (directory / name for name in ("pipeline.yaml", "visible", "committed"))
            file.write_text(json.dumps(bench.description(reader, written, node, directory)))
            command = measure.python("bench.readers.visible", file, rows, visible)
            watcher = measure.start_reader(command)
            time.sleep(START_S)
            measure.run_reader(measure.python("bench.paced", bench.server.port, PACE, rows, committed))
            measure.finish(watcher)
        seen, sent = (_numbers(path) for path in (visible, committed))
        delays = [(seen[number] - sent[number]) / 1e6 for number in range(PACE + 1, rows + 1)]  # without a second
        shown = ", ".join(f"p{share} {measure.percentile(delays, share / 100):.0f} ms" for share in (50, 99))
        print(f"{reader}: {shown}, {PACE} transactions a second, load {os.getloadavg()[0]:.1f}", flush=True)
    return 0


def _numbers(file: Path) -> array[int]:
    numbers: array[int] = array("q")
    numbers.frombytes(file.read_bytes())
    return numbers


if __name__ == "__main__":
    sys.exit(main())
